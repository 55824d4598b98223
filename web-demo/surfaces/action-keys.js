/**
 * The keys of the pending decisions of the page: y and n move to the buttons of the current one, d shows or hides its
 * diff. Where several wait, each says which of them it is, the current one is marked, and j and k go on to another one.
 */

import { chevron } from "../ui/glyphs.js";
import { oncePerFrame } from "./base.js";
import { isDecisionKey } from "./decision-keys.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {import("./action.js").Action} Action */

/** The card in which the focus was last. @type {Action | undefined} */
let chosen;
/** What each card shows of its place. @type {WeakMap<Action, string>} */
const places = new WeakMap();

/** The pending decisions in the order of the page: of the inbox, or of the conversation, which may lie under it. */
function pending() {
  const cards = /** @type {Action[]} */ ([...document.querySelectorAll('ps-action[data-status="pending"]')]).filter((card) => card.checkVisibility());
  const ofInbox = cards.filter((card) => card.closest("ps-inbox"));
  return ofInbox.length > 0 ? ofInbox : cards;
}

/** The card whose keys these are: the one with the focus; else, of those in view, that which had it last, or the last. @param {Action[]} cards */
function currentOf(cards) {
  const focused = cards.find((card) => card.contains(document.activeElement));
  if (focused) return focused;
  const inView = cards.filter(isOnTop);
  return inView.find((card) => card === chosen) ?? inView.at(-1);
}

/**
 * Whether a card is in view, and nothing covers it.
 * @param {Action} card
 */
function isOnTop(card) {
  const { top, bottom, left, width } = card.getBoundingClientRect();
  const middle = (Math.max(top, 0) + Math.min(bottom, innerHeight)) / 2;
  const element = document.elementFromPoint(left + width / 2, middle);
  return element !== null && card.contains(element);
}

/** Says on each card which of several it is. */
const mark = oncePerFrame(() => {
  const cards = pending();
  const current = cards.length > 1 ? currentOf(cards) : undefined;
  cards.forEach((card, at) => {
    const place = cards.length > 1 ? `${at + 1} of ${cards.length}` : "";
    card.toggleAttribute("data-several", cards.length > 1);
    if (card === current) card.ariaCurrent = "true";
    else card.ariaCurrent = null;
    if (place === (places.get(card) ?? "")) return;
    places.set(card, place);
    card.place = place === "" ? nothing : html`<span class="decision-place"><span class="hint">${place}</span>${stepButton("Previous decision", "k", () => step(card, -1))}${stepButton("Next decision", "j", () => step(card, 1))}</span>`;
  });
});

/**
 * @param {string} label
 * @param {string} key
 * @param {() => void} go
 */
const stepButton = (label, key, go) => html`<button type="button" class="button small icon-button" data-kind="quiet" aria-label=${label} title="${label} (${key})" data-direction=${key} @click=${go}>${chevron("down")}</button>`;

/**
 * Moves to another pending decision.
 * @param {Action} card
 * @param {number} by
 */
function step(card, by) {
  const cards = pending();
  const next = cards[(cards.indexOf(card) + by + cards.length) % cards.length];
  next.scrollIntoView({ block: "nearest" });
  /** @type {HTMLElement | null} */ (next.querySelector(".ask"))?.focus({ preventScroll: true });
}

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  const cards = pending();
  const by = { j: 1, k: -1 }[key];
  const own = cards.find((card) => target instanceof Node && card.contains(target));
  if (by !== undefined && own && cards.length > 1 && isDecisionKey(event, "jk")) {
    event.preventDefault();
    step(own, by);
  } else if (isDecisionKey(event) && (own ?? currentOf(cards))?.handleKey(key)) event.preventDefault();
});
document.addEventListener("focusin", ({ target }) => {
  chosen = (target instanceof Element && /** @type {Action | null} */ (target.closest("ps-action"))) || chosen;
  mark();
});
document.addEventListener("scroll", mark, { capture: true, passive: true });
document.addEventListener("decision-drawn", mark);
