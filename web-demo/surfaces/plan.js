/**
 * The steps of a structured plan with their statuses. Sources send them as texts, as steps with a status, or as planned
 * calls (a dry run).
 */

import { createBadge, element, toText } from "./base.js";
import { formatValue } from "./lane.js";

/** The maximum number of steps drawn; the rest is counted. */
const STEPS_MAX = 100;
/** The steps that each list shows. @type {WeakMap<HTMLElement, unknown[]>} */
const drawnSteps = new WeakMap();

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
 * @param {HTMLElement} root An ordered list.
 * @param {unknown[]} steps
 */
export function drawSteps(root, steps) {
  root.hidden = steps.length === 0;
  if (drawnSteps.get(root) === steps) return;
  drawnSteps.set(root, steps);
  const rows = steps.slice(0, STEPS_MAX).map((step) => createStep(step));
  if (steps.length > STEPS_MAX) rows.push(element("li", "hint", `${steps.length - STEPS_MAX} more steps`));
  root.replaceChildren(...rows);
}

/** @param {any} step */
function createStep(step) {
  const row = element("li", "row step");
  if (step === null || typeof step !== "object") {
    row.append(element("span", "", toText(step)));
    return row;
  }
  const { title, text, content, step: name, description, label, activeForm, toolName, tool, args, input, status, state } = step;
  const call = toolName ?? tool;
  const stepText = formatValue(title ?? text ?? content ?? name ?? label ?? description ?? activeForm);
  if (status ?? state) row.append(createBadge(status ?? state));
  if (call !== undefined) row.append(element("span", "mono", toText(call)));
  if (stepText) row.append(element("span", "", stepText));
  const stepArgs = args ?? input;
  if (stepArgs !== undefined) row.append(element("span", "hint mono", formatValue(stepArgs)));
  if (!stepText && call === undefined) row.append(element("span", "", formatValue(step)));
  return row;
}
