/**
 * The subject of a decision: artifact, version and diff, plan, evidence and references. The card shows it so that a
 * person sees what they approve.
 */

import { createBadge, element, keyOf, setText, toText } from "./base.js";
import { readDiff, drawDiff } from "./bodies.js";
import { artifactState } from "./describe.js";
import { evidenceLinks, setLinks, findActivity, formatValue, refLinks } from "./lane.js";
import { drawSteps, planOf } from "./plan.js";
import { Prose } from "./prose.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/** Kinds of decisions about a plan. */
const PLANS = new Set(["plan_decision", "teammate_plan_decision"]);

export class DecisionSubject {
  root = element("div", "stack reviewed");
  #artifact = element("div", "row artifact");
  #diffNote = element("p", "hint diff-note");
  #diff = element("pre", "preview body diff");
  #planLabel = element("p", "label", "Plan");
  #plan = element("div", "prose plan");
  #prose = new Prose(this.#plan);
  #steps = element("ol", "steps-list");
  #planNote = element("p", "hint plan-note");
  #links = element("div", "row links");
  /** The identity of the diff on display or being loaded. A response for another one is dropped. */
  #diffKey = "";
  #drawnDescription = "";

  constructor() {
    this.#diff.tabIndex = 0;
    this.#diff.setAttribute("role", "group");
    this.#diff.setAttribute("aria-label", "Diff");
    this.#diffNote.setAttribute("role", "status");
    this.root.append(this.#artifact, this.#diffNote, this.#diff, this.#planLabel, this.#plan, this.#steps, this.#planNote, this.#links);
  }

  /**
   * @param {View} view
   * @param {Activity} action
   * @param {boolean} isPending
   */
  show(view, action, isPending) {
    this.#drawArtifact(view, action, isPending);
    this.#drawPlan(view, action, isPending);
    setLinks(this.#links, [...evidenceLinks(view, action, action.content.evidenceId ?? action.content.evidenceRefs), ...refLinks(view, action.content.refs)]);
    this.#links.hidden = this.#links.childElementCount === 0;
    this.root.hidden = [...this.root.children].every((one) => /** @type {HTMLElement} */ (one).hidden);
  }

  /**
   * @param {View} view
   * @param {Activity} action
   * @param {boolean} isPending
   */
  #drawArtifact(view, action, isPending) {
    const { artifactId, versionId, kind } = action.content;
    const isReview = kind === "artifact_review" && isPending;
    const id = toText(artifactId);
    const artifact = id === "" ? undefined : findActivity(view, action, "artifact", id);
    this.#artifact.hidden = id === "" && !isReview;
    if (this.#artifact.hidden) {
      this.#diff.hidden = this.#diffNote.hidden = true;
      return;
    }
    const { content } = artifact ?? { content: /** @type {Record<string, any>} */ ({}) };
    const current = content.versionId ?? content.version;
    const version = versionId ?? current;
    const isOld = versionId !== undefined && current !== undefined && ![content.versionId, content.version].map(toText).includes(toText(versionId));
    const description = [
      id === "" ? "not stated" : formatValue(content.title ?? content.name) || id,
      version === undefined ? "version not stated" : `version ${formatValue(version)}`,
      isOld ? `the latest is version ${formatValue(current)}` : "",
      artifact || id === "" ? "" : "no artifact fact",
    ].filter(Boolean).join(" · ");
    if (this.#drawnDescription !== description + toText(content.status)) {
      this.#drawnDescription = description + toText(content.status);
      const parts = [element("span", "label", "Artifact"), element("span", "artifact-name", description)];
      if (artifact) {
        const status = createBadge(content.status);
        status.dataset.state = artifactState(content.status);
        const open = element("button", "button", "Open artifact");
        open.type = "button";
        open.dataset.kind = "quiet";
        open.addEventListener("click", () => view.open({ kind: "artifact", id, runId: artifact.runId }));
        parts.push(status, open);
      }
      this.#artifact.replaceChildren(...parts);
    }
    if (!artifact || !isPending) {
      this.#diff.hidden = this.#diffNote.hidden = !isPending || id === "" || artifact !== undefined;
      if (!this.#diffNote.hidden) setText(this.#diffNote, "The source sent no facts about this artifact, so it has no diff.");
      this.#diff.hidden = true;
      return;
    }
    const diffKey = `${keyOf(artifact)} ${toText(versionId)} ${artifact.sequence}`;
    if (diffKey === this.#diffKey) return;
    this.#diffKey = diffKey;
    void this.#load(view, artifact, versionId, diffKey);
  }

  /**
   * @param {View} view
   * @param {Activity} artifact
   * @param {unknown} versionId
   * @param {string} diffKey
   */
  async #load(view, artifact, versionId, diffKey) {
    this.#diffNote.hidden = false;
    setText(this.#diffNote, "Loading the diff…");
    try {
      const { text, isWhole } = await readDiff(view, artifact, versionId);
      if (diffKey !== this.#diffKey) return;
      drawDiff(this.#diff, text);
      this.#diff.hidden = false;
      setText(this.#diffNote, isWhole ? "Diff" : "Beginning of the diff");
    } catch (error) {
      if (diffKey !== this.#diffKey) return;
      this.#diff.hidden = true;
      setText(this.#diffNote, `Diff unavailable: ${error instanceof Error ? error.message : error}`);
    }
  }

  /**
   * @param {View} view
   * @param {Activity} action
   * @param {boolean} isPending
   */
  #drawPlan(view, action, isPending) {
    const { plan, kind } = action.content;
    // A request without a plan is about the latest plan of its run.
    const newest = plan === undefined && PLANS.has(kind) && isPending ? this.#newestPlan(view, action) : undefined;
    const { text, steps } = planOf(plan ?? newest?.content);
    const hasText = Array.isArray(text) ? text.join("") !== "" : toText(text) !== "";
    this.#plan.hidden = !hasText;
    this.#prose.set(hasText ? text : "");
    drawSteps(this.#steps, steps);
    const isMissing = PLANS.has(kind) && isPending && !hasText && steps.length === 0;
    this.#planNote.hidden = !isMissing && newest === undefined;
    setText(this.#planNote, isMissing ? "The source did not state the plan." : newest ? "The request names no plan. This is the latest plan of the run." : "");
    this.#planLabel.hidden = !hasText && steps.length === 0;
  }

  /**
   * @param {View} view
   * @param {Activity} action
   */
  #newestPlan(view, action) {
    const plans = view.store.sorted((one) => one.activityType === "plan" && one.runId === action.runId && one.opened <= action.sequence);
    const { agentId, kind } = action.content;
    const own = plans.findLast((one) => (one.agentId ?? one.content.agentId) === agentId);
    // Another agent's plan is not this teammate's.
    return own ?? (kind === "teammate_plan_decision" ? undefined : plans.at(-1));
  }
}
