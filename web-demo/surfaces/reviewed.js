/**
 * What a decision is about: the artifact with its version and diff, the plan, the evidence and the references of a request. It
 * stands on the card, so that a person sees what they approve.
 */

import { badge, element, keyOf, say, words } from "./base.js";
import { diffOf, drawDiff } from "./bodies.js";
import { artifactState } from "./describe.js";
import { evidenceOf, link, ofType, phrase, refsOf } from "./lane.js";
import { drawSteps, planOf } from "./plan.js";
import { Prose } from "./prose.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/** Kinds of decisions that are about a plan. */
const PLANS = new Set(["plan_decision", "teammate_plan_decision"]);

export class Reviewed {
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
  /** The diff that is shown or on its way; a later answer to another is dropped. */
  #asked = "";
  #drawnArtifact = "";

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
    link(this.#links, [...evidenceOf(view, action, action.content.evidenceId ?? action.content.evidenceRefs), ...refsOf(view, action.content.refs)]);
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
    const id = words(artifactId);
    const it = id === "" ? undefined : ofType(view, action, "artifact", id);
    this.#artifact.hidden = id === "" && !isReview;
    if (this.#artifact.hidden) {
      this.#diff.hidden = this.#diffNote.hidden = true;
      return;
    }
    const { content } = it ?? { content: /** @type {Record<string, any>} */ ({}) };
    const current = content.versionId ?? content.version;
    const version = versionId ?? current;
    const isOld = versionId !== undefined && current !== undefined && ![content.versionId, content.version].map(words).includes(words(versionId));
    const said = [
      id === "" ? "not stated" : phrase(content.title ?? content.name) || id,
      version === undefined ? "version not stated" : `version ${phrase(version)}`,
      isOld ? `the newest is version ${phrase(current)}` : "",
      it || id === "" ? "" : "no artifact fact",
    ].filter(Boolean).join(" · ");
    if (this.#drawnArtifact !== said + words(content.status)) {
      this.#drawnArtifact = said + words(content.status);
      const parts = [element("span", "label", "Artifact"), element("span", "artifact-name", said)];
      if (it) {
        const status = badge(content.status);
        status.dataset.state = artifactState(content.status);
        const open = element("button", "button", "Open artifact");
        open.type = "button";
        open.dataset.kind = "quiet";
        open.addEventListener("click", () => view.open({ kind: "artifact", id, runId: it.runId }));
        parts.push(status, open);
      }
      this.#artifact.replaceChildren(...parts);
    }
    if (!it || !isPending) {
      this.#diff.hidden = this.#diffNote.hidden = !isPending || id === "" || it !== undefined;
      if (!this.#diffNote.hidden) say(this.#diffNote, "The source sent no facts of this artifact, so there is no diff.");
      this.#diff.hidden = true;
      return;
    }
    const asked = `${keyOf(it)} ${words(versionId)} ${it.sequence}`;
    if (asked === this.#asked) return;
    this.#asked = asked;
    void this.#load(view, it, versionId, asked);
  }

  /**
   * @param {View} view
   * @param {Activity} it
   * @param {unknown} versionId
   * @param {string} asked
   */
  async #load(view, it, versionId, asked) {
    this.#diffNote.hidden = false;
    say(this.#diffNote, "Reading the diff …");
    try {
      const { text, isWhole } = await diffOf(view, it, versionId);
      if (asked !== this.#asked) return;
      drawDiff(this.#diff, text);
      this.#diff.hidden = false;
      say(this.#diffNote, isWhole ? "Diff" : "Diff, its beginning");
    } catch (why) {
      if (asked !== this.#asked) return;
      this.#diff.hidden = true;
      say(this.#diffNote, `No diff: ${why instanceof Error ? why.message : why}`);
    }
  }

  /**
   * @param {View} view
   * @param {Activity} action
   * @param {boolean} isPending
   */
  #drawPlan(view, action, isPending) {
    const { plan, kind } = action.content;
    // A request without its plan is about the newest plan of its run.
    const known = plan === undefined && PLANS.has(kind) && isPending ? this.#newestPlan(view, action) : undefined;
    const { text, steps } = planOf(plan ?? known?.content);
    const hasText = Array.isArray(text) ? text.join("") !== "" : words(text) !== "";
    this.#plan.hidden = !hasText;
    this.#prose.set(hasText ? text : "");
    drawSteps(this.#steps, steps);
    const isMissing = PLANS.has(kind) && isPending && !hasText && steps.length === 0;
    this.#planNote.hidden = !isMissing && known === undefined;
    say(this.#planNote, isMissing ? "The source did not state the plan." : known ? "The request names no plan: this is the newest plan of the run." : "");
    this.#planLabel.hidden = !hasText && steps.length === 0;
  }

  /**
   * @param {View} view
   * @param {Activity} action
   */
  #newestPlan(view, action) {
    const mine = view.store.sorted((one) => one.activityType === "plan" && one.runId === action.runId && one.opened <= action.sequence);
    const { agentId, kind } = action.content;
    const own = mine.findLast((one) => (one.agentId ?? one.content.agentId) === agentId);
    // Another agent's plan is not the teammate's.
    return own ?? (kind === "teammate_plan_decision" ? undefined : mine.at(-1));
  }
}
