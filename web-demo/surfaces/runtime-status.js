/**
 * The status of the runs in one line each: who waits or works, agents at work, the context's share, and Interrupt. Below
 * are the reasons of failures and of missing facts.
 */

import { Surface, formatCount, define, displayedStatus, element, inspectButton, keyOf, humanize, stateOf, toText, updateChildren } from "./base.js";
import { agentName } from "./card.js";
import { controlButton } from "./control-button.js";
import { isLiveRun } from "./live-run.js";
import { errorText } from "./values.js";
import { formatShortCount } from "../ui/format.js";
import { glyph } from "../ui/glyphs.js";
import { loadStyle } from "../styles.js";
import { html, nothing, render } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("../ui/glyphs.js").Status} Status */

/** Details of a live run that replace its status. */
const SHOWN_DETAILS = new Set(["blocked", "retrying"]);
/** The maximum number of notices shown. */
const NOTICES_MAX = 3;

/** Texts of the phases. @type {Record<string, string>} */
const PHASE_TEXTS = {
  submitted: "Submitted", accepted: "Accepted", routing: "Routing", preparing: "Preparing the context", planning: "Planning", reasoning: "Thinking", acting: "Using tools",
  waiting: "Waiting", reviewing: "In review", producing: "Writing", reconciling: "Reconciling the final text", completed: "Completed", failed: "Failed", cancelled: "Cancelled",
  interrupted: "Interrupted", archived: "Archived", hydrating: "Restoring",
};

/** Glyphs of visual states. @type {Record<import("./base.js").State, Status>} */
const GLYPHS = { ok: "completed", running: "running", waiting: "waiting", warning: "idle", failed: "failed", stale: "idle", unknown: "idle", idle: "idle" };

/** Activity types besides the context on which the status depends. */
const TYPES = new Set(["run", "action", "diagnostics", "agent"]);

/** @param {Activity} activity */
const isContext = ({ activityType }) => activityType === "context" || activityType === "compaction";

export class RuntimeStatus extends Surface {
  /** @param {Activity} activity */
  static shows(activity) {
    return TYPES.has(activity.activityType) || isContext(activity);
  }

  /** Loads with the first context that a source reports. @type {import("./context.js").ContextMeter | undefined} */
  #meter;
  #isLoading = false;

  build() {
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Run status");
  }

