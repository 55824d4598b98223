/**
 * Whether a run is under way.
 */

import { toText } from "./base.js";

const LIVE = new Set(["accepted", "running", "waiting"]);

/** @param {import("./base.js").Activity} activity The `run` activity. */
export const isLiveRun = (activity) => LIVE.has(toText(/** @type {any} */ (activity.content).status));
