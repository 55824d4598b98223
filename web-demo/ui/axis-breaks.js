/**
 * The marks of a time axis where it leaves out a long pause: without them, what is days apart looks like neighbors.
 */

import { svg } from "../vendor/lit.js";

/**
 * @param {import("./time-axis.js").TimeAxis} axis
 * @param {number} width In pixels.
 * @returns {unknown} Two slanted lines at each break, below the labels of the ticks.
 */
export const axisBreaks = (axis, width) => axis.breaks.map((place) => svg`<path class="axis-break" d="M${(place * width - 3).toFixed(1)} 28l4-8m1 8l4-8"/>`);
