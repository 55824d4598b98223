/**
 * Goes to the decision that an address names: scrolls to its card, and focuses it.
 */

import { keyOf } from "./client/store.js";

/** How many frames the card may take until it is drawn. */
const FRAMES_MAX = 120;

/**
 * @param {{ id: string, runId?: string }} wanted
 * @param {import("./client/store.js").Store} store
 * @param {import("./surfaces/conversation.js").Conversation} conversation
 */
export async function goToAction({ id, runId }, store, conversation) {
  const isWanted = (/** @type {import("./surfaces/base.js").Activity} */ one) => one.activityType === "action" && one.activityId === id && (!runId || !one.runId || one.runId === runId);
  const [action] = store.sorted(isWanted);
  if (!action) return;
  const key = keyOf(action);
  for (let frames = 0; frames < FRAMES_MAX; frames += 1) {
    conversation.reveal(key);
    const card = /** @type {HTMLElement | null} */ (conversation.querySelector(`ps-action[data-key="${CSS.escape(key)}"] :is(.ask, .summary)`));
    if (card) return card.focus({ preventScroll: true });
    await new Promise(requestAnimationFrame);
  }
}
