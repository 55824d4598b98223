/**
 * How the runs stand: what they are busy with before the first word comes, what they wait for, why they failed.
 */

import { Surface, count, define, element, inspectButton, keyOf, keyed, mark, say, spoken, words } from "./base.js";
import { agentName } from "./card.js";
import { controlButton } from "./handed.js";
import { failure } from "./tool.js";

/** @typedef {import("./base.js").Activity} Activity */

const LIVE = new Set(["accepted", "running", "waiting"]);
/** Notices that are shown at once; the run has more. */
const NOTICES_MAX = 3;

/** Phases in words of what one sees. @type {Record<string, string>} */
const PHASES = {
  submitted: "Submitted", accepted: "Accepted", routing: "Choosing who does it", preparing: "Preparing the context", planning: "Planning", reasoning: "Thinking", acting: "Using tools",
  waiting: "Waiting", reviewing: "Being reviewed", producing: "Writing", reconciling: "Checking what was written", completed: "Completed", failed: "Failed", cancelled: "Cancelled",
  interrupted: "Interrupted", archived: "Archived", hydrating: "Restoring",
};

/** @param {Activity} activity */
export const isLiveRun = (activity) => LIVE.has(words(/** @type {any} */ (activity.content).status));

export class RuntimeStatus extends Surface {
  /** @param {Activity} activity */
  static shows(activity) {
    return activity.activityType === "run" || activity.activityType === "action";
  }

  build() {
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "How the run stands");
  }

  update() {
    const activities = this.activities();
    const own = new Set(this.view.runs);
    const runs = activities.filter(({ activityType, runId }) => activityType === "run" && own.has(runId));
    const live = runs.filter(isLiveRun);
    const shown = live.length > 0 ? live : runs.slice(-1);
    this.hidden = shown.length === 0;
    keyed(this, shown, keyOf, (run) => this.#row(run), (row, run) => this.#draw(row, run, activities));
  }

  /** @param {Activity} run */
  #row(run) {
    const row = element("div", "run stack");
    const line = element("div", "spread");
    const left = element("span", "row");
    // What is said aloud when it changes: the state and the phase, and not every number.
    const aloud = element("span", "row");
    aloud.setAttribute("role", "status");
    aloud.append(element("span", "badge"), element("span", "phase"));
    const reveal = element("button", "button reveal", "Show it");
    reveal.type = "button";
    reveal.dataset.kind = "quiet";
    reveal.addEventListener("click", () => this.#reveal(run.runId));
    left.append(aloud, element("span", "hint more"), reveal);
    const now = () => this.view.store.get(keyOf(run));
    line.append(left, inspectButton(() => this.view, now));
    const told = element("span", "hint");
    const retry = controlButton("Retry", () => this.view, () => ({ control: "retry", run: run.runId }), { told });
    retry.classList.add("retry");
    const again = element("div", "row again");
    again.append(retry, told);
    row.append(line, element("ul", "stack notes"), again);
    return row;
  }

  /**
   * @param {HTMLElement} row
   * @param {Activity} run
   * @param {Activity[]} activities
   */
  #draw(row, run, activities) {
    const content = /** @type {Record<string, any>} */ (run.content);
    const [mine, phase, more] = /** @type {NodeListOf<HTMLElement>} */ (row.querySelectorAll(".badge, .phase, .more"));
    row.dataset.key = keyOf(run);
    row.dataset.status = words(content.status);
    row.dataset.phase = words(content.phase);
    mark(mine, content.stale ? "stale" : content.status, content.stale ? "stale" : undefined);
    const isOver = !isLiveRun(run);
    say(phase, isOver ? "" : (PHASES[content.phase] ?? (content.phase === "unknown" || content.phase === undefined ? "What it is busy with is unknown" : spoken(content.phase))));
    const pending = activities.filter((one) => one.runId === run.runId && isPending(one)).length;
    say(more, [
      content.agentId ? agentName(this.view, run, words(content.agentId)) : "",
      isOver ? "" : lastNotice(content),
      content.attempt > 1 ? `attempt ${content.attempt}` : "",
      pending > 0 ? `${pending} ${pending === 1 ? "decision is" : "decisions are"} waited for` : "",
      content.usage?.inputTokens === undefined ? "" : `${count(content.usage.inputTokens)} tokens in, ${count(content.usage.outputTokens)} out`,
    ].filter(Boolean).join(" · "));
    /** @type {HTMLElement} */ (row.querySelector(".reveal")).hidden = pending === 0;
    this.#drawNotes(/** @type {HTMLElement} */ (row.querySelector(".notes")), content, pending);
    /** @type {HTMLElement} */ (row.querySelector(".again")).hidden = !(content.status === "failed" && content.retryable !== false && this.view.isLive);
  }

  /**
   * Goes to what is waited for: whoever shows the conversation hears it.
   * @param {string} runId
   */
  #reveal(runId) {
    const asked = this.activities().find((one) => one.runId === runId && isPending(one));
    if (asked) this.dispatchEvent(new CustomEvent("reveal", { bubbles: true, detail: keyOf(asked) }));
  }

  /**
   * @param {HTMLElement} list
   * @param {Record<string, any>} content
   * @param {number} pending
   */
  #drawNotes(list, content, pending) {
    const notes = notesOf(content, pending);
    list.hidden = notes.length === 0;
    keyed(list, notes, ([, text]) => text, ([state, text]) => {
      const row = element("li", "note", text);
      row.dataset.state = state;
      return row;
    }, () => {});
  }
}

