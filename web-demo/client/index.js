/**
 * Proscenium's client: follows runs and sessions and keeps their activities up to date. See `README.md` beside this
 * file.
 */

export { apply, equal, PatchError } from "./patch.js";
export { isMessage, isPendingAction, runOf, select } from "./selectors.js";
export { keyOf, lengthOf, logOf, Store, textFrom, textOf } from "./store.js";
export { connect, Connection } from "./connection.js";
export { Hydration, Stale } from "./hydration.js";
export { Replay } from "./replay.js";
export { attach, controlsOf, submit, withdraw } from "./controls.js";
export { Problem } from "./http.js";

/**
 * @typedef {import("./types.js").Activity} Activity
 * @typedef {import("./types.js").Audience} Audience
 * @typedef {import("./types.js").Branch} Branch
 * @typedef {import("./types.js").BranchPoint} BranchPoint
 * @typedef {import("./types.js").Changes} Changes
 * @typedef {import("./types.js").Delta} Delta
 * @typedef {import("./types.js").End} End
 * @typedef {import("./types.js").Envelope} Envelope
 * @typedef {import("./types.js").ErrorFrame} ErrorFrame
 * @typedef {import("./types.js").EventFrame} EventFrame
 * @typedef {import("./types.js").Fault} Fault
 * @typedef {import("./types.js").Frame} Frame
 * @typedef {import("./types.js").Hydrated} Hydrated
 * @typedef {import("./types.js").Json} Json
 * @typedef {import("./types.js").ListFrame} ListFrame
 * @typedef {import("./types.js").Listener} Listener
 * @typedef {import("./types.js").LogRef} LogRef
 * @typedef {import("./types.js").Operation} Operation
 * @typedef {import("./types.js").Options} Options
 * @typedef {import("./types.js").ProblemDocument} ProblemDocument
 * @typedef {import("./types.js").Reset} Reset
 * @typedef {import("./types.js").Run} Run
 * @typedef {import("./types.js").Snapshot} Snapshot
 * @typedef {import("./types.js").State} State
 * @typedef {import("./types.js").Timing} Timing
 * @typedef {import("./types.js").Token} Token
 * @typedef {import("./contents.js").Contents} Contents
 * @typedef {import("./contents.js").ActionContent} ActionContent
 * @typedef {import("./contents.js").MessageContent} MessageContent
 * @typedef {import("./contents.js").RunContent} RunContent
 * @typedef {import("./controls.js").Control} Control
 * @typedef {import("./controls.js").Submitted} Submitted
 * @typedef {import("./http.js").Server} Server
 * @typedef {import("./hydration.js").Session} Session
 * @typedef {import("./hydration.js").SessionLine} SessionLine
 */

/** @template Content @typedef {import("./selectors.js").Of<Content>} Of */
/** @template Value @typedef {import("./selectors.js").Selection<Value>} Selection */
