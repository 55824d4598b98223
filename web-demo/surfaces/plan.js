/**
 * A plan that is structured: its steps with how each stands, in order. Sources write them as texts, as steps with a status, or as
 * calls that would be made (a dry run).
 */

import { badge, element, words } from "./base.js";
import { phrase } from "./lane.js";

/** Steps that are drawn; the rest is counted. */
const STEPS_MAX = 100;
/** The steps that a list shows. @type {WeakMap<HTMLElement, unknown[]>} */
const drawn = new WeakMap();

/**
 * A plan's text and steps, wherever the content keeps them.
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
  return { text: isEmpty ? (nested.text || words(plan.summary)) : text, steps: nested.steps };
}

/**
 * @param {HTMLElement} on An ordered list.
 * @param {unknown[]} steps
 */
export function drawSteps(on, steps) {
  on.hidden = steps.length === 0;
  if (drawn.get(on) === steps) return;
  drawn.set(on, steps);
  const rows = steps.slice(0, STEPS_MAX).map((step) => row(step));
  if (steps.length > STEPS_MAX) rows.push(element("li", "hint", `${steps.length - STEPS_MAX} more steps`));
  on.replaceChildren(...rows);
}

/** @param {any} step */
function row(step) {
  const made = element("li", "row step");
  if (step === null || typeof step !== "object") {
    made.append(element("span", "", words(step)));
    return made;
  }
  const { title, text, content, step: name, description, label, activeForm, toolName, tool, args, input, status, state } = step;
  const call = toolName ?? tool;
  const said = phrase(title ?? text ?? content ?? name ?? label ?? description ?? activeForm);
  if (status ?? state) made.append(badge(status ?? state));
  if (call !== undefined) made.append(element("span", "mono", words(call)));
  if (said) made.append(element("span", "", said));
  const given = args ?? input;
  if (given !== undefined) made.append(element("span", "hint mono", phrase(given)));
  if (!said && call === undefined) made.append(element("span", "", phrase(step)));
  return made;
}