/**
 * What has to be said of a run, each with its state.
 * @param {Record<string, any>} content
 * @param {number} pending
 * @returns {[string, string][]}
 */
function notesOf(content, pending) {
  /** @type {[string, string][]} */
  const notes = [];
  if (content.stale) notes.push(["stale", "Nothing has been heard of it for a while. Whether it still works is unknown."]);
  if (content.status === "waiting" && pending === 0) notes.push(["waiting", content.message ? words(content.message) : "It waits; for what, nobody said."]);
  if (content.status === "unknown") notes.push(["unknown", "Nobody has said how it stands."]);
  if (content.synthetic) notes.push(["stale", "The server ended it: its runtime was not heard of any more."]);
  if (content.withheld) notes.push(["unknown", "How it ended is withheld from the audience that you look as."]);
  if (content.error !== undefined) notes.push(["failed", failure(content.error)]);
  if (content.status === "failed") notes.push(retryability(content.retryable));
  if (content.activitiesOmitted) notes.push(["warning", "There is more in its log than is shown here."]);
  const notices = Array.isArray(content.notices) ? content.notices : [];
  for (const notice of notices.slice(-NOTICES_MAX)) if (isWarning(notice)) notes.push([words(notice.severity ?? notice.level) === "error" ? "failed" : "warning", noticeWords(notice)]);
  const seen = new Set();
  return notes.filter(([, text]) => text !== "" && !seen.has(text) && seen.add(text));
}

/** @param {Activity} activity */
const isPending = ({ activityType, content }) => activityType === "action" && content.status === "pending";

/** @param {any} notice */
const isWarning = (notice) => ["warning", "warn", "error"].includes(words(notice?.severity ?? notice?.level));

/** @param {any} notice */
const noticeWords = (notice) => words(notice?.message ?? notice?.text ?? notice);

/**
 * What the run last said of its progress.
 * @param {Record<string, any>} content
 */
function lastNotice(content) {
  const last = Array.isArray(content.notices) ? content.notices.findLast((one) => !isWarning(one)) : undefined;
  return last === undefined ? "" : noticeWords(last);
}

/**
 * @param {unknown} retryable
 * @returns {[string, string]}
 */
function retryability(retryable) {
  if (retryable === true) return ["idle", "Its runtime would take another attempt."];
  if (retryable === false) return ["idle", "It cannot be tried again."];
  return ["unknown", "Whether it can be tried again is unknown."];
}

define("ps-runtime-status", RuntimeStatus);

