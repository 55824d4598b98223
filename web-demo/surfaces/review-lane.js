/**
 * What reviewers and verifiers are asked, and their verdicts: on what each rests, and what has to be changed.
 */

import { define, element, keyed, mark, say, spoken } from "./base.js";
import { controlButton } from "./handed.js";
import { Lane, UNKNOWN, artifactsOf, evidenceOf, link, nameOf, ownerOf, phrase, refsOf, tell, topologyOf } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** Fixes that are listed; the rest is counted. */
const FIXES_MAX = 20;

export class ReviewLane extends Lane {
  static heading = "Reviews";

  /** @param {Activity} activity */
  static shows({ activityType }) {
    return activityType === "review";
  }

  /** @param {Card} card */
  dress(card) {
    card.facts.after(element("p", "label fixes-label", "requested fixes"), element("ul", "fixes"));
    const again = () => ({ control: "request_review", ...ownerOf(card.activity), value: { reviewId: card.activity.activityId, target: card.activity.content.target, reviewer: card.activity.content.reviewer } });
    card.foot.append(controlButton("Ask again", () => this.view, again, { told: card.told }));
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fill(card, content) {
    const isOpen = content.verdict === undefined || content.verdict === null;
    say(card.title, phrase(content.title ?? content.target) || "unknown target");
    if (!isOpen) mark(card.state, content.verdict);
    card.root.dataset.state = card.state.dataset.state;
    say(card.body, phrase(content.summary ?? content.reason));
    tell(card.facts, [
      ["Reviewer", nameOf(this.view, card.activity, content.reviewer)],
      ["Target", content.target ?? UNKNOWN],
      ["Topology", topologyOf(content)],
      ["Verdict", content.withheld === true ? "withheld from this audience" : isOpen ? `none yet, ${spoken(content.status)}` : spoken(content.verdict)],
    ]);
    const evidence = content.evidenceRefs ?? content.evidenceId;
    link(card.links, [
      ...evidenceOf(this.view, card.activity, evidence),
      ...artifactsOf(this.view, card.activity, content.artifactRefs ?? content.artifactId),
      ...refsOf(this.view, content.refs),
    ]);
    const fixes = Array.isArray(content.requestedFixes) ? content.requestedFixes : content.requestedFixes ? [content.requestedFixes] : [];
    const [label, list] = ["fixes-label", "fixes"].map((name) => /** @type {HTMLElement} */ (card.root.getElementsByClassName(name)[0]));
    label.hidden = list.hidden = fixes.length === 0;
    const said = fixes.length > FIXES_MAX ? [...fixes.slice(0, FIXES_MAX), `and ${fixes.length - FIXES_MAX} more`] : fixes;
    keyed(list, said.map((fix, at) => ({ fix, at })), ({ at }) => String(at), () => element("li"), (item, { fix }) => say(item, phrase(fix)));
    for (const button of card.foot.querySelectorAll("button")) button.hidden = isOpen;
  }
}

define("ps-review-lane", ReviewLane);
