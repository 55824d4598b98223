/**
 * The spans of a trace: what each agent did, from when to when, with tokens and cost as far as the source said so.
 *
 * Times are those at which the server received the envelopes, so they are the same for every reader.
 */

import { humanize, joinText, displayedStatus, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { describe } from "./describe.js";
import { parseTime } from "../ui/format.js";
import { shownStatus } from "../ui/status.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("../client/store.js").Store} Store */
/** @typedef {import("../ui/glyphs.js").Status} Status */

/** A kind of work; each has a color. @typedef {"turn" | "message" | "thinking" | "tool" | "waiting" | "failed" | "other"} SpanKind */

/**
 * @typedef {object} Span
 * @property {string} key The activity's key.
 * @property {Activity} activity
 * @property {SpanKind} kind
 * @property {string} name
 * @property {string} detail
 * @property {number} start In milliseconds since 1970.
 * @property {number} end NaN while it is open.
 * @property {string} note What its label says besides the duration: `failed`, `running`, `cancelled`.
 * @property {number | undefined} tokens
 * @property {number | undefined} cost In US dollars.
 * @property {string} parent The key of the call that made this one; empty if none.
 *
 * @typedef {object} Lane The spans of an agent, a run or a task.
 * @property {string} id
 * @property {string} name
 * @property {string} role
 * @property {Status} status
 * @property {string} word The status as text.
 * @property {Span[]} spans By start.
 * @property {Span[]} turns Its runs.
 * @property {number | undefined} tokens
 * @property {number | undefined} cost
 */

/** How lanes are made. @typedef {"agents" | "runs" | "work"} Grouping */

/** Types that are no steps; runs are turns. */
const NO_STEPS = ["run", "queue", "task", "agent", "team", "context", "state", "session", "diagnostics", "metrics"];
/** Statuses of an activity that goes on. */
const OPEN_STATUSES = ["streaming", "running", "accepted", "pending", "waiting", "input-streaming", "input-available", "requested", "reviewing", "exporting", "in_progress"];
/** Types that last until they end. Others are moments. */
const LASTING = ["message", "reasoning", "plan", "tool-call-progress", "action", "review", "handoff", "compaction"];
const FAILED_STATUSES = ["failed", "error", "output-error", "rejected", "killed"];
/** The names of waiting, by kind of action. @type {Record<string, string>} */
const WAITS = { structured_input: "input", question: "input", clarification: "input", input: "input", auth: "sign-in", auth_required: "sign-in", plan_approval: "plan approval" };
/** Steps with a name of their own, by activity type. @type {Record<string, string>} */
const NAMES = { message: "Message", reasoning: "Thinking", plan: "Plan", compaction: "Compaction", handoff: "Hand-off", review: "Review", artifact: "Artifact", evidence: "Evidence", permission: "Policy", "worker-notification": "Report" };
const DETAIL_CHARS_MAX = 160;

/** Whether an activity is a step of the trace. @param {Activity} activity */
export const isStep = ({ activityType }) => !NO_STEPS.includes(activityType);

/** @type {WeakMap<Activity, Span>} Activities are immutable. */
const spans = new WeakMap();

/**
 * Returns the span of a step or a run.
 * @param {Activity} activity
 * @returns {Span}
 */
export function spanOf(activity) {
  let span = spans.get(activity);
  if (!span) spans.set(activity, (span = makeSpan(activity)));
  return span;
}

/** @param {Activity} activity @returns {Span} */
function makeSpan(activity) {
  const { activityType: type, content } = activity;
  const status = toText(content.status ?? content.state);
  const isWaiting = type === "action";
  const hasFailed = FAILED_STATUSES.includes(status) && !isWaiting && type !== "review";
  const start = parseTime(activity.openedAt);
  const ended = parseTime(activity.endedAt);
  const isOpen = !Number.isFinite(ended) && content.stale !== true && (type === "run" ? ["accepted", "running", "waiting"].includes(status) : LASTING.includes(type) && (OPEN_STATUSES.includes(status) || (type === "review" && status === "")));
  const end = Number.isFinite(ended) ? ended : isOpen ? NaN : LASTING.includes(type) || type === "run" ? parseTime(activity.updatedAt) : start;
  const { title, text } = describe(activity);
  const usage = usageOf(content);
  return {
    key: keyOf(activity), activity, start, end,
    kind: isWaiting ? "waiting" : hasFailed ? "failed" : type === "run" ? "turn" : type === "message" ? "message" : type === "reasoning" || type === "plan" ? "thinking" : type === "tool-call-progress" ? "tool" : "other",
    name: nameOf(activity),
    detail: firstLine(type === "tool-call-progress" ? toText(content.error?.message) || toText(content.message) || shortValues(content.input) : isWaiting ? toText(content.title) || text : NAMES[type] && title !== activity.activityId && !["message", "reasoning", "plan", "compaction"].includes(type) ? title : text),
    note: isWaiting ? (status === "pending" ? "" : humanize(status)) : hasFailed ? "failed" : isOpen ? "running" : ["cancelled", "canceled", "interrupted", "expired", "superseded", "unknown"].includes(status) ? status : "",
    ...usage,
    parent: content.parent_call_id ? keyOf({ ...activity, activityId: toText(content.parent_call_id) }) : "",
  };
}

/** @param {Activity} activity */
function nameOf({ activityType: type, activityId, content }) {
  if (type === "message") return content.role === "user" ? "User message" : "Message";
  if (type === "tool-call-progress") return toText(content.tool_name) || activityId;
  if (type === "action") return `Waiting for ${WAITS[toText(content.kind)] ?? "approval"}`;
  if (type === "run") return Number(content.attempt) > 1 ? `Turn, attempt ${content.attempt}` : "Turn";
  if (type === "evidence" && content.kind) return humanize(content.kind).replace(/^./, (first) => first.toUpperCase());
  return NAMES[type] ?? humanize(type);
}

/** Formats the members of a call's input in one line. @param {unknown} input */
function shortValues(input) {
  if (input === null || typeof input !== "object" || Array.isArray(input)) return toText(input);
  return Object.values(input).filter((value) => ["string", "number", "boolean"].includes(typeof value)).map(String).join(" · ");
}

/** @param {string} text */
function firstLine(text) {
  const line = text.trimStart().slice(0, DETAIL_CHARS_MAX).split("\n", 1)[0];
  return line.replace(/^#+ /, "");
}

/**
 * Returns the tokens and the cost that a source reported.
 * @param {Record<string, any>} content
 * @returns {{ tokens: number | undefined, cost: number | undefined }}
 */
export function usageOf({ usage, costUsd, cost_usd: cost }) {
  const number = (/** @type {unknown} */ value) => (typeof value === "number" && Number.isFinite(value) ? value : undefined);
  const of = usage && typeof usage === "object" ? usage : {};
  const [input, output] = [number(of.inputTokens ?? of.input_tokens), number(of.outputTokens ?? of.output_tokens)];
  const tokens = number(of.totalTokens ?? of.total_tokens) ?? (input === undefined && output === undefined ? undefined : (input ?? 0) + (output ?? 0));
  return { tokens, cost: number(of.costUsd ?? of.cost_usd) ?? number(costUsd ?? cost) };
}

/**
 * The span of a call that waits for its client after its run has ended: it ends with the run.
 * @param {Span} span
 * @param {Activity | undefined} run
 * @returns {Span}
 */
function atRest(span, run) {
  const end = span.kind === "tool" && Number.isNaN(span.end) ? parseTime(run?.endedAt) : NaN;
  return Number.isFinite(end) ? { ...span, end: Math.max(span.start, end), note: "waiting for the client" } : span;
}

/** Adds two amounts; an unknown one adds nothing. @param {number | undefined} a @param {number | undefined} b */
const plus = (a, b) => (a === undefined ? b : b === undefined ? a : a + b);

/**
 * Sums tokens and cost.
 * @param {{ tokens: number | undefined, cost: number | undefined }[]} all
 */
export const sumUsage = (all) => all.reduce((sum, one) => ({ tokens: plus(sum.tokens, one.tokens), cost: plus(sum.cost, one.cost) }), /** @type {{ tokens: number | undefined, cost: number | undefined }} */ ({ tokens: undefined, cost: undefined }));

/**
 * Groups the steps of a store into lanes.
 * @param {Activity[]} activities Sorted as in the store.
 * @param {Grouping} grouping
 * @returns {Lane[]} By their first step.
 */
export function lanesOf(activities, grouping) {
  /** @type {Map<string, Activity>} */
  const runs = new Map();
  /** @type {Map<string, Activity[]>} */
  const agents = new Map();
  /** @type {Map<string, Activity>} */
  const tasks = new Map();
  /** @type {Map<string, { tokens: number | undefined, cost: number | undefined }[]>} */
  const metrics = new Map();
  for (const activity of activities) {
    const { activityType: type, activityId: id, content } = activity;
    if (type === "run") runs.set(activity.runId, activity);
    else if (type === "agent") agents.set(id, [...(agents.get(id) ?? []), activity]);
    else if (type === "task") tasks.set(id, activity);
    else if (type === "metrics") for (const entry of Array.isArray(content.entries) ? content.entries : []) metrics.set(toText(entry.agentId), [...(metrics.get(toText(entry.agentId)) ?? []), usageOf(entry)]);
  }
  const agentOf = (/** @type {Activity} */ one) => toText(one.agentId ?? one.content.agentId ?? runs.get(one.runId)?.content.agentId) || one.runId || toText(one.sessionId);
  const groupOf = {
    agents: agentOf,
    runs: (/** @type {Activity} */ one) => one.runId || toText(one.sessionId),
    work: (/** @type {Activity} */ one) => toText(one.content.taskId ?? agents.get(agentOf(one))?.at(-1)?.content.taskId),
  }[grouping];
  /** @type {Map<string, Lane>} */
  const lanes = new Map();
  for (const activity of activities) {
    const isTurn = activity.activityType === "run";
    if (!isTurn && !isStep(activity)) continue;
    if (!Number.isFinite(parseTime(activity.openedAt))) continue;
    const id = groupOf(activity);
    let lane = lanes.get(id);
    if (!lane) lanes.set(id, (lane = { id, name: id, role: "", status: "idle", word: "", spans: [], turns: [], tokens: undefined, cost: undefined }));
    (isTurn ? lane.turns : lane.spans).push(atRest(spanOf(activity), runs.get(activity.runId)));
  }
  for (const lane of lanes.values()) {
    if (!inOrder(lane.spans)) lane.spans.sort((a, b) => a.start - b.start);
    const agent = grouping === "agents" ? agents.get(lane.id)?.at(-1) : undefined;
    const subject = agent ?? (grouping === "work" ? tasks.get(lane.id) : undefined) ?? lane.turns.at(-1)?.activity;
    /** @type {Record<string, any>} */
    const content = subject?.content ?? {};
    const run = grouping === "runs" ? runs.get(lane.id) : undefined;
    lane.name = toText(agent?.content.agentName) || (grouping === "work" && lane.id === "" ? "No task" : grouping === "work" ? toText(content.title) : "") || toText(run?.content.title) || lane.id;
    lane.role = toText(agent?.content.role) || (run && run.content.agentId ? toText(agents.get(run.content.agentId)?.at(-1)?.content.agentName) || toText(run.content.agentId) : "");
    const isWaiting = lane.spans.some((span) => span.kind === "waiting" && Number.isNaN(span.end));
    const status = displayedStatus(content);
    lane.status = isWaiting ? "waiting" : shownStatus(status);
    lane.word = isWaiting ? "waiting" : humanize(status);
    const own = agent ? usageOf(agent.content) : { tokens: undefined, cost: undefined };
    const turns = sumUsage(lane.turns);
    const measured = sumUsage(grouping === "agents" ? (metrics.get(lane.id) ?? []) : []);
    lane.tokens = own.tokens ?? turns.tokens ?? measured.tokens;
    lane.cost = own.cost ?? turns.cost ?? measured.cost;
  }
  return [...lanes.values()].sort((a, b) => firstStart(a) - firstStart(b));
}

/** @param {Span[]} all */
const inOrder = (all) => all.every((span, at) => at === 0 || all[at - 1].start <= span.start);

/** @param {Lane} lane */
export const firstStart = ({ spans: [span], turns: [turn] }) => Math.min(span?.start ?? Infinity, turn?.start ?? Infinity);

/**
 * Returns when the last step of a lane ended.
 * @param {Lane} lane
 * @param {number} now Milliseconds since 1970: the end of open steps.
 */
export const lastEnd = (lane, now) => [...lane.spans, ...lane.turns].reduce((last, span) => Math.max(last, Number.isNaN(span.end) ? now : span.end), firstStart(lane));

/**
 * Returns how long at least one span lasted: overlapping times count once.
 * @param {Span[]} all
 * @param {number} now
 */
export function busyTime(all, now) {
  let [sum, until] = [0, -Infinity];
  for (const { start, end } of all.toSorted((a, b) => a.start - b.start)) {
    const last = Number.isNaN(end) ? Math.max(start, now) : end;
    if (last > until) sum += last - Math.max(start, until);
    until = Math.max(until, last);
  }
  return sum;
}

/**
 * Returns the times of the axis. A turn and a wait are quiet: a long one is shortened where nothing else happens.
 * @param {Lane[]} lanes
 * @param {number} now
 * @returns {import("../ui/time-axis.js").Interval[]}
 */
export const timesOf = (lanes, now) => lanes.flatMap((lane) => [...lane.spans, ...lane.turns].map(({ kind, start, end }) => ({ start, end: Number.isNaN(end) ? Math.max(start, now) : end, isQuiet: kind === "turn" || kind === "waiting" })));

/**
 * Returns the tokens that sources reported, and when: with a step, else with the end of the lane's work.
 * @param {Lane[]} lanes
 * @param {number} now
 * @returns {{ time: number, tokens: number }[]}
 */
export const tokensOf = (lanes, now) => lanes.flatMap((lane) => {
  const steps = lane.spans.filter(({ tokens }) => tokens);
  if (steps.length > 0) return steps.map(({ start, end, tokens }) => ({ time: Number.isNaN(end) ? start : end, tokens: /** @type {number} */ (tokens) }));
  return lane.tokens ? [{ time: lastEnd(lane, now), tokens: lane.tokens }] : [];
});

/** @typedef {{ activities: Activity[], version: number }} Snapshot */
/** @type {WeakMap<Store, Snapshot>} Subscribed stores: their sorted activities until the next change. */
const snapshots = new WeakMap();
/** @type {WeakMap<Activity[], Map<Grouping, Lane[]>>} */
const groupings = new WeakMap();

/**
 * Returns the lanes of a store. The trace and the scrubber draw the same store: it is grouped once per change.
 * @param {Store} store
 * @param {Grouping} [grouping]
 */
export function lanesIn(store, grouping = "agents") {
  let snapshot = snapshots.get(store);
  if (!snapshot) {
    const made = { activities: /** @type {Activity[]} */ ([]), version: -1 };
    let version = 0;
    store.subscribe(() => (version += 1));
    snapshot = { get activities() {
      if (made.version !== version) Object.assign(made, { activities: store.sorted(), version });
      return made.activities;
    }, get version() { return version; } };
    snapshots.set(store, snapshot);
  }
  return groupedLanes(snapshot.activities, grouping);
}

/**
 * @param {Activity[]} activities
 * @param {Grouping} grouping
 */
export function groupedLanes(activities, grouping) {
  let known = groupings.get(activities);
  if (!known) groupings.set(activities, (known = new Map()));
  let lanes = known.get(grouping);
  if (!lanes) known.set(grouping, (lanes = lanesOf(activities, grouping)));
  return lanes;
}

/**
 * A lane's bars: spans of one kind that are less than `gap` apart are one bar.
 * @param {Lane} lane
 * @param {(time: number) => number} place The place of a time, in pixels.
 * @param {number} now
 * @param {number} [gap] In pixels.
 * @returns {{ kind: SpanKind, from: number, to: number }[]} In drawing order: turns are behind steps.
 */
export function barsOf(lane, place, now, gap = 1) {
  /** @type {{ kind: SpanKind, from: number, to: number }[]} */
  const bars = [];
  /** @type {Map<SpanKind, { kind: SpanKind, from: number, to: number }>} */
  const last = new Map();
  for (const { kind, start, end } of lane.spans) {
    if (kind === "other") continue;
    const [from, to] = [place(start), place(Number.isNaN(end) ? now : end)];
    const open = last.get(kind);
    if (open && from - open.to < gap) open.to = Math.max(open.to, to);
    else {
      const bar = { kind, from, to };
      last.set(kind, bar);
      bars.push(bar);
    }
  }
  return bars.sort((a, b) => Number(a.kind !== "waiting") - Number(b.kind !== "waiting"));
}

/** The text of an activity, as far as it is one. @param {Activity} activity */
export const textOfStep = ({ content }) => (content.text ? joinText(content.text) : "");
