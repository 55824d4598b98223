/**
 * Who has the work now, and who gave it to whom, why, and with how much of what was known. What was said before stays said by
 * whoever said it.
 */

import { define, element, setText, toText } from "./base.js";
import { Lane, UNKNOWN, setLinks, findAgentName, refLinks, setFacts, topologyOf } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** Statuses with which somebody else has it. */
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
    if (ownerName) setText(this.owner, `Now with ${ownerName}`);
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fillCard(card, content) {
    const [from, to] = [content.from, content.to].map((who) => findAgentName(this.view, card.activity, who));
    setText(card.title, `${from} → ${to}`);
    card.title.setAttribute("aria-label", `From ${from} to ${to}`);
    setText(card.body, toText(content.summary));
    setFacts(card.facts, [
      ["Why", content.reason ?? UNKNOWN],
      ["Goes on at", content.resumeTarget ?? UNKNOWN],
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
