/** OpenAI: `await openai.forward(stream).done()`, for the Responses API and the Agents SDK. */

import { Forward } from "./forward.js";
import type { Run } from "./run.js";

export const SOURCE = "openai-responses";

/**
 * Publishes a stream to a run, by default that of the surrounding `during`. The stream is that of
 * `client.responses.create({ stream: true })`, or of a run of the Agents SDK. Its facts report the start and the end.
 */
export function forward<T>(stream: AsyncIterable<T> | Iterable<T>, { run }: { run?: Run } = {}): Forward<T> {
  return new Forward(stream, run, (run, item) => {
    const approval = approvalOf(item);
    const fact = event(item);
    if (approval) run.requireAction("tool_approval", undefined, approval);
    else if (fact) run.forward(SOURCE, [fact], { ends: true });
  });
}

type Members = Record<string, unknown>;
type Named = { name?: string } | undefined;

/**
 * Returns an event as the source reads it. The events of the Agents SDK for JavaScript get the names of its Python
 * sibling, and lose the objects that must not leave the process: an agent has instructions and functions, too.
 */
export function event(item: unknown): object | undefined {
  const { type, data, name, item: inner, agent } = item as { type?: string; data?: Members; name?: string; item?: Members; agent?: Named };
  switch (type) {
    case "raw_model_stream_event":
      // The model's own event. The others of this type repeat it in the words of the SDK.
      return data?.["type"] === "model" ? { type: "raw_response_event", data: data["event"] } : undefined;
    case "run_item_stream_event":
      return { type, name: name === "handoff_occurred" ? "handoff_occured" : name, item: itemOf(inner ?? {}) };
    case "agent_updated_stream_event":
      return { type, new_agent: { name: agent?.name } };
    default:
      return item as object;
  }
}

/** The Agents SDK for JavaScript asks for approvals on the stream. The source does not know this event. */
function approvalOf(item: unknown): { actionId: string; toolCallId: string } | undefined {
  const { name, item: inner } = item as { name?: string; item?: { rawItem?: { callId?: string } } };
  const callId = name === "tool_approval_requested" ? inner?.rawItem?.callId : undefined;
  return callId === undefined ? undefined : { actionId: callId, toolCallId: callId };
}

function itemOf(item: Members): object {
  const agentOf = (member: string): object | undefined => (item[member] ? { name: (item[member] as Named)?.name } : undefined);
  const { providerData: _, ...raw } = (item["rawItem"] ?? {}) as Members;
  const members = Object.entries(raw).map(([name, value]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]);
  return {
    type: item["type"],
    raw_item: { ...Object.fromEntries(members), type: raw["type"] === "function_call_result" ? "function_call_output" : raw["type"] },
    output: item["output"],
    agent: agentOf("agent"),
    source_agent: agentOf("sourceAgent"),
    target_agent: agentOf("targetAgent"),
  };
}
