/**
 * Who has the work now, and who gave it to whom, why, and with how much of what was known. What was said before stays said by
 * whoever said it.
 */

import { define, element, say, words } from "./base.js";
import { Lane, UNKNOWN, link, nameOf, refsOf, tell, topologyOf } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** Statuses with which somebody else has it. */
const HAS_IT = ["accepted", "active", "resumed"];

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
  summed(all) {
    if (!this.owner) return;
    const last = all.find(({ content }) => HAS_IT.includes(words(content.status)) || content.status === "returned");
    const holder = last && nameOf(this.view, last, last.content.status === "returned" ? last.content.from : last.content.to);
    this.owner.hidden = !holder;
    if (holder) say(this.owner, `Now with ${holder}`);
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fill(card, content) {
    const [from, to] = [content.from, content.to].map((who) => nameOf(this.view, card.activity, who));
    say(card.title, `${from} → ${to}`);
    card.title.setAttribute("aria-label", `From ${from} to ${to}`);
    say(card.body, words(content.summary));
    tell(card.facts, [
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
    link(card.links, refsOf(this.view, content.refs));
  }
}

define("ps-handoff-lane", HandoffLane);
