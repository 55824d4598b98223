/**
 * The work board: work items in columns by status. Assigning submits a control; the card changes when the runtime
 * reports it.
 */

import { TemplateSurface, define, displayedStatus, element, humanize, stateOf, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./control-button.js";
import { findAgentName, controlTarget, formatValue, topologyOf } from "./facts.js";
import { artifactLinks, evidenceLinks, factsTemplate, linksTemplate, refLinks } from "./links.js";
import { groupBy, openRowTemplate } from "./lane.js";
import { html, nothing, repeat } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {{ button: HTMLElement, feedback: HTMLElement, task: Activity, choice: string }} Assign */

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

/** @param {Activity} task */
function columnOf({ content }) {
  const status = toText(content.status);
  if (content.blocker && !["done", "completed"].includes(status)) return "blocked";
  const column = Object.hasOwn(STATUS_COLUMNS, status) ? STATUS_COLUMNS[status] : status;
  return COLUMNS.includes(column) ? column : OTHER_COLUMN;
}

export class WorkBoard extends TemplateSurface {
  /** @param {Activity} activity */
  static shows({ activityType, surface }) {
    return (activityType === "task" && surface === "work_board") || activityType === "agent";
  }

  #limit = CARDS_MAX;
  /** The keys of the rows that are open. @type {Set<string>} */
  #open = new Set();
  /** The control of each row, which keeps its state. @type {Map<string, Assign>} */
  #assigns = new Map();

  build() {
    this.#limit = CARDS_MAX;
    this.#open.clear();
    this.#assigns.clear();
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Work board");
  }

  template() {
    const tasks = this.activities().filter((it) => it.activityType === "task");
    this.hidden = tasks.length === 0;
    if (this.hidden) return nothing;
    const byColumn = groupBy(tasks, columnOf);
    const shown = [...COLUMNS, ...(byColumn.has(OTHER_COLUMN) ? [OTHER_COLUMN] : [])];
    return html`<header class="lane-head"><div class="spread"><h2>Work board</h2><span class="count hint">${tasks.length}</span></div></header>
      <div class="columns" role="group" aria-label="Work items by status" tabindex="0">${shown.map((name) => this.#column(name, byColumn.get(name) ?? []))}</div>`;
  }

  /**
   * @param {string} name
   * @param {Activity[]} tasks
   */
  #column(name, tasks) {
    const more = () => {
      this.#limit += CARDS_MAX;
      this.update(null);
    };
    return html`<section class="column" data-column=${name} aria-label=${humanize(name)}><h3 class="label"><span>${humanize(name)}</span><span class="count">${tasks.length}</span></h3>
      <ul class="cards">${repeat(tasks.slice(0, this.#limit), keyOf, (task) => this.#card(task))}</ul>
      <p class="hint none" ?hidden=${tasks.length > 0}>none</p>
      ${tasks.length > this.#limit ? html`<button type="button" class="button" data-kind="quiet" @click=${more}>Show more</button>` : nothing}</section>`;
  }

  /** @param {Activity} task */
  #card(task) {
    const { content } = task;
    const key = keyOf(task);
    const title = formatValue(content.title) || task.activityId;
    const owner = content.assignee === undefined || content.assignee === null ? "unassigned" : findAgentName(this.view, task, content.assignee);
    const column = columnOf(task);
    const hasProgress = typeof content.progress === "number" && column !== "done";
    const status = displayedStatus(content);
    const failed = Array.isArray(content.attempts) ? content.attempts.length : 0;
    const priority = formatValue(content.priority);
    const links = [...artifactLinks(this.view, task, content.artifactRefs), ...evidenceLinks(this.view, task, content.evidenceRefs), ...refLinks(this.view, content.resultRef, "result"), ...refLinks(this.view, content.refs)];
    const isBlocked = (content.status === "blocked" || Boolean(content.blocker)) && column !== "done";
    const toggle = () => {
      if (!this.#open.delete(key)) this.#open.add(key);
      this.update(null);
    };
    return openRowTemplate({
      view: this.view, activity: task, className: "item", title, isOpen: this.#open.has(key), toggle,
      preview: [column === "blocked" && content.blocker ? `blocked: ${formatValue(content.blocker)}` : "", owner, hasProgress ? `${Math.round(content.progress * 100)} %` : ""].filter(Boolean).join(" · "),
      side: priority ? html`<span class="tag priority">${priority}</span>` : nothing,
      opened: html`<span class="badge" data-state=${stateOf(status)} data-status=${toText(status) || "unknown"}>${humanize(status)}</span>
        ${isBlocked ? html`<p class="note blocker" data-state="warning">Blocked: ${formatValue(content.blocker) || "reason not stated"}</p>` : nothing}
        ${hasProgress ? html`<progress class="meter" .value=${content.progress} aria-label="Progress of ${title}"></progress>` : nothing}
        ${factsTemplate([
          ["Assignee", owner],
          ["Depends on", this.#dependencies(task)],
          ["Error", content.error?.message],
          ["Failed attempts", failed > 0 ? `${failed}: ${formatValue(content.attempts.at(-1)?.error?.message ?? content.attempts.at(-1)?.reason) || "no reason given"}` : undefined],
          ["Summary", content.summary],
          ["Topology", topologyOf(content)],
        ])}
        ${commentsTemplate(content.comments)}${linksTemplate(links)}${this.view.isLive ? this.#assign(task, title) : nothing}`,
    });
  }

  /**
   * @param {Activity} task
   * @param {string} title
   */
  #assign(task, title) {
    const assign = this.#assigns.get(keyOf(task)) ?? this.#createAssign(task);
    assign.task = task;
    const choose = (/** @type {Event} */ { target }) => (assign.choice = /** @type {HTMLSelectElement} */ (target).value);
    const agents = this.activities().filter((it) => it.activityType === "agent").slice(0, NAMES_MAX);
    const names = new Map(agents.map((it) => [it.activityId, toText(it.content.agentName) || it.activityId]));
    if (typeof task.content.assignee === "string" && !names.has(task.content.assignee)) names.set(task.content.assignee, task.content.assignee);
    return html`<div class="assign row"><select class="input" aria-label="Assign ${title} to" @change=${choose}><option value="">Assign to…</option>${repeat(names, ([id]) => id, ([id, name]) => html`<option value=${id}>${name}</option>`)}</select>${assign.button}</div>${assign.feedback}`;
  }

  /** @param {Activity} task */
  #createAssign(task) {
    const feedback = element("p", "hint told");
    feedback.setAttribute("role", "status");
    /** @type {Assign} */
    const assign = { feedback, task, choice: "", button: feedback };
    assign.button = controlButton("Assign", () => this.view, () => {
      if (assign.choice === "") return (feedback.textContent = "Choose an assignee."), null;
      return { control: "assign", ...controlTarget(assign.task), taskId: assign.task.activityId, value: { assignee: assign.choice } };
    }, { feedback });
    this.#assigns.set(keyOf(task), assign);
    return assign;
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
}

/**
 * The newest comments of a work item.
 * @param {unknown} comments Texts, or `{ author | agentId | from | by, text | message | body, at | createdAt }`.
 */
function commentsTemplate(comments) {
  const all = Array.isArray(comments) ? comments : comments === undefined || comments === null ? [] : [comments];
  if (all.length === 0) return nothing;
  return html`<ul class="stack comments">${all.slice(-COMMENTS_MAX).map((comment) => {
    const isObject = comment !== null && typeof comment === "object";
    const author = isObject ? formatValue(comment.author ?? comment.agentName ?? comment.agentId ?? comment.from ?? comment.by) || "author unknown" : "comment";
    return html`<li class="comment"><span class="label">${[author, isObject ? formatValue(comment.at ?? comment.createdAt ?? comment.timestamp) : ""].filter(Boolean).join(" · ")}</span><p>${formatValue(isObject ? (comment.text ?? comment.message ?? comment.body ?? comment.comment ?? comment) : comment)}</p></li>`;
  })}</ul>`;
}

define("ps-work-board", WorkBoard);
