/**
 * Facts of activities: their formats, lists and links, and the activities that they refer to.
 */

import { digitsOf } from "../client/json.js";
import { keyOf } from "../client/store.js";
import { createBadge, formatCount, element, updateChildren, setText, humanize, toText } from "./base.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/** The maximum length of a value in a list of facts, in characters. The event shows the whole. */
const VALUE_CHARS_MAX = 400;
/** The maximum number of items and members of a value. */
const ITEMS_MAX = 20;

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
const truncate = (text) => (text.length > VALUE_CHARS_MAX ? `${text.slice(0, VALUE_CHARS_MAX)}…` : text);

/** Final statuses of an agent. */
export const ENDED_STATUSES = ["completed", "failed", "killed", "closed", "cancelled"];

/** The value of a required fact that the source omitted. */
export const UNKNOWN = "unknown";

/**
 * Fills a list of facts. Empty values are omitted; for a required one the caller passes `UNKNOWN`.
 * @param {HTMLDListElement} root
 * @param {[label: string, value: unknown][]} pairs
 */
export function setFacts(root, pairs) {
  const entries = pairs.map(([label, value]) => /** @type {[string, string]} */ ([label, formatValue(value)])).filter(([, text]) => text !== "");
  /** @type {{ key: string, tag: "dt" | "dd", text: string }[]} */
  const rows = entries.flatMap(([label, text]) => [{ key: `dt ${label}`, tag: "dt", text: label }, { key: `dd ${label}`, tag: "dd", text }]);
  updateChildren(root, rows, (row) => row.key, (row) => element(row.tag), (child, row) => {
    setText(child, row.text);
    child.toggleAttribute("data-unknown", row.text === UNKNOWN);
  });
}

/**
 * The same as a template.
 * @param {[label: string, value: unknown][]} pairs
 */
export function factsTemplate(pairs) {
  const rows = pairs.map(([label, value]) => [label, formatValue(value)]).filter(([, text]) => text !== "");
  return rows.length === 0 ? nothing : html`<dl class="facts">${rows.map(([label, text]) => html`<dt>${label}</dt><dd ?data-unknown=${text === UNKNOWN}>${text}</dd>`)}</dl>`;
}

/**
 * Links as a template.
 * @param {Link[]} links
 */
export function linksTemplate(links) {
  if (links.length === 0) return nothing;
  return html`<div class="row links">${links.map(({ label, words, go, missing }) => (go ? html`<button type="button" class="chip go" @click=${go}><span class="chip-label">${label}</span> <span class="mono truncate">${words}</span></button>`
    : html`<span class="chip"><span class="chip-label">${label}</span> <span class="mono truncate">${words}</span>${missing ? html` <span class="badge" data-state="unknown">${missing}</span>` : nothing}</span>`))}</div>`;
}

/**
 * A reference. With `go` it is a button that opens it; otherwise it is text.
 * @typedef {{ label: string, words: string, go?: () => void, missing?: string }} Link
 */

/**
 * @param {HTMLElement} root
 * @param {Link[]} links
 */
export function setLinks(root, links) {
  updateChildren(root, links, (it) => `${it.go ? "go" : "text"} ${it.label} ${it.words}`, (it) => {
    const node = element(it.go ? "button" : "span", it.go ? "chip go" : "chip");
    if (node instanceof HTMLButtonElement) node.type = "button";
    node.append(element("span", "chip-label", it.label), element("span", "mono truncate", it.words));
    if (it.missing) node.append(createBadge("unavailable", it.missing));
    return node;
  }, (child, it) => {
    if (child instanceof HTMLButtonElement) child.onclick = it.go ?? null;
  });
}

/** Paths of offloaded bodies on this server: the only addresses in a payload that the page requests. */
export const BLOB_PATH = /^\/v1\/blobs\/[0-9a-f]+$/;

/**
 * Creates links for references in the shapes of the protocol and of sources: `{ rel, href, bytes? }`, or text.
 * @param {View} view
 * @param {unknown} refs
 * @param {string} [label]
 * @returns {Link[]}
 */
export function refLinks(view, refs, label = "ref") {
  const all = Array.isArray(refs) ? refs : refs === undefined || refs === null ? [] : typeof refs === "object" && !("href" in refs) ? Object.entries(refs).map(([rel, href]) => ({ rel, href })) : [refs];
  return all.slice(0, ITEMS_MAX).map((ref) => {
    const href = typeof ref === "object" && ref ? toText(ref.href ?? ref.ref ?? ref.url ?? ref) : toText(ref);
    const name = typeof ref === "object" && ref?.rel ? humanize(ref.rel) : label;
    return { label: name, words: truncate(href), go: BLOB_PATH.test(href) ? () => view.open({ kind: "blob", href }) : undefined };
  });
}

/**
 * Creates links to evidence. A reference without an evidence fact is marked as missing.
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} ids
 * @returns {Link[]}
 */
export function evidenceLinks(view, from, ids) {
  return factsOf(view, from, ids, "evidence", "not found");
}

/**
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} ids
 * @returns {Link[]}
 */
export function artifactLinks(view, from, ids) {
  return factsOf(view, from, ids, "artifact", "not found");
}

/**
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} ids
 * @param {"evidence" | "artifact"} kind
 * @param {string} missing
 * @returns {Link[]}
 */
function factsOf(view, from, ids, kind, missing) {
  const all = Array.isArray(ids) ? ids : ids === undefined || ids === null ? [] : [ids];
  return all.slice(0, ITEMS_MAX).map((ref) => {
    const id = toText(typeof ref === "object" && ref ? (ref.id ?? ref[`${kind}Id`] ?? ref) : ref);
    const fact = findActivity(view, from, kind, id);
    if (!fact) return { label: kind, words: truncate(id), missing };
    return { label: kind, words: toText(fact.content.title) || id, go: () => view.open({ kind, id, runId: fact.runId }) };
  });
}

/**
 * Finds an activity by type and id: in the same log, else in any log of the store.
 * @param {View} view
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
 * @param {View} view
 * @param {Activity} from
 * @param {unknown} id
 */
export function findAgentName(view, from, id) {
  if (typeof id !== "string") return formatValue(id) || UNKNOWN;
  return toText(findActivity(view, from, "agent", id)?.content.agentName) || id;
}

/**
 * Returns the `run` activity of an activity's log; `undefined` for a session's own log.
 * @param {View} view
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
