/**
 * Compact cards for background tasks. Those that need a person come first; completed ones are counted.
 */

import { Surface, define, element, inspectButton, joinText, keyOf, updateChildren, setBadge, setText, humanize, displayedStatus, stateOf, toText } from "./base.js";
import { controlButton } from "./control-button.js";
import { runOf, topologyOf } from "./facts.js";
import { errorText } from "./values.js";

/** @typedef {import("./base.js").Activity} Activity */

/** The maximum number of capsules drawn; the rest is counted. */
const CAPSULES_MAX = 12;
/** Visual states in display order. */
const RANKS = ["waiting", "failed", "warning", "running", "stale", "unknown", "idle", "ok"];
/** Statuses of a task that can be stopped. */
const STOPPABLE = new Set(["running", "working", "claimed", "reviewing", "waking", "blocked", "queued"]);

export class TaskCapsule extends Surface {
  #list = element("ul", "capsules row");
  #more = element("p", "hint");

  /** @param {Activity} activity */
  static shows(activity) {
    return activity.activityType === "task" && activity.surface !== "work_board";
  }

  build() {
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Tasks");
    this.append(this.#list, this.#more);
  }

  update() {
    const tasks = this.activities();
    // After its run, a stale task tells nothing that needs a person.
    const isLeft = (/** @type {Activity} */ task) => task.content.stale === true && runOf(this.view, task)?.content.status === "completed";
    const isQuiet = (/** @type {Activity} */ task) => isLeft(task) || ["ok", "idle"].includes(stateOf(displayedStatus(task.content)));
    const open = tasks.filter((task) => !isQuiet(task)).sort((a, b) => rank(a) - rank(b));
    const done = tasks.filter((task) => stateOf(task.content.status) === "ok").length;
    // Done and sleeping tasks alone are no reason to take a line.
    this.hidden = open.length === 0;
    updateChildren(this.#list, open.slice(0, CAPSULES_MAX), keyOf, (task) => this.#createCapsule(task), updateCapsule);
    const hidden = open.length - CAPSULES_MAX;
    setText(this.#more, [hidden > 0 ? `${hidden} more` : "", done > 0 ? `${done} done` : ""].filter(Boolean).join(" · "));
    this.#more.hidden = this.#more.textContent === "";
    for (const row of this.#list.children) /** @type {HTMLElement} */ (row).classList.toggle("is-past", !this.view.isLive);
  }

  /** @param {Activity} task */
  #createCapsule(task) {
    const row = element("li", "capsule");
    const details = element("details");
    const summary = element("summary", "row");
    summary.append(element("span", "badge"), element("span", "title"), element("span", "hint who"));
    const bar = element("progress", "meter");
    bar.max = 1;
    const feedback = element("p", "hint");
    const body = element("div", "stack body");
    const foot = element("div", "row foot");
    const stop = controlButton("Stop", () => this.view, () => ({ control: "stop", run: task.runId || undefined, session: task.sessionId, taskId: task.activityId }), { kind: "danger", feedback });
    stop.classList.add("stop");
    foot.append(stop, inspectButton(() => this.view, () => this.view.store.get(keyOf(task))));
    body.append(element("dl", "facts"), foot, feedback);
    details.append(summary, body);
    row.append(details, bar);
    return row;
  }
}

define("ps-task-capsule", TaskCapsule);

/** @param {Activity} task */
const rank = (task) => RANKS.indexOf(stateOf(task.content.status));

/**
 * @param {HTMLElement} row
 * @param {Activity} task
 */
function updateCapsule(row, task) {
  const { content } = task;
  row.dataset.key = keyOf(task);
  row.dataset.state = stateOf(displayedStatus(content));
  const [statusBadge, title, assignee, stop, facts] = ["badge", "title", "who", "stop", "facts"].map((name) => /** @type {HTMLElement} */ (row.querySelector(`.${name}`)));
  setBadge(statusBadge, displayedStatus(content));
  setText(title, toText(content.title) || task.activityId);
  setText(assignee, toText(content.assignee));
  const bar = /** @type {HTMLProgressElement} */ (row.querySelector("progress"));
  bar.hidden = typeof content.progress !== "number" || stateOf(displayedStatus(content)) !== "running";
  if (!bar.hidden) bar.value = content.progress;
  bar.setAttribute("aria-label", `Progress of ${title.textContent}`);
  stop.hidden = content.stale === true || !STOPPABLE.has(toText(content.status)) || row.classList.contains("is-past");
  /** @type {[string, string][]} */
  const pairs = [["Kind", humanize(content.runtimeEntity)], ["Assignee", toText(content.assignee) || "unknown"]];
  const topology = topologyOf(content);
  if (topology !== undefined) pairs.push(["Topology", topology]);
  if (content.blocker !== undefined) pairs.push(["Blocked by", toText(content.blocker)]);
  if (content.queueReason !== undefined) pairs.push(["Queue reason", toText(content.queueReason)]);
  if (content.inputNeeds !== undefined) pairs.push(["Needs input", toText(content.inputNeeds)]);
  if (content.authNeeds !== undefined) pairs.push(["Needs authorization", toText(content.authNeeds)]);
  if (content.error !== undefined) pairs.push(["Error", errorText(content.error)]);
  if (Array.isArray(content.attempts) && content.attempts.length > 0) pairs.push(["Failed attempts", content.attempts.map((/** @type {any} */ one) => errorText(one.error) || humanize(one.status)).join("; ")]);
  if (facts.textContent !== joinText(pairs.flat())) facts.replaceChildren(...pairs.flatMap(([name, text]) => [element("dt", "", name), element("dd", "", text)]));
}

