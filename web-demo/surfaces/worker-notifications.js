/**
 * What workers report to the coordinator. None of it is the viewer's word, or the coordinator's answer, whatever channel brought
 * it: each says so, and looks like neither.
 */

import { define, duration, element, joined, say, spoken, words } from "./base.js";
import { Lane, UNKNOWN, artifactsOf, evidenceOf, face, link, nameOf, phrase, refsOf, tell } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** Characters of a report's own words. */
const WORDS_CHARS_MAX = 2000;

export class WorkerNotifications extends Lane {
  static heading = "Worker reports";
  static hint = "From workers to the coordinator: neither your words nor the answer.";

  /** @param {Activity} activity */
  static shows({ activityType }) {
    return activityType === "worker-notification";
  }

  /** @param {Card} card */
  dress(card) {
    card.root.dataset.kind = "worker-notification";
    card.title.before(face("⚙"));
    card.title.after(element("span", "label", "worker report"));
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fill(card, content) {
    say(card.title, words(content.agentName) || (content.agentId ? nameOf(this.view, card.activity, content.agentId) : "unknown worker"));
    const summary = phrase(content.summary) || joined(content.text);
    say(card.body, summary.length > WORDS_CHARS_MAX ? `${summary.slice(0, WORDS_CHARS_MAX)}…` : summary || "no summary");
    tell(card.facts, [
      ["Task", content.taskId ?? UNKNOWN],
      ["Error", content.error?.message ?? content.error],
      ["Took", content.durationMs === undefined ? undefined : duration(content.durationMs)],
      ["Tools", content.toolCount],
      ["Used", content.usage],
      ["Team", content.teamName],
      ["Kind", content.runtimeEntity && spoken(content.runtimeEntity)],
      ["Parent session", content.parentSessionId],
    ]);
    link(card.links, [
      ...(content.agentId ? [{ label: "transcript", words: words(content.transcriptRef) || content.agentId, go: () => this.view.open({ kind: "teammate", id: content.agentId, runId: card.activity.runId }) }] : []),
      ...refsOf(this.view, content.resultRef, "result"),
      ...artifactsOf(this.view, card.activity, content.artifactRefs),
      ...evidenceOf(this.view, card.activity, content.evidenceRefs),
      ...refsOf(this.view, content.refs),
    ]);
  }
}

define("ps-worker-notifications", WorkerNotifications);
