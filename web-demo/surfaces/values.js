/**
 * Values of a run as text: inputs, errors and JSON.
 */

import { toText } from "./base.js";

/**
 * @param {any} error
 * @returns {string}
 */
export function errorText(error) {
  if (error === undefined || error === null) return "";
  const message = toText(error.message ?? error) || "Failed. No reason given.";
  const code = toText(error.code);
  return code && !message.includes(code) ? `${message} (${code})` : message;
}

/**
 * Formats an input in one line: `query: figures, limit: 10`.
 * @param {unknown} input
 */
export function summarizeInput(input) {
  if (input === null || typeof input !== "object" || Array.isArray(input)) return toText(input);
  return Object.entries(input).map(([name, value]) => `${name}: ${toText(value)}`).join(", ");
}

/**
 * @param {unknown} value
 * @returns {string}
 */
export function formatJson(value) {
  return typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value, null, 2);
}
