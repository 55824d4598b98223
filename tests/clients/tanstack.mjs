/** TanStack AI: the one mainstream client that resumes by id. */

import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";
import { Streams, textsInOrder, waitFor } from "./harness.mjs";

/**
 * Returns all parts in order with their roles, and each result after its call. The client assigns calls, results and
 * reasoning to messages by the order in which it received them. Times are its own. Reasoning has the id of its step only
 * if it did not come in a snapshot (`aguiSnapshotMessageToUIMessage`). A result has an id only if it was not received
 * live, and metadata only if it was. The result tells the outcome of a call; the call itself has it only after a
 * snapshot in between.
 */
function partsOf(messages) {
  const parts = messages.flatMap(({ role, parts }) => parts.map(({ stepId, createdAt, ...part }) => ({ role, ...part })));
  const resultsOf = (call) => parts.filter(({ type, toolCallId }) => type === "tool-result" && toolCallId === call);
  const hasCall = ({ type, toolCallId }) => type === "tool-result" && parts.some(({ type, id }) => type === "tool-call" && id === toolCallId);
  return parts.filter((part) => !hasCall(part)).flatMap((part) => {
    const results = part.type === "tool-call" ? resultsOf(part.id) : [];
    const { state, output, ...call } = part;
    return [results.length > 0 ? call : part, ...results.map(({ id, metadata, ...result }) => result)];
  });
}

const textsOf = (messages) => messages.flatMap(({ parts }) => parts.filter(({ type }) => type === "text" || type === "thinking").map(({ content }) => content)).filter(Boolean);

/** The states of results by the native states of their calls. */
const RESULT_STATES = { "output-available": "complete", "output-error": "error", cancelled: "error" };

/** Returns the first call whose result does not have the outcome of the native one. */
function wrongOutcome({ raw: { parts }, native }) {
  const calls = new Map(native.filter(({ activityType }) => activityType === "tool-call-progress").map(({ activityId, content }) => [activityId, content]));
  const isWrong = ({ type, toolCallId, state, error }) =>
    type === "tool-result" && calls.has(toolCallId) && (state !== RESULT_STATES[calls.get(toolCallId).state] || (state === "error") !== Boolean(error));
  const wrong = parts.find(isWrong);
  return wrong && `the result ${JSON.stringify(wrong)} is of the call ${JSON.stringify(calls.get(wrong.toolCallId))}`;
}

export const tanstack = {
  name: "TanStack AI 0.33.2",
  sendsRequest: true,
  namesRuns: true,
  reconnects: true,
  // Two turns of one run. If a page gets the end of one and the begin of the next at once, this client adds the next
  // turn's first thought to the message before its question, and an agent's name is in its parts or not.
  excludes: ["acp/scripted-session_load_replay", "claude-stream-json/subagent_background_second_turn"],
  nativeTexts: textsInOrder,
  check: wrongOutcome,
  open({ url, agent, run, thread, user }) {
    const streams = new Streams({ isTerminal: ({ type }) => ["RUN_FINISHED", "RUN_ERROR"].includes(type), idsFirst: true });
    let markHydrated, client;
    const fetchClient = async (url, init) => {
      const response = await streams.fetch(url, init);
      if (!url.includes("threadId=")) return response;
      // After reading the thread the client joins a live run in the same tick, or the thread is idle.
      const readJson = response.json.bind(response);
      response.json = async () => {
        const thread = await readJson();
        setImmediate(markHydrated);
        return thread;
      };
      return response;
    };
    const connection = fetchServerSentEvents(`${url}/ag-ui/${agent}`, { fetchClient, reconnect: { delayMs: 10, maxAttempts: 50 } });
    const createClient = (persistence) => {
      client?.dispose();
      client = new ChatClient({ connection, threadId: thread, persistence });
      client.attach();
    };
    const untilIdle = () => waitFor("the client to be idle", () => !client.getIsLoading());
    /** Opens the page again: the server has the thread. */
    const reload = () => streams.track(async () => {
      const hydrating = new Promise((resolve) => (markHydrated = resolve));
      createClient(true);
      await hydrating;
      // An idle thread has no stream.
      if (!client.getIsLoading()) streams.markOpened();
      await untilIdle();
    });
    createClient(false);
    return {
      begin: () => streams.track(() => client.sendMessage({ id: user, content: "Go on." }).then(untilIdle)),
      join: reload,
      resume: reload,
      content: () => ({
        parts: partsOf(client.getMessages()),
        interrupts: client.getPendingInterrupts().map(({ id }) => id),
      }),
      pending: () => client.getPendingInterrupts().map(({ id }) => id),
      decide: (isApproved, interruptId) => streams.track(async () => {
        const interrupt = client.getPendingInterrupts().find(({ id }) => id === interruptId);
        const payload = { approved: isApproved };
        if (interrupt.canResolve) interrupt.resolveInterrupt(payload);
        else await client.resumeInterruptsUnsafe([{ interruptId, status: "resolved", payload }]);
        await untilIdle();
      }),
      visibleTexts: () => textsOf(client.getMessages()),
      texts: () => textsOf(client.getMessages()),
      client: () => client,
      close: () => client.dispose(),
      streams,
    };
  },
};
