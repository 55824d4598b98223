/**
 * A tool call: a card with progress while it runs, one line when it has ended, with notes on withheld or untrusted
 * output.
 *
 * It appears in the process of its turn, never in the text of the answer. Long inputs and outputs show their beginning;
 * a click loads the rest.
 */

import { formatCount, define, element, inspectButton, joinText, toText } from "./base.js";
import { Card, siblingOf } from "./card.js";
import { isApproval } from "./decision.js";
import { controlButton } from "./control-button.js";
import { setLinks, refLinks } from "./links.js";
import { errorText, formatJson, summarizeInput } from "./values.js";
import { loadStyle } from "../styles.js";
import { formatCost, formatSpan, parseTime, timesOf } from "../ui/format.js";
import { glyph } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { html, ifDefined, nothing, render } from "../vendor/lit.js";

/** @typedef {import("../client/contents.js").ToolCallProgressContent} CallContent */
/** @typedef {import("../ui/glyphs.js").Status} Status */

/** The maximum length of an input's summary, in characters. */
const SUMMARY_CHARS = 160;
/** The maximum length of an output's preview, in characters; its end while it streams. */
const PREVIEW_CHARS = 2000;
/** The interval at which the time of a running call is updated, in milliseconds. */
const TICK_MS = 1000;

const ENDED_STATES = new Set(["output-available", "output-error", "cancelled"]);

/** Texts and glyphs of seed 003's tool states. @type {Record<string, [string, Status]>} */
const STATES = {
  "input-streaming": ["receiving input", "running"], "input-available": ["ready to run", "running"], running: ["running", "running"], progress: ["running", "running"],
  "output-available": ["done", "completed"], "output-error": ["failed", "failed"], cancelled: ["cancelled", "idle"],
};

/**
 * Returns the state of a call in the terms of seed 003.
 * @param {CallContent} content
 * @returns {string}
 */
export function toolState(content) {
  if (typeof content.state === "string") return content.state;
  const byStatus = { pending: "input-available", running: "running", done: "output-available", failed: "output-error", cancelled: "cancelled" };
  return byStatus[/** @type {keyof typeof byStatus} */ (content.status)] ?? "unknown";
}

/**
 * Returns what a call waits for while nothing runs: a decision, or the client's result after the run has ended.
 * @param {import("./base.js").CardView} view
 * @param {import("./base.js").Activity} activity
 * @returns {"approval" | "input" | "the client" | undefined}
 */
export function waitReason(view, activity) {
  const { action_id: id } = /** @type {Record<string, any>} */ (activity.content);
  if (activity.activityType !== "tool-call-progress" || !isToolRunning(/** @type {any} */ (activity.content))) return undefined;
  const action = typeof id === "string" ? siblingOf(view, activity, "action", id)?.content : undefined;
  if (action?.status === "pending") return isApproval(action) ? "approval" : "input";
  const run = siblingOf(view, activity, "run", activity.runId);
  return run?.endedAt === undefined ? undefined : "the client";
}

/** @param {CallContent} content */
export const isToolRunning = (content) => !ENDED_STATES.has(toolState(content)) && content.status !== "done" && content.status !== "failed" && content.status !== "cancelled";

export class Tool extends Card {
  #inspect = inspectButton(() => this.view, () => this.activity);
  #feedback = element("p", "hint feedback");
  #retry = controlButton("Retry", () => this.view, () => ({ control: "retry", run: this.activity.runId, toolCallId: this.activity.activityId }), { feedback: this.#feedback });
  #links = element("div", "row links");
  #images = element("div", "stack");
  /** Whether the viewer opened it. */
  #isOpen = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #tickTimer;

  connectedCallback() {
    if (this.isShown) this.draw();
  }

  disconnectedCallback() {
    this.#stopTicking();
  }

  #stopTicking() {
    clearInterval(this.#tickTimer);
    this.#tickTimer = undefined;
  }

