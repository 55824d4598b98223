/**
 * The detail of one envelope: its JSON, what it changed, and its references.
 */

import { parseJson } from "../client/json.js";
import { jsonText } from "../ui/json.js";
import { age, formatBytes, formatExact } from "../ui/format.js";
import { icon } from "../ui/icons.js";
import { html, nothing } from "../vendor/lit.js";
import { formatCount, humanize, joinText, toText } from "./base.js";
import { describe } from "./describe.js";
import { BLOB_PATH } from "./facts.js";
import { refLinks } from "./links.js";

/** @typedef {import("../client/types.js").Activity} Activity */
/** @typedef {import("../client/types.js").Envelope} Envelope */
/** @typedef {import("./base.js").View} View */
/** @typedef {import("./event-log.js").Row} Row */

/** @typedef {{ member: string, from: string, to: string }} MemberChange */
/** @typedef {{ what: "opened" | "changed" | "ended" | "removed", activity: Activity, members: MemberChange[] }} Change */

/** The classification members of an envelope, in display order. */
const DIMENSIONS = ["owner", "scope", "phase", "surface", "audience", "persistence", "topology", "control"];
/** The id members of an envelope, in display order. */
const IDS = /** @type {const} */ (["runId", "sessionId", "threadId", "turnId", "messageId", "partId", "toolCallId", "actionId", "taskId", "agentId", "artifactId", "evidenceId", "parentSessionId", "parentThreadId", "eventId"]);
/** Members on display of one change, and the length of a value, in characters. */
const MEMBERS_MAX = 8;
const VALUE_CHARS_MAX = 120;
/** The number of envelopes whose changes are kept. */
const CACHED_MAX = 50;

/** What each envelope changed. @type {Map<string, Promise<Change[]>>} */
const cache = new Map();

/**
 * Reads what an envelope changed: the activities before and after it.
 * @param {View} view
 * @param {Row} row
 * @param {string} before The position before the envelope, for the log of a session; empty if there is none.
 * @returns {Promise<Change[]>}
 */
export function changesOf(view, row, before) {
  const key = `${view.audience} ${view.sessionId ?? ""} ${row.key} ${row.time}`;
  const known = cache.get(key);
  if (known) return known;
  const changes = readChanges(view, row, before);
  cache.set(key, changes);
  changes.catch(() => cache.delete(key));
  if (cache.size > CACHED_MAX) cache.delete(/** @type {string} */ (cache.keys().next().value));
  return changes;
}

/**
 * @param {View} view
 * @param {Row} row
 * @param {string} before
 * @returns {Promise<Change[]>}
 */
async function readChanges({ hydration, audience, sessionId }, { run, sequence, cursor }, before) {
  const stateAt = async (/** @type {number | string} */ at) => {
    if (at === 0 || at === "") return [];
    const { activities } = run ? await hydration.activities(run, { at: Number(at), audience }) : await hydration.sessionActivities(sessionId ?? "", { at: String(at), audience });
    return /** @type {Activity[]} */ (activities).filter((activity) => run !== "" || !activity.runId);
  };
  const [old, now] = await Promise.all([stateAt(run ? sequence - 1 : before), stateAt(run ? sequence : cursor)]);
  const keyOf = (/** @type {Activity} */ { activityType, activityId }) => `${activityType} ${activityId}`;
  const earlier = new Map(old.map((activity) => [keyOf(activity), activity]));
  const later = new Map(now.map((activity) => [keyOf(activity), activity]));
  /** @type {Change[]} */
  const changed = now.filter((activity) => activity.sequence === sequence).map((activity) => {
    const was = earlier.get(keyOf(activity));
    const what = !was ? "opened" : activity.endedAt && !was.endedAt ? "ended" : "changed";
    return { what, activity: { ...activity, runId: run }, members: was ? membersOf(was.content, activity.content) : [] };
  });
  const removed = old.filter((activity) => !later.has(keyOf(activity)));
  return [...changed, ...removed.map((activity) => /** @type {Change} */ ({ what: "removed", activity: { ...activity, runId: run }, members: [] }))];
}

/**
 * Compares two contents, member by member.
 * @param {Record<string, any>} old
 * @param {Record<string, any>} now
 * @returns {MemberChange[]}
 */
function membersOf(old, now) {
  return [...new Set([...Object.keys(old), ...Object.keys(now)])].flatMap((member) => {
    const [from, to] = [textOf(old[member]), textOf(now[member])];
    if (from === to) return [];
    // Streamed text grows at its end.
    if (from !== "" && to.startsWith(from) && from.length > VALUE_CHARS_MAX / 4) return [{ member, from: "", to: `+ ${to.slice(from.length)}` }];
    return [{ member, from, to }];
  });
}

/** @param {unknown} value */
const textOf = (value) => (Array.isArray(value) && value.every((one) => typeof one === "string") ? joinText(value) : toText(value));

