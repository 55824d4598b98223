/** AG-UI clients: HttpAgent in two versions, and CopilotKit's agent with both transports. */

import * as AgUi1 from "@ag-ui/client";
import * as AgUi0 from "@ag-ui/client-0.0.59";
import { ProxiedCopilotRuntimeAgent } from "@copilotkit/core";
import { Streams, joinChunks, textsInOrder } from "./harness.mjs";

/** The subclass from docs/src/guides/ag-ui.md: HttpAgent itself has no way to reconnect. */
const joiningAgent = ({ HttpAgent, runHttpRequest, transformHttpEventStream }) =>
  class JoiningAgent extends HttpAgent {
    connect(input) {
      return transformHttpEventStream(runHttpRequest(() => this.fetch(this.url.replace("/ag-ui/", "/copilotkit/agent/") + "/connect", this.requestInit(input))));
    }
  };

/** Returns all texts of a thread, in order. Reasoning is a separate message. */
function textsOf({ messages }) {
  const shown = messages.filter(({ role }) => ["user", "assistant", "reasoning"].includes(role));
  return shown.map(({ content }) => (typeof content === "string" ? content : joinChunks(content?.map(({ text }) => text)))).filter(Boolean);
}

const agUiClient = (name, create) => ({
  name,
  sendsRequest: true,
  nativeTexts: textsInOrder,
  open({ url, agent: agentId, run, thread, user }) {
    const streams = new Streams({ isTerminal: ({ type }) => ["RUN_FINISHED", "RUN_ERROR"].includes(type) });
    const open = (config) => create({ url, agentId, threadId: thread, fetch: streams.fetch, ...config });
    let agent = open();
    return {
      begin: () => streams.track(() => {
        agent.addMessage({ id: user, role: "user", content: "Go on." });
        return agent.runAgent({ runId: run });
      }),
      join: () => streams.track(() => agent.connectAgent()),
      resume: () => streams.track(() => {
        // The page keeps its content until newer events replace it.
        agent = open({ initialMessages: agent.messages, initialState: agent.state });
        return agent.connectAgent();
      }),
      content: () => ({ messages: agent.messages, state: agent.state, interrupts: agent.pendingInterrupts }),
      pending: () => agent.pendingInterrupts.map(({ id }) => id),
      decide: (isApproved, interruptId) => streams.track(() => agent.runAgent({ resume: [{ interruptId, status: "resolved", payload: { approved: isApproved } }] })),
      visibleTexts: () => textsOf(agent),
      texts: () => textsOf(agent),
      agent: () => agent,
      streams,
    };
  },
});

const [Agent1, Agent0] = [joiningAgent(AgUi1), joiningAgent(AgUi0)];

export const agUis = [
  agUiClient("AG-UI 1.0.0", ({ url, agentId, ...config }) => new Agent1({ url: `${url}/ag-ui/${agentId}`, ...config })),
  agUiClient("AG-UI 0.0.59", ({ url, agentId, ...config }) => new Agent0({ url: `${url}/ag-ui/${agentId}`, ...config })),
  agUiClient("CopilotKit 1.74.0", ({ url, ...config }) => new ProxiedCopilotRuntimeAgent({ runtimeUrl: `${url}/copilotkit`, ...config })),
  agUiClient("CopilotKit 1.74.0, one endpoint", ({ url, ...config }) => new ProxiedCopilotRuntimeAgent({ runtimeUrl: `${url}/copilotkit`, transport: "single", ...config })),
];
