/**
 * Remote teammates: their capabilities, the reported status of their tasks, and the input or authorization that they
 * need.
 */

import { define, element, setText, humanize, displayedStatus, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./control-button.js";
import { UNKNOWN, controlTarget, formatValue, topologyOf } from "./facts.js";
import { setLinks, refLinks, setFacts } from "./links.js";
import { Lane, setPreview } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** Statuses that need a person; these cards come first. */
const NEEDS_ACTION = ["input_required", "auth_required"];
/** Final statuses of a remote task. Silence is not one. */
const ENDED_TASK_STATUSES = ["completed", "failed", "canceled", "cancelled", "rejected"];

export class RemoteTeammates extends Lane {
  static heading = "Remote teammates";

  /** @param {Activity} activity */
  static shows({ activityType, surface, content }) {
    if (activityType === "task") return surface === "remote_teammate";
    if (activityType === "agent") return content.runtimeEntity === "external_task" || content.remoteTaskId !== undefined || content.capabilityRef !== undefined;
    return activityType === "artifact" && content.remoteTaskId !== undefined;
  }

  /** Tasks and teammates have cards; artifacts are links on these. */
  activities() {
    return super.activities().filter((it) => it.activityType !== "artifact");
  }

  /** @param {Activity[]} activities */
  arrange(activities) {
    const rank = (/** @type {Activity} */ { content }) => (NEEDS_ACTION.includes(toText(content.status)) ? 0 : 1);
    return activities.toSorted((a, b) => rank(a) - rank(b));
  }

  /** @param {Card} card */
  buildControls(card) {
    const needs = element("p", "note needs");
    needs.dataset.state = "waiting";
    card.body.before(needs);
    const control = () => ({ control: "stop", ...controlTarget(card.activity), ...(card.activity.activityType === "agent" ? { agentId: card.activity.activityId } : { taskId: card.activity.activityId }) });
    card.foot.append(controlButton("Stop", () => this.view, control, { kind: "danger", feedback: card.feedback }));
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fillCard(card, content) {
    const status = toText(content.status);
    setText(card.title, formatValue(content.title ?? content.agentName) || card.activity.activityId);
    setText(card.body, formatValue(content.error?.message ?? content.summary ?? content.message));
    const needs = /** @type {HTMLElement} */ (card.root.querySelector(".needs"));
    const needTexts = [
      content.inputNeeds !== undefined || status === "input_required" ? `Needs input: ${formatValue(content.inputNeeds) || UNKNOWN}` : "",
      content.authNeeds !== undefined || status === "auth_required" ? `Needs authorization: ${formatValue(content.authNeeds) || UNKNOWN}` : "",
    ].filter(Boolean);
    needs.hidden = needTexts.length === 0 || ENDED_TASK_STATUSES.includes(status);
    setText(needs, needTexts.join(" · "));
    setPreview(card, needs.hidden ? card.body.textContent || humanize(displayedStatus(content)) : needTexts.join(" · "));
    const remote = formatValue(content.remoteTaskId ?? (card.activity.activityType === "task" ? card.activity.activityId : undefined));
    setFacts(card.facts, [
      ["Remote task", remote || UNKNOWN],
      ["Capability", content.capabilityRef ?? UNKNOWN],
      ["Teammate", content.agentId],
      ["Topology", topologyOf(content)],
      ["Session", content.sessionId],
      ["Parent session", content.parentSessionId],
    ]);
    const agent = card.activity.activityType === "agent" ? card.activity.activityId : toText(content.agentId);
    const artifacts = super.activities().filter((it) => it.activityType === "artifact" && formatValue(it.content.remoteTaskId) === remote);
    setLinks(card.links, [
      ...(agent ? [{ label: "messages", words: agent, go: () => this.view.open({ kind: "teammate", id: agent, runId: card.activity.runId }) }] : []),
      ...artifacts.map((it) => ({ label: "artifact", words: formatValue(it.content.title) || it.activityId, go: () => this.view.open({ kind: "artifact", id: it.activityId, runId: it.runId }) })),
      ...refLinks(this.view, content.refs),
    ]);
    card.root.dataset.task = keyOf(card.activity);
    for (const button of card.foot.querySelectorAll("button")) button.hidden = ENDED_TASK_STATUSES.includes(status);
  }
}

define("ps-remote-teammates", RemoteTeammates);
