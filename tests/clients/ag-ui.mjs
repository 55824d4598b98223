/** Clients that speak AG-UI as their makers meant it: HttpAgent of two generations, and CopilotKit's agent by both of its transports. */

import * as AgUi1 from "@ag-ui/client";
import * as AgUi0 from "@ag-ui/client-0.0.59";
import { ProxiedCopilotRuntimeAgent } from "@copilotkit/core";
import { Streams, joined, spoken } from "./harness.mjs";

/** The subclass of docs/src/guides/ag-ui.md: HttpAgent runs, and leaves it to its users how to come back. */
const joining = ({ HttpAgent, runHttpRequest, transformHttpEventStream }) =>
  class JoiningAgent extends HttpAgent {
    connect(input) {
      return transformHttpEventStream(runHttpRequest(() => this.fetch(this.url.replace("/ag-ui/", "/copilotkit/agent/") + "/connect", this.requestInit(input))));
    }
  };

/** All that is said in a thread, in order. Reasoning is a message of its own. */
function textsOf({ messages }) {
  const told = messages.filter(({ role }) => ["user", "assistant", "reasoning"].includes(role));
  return told.map(({ content }) => (typeof content === "string" ? content : joined(content?.map(({ text }) => text)))).filter(Boolean);
}

const agUi = (name, make) => ({
  name,
  asks: true,
  nativeTexts: spoken,
  open({ url, agent: agentId, run, thread, user }) {
    const streams = new Streams({ isTerminal: ({ type }) => ["RUN_FINISHED", "RUN_ERROR"].includes(type) });
    const open = (config) => make({ url, agentId, threadId: thread, fetch: streams.fetch, ...config });
    let agent = open();
    return {
      begin: () => streams.through(() => {
        agent.addMessage({ id: user, role: "user", content: "Go on." });
        return agent.runAgent({ runId: run });
      }),
      join: () => streams.through(() => agent.connectAgent()),
      back: () => streams.through(() => {
        // What the page had stays on the screen until it is told better.
        agent = open({ initialMessages: agent.messages, initialState: agent.state });
        return agent.connectAgent();
      }),
      picture: () => ({ messages: agent.messages, state: agent.state, interrupts: agent.pendingInterrupts }),
      pending: () => agent.pendingInterrupts.map(({ id }) => id),
      decide: (yes, interruptId) => streams.through(() => agent.runAgent({ resume: [{ interruptId, status: "resolved", payload: { approved: yes } }] })),
      said: () => textsOf(agent),
      texts: () => textsOf(agent),
      agent: () => agent,
      streams,
    };
  },
});

const [Agent1, Agent0] = [joining(AgUi1), joining(AgUi0)];

export const agUis = [
  agUi("AG-UI 1.0.0", ({ url, agentId, ...config }) => new Agent1({ url: `${url}/ag-ui/${agentId}`, ...config })),
  agUi("AG-UI 0.0.59", ({ url, agentId, ...config }) => new Agent0({ url: `${url}/ag-ui/${agentId}`, ...config })),
  agUi("CopilotKit 1.74.0", ({ url, ...config }) => new ProxiedCopilotRuntimeAgent({ runtimeUrl: `${url}/copilotkit`, ...config })),
  agUi("CopilotKit 1.74.0, one endpoint", ({ url, ...config }) => new ProxiedCopilotRuntimeAgent({ runtimeUrl: `${url}/copilotkit`, transport: "single", ...config })),
];
