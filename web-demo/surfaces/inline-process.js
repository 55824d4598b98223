/**
 * The process between two messages: reasoning, plan, tools, memory, new teammates and artifacts, by `opened`.
 *
 * It is expanded while a step runs, and collapses into one line when all steps have ended. The viewer may expand and
 * collapse it; that is the viewer's state and no fact of the run.
 */

import { define, element, inspectButton, humanize, joinText, keyOf, toText, updateChildren } from "./base.js";
import { Card, agentName } from "./card.js";
import { formatValue } from "./facts.js";
import { Prose } from "./prose.js";
import { planOf, stepsTemplate } from "./plan.js";
import { CustomActivity, Tool, isToolRunning, toolState, waitReason } from "./tool.js";
import { formatCost, formatShortCount, formatSpan, timesOf } from "../ui/format.js";
import { glyph, statusLabel } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { html, nothing, render } from "../vendor/lit.js";

/** @typedef {import("../client/contents.js").ToolCallProgressContent} CallContent */
/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/** Activity types that are process. Custom activities are, too, if their surface is `tool_ui`. */
const TYPES = new Set(["reasoning", "plan", "tool-call-progress"]);
/** A shorter process shows no duration. In milliseconds. */
const SHOWN_DURATION_MS = 1000;

/** @param {Activity} activity */
export const isProcess = (activity) => TYPES.has(activity.activityType) || activity.surface === "tool_ui";

/**
 * Whether an activity is a fact that the process mentions: a new teammate, an artifact, or memory that was read.
 * @param {Activity} activity
 */
export const isMention = ({ activityType, content }) => activityType === "agent" || activityType === "artifact" || (activityType === "context" && /memory|retriev/i.test(toText(content.kind)));

/** @param {Activity} activity */
export function isRunning(activity) {
  const { content } = activity;
  if (activity.activityType === "tool-call-progress") return isToolRunning(/** @type {CallContent} */ (content));
  return (activity.activityType === "reasoning" || activity.activityType === "plan") && content.status === "streaming";
}

/** A reasoning or plan step. */
export class Thought extends Card {
  #body = element("div", "body prose");
  #prose = new Prose(this.#body);
  #inspect = inspectButton(() => this.view, () => this.activity);

  draw() {
    const { status, withheld, clipped, capped } = this.content;
    const isPlan = this.activity.activityType === "plan";
    const { text, steps } = isPlan ? planOf(this.content) : { text: this.content.text, steps: [] };
    this.dataset.status = toText(status);
    this.dataset.kind = this.activity.activityType;
    this.#prose.set(text);
    const notes = [status === "interrupted" ? "interrupted" : "", withheld ? "the rest is withheld" : "", clipped ? "continues in the log" : ""].filter(Boolean).join(", ");
    const duration = durationOf([this.activity]);
    render(html`<div class="thought-head"><span class="label">${isPlan ? "Plan" : "Reasoning"}</span><span class="spent">${duration}</span><span class="hint">${notes}</span><span class="grow"></span>${this.#inspect}</div>
      ${this.#body}
      ${stepsTemplate(steps)}
      ${typeof capped === "number" && capped > 0 ? html`<p class="hint">${capped} more omitted by the source</p>` : nothing}`, this);
  }
}

define("ps-thought", Thought);

/** A fact that the process mentions: a new teammate, an artifact, or memory. */
export class Mention extends Card {
  #inspect = inspectButton(() => this.view, () => this.activity);

  draw() {
    const { activity, content, view } = this;
    const { activityType, activityId, runId } = activity;
    this.dataset.type = activityType;
    const name = activityType === "agent" ? agentName(view, activity, activityId) : formatValue(content.title ?? content.name) || activityId;
    const details = activityType === "agent" ? `joined${content.role ? ` as ${humanize(content.role)}` : ""}`
      : activityType === "artifact" ? [content.version === undefined ? "" : `version ${toText(content.version)}`, formatValue(content.summary)].filter(Boolean).join(" · ")
        : formatValue(content.summary);
    const target = activityType === "context" ? undefined : /** @type {const} */ ({ kind: activityType === "agent" ? "teammate" : "artifact", id: activityId, runId });
    render(html`${icon(activityType === "agent" ? "plus" : "document")}<b>${name}</b><span class="mention-details" dir="auto">${details}</span>
      ${target ? html`<button type="button" class="button small" data-kind="quiet" @click=${() => view.open(target)}>${activityType === "agent" ? "Open transcript" : "Open"}</button>` : nothing}${this.#inspect}`, this);
  }
}

