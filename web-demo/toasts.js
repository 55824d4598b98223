/**
 * Toasts: what failed, and what to do.
 */

import { Problem } from "./client/http.js";
import { icon } from "./ui/icons.js";
import { html, nothing, render, repeat } from "./vendor/lit.js";

/**
 * @typedef {object} Toast
 * @property {string} text What happened, and what to do.
 * @property {boolean} [isFailure] A failure stays until it is closed.
 * @property {{ label: string, run: () => void }} [action]
 * @property {() => void} [closed] Makes the toast stay until a person closes it, and then runs.
 */

/** How long a toast stays that is no failure, in milliseconds: one to read, and one with something to do. */
const [SHOWN_MS, OFFERED_MS] = [6000, 12_000];
const TOASTS_MAX = 4;

/** @type {(Toast & { id: number })[]} */
let toasts = [];
let lastId = 0;
/** @type {HTMLElement | undefined} */
let region;

/** @param {Toast} toast */
export function showToast(toast) {
  // The action of an older toast with this text may be about something else.
  toasts = toasts.filter(({ text }) => text !== toast.text);
  const shown = { ...toast, id: (lastId += 1) };
  toasts = [...toasts, shown].slice(-TOASTS_MAX);
  draw();
  if (!toast.isFailure && !toast.closed) setTimeout(() => close(shown.id), toast.action ? OFFERED_MS : SHOWN_MS);
}

/** @param {number} id */
function close(id) {
  toasts = toasts.filter((toast) => toast.id !== id);
  draw();
}

function draw() {
  if (!region) {
    region = document.createElement("div");
    region.className = "toasts";
    // Announced without moving the focus.
    region.setAttribute("role", "status");
    document.body.append(region);
  }
  render(repeat(toasts, ({ id }) => id, ({ id, text, isFailure, action, closed }) => html`
    <div class="toast" data-failure=${Boolean(isFailure)}>
      <p dir="auto">${text}</p>
      ${action ? html`<button type="button" class="button small" @click=${() => {
        close(id);
        action.run();
      }}>${action.label}</button>` : nothing}
      <button type="button" class="button small icon-button" data-kind="quiet" aria-label="Close" @click=${() => {
        close(id);
        closed?.();
      }}>${icon("close")}</button>
    </div>`), region);
}

/** @param {unknown} error @returns {string} What failed, for a person. */
export function failureOf(error) {
  if (error instanceof Problem) return error.detail;
  // `fetch` rejects with a TypeError.
  return error instanceof Error && !(error instanceof TypeError) ? error.message : "The server is unreachable. Check that it runs.";
}
