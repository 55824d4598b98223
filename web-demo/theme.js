/**
 * The theme: light, dark, or the system's. Only an explicit choice is stored.
 */

import { setText } from "./surfaces/base.js";

const KEY = "proscenium.theme";
const THEMES = ["system", "light", "dark"];
/** @type {Record<string, string>} */
const ICONS = { system: "◐", light: "○", dark: "●" };

/** @param {HTMLElement} button */
export function themeSwitch(button) {
  const draw = () => {
    const theme = localStorage.getItem(KEY) ?? "system";
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    setText(button, ICONS[theme] ?? ICONS.system);
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
