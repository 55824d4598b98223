/** TanStack AI: the one mainstream client that resumes by id. */

import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";
import { Streams, spoken, until } from "./harness.mjs";

/**
 * All parts in order, with whose they are, and each result with its call. Which message a call, a result or a thought is put into, and
 * under which name, this client decides by what it heard first; times are its own, and a result has an id only where it was not
 * heard live, and what more is known of it only where it was. What a call came to is
 * read off its result: whether the call says so, too, depends on whether a snapshot came in between.
 */
function partsOf(messages) {
  const parts = messages.flatMap(({ role, parts }) => parts.map(({ stepId, createdAt, ...part }) => ({ role, ...part })));
  const resultsOf = (call) => parts.filter(({ type, toolCallId }) => type === "tool-result" && toolCallId === call);
  const isCalled = ({ type, toolCallId }) => type === "tool-result" && parts.some(({ type, id }) => type === "tool-call" && id === toolCallId);
  return parts.filter((part) => !isCalled(part)).flatMap((part) => {
    const results = part.type === "tool-call" ? resultsOf(part.id) : [];
    const { state, output, ...call } = part;
    return [results.length > 0 ? call : part, ...results.map(({ id, metadata, ...result }) => result)];
  });
}

const textsOf = (messages) => messages.flatMap(({ parts }) => parts.filter(({ type }) => type === "text" || type === "thinking").map(({ content }) => content)).filter(Boolean);

export const tanstack = {
  name: "TanStack AI 0.33.2",
  asks: true,
  namesRuns: true,
  comesBackByItself: true,
  nativeTexts: spoken,
  open({ url, agent, run, thread, user }) {
    const streams = new Streams({ isTerminal: ({ type }) => ["RUN_FINISHED", "RUN_ERROR"].includes(type), idsFirst: true });
    let hydrated, client;
    const fetchClient = async (url, init) => {
      const response = await streams.fetch(url, init);
      if (!url.includes("threadId=")) return response;
      // Once it has read what the thread is, it goes on in one go: then it has joined what is under way, or there is nothing.
      const read = response.json.bind(response);
      response.json = async () => {
        const thread = await read();
        setImmediate(hydrated);
        return thread;
      };
      return response;
    };
    const connection = fetchServerSentEvents(`${url}/ag-ui/${agent}`, { fetchClient, reconnect: { delayMs: 10, maxAttempts: 50 } });
    const make = (persistence) => {
      client?.dispose();
      client = new ChatClient({ connection, threadId: thread, persistence });
      client.attach();
    };
    const idle = () => until("the client to be idle", () => !client.getIsLoading());
    /** A page that is opened anew: the server knows the thread. */
    const reload = () => streams.through(async () => {
      const known = new Promise((resolve) => (hydrated = resolve));
      make(true);
      await known;
      // Nothing is to come of a thread that rests.
      if (!client.getIsLoading()) streams.answered();
      await idle();
    });
    make(false);
    return {
      begin: () => streams.through(() => client.sendMessage({ id: user, content: "Go on." }).then(idle)),
      join: reload,
      back: reload,
      picture: () => ({
        parts: partsOf(client.getMessages()),
        interrupts: client.getPendingInterrupts().map(({ id }) => id),
      }),
      pending: () => client.getPendingInterrupts().map(({ id }) => id),
      decide: (yes, interruptId) => streams.through(async () => {
        const interrupt = client.getPendingInterrupts().find(({ id }) => id === interruptId);
        const payload = { approved: yes };
        if (interrupt.canResolve) interrupt.resolveInterrupt(payload);
        else await client.resumeInterruptsUnsafe([{ interruptId, status: "resolved", payload }]);
        await idle();
      }),
      said: () => textsOf(client.getMessages()),
      texts: () => textsOf(client.getMessages()),
      client: () => client,
      close: () => client.dispose(),
      streams,
    };
  },
};
