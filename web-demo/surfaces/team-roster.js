/**
 * Who works here: the team, how it is organised, and its teammates, each under its own name.
 */

import { define, element, keyed, mark, say, spoken, standing, stateOf, words } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./handed.js";
import { isLiveRun } from "./runtime-status.js";
import { Lane, OVER, beganBy, face, link, ownerOf, phrase, tell, topologyOf } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** Teammates that a task can be delegated to by name. */
const NAMES_MAX = 200;
/** What waits for a person stands above what only runs. */
const FIRST = ["needs_input", "input_required", "auth_required", "plan_ready"];

export class TeamRoster extends Lane {
  static heading = "Team";

  /** @param {Activity} activity */
  static shows({ activityType }) {
    // The end of a run decides what can still be stopped.
    return activityType === "agent" || activityType === "team" || activityType === "run";
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    super.update(changed);
    const teams = super.activities().filter((it) => it.activityType === "team");
    if (teams.length > 0) this.hidden = false;
    if (!this.top) return;
    keyed(this.top, teams, keyOf, () => this.#teamHead(), (head, team) => this.#changeTeam(head, team));
    if (this.#delegate && this.#delegate.parentElement !== this.top) this.top.append(this.#delegate);
    if (this.#delegate) {
      this.#delegate.hidden = !this.view.isLive;
      this.#drawNames(this.activities());
    }
  }

  build() {
    super.build();
    this.#delegate = this.#delegation();
  }

  /** @type {HTMLElement | undefined} */
  #delegate;
  /** @type {WeakMap<HTMLElement, Activity>} */
  #teams = new WeakMap();

  /** A task for a teammate, or for one that the runtime chooses. */
  #delegation() {
    const root = element("details", "stack delegate");
    const form = element("form", "stack");
    const task = element("label", "field");
    const text = element("textarea");
    text.rows = 2;
    task.append(element("span", "", "Task"), text);
    const to = element("label", "field");
    to.append(element("span", "", "Teammate"), element("select", "input"));
    const told = element("p", "hint told");
    told.setAttribute("role", "status");
    const send = controlButton("Delegate", () => this.view, () => {
      if (text.value.trim() === "") return say(told, "Enter a task."), null;
      const agentId = /** @type {HTMLSelectElement} */ (to.lastElementChild).value;
      const { runId, sessionId } = this.view;
      return { control: "delegate", ...(sessionId ? { session: sessionId } : { run: runId }), ...(agentId ? { agentId } : {}), value: { text: text.value.trim() } };
    }, { told, sent: () => (text.value = "") });
    send.dataset.does = "delegate";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send.click();
    });
    form.append(task, to, send, told);
    root.append(element("summary", "", "Delegate a task"), form);
    return root;
  }

  /** @param {Activity[]} agents */
  #drawNames(agents) {
    const choice = /** @type {HTMLSelectElement | null | undefined} */ (this.#delegate?.querySelector("select"));
    if (!choice) return;
    const names = agents.slice(0, NAMES_MAX).map((it) => [it.activityId, words(it.content.agentName) || it.activityId]);
    keyed(choice, [["", "chosen by the runtime"], ...names], ([id]) => id, ([id]) => {
      const option = element("option");
      option.value = id;
      return option;
    }, (option, [, name]) => say(option, name));
  }

  #teamHead() {
    const head = teamHead();
    const told = element("p", "hint told");
    told.setAttribute("role", "status");
    const team = () => this.#teams.get(head);
    const workers = (/** @type {(agent: Activity) => boolean} */ which) => this.activities().filter((agent) => isOf(agent, team()) && which(agent)).map(({ activityId }) => activityId);
    // The coordinator merges, so it gets the request as its input.
    const merge = controlButton("Merge results", () => this.view, () => {
      const it = team();
      if (!it) return null;
      const run = beganBy(this.view, it);
      const coordinator = words(it.content.coordinator ?? run?.content.agentId);
      const value = { intent: "merge", teamId: it.activityId, agentIds: workers(({ content }) => content.status === "completed"), text: "Merge the results of the workers." };
      return coordinator ? { control: "continue_agent", ...ownerOf(it), agentId: coordinator, value } : { control: "send", ...ownerOf(it), value };
    }, { told });
    const retry = controlButton("Retry failed workers", () => this.view, () => {
      const it = team();
      const failed = workers(({ content }) => content.status === "failed" || content.status === "killed");
      return it ? { control: "retry", ...ownerOf(it), ...(failed.length === 1 ? { agentId: failed[0] } : {}), value: { teamId: it.activityId, agentIds: failed } } : null;
    }, { told });
    merge.dataset.does = "merge";
    retry.dataset.does = "retry";
    const foot = element("div", "row parallel");
    foot.append(merge, retry);
    head.append(foot, told);
    return head;
  }

  /**
   * @param {HTMLElement} head
   * @param {Activity} team
   */
  #changeTeam(head, team) {
    this.#teams.set(head, team);
    changeTeam(head, team);
    // A team without a live run does not look as if it went on.
    const run = beganBy(this.view, team);
    const phase = /** @type {HTMLElement} */ (head.querySelector(".phase"));
    if (run !== undefined && !isLiveRun(run) && phase.dataset.state === "running") phase.dataset.state = "stale";
    const workers = this.activities().filter((agent) => isOf(agent, team));
    const foot = /** @type {HTMLElement} */ (head.querySelector(".parallel"));
    const isParallel = words(team.content.topology) === "parallel_workers";
    foot.hidden = !isParallel || !this.view.isLive;
    /** @type {HTMLElement} */ (foot.querySelector('[data-does="merge"]')).hidden = !workers.some(({ content }) => content.status === "completed");
    // A session's own log takes a retry of one named teammate only; their cards have it.
    const failed = workers.filter(({ content }) => content.status === "failed" || content.status === "killed");
    /** @type {HTMLElement} */ (foot.querySelector('[data-does="retry"]')).hidden = failed.length === 0 || (team.runId === "" && failed.length > 1);
  }

  /** Its cards are the teammates; teams stand above them. */
  activities() {
    return super.activities().filter((it) => it.activityType === "agent");
  }

  /** @param {Activity[]} activities */
  arranged(activities) {
    const rank = (/** @type {Activity} */ { content }) => {
      const status = words(content.status);
      // What is over stands below.
      return FIRST.includes(status) ? 0 : OVER.includes(status) ? 2 : 1;
    };
    return activities.toSorted((a, b) => rank(a) - rank(b));
  }

  /** @param {Card} card */
  dress(card) {
    const control = (/** @type {string} */ name) => () => ({ control: name, ...ownerOf(card.activity), agentId: card.activity.activityId });
    const stop = controlButton("Stop", () => this.view, control("stop"), { kind: "danger", told: card.told });
    const wait = controlButton("Wait", () => this.view, control("wait"), { told: card.told });
    const retry = controlButton("Retry", () => this.view, control("retry"), { told: card.told });
    const close = controlButton("Close", () => this.view, control("close"), { kind: "quiet", told: card.told });
    wait.title = "Asks the runtime to wait for this teammate";
    for (const [button, name] of /** @type {[HTMLElement, string][]} */ ([[stop, "stop"], [wait, "wait"], [retry, "retry"], [close, "close"]])) button.dataset.does = name;
    card.foot.append(stop, wait, retry, close);
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fill(card, content) {
    const name = words(content.agentName) || card.activity.activityId;
    const old = card.title.parentElement?.querySelector(".face");
    if (card.root.dataset.face !== `${name} ${content.color}`) {
      card.root.dataset.face = `${name} ${content.color}`;
      old?.remove();
      card.title.before(face(name, content.color));
    }
    say(card.title, name);
    say(card.body, phrase(content.error?.message ?? content.summary ?? content.message));
    const isWithheld = content.withheld === true;
    tell(card.facts, [
      ["Role", content.role ?? (isWithheld ? "withheld from this audience" : "unknown")],
      ["Team", content.teamName],
      ["Topology", topologyOf(content)],
      ["Model", content.model],
      ["Source", content.source],
      ["Can", content.capabilityRef],
      ["May", content.policy],
      ["Last turn", content.latestTurnStatus && spoken(content.latestTurnStatus)],
      ["Waiting turns", content.queuedTurnCount],
      ["Why it waits", content.queueReason],
      ["Needs", content.inputNeeds ?? content.authNeeds],
      ["Task", content.taskId],
      ["Spawned by", content.parentSessionId && `session ${content.parentSessionId}${content.parentThreadId ? `, thread ${content.parentThreadId}` : ""}`],
      ["Spawned for", content.spawnReason],
      ["Used", content.usage],
      ["Transcript at", content.transcriptRef],
    ]);
    const session = words(content.sessionId);
    const isChild = session !== "" && content.parentSessionId !== undefined && session !== content.parentSessionId;
    const { activityId: id, runId } = card.activity;
    link(card.links, [
      { label: "transcript", words: name, go: () => this.view.open({ kind: "teammate", id, runId }) },
      ...(isChild ? [{ label: "session", words: session, go: () => this.view.open({ kind: "session", id: session }) }] : []),
    ]);
    const status = words(content.status);
    const isOver = OVER.includes(status);
    const run = beganBy(this.view, card.activity);
    const shown = { stop: canStop(this.view, card.activity), wait: !isOver && run !== undefined && isLiveRun(run), retry: status === "failed" || status === "killed", close: !isOver };
    for (const button of card.foot.querySelectorAll("button")) button.hidden = !shown[/** @type {keyof typeof shown} */ (button.dataset.does)];
  }
}

