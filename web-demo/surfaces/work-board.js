/**
 * The work board: work items in columns by status. Assigning submits a control; the card changes when the runtime
 * reports it.
 */

import { Surface, define, element, updateChildren, setBadge, setText, humanize, displayedStatus, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./submitted-controls.js";
import { artifactLinks, evidenceLinks, groupBy, addHeading, setLinks, findAgentName, controlTarget, createOpenRow, formatValue, refLinks, setFacts, setOpenRow, topologyOf } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */

/** The columns of seed 003. Items with another status have a column of their own, which is hidden while empty. */
const COLUMNS = ["open", "claimed", "running", "blocked", "reviewing", "done"];
/** The columns of statuses that other boards use. @type {Record<string, string>} */
const STATUS_COLUMNS = { assigned: "claimed", submitted: "open", queued: "open", working: "running", waiting: "blocked", completed: "done", passed: "done" };
const OTHER_COLUMN = "other";
/** Cards of a column drawn at first. */
const CARDS_MAX = 50;
/** The maximum number of comments shown; the newest. */
const COMMENTS_MAX = 10;
/** The maximum number of names in a list of assignees. */
const NAMES_MAX = 200;

/** The parts of each row. @type {WeakMap<Element, import("./lane.js").OpenRow>} */
const rows = new WeakMap();

/** @param {Activity} task */
function columnOf({ content }) {
  const status = toText(content.status);
  if (content.blocker && !["done", "completed"].includes(status)) return "blocked";
  const column = Object.hasOwn(STATUS_COLUMNS, status) ? STATUS_COLUMNS[status] : status;
  return COLUMNS.includes(column) ? column : OTHER_COLUMN;
}

export class WorkBoard extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType, surface }) {
    return (activityType === "task" && surface === "work_board") || activityType === "agent";
  }

  #limit = CARDS_MAX;
  /** @type {WeakMap<Element, Activity>} */
  #tasks = new WeakMap();

  build() {
    this.#limit = CARDS_MAX;
    this.head = addHeading(this, "Work board");
    this.columns = element("div", "columns");
    this.columns.tabIndex = 0;
    this.columns.setAttribute("role", "group");
    this.columns.setAttribute("aria-label", "Work items by status");
    this.append(this.columns);
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const tasks = this.activities().filter((it) => it.activityType === "task");
    this.hidden = tasks.length === 0;
    if (this.hidden || !this.columns) return;
    setText(/** @type {HTMLElement} */ (this.head?.querySelector(".count")), String(tasks.length));
    const byColumn = groupBy(tasks, columnOf);
    const shown = [...COLUMNS, ...(byColumn.has(OTHER_COLUMN) ? [OTHER_COLUMN] : [])];
    updateChildren(this.columns, shown, (name) => name, (name) => this.#createColumn(name), (column, name) => this.#updateColumn(column, byColumn.get(name) ?? []));
  }

  /** @param {string} name */
  #createColumn(name) {
    const column = element("section", "column");
    const head = element("h3", "label");
    column.dataset.column = name;
    head.append(element("span", "", humanize(name)), element("span", "count"));
    column.setAttribute("aria-label", humanize(name));
    const more = element("button", "button", "Show more");
    more.type = "button";
    more.dataset.kind = "quiet";
    more.addEventListener("click", () => {
      this.#limit += CARDS_MAX;
      this.update(null);
    });
    column.append(head, element("ul", "cards"), element("p", "hint none", "none"), more);
    return column;
  }

  /**
   * @param {HTMLElement} column
   * @param {Activity[]} tasks
   */
  #updateColumn(column, tasks) {
    const [head, list, none, more] = /** @type {HTMLElement[]} */ ([...column.children]);
    setText(/** @type {HTMLElement} */ (head.querySelector(".count")), String(tasks.length));
    none.hidden = tasks.length > 0;
    more.hidden = tasks.length <= this.#limit;
    updateChildren(list, tasks.slice(0, this.#limit), keyOf, (task) => this.#createCard(task), (card, task) => this.#updateCard(card, task));
  }

  /** @param {Activity} task */
  #createCard(task) {
    const row = createOpenRow(() => this.view, () => this.#tasks.get(row.root) ?? task);
    const card = row.root;
    card.classList.add("item");
    rows.set(card, row);
    const now = () => this.#tasks.get(card) ?? task;
    row.side.append(element("span", "tag priority"));
    const meter = element("progress", "meter");
    const feedback = element("p", "hint told");
    feedback.setAttribute("role", "status");
    const assign = element("div", "assign row");
    const choice = element("select", "input");
    choice.setAttribute("aria-label", "Assign to");
    const button = controlButton("Assign", () => this.view, () => {
      if (!choice.value) return setText(feedback, "Choose an assignee."), null;
      return { control: "assign", ...controlTarget(now()), taskId: now().activityId, value: { assignee: choice.value } };
    }, { feedback });
    assign.append(choice, button);
    row.opened.append(element("span", "badge"), element("p", "note blocker"), meter, element("dl", "facts"), element("ul", "stack comments"), element("div", "row links"), assign, feedback);
    return card;
  }

  /**
   * @param {HTMLElement} card
   * @param {Activity} task
   */
  #updateCard(card, task) {
    const { content } = task;
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (card.querySelector(name));
    this.#tasks.set(card, task);
    card.dataset.key = keyOf(task);
    const row = /** @type {import("./lane.js").OpenRow} */ (rows.get(card));
    setText(row.title, formatValue(content.title) || task.activityId);
    const owner = content.assignee === undefined || content.assignee === null ? "unassigned" : findAgentName(this.view, task, content.assignee);
    const percent = typeof content.progress === "number" && columnOf(task) !== "done" ? `${Math.round(content.progress * 100)} %` : "";
    setText(row.preview, [columnOf(task) === "blocked" && content.blocker ? `blocked: ${formatValue(content.blocker)}` : "", owner, percent].filter(Boolean).join(" · "));
    setOpenRow(this.view, row, task);
    setBadge(part(".badge"), displayedStatus(content));
    card.dataset.state = part(".badge").dataset.state;
    setText(part(".priority"), formatValue(content.priority));
    part(".priority").hidden = part(".priority").textContent === "";
    const blocker = part(".blocker");
    const isBlocked = content.status === "blocked" || Boolean(content.blocker);
    blocker.hidden = !isBlocked || columnOf(task) === "done";
    blocker.dataset.state = "warning";
    setText(blocker, `Blocked: ${formatValue(content.blocker) || "reason not stated"}`);
    const meter = /** @type {HTMLProgressElement} */ (part(".meter"));
    meter.hidden = typeof content.progress !== "number" || columnOf(task) === "done";
    if (!meter.hidden) meter.value = content.progress;
    meter.setAttribute("aria-label", `Progress of ${formatValue(content.title) || task.activityId}`);
    const failed = Array.isArray(content.attempts) ? content.attempts.length : 0;
    setFacts(/** @type {HTMLDListElement} */ (part(".facts")), [
      ["Assignee", owner],
      ["Depends on", this.#dependencies(task)],
      ["Error", content.error?.message],
      ["Failed attempts", failed > 0 ? `${failed}: ${formatValue(content.attempts.at(-1)?.error?.message ?? content.attempts.at(-1)?.reason) || "no reason given"}` : undefined],
      ["Summary", content.summary],
      ["Topology", topologyOf(content)],
    ]);
    drawComments(part(".comments"), content.comments);
    const links = part(".links");
    setLinks(links, [
      ...artifactLinks(this.view, task, content.artifactRefs),
      ...evidenceLinks(this.view, task, content.evidenceRefs),
      ...refLinks(this.view, content.resultRef, "result"),
      ...refLinks(this.view, content.refs),
    ]);
    links.hidden = links.childElementCount === 0;
    const assign = part(".assign");
    assign.hidden = !this.view.isLive;
    if (!assign.hidden) this.#updateAssignees(/** @type {HTMLSelectElement} */ (part("select")), task);
  }

  /**
   * Returns the dependencies, with title and status of known tasks.
   * @param {Activity} task
   */
  #dependencies(task) {
    const { dependencies } = task.content;
    if (!Array.isArray(dependencies)) return dependencies;
    return dependencies.map((id) => {
      const on = this.view.store.get(keyOf({ ...task, activityId: toText(id) }));
      return on ? `${formatValue(on.content.title) || on.activityId} (${humanize(on.content.status)})` : `${formatValue(id)} (unknown)`;
    });
  }

  /**
   * @param {HTMLSelectElement} choice
   * @param {Activity} task
   */
  #updateAssignees(choice, task) {
    const agents = this.activities().filter((it) => it.activityType === "agent").slice(0, NAMES_MAX);
    const names = new Map(agents.map((it) => [it.activityId, toText(it.content.agentName) || it.activityId]));
    if (typeof task.content.assignee === "string" && !names.has(task.content.assignee)) names.set(task.content.assignee, task.content.assignee);
    choice.setAttribute("aria-label", `Assign ${formatValue(task.content.title) || task.activityId} to`);
    updateChildren(choice, [["", "Assign to…"], ...names], ([id]) => id, ([id]) => {
      const option = element("option");
      option.value = id;
      return option;
    }, (option, [, name]) => setText(option, name));
  }
}

