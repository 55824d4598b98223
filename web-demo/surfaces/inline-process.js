/**
 * The process between two messages: reasoning, plan and tools, by `opened`.
 *
 * It is expanded while a step runs, and collapses into one line when all steps have ended. The viewer may expand and
 * collapse it; that is the viewer's state and no fact of the run.
 */

import { define, element, inspectButton, keyOf, updateChildren, setText, humanize, stateOf, toText } from "./base.js";
import { Card } from "./card.js";
import { Prose } from "./prose.js";
import { drawSteps, planOf } from "./plan.js";
import { CustomActivity, Tool, isToolRunning, toolState, waitReason } from "./tool.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/** Activity types that are process. Custom activities are, too, if their surface is `tool_ui`. */
const TYPES = new Set(["reasoning", "plan", "tool-call-progress"]);

/** @param {Activity} activity */
export const isProcess = (activity) => TYPES.has(activity.activityType) || activity.surface === "tool_ui";

/** @param {Activity} activity */
export function isRunning(activity) {
  const content = /** @type {Record<string, any>} */ (activity.content);
  if (activity.activityType === "tool-call-progress") return isToolRunning(content);
  return content.status === "streaming";
}

/** A reasoning or plan step. */
export class Thought extends Card {
  #label = element("span", "label");
  #state = element("span", "hint");
  #body = element("div", "body prose");
  #prose = new Prose(this.#body);
  #steps = element("ol", "steps-list");
  #note = element("p", "hint");

