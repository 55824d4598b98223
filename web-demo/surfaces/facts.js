/**
 * Facts of activities: their formats, and the activities that they refer to.
 */

import { digitsOf } from "../client/json.js";
import { keyOf } from "../client/store.js";
import { formatCount, humanize, toText } from "./base.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").CardView} CardView */

/** The maximum length of a value in a list of facts, in characters. The event shows the whole. */
const VALUE_CHARS_MAX = 400;
/** The maximum number of items and members of a value. */
export const ITEMS_MAX = 20;

/**
 * Splits a name into words: `inputTokens` → `input tokens`.
 * @param {string} name
 */
export const splitWords = (name) => name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replaceAll("_", " ").toLowerCase();

/**
 * Formats any value: `{ mode: "plan", maxCostUsd: 2 }` → `mode plan, max cost usd 2`. The length is bounded.
 * @param {unknown} value
 * @param {number} [depth] The depth below which values are formatted as JSON.
 * @returns {string}
 */
export function formatValue(value, depth = 3) {
  if (value === undefined || value === null) return "";
  if (typeof value === "number") return formatCount(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object" || digitsOf(value)) return truncate(toText(value));
  if (depth === 0) return truncate(toText(value));
  const all = Array.isArray(value)
    ? value.map((item) => formatValue(item, depth - 1))
    : Object.entries(value).map(([name, member]) => `${splitWords(name)} ${formatValue(member, depth - 1)}`);
  const rest = all.length > ITEMS_MAX ? [`and ${all.length - ITEMS_MAX} more`] : [];
  return truncate([...all.slice(0, ITEMS_MAX), ...rest].join(", "));
}

/** @param {string} text */
export const truncate = (text) => (text.length > VALUE_CHARS_MAX ? `${text.slice(0, VALUE_CHARS_MAX)}…` : text);

/** Final statuses of an agent. */
export const ENDED_STATUSES = ["completed", "failed", "killed", "closed", "cancelled"];

/** Paths of offloaded bodies on this server: the only addresses in a payload that the page requests. */
export const BLOB_PATH = /^\/v1\/blobs\/[0-9a-f]+$/;

/** The value of a required fact that the source omitted. */
export const UNKNOWN = "unknown";

/**
 * Finds an activity by type and id: in the same log, else in any log of the store.
 * @param {CardView} view
 * @param {Activity} from
 * @param {string} type
 * @param {string} id
 * @returns {Activity | undefined}
 */
export function findActivity(view, from, type, id) {
  const inLog = (/** @type {{ runId: string, sessionId?: string }} */ { runId, sessionId }) => view.store.get(keyOf({ runId, sessionId, activityType: type, activityId: id }));
  const own = inLog(from);
  if (own) return own;
  for (const log of view.store.runs()) {
    const found = inLog(log);
    if (found) return found;
  }
  return undefined;
}

/**
 * Returns an agent's name; its id if no fact names it.
 * @param {CardView} view
 * @param {Activity} from
 * @param {unknown} id
 */
export function findAgentName(view, from, id) {
  if (typeof id !== "string") return formatValue(id) || UNKNOWN;
  return toText(findActivity(view, from, "agent", id)?.content.agentName) || id;
}

/**
 * Returns the `run` activity of an activity's log; `undefined` for a session's own log.
 * @param {CardView} view
 * @param {Activity} activity
 */
export function runOf(view, { runId }) {
  return runId === "" ? undefined : view.store.get(keyOf({ runId, activityType: "run", activityId: runId }));
}

/**
 * Returns the topology as text; `undefined` if the source gives none.
 * @param {Record<string, any>} content
 */
export const topologyOf = ({ topology }) => (topology === undefined || topology === "unknown" ? undefined : humanize(topology));

/**
 * Returns the target of an activity's controls: its run, else its session.
 * @param {Activity} activity
 * @returns {{ run: string } | { session: string }}
 */
export function controlTarget(activity) {
  const { runId, sessionId } = /** @type {{ runId?: string, sessionId?: string }} */ (activity);
  return runId ? { run: runId } : { session: sessionId ?? "" };
}

/**
 * Returns the id of the artifact that the action names.
 * @param {{ content: Record<string, any> }} action
 * @returns {string | undefined}
 */
export function artifactOf({ content: { artifactId, artifactRefs } }) {
  const [ref] = Array.isArray(artifactRefs) ? artifactRefs : [];
  const id = toText(artifactId ?? ref?.artifactId ?? ref?.id ?? ref);
  return id === "" ? undefined : id;
}
