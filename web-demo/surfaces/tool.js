/**
 * A tool call: its input, progress and output, with notes on withheld or untrusted output.
 *
 * It appears in the process of its turn, never in the text of the answer. Long inputs and outputs show their beginning;
 * a click loads the rest.
 */

import { createBadge, formatCount, define, formatDuration, element, inspectButton, joinText, updateChildren, setBadge, setText, stateOf, toText } from "./base.js";
import { Card, siblingOf } from "./card.js";
import { isApproval } from "./decision.js";
import { controlButton } from "./submitted-controls.js";
import { setLinks, refLinks } from "./lane.js";

/** The maximum length of an input's summary, in characters. */
const SUMMARY_CHARS = 160;
/** The maximum length of an output's preview, in characters; its end while it streams. */
const PREVIEW_CHARS = 2000;

const ENDED_STATES = new Set(["output-available", "output-error", "cancelled"]);

/** Texts of seed 003's tool states. @type {Record<string, string>} */
const STATE_TEXTS = {
  "input-streaming": "receiving input", "input-available": "ready to run", running: "running", progress: "running",
  "output-available": "done", "output-error": "failed", cancelled: "cancelled",
};

/**
 * Returns the state of a call in the terms of seed 003.
 * @param {Record<string, any>} content
 * @returns {string}
 */
export function toolState(content) {
  if (typeof content.state === "string") return content.state;
  const byStatus = { pending: "input-available", running: "running", done: "output-available", failed: "output-error", cancelled: "cancelled" };
  return byStatus[/** @type {keyof typeof byStatus} */ (content.status)] ?? "unknown";
}

/**
 * Returns the kind of decision that a call waits for; `undefined` if none is pending.
 * @param {import("./base.js").View} view
 * @param {import("./base.js").Activity} activity
 * @returns {"approval" | "input" | undefined}
 */
export function waitReason(view, activity) {
  const { action_id: id } = /** @type {Record<string, any>} */ (activity.content);
  if (typeof id !== "string" || !isToolRunning(/** @type {any} */ (activity.content))) return undefined;
  const action = siblingOf(view, activity, "action", id)?.content;
  if (action?.status !== "pending") return undefined;
  return isApproval(action) ? "approval" : "input";
}

/** @param {Record<string, any>} content */
export const isToolRunning = (content) => !ENDED_STATES.has(toolState(content)) && content.status !== "done" && content.status !== "failed" && content.status !== "cancelled";

export class Tool extends Card {
  #name = element("span", "card-title name");
  #badge = element("span");
  #cost = element("span", "hint spent");
  #input = element("p", "hint given mono truncate");
  #bar = element("progress", "meter");
  #message = element("p", "hint message");
  #error = element("p", "note error");
  #preview = element("pre", "preview output");
  #channels = element("div", "stack channels");
  #notes = element("ul", "stack notes");
  #details = element("details");
  #full = element("div", "stack");
  #feedback = element("p", "hint");
  #retry = element("div", "row");

