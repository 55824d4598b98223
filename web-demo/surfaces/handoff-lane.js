/**
 * Hand-offs: from whom to whom, why, and with which context. Messages from before a hand-off keep their author.
 */

import { define, element, setText, toText } from "./base.js";
import { UNKNOWN, findAgentName, topologyOf } from "./facts.js";
import { setLinks, refLinks, setFacts } from "./links.js";
import { Lane, setPreview } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** Statuses in which the recipient owns the work. */
const ACCEPTED_STATUSES = ["accepted", "active", "resumed"];

export class HandoffLane extends Lane {
  static heading = "Hand-offs";

  /** @param {Activity} activity */
  static shows({ activityType }) {
    return activityType === "handoff";
  }

  build() {
    super.build();
    this.owner = element("p", "note owner");
    this.owner.dataset.state = "running";
    this.top?.append(this.owner);
  }

  /** @param {Activity[]} all Newest first. */
  drawSummary(all) {
    if (!this.owner) return;
    const last = all.find(({ content }) => ACCEPTED_STATUSES.includes(toText(content.status)) || content.status === "returned");
    const ownerName = last && findAgentName(this.view, last, last.content.status === "returned" ? last.content.from : last.content.to);
    this.owner.hidden = !ownerName;
    if (ownerName) setText(this.owner, `Current owner: ${ownerName}`);
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fillCard(card, content) {
    const [from, to] = [content.from, content.to].map((who) => findAgentName(this.view, card.activity, who));
    setText(card.title, `${from} → ${to}`);
    setText(card.body, toText(content.summary));
    setPreview(card, toText(content.reason) || card.body.textContent || "");
    setFacts(card.facts, [
      ["Reason", content.reason ?? UNKNOWN],
      ["Resumes at", content.resumeTarget ?? UNKNOWN],
      ["Memory", content.memoryBoundary ?? UNKNOWN],
      ["Context", content.contextBoundary ?? UNKNOWN],
      ["Accepted", content.acceptedAt ?? content.acceptedTime ?? "not yet"],
      ["Topology", topologyOf(content)],
      ["Task", content.taskId],
      ["Parent session", content.parentSessionId],
      ["Parent thread", content.parentThreadId],
    ]);
    setLinks(card.links, refLinks(this.view, content.refs));
  }
}

define("ps-handoff-lane", HandoffLane);
