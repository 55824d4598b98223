/**
 * Submitted controls and their statuses, as the server's lists report them. The store shows only some of these, and
 * only until the next change.
 */

import { toText } from "./base.js";

/**
 * @typedef {import("./base.js").CardView} CardView
 *
 * The status of a control (`queued`, `claimed`, `acked`, `nacked`, `expired`), and the reason of a rejection.
 * @typedef {{ status: string, reason: string }} ControlStatus
 */

/** The interval of polls, in milliseconds. */
export const POLL_MS = 1500;
/** The longest interval of polls while nothing changes, in milliseconds. */
export const POLL_MAX_MS = 15_000;
/** How long the page shows that a control was accepted unless a fact replaces it, in milliseconds. */
export const ACCEPTED_SHOWN_MS = 6000;
/** The page size of a list. A run or session keeps fewer controls than this. */
const LIST_LIMIT = 1000;

/**
 * Reads a list's controls.
 * @param {CardView} view
 * @param {string} list
 * @returns {Promise<Record<string, any>[]>} Rejects with the server's problem.
 */
export async function readControls(view, list) {
  return (await view.read(`${list}?${new URLSearchParams({ limit: String(LIST_LIMIT), audience: view.audience })}`)).controls;
}

/**
 * Reads the statuses of a list's controls, by id.
 * @param {CardView} view
 * @param {string} list
 * @returns {Promise<Map<string, ControlStatus>>} Rejects with the server's problem.
 */
export async function readControlStatuses(view, list) {
  const controls = await readControls(view, list);
  return new Map(controls.map((/** @type {any} */ one) => [toText(one.controlId), { status: toText(one.status), reason: toText(one.reason) }]));
}

/** Whether the runtime rejected a control or did not claim it in time. @param {string | undefined} status */
export const hasFailed = (status) => status === "nacked" || status === "expired";
