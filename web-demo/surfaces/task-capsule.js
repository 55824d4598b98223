/**
 * Work beside the conversation, small: what needs a person first, what is done last and counted.
 */

import { Surface, define, element, inspectButton, joined, keyOf, keyed, mark, say, spoken, standing, stateOf, words } from "./base.js";
import { controlButton } from "./handed.js";
import { topologyOf } from "./lane.js";
import { failure } from "./tool.js";

/** @typedef {import("./base.js").Activity} Activity */

/** Capsules that are drawn; more are counted. */
const CAPSULES_MAX = 12;
/** Which states come first. */
const RANKS = ["waiting", "failed", "warning", "running", "stale", "unknown", "idle", "ok"];
/** Statuses in which a task can be stopped. */
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
    const open = tasks.filter((task) => stateOf(task.content.status) !== "ok").sort((a, b) => rank(a) - rank(b));
    const done = tasks.length - open.length;
    this.hidden = tasks.length === 0;
    keyed(this.#list, open.slice(0, CAPSULES_MAX), keyOf, (task) => this.#make(task), draw);
    const hidden = open.length - CAPSULES_MAX;
    say(this.#more, [hidden > 0 ? `${hidden} more` : "", done > 0 ? `${done} done` : ""].filter(Boolean).join(" · "));
    this.#more.hidden = this.#more.textContent === "";
    for (const row of this.#list.children) /** @type {HTMLElement} */ (row).classList.toggle("is-past", !this.view.isLive);
  }

  /** @param {Activity} task */
  #make(task) {
    const row = element("li", "capsule");
    const details = element("details");
    const summary = element("summary", "row");
    summary.append(element("span", "badge"), element("span", "title"), element("span", "hint who"));
    const bar = element("progress", "meter");
    bar.max = 1;
    const told = element("p", "hint");
    const body = element("div", "stack body");
    const foot = element("div", "row foot");
    const stop = controlButton("Stop", () => this.view, () => ({ control: "stop", run: task.runId || undefined, session: task.sessionId, taskId: task.activityId }), { kind: "danger", told });
    stop.classList.add("stop");
    foot.append(stop, inspectButton(() => this.view, () => this.view.store.get(keyOf(task))));
    body.append(element("dl", "facts"), foot, told);
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
function draw(row, task) {
  const { content } = task;
  row.dataset.key = keyOf(task);
  row.dataset.state = stateOf(standing(content));
  const [mine, title, who, stop, facts] = ["badge", "title", "who", "stop", "facts"].map((name) => /** @type {HTMLElement} */ (row.querySelector(`.${name}`)));
  mark(mine, standing(content));
  say(title, words(content.title) || task.activityId);
  say(who, words(content.assignee));
  const bar = /** @type {HTMLProgressElement} */ (row.querySelector("progress"));
  bar.hidden = typeof content.progress !== "number" || stateOf(standing(content)) !== "running";
  if (!bar.hidden) bar.value = content.progress;
  bar.setAttribute("aria-label", `Progress of ${title.textContent}`);
  stop.hidden = content.stale === true || !STOPPABLE.has(words(content.status)) || row.classList.contains("is-past");
  /** @type {[string, string][]} */
  const said = [["Kind", spoken(content.runtimeEntity)], ["Assignee", words(content.assignee) || "unknown"]];
  const topology = topologyOf(content);
  if (topology !== undefined) said.push(["Topology", topology]);
  if (content.blocker !== undefined) said.push(["Blocked by", words(content.blocker)]);
  if (content.queueReason !== undefined) said.push(["Waiting because", words(content.queueReason)]);
  if (content.inputNeeds !== undefined) said.push(["Needs input", words(content.inputNeeds)]);
  if (content.authNeeds !== undefined) said.push(["Needs authorization", words(content.authNeeds)]);
  if (content.error !== undefined) said.push(["Error", failure(content.error)]);
  if (Array.isArray(content.attempts) && content.attempts.length > 0) said.push(["Failed before", content.attempts.map((/** @type {any} */ one) => failure(one.error) || spoken(one.status)).join("; ")]);
  if (facts.textContent !== joined(said.flat())) facts.replaceChildren(...said.flatMap(([name, text]) => [element("dt", "", name), element("dd", "", text)]));
}

