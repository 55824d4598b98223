/**
 * A row of the runs: its cells, and what they show of a run.
 */

import { format } from "../route.js";
import { formatAge, formatCost, formatExact, formatShortCount, formatSpan, parseTime } from "../ui/format.js";
import { glyph } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { reveal } from "../ui/reveal.js";
import { LIVE_STATUSES } from "../session-list.js";
import { html, nothing, render, svg } from "../vendor/lit.js";
import { element, formatCount } from "./base.js";
import { sessionStatus } from "./session-header.js";

/** @typedef {import("../client/hydration.js").RunLine} RunLine */

/** The width of the longest bar of a duration, in pixels. */
const BAR_PX = 64;
/** How long a row keeps what it shows while its run does not change, in milliseconds: ages and durations grow. */
const FILLED_MS = 1000;

/**
 * What a row shows besides its run. `longest`: the duration of a full bar.
 * @typedef {{ columns: import("./run-columns.js").Column[], audience: import("../route.js").Audience, isSelected: boolean, words: string[], longest: number, select: (isRange: boolean) => void }} RowState
 */

/** What each row shows: a write of the same text costs, too. @type {WeakMap<HTMLElement, string>} */
const fills = new WeakMap();

/** @param {RunLine} run */
const isLive = ({ status }) => LIVE_STATUSES.includes(status);

/** @param {RunLine} run */
export const nameOfRun = ({ title, runId }) => title || runId;

/** @param {RunLine} run @returns {ReturnType<typeof sessionStatus>} */
export const statusOf = (run) => (isLive(run) && run.counts.pendingActions > 0 ? ["waiting", "Needs you"] : sessionStatus(run.stale ? "stale" : run.status));

/** @param {RunLine} run @param {number} now @returns {number} In milliseconds; NaN if it is unknown. */
export const durationOf = (run, now) => run.durationMs ?? (isLive(run) ? now - parseTime(run.startedAt) : NaN);

/** @param {RunLine} run */
export const tokensOfRun = ({ usage }) => (usage?.inputTokens === undefined && usage?.outputTokens === undefined ? undefined : (usage.inputTokens ?? 0) + (usage.outputTokens ?? 0));

export const makeRow = () => element("div", "run-row run-grid");

/**
 * Whether a row shows something else by now.
 * @param {HTMLElement} row
 * @param {string} fill
 */
function isChanged(row, fill) {
  if (fills.get(row) === fill) return false;
  fills.set(row, fill);
  return true;
}

/** Takes out what a row has of a run. @param {HTMLElement} row @param {"head" | "empty"} kind */
function clearRow(row, kind) {
  delete row.dataset.run;
  row.dataset.status = kind;
  row.removeAttribute("aria-selected");
}

/**
 * The heading of a group.
 * @param {HTMLElement} row
 * @param {import("./run-groups.js").GroupHead} head
 * @param {{ columns: number, toggle: () => void }} state
 */
export function fillHead(row, { group, label, count, isOpen }, { columns, toggle }) {
  if (!isChanged(row, `head ${group} ${count} ${isOpen} ${columns}`)) return;
  clearRow(row, "head");
  render(html`<span role="rowheader" class="run-group" aria-colspan=${columns}><button type="button" tabindex="-1" aria-expanded=${isOpen} @click=${toggle}>${icon("chevron-down")}<b class="truncate" dir="auto">${label}</b><i>${formatCount(count)}<span class="visually-hidden">${count === 1 ? " run" : " runs"}</span></i></button></span>`, row);
}

/** A row whose page has not arrived. @param {HTMLElement} row */
export function fillEmpty(row) {
  if (!isChanged(row, "")) return;
  clearRow(row, "empty");
  render(html`<span role="gridcell" class="run-loading"><i></i><span class="visually-hidden">Loading…</span></span>`, row);
}

/**
 * @param {HTMLElement} row
 * @param {RunLine} run
 * @param {RowState} state
 */
