/** An ACP agent by the published SDK. It asks before it deletes, shows a form, fails, and works until it is cancelled. */

import { Readable, Writable } from "node:stream";
import { agent, methods, ndJsonStream } from "@agentclientprotocol/sdk";

let turns = 0;
let cancelled;

agent({ name: "test-agent" })
  .onRequest(methods.agent.initialize, () => ({ protocolVersion: 1, agentCapabilities: {} }))
  .onRequest(methods.agent.session.new, () => ({ sessionId: "session" }))
  .onRequest(methods.agent.session.prompt, async ({ params: { sessionId, prompt }, client }) => {
    turns += 1;
    const say = (text) => client.notify(methods.client.session.update, { sessionId, update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } } });
    const text = prompt.at(-1).text;
    if (text === "Delete a.txt") {
      const options = [
        { optionId: "go", name: "Go ahead", kind: "allow_once" },
        { optionId: "stay", name: "Leave it", kind: "reject_once" },
      ];
      const toolCall = { toolCallId: "call-1", title: "delete a.txt", kind: "delete", status: "pending" };
      const { outcome } = await client.request(methods.client.session.requestPermission, { sessionId, toolCall, options });
      await say(`chosen: ${outcome.optionId}`);
    } else if (text === "Ask") {
      const requestedSchema = { type: "object", properties: { path: { type: "string", title: "Path" } }, required: ["path"] };
      const { action, content } = await client.request(methods.client.elicitation.create, { mode: "form", sessionId, message: "Which file?", requestedSchema });
      await say(`${action}: ${JSON.stringify(content)}`);
    } else if (text === "Fail") {
      throw new Error("It broke.");
    } else if (text === "Work") {
      await say("Working");
      await new Promise((resolve) => (cancelled = resolve));
      return { stopReason: "cancelled" };
    } else {
      await say(`Turn ${turns}: ${text}`);
    }
    return { stopReason: "end_turn" };
  })
  .onNotification(methods.agent.session.cancel, () => cancelled?.())
  .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
