/**
 * A menu of commands beside a button, or at the pointer. Escape, and a press or the focus elsewhere, close it. After
 * Escape and after a command, the focus is where it was.
 */

import { html, nothing, render } from "../vendor/lit.js";
import { checkIcon } from "./lazy-icons.js";

/**
 * @typedef {object} MenuItem
 * @property {string} label
 * @property {unknown} [icon]
 * @property {() => void} run
 * @property {"radio" | "checkbox"} [kind] A choice. The menu stays open for the next box.
 * @property {boolean} [isChecked]
 * @property {string} [key] The key that does the same.
 * @property {string} [hint] More about it, in a few words.
 * @property {boolean} [isDanger]
 */

/** The least distance between a menu and the edge of the window, in pixels. */
const EDGE = 8;

/** The menu that is open. @type {{ opener: HTMLElement, close: () => void } | undefined} */
let shown;

/**
 * @param {string} label
 * @param {MenuItem[] | (() => MenuItem[])} items The items, or what they are after each choice.
 * @param {HTMLElement} opener The menu opens below it. Another press of it closes the menu.
 * @param {{ x: number, y: number }} [at] Where it opens instead.
 */
export function openMenu(label, items, opener, at) {
  const isSecond = shown?.opener === opener && !at;
  shown?.close();
  if (isSecond) return;
  // A browser closes an automatic popover when the button that opened it at the pointer is released.
  const menu = Object.assign(document.createElement("div"), { className: "popover menu", popover: "manual" });
  menu.setAttribute("role", "menu");
  menu.setAttribute("aria-label", label);
  const listening = new AbortController();
  const close = (isBack = false) => {
    listening.abort();
    shown = undefined;
    if (opener.hasAttribute("aria-haspopup")) opener.setAttribute("aria-expanded", "false");
    if (isBack) opener.focus();
    menu.remove();
  };
  const isOutside = (/** @type {EventTarget | null} */ target) => target instanceof Node && !menu.contains(target) && !opener.contains(target);
  const draw = () => render((typeof items === "function" ? items() : items).map((item) => itemTemplate(item, () => {
    if (item.kind !== "checkbox") close(true);
    item.run();
    if (item.kind === "checkbox") draw();
  })), menu);
  draw();
  menu.addEventListener("keydown", (event) => handleKey(event, menu, close));
  addEventListener("pointerdown", ({ target }) => isOutside(target) && close(), { capture: true, signal: listening.signal });
  addEventListener("focusin", ({ target }) => isOutside(target) && close(), { signal: listening.signal });
  addEventListener("resize", () => close(), { signal: listening.signal });
  document.body.append(menu);
  menu.showPopover();
  place(menu, opener, at);
  if (opener.hasAttribute("aria-haspopup")) opener.setAttribute("aria-expanded", "true");
  shown = { opener, close };
  /** @type {HTMLElement | null} */ (menu.querySelector('[role="menuitemradio"][aria-checked="true"]') ?? menu.querySelector("button"))?.focus();
}

/** @param {MenuItem} item @param {() => void} choose */
function itemTemplate({ label, icon, kind, isChecked = false, key, hint, isDanger }, choose) {
  return html`<button type="button" role=${`menuitem${kind ?? ""}`} aria-checked=${kind ? String(isChecked) : nothing} data-danger=${Boolean(isDanger)} @click=${choose}>${kind ? html`<span class="menu-check" aria-hidden="true">${isChecked ? checkIcon : nothing}</span>` : icon}<span>${label}${hint ? html`<small>${hint}</small>` : nothing}</span>${key ? html`<kbd aria-hidden="true">${key}</kbd>` : nothing}</button>`;
}

/**
 * @param {HTMLElement} menu
 * @param {HTMLElement} opener
 * @param {{ x: number, y: number }} [at]
 */
function place(menu, opener, at) {
  const from = opener.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const below = at?.y ?? from.bottom + 4;
  const isAbove = below + height > innerHeight - EDGE;
  const top = isAbove ? (at?.y ?? from.top - 4) - height : below;
  menu.style.left = `${Math.max(EDGE, Math.min(at?.x ?? from.left, innerWidth - width - EDGE))}px`;
  menu.style.top = `${Math.max(EDGE, top)}px`;
}

/**
 * @param {KeyboardEvent} event
 * @param {HTMLElement} menu
 * @param {(isBack?: boolean) => void} close
 */
function handleKey(event, menu, close) {
  const items = [...menu.querySelectorAll("button")];
  const at = items.findIndex((item) => item === document.activeElement);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
  event.stopPropagation();
  if (event.key === "Escape" || event.key === "Tab") close(true);
  if (event.key === "Escape" || next !== undefined) event.preventDefault();
  if (next !== undefined) items.at(next % items.length)?.focus();
}