/**
 * Draws the newest comments of a work item.
 * @param {HTMLElement} list
 * @param {unknown} comments Texts, or `{ author | agentId | from | by, text | message | body, at | createdAt }`.
 */
function drawComments(list, comments) {
  const all = Array.isArray(comments) ? comments : comments === undefined || comments === null ? [] : [comments];
  list.hidden = all.length === 0;
  const shown = all.slice(-COMMENTS_MAX).map((comment, at) => ({ key: `${all.length - Math.min(all.length, COMMENTS_MAX) + at}`, comment }));
  updateChildren(list, shown, ({ key }) => key, () => {
    const row = element("li", "comment");
    row.append(element("span", "label"), element("p", ""));
    return row;
  }, (row, { comment }) => {
    const isObject = comment !== null && typeof comment === "object";
    const author = isObject ? formatValue(comment.author ?? comment.agentName ?? comment.agentId ?? comment.from ?? comment.by) || "author unknown" : "comment";
    setText(row.children[0], [author, isObject ? formatValue(comment.at ?? comment.createdAt ?? comment.timestamp) : ""].filter(Boolean).join(" · "));
    setText(row.children[1], formatValue(isObject ? (comment.text ?? comment.message ?? comment.body ?? comment.comment ?? comment) : comment));
  });
}

define("ps-work-board", WorkBoard);
