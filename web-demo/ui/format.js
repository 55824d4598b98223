/**
 * Formats of numbers and times: short, with the exact value on hover.
 */

import { html, nothing } from "../vendor/lit.js";

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/**
 * Parses a time of the wire.
 * @param {unknown} time RFC 3339.
 * @returns {number} Milliseconds since 1970; NaN if it is not a time.
 */
export const parseTime = (time) => (typeof time === "string" ? Date.parse(time) : NaN);

/**
 * Returns when an activity opened, and when it ended or else changed last. What has ended has the times of its source's
 * clock if the source states times: all facts of an import arrive at once.
 * @param {import("../client/types.js").Activity} activity
 */
export const timesOf = ({ openedAt, updatedAt, endedAt, sourceOpenedAt, sourceEndedAt }) => (sourceEndedAt ? [sourceOpenedAt, sourceEndedAt] : [openedAt, endedAt ?? updatedAt]).map(parseTime);

/**
 * Formats a span: `0.4s`, `7.0s`, `35.2s`, `1m 2s`, `2h 5m`, `3d 4h`.
 * @param {number} ms
 * @returns {string} Empty if it is not a finite number.
 */
export function formatSpan(ms) {
  if (!Number.isFinite(ms)) return "";
  const span = Math.max(0, ms);
  if (span < MINUTE_MS - 50) return `${(span / SECOND_MS).toFixed(1)}s`;
  if (span < HOUR_MS) return `${Math.floor(span / MINUTE_MS)}m ${Math.floor((span % MINUTE_MS) / SECOND_MS)}s`;
  if (span < DAY_MS) return `${Math.floor(span / HOUR_MS)}h ${Math.floor((span % HOUR_MS) / MINUTE_MS)}m`;
  return `${Math.floor(span / DAY_MS)}d ${Math.floor((span % DAY_MS) / HOUR_MS)}h`;
}

/**
 * Formats an age in one unit: `now` (under 10 seconds), `38s`, `2m`, `1h`, `3d`.
 * @param {number} then Milliseconds since 1970.
 * @param {number} now Milliseconds since 1970.
 * @returns {string} Empty if a time is unknown.
 */
export function formatAge(then, now) {
  const age = now - then;
  if (!Number.isFinite(age)) return "";
  if (age < 10 * SECOND_MS) return "now";
  if (age < MINUTE_MS) return `${Math.floor(age / SECOND_MS)}s`;
  if (age < HOUR_MS) return `${Math.floor(age / MINUTE_MS)}m`;
  if (age < DAY_MS) return `${Math.floor(age / HOUR_MS)}h`;
  return `${Math.floor(age / DAY_MS)}d`;
}

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/**
 * Formats a moment exactly, in the viewer's time zone.
 * @param {number} time Milliseconds since 1970.
 */
export const formatExact = (time) => (Number.isFinite(time) ? EXACT.format(time) : "");

/**
 * An age, with the exact time on hover.
 * @param {unknown} time RFC 3339.
 * @param {number} now Milliseconds since 1970.
 */
export function age(time, now) {
  const then = parseTime(time);
  return Number.isFinite(then) ? html`<time class="age" datetime=${String(time)} title=${formatExact(then)}>${formatAge(then, now)}</time>` : nothing;
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/**
 * Formats a count: `141`, `9.4k`, `47.4k`, `1.2M`.
 * @param {unknown} count
 * @returns {string} Empty if it is not a number.
 */
export function formatShortCount(count) {
  if (typeof count !== "number" || !Number.isFinite(count)) return "";
  if (Math.abs(count) < 1000) return WHOLE.format(count);
  const [scaled, unit] = Math.abs(count) < 999_950 ? [count / 1000, "k"] : [count / 1_000_000, "M"];
  return `${scaled.toFixed(1).replace(/\.0$/, "")}${unit}`;
}

/**
 * Formats an amount of money: `$0.84`, `$0.0042` (under one cent), `12.00 CHF`.
 * @param {unknown} amount
 * @param {string} [currency] ISO 4217.
 * @returns {string} Empty if it is not a number.
 */
export function formatCost(amount, currency = "USD") {
  if (typeof amount !== "number" || !Number.isFinite(amount)) return "";
  const digits = amount === 0 || Math.abs(amount) >= 0.01 ? amount.toFixed(2) : amount.toPrecision(2);
  return currency.toUpperCase() === "USD" ? `$${digits}` : `${digits} ${currency.toUpperCase()}`;
}

/**
 * Formats a size: `412 B`, `1.4 kB`, `3.6 MB`.
 * @param {unknown} bytes
 * @returns {string} Empty if it is not a number.
 */
export function formatBytes(bytes) {
  if (typeof bytes !== "number" || !Number.isFinite(bytes)) return "";
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1_000_000 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}
