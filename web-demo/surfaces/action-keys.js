/**
 * The keys of the open decision of the page: y and n move to its buttons, d shows or hides its diff.
 */

import { isDecisionKey } from "./decision-keys.js";

/** @typedef {import("./action.js").Action} Action */

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (!isDecisionKey(event)) return;
  const cards = /** @type {Action[]} */ ([...document.querySelectorAll('ps-action[data-status="pending"]')]);
  const card = cards.find((one) => target instanceof Node && one.contains(target)) ?? cards.findLast(isOnTop);
  if (card?.handleKey(key)) event.preventDefault();
});

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
