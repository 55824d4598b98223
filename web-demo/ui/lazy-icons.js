/**
 * Icons of elements that the first screen does not need.
 */

import { svg } from "../vendor/lit.js";
import { drawn } from "./glyphs.js";

export const bellIcon = drawn(svg`<path d="M4 11.5V7a4 4 0 0 1 8 0v4.5M2.8 11.5h10.4M6.8 13.7h2.4"/>`);
export const checkIcon = drawn(svg`<path d="m3 8.5 3.2 3.2L13 4.8"/>`);
export const downloadIcon = drawn(svg`<path d="M8 2.5v8M4.8 7.3 8 10.5l3.2-3.2M3 13.5h10"/>`);
