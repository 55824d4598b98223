/**
 * Reviews: requests, verdicts, their evidence, and requested fixes.
 */

import { define, element, updateChildren, setBadge, setText, humanize, displayedStatus } from "./base.js";
import { controlButton } from "./control-button.js";
import { UNKNOWN, findAgentName, controlTarget, formatValue, topologyOf } from "./facts.js";
import { artifactLinks, evidenceLinks, setLinks, refLinks, setFacts } from "./links.js";
import { Lane, setPreview } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** The maximum number of fixes listed; the rest is counted. */
const FIXES_MAX = 20;

export class ReviewLane extends Lane {
  static heading = "Reviews";

  /** @param {Activity} activity */
  static shows({ activityType }) {
    return activityType === "review";
  }

  /** @param {Activity} activity */
  statusOf({ content }) {
    return content.verdict ?? displayedStatus(content);
  }

  /** @param {Card} card */
  buildControls(card) {
    card.facts.after(element("p", "label fixes-label", "requested fixes"), element("ul", "fixes"));
    const requestAgain = () => ({ control: "request_review", ...controlTarget(card.activity), value: { reviewId: card.activity.activityId, target: card.activity.content.target, reviewer: card.activity.content.reviewer } });
    card.foot.append(controlButton("Request again", () => this.view, requestAgain, { feedback: card.feedback }));
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fillCard(card, content) {
    const isOpen = content.verdict === undefined || content.verdict === null;
    setText(card.title, formatValue(content.title ?? content.target) || "unknown target");
    if (!isOpen) setBadge(card.state, content.verdict);
    card.root.dataset.state = card.state.dataset.state;
    setText(card.body, formatValue(content.summary ?? content.reason));
    setPreview(card, [humanize(isOpen ? content.status : content.verdict), card.body.textContent].filter(Boolean).join(" · "));
    setFacts(card.facts, [
      ["Reviewer", findAgentName(this.view, card.activity, content.reviewer)],
      ["Target", content.target ?? UNKNOWN],
      ["Topology", topologyOf(content)],
      ["Verdict", content.withheld === true ? "withheld from this audience" : isOpen ? `none yet, ${humanize(content.status)}` : humanize(content.verdict)],
    ]);
    const evidence = content.evidenceRefs ?? content.evidenceId;
    setLinks(card.links, [
      ...evidenceLinks(this.view, card.activity, evidence),
      ...artifactLinks(this.view, card.activity, content.artifactRefs ?? content.artifactId),
      ...refLinks(this.view, content.refs),
    ]);
    const fixes = Array.isArray(content.requestedFixes) ? content.requestedFixes : content.requestedFixes ? [content.requestedFixes] : [];
    const [label, list] = ["fixes-label", "fixes"].map((name) => /** @type {HTMLElement} */ (card.root.getElementsByClassName(name)[0]));
    label.hidden = list.hidden = fixes.length === 0;
    const shown = fixes.length > FIXES_MAX ? [...fixes.slice(0, FIXES_MAX), `and ${fixes.length - FIXES_MAX} more`] : fixes;
    updateChildren(list, shown.map((fix, at) => ({ fix, at })), ({ at }) => String(at), () => element("li"), (item, { fix }) => setText(item, formatValue(fix)));
    for (const button of card.foot.querySelectorAll("button")) button.hidden = isOpen;
  }
}

define("ps-review-lane", ReviewLane);
