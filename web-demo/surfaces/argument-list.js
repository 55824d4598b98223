/**
 * Arguments of a call, each with its type: short ones in a line, long ones open below each other.
 */

import { digitsOf } from "../client/json.js";
import { formatJson } from "./values.js";
import { reveal } from "../ui/reveal.js";
import { html, nothing } from "../vendor/lit.js";

/** A longer argument has its own line. In characters. */
const SHORT_ARGUMENT_CHARS = 60;

/**
 * @param {any} value The arguments by name, or one value.
 * @param {string} [label]
 */
export function argumentsTemplate(value, label = "Arguments") {
  const named = value === null || typeof value !== "object" ? [["", value]] : Object.entries(value);
  return html`<div class="args" role="group" aria-label=${label}>${named.map(([name, one]) => argument(name, one))}</div>`;
}

/**
 * @param {string} name Empty for none.
 * @param {any} value
 */
function argument(name, value) {
  const text = reveal(textOf(value));
  const type = value === null ? "null" : Array.isArray(value) ? "array" : digitsOf(value) ? "number" : typeof value;
  const isLong = text.length > SHORT_ARGUMENT_CHARS || text.includes("\n");
  return html`<span class="arg" ?data-long=${isLong}>${name ? html`<span class="arg-name">${reveal(name)}</span> ` : nothing}<span class="arg-value" dir="auto" data-type=${type}>${text}</span></span>`;
}

/**
 * Formats a value: a list of words as a command line, anything else as JSON.
 * @param {any} value
 */
function textOf(value) {
  if (typeof value === "string") return value;
  const short = JSON.stringify(value) ?? "";
  if (short.length <= SHORT_ARGUMENT_CHARS) return short;
  const isCommand = Array.isArray(value) && value.every((one) => typeof one === "string" && !/\s/.test(one));
  return isCommand ? value.join(" ") : formatJson(value);
}
