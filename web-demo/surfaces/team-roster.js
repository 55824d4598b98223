/**
 * The team: its topology and its teammates, each with its own name.
 */

import { define, element, updateChildren, setText, humanize, displayedStatus, stateOf, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./control-button.js";
import { isLiveRun } from "./live-run.js";
import { ENDED_STATUSES, runOf, controlTarget, formatValue, topologyOf } from "./facts.js";
import { setLinks, setFacts } from "./links.js";
import { Lane, setPreview } from "./lane.js";
import { usageOf } from "./spans.js";
import { TeamHead } from "./team-head.js";
import { formatCost, formatShortCount } from "../ui/format.js";
import { shownStatus } from "../ui/status.js";
import { html, nothing, render, repeat } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** The delay before the transcript's field gets the focus, in milliseconds. */
const MESSAGE_FOCUS_MS = 300;
/** The maximum number of teammates in the list for a delegation. */
const NAMES_MAX = 200;
/** A team of more teammates has a filter and an order. */
const SHORT_TEAM = 8;

/** @param {Activity} activity */
const nameOf = ({ activityId, content }) => toText(content.agentName) || activityId;

export class TeamRoster extends Lane {
  static heading = "Team";

  /** @param {Activity} activity */
  static shows({ activityType }) {
    // The end of a run decides whether a teammate can be stopped.
    return activityType === "agent" || activityType === "team" || activityType === "run";
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    super.update(changed);
    const teams = super.activities().filter((it) => it.activityType === "team");
    if (teams.length > 0) this.hidden = false;
    if (!this.top) return;
    if (this.#isLarge && !this.#filter) this.#loadFilter();
    render(html`${repeat(teams, keyOf, (team) => this.#headTemplate(team))}${this.#isLarge ? this.#filter?.template(this.activities()) : nothing}`, this.top);
    if (this.#delegateForm && this.#delegateForm.parentElement !== this) this.append(this.#delegateForm);
    if (this.#delegateForm) {
      this.#delegateForm.hidden = !this.view.isLive;
      this.#updateAgentOptions(this.#agents());
    }
  }

  build() {
    super.build();
    this.#heads.clear();
    this.#delegateForm = this.#createDelegateForm();
  }

  /** Loads with the first large team. @type {import("./team-filter.js").TeamFilter | undefined} */
  #filter;
  #isLoading = false;

  get #isLarge() {
    return this.#agents().length > SHORT_TEAM;
  }

  #loadFilter() {
    if (this.#isLoading) return;
    this.#isLoading = true;
    import("./team-filter.js").then(({ TeamFilter }) => {
      this.#filter = new TeamFilter(() => this.update(null));
      this.update(null);
    }, () => (this.#isLoading = false));
  }

  /** @type {HTMLElement | undefined} */
  #delegateForm;
  /** The heads of teams by the key of the team. @type {Map<string, TeamHead>} */
  #heads = new Map();

  /** @param {Activity} team */
  #headTemplate(team) {
    const head = this.#heads.get(keyOf(team)) ?? new TeamHead(() => this.view, team);
    this.#heads.set(keyOf(team), head);
    const isMember = (/** @type {Activity} */ agent) => isMemberOf(agent, team);
    return head.template(team, this.activities().filter(isMember), this.#agents().filter(isMember));
  }

  /** Creates the form that delegates a task to a teammate, or to one that the runtime chooses. */
  #createDelegateForm() {
    const root = element("details", "stack delegate");
    const form = element("form", "stack");
    const task = element("label", "field");
    const text = element("textarea");
    text.rows = 2;
    task.append(element("span", "", "Task"), text);
    const to = element("label", "field");
    to.append(element("span", "", "Teammate"), element("select", "input"));
    const feedback = element("p", "hint told");
    feedback.setAttribute("role", "status");
    const send = controlButton("Delegate", () => this.view, () => {
      if (text.value.trim() === "") return setText(feedback, "Enter a task."), null;
      const agentId = /** @type {HTMLSelectElement} */ (to.lastElementChild).value;
      const { runId, sessionId } = this.view;
      return { control: "delegate", ...(sessionId ? { session: sessionId } : { run: runId }), ...(agentId ? { agentId } : {}), value: { text: text.value.trim() } };
    }, { feedback, sent: () => (text.value = "") });
    send.dataset.does = "delegate";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send.click();
    });
    form.append(task, to, send, feedback);
    root.append(element("summary", "", "Delegate a task"), form);
    return root;
  }

  /** @param {Activity[]} agents */
  #updateAgentOptions(agents) {
    const choice = /** @type {HTMLSelectElement | null | undefined} */ (this.#delegateForm?.querySelector("select"));
    if (!choice) return;
    const names = agents.slice(0, NAMES_MAX).map((it) => [it.activityId, nameOf(it)]);
    updateChildren(choice, [["", "chosen by the runtime"], ...names], ([id]) => id, ([id]) => {
      const option = element("option");
      option.value = id;
      return option;
    }, (option, [, name]) => setText(option, name));
  }

  #agents() {
    return super.activities().filter((it) => it.activityType === "agent");
  }

  /** Teammates have cards, and so has the agent of the run that started them. Teams are above them. */
  activities() {
    const agents = this.#agents();
    const run = agents.length > 0 && this.view.runId ? this.view.store.get(keyOf({ runId: this.view.runId, activityType: "run", activityId: this.view.runId })) : undefined;
    const isCoordinator = run?.content.agentId !== undefined && agents.every(({ activityId }) => activityId !== run.content.agentId);
    return run && isCoordinator ? [run, ...agents] : agents;
  }

  /** @param {Activity[]} activities */
  arrange(activities) {
    // Those that wait for the user come first, ended ones last.
    const sorted = activities.toSorted((a, b) => rankOf(a) - rankOf(b));
    return this.#isLarge && this.#filter ? this.#filter.apply(sorted) : sorted;
  }

  /** @param {Card} card */
  buildControls(card) {
    const control = (/** @type {string} */ name) => () => ({ control: name, ...controlTarget(card.activity), agentId: card.activity.activityId });
    const stop = controlButton("Stop", () => this.view, control("stop"), { kind: "danger", feedback: card.feedback });
    const wait = controlButton("Wait", () => this.view, control("wait"), { feedback: card.feedback });
    const retry = controlButton("Retry", () => this.view, control("retry"), { feedback: card.feedback });
    const close = controlButton("Close", () => this.view, control("close"), { kind: "quiet", feedback: card.feedback });
    wait.title = "Asks the runtime to wait for this teammate";
    for (const [button, name] of /** @type {[HTMLElement, string][]} */ ([[stop, "stop"], [wait, "wait"], [retry, "retry"], [close, "close"]])) button.dataset.does = name;
    card.foot.append(stop, wait, retry, close);
    const open = () => this.view.open({ kind: "teammate", id: card.activity.activityId, runId: card.activity.runId });
    const transcript = element("button", "button small", "Open transcript");
    const message = element("button", "button small message", "Message");
    for (const button of [transcript, message]) button.type = "button";
    transcript.addEventListener("click", open);
    message.addEventListener("click", () => {
      open();
      // The transcript may have to load first.
      setTimeout(() => /** @type {HTMLElement | null} */ (document.querySelector("ps-teammate-transcript .write input"))?.focus(), MESSAGE_FOCUS_MS);
    });
    const reading = element("div", "row reading");
    reading.append(transcript, message);
    card.foot.before(reading);
  }

  /**
   * Fills in the row of the run's own agent. The composer talks to it.
   * @param {Card} card
   * @param {Record<string, any>} content Of the run.
   */
  #fillCoordinator(card, content) {
    const { activity } = card;
    const agentId = toText(content.agentId);
    const isAsking = this.view.store.sorted((it) => it.activityType === "action" && it.runId === activity.runId && it.content.status === "pending").length > 0;
    const team = super.activities().find((it) => it.activityType === "team" && it.content.coordinator === agentId);
    const { tokens, cost } = usageOf(content);
    setText(card.title, agentId);
    setText(card.body, "");
    setPreview(card, isAsking ? "waiting for your decision" : toText(content.message) || humanize(displayedStatus(content)));
    setFacts(card.facts, [
      ["Role", team ? `coordinator of ${toText(team.content.teamName) || team.activityId}` : undefined],
      ["Used", [formatCost(cost), tokens === undefined ? "" : `${formatShortCount(tokens)} tokens`].filter(Boolean).join(" · ")],
      ["Run", activity.runId],
    ]);
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fillCard(card, content) {
    const isRun = card.activity.activityType === "run";
    for (const part of card.opened.querySelectorAll(".reading, .card-foot > *")) /** @type {HTMLElement} */ (part).hidden = isRun;
    if (isRun) return this.#fillCoordinator(card, content);
    setText(card.title, nameOf(card.activity));
    setText(card.body, formatValue(content.error?.message ?? content.summary ?? content.message));
    setPreview(card, card.body.textContent || formatValue(content.spawnReason) || humanize(displayedStatus(content)));
    const { tokens, cost } = usageOf(content);
    const isWithheld = content.withheld === true;
    setFacts(card.facts, [
      ["Role", content.role ?? (isWithheld ? "withheld from this audience" : "unknown")],
      ["Task", content.taskId],
      ["May", content.policy],
      ["Used", [formatCost(cost), tokens === undefined ? "" : `${formatShortCount(tokens)} tokens`, toText(content.model)].filter(Boolean).join(" · ")],
      ["Team", content.teamName],
      ["Topology", topologyOf(content)],
      ["Source", content.source],
      ["Capability", content.capabilityRef],
      ["Last turn", content.latestTurnStatus && humanize(content.latestTurnStatus)],
      ["Queued turns", content.queuedTurnCount],
      ["Queue reason", content.queueReason],
      ["Needs", content.inputNeeds ?? content.authNeeds],
      ["Spawned by", content.parentSessionId && `session ${content.parentSessionId}${content.parentThreadId ? `, thread ${content.parentThreadId}` : ""}`],
      ["Spawn reason", content.spawnReason],
      ["Usage", tokens === undefined && cost === undefined ? content.usage : undefined],
      ["Transcript", content.transcriptRef],
    ]);
    const session = toText(content.sessionId);
    const isChild = session !== "" && content.parentSessionId !== undefined && session !== content.parentSessionId;
    setLinks(card.links, [
      ...(isChild ? [{ label: "session", words: session, go: () => this.view.open({ kind: "session", id: session }) }] : []),
    ]);
    const status = toText(content.status);
    const hasEnded = ENDED_STATUSES.includes(status);
    /** @type {HTMLElement} */ (card.root.querySelector(".message")).hidden = hasEnded || !this.view.isLive;
    const run = runOf(this.view, card.activity);
    const shown = { stop: canStop(this.view, card.activity), wait: !hasEnded && run !== undefined && isLiveRun(run), retry: status === "failed" || status === "killed", close: !hasEnded };
    for (const button of card.foot.querySelectorAll("button")) button.hidden = !shown[/** @type {keyof typeof shown} */ (button.dataset.does)];
  }
}

/** @param {Activity} activity */
function rankOf({ activityType, content }) {
  if (activityType === "run") return -1;
  return shownStatus(displayedStatus(content)) === "waiting" ? 0 : ENDED_STATUSES.includes(toText(content.status)) ? 2 : 1;
}

/**
 * Whether a teammate can be stopped: after the end of its run only if it still reports work.
 * @param {import("./base.js").View} view
 * @param {Activity} agent
 */
export function canStop(view, agent) {
  const run = runOf(view, agent);
  const isRunLive = run === undefined || isLiveRun(run);
  return !ENDED_STATUSES.includes(toText(agent.content.status)) && (isRunLive || stateOf(displayedStatus(agent.content)) === "running");
}

/**
 * Whether a teammate belongs to a team, by the team's name or id. A teammate without either belongs to every team.
 * @param {Activity} agent
 * @param {Activity | undefined} team
 */
function isMemberOf({ content }, team) {
  const name = content.teamId ?? content.teamName;
  return team !== undefined && (name === undefined || name === team.activityId || name === team.content.teamName);
}

define("ps-team-roster", TeamRoster);
