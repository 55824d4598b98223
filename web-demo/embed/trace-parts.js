/**
 * The surface of `<ps-trace>`.
 */

import { define } from "../surfaces/base.js";
import { Trace } from "../surfaces/trace.js";
import { Parts } from "./parts.js";

define("ps-trace-view", Trace);

/** @param {import("../surfaces/base.js").View} view */
export const traceParts = (view) => new Parts(view, [new Trace()]);
