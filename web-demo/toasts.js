/**
 * Toasts: what failed, and what to do.
 */

import { icon } from "./ui/icons.js";
import { html, nothing, render, repeat } from "./vendor/lit.js";

/**
 * @typedef {object} Toast
 * @property {string} text What happened, and what to do.
 * @property {boolean} [isFailure] A failure stays until it is closed.
 * @property {{ label: string, run: () => void }} [action]
 */

/** How long a toast stays that is no failure, in milliseconds. */
const SHOWN_MS = 6000;
const TOASTS_MAX = 4;

/** @type {(Toast & { id: number })[]} */
let toasts = [];
let lastId = 0;
/** @type {HTMLElement | undefined} */
let region;

/** @param {Toast} toast */
export function showToast(toast) {
  if (toasts.some(({ text }) => text === toast.text)) return;
  const shown = { ...toast, id: (lastId += 1) };
  toasts = [...toasts, shown].slice(-TOASTS_MAX);
  draw();
  if (!toast.isFailure) setTimeout(() => close(shown.id), SHOWN_MS);
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
  render(repeat(toasts, ({ id }) => id, ({ id, text, isFailure, action }) => html`
    <div class="toast" data-failure=${Boolean(isFailure)}>
      <p>${text}</p>
      ${action ? html`<button type="button" class="button small" @click=${() => {
        close(id);
        action.run();
      }}>${action.label}</button>` : nothing}
      <button type="button" class="button small icon-button" data-kind="quiet" aria-label="Close" @click=${() => close(id)}>${icon("close")}</button>
    </div>`), region);
}