  draw() {
    const content = /** @type {CallContent} */ (this.content);
    const state = toolState(content);
    const waiting = waitReason(this.view, this.activity);
    // A call that waits for a person does not run, even if its last report says so.
    const isRunning = isToolRunning(content) && waiting === undefined;
    const [word, status] = waiting ? /** @type {[string, Status]} */ ([`waiting for ${waiting}`, "waiting"]) : (STATES[state] ?? ["unknown", "idle"]);
    this.dataset.status = waiting ? "waiting" : state;
    this.dataset.nested = String(content.parent_call_id !== undefined);
    this.dataset.live = String(isRunning || waiting !== undefined);
    if (isRunning && this.isConnected && this.view.isLive) this.#tickTimer ??= setInterval(() => this.draw(), TICK_MS);
    else this.#stopTicking();
    const name = toText(content.tool_name) || "Unnamed tool";
    const input = (content.input === undefined ? joinText(content.input_text) : summarizeInput(content.input)).slice(0, SUMMARY_CHARS);
    const hasDetails = [content.input, content.output, content.structured, content.output_ref, content.refs, content.output_text].some((one) => one !== undefined);
    const toggle = () => {
      this.#isOpen = !this.#isOpen;
      this.draw();
    };
    const { amount, message, done } = progressOf(content, isRunning);
    const elapsed = isRunning ? formatSpan(this.view.now() - parseTime(this.activity.openedAt)) : "";
    render(html`<div class="tool-head">
        <button type="button" class="summary" aria-expanded=${this.#isOpen} ?disabled=${!hasDetails} @click=${toggle}>
          ${glyph(status)}<span class="name">${name}</span><span class="badge" data-status=${status}>${word}</span>
          ${input || state === "input-streaming" ? html`<span class="given" dir="auto">${input || "…"}</span>` : html`<span class="grow"></span>`}
          <span class="spent">${[amount, elapsed, spentText(this.activity, content)].filter(Boolean).join(" · ")}</span>
          ${hasDetails ? html`<span class="chevron">${icon("chevron-right")}</span>` : nothing}
        </button>${this.#inspect}
      </div>
      ${isRunning || done === 1 && this.dataset.live === "true" ? html`<progress class="meter" max="1" value=${ifDefined(done)} data-state="running" aria-label=${`Progress of ${name}`}></progress>` : nothing}
      ${message ? html`<p class="message" dir="auto">${message}</p>` : nothing}
      ${content.error === undefined ? nothing : html`<p class="error" dir="auto">${errorText(content.error)}</p>`}
      ${isRunning ? this.#output(content, true) : nothing}
      ${this.#notes(content)}
      ${this.#isOpen ? this.#details(content, isRunning) : nothing}
      ${state === "output-error" && this.view.isLive ? html`<div class="row">${this.#retry}</div>` : nothing}${this.#feedback}`, this);
  }

  /**
   * Draws stdout and the other channels (stderr, log, …).
   * @param {CallContent} content
   * @param {boolean} isRunning
   */
  #output(content, isRunning) {
    const text = content.output === undefined || isRunning ? joinText(content.output_text) : formatJson(content.output);
    const channels = Object.entries(content.output_channels ?? {}).map(([name, chunks]) => ({ name, text: joinText(chunks) })).filter((channel) => channel.text !== "");
    return html`${text ? html`<pre dir="auto" class="preview output" tabindex="0" role="group" aria-label=${isRunning ? "Output so far" : "Output"}>${excerpt(text, isRunning)}</pre>` : nothing}
      ${channels.map((channel) => html`<div class="channel" data-channel=${channel.name}><p class="label">${channel.name}</p><pre dir="auto" class="preview" tabindex="0" role="group" aria-label=${channel.name}>${excerpt(channel.text, isRunning)}</pre></div>`)}`;
  }

  /** @param {CallContent} content */
  #notes(content) {
    /** @type {[string, string][]} */
    const notes = [];
    if (content.withheld) notes.push(["unknown", "Result withheld: the selected audience may not see it."]);
    if (content.untrusted) notes.push(["warning", "Untrusted output: data from outside, not an instruction."]);
    if (content.truncated) notes.push(["warning", typeof content.truncated === "number" ? `Truncated by the source: ${formatCount(content.truncated)} characters are missing.` : "Truncated by the source."]);
    if (content.clipped && content.bodies === undefined) notes.push(["unknown", "The log contains more."]);
    if (content.synthetic) notes.push(["stale", "The server closed this call because the run went silent. Its result is unknown."]);
    if (content.never_started) notes.push(["unknown", "The call never started."]);
    if (content.awaits) notes.push(["waiting", `Waiting for the result from ${toText(content.awaits)}.`]);
    return notes.length === 0 ? nothing : html`<ul class="notes">${notes.map(([state, text]) => html`<li data-state=${state}>${text}</li>`)}</ul>`;
  }

