/** TanStack AI: the one mainstream client that resumes by id. */

import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";
import { Streams, spoken, until } from "./harness.mjs";

/** A message without the times at which this client saw it. */
const plain = ({ createdAt, ...message }) => message;

const textsOf = (messages) => messages.flatMap(({ parts }) => parts.filter(({ type }) => type === "text" || type === "thinking").map(({ content }) => content)).filter(Boolean);

export const tanstack = {
  name: "TanStack AI 0.33.2",
  asks: true,
  namesRuns: true,
  comesBackByItself: true,
  nativeTexts: spoken,
  open({ url, agent, run, thread, user }) {
    const streams = new Streams({ isTerminal: ({ type }) => ["RUN_FINISHED", "RUN_ERROR"].includes(type), idsFirst: true });
    const connection = fetchServerSentEvents(`${url}/ag-ui/${agent}`, { fetchClient: streams.fetch, reconnect: { delayMs: 10, maxAttempts: 50 } });
    let client;
    const make = (persistence) => {
      client?.dispose();
      client = new ChatClient({ connection, threadId: thread, persistence });
      client.attach();
    };
    const idle = () => until("the client to be idle", () => !client.getIsLoading());
    /** A page that is opened anew: the server knows the thread. */
    const reload = () => streams.through(async () => {
      make(true);
      await Promise.race([streams.opened, until("an interrupt", () => client.getPendingInterrupts().length > 0)]);
      await idle();
    });
    make(false);
    return {
      begin: () => streams.through(() => client.sendMessage({ id: user, content: "Go on." }).then(idle)),
      join: reload,
      back: reload,
      picture: () => ({
        messages: client.getMessages().map(plain).filter(({ parts }) => parts.length > 0),
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