/**
 * Whether there is something to stop: after the end of its run, only a teammate that reports work.
 * @param {import("./base.js").View} view
 * @param {Activity} agent
 */
export function canStop(view, agent) {
  const run = beganBy(view, agent);
  const isRunLive = run === undefined || isLiveRun(run);
  return !OVER.includes(words(agent.content.status)) && (isRunLive || stateOf(standing(agent.content)) === "running");
}

/**
 * Whether a teammate is of a team: by the team's name or id, where the teammate names one.
 * @param {Activity} agent
 * @param {Activity | undefined} team
 */
function isOf({ content }, team) {
  const name = content.teamId ?? content.teamName;
  return team !== undefined && (name === undefined || name === team.activityId || name === team.content.teamName);
}

function teamHead() {
  const head = element("div", "team-head");
  const row = element("div", "spread");
  const name = element("p", "card-title");
  const badges = element("div", "row");
  badges.append(element("span", "badge phase"), element("span", "chip topology"));
  row.append(name, badges);
  const budget = element("div", "row budget");
  const meter = element("progress", "meter");
  budget.append(meter, element("span", "hint"));
  head.append(row, budget, element("dl", "facts"));
  return head;
}

/**
 * @param {HTMLElement} head
 * @param {Activity} team
 */
function changeTeam(head, team) {
  const { content } = team;
  const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (head.querySelector(name));
  head.dataset.key = keyOf(team);
  head.dataset.topology = words(content.topology);
  say(part(".card-title"), words(content.teamName) || team.activityId);
  mark(part(".phase"), content.teamPhase ?? content.status);
  say(part(".topology"), content.topology && content.topology !== "unknown" ? spoken(content.topology) : "topology unknown");
  const { teamActiveCount: active, teamParallelBudget: most, teamQueuedCount: queued } = content;
  const meter = /** @type {HTMLProgressElement} */ (part(".meter"));
  meter.hidden = typeof active !== "number" || typeof most !== "number" || most <= 0;
  if (!meter.hidden) {
    meter.max = most;
    meter.value = active;
    meter.setAttribute("aria-label", `Teammates at work in ${words(content.teamName) || team.activityId}`);
  }
  // Limits and queues are no failures: they are said as they are.
  const told = [
    typeof active === "number" ? `${active} at work` : "",
    typeof most === "number" ? `at most ${most} at once` : "",
    typeof queued === "number" ? `${queued} waiting` : "",
  ];
  say(part(".budget .hint"), told.filter(Boolean).join(", "));
  tell(/** @type {HTMLDListElement} */ (part(".facts")), [
    ["Coordinator", content.coordinator],
    ["Members", content.members ?? content.agents ?? content.roster],
    ["Queue", content.queueReason],
    ["Shared memory", content.memoryRefs],
    ["May", content.policy],
  ]);
}

define("ps-team-roster", TeamRoster);
