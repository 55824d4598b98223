/**
 * What is above the table of the runs, and over it: the filter, notices, what an empty table says, and what a person
 * can do to the selected runs.
 */

import { opened } from "../dialogs.js";
import { format } from "../route.js";
import { showToast } from "../toasts.js";
import { icon } from "../ui/icons.js";
import { downloadIcon } from "../ui/lazy-icons.js";
import { html, nothing } from "../vendor/lit.js";
import { formatCount } from "./base.js";
import { COLUMNS, GROUPS } from "./run-columns.js";
import { RANGES } from "./run-filter.js";

/** @typedef {import("../client/hydration.js").RunLine} RunLine */
/** @typedef {import("./run-filter.js").RunFilter} RunFilter */

/** The orders, by their value in the address. */
const ORDERS = COLUMNS.flatMap(({ label, sort }) => (sort === undefined ? [] : [[`-${sort}`, sort === "started" ? "Newest first" : `${label}, highest first`], [sort, sort === "started" ? "Oldest first" : `${label}, lowest first`]]));

/** The range of time of a filter: its value, its name, and in words. @param {RunFilter} filter @returns {[string, string, string]} */
export const rangeOf = ({ since }) => RANGES.find(([value]) => value === since) ?? [since, since, `since ${since}`];

/**
 * @param {RunFilter} filter
 * @param {string} sort
 * @param {{ type: (text: string) => void, key: (event: KeyboardEvent) => void, since: (value: string) => void, sort: (value: string) => void, save: () => void, copy: () => void }} act
 */
export function filterBar(filter, sort, act) {
  const range = rangeOf(filter);
  const ranges = RANGES.includes(range) ? RANGES : [...RANGES, range];
  const value = (/** @type {Event} */ { target }) => /** @type {HTMLInputElement | HTMLSelectElement} */ (target).value;
  return html`<div class="runs-bar">
    <div class="filter-field runs-field">${icon("search")}${filter.chips()}<input type="search" aria-label="Filter runs" placeholder=${filter.terms.length > 0 ? "" : "Text, or status:failed agent:coder cost:>1 duration:>5m"} autocomplete="off" spellcheck="false" .value=${filter.text}
      @input=${(/** @type {Event} */ event) => act.type(value(event))} @keydown=${act.key}><kbd>/</kbd></div>
    ${filter.menus(filter.facets, (_, name) => name)}
    <select class="runs-choice" aria-label="Range of time" .value=${filter.since} @change=${(/** @type {Event} */ event) => act.since(value(event))}>${ranges.map(([name, label]) => html`<option value=${name} ?selected=${name === filter.since}>${label}</option>`)}</select>
    <select class="runs-choice runs-order" aria-label="Order" @change=${(/** @type {Event} */ event) => act.sort(value(event))}>${ORDERS.map(([name, label]) => html`<option value=${name} ?selected=${name === sort}>${label}</option>`)}</select>
    <button type="button" class="button small" @click=${act.save}>Save view</button>
    <button type="button" class="button small icon-button" data-kind="quiet" aria-label="Copy the link to this view" title="Copy the link to this view" @click=${act.copy}>${icon("link")}</button>
  </div>`;
}

/**
 * The buttons of the menus for the group and the columns.
 * @param {string} group
 * @param {(menu: "group" | "columns", event: Event) => void} open
 */
export function displayButtons(group, open) {
  const label = GROUPS.find(([name]) => name === group)?.[1] ?? "none";
  const button = (/** @type {"group" | "columns"} */ menu, /** @type {string} */ text) => html`<button type="button" class="button small runs-${menu}" data-kind="quiet" aria-haspopup="menu" aria-expanded="false" @click=${(/** @type {Event} */ event) => open(menu, event)}>${text}${icon("chevron-down")}</button>`;
  return html`<div class="runs-display">${button("group", `Group: ${label.toLowerCase()}`)}${button("columns", "Columns")}</div>`;
}