define("ps-mention", Mention);

/**
 * @typedef {object} Group The activities of one process row.
 * @property {string} id
 * @property {string[]} keys The keys of its activities, in order.
 * @property {boolean} isOpen Whether work on it continues.
 */

export class InlineProcess extends HTMLElement {
  #head = element("div", "process-line");
  #steps = element("div", "steps");

  /**
   * @param {View} view
   * @param {Group} group
   * @param {Map<string, boolean>} expansion Groups that the viewer expanded or collapsed, by id.
   */
  show(view, group, expansion) {
    if (!this.firstChild) this.append(this.#head, this.#steps);
    this.classList.add("inline-process");
    const activities = group.keys.flatMap((key) => view.store.get(key) ?? []);
    const isOpen = expansion.get(group.id) ?? group.isOpen;
    // A step that waits for a person does not run.
    const running = activities.filter(isRunning);
    const waiting = running.length > 0 && running.every((one) => waitReason(view, one)) ? running.at(-1) : undefined;
    const failed = activities.some((activity) => toolStateOf(activity) === "output-error");
    const state = waiting ? "waiting" : group.isOpen ? "running" : failed ? "failed" : activities.some(wasInterrupted) ? "interrupted" : "completed";
    this.dataset.open = String(isOpen);
    this.dataset.status = waiting ? "waiting" : group.isOpen ? "running" : "completed";
    // The card of a single running or waiting tool says everything.
    this.dataset.single = String(isOpen && activities.length === 1 && group.isOpen && isRunning(activities[0]) && activities[0].activityType === "tool-call-progress");
    const words = waiting ? `Waiting for ${waitReason(view, waiting)}: ${currentStep([waiting])}` : group.isOpen ? `Working: ${currentStep(activities)}` : summarize(activities, view);
    const toggle = () => {
      expansion.set(group.id, this.dataset.open !== "true");
      this.show(view, group, expansion);
      this.dispatchEvent(new CustomEvent("expanded", { bubbles: true }));
    };
    render(html`<button type="button" class="summary" aria-expanded=${isOpen} @click=${toggle}>
      <span class="chevron">${icon("chevron-right")}</span>${state === "running" ? glyph("running") : nothing}<span class="words" dir="auto">${words}</span>
      ${state === "completed" || state === "running" ? nothing : html`<span class="badge">${statusLabel(state === "interrupted" ? "idle" : state, state)}</span>`}
      <span class="spent">${group.isOpen ? nothing : spentText(activities)}</span></button>`, this.#head);
    this.#steps.hidden = !isOpen;
    // A collapsed row creates no steps.
    updateChildren(this.#steps, isOpen ? activities : [], keyOf, (activity) => createStep(activity), (card, activity) => card.show(view, activity));
  }
}

define("ps-inline-process", InlineProcess);

/** @param {Activity} activity @returns {Card} */
function createStep(activity) {
  if (activity.activityType === "tool-call-progress") return new Tool();
  if (isMention(activity)) return new Mention();
  return activity.activityType === "reasoning" || activity.activityType === "plan" ? new Thought() : new CustomActivity();
}

/** @param {Activity} activity */
const toolStateOf = (activity) => (activity.activityType === "tool-call-progress" ? toolState(/** @type {any} */ (activity.content)) : "");

/** @param {Activity} activity */
const wasInterrupted = (activity) => toolStateOf(activity) === "cancelled" || (isProcess(activity) && /** @type {any} */ (activity.content).status === "interrupted");

/**
 * Describes the current step in one line.
 * @param {Activity[]} activities
 */
function currentStep(activities) {
  const current = activities.filter(isRunning).at(-1) ?? activities.filter((one) => !isMention(one)).at(-1);
  if (!current) return "…";
  if (current.activityType === "reasoning") return "thinking";
  if (current.activityType === "plan") return "planning";
  return toText(/** @type {any} */ (current.content).tool_name) || humanize(current.activityType.replaceAll("-", " "));
}

/**
 * Describes a completed process in one clause: `Thought, planned 5 steps, used search and fetch`.
 * @param {Activity[]} activities
 * @param {View} [view]
 */
export function summarize(activities, view) {
  const of = (/** @type {string} */ type) => activities.filter(({ activityType }) => activityType === type);
  const parts = [];
  const [tools, agents, artifacts, memories, plans] = ["tool-call-progress", "agent", "artifact", "context", "plan"].map(of);
  if (memories.length > 0) parts.push(`read ${names(memories.map(({ activityId, content }) => formatValue(content.title) || activityId), "memories")}`);
  if (of("reasoning").length > 0) parts.push("thought");
  if (plans.length > 0) parts.push(`planned${stepCount(plans.at(-1))}`);
  if (agents.length > 0) parts.push(agents.length === 1 && view ? `${agentName(view, agents[0], agents[0].activityId)} joined` : `started ${agents.length} ${agents.length === 1 ? "teammate" : "teammates"}`);
  const used = [...new Set(tools.map((tool) => toText(/** @type {any} */ (tool.content).tool_name) || "a tool"))];
  if (used.length > 0) parts.push(`used ${used.length > 2 ? `${tools.length} tools` : used.join(" and ")}${used.length <= 2 && tools.length > used.length ? ` (${tools.length} calls)` : ""}`);
  const failed = tools.filter((tool) => toolStateOf(tool) === "output-error").length;
  if (failed > 0) parts.push(`${failed} failed`);
  if (artifacts.length > 0) parts.push(`wrote ${names(artifacts.map(({ activityId, content }) => `${formatValue(content.title ?? content.name) || activityId}${content.version === undefined ? "" : ` version ${toText(content.version)}`}`), "artifacts")}`);
  const others = activities.filter((one) => !TYPES.has(one.activityType) && !isMention(one)).length;
  if (others > 0) parts.push(`${others} ${others === 1 ? "report" : "reports"}`);
  const line = parts.join(", ");
  return line.charAt(0).toUpperCase() + line.slice(1);
}

/**
 * @param {string[]} all
 * @param {string} plural
 */
const names = (all, plural) => (all.length > 2 ? `${all.length} ${plural}` : all.join(" and "));

/** @param {Activity | undefined} plan */
function stepCount(plan) {
  const { text, steps } = planOf(plan?.content);
  const count = steps.length || (joinText(text).match(/^\s*(\d+[.)]|[-*])\s/gm)?.length ?? 0);
  return count > 1 ? ` ${count} steps` : "";
}

/**
 * The time from the first to the last event of ended activities.
 * @param {Activity[]} activities
 */
function durationOf(activities) {
  const ended = activities.filter((one) => !isMention(one));
  const times = ended.flatMap(timesOf);
  const [start, end] = [Math.min(...times), Math.max(...times)];
  return end - start >= SHOWN_DURATION_MS ? formatSpan(end - start) : "";
}

/** @param {Activity[]} activities */
function spentText(activities) {
  const sum = (/** @type {(content: Record<string, any>) => unknown} */ of) => activities.reduce((total, { activityType, content }) => {
    const value = activityType === "agent" ? undefined : of(content);
    return typeof value === "number" ? (total ?? 0) + value : total;
  }, /** @type {number | undefined} */ (undefined));
  const tokens = sum(({ usage }) => (typeof usage?.inputTokens === "number" ? usage.inputTokens + (usage.outputTokens ?? 0) : undefined));
  return [durationOf(activities), tokens === undefined ? "" : `${formatShortCount(tokens)} tokens`, formatCost(sum(({ cost_usd: cost, usage }) => cost ?? usage?.costUsd))].filter(Boolean).join(" · ");
}
