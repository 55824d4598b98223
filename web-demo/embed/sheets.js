/**
 * The style sheets of the elements: those of the workbench, in shadow roots.
 *
 * A sheet of a shadow root needs no permission in the content policy of the page around it, and no rule of that page
 * reaches into it. Each design token takes its value from a property of the page, `--ps-accent` for `--accent`.
 */

import components from "../components.css";
import decision from "../surfaces/decision.css";
import shared from "../style.css";
import tokens from "../tokens.css";
import { loadStylesBy } from "../styles.js";
import own from "./embed.css";

/** The selectors of the page's root and body, as the root of an element has them. */
const ROOT = /:root(:not\([^)]*\)|\[[^\]]*\])?/g;
const BODY = /(^|[}\s])body(?=\s*\{)/;
const TOKEN = /(--([\w-]+)):\s*([^;}]+)/g;

/** @param {string} text */
const sheetOf = (text) => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(text.replace(BODY, "$1.root").replace(ROOT, (_, state) => (state ? `:host(${state}) .root` : ".root")));
  return sheet;
};

/** @type {CSSStyleSheet[]} */
let sheets = [];
/** The shadow roots in the document. @type {Set<ShadowRoot>} */
const roots = new Set();

/** @param {CSSStyleSheet[]} all */
function set(all) {
  sheets = all;
  for (const root of roots) root.adoptedStyleSheets = sheets;
}

/** Adds the sheet of a part that loads later. @param {string} text */
export const addSheet = (text) => set([...sheets, sheetOf(text)]);

/** Gives a shadow root the sheets, and those that load later. @param {ShadowRoot} root */
export function adoptSheets(root) {
  if (sheets.length === 0) set([own, components, tokens.replace(TOKEN, "$1: var(--ps-$2, $3)"), shared, decision].map(sheetOf));
  roots.add(root);
  root.adoptedStyleSheets = sheets;
}

/** @param {ShadowRoot} root */
export const dropSheets = (root) => roots.delete(root);

loadStylesBy(async (path) => {
  const { SHEETS } = await import("./lazy-sheets.js");
  if (SHEETS[path]) addSheet(SHEETS[path]);
});