/**
 * What went wrong, and what is not listed yet.
 * @param {import("./run-table.js").RunList | undefined} list The runs on display.
 * @param {import("./run-table.js").RunList | undefined} next Those that replace them.
 * @param {boolean} isGrouped
 * @param {() => void} showNews
 */
export function notice(list, next, isGrouped, showNews) {
  const { problem = "" } = next ?? list ?? {};
  const news = list?.news ?? 0;
  const runs = (/** @type {number} */ count) => `${formatCount(count)} ${count === 1 ? "run" : "runs"}`;
  return html`<div class="runs-notice" role="status">
    ${problem ? html`<p class="runs-problem"><span>${problem}</span><button type="button" class="button small" @click=${() => (next ?? list)?.retry()}>Retry</button></p>` : nothing}
    ${news > 0 ? html`<p class="runs-news"><button type="button" class="button small" @click=${showNews}>${icon("up")}${isGrouped ? `${runs(news)} new or in another group` : `${formatCount(news)} new ${news === 1 ? "run" : "runs"}`}</button></p>` : nothing}
    <span class="visually-hidden">${list && !next ? runs(list.total) : ""}</span>
  </div>`;
}

/** @param {RunFilter} filter */
export function emptyTable(filter) {
  const isAll = !filter.isNarrow && filter.since === "";
  return html`<div class="runs-empty"><p><b>${isAll ? "No runs yet." : "No run matches."}</b> ${isAll ? "A run appears here with its first event." : filter.isNarrow ? "" : `No run began ${rangeOf(filter)[2]}.`}</p>${isAll ? nothing : html`<button type="button" class="button" @click=${() => filter.clear()}>${filter.isNarrow ? "Clear the filter" : "Show runs of any time"}</button>`}</div>`;
}

/**
 * What a person can do to the selected runs.
 * @param {Map<string, RunLine>} selected
 * @param {import("./runs.js").RunsHost} host
 * @param {{ compare: () => void, clear: () => void }} act
 */
export function selectionBar(selected, { server, audience, canChange }, { compare, clear }) {
  const count = selected.size;
  if (count === 0) return nothing;
  const act = (/** @type {(actions: typeof import("./run-actions.js"), runs: RunLine[]) => Promise<void>} */ run) => () => void opened("The action", async () => run(await import("./run-actions.js"), [...selected.values()]));
  const hasFailed = [...selected.values()].some(({ status }) => ["failed", "cancelled", "interrupted"].includes(status));
  return html`<div class="runs-selected" role="toolbar" aria-label="Selected runs"><b>${formatCount(count)}<span> selected</span></b>
    <button type="button" class="button" data-kind="primary" ?disabled=${count !== 2} title=${count === 2 ? "Two traces on one axis" : "Select two runs to compare them"} @click=${compare}>Compare</button>
    ${canChange ? html`<button type="button" class="button" ?disabled=${!hasFailed} title=${hasFailed ? "Asks the runtimes to run those again that did not complete" : "None of them failed or was stopped"} @click=${act(({ retryRuns }, runs) => retryRuns(server, runs, audience))}>Retry</button>
    <button type="button" class="button" title="Archives their sessions for all who see them" @click=${act(({ archiveRuns }, runs) => archiveRuns(server, runs, audience))}>Archive</button>` : nothing}
    <button type="button" class="button" title="Downloads their events as one NDJSON file" @click=${act(({ exportRuns }, runs) => exportRuns(server, runs, audience))}>${downloadIcon}Export</button>
    <button type="button" class="button icon-button" data-kind="quiet" aria-label="Clear the selection" title="Clear the selection (Esc)" @click=${clear}>${icon("close")}</button></div>`;
}

/** Copies the address of a view. @param {Omit<import("../route.js").Route, "at">} place */
export async function copyLink(place) {
  try {
    await navigator.clipboard.writeText(`${location.origin}${location.pathname}${format({ ...place, at: null, view: "runs" })}`);
    showToast({ text: "Copied the link to this view." });
  } catch {
    showToast({ text: "The browser denied access to the clipboard.", isFailure: true });
  }
}
