/**
 * Background teammates: those with a schedule or a trigger, with their last run.
 */

import { define, setText, humanize, toText } from "./base.js";
import { controlButton } from "./control-button.js";
import { UNKNOWN, findAgentName, controlTarget, formatValue, topologyOf } from "./facts.js";
import { setLinks, refLinks, setFacts } from "./links.js";
import { Lane, setPreview } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** Statuses in which nothing runs that could be stopped. */
const STOPPED_STATUSES = ["paused", "failed", "completed", "cancelled", "closed", "killed"];

export class BackgroundTeammates extends Lane {
  static heading = "Background teammates";

  /** @param {Activity} activity */
  static shows({ activityType, surface, content }) {
    return (activityType === "task" && surface === "background_teammate") || (activityType === "agent" && content.runtimeEntity === "automation_job");
  }

  /** @param {Card} card */
  buildControls(card) {
    const control = (/** @type {string} */ name) => () => ({ control: name, ...controlTarget(card.activity), ...subjectOf(card.activity) });
    const stop = controlButton("Stop", () => this.view, control("stop"), { kind: "danger", feedback: card.feedback });
    const retry = controlButton("Run again", () => this.view, control("retry"), { feedback: card.feedback });
    stop.dataset.control = "stop";
    retry.dataset.control = "retry";
    card.foot.append(stop, retry);
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fillCard(card, content) {
    setText(card.title, formatValue(content.title ?? content.agentName) || card.activity.activityId);
    setText(card.body, formatValue(content.error?.message ?? content.summary ?? content.message ?? content.reason));
    setPreview(card, card.body.textContent || formatValue(content.schedule) || humanize(content.status));
    const agent = content.agentId ?? content.assignee;
    setFacts(card.facts, [
      ["Teammate", agent === undefined ? (card.activity.activityType === "agent" ? undefined : UNKNOWN) : findAgentName(this.view, card.activity, agent)],
      ["Schedule", content.schedule ?? (content.wakeReason === undefined ? UNKNOWN : undefined)],
      ["Wake reason", content.wakeReason],
      ["Blocked by", content.blocker],
      ["Topology", topologyOf(content)],
      ["Last run", content.lastRunRef ?? "none"],
      ["Failed attempts", Array.isArray(content.attempts) ? content.attempts.length : undefined],
      ["Attempts", content.attemptCount],
      ["Last turn", content.latestTurnStatus && humanize(content.latestTurnStatus)],
    ]);
    const run = typeof content.lastRunRef === "string" ? content.lastRunRef : toText(content.lastRunRef?.runId);
    setLinks(card.links, [
      ...(run ? [{ label: "last run", words: run, go: () => this.view.open({ kind: "run", id: run.replace(/^(?:\/v1)?\/?runs\//, "") }) }] : []),
      ...refLinks(this.view, content.refs),
    ]);
    const isStopped = STOPPED_STATUSES.includes(toText(content.status));
    for (const button of card.foot.querySelectorAll("button")) button.hidden = (button.dataset.control === "stop") === isStopped;
  }
}

/**
 * Returns the subject of an activity's controls.
 * @param {Activity} activity
 */
const subjectOf = (activity) => (activity.activityType === "agent" ? { agentId: activity.activityId } : { taskId: activity.activityId });

define("ps-background-teammates", BackgroundTeammates);
