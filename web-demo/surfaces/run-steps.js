/**
 * The steps of two runs, and how they differ: which are in one of them alone, which ended otherwise or took longer.
 */

import { Store } from "../client/store.js";
import { diffArrays } from "../vendor/diff.js";
import { formatSpan } from "../ui/format.js";
import { firstStart, lanesIn } from "./spans.js";

/** @typedef {import("./spans.js").Span} Span */

/** Steps of one run that are compared. */
const STEPS_MAX = 5000;
/** Two steps differ in time by at least this much, in milliseconds, and by this share of the longer one. */
const DIFFERENCE_MS = 1000;
const DIFFERENCE_SHARE = 0.3;

/** A step of a run: times since the start of the run, in milliseconds. @typedef {{ key: string, name: string, detail: string, lane: string, kind: import("./spans.js").SpanKind, note: string, start: number, end: number }} Step */
/** @typedef {{ runId: string, steps: Step[], isCut: boolean }} Steps */
/** A step of both runs, or of one of them. `difference`: in words; empty for none. @typedef {{ key: string, one?: Step, other?: Step, difference: string }} Pair */

/**
 * Reads the steps of a run.
 * @param {import("../client/hydration.js").Hydration} hydration
 * @param {string} runId
 * @param {AbortSignal} signal
 * @returns {Promise<Steps>}
 */
export async function readSteps(hydration, runId, signal) {
  const { activities, sequence } = await hydration.activities(runId, { signal });
  const store = new Store();
  store.load(runId, activities.map((activity) => ({ ...activity, runId })), sequence);
  const lanes = lanesIn(store);
  const [start, now] = [lanes.reduce((first, lane) => Math.min(first, firstStart(lane)), Infinity), Date.now()];
  const spans = lanes.flatMap((lane) => lane.spans.filter(({ kind }) => kind !== "other").map((span) => ({ span, lane: lane.name }))).sort((a, b) => a.span.start - b.span.start);
  return { runId, isCut: spans.length > STEPS_MAX, steps: spans.slice(0, STEPS_MAX).map(({ span, lane }) => stepOf(span, lane, start, now)) };
}

/**
 * @param {Span} span
 * @param {string} lane
 * @param {number} start When its run began.
 * @param {number} now
 * @returns {Step}
 */
const stepOf = ({ activity, name, detail, kind, note, start: from, end }, lane, start, now) => ({ key: `${activity.activityType} ${name}`, name, detail, lane, kind, note, start: from - start, end: (Number.isNaN(end) ? now : end) - start });

/**
 * Pairs the steps of two runs in their order.
 * @param {Step[]} one
 * @param {Step[]} other
 * @returns {Pair[]}
 */
export function pairSteps(one, other) {
  /** @type {Pair[]} */
  const pairs = [];
  let [at, otherAt] = [0, 0];
  for (const { value, added, removed } of diffArrays(one.map(({ key }) => key), other.map(({ key }) => key))) {
    for (const _ of value) {
      const [left, right] = [added ? undefined : one[at++], removed ? undefined : other[otherAt++]];
      pairs.push({ key: String(pairs.length), one: left, other: right, difference: differenceOf(left, right) });
    }
  }
  return pairs;
}

/**
 * @param {Step | undefined} one
 * @param {Step | undefined} other
 */
function differenceOf(one, other) {
  if (!other) return "only in A";
  if (!one) return "only in B";
  if (one.kind === "failed" && other.kind !== "failed") return "failed in A";
  if (one.kind !== "failed" && other.kind === "failed") return "failed in B";
  if (one.note !== other.note) return `${one.note || "as usual"} in A, ${other.note || "as usual"} in B`;
  const [a, b] = [one.end - one.start, other.end - other.start];
  const apart = Math.abs(a - b);
  if (apart >= DIFFERENCE_MS && apart >= DIFFERENCE_SHARE * Math.max(a, b)) return `${formatSpan(apart)} longer in ${a > b ? "A" : "B"}`;
  return one.detail === other.detail ? "" : "another text";
}
