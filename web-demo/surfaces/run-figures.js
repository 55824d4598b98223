/**
 * The figures above the runs: counts, durations, tokens and cost of a range of time, each with its course.
 */

import { readJson } from "../client/json.js";
import { request } from "../client/http.js";
import { formatAge, formatCost, formatShortCount, formatSpan, parseTime } from "../ui/format.js";
import { html, nothing } from "../vendor/lit.js";
import { formatCount } from "./base.js";
import { sparkline } from "./run-row.js";

/** @typedef {import("../pending.js").PendingItem} PendingItem */

/** From when runs of any time count. */
const ANY_TIME = "2000-01-01";
const HOUR_MS = 3_600_000;
/** Bars of a course at most. */
const BARS_MAX = 30;

/** Twice each range of time, and what the first half of that is called. @type {Record<string, [string, string]>} */
const BEFORE = { "1h": ["2h", "the hour before"], "24h": ["48h", "the day before"], "7d": ["14d", "the week before"], "30d": ["60d", "the 30 days before"] };

/** Runs of a part of the time. @typedef {{ runs: number, status: Record<string, number>, usage?: { inputTokens?: number, outputTokens?: number, costUsd?: number }, durationMs?: { count: number, p50: number, p95: number } }} Bucket */
/** The answer of `GET /v1/stats`. @typedef {{ since: string, total: Bucket, buckets: (Bucket & { key: { at: string } })[] }} Stats */

/**
 * @typedef {object} Figures
 * @property {Bucket} total
 * @property {number | undefined} costBefore The cost of as much time before.
 * @property {Bucket[]} course By time, the oldest first.
 */

/** @param {Bucket} bucket */
const tokensIn = ({ usage }) => (usage?.inputTokens === undefined && usage?.outputTokens === undefined ? undefined : (usage.inputTokens ?? 0) + (usage.outputTokens ?? 0));

/** @param {Bucket} bucket */
const failedIn = ({ status }) => status.failed ?? 0;

/**
 * The buckets of an answer with those in which no run began.
 * @param {Stats} stats
 * @param {number} step The length of a bucket, in milliseconds.
 * @returns {Bucket[]}
 */
function courseOf({ since, buckets }, step) {
  const known = new Map(buckets.map((bucket) => [parseTime(bucket.key.at), bucket]));
  const [from, last] = [parseTime(since), Date.now()].map((time) => Math.floor(time / step) * step);
  const first = Math.max(from, last - (BARS_MAX - 1) * step);
  return Array.from({ length: (last - first) / step + 1 }, (_, at) => known.get(first + at * step) ?? { runs: 0, status: {} });
}

/**
 * Reads the figures of a range of time.
 * @param {import("../client/http.js").Server} server
 * @param {string} since The range; empty for any time.
 * @param {import("../route.js").Audience} audience
 * @returns {Promise<Figures>}
 */
export async function readFigures(server, since, audience) {
  const read = async (/** @type {Record<string, string>} */ query) => /** @type {Promise<Stats>} */ (readJson(await request(server, `/v1/stats?${new URLSearchParams({ ...query, audience })}`)));
  const isShort = /^\d+[smh]$/.test(since);
  const [double] = BEFORE[since] ?? [];
  const [stats, twice] = await Promise.all([read({ since: since || ANY_TIME, by: isShort ? "hour" : "day" }), double ? read({ since: double }) : undefined]);
  const { usage } = stats.total;
  const costBefore = twice ? (twice.total.usage?.costUsd ?? 0) - (usage?.costUsd ?? 0) : undefined;
  return { total: stats.total, costBefore, course: courseOf(stats, isShort ? HOUR_MS : 24 * HOUR_MS) };
}

/**
 * @param {Figures | undefined} figures Unknown until they arrive.
 * @param {PendingItem[]} waiting
 * @param {[string, string, string]} range The range of time: its value, its name, and in words.
 * @param {boolean} isScrolled Whether they scroll sideways: the keyboard scrolls what can have the focus.
 */
export function figuresTemplate(figures, waiting, [since, , words], isScrolled) {
  const { total, course = [] } = figures ?? {};
  const { runs = 0, usage, durationMs } = total ?? {};
  const failed = total ? failedIn(total) : 0;
  const share = failed > 0 ? ` · ${Math.max(1, Math.round((failed / runs) * 100))} %` : "";
  const now = Date.now();
  const oldest = waiting.reduce((first, { askedAt }) => Math.min(first, parseTime(askedAt) || now), now);
  const tokens = total && tokensIn(total);
  /** @type {[string, string, ((bucket: Bucket) => number | undefined) | undefined, string][]} */
  const shown = [
    [formatCount(runs), runs === 1 ? "run" : "runs", (bucket) => bucket.runs, "run"],
    [`${formatCount(failed)}${share}`, "failed", failedIn, "fail"],
    [formatCount(waiting.length), waiting.length === 0 ? "need you" : `${waiting.length === 1 ? "needs" : "need"} you, oldest ${formatAge(oldest, now)}`, undefined, "wait"],
    [durationMs ? `${formatSpan(durationMs.p50)} / ${formatSpan(durationMs.p95)}` : "–", "duration p50 / p95", (bucket) => bucket.durationMs?.p50, "run"],
    [formatShortCount(tokens) || "–", "tokens", tokensIn, "run"],
    [formatCost(usage?.costUsd) || "–", `cost${costChange(figures, since)}`, (bucket) => bucket.usage?.costUsd, "run"],
  ];
  return html`<ul class="runs-figures" aria-label="Figures of all runs ${words}" aria-busy=${!figures} tabindex=${isScrolled ? 0 : nothing}>${shown.map(([value, label, of, tone]) => html`<li data-tone=${tone} ?data-none=${value.startsWith("0")}><p><b>${figures || tone === "wait" ? value : "–"}</b><span title=${label}>${label}</span></p>${of && course.length > 1 ? sparkline(course.map((bucket) => of(bucket) ?? 0), tone) : nothing}</li>`)}</ul>`;
}

/**
 * How the cost compares with that of as much time before.
 * @param {Figures | undefined} figures
 * @param {string} since
 */
function costChange(figures, since) {
  const [cost, before] = [figures?.total.usage?.costUsd, figures?.costBefore];
  if (!cost || !before || before < 0.005) return "";
  const share = Math.round((cost / before - 1) * 100);
  return share === 0 ? `, as ${BEFORE[since][1]}` : `, ${Math.abs(share)} % ${share > 0 ? "over" : "under"} ${BEFORE[since][1]}`;
}