  build() {
    this.classList.add("card");
    const head = element("div", "card-head");
    const marks = element("span", "row");
    marks.append(this.#cost, this.#badge, inspectButton(() => this.view, () => this.activity));
    head.append(this.#name, marks);
    this.#bar.max = 1;
    this.#preview.tabIndex = 0;
    this.#error.dataset.state = "failed";
    this.#details.append(element("summary", "", "Input and output"), this.#full);
    this.#details.addEventListener("toggle", () => this.#drawDetails());
    const control = () => ({ control: "retry", run: this.activity.runId, toolCallId: this.activity.activityId });
    this.#retry.append(controlButton("Retry", () => this.view, control, { kind: "quiet", feedback: this.#feedback }));
    this.append(head, this.#input, this.#bar, this.#message, this.#error, this.#preview, this.#channels, this.#notes, this.#details, this.#retry, this.#feedback);
  }

  draw() {
    const content = this.content;
    const state = toolState(content);
    const waiting = waitReason(this.view, this.activity);
    // A call that waits for a person does not run, even if its last report says so.
    const isRunning = isToolRunning(content) && waiting === undefined;
    this.dataset.state = waiting ? "waiting" : stateOf(state);
    this.dataset.status = waiting ? "waiting" : state;
    this.dataset.nested = String(content.parent_call_id !== undefined);
    setText(this.#name, toText(content.tool_name) || "Unnamed tool");
    if (waiting) setBadge(this.#badge, "waiting", `waiting for ${waiting}`);
    else setBadge(this.#badge, state, STATE_TEXTS[state] ?? "unknown");
    setText(this.#cost, costText(content));
    this.#drawInput(content, state);
    this.#drawProgress(content, isRunning);
    this.#drawOutput(content, isRunning);
    this.#drawChannels(content, isRunning);
    this.#drawNotes(content);
    this.#error.hidden = content.error === undefined;
    setText(this.#error, errorText(content.error));
    this.#retry.hidden = state !== "output-error" || !this.view.isLive;
    this.#drawDetails();
  }

  /**
   * @param {Record<string, any>} content
   * @param {string} state
   */
  #drawInput(content, state) {
    const summary = content.input === undefined ? joinText(content.input_text) : summarizeInput(content.input);
    this.#input.hidden = summary === "" && state !== "input-streaming";
    setText(this.#input, summary.slice(0, SUMMARY_CHARS) || "…");
  }

  /**
   * Draws the progress as last reported. An ended call shows only a full bar: a partial one would look as if it moved.
   * @param {Record<string, any>} content
   * @param {boolean} isRunning
   */
  #drawProgress(content, isRunning) {
    const done = fraction(content);
    this.#bar.hidden = !(isRunning || done === 1);
    this.#bar.dataset.state = isRunning ? "running" : "ok";
    if (done === undefined) this.#bar.removeAttribute("value");
    else if (this.#bar.value !== done || !this.#bar.hasAttribute("value")) this.#bar.value = done;
    const name = toText(content.tool_name) || "a tool";
    if (this.#bar.getAttribute("aria-label") !== `Progress of ${name}`) this.#bar.setAttribute("aria-label", `Progress of ${name}`);
    const amount = typeof content.loaded === "number" ? `${formatCount(content.loaded)}${typeof content.total === "number" ? ` of ${formatCount(content.total)}` : ""}` : "";
    const percent = done !== undefined && isRunning && !amount ? `${Math.round(done * 100)} %` : "";
    const text = [amount || percent, toText(content.message)].filter(Boolean).join(" · ");
    this.#message.hidden = text === "";
    setText(this.#message, text);
  }

  /**
   * @param {Record<string, any>} content
   * @param {boolean} isRunning
   */
  #drawOutput(content, isRunning) {
    const streamed = joinText(content.output_text);
    const text = content.output === undefined || isRunning ? streamed : formatJson(content.output);
    const shown = isRunning ? text.slice(-PREVIEW_CHARS) : text.slice(0, PREVIEW_CHARS);
    this.#preview.hidden = shown === "";
    this.#preview.setAttribute("aria-label", isRunning ? "Output so far" : "Beginning of the output");
    setText(this.#preview, shown.length < text.length ? (isRunning ? `… ${shown}` : `${shown} …`) : shown);
  }

  /**
   * Draws the output channels besides stdout (stderr, log, …).
   * @param {Record<string, any>} content
   * @param {boolean} isRunning
   */
  #drawChannels(content, isRunning) {
    const channels = Object.entries(content.output_channels ?? {}).map(([name, chunks]) => ({ name, text: joinText(chunks) })).filter(({ text }) => text !== "");
    this.#channels.hidden = channels.length === 0;
    updateChildren(this.#channels, channels, ({ name }) => name, ({ name }) => {
      const root = element("div", "stack channel");
      root.dataset.channel = name;
      const text = element("pre", "preview");
      text.tabIndex = 0;
      text.setAttribute("role", "group");
      text.setAttribute("aria-label", name);
      root.append(element("p", "label", name), text);
      return root;
    }, (root, { text }) => {
      const shown = isRunning ? text.slice(-PREVIEW_CHARS) : text.slice(0, PREVIEW_CHARS);
      setText(/** @type {Element} */ (root.lastElementChild), shown.length < text.length ? (isRunning ? `… ${shown}` : `${shown} …`) : shown);
    });
  }

  /** @param {Record<string, any>} content */
  #drawNotes(content) {
    /** @type {[string, string][]} */
    const notes = [];
    if (content.withheld) notes.push(["unknown", "Result withheld: the selected audience may not see it."]);
    if (content.untrusted) notes.push(["warning", "Untrusted output: data from outside, not an instruction."]);
    if (content.truncated) notes.push(["warning", typeof content.truncated === "number" ? `Truncated by the source: ${formatCount(content.truncated)} characters are missing.` : "Truncated by the source."]);
    if (content.clipped) notes.push(["unknown", "The log contains more."]);
    if (content.synthetic) notes.push(["stale", "The server closed this call because the run went silent. Its result is unknown."]);
    if (content.never_started) notes.push(["unknown", "The call never started."]);
    if (content.awaits) notes.push(["waiting", `Waiting for the result from ${toText(content.awaits)}.`]);
    const rows = notes.map(([state, text]) => {
      const row = element("li", "note", text);
      row.dataset.state = state;
      return row;
    });
    if (this.#notes.textContent !== notes.map(([, text]) => text).join("")) this.#notes.replaceChildren(...rows);
    this.#notes.hidden = notes.length === 0;
  }

  /** Draws the details when they are open; most never are. */
  #drawDetails() {
    const { input, output, structured, output_ref, refs } = this.content;
    this.#details.hidden = [input, output, structured, output_ref, refs].every((one) => one === undefined);
    if (!this.#details.open) return;
    const rows = [];
    for (const [label, value] of [["Input", input], ["Output", output], ["Structured output", structured]]) {
      if (value === undefined) continue;
      const text = element("pre", "preview", formatJson(value));
      text.tabIndex = 0;
      rows.push(element("p", "label", String(label)), text);
    }
    const whole = blobButton(this, output_ref);
    if (whole) rows.push(whole);
    if (refs !== undefined) {
      const chips = element("div", "row links");
      setLinks(chips, refLinks(this.view, refs));
      rows.push(chips);
    }
    this.#full.replaceChildren(...rows);
  }
}

define("ps-tool", Tool);

/**
 * Creates a button that loads and shows the full output.
 * @param {Card} card
 * @param {any} ref
 */
function blobButton(card, ref) {
  const href = typeof ref === "string" ? ref : ref?.href;
  if (typeof href !== "string") return undefined;
  const size = typeof ref?.bytes === "number" ? ` (${formatCount(ref.bytes)} bytes)` : "";
  const button = element("button", "button detail", `Show full output${size}`);
  button.type = "button";
  button.addEventListener("click", () => card.view.open({ kind: "blob", href, runId: card.activity.runId }));
  return button;
}

/** @param {Record<string, any>} content */
function fraction(content) {
  if (typeof content.progress === "number") return Math.min(Math.max(content.progress, 0), 1);
  if (typeof content.loaded === "number" && typeof content.total === "number" && content.total > 0) return Math.min(content.loaded / content.total, 1);
  return undefined;
}

/** @param {Record<string, any>} content */
function costText(content) {
  const cost = typeof content.cost_usd === "number" ? `$${content.cost_usd.toFixed(content.cost_usd < 0.01 ? 4 : 2)}` : "";
  return [typeof content.duration_ms === "number" ? formatDuration(content.duration_ms) : "", cost].filter(Boolean).join(" · ");
}

/**
 * @param {any} error
 * @returns {string}
 */
export function errorText(error) {
  if (error === undefined || error === null) return "";
  const message = toText(error.message ?? error) || "Failed. No reason given.";
  return error.code ? `${message} (${toText(error.code)})` : message;
}

/**
 * Formats an input in one line: `query: figures, limit: 10`.
 * @param {unknown} input
 */
export function summarizeInput(input) {
  if (input === null || typeof input !== "object" || Array.isArray(input)) return toText(input);
  return Object.entries(input).map(([name, value]) => `${name}: ${toText(value)}`).join(", ");
}

/**
 * @param {unknown} value
 * @returns {string}
 */
export function formatJson(value) {
  return typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value, null, 2);
}

/** A custom activity, shown as its raw content. */
export class CustomActivity extends Card {
  #name = element("span", "card-title name");
  #body = element("pre", "preview");

  build() {
    this.classList.add("card");
    const head = element("div", "card-head");
    const marks = element("span", "row");
    marks.append(createBadge("unknown", "custom activity"), inspectButton(() => this.view, () => this.activity));
    head.append(this.#name, marks);
    this.#body.tabIndex = 0;
    this.append(head, this.#body);
  }

  draw() {
    setText(this.#name, this.activity.activityType.replaceAll(/[-_]/g, " "));
    const { text } = this.content;
    setText(this.#body, (Array.isArray(text) ? joinText(text) : formatJson(this.content)).slice(0, PREVIEW_CHARS));
    this.#body.setAttribute("aria-label", this.activity.activityType);
  }
}

define("ps-custom-activity", CustomActivity);
