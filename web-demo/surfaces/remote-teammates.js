/**
 * Teammates of another house: what they can do, how their task stands by their own word, and what they have to be told or allowed.
 */

import { define, element, say, words } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./handed.js";
import { Lane, UNKNOWN, link, ownerOf, phrase, refsOf, tell, topologyOf } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** What has to be told or allowed stands first. */
const FIRST = ["input_required", "auth_required"];
/** The only statuses with which a remote task is over: one quiet moment is none. */
const OVER = ["completed", "failed", "canceled", "cancelled", "rejected"];

export class RemoteTeammates extends Lane {
  static heading = "Remote teammates";

  /** @param {Activity} activity */
  static shows({ activityType, surface, content }) {
    if (activityType === "task") return surface === "remote_teammate";
    if (activityType === "agent") return content.runtimeEntity === "external_task" || content.remoteTaskId !== undefined || content.capabilityRef !== undefined;
    return activityType === "artifact" && content.remoteTaskId !== undefined;
  }

  /** Its cards are the tasks and teammates; what they made stands with them. */
  activities() {
    return super.activities().filter((it) => it.activityType !== "artifact");
  }

  /** @param {Activity[]} activities */
  arranged(activities) {
    const rank = (/** @type {Activity} */ { content }) => (FIRST.includes(words(content.status)) ? 0 : 1);
    return activities.toSorted((a, b) => rank(a) - rank(b));
  }

  /** @param {Card} card */
  dress(card) {
    const needs = element("p", "note needs");
    needs.dataset.state = "waiting";
    card.body.before(needs);
    const control = () => ({ control: "stop", ...ownerOf(card.activity), ...(card.activity.activityType === "agent" ? { agentId: card.activity.activityId } : { taskId: card.activity.activityId }) });
    card.foot.append(controlButton("Stop", () => this.view, control, { kind: "danger", told: card.told }));
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fill(card, content) {
    const status = words(content.status);
    say(card.title, phrase(content.title ?? content.agentName) || card.activity.activityId);
    say(card.body, phrase(content.error?.message ?? content.summary ?? content.message));
    const needs = /** @type {HTMLElement} */ (card.root.querySelector(".needs"));
    const asked = [
      content.inputNeeds !== undefined || status === "input_required" ? `Needs input: ${phrase(content.inputNeeds) || UNKNOWN}` : "",
      content.authNeeds !== undefined || status === "auth_required" ? `Needs authorisation: ${phrase(content.authNeeds) || UNKNOWN}` : "",
    ].filter(Boolean);
    needs.hidden = asked.length === 0 || OVER.includes(status);
    say(needs, asked.join(" · "));
    const remote = phrase(content.remoteTaskId ?? (card.activity.activityType === "task" ? card.activity.activityId : undefined));
    tell(card.facts, [
      ["Remote task", remote || UNKNOWN],
      ["Capability", content.capabilityRef ?? UNKNOWN],
      ["Teammate", content.agentId],
      ["Topology", topologyOf(content)],
      ["Session", content.sessionId],
      ["Parent session", content.parentSessionId],
    ]);
    const agent = card.activity.activityType === "agent" ? card.activity.activityId : words(content.agentId);
    const made = super.activities().filter((it) => it.activityType === "artifact" && phrase(it.content.remoteTaskId) === remote);
    link(card.links, [
      ...(agent ? [{ label: "messages", words: agent, go: () => this.view.open({ kind: "teammate", id: agent, runId: card.activity.runId }) }] : []),
      ...made.map((it) => ({ label: "artifact", words: phrase(it.content.title) || it.activityId, go: () => this.view.open({ kind: "artifact", id: it.activityId, runId: it.runId }) })),
      ...refsOf(this.view, content.refs),
    ]);
    card.root.dataset.task = keyOf(card.activity);
    for (const button of card.foot.querySelectorAll("button")) button.hidden = OVER.includes(status);
  }
}

define("ps-remote-teammates", RemoteTeammates);
