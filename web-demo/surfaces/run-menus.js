/**
 * The menus of the runs: what groups the rows, and which columns they have.
 */

import { openMenu } from "../ui/menu.js";
import { CHOICES, GROUPS, USUAL_COLUMNS, parseColumns } from "./run-columns.js";

/**
 * @param {HTMLElement} opener
 * @param {string} current
 * @param {(group: string) => void} choose
 */
export function openGroupMenu(opener, current, choose) {
  openMenu("Group the runs by", [["", "None"], ...GROUPS].map(([name, label]) => ({ label, isChecked: name === current, kind: /** @type {const} */ ("radio"), run: () => choose(name) })), opener);
}

/**
 * @param {HTMLElement} opener
 * @param {() => string} current Returns the names of the columns, with commas between.
 * @param {(columns: string) => void} choose
 */
export function openColumnsMenu(opener, current, choose) {
  openMenu("Columns", () => {
    const names = parseColumns(current());
    const toggled = (/** @type {string} */ name) => parseColumns((names.includes(name) ? names.filter((one) => one !== name) : [...names, name]).join()).join();
    return [
      ...CHOICES.map(({ name, label }) => ({ label, isChecked: names.includes(name), kind: /** @type {const} */ ("checkbox"), run: () => choose(toggled(name)) })),
      { label: "The usual columns", run: () => choose(USUAL_COLUMNS) },
    ];
  }, opener);
}
