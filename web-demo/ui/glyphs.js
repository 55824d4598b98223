/**
 * Status glyphs, and what draws icons, as templates. They are decoration: a button names itself, and a word stands beside
 * a glyph.
 */

import { html, svg } from "../vendor/lit.js";

/** @param {unknown} shape */
export const drawn = (shape) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">${shape}</svg>`;

/** The chevrons, on a grid of 16 by 16. */
export const CHEVRONS = { right: svg`<path d="m6 4 4 4-4 4"/>`, down: svg`<path d="m4 6 4 4 4-4"/>` };

/** @param {keyof typeof CHEVRONS} direction */
export const chevron = (direction) => drawn(CHEVRONS[direction]);

/** @typedef {"running" | "waiting" | "completed" | "failed" | "idle"} Status A status on the page: each has a glyph, a color and a word. */

/** Glyphs on a grid of 12 by 12. @type {Record<Status, unknown>} */
const GLYPHS = {
  running: svg`<g class="spin"><circle cx="6" cy="6" r="4.6" fill="none" stroke="currentColor" stroke-width="1.7" opacity=".28"/><path d="M6 1.4A4.6 4.6 0 0 1 10.6 6" fill="none" stroke="currentColor" stroke-width="1.7" stroke-linecap="round"/></g>`,
  waiting: svg`<circle cx="6" cy="6" r="5.5" fill="currentColor"/><path d="M6 3v3.4M6 8.7h.01" stroke="var(--surface)" stroke-width="1.6" stroke-linecap="round"/>`,
  completed: svg`<circle cx="6" cy="6" r="5.5" fill="currentColor"/><path d="m3.6 6.2 1.7 1.7 3.1-3.6" fill="none" stroke="var(--surface)" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round"/>`,
  failed: svg`<circle cx="6" cy="6" r="5.5" fill="currentColor"/><path d="m4.2 4.2 3.6 3.6M7.8 4.2 4.2 7.8" stroke="var(--surface)" stroke-width="1.5" stroke-linecap="round"/>`,
  idle: svg`<circle cx="6" cy="6" r="4.4" fill="none" stroke="currentColor" stroke-width="1.5"/>`,
};

/** @param {Status} status */
export const glyph = (status) => html`<svg class="glyph" data-status=${status} viewBox="0 0 12 12" aria-hidden="true">${GLYPHS[status]}</svg>`;

/**
 * A status: its glyph and a word.
 * @param {Status} status
 * @param {string} word
 * @param {{ isPill?: boolean }} [options] `isPill`: with a background, where the status leads.
 */
export const statusLabel = (status, word, { isPill = false } = {}) => html`<span class="status ${isPill ? "pill" : ""}" data-status=${status}>${glyph(status)}${word}</span>`;