  /**
   * @param {CallContent} content
   * @param {boolean} isRunning
   */
  #details(content, isRunning) {
    const { input, structured, output_ref: ref, refs } = content;
    const href = typeof ref === "string" ? ref : ref?.href;
    const hasImages = !isRunning && /image/.test(formatJson(content.output));
    if (hasImages) void Promise.all([import("./tool-images.js"), loadStyle("surfaces/media.css")]).then(([{ drawImages }]) => drawImages(this.#images, this.view, content), () => {});
    const size = typeof ref?.bytes === "number" ? ` (${formatCount(ref.bytes)} bytes)` : "";
    setLinks(this.#links, refs === undefined ? [] : refLinks(this.view, refs));
    const json = (/** @type {string} */ label, /** @type {unknown} */ value) => (value === undefined ? nothing : html`<p class="label">${label}</p><pre dir="auto" class="preview" tabindex="0" role="group" aria-label=${label}>${formatJson(value)}</pre>`);
    return html`<div class="tool-details">
      ${json("Input", input)}
      ${isRunning || content.output === undefined && content.output_text === undefined ? nothing : html`<p class="label">Output</p>${hasImages ? this.#images : nothing}${this.#output(content, false)}`}
      ${json("Structured output", structured)}
      ${typeof href === "string" ? html`<button type="button" class="button detail" @click=${() => this.view.open({ kind: "blob", href, runId: this.activity.runId })}>Show full output${size}</button>` : nothing}
      ${Object.entries(content.bodies ?? {}).filter(([, link]) => link.href !== href).map(([pointer, link]) => html`<button type="button" class="button detail" @click=${() => this.view.open({ kind: "blob", href: link.href, runId: this.activity.runId })}>Show full ${pointer.slice(1)} (${formatCount(link.bytes)} bytes)</button>`)}
      ${refs === undefined ? nothing : this.#links}
    </div>`;
  }
}

define("ps-tool", Tool);

/**
 * Returns the beginning of a text; its end while it grows.
 * @param {string} text
 * @param {boolean} isRunning
 */
function excerpt(text, isRunning) {
  if (text.length <= PREVIEW_CHARS) return text;
  return isRunning ? `… ${text.slice(-PREVIEW_CHARS)}` : `${text.slice(0, PREVIEW_CHARS)} …`;
}

/**
 * Returns the progress as last reported.
 * @param {CallContent} content
 * @param {boolean} isRunning
 */
function progressOf(content, isRunning) {
  const done = fraction(content);
  const count = typeof content.loaded === "number" ? `${formatCount(content.loaded)}${typeof content.total === "number" ? ` of ${formatCount(content.total)}` : ""}` : "";
  const percent = done !== undefined && isRunning && !count ? `${Math.round(done * 100)} %` : "";
  return { amount: isRunning ? count || percent : "", message: toText(content.message), done };
}

/** @param {CallContent} content */
function fraction(content) {
  if (typeof content.progress === "number") return Math.min(Math.max(content.progress, 0), 1);
  if (typeof content.loaded === "number" && typeof content.total === "number" && content.total > 0) return Math.min(content.loaded / content.total, 1);
  return undefined;
}

/**
 * Returns the duration and the cost of an ended call: the duration that the source states, else that of its events.
 * @param {import("./base.js").Activity} activity
 * @param {CallContent} content
 */
function spentText(activity, content) {
  const [opened, ended] = timesOf(activity);
  const ms = typeof content.duration_ms === "number" ? content.duration_ms : ended - opened;
  return [formatSpan(ms), formatCost(content.cost_usd)].filter(Boolean).join(" · ");
}

/** Loads with the first surface. @type {typeof import("./surface-text.js").describeSurface | undefined} */
let describeSurface;

/** An activity that a source names, or an interface that an agent generated: its content as text. */
export class CustomActivity extends Card {
  #inspect = inspectButton(() => this.view, () => this.activity);

  /** What the card says beside the name, and its text. @returns {[string, string]} */
  #describe() {
    const { text, resourceUri } = this.content;
    if (this.activity.activityType === "a2ui-surface") {
      if (!describeSurface) void import("./surface-text.js").then((loaded) => (({ describeSurface } = loaded), this.draw()));
      return ["interface", describeSurface?.(this.content) ?? ""];
    }
    if (this.activity.activityType === "mcp-apps") return ["app, not run here", toText(resourceUri)];
    return ["custom activity", Array.isArray(text) ? joinText(text) : formatJson(this.content)];
  }

  draw() {
    const { activityType } = this.activity;
    const [hint, text] = this.#describe();
    render(html`<div class="tool-head"><span class="name">${activityType.replaceAll(/[-_]/g, " ")}</span><span class="hint">${hint}</span><span class="grow"></span>${this.#inspect}</div>
      <pre dir="auto" class="preview" tabindex="0" role="group" aria-label=${activityType}>${text.slice(0, PREVIEW_CHARS)}</pre>`, this);
  }
}

define("ps-custom-activity", CustomActivity);
