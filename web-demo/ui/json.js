/**
 * JSON as templates: highlighted text, and a tree that opens level by level.
 */

import { digitsOf } from "../client/json.js";
import { html, nothing, render } from "../vendor/lit.js";

/** The maximum length of highlighted text, in characters. */
const TEXT_CHARS_MAX = 100_000;
/** The maximum number of members of one level of a tree. */
const MEMBERS_MAX = 500;

/** The tokens of JSON that have a colour. A string before a colon is a key. */
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/**
 * Highlights a value as indented JSON.
 * @param {unknown} value
 */
export function jsonText(value) {
  const text = JSON.stringify(value, null, 2) ?? "";
  const shown = text.slice(0, TEXT_CHARS_MAX);
  /** @type {unknown[]} */
  const parts = [];
  let end = 0;
  for (const match of shown.matchAll(TOKEN)) {
    const [whole, string, colon = "", literal] = match;
    parts.push(shown.slice(end, match.index), html`<span class=${string ? (colon ? "json-key" : "json-string") : literal ? "json-literal" : "json-number"}>${string ?? whole}</span>${colon}`);
    end = match.index + whole.length;
  }
  return html`${parts}${shown.slice(end)}${shown === text ? nothing : "…"}`;
}

/**
 * A tree of a JSON value. Levels below the second are drawn when they open.
 * @param {unknown} value
 * @param {string} [name]
 * @param {number} [depth]
 * @returns {unknown}
 */
export function jsonTree(value, name = "", depth = 0) {
  const label = name === "" ? nothing : html`<span class="json-key">${name}</span>: `;
  if (typeof value !== "object" || value === null || digitsOf(value)) return html`<div class="json-leaf">${label}${jsonText(value)}</div>`;
  const members = Object.entries(value);
  const count = Array.isArray(value) ? `[${members.length}]` : `{${members.length}}`;
  if (members.length === 0) return html`<div class="json-leaf">${label}${Array.isArray(value) ? "[]" : "{}"}</div>`;
  const children = () => html`${members.slice(0, MEMBERS_MAX).map(([key, member]) => jsonTree(member, key, depth + 1))}${members.length > MEMBERS_MAX ? html`<div class="json-leaf hint">${members.length - MEMBERS_MAX} more members</div>` : nothing}`;
  return html`<details class="json-node" ?open=${depth < 2} @toggle=${(/** @type {Event} */ event) => openLevel(event, children)}><summary>${label}<span class="hint">${count}</span></summary><div class="json-level">${depth < 2 ? children() : nothing}</div></details>`;
}

/** Levels that are drawn. @type {WeakSet<Element>} */
const drawn = new WeakSet();

/**
 * Draws a level when it opens first: a large document has more members than a page can hold.
 * @param {Event} event
 * @param {() => unknown} children
 */
function openLevel(event, children) {
  const node = /** @type {HTMLDetailsElement} */ (event.currentTarget);
  const level = node.lastElementChild;
  if (!node.open || !(level instanceof HTMLElement) || level.childElementCount > 0 || drawn.has(level)) return;
  drawn.add(level);
  render(children(), level);
}