export function fillRow(row, run, { columns, audience, isSelected, words, longest, select }) {
  const now = Date.now();
  const names = columns.map(({ name }) => name);
  const fill = `${run.runId} ${run.lastSequence} ${run.status} ${isSelected} ${longest} ${names} ${words.join(" ")} ${Math.floor(now / (isLive(run) ? FILLED_MS : 60 * FILLED_MS))}`;
  if (!isChanged(row, fill)) return;
  row.dataset.run = run.runId;
  row.setAttribute("aria-selected", String(isSelected));
  const [status, word] = statusOf(run);
  row.dataset.status = status;
  const name = nameOfRun(run);
  const duration = durationOf(run, now);
  const { highlight } = run;
  const why = highlight?.text ?? run.preview ?? "";
  /** @type {Record<string, () => unknown>} */
  const cells = {
    check: () => html`<span role="gridcell" class="run-check"><label><input type="checkbox" tabindex="-1" aria-label="Select ${name}" .checked=${isSelected} @click=${(/** @type {PointerEvent} */ event) => select(event.shiftKey)}></label></span>`,
    title: () => html`<span role="rowheader" class="run-title">${glyph(status)}<span class="visually-hidden">${word}</span><a class="truncate" tabindex="-1" dir="auto" title=${name} href=${format({ run: run.runId, audience, at: null })}>${name}</a></span>`,
    why: () => html`<span role="gridcell" class="run-why truncate" dir="auto" data-kind=${highlight?.kind ?? "preview"} title=${why}>${marked(reveal(why), words)}</span>`,
    status: () => html`<span role="gridcell" class="run-status truncate">${word}</span>`,
    agent: () => html`<span role="gridcell" class="run-agent truncate" title=${run.agentId ?? ""}>${run.agentId ?? ""}</span>`,
    session: () => html`<span role="gridcell" class="run-session truncate" title=${run.sessionId ?? ""}>${run.sessionId ?? ""}</span>`,
    started: () => html`<span role="gridcell" class="run-started">${time(run.startedAt, now)}</span>`,
    ended: () => html`<span role="gridcell" class="run-ended">${time(run.endedAt, now)}</span>`,
    duration: () => html`<span role="gridcell" class="run-duration">${bar(duration, longest, isLive(run))}<span>${formatSpan(duration)}</span></span>`,
    tokens: () => html`<span role="gridcell" class="run-tokens">${formatShortCount(tokensOfRun(run))}</span>`,
    cost: () => html`<span role="gridcell" class="run-cost">${formatCost(run.usage?.costUsd)}</span>`,
  };
  render(html`${names.map((column) => cells[column]())}`, row);
}

/** How long ago something was. @param {string | undefined} at @param {number} now */
function time(at, now) {
  const [when, age] = [parseTime(at), formatAge(parseTime(at), now)];
  return Number.isFinite(when) ? html`<time datetime=${String(at)} title=${formatExact(when)}>${age === "now" ? "just now" : `${age} ago`}</time>` : nothing;
}

/**
 * @param {number} duration
 * @param {number} longest The duration of a full bar.
 * @param {boolean} isLive
 */
function bar(duration, longest, isLive) {
  const width = Number.isFinite(duration) ? Math.max(3, Math.min(1, duration / longest) * BAR_PX) : 0;
  return html`<svg class="run-bar" width=${BAR_PX} height="6" aria-hidden="true"><rect class="run-bar-ground" width=${BAR_PX} height="6" rx="3"/><rect class="run-bar-length" ?data-live=${isLive} width=${width.toFixed(1)} height="6" rx="3"/></svg>`;
}

/** A text with the words of the search marked. @param {string} text @param {string[]} words */
function marked(text, words) {
  if (words.length === 0) return text;
  const pattern = [...words].sort((a, b) => b.length - a.length).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  return text.split(new RegExp(`(${pattern})`, "gi")).map((part, at) => (at % 2 === 1 ? html`<mark>${part}</mark>` : part));
}

/** @param {number[]} values Heights of bars. @param {string} tone */
export function sparkline(values, tone) {
  const most = Math.max(...values, 0);
  const [step, height] = [3, 22];
  return html`<svg class="spark" data-tone=${tone} width=${values.length * step} height=${height} aria-hidden="true">${values.map((value, at) => {
    const length = most > 0 && value > 0 ? Math.max(2, (value / most) * height) : 1;
    return svg`<rect x=${at * step} y=${(height - length).toFixed(1)} width="2" height=${length.toFixed(1)} rx="1"/>`;
  })}</svg>`;
}
