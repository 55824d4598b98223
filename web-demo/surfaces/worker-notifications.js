/**
 * Reports of workers to the coordinator. They are neither the viewer's messages nor the coordinator's answer, and their
 * look differs from both.
 */

import { define, formatDuration, element, joinText, setText, humanize, toText } from "./base.js";
import { UNKNOWN, findAgentName, formatValue } from "./facts.js";
import { artifactLinks, evidenceLinks, setLinks, refLinks, setFacts } from "./links.js";
import { Lane } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** The maximum length of a report, in characters. */
const SUMMARY_CHARS_MAX = 2000;

export class WorkerNotifications extends Lane {
  static heading = "Worker reports";
  static hint = "From workers to the coordinator. Not part of the conversation.";

  /** @param {Activity} activity */
  static shows({ activityType }) {
    return activityType === "worker-notification";
  }

  /** @param {Card} card */
  buildControls(card) {
    card.root.dataset.kind = "worker-notification";
    card.title.after(element("span", "label", "worker report"));
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fillCard(card, content) {
    setText(card.title, toText(content.agentName) || (content.agentId ? findAgentName(this.view, card.activity, content.agentId) : "unknown worker"));
    const summary = formatValue(content.summary) || joinText(content.text);
    setText(card.body, summary.length > SUMMARY_CHARS_MAX ? `${summary.slice(0, SUMMARY_CHARS_MAX)}…` : summary || "no summary");
    setFacts(card.facts, [
      ["Task", content.taskId ?? UNKNOWN],
      ["Error", content.error?.message ?? content.error],
      ["Duration", content.durationMs === undefined ? undefined : formatDuration(content.durationMs)],
      ["Tools", content.toolCount],
      ["Usage", content.usage],
      ["Team", content.teamName],
      ["Kind", content.runtimeEntity && humanize(content.runtimeEntity)],
      ["Parent session", content.parentSessionId],
    ]);
    setLinks(card.links, [
      ...(content.agentId ? [{ label: "transcript", words: toText(content.transcriptRef) || content.agentId, go: () => this.view.open({ kind: "teammate", id: content.agentId, runId: card.activity.runId }) }] : []),
      ...refLinks(this.view, content.resultRef, "result"),
      ...artifactLinks(this.view, card.activity, content.artifactRefs),
      ...evidenceLinks(this.view, card.activity, content.evidenceRefs),
      ...refLinks(this.view, content.refs),
    ]);
  }
}

define("ps-worker-notifications", WorkerNotifications);
