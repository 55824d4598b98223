/** LangGraph: `await langgraph.forward(await graph.stream(…)).done()`. */

import { Forward } from "./forward.js";
import type { Run } from "./run.js";

export const SOURCE = "langgraph";

export interface LangGraphOptions {
  run?: Run;
  /** The mode of a stream with one mode, whose items do not name it. Default: `updates`. */
  streamMode?: string;
}

/**
 * Publishes a graph's stream to a run, by default that of the surrounding `during`. The stream is that of
 * `graph.stream` with any modes, of `streamEvents`, or of a LangGraph server. Ask for `messages` (tokens) and `updates`
 * (interrupts, tool results). An interrupt leaves the run open.
 */
export function forward<T>(stream: AsyncIterable<T> | Iterable<T>, { run, streamMode = "updates" }: LangGraphOptions = {}): Forward<T> {
  return new Forward(stream, run, (run, item) => {
    const fact = part(item, streamMode);
    // Only events report the end of the graph. The stream of `graph.stream` just stops.
    run.forward(SOURCE, [fact], { ends: "event" in fact || ("type" in fact && fact.type === "event") });
    if (interrupts(fact)) run.suspend();
  });
}

/**
 * Returns an item as the source reads it: with its mode, where the graph streams several, and its namespace, where it
 * streams subgraphs. An event is a fact as it is.
 */
export function part(item: unknown, mode: string): object {
  if (isObject(item) && ("event" in item || item["type"] === "event")) return item;
  let [ns, data]: [unknown[], unknown] = [[], item];
  // A message and its metadata are an array, too, but begin with neither a namespace nor a mode.
  if (Array.isArray(data) && data.length > 1 && Array.isArray(data[0])) {
    const [namespace, ...rest] = data as [unknown[], ...unknown[]];
    [ns, data] = [namespace, rest.length === 1 ? rest[0] : rest];
  }
  if (Array.isArray(data) && data.length === 2 && typeof data[0] === "string") [mode, data] = data as [string, unknown];
  return { type: mode, ns, data: plain(data, mode === "messages") };
}

const MEMBERS = ["id", "name", "content", "additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls", "usage_metadata", "tool_call_id", "status", "artifact"];

/** The messages of LangChain in JavaScript serialise as constructors; the source reads their members. */
function plain(data: unknown, isStreamed: boolean): unknown {
  if (Array.isArray(data)) return data.map((item) => plain(item, isStreamed));
  if (!isObject(data)) return data;
  const getType = data["getType"] ?? data["_getType"];
  if (typeof getType === "function") {
    // A whole message may be a joined chunk. Its pieces would make it look like one.
    const members = isStreamed ? [...MEMBERS, "tool_call_chunks"] : MEMBERS;
    const known = members.filter((member) => data[member] !== undefined);
    return { type: getType.call(data) as unknown, ...Object.fromEntries(known.map((member) => [member, data[member]])) };
  }
  if (Object.getPrototypeOf(data) !== Object.prototype) return data;
  return Object.fromEntries(Object.entries(data).map(([key, member]) => [key, plain(member, isStreamed)]));
}

function interrupts(fact: object): boolean {
  const { data } = fact as { data?: unknown };
  return isObject(data) && "__interrupt__" in data;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
