/**
 * The model's context: usage, references, compactions and missing items. Low-noise, but missing items always show.
 */

import { Surface, formatCount, define, element, inspectButton, joinText, keyOf, updateChildren, setText, toText } from "./base.js";

/** @typedef {import("./base.js").Activity} Activity */

/** The share of the budget from which on the meter warns. */
const WARNING_SHARE = 0.85;
/** The maximum number of references shown as chips; the rest is counted. */
const CHIPS_MAX = 8;

export class Context extends Surface {
  /** @param {Activity} activity */
  static shows(activity) {
    return activity.activityType === "context" || activity.activityType === "compaction";
  }

  #line = element("div", "row");
  #budget = element("span", "row budget");
  #bar = element("progress", "meter");
  #used = element("span", "hint");
  #chips = element("ul", "row chips");
  #compactionText = element("span", "hint cut");
  #missing = element("ul", "stack missing");

  build() {
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Context");
    this.#bar.max = 1;
    this.#bar.setAttribute("aria-label", "Context usage");
    this.#budget.replaceChildren(this.#bar, this.#used);
    const inspect = inspectButton(() => this.view, () => this.#contexts().at(-1));
    this.#line.replaceChildren(element("span", "label", "Context"), this.#budget, this.#chips, this.#compactionText, inspect);
    this.append(this.#line, this.#missing);
  }

  /** Contexts of the conversation's own runs. A source may report budget, memory and retrieval as separate contexts. */
  #contexts() {
    const own = new Set(this.view.runs);
    return this.activities().filter(({ activityType, runId }) => activityType === "context" && own.has(runId));
  }

  update() {
    const contexts = this.#contexts();
    const own = new Set(this.view.runs);
    const compactions = this.activities().filter(({ activityType, runId }) => activityType === "compaction" && own.has(runId));
    this.hidden = contexts.length === 0 && compactions.length === 0;
    if (this.hidden) return;
    const newest = contexts.at(-1);
    if (newest) this.dataset.key = keyOf(newest);
    this.#drawBudget(contexts.findLast(({ content }) => content.budget !== undefined || content.usedTokens !== undefined)?.content ?? {});
    const refs = [...new Set(contexts.flatMap(({ content }) => refNames(content)))];
    updateChildren(this.#chips, refs.slice(0, CHIPS_MAX).concat(refs.length > CHIPS_MAX ? [`${refs.length - CHIPS_MAX} more`] : []), (ref) => ref, (ref) => element("li", "chip", ref), () => {});
    const last = compactions.at(-1)?.content;
    setText(this.#compactionText, compactions.length === 0 ? "" : last?.status === "running" ? "being compacted" : `compacted ${compactions.length === 1 ? "once" : `${compactions.length} times`}`);
    this.#drawMissing(contexts.flatMap(({ content }) => (Array.isArray(content.missing) ? content.missing : content.missing === undefined ? [] : [content.missing])));
  }

  /** @param {Record<string, any>} content */
  #drawBudget(content) {
    const used = content.budget?.usedTokens ?? content.usedTokens;
    const max = content.budget?.maxTokens ?? content.maxTokens;
    const isKnown = typeof used === "number" && typeof max === "number" && max > 0;
    this.#bar.hidden = !isKnown;
    if (isKnown) this.#bar.value = Math.min(used / max, 1);
    this.#bar.dataset.state = isKnown && used / max >= WARNING_SHARE ? "warning" : "running";
    setText(this.#used, isKnown ? `${formatCount(used)} of ${formatCount(max)} tokens` : typeof used === "number" ? `${formatCount(used)} tokens, limit unknown` : "budget unknown");
  }

  /** @param {unknown[]} missing */
  #drawMissing(missing) {
    updateChildren(this.#missing, [...new Set(missing.map(toText))], (item) => item, (item) => {
      const row = element("li", "note", `Missing: ${item}`);
      row.dataset.state = "warning";
      return row;
    }, () => {});
    this.#missing.hidden = missing.length === 0;
  }
}

define("ps-context", Context);

/**
 * Returns the names of the references.
 * @param {Record<string, any>} content
 * @returns {string[]}
 */
function refNames(content) {
  const lists = [content.refs, content.references, content.selection, content.retrieved, content.sources].flatMap((list) => (Array.isArray(list) ? list : []));
  return [...new Set(lists.map((ref) => (typeof ref === "string" ? ref : toText(ref?.title ?? ref?.name ?? ref?.label ?? ref?.href ?? ref?.id ?? ref))))].filter((name) => joinText(name) !== "");
}
