/**
 * The status of the runs: their phase, what they wait for, and why they failed.
 */

import { Surface, formatCount, define, element, inspectButton, keyOf, updateChildren, setBadge, setText, humanize, toText } from "./base.js";
import { agentName } from "./card.js";
import { controlButton } from "./submitted-controls.js";
import { errorText } from "./tool.js";

/** @typedef {import("./base.js").Activity} Activity */

const LIVE = new Set(["accepted", "running", "waiting"]);
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

/** @param {Activity} activity */
export const isLiveRun = (activity) => LIVE.has(toText(/** @type {any} */ (activity.content).status));

export class RuntimeStatus extends Surface {
  /** @param {Activity} activity */
  static shows(activity) {
    return activity.activityType === "run" || activity.activityType === "action" || activity.activityType === "diagnostics";
  }

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
    updateChildren(this, shown, keyOf, (run) => this.#row(run), (row, run) => this.#draw(row, run, activities));
  }

  /** @param {Activity} run */
  #row(run) {
    const row = element("div", "run stack");
    const line = element("div", "spread");
    const left = element("span", "row");
    // The live region contains only state and phase: not every changed number is announced.
    const liveRegion = element("span", "row");
    liveRegion.setAttribute("role", "status");
    liveRegion.append(element("span", "badge"), element("span", "phase"));
    const reveal = element("button", "button reveal", "Show decision");
    reveal.type = "button";
    reveal.dataset.kind = "quiet";
    reveal.addEventListener("click", () => this.#reveal(run.runId));
    left.append(liveRegion, element("span", "hint more"), reveal);
    const now = () => this.view.store.get(keyOf(run));
    line.append(left, inspectButton(() => this.view, now));
    const feedback = element("span", "hint");
    const retry = controlButton("Retry", () => this.view, () => ({ control: "retry", run: run.runId }), { feedback });
    retry.classList.add("retry");
    const retryRow = element("div", "row again");
    retryRow.append(retry, feedback);
    row.append(line, element("ul", "stack notes"), retryRow);
    return row;
  }

  /**
   * @param {HTMLElement} row
   * @param {Activity} run
   * @param {Activity[]} activities
   */
  #draw(row, run, activities) {
    const content = /** @type {Record<string, any>} */ (run.content);
    const [statusBadge, phase, more] = /** @type {NodeListOf<HTMLElement>} */ (row.querySelectorAll(".badge, .phase, .more"));
    row.dataset.key = keyOf(run);
    row.dataset.status = toText(content.status);
    row.dataset.phase = toText(content.phase);
    const hasEnded = !isLiveRun(run);
    const detail = hasEnded ? undefined : content.detail;
    setBadge(statusBadge, content.stale ? "stale" : SHOWN_DETAILS.has(detail) ? detail : content.status);
    row.dataset.detail = toText(detail);
    setText(phase, hasEnded ? "" : detail !== undefined && !SHOWN_DETAILS.has(detail) ? capitalize(humanize(detail)) : (PHASE_TEXTS[content.phase] ?? (content.phase === "unknown" || content.phase === undefined ? "Phase unknown" : capitalize(humanize(content.phase)))));
    const pending = activities.filter((one) => one.runId === run.runId && isPending(one)).length;
    setText(more, [
      content.agentId ? agentName(this.view, run, toText(content.agentId)) : "",
      hasEnded ? "" : messageOf(content),
      content.attempt > 1 ? `attempt ${content.attempt}` : "",
      pending > 0 ? `${pending} ${pending === 1 ? "decision" : "decisions"} pending` : "",
      content.usage?.inputTokens === undefined ? "" : `${formatCount(content.usage.inputTokens)} tokens in, ${formatCount(content.usage.outputTokens)} out`,
    ].filter(Boolean).join(" · "));
    /** @type {HTMLElement} */ (row.querySelector(".reveal")).hidden = pending === 0;
    const hidden = activities.find((one) => one.activityType === "diagnostics" && one.runId === run.runId)?.content.hiddenFailures;
    this.#drawNotes(/** @type {HTMLElement} */ (row.querySelector(".notes")), content, pending, typeof hidden === "number" ? hidden : 0);
    /** @type {HTMLElement} */ (row.querySelector(".again")).hidden = !(content.status === "failed" && content.retryable !== false && this.view.isLive);
  }

  /**
   * Scrolls to the pending decision. The shell handles the event.
   * @param {string} runId
   */
  #reveal(runId) {
    const action = this.activities().find((one) => one.runId === runId && isPending(one));
    if (action) this.dispatchEvent(new CustomEvent("reveal", { bubbles: true, detail: keyOf(action) }));
  }

  /**
   * @param {HTMLElement} list
   * @param {Record<string, any>} content
   * @param {number} pending
   * @param {number} hidden
   */
  #drawNotes(list, content, pending, hidden) {
    const notes = notesOf(content, pending, hidden);
    list.hidden = notes.length === 0;
    updateChildren(list, notes, ([, text]) => text, ([state, text]) => {
      const row = element("li", "note", text);
      row.dataset.state = state;
      return row;
    }, () => {});
  }
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
  if (content.status === "failed") notes.push(retryability(content.retryable));
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

/**
 * @param {unknown} retryable
 * @returns {[string, string]}
 */
function retryability(retryable) {
  if (retryable === true) return ["idle", "The run can be retried."];
  if (retryable === false) return ["idle", "The run cannot be retried."];
  return ["unknown", "It is unknown whether the run can be retried."];
}

define("ps-runtime-status", RuntimeStatus);

