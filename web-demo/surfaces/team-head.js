/**
 * The head of a team: who is at work, its cost, its topology and phase, and the controls of its workers.
 */

import { displayedStatus, element, humanize, stateOf, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./control-button.js";
import { isLiveRun } from "./live-run.js";
import { controlTarget, runOf } from "./facts.js";
import { factsTemplate } from "./links.js";
import { sumUsage, usageOf } from "./spans.js";
import { formatCost } from "../ui/format.js";
import { shownStatus } from "../ui/status.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/** @param {Activity} agent */
const hasFailed = ({ content }) => content.status === "failed" || content.status === "killed";

export class TeamHead {
  #view;
  #team;
  /** @type {Activity[]} */
  #workers = [];
  #feedback = element("p", "hint told");
  #merge;
  #retry;

  /**
   * @param {() => View} view
   * @param {Activity} team
   */
  constructor(view, team) {
    this.#view = view;
    this.#team = team;
    this.#feedback.setAttribute("role", "status");
    this.#merge = controlButton("Merge results", view, () => this.#mergeControl(), { feedback: this.#feedback });
    this.#retry = controlButton("Retry failed workers", view, () => this.#retryControl(), { feedback: this.#feedback });
    this.#merge.dataset.does = "merge";
    this.#retry.dataset.does = "retry";
  }

  /** The coordinator merges, so the request is sent to it. */
  #mergeControl() {
    const team = this.#team;
    const coordinator = toText(team.content.coordinator ?? runOf(this.#view(), team)?.content.agentId);
    const agentIds = this.#workers.filter(({ content }) => content.status === "completed").map(({ activityId }) => activityId);
    const value = { intent: "merge", teamId: team.activityId, agentIds, text: "Merge the results of the workers." };
    return coordinator ? { control: "continue_agent", ...controlTarget(team), agentId: coordinator, value } : { control: "send", ...controlTarget(team), value };
  }

  #retryControl() {
    const failed = this.#workers.filter(hasFailed).map(({ activityId }) => activityId);
    return { control: "retry", ...controlTarget(this.#team), ...(failed.length === 1 ? { agentId: failed[0] } : {}), value: { teamId: this.#team.activityId, agentIds: failed } };
  }

  /**
   * @param {Activity} team
   * @param {Activity[]} members With the agent of the run.
   * @param {Activity[]} workers
   */
  template(team, members, workers) {
    this.#team = team;
    this.#workers = workers;
    const { content } = team;
    const view = this.#view();
    const name = toText(content.teamName) || team.activityId;
    // The budget is the source's; the cost is what its agents reported.
    const { cost } = sumUsage(members.map((agent) => usageOf(agent.content)));
    const budget = content.policy?.budgetUsd ?? content.budgetUsd;
    const hasBudget = typeof budget === "number" && budget > 0;
    // The phase of a team without a live run is stale.
    const run = runOf(view, team);
    const phase = content.teamPhase ?? content.status;
    const state = run !== undefined && !isLiveRun(run) && stateOf(phase) === "running" ? "stale" : stateOf(phase);
    const facts = factsTemplate([["Coordinator", content.coordinator], ["Members", content.members ?? content.agents ?? content.roster], ["Queue", content.queueReason], ["Shared memory", content.memoryRefs], ["Policy", content.policy]]);
    return html`<div class="team-head" data-key=${keyOf(team)} data-topology=${toText(content.topology)}>
      <div class="team-line"><b class="card-title">${name}</b><span class="team-counts hint">${countsOf(members)}</span><span class="team-cost">${cost === undefined ? "" : hasBudget ? `${formatCost(cost)} of ${formatCost(budget)}` : formatCost(cost)}</span></div>
      ${hasBudget && cost !== undefined ? html`<progress class="meter" max=${budget} .value=${cost} aria-label="Cost of ${name}"></progress>` : nothing}
      <p class="hint about budget"><span class="topology">${content.topology && content.topology !== "unknown" ? humanize(content.topology) : "topology unknown"}</span><span class="badge phase" data-state=${state} data-status=${toText(phase) || "unknown"}>${humanize(phase)}</span><span class="hint">${limitsOf(content)}</span></p>
      ${facts === nothing ? nothing : html`<details class="team-more"><summary>Team details</summary>${facts}</details>`}
      ${toText(content.topology) === "parallel_workers" && view.isLive ? this.#controls() : nothing}${this.#feedback}</div>`;
  }

  #controls() {
    const failed = this.#workers.filter(hasFailed).length;
    // In a session's own log a retry names exactly one teammate; several are retried from their cards.
    const canRetry = failed > 0 && (this.#team.runId !== "" || failed === 1);
    return html`<div class="row parallel">${this.#workers.some(({ content }) => content.status === "completed") ? this.#merge : nothing}${canRetry ? this.#retry : nothing}</div>`;
  }
}

/** @param {Activity[]} members */
function countsOf(members) {
  const statuses = members.map((agent) => shownStatus(displayedStatus(agent.content)));
  const words = /** @type {const} */ ([["running", "at work"], ["waiting", "waiting"], ["failed", "failed"]]);
  return words.map(([status, word]) => [statuses.filter((one) => one === status).length, word]).filter(([many]) => many).map((pair) => pair.join(" ")).join(" · ");
}

/** Limits and queues are not failures. @param {Record<string, any>} content */
const limitsOf = ({ teamActiveCount: active, teamParallelBudget: most, teamQueuedCount: queued }) => [
  typeof active === "number" ? `${active} active` : "",
  typeof most === "number" ? `at most ${most} at once` : "",
  typeof queued === "number" ? `${queued} queued` : "",
].filter(Boolean).join(", ");
