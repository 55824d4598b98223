/**
 * The theme: light, dark, or the system's. Only an explicit choice is stored.
 */

import { icon } from "./ui/icons.js";
import { render } from "./vendor/lit.js";

const KEY = "proscenium.theme";
const THEMES = ["system", "light", "dark"];

/** @param {HTMLElement} button */
export function themeSwitch(button) {
  const draw = () => {
    const theme = localStorage.getItem(KEY) ?? "system";
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.title = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Theme: ${theme}`);
  };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(localStorage.getItem(KEY) ?? "system") + 1) % THEMES.length];
    if (next === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
    draw();
  });
  draw();
}

/** Draws the icons of the buttons with `data-icon` in the page's markup. */
export function iconButtons() {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-icon]"))) {
    button.classList.add("icon-button");
    render(icon(/** @type {import("./ui/icons.js").IconName} */ (button.dataset.icon)), button);
  }
}