/** @param {string} text */
const shorten = (text) => (text.length > VALUE_CHARS_MAX ? `${text.slice(0, VALUE_CHARS_MAX)}…` : text);

/** Colours of what happened to an activity: `changed` has that of a quiet tag. @type {Record<Change["what"], string>} */
const TAGS = { opened: "run", changed: "idle", ended: "done", removed: "idle" };

/**
 * @typedef {object} DetailOptions
 * @property {View} view
 * @property {Row} row
 * @property {"json" | "changes" | "refs"} tab
 * @property {Change[] | undefined} changes Undefined while they load.
 * @property {string} problem Why the changes could not be read.
 * @property {string} feedback The outcome of a copy.
 * @property {(tab: "json" | "changes" | "refs") => void} onTab
 * @property {(step: number) => void} onStep
 * @property {(what: "json" | "curl" | "link") => void} onCopy
 * @property {() => void} onClose
 */

/** @param {DetailOptions} options */
export function eventDetail(options) {
  const { view, row, tab, changes, onTab, onStep, onCopy, onClose } = options;
  const event = /** @type {Envelope} */ (parseJson(row.json));
  const refs = refsOf(view, event);
  const choice = (/** @type {typeof tab} */ name, /** @type {string} */ label, /** @type {number | undefined} */ count) =>
    html`<button type="button" role="tab" id="event-tab-${name}" aria-controls="event-panel" aria-selected=${tab === name} tabindex=${tab === name ? 0 : -1} @click=${() => onTab(name)}>${label}${count === undefined ? nothing : html` <span class="count">${count}</span>`}</button>`;
  return html`
    <header class="event-head">
      <div class="event-title"><h3 class="mono">${row.type}</h3>
        <button type="button" class="button small icon-button" data-kind="quiet" aria-label="Previous event" title="Previous event (k)" @click=${() => onStep(-1)}>${icon("up")}</button>
        <button type="button" class="button small icon-button flip" data-kind="quiet" aria-label="Next event" title="Next event (j)" @click=${() => onStep(1)}>${icon("up")}</button>
        <button type="button" class="button small icon-button" data-kind="quiet" aria-label="Copy a link to this event" title="Copy a link to this event" @click=${() => onCopy("link")}>${icon("link")}</button>
        <button type="button" class="button small icon-button" data-kind="quiet" aria-label="Close the event" title="Close (Esc)" @click=${onClose}>${icon("close")}</button>
      </div>
      <p class="hint">Event ${formatCount(row.sequence)} · <span title=${formatExact(row.time)}>${[dayText(row.time), timeText(row.time)].filter(Boolean).join(" ")}</span>${Number.isFinite(row.time) ? html` (${age(event.receivedAt ?? event.timestamp, view.now())})` : nothing} · ${formatBytes(row.size)}${row.agent ? html` · ${row.agent}` : nothing} · ${row.audience}</p>
    </header>
    <div class="event-tabs"><div role="tablist" aria-label="Event" @keydown=${(/** @type {KeyboardEvent} */ key) => moveTab(key, tab, onTab)}>${choice("json", "JSON", undefined)}${choice("changes", "Changes", changes?.length)}${choice("refs", "Refs", refs.length)}</div>
      <span class="grow"></span>
      <button type="button" class="button small" data-kind="quiet" aria-label="Copy as JSON" @click=${() => onCopy("json")}>${icon("copy")}JSON</button>
      <button type="button" class="button small" data-kind="quiet" aria-label="Copy as curl" @click=${() => onCopy("curl")}>${icon("copy")}curl</button>
    </div>
    <p class="event-feedback hint" role="status">${options.feedback}</p>
    <div class="event-panel" role="tabpanel" id="event-panel" aria-labelledby="event-tab-${tab}" tabindex="0">
      ${tab === "json" ? html`<pre class="json" aria-label="Event ${row.sequence} as JSON">${jsonText(event)}</pre>${row.isWithheld ? html`<p class="hint">The rest is withheld from this audience.</p>` : nothing}<section><h4>What this event changed</h4>${changeList(options)}</section>` : nothing}
      ${tab === "changes" ? changeList(options) : nothing}
      ${tab === "refs" ? html`${refs.length === 0 ? html`<p class="hint">The event has no references.</p>` : html`<ul class="event-refs">${refs}</ul>`}<section><h4>Ids and classification</h4>${idList(view, event)}</section>` : nothing}
    </div>`;
}

const TABS = /** @type {const} */ (["json", "changes", "refs"]);

/**
 * @param {KeyboardEvent} event
 * @param {typeof TABS[number]} tab
 * @param {(tab: typeof TABS[number]) => void} onTab
 */
function moveTab(event, tab, onTab) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length];
  onTab(next);
  document.getElementById(`event-tab-${next}`)?.focus();
}

