/**
 * The status that the page shows for a status of the protocol.
 */

import { stateOf } from "../surfaces/base.js";

/** Statuses that need the user. */
export const NEEDS_USER = ["needs_input", "input_required", "auth_required", "plan_ready", "changes_requested"];

/**
 * Returns the status that the page shows for a status of the protocol. Amber is for what waits for the user.
 * @param {unknown} status
 * @returns {import("./glyphs.js").Status}
 */
export function shownStatus(status) {
  if (typeof status !== "string") return "idle";
  if (NEEDS_USER.includes(status) || status === "waiting") return "waiting";
  const state = stateOf(status);
  return state === "ok" ? "completed" : state === "running" ? "running" : state === "failed" ? "failed" : "idle";
}
