/**
 * The live views of elements that show a history.
 */

import { ViewModel } from "../view-model.js";
import { openSource } from "./source.js";

/**
 * @param {import("./source.js").Place} place
 * @param {{ run?: string, session?: string }} of
 */
export const openHistory = (place, of) => openSource(place, of, ViewModel);