/** @param {DetailOptions} options */
function changeList({ view, changes, problem }) {
  if (problem) return html`<p class="hint" data-state="failed">The changes could not be read: ${problem}</p>`;
  if (!changes) return html`<p class="hint">Reading the state before and after it…</p>`;
  if (changes.length === 0) return html`<p class="hint">It changed nothing that this audience sees.</p>`;
  return html`<ul class="event-changes">${changes.map(({ what, activity, members }) => {
    const { label, title } = describe(activity);
    return html`<li><span class="tag" data-tone=${TAGS[what]}>${what}</span><div><p>${label} ${itemLink(view, activity, title)}</p>
      ${members.slice(0, MEMBERS_MAX).map(({ member, from, to }) => html`<p class="event-member"><span class="mono">${member}</span> ${from ? html`<del>${shorten(from)}</del> → ` : nothing}<ins>${to === "" ? "removed" : shorten(to)}</ins></p>`)}
      ${members.length > MEMBERS_MAX ? html`<p class="hint">${members.length - MEMBERS_MAX} more members</p>` : nothing}</div></li>`;
  })}</ul>`;
}

/**
 * A link to the item, or to its events where the page has no place of its own for it.
 * @param {View} view
 * @param {Activity} activity
 * @param {string} title
 */
function itemLink(view, activity, title) {
  const { activityType, activityId: id, runId } = activity;
  const kind = activityType === "agent" ? "teammate" : ["artifact", "evidence", "action"].includes(activityType) ? /** @type {"artifact" | "evidence" | "action"} */ (activityType) : undefined;
  return html`<button type="button" class="link" title=${kind ? "Open" : "Show its events"} @click=${() => (kind ? view.open({ kind, id, runId }) : view.inspect(activity))}>${title}</button>`;
}

/**
 * @param {View} view
 * @param {Envelope} event
 */
function refsOf(view, event) {
  const runId = event.runId;
  const open = (/** @type {string} */ label, /** @type {import("./base.js").Target} */ target) => html`<li><span class="hint">${label}</span><button type="button" class="link mono" @click=${() => view.open(target)}>${target.id ?? target.href}</button></li>`;
  return [
    ...(event.artifactId ? [open("Artifact", { kind: "artifact", id: event.artifactId, runId })] : []),
    ...(event.evidenceId ? [open("Evidence", { kind: "evidence", id: event.evidenceId, runId })] : []),
    ...(event.agentId ? [open("Agent", { kind: "teammate", id: event.agentId, runId })] : []),
    ...[event.payload?.refs, event.refs].flatMap((refs) => refLinks(view, refs)).map(({ label, words }) => (BLOB_PATH.test(words) ? open(label, { kind: "blob", href: words }) : html`<li><span class="hint">${label}</span><span class="mono">${words}</span></li>`)),
  ];
}

/**
 * @param {View} view
 * @param {Envelope} event
 */
function idList(view, event) {
  const members = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (event));
  const facts = [...DIMENSIONS.map((name) => [name, humanize(members[name] ?? "")]), ...IDS.map((name) => [name, toText(members[name])])];
  return html`<dl class="facts">${facts.filter(([name, value]) => value !== "" && members[name] !== undefined).map(([name, value]) => html`<dt>${name}</dt><dd class="mono" data-member=${name}>${name === "runId" && value !== view.runId ? html`<button type="button" class="link" @click=${() => view.open({ kind: "run", id: value })}>${value}</button>` : value}</dd>`)}</dl>`;
}

/**
 * Formats a time of day, with milliseconds.
 * @param {number} time Milliseconds since 1970.
 */
export function timeText(time) {
  if (!Number.isFinite(time)) return "time unknown";
  const date = new Date(time);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/**
 * Returns the day of a time, as month and day; empty for today and for an unknown time.
 * @param {number} time
 */
export function dayText(time) {
  const date = new Date(time);
  if (!Number.isFinite(time) || date.toDateString() === new Date().toDateString()) return "";
  return [date.getMonth() + 1, date.getDate()].map((one) => String(one).padStart(2, "0")).join("-");
}

/**
 * The detail of an item while none of its envelopes is selected.
 * @param {View} view
 * @param {Activity} activity
 */
export function itemDetail(view, activity) {
  const { label, title } = describe(activity);
  /** @type {[string, unknown][]} */
  const facts = [["Type", activity.activityType], ["Id", activity.activityId], ["Run", activity.runId], ["Session", activity.sessionId], ["Surface", activity.surface], ["Agent", activity.agentId], ["Opened by", `event ${activity.opened}`], ["Changed by", `event ${activity.sequence}`], ["Audience", view.audience], ["As of", view.at ? `event ${view.at}` : undefined]];
  return html`<header class="event-head"><div class="event-title"><h3>${label}: ${title}</h3></div></header>
    <div class="event-panel" tabindex="0" role="group" aria-label="${label}: ${title}"><dl class="facts">${facts.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => html`<dt>${name}</dt><dd class="mono">${value}</dd>`)}</dl>
    <section><h4>Content</h4><pre class="json" aria-label="Content">${jsonText(activity.content)}</pre></section></div>`;
}