  build() {
    const head = element("div", "spread");
    const marks = element("span", "row");
    marks.append(this.#state, inspectButton(() => this.view, () => this.activity));
    head.append(this.#label, marks);
    this.append(head, this.#body, this.#steps, this.#note);
  }

  draw() {
    const { status, withheld, clipped, capped } = this.content;
    const isPlan = this.activity.activityType === "plan";
    const { text, steps } = isPlan ? planOf(this.content) : { text: this.content.text, steps: [] };
    this.dataset.status = toText(status);
    this.dataset.kind = this.activity.activityType;
    setText(this.#label, isPlan ? "Plan" : "Reasoning");
    const notes = [status === "interrupted" ? "interrupted" : "", withheld ? "the rest is withheld" : "", clipped ? "continues in the log" : ""];
    setText(this.#state, notes.filter(Boolean).join(", "));
    this.#prose.set(text);
    drawSteps(this.#steps, steps);
    setText(this.#note, typeof capped === "number" && capped > 0 ? `${capped} more omitted by the source` : "");
    this.#note.hidden = this.#note.textContent === "";
  }
}

define("ps-thought", Thought);

/**
 * @typedef {object} Group The activities of one process row.
 * @property {string} id
 * @property {string[]} keys The keys of its activities, in order.
 * @property {boolean} isOpen Whether work on it continues.
 */

export class InlineProcess extends HTMLElement {
  /** @type {View | undefined} */
  #view;
  /** @type {Group | undefined} */
  #group;
  #toggle = element("button", "summary");
  #arrow = element("span", "arrow");
  #text = element("span", "words");
  #state = element("span");
  #steps = element("div", "steps");
  #isBuilt = false;

  /**
   * @param {View} view
   * @param {Group} group
   * @param {Map<string, boolean>} expansion Groups that the viewer expanded or collapsed, by id.
   */
  show(view, group, expansion) {
    this.#view = view;
    this.#group = group;
    if (!this.#isBuilt) this.#build(expansion);
    const activities = group.keys.flatMap((key) => view.store.get(key) ?? []);
    const isOpen = expansion.get(group.id) ?? group.isOpen;
    this.dataset.open = String(isOpen);
    // A step that waits for a person does not run.
    const running = activities.filter(isRunning);
    const waiting = running.length > 0 && running.every((one) => waitReason(view, one)) ? running.at(-1) : undefined;
    this.dataset.status = waiting ? "waiting" : group.isOpen ? "running" : "completed";
    this.#toggle.setAttribute("aria-expanded", String(isOpen));
    setText(this.#text, waiting ? `Waiting for ${waitReason(view, waiting)}: ${currentStep([waiting])}` : group.isOpen ? `Working: ${currentStep(activities)}` : summarize(activities));
    this.#drawState(activities, group.isOpen, waiting !== undefined);
    this.#steps.hidden = !isOpen;
    // A collapsed row creates no steps.
    updateChildren(this.#steps, isOpen ? activities : [], keyOf, (activity) => createStep(activity), (card, activity) => card.show(view, activity));
  }

  /** @param {Map<string, boolean>} expansion */
  #build(expansion) {
    this.#isBuilt = true;
    this.classList.add("inline-process");
    this.#toggle.type = "button";
    this.#arrow.setAttribute("aria-hidden", "true");
    this.#toggle.append(this.#arrow, this.#text, this.#state);
    this.#toggle.addEventListener("click", () => {
      const [view, group] = [this.#view, this.#group];
      if (!view || !group) return;
      expansion.set(group.id, this.dataset.open !== "true");
      this.show(view, group, expansion);
      this.dispatchEvent(new CustomEvent("expanded", { bubbles: true }));
    });
    this.append(this.#toggle, this.#steps);
  }

  /**
   * @param {Activity[]} activities
   * @param {boolean} isOpen
   * @param {boolean} isWaiting
   */
  #drawState(activities, isOpen, isWaiting) {
    const failed = activities.filter((activity) => toolStateOf(activity) === "output-error").length;
    const status = isWaiting ? "waiting" : isOpen ? "running" : failed > 0 ? "failed" : activities.some(wasInterrupted) ? "interrupted" : "done";
    this.#state.hidden = status === "done";
    if (this.#state.dataset.status === status) return;
    this.#state.className = "badge";
    this.#state.dataset.state = stateOf(status);
    this.#state.dataset.status = status;
    setText(this.#state, status);
  }
}

define("ps-inline-process", InlineProcess);

/** @param {Activity} activity @returns {Card} */
function createStep(activity) {
  if (activity.activityType === "tool-call-progress") return new Tool();
  return activity.activityType === "reasoning" || activity.activityType === "plan" ? new Thought() : new CustomActivity();
}

/** @param {Activity} activity */
const toolStateOf = (activity) => (activity.activityType === "tool-call-progress" ? toolState(/** @type {any} */ (activity.content)) : "");

/** @param {Activity} activity */
const wasInterrupted = (activity) => toolStateOf(activity) === "cancelled" || /** @type {any} */ (activity.content).status === "interrupted";

/**
 * Describes the current step in one line.
 * @param {Activity[]} activities
 */
function currentStep(activities) {
  const running = activities.filter(isRunning).at(-1) ?? activities.at(-1);
  if (!running) return "…";
  if (running.activityType === "reasoning") return "thinking";
  if (running.activityType === "plan") return "planning";
  return toText(/** @type {any} */ (running.content).tool_name) || humanize(running.activityType.replaceAll("-", " "));
}

/**
 * Describes a completed process in one line: `Thought, planned, used search and fetch`.
 * @param {Activity[]} activities
 */
export function summarize(activities) {
  const parts = [];
  if (activities.some(({ activityType }) => activityType === "reasoning")) parts.push("thought");
  if (activities.some(({ activityType }) => activityType === "plan")) parts.push("planned");
  const tools = activities.filter(({ activityType }) => activityType === "tool-call-progress");
  const names = [...new Set(tools.map((tool) => toText(/** @type {any} */ (tool.content).tool_name) || "a tool"))];
  if (names.length > 0) parts.push(`used ${names.length > 2 ? `${tools.length} tools` : names.join(" and ")}${names.length <= 2 && tools.length > names.length ? ` (${tools.length} calls)` : ""}`);
  const failed = tools.filter((tool) => toolStateOf(tool) === "output-error").length;
  if (failed > 0) parts.push(`${failed} failed`);
  const others = activities.length - tools.length - activities.filter(({ activityType }) => activityType === "reasoning" || activityType === "plan").length;
  if (others > 0) parts.push(`${others} ${others === 1 ? "report" : "reports"}`);
  const line = parts.join(", ");
  return line.charAt(0).toUpperCase() + line.slice(1);
}

