/**
 * The steps of a structured plan with their statuses. Sources send them as texts, as steps with a status, or as planned
 * calls (a dry run).
 */

import { stateOf, toText } from "./base.js";
import { formatValue } from "./facts.js";
import { html, nothing } from "../vendor/lit.js";

/** The maximum number of steps drawn; the rest is counted. */
const STEPS_MAX = 100;

/**
 * Returns a plan's text and steps from any of the shapes that sources use.
 * @param {any} plan A text, a list of steps, or `{ text | summary, steps | plan | todos | entries }`.
 * @returns {{ text: unknown, steps: unknown[] }}
 */
export function planOf(plan) {
  if (typeof plan === "string") return { text: plan, steps: [] };
  if (Array.isArray(plan)) return { text: "", steps: plan };
  if (plan === null || typeof plan !== "object") return { text: "", steps: [] };
  const inner = [plan.steps, plan.plan, plan.todos, plan.entries, plan.items].find((one) => one !== undefined);
  const nested = Array.isArray(inner) ? { text: "", steps: inner } : inner === undefined ? { text: "", steps: [] } : planOf(inner);
  const text = plan.text ?? plan.summary ?? plan.markdown;
  const isEmpty = text === undefined || text === "" || (Array.isArray(text) && text.join("") === "");
  return { text: isEmpty ? (nested.text || toText(plan.summary)) : text, steps: nested.steps };
}

/**
 * The steps of a plan as a list.
 * @param {unknown[]} steps
 */
export const stepsTemplate = (steps) => (steps.length === 0 ? nothing : html`<ol class="steps-list">${steps.slice(0, STEPS_MAX).map(stepTemplate)}</ol>${steps.length > STEPS_MAX ? html`<p class="hint">${steps.length - STEPS_MAX} more steps</p>` : nothing}`);

/** @param {any} step */
function stepTemplate(step) {
  if (step === null || typeof step !== "object") return html`<li class="step">${toText(step)}</li>`;
  const { title, text, content, step: name, description, label, activeForm, toolName, tool, args, input, status, state } = step;
  const call = toolName ?? tool;
  const stepText = formatValue(title ?? text ?? content ?? name ?? label ?? description ?? activeForm);
  const stepArgs = args ?? input;
  // A step that has not begun says so by having no status.
  const word = toText(status ?? state).replace(/^pending$/, "");
  return html`<li class="step" data-state=${stateOf(word)}>${call === undefined ? nothing : html`<code>${toText(call)}</code> `}<span class="step-text">${stepText || (call === undefined ? formatValue(step) : "")}</span>${stepArgs === undefined ? nothing : html` <span class="hint mono">${formatValue(stepArgs)}</span>`}${word ? html` <span class="step-status">${word.replaceAll("_", " ")}</span>` : nothing}</li>`;
}
