/**
 * Lists of facts, and links to what they refer to.
 */

import { createBadge, element, updateChildren, setText, humanize, toText } from "./base.js";
import { BLOB_PATH, ITEMS_MAX, UNKNOWN, findActivity, formatValue, truncate } from "./facts.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").CardView} CardView */

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

/**
 * Creates links for references in the shapes of the protocol and of sources: `{ rel, href, bytes? }`, or text.
 * @param {CardView} view
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
 * @param {CardView} view
 * @param {Activity} from
 * @param {unknown} ids
 * @returns {Link[]}
 */
export function evidenceLinks(view, from, ids) {
  return factsOf(view, from, ids, "evidence", "not found");
}

/**
 * @param {CardView} view
 * @param {Activity} from
 * @param {unknown} ids
 * @returns {Link[]}
 */
export function artifactLinks(view, from, ids) {
  return factsOf(view, from, ids, "artifact", "not found");
}

/**
 * @param {CardView} view
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
