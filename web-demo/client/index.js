/**
 * Proscenium's client: follows runs and sessions and keeps their activities up to date. See `README.md` beside this
 * file.
 */

export { apply, equal, PatchError } from "./patch.js";
export { keyOf, lengthOf, logOf, Store, textFrom, textOf } from "./store.js";
export { connect, Connection } from "./connection.js";
export { Hydration, Stale } from "./hydration.js";
export { Replay } from "./replay.js";
export { controlsOf, submit, withdraw } from "./controls.js";
export { Problem } from "./http.js";
