/**
 * The model's context: the used share, and in a popover its references, compactions and missing items.
 */

import { formatCount, inspectButton, joinText, toText } from "./base.js";
import { icon } from "../ui/icons.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/** The share of the budget from which on the meter warns. */
const WARNING_SHARE = 0.85;
/** The maximum number of references shown; the rest is counted. */
const REFS_MAX = 12;

export class ContextMeter {
  /** @type {Activity | undefined} */
  #newest;
  #inspect;

  /** @param {() => View} view */
  constructor(view) {
    this.#inspect = inspectButton(view, () => this.#newest);
  }

  /**
   * The button and its popover. A source may report budget, memory and retrieval as separate contexts.
   * @param {Activity[]} activities Contexts and compactions of the conversation's own runs.
   */
  template(activities) {
    const contexts = activities.filter(({ activityType }) => activityType === "context");
    const compactions = activities.filter(({ activityType }) => activityType === "compaction");
    if (contexts.length === 0 && compactions.length === 0) return nothing;
    this.#newest = contexts.at(-1) ?? compactions.at(-1);
    const { budget, usedTokens, maxTokens } = contexts.findLast(({ content }) => content.budget !== undefined || content.usedTokens !== undefined)?.content ?? {};
    const [used, max] = [budget?.usedTokens ?? usedTokens, budget?.maxTokens ?? maxTokens];
    const share = typeof used === "number" && typeof max === "number" && max > 0 ? Math.min(used / max, 1) : undefined;
    const missing = [...new Set(contexts.flatMap(({ content }) => (Array.isArray(content.missing) ? content.missing : content.missing === undefined ? [] : [content.missing])).map(toText))];
    const refs = [...new Set(contexts.flatMap(({ content }) => refNames(content)))];
    const last = compactions.at(-1)?.content;
    const amount = share !== undefined ? `${formatCount(used)} of ${formatCount(max)} tokens` : typeof used === "number" ? `${formatCount(used)} tokens, limit unknown` : "budget unknown";
    return html`<details class="context" @toggle=${handleToggle}>
      <summary>Context${share === undefined ? nothing : meterOf(share)}${missing.length > 0 ? html`<span class="missing-count">${missing.length} missing</span>` : nothing}</summary>
      <div class="popover" role="group" aria-label="Context">
        <dl class="facts">
          <dt>Used</dt><dd class="budget">${amount}</dd>
          ${refs.length === 0 ? nothing : html`<dt>References</dt><dd><ul class="refs">${refs.slice(0, REFS_MAX).map((ref) => html`<li class="ref">${ref}</li>`)}${refs.length > REFS_MAX ? html`<li class="hint">${refs.length - REFS_MAX} more</li>` : nothing}</ul></dd>`}
          ${compactions.length === 0 ? nothing : html`<dt>Compaction</dt><dd>${last?.status === "running" ? "running" : compactions.length === 1 ? "once" : `${compactions.length} times`}</dd>`}
          ${missing.length === 0 ? nothing : html`<dt>Missing</dt><dd><ul class="missing">${missing.map((item) => html`<li>${item}</li>`)}</ul></dd>`}
        </dl>
        <p class="popover-foot">${icon("document")}<span class="hint">As the source reported it</span><span class="grow"></span>${this.#inspect}</p>
      </div>
    </details>`;
  }
}

/** @param {number} share Of the budget, from 0 to 1. */
const meterOf = (share) => html` ${Math.round(share * 100)} %<progress class="meter" max="1" value=${share} data-state=${share >= WARNING_SHARE ? "warning" : "idle"} aria-label="Context usage"></progress>`;

/**
 * Closes the popover by Escape or a click elsewhere.
 * @param {Event} event
 */
function handleToggle({ target }) {
  const details = /** @type {HTMLDetailsElement} */ (target);
  if (!details.open) return;
  place(details);
  const controller = new AbortController();
  const { signal } = controller;
  const close = () => {
    details.open = false;
    controller.abort();
  };
  document.addEventListener("pointerdown", (event) => event.target instanceof Node && !details.contains(event.target) && close(), { signal });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
    details.querySelector("summary")?.focus();
  }, { signal });
  details.addEventListener("toggle", () => !details.open && controller.abort(), { signal });
}

/**
 * Places the popover above its button: the area around it scrolls, and would cut it off.
 * @param {HTMLDetailsElement} details
 */
function place(details) {
  const { top, right } = details.getBoundingClientRect();
  const popover = /** @type {HTMLElement} */ (details.querySelector(".popover"));
  popover.style.bottom = `${innerHeight - top + 6}px`;
  popover.style.right = `${Math.max(innerWidth - right, 12)}px`;
}

/**
 * Returns the names of the references.
 * @param {Record<string, any>} content
 * @returns {string[]}
 */
function refNames(content) {
  const lists = [content.refs, content.references, content.selection, content.retrieved, content.sources].flatMap((list) => (Array.isArray(list) ? list : []));
  return [...new Set(lists.map((ref) => (typeof ref === "string" ? ref : toText(ref?.title ?? ref?.name ?? ref?.label ?? ref?.href ?? ref?.id ?? ref))))].filter((name) => joinText(name) !== "");
}