  update() {
    const activities = this.activities();
    const own = new Set(this.view.runs);
    const runs = activities.filter(({ activityType, runId }) => activityType === "run" && own.has(runId));
    const live = runs.filter(isLiveRun);
    const shown = live.length > 0 ? live : runs.slice(-1);
    this.hidden = shown.length === 0;
    const ownActivities = activities.filter(({ runId }) => own.has(runId));
    const contexts = ownActivities.filter(isContext);
    if (contexts.length > 0 && !this.#meter) void this.#loadMeter();
    updateChildren(this, shown, keyOf, () => new RunLine(), (row, run) => row.show(this, run, activities, run === shown.at(-1) ? (this.#meter?.template(contexts) ?? nothing) : nothing));
  }

  async #loadMeter() {
    if (this.#isLoading) return;
    this.#isLoading = true;
    try {
      const [{ ContextMeter }] = await Promise.all([import("./context.js"), loadStyle("surfaces/context.css")]);
      this.#meter = new ContextMeter(() => this.view);
      this.update();
    } catch (error) {
      // The next update tries again.
      console.warn("The context did not load:", error);
    }
    this.#isLoading = false;
  }
}

/** The line of one run. */
class RunLine extends HTMLElement {
  /** @type {RuntimeStatus | undefined} */
  #surface;
  /** @type {Activity | undefined} */
  #run;
  #feedback = element("span", "told");
  #view = () => /** @type {RuntimeStatus} */ (this.#surface).view;
  #inspect = inspectButton(this.#view, () => this.#run && this.#view().store.get(keyOf(this.#run)));
  #interrupt = controlButton("Interrupt", this.#view, () => ({ control: "interrupt", run: this.#run?.runId }), { kind: "quiet", feedback: this.#feedback });
  #retry = controlButton("Retry", this.#view, () => ({ control: "retry", run: this.#run?.runId }), { feedback: this.#feedback });

  /**
   * @param {RuntimeStatus} surface
   * @param {Activity} run
   * @param {Activity[]} activities
   * @param {unknown} meter
   */
  show(surface, run, activities, meter) {
    this.#surface = surface;
    this.#run = run;
    const { view } = surface;
    const content = /** @type {Record<string, any>} */ (run.content);
    this.classList.add("run");
    this.dataset.key = keyOf(run);
    this.dataset.status = toText(content.status);
    this.dataset.phase = toText(content.phase);
    const hasEnded = !isLiveRun(run);
    const detail = hasEnded ? undefined : content.detail;
    this.dataset.detail = toText(detail);
    this.#interrupt.classList.add("interrupt");
    this.#interrupt.title = "Asks the runtime to stop the current turn";
    this.#interrupt.hidden = hasEnded || !view.isLive || run.runId !== view.runId;
    this.#retry.classList.add("retry");
    this.#retry.hidden = !(content.status === "failed" && content.retryable !== false && view.isLive);
    const pending = activities.filter((one) => one.runId === run.runId && isPending(one)).length;
    const status = content.stale ? "stale" : SHOWN_DETAILS.has(detail) ? detail : content.status;
    const state = pending > 0 && !hasEnded ? "waiting" : GLYPHS[stateOf(status)];
    const hidden = activities.find((one) => one.activityType === "diagnostics" && one.runId === run.runId)?.content.hiddenFailures;
    const notes = notesOf(content, pending, typeof hidden === "number" ? hidden : 0);
    const usage = content.usage?.inputTokens === undefined ? "" : `${formatShortCount(content.usage.inputTokens)} tokens in, ${formatShortCount(content.usage.outputTokens)} out`;
    const more = [
      pending > 1 && !hasEnded ? `${pending} decisions pending` : "", content.agentId ? agentName(view, run, toText(content.agentId)) : "", hasEnded ? "" : atWork(run, activities),
      hasEnded || pending > 0 ? "" : messageOf(content), content.attempt > 1 ? `attempt ${content.attempt}` : "", usage,
    ].filter(Boolean).join(" · ");
    // The live region contains only state and phase: not every changed number is announced.
    render(html`<div class="status-line">
        <span class="state" role="status" data-status=${state}>${glyph(/** @type {Status} */ (state))}<b class="phase" data-status=${toText(status) || "unknown"}>${phaseText(content, status, pending, hasEnded, detail)}</b></span>
        <span class="more" dir="auto" title=${more}>${more}</span>
        ${this.#inspect}${meter}${this.#interrupt}
      </div>
      ${notes.length === 0 ? nothing : html`<ul class="notes">${notes.map(([kind, text]) => html`<li class="note" dir="auto" data-state=${kind}>${text}</li>`)}</ul>`}
      <p class="again">${this.#retry}${this.#feedback}</p>`, this);
  }
}

define("ps-run-line", RunLine);

/**
 * @param {Record<string, any>} content
 * @param {unknown} status
 * @param {number} pending
 * @param {boolean} hasEnded
 * @param {unknown} detail
 */
function phaseText(content, status, pending, hasEnded, detail) {
  if (hasEnded || content.stale || SHOWN_DETAILS.has(toText(detail))) return capitalize(humanize(status));
  if (pending > 0) return "Waiting for you";
  if (detail !== undefined) return capitalize(humanize(detail));
  return PHASE_TEXTS[content.phase] ?? (content.phase === "unknown" || content.phase === undefined ? "Phase unknown" : capitalize(humanize(content.phase)));
}

/**
 * Counts the agents at work, among them the run's own: `1 of 8 agents at work`.
 * @param {Activity} run
 * @param {Activity[]} activities
 */
function atWork(run, activities) {
  const agents = activities.filter(({ activityType, runId, activityId }) => activityType === "agent" && runId === run.runId && activityId !== run.content.agentId);
  if (agents.length === 0) return "";
  const working = agents.filter(({ content }) => stateOf(displayedStatus(content)) === "running").length + (run.content.status === "running" ? 1 : 0);
  return `${working} of ${agents.length + 1} agents at work`;
}

/**
 * Returns the notes of a run, each with its visual state.
 * @param {Record<string, any>} content
 * @param {number} pending The number of pending decisions.
 * @param {number} hidden The number of failed steps that this audience cannot see.
 * @returns {[string, string][]}
 */
function notesOf(content, pending, hidden) {
  /** @type {[string, string][]} */
  const notes = [];
  if (content.stale) notes.push(["stale", "The runtime has been silent for a while. The run may have stopped."]);
  if (content.status === "waiting" && pending === 0) notes.push(["waiting", messageOf(content) || "Waiting. The source gave no reason."]);
  if (content.status === "unknown") notes.push(["unknown", "Status unknown."]);
  if (content.synthetic) notes.push(["stale", "The server ended this run because its runtime went silent."]);
  if (content.withheld) notes.push(["unknown", "The result is withheld from the selected audience."]);
  if (content.error !== undefined) notes.push(["failed", errorText(content.error)]);
  // Where nothing is known, the button says enough.
  if (content.status === "failed" && typeof content.retryable === "boolean") notes.push(["idle", `The run can${content.retryable ? "" : "not"} be retried.`]);
  if (hidden > 0) notes.push(["failed", hidden === 1 ? "A hidden step failed." : `${formatCount(hidden)} hidden steps failed.`]);
  if (content.activitiesOmitted) notes.push(["warning", "The log contains more than this page shows."]);
  const notices = Array.isArray(content.notices) ? content.notices : [];
  for (const notice of notices.slice(-NOTICES_MAX)) if (isWarning(notice)) notes.push([toText(notice.severity ?? notice.level) === "error" ? "failed" : "warning", noticeWords(notice)]);
  const seen = new Set();
  return notes.filter(([, text]) => text !== "" && !seen.has(text) && seen.add(text));
}

/** @param {Activity} activity */
const isPending = ({ activityType, content }) => activityType === "action" && content.status === "pending";

/** @param {string} text */
const capitalize = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

/** @param {any} notice */
const isWarning = (notice) => ["warning", "warn", "error"].includes(toText(notice?.severity ?? notice?.level));

/** @param {any} notice */
const noticeWords = (notice) => toText(notice?.message ?? notice?.text ?? notice);

/**
 * Returns the run's status message; its last progress notice if the server sends no message.
 * @param {Record<string, any>} content
 */
function messageOf(content) {
  if (content.message !== undefined) return toText(content.message);
  const last = Array.isArray(content.notices) ? content.notices.findLast((one) => !isWarning(one)) : undefined;
  return last === undefined ? "" : noticeWords(last);
}

define("ps-runtime-status", RuntimeStatus);

