/**
 * What becomes of controls once they are handed over, as the server's lists of them say: for what the picture does not show, or
 * showed and took back before anybody looked.
 */

import { words } from "./base.js";

/** How often what was handed over is asked after, in milliseconds. */
export const POLL_MS = 1500;
/** How long what its owner took is shown as taken, in milliseconds, if no fact takes its place. */
export const TAKEN_MS = 6000;
/** More than a run or a session remembers: a list is one page. */
const LIMIT = 1000;

/**
 * Where the controls of a run, or else of a session, are listed.
 * @param {{ runId?: string, sessionId?: string }} of
 */
export function listOf({ runId, sessionId }) {
  return runId ? `/v1/runs/${encodeURIComponent(runId)}/controls` : `/v1/sessions/${encodeURIComponent(sessionId ?? "")}/controls`;
}

/**
 * How the controls of a list stand: `queued`, `claimed`, `acked`, `nacked` or `expired`, by their ids.
 * @param {import("./base.js").View} view
 * @param {string} list
 * @returns {Promise<Map<string, string>>} Rejects with the server's words.
 */
export async function statuses(view, list) {
  const { controls } = await view.read(`${list}?${new URLSearchParams({ limit: String(LIMIT), audience: view.audience })}`);
  return new Map(controls.map((/** @type {any} */ one) => [words(one.controlId), words(one.status)]));
}

/** Whether its owner has refused it, or nobody took it in time. @param {string | undefined} status */
export const isLost = (status) => status === "nacked" || status === "expired";
