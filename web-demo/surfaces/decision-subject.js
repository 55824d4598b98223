/**
 * What a decision is about: the changed artifact with its diff and its review, or the plan.
 *
 * The diff compares the bodies of two versions. Without bodies it is the diff that the source sent.
 */

import { joinText, keyOf, stateOf, toText } from "./base.js";
import { artifactOf, findActivity, findAgentName, formatValue } from "./facts.js";
import { evidenceLinks, refLinks } from "./links.js";
import { planOf, stepsTemplate } from "./plan.js";
import { loadDiffs } from "../diffs.js";
import { glyph } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { reveal } from "../ui/reveal.js";
import { t } from "../ui/texts.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").CardView} CardView */
/** @typedef {{ before: string, after: string } | { patch: string, isWhole: boolean } | { problem: string }} Change */

/** Kinds of decisions about a plan. */
const PLANS = new Set(["plan_decision", "teammate_plan_decision"]);
/** Words for the verdicts of a review. @type {Record<string, string>} */
const VERDICTS = { passed: "approved", approved: "approved", verified: "verified", changes_requested: "requested changes to", failed: "rejected", rejected: "rejected" };

export class DecisionSubject {
  #redraw;
  /** The identity of the diff on display or being loaded. A response for another one is dropped. */
  #diffKey = "";
  /** @type {Change | undefined} */
  #change;
  /** The module that draws diffs: it loads with the first of them. @type {typeof import("../ui/diff.js") | undefined} */
  #drawing;
  #isSplit = false;
  #isFolded = false;
  #planText = document.createElement("div");
  /** What draws the text of a plan: it loads with the first of them. @type {import("./prose.js").Prose | undefined} */
  #prose;
  /** The text of the plan on display. */
  #plainText = "";

  /** @param {() => void} redraw Called when the content has changed without a change of the action. */
  constructor(redraw) {
    this.#redraw = redraw;
    this.#planText.className = "prose plan";
  }

  /** Shows or hides the diff. */
  toggle() {
    this.#isFolded = !this.#isFolded;
    this.#redraw();
  }

  /**
   * Facts about the subject, for the list of facts: the review of the artifact, the evidence, and references.
   * @param {CardView} view
   * @param {Activity} action
   * @returns {[string, unknown][]}
   */
  facts(view, action) {
    const review = findReview(view, action);
    const evidence = evidenceLinks(view, action, action.content.evidenceId ?? action.content.evidenceRefs);
    const refs = refLinks(view, action.content.refs);
    return [
      ["Reviewed", review ?? ""],
      ["Evidence", evidence.length === 0 ? "" : linksTemplate(evidence)],
      ["References", refs.length === 0 ? "" : linksTemplate(refs)],
    ];
  }

  /**
   * @param {CardView} view
   * @param {Activity} action
   * @param {boolean} isPending
   */
  template(view, action, isPending) {
    return html`${isPending ? this.#artifact(view, action) : nothing}${this.#plan(view, action, isPending)}`;
  }

  /**
   * @param {CardView} view
   * @param {Activity} action
   */
  #artifact(view, action) {
    const id = artifactOf(action);
    const { versionId, kind } = action.content;
    if (id === undefined) return kind === "artifact_review" ? html`<p class="subject-note">${t("The source does not state the artifact.")}</p>` : nothing;
    const artifact = findActivity(view, action, "artifact", id);
    if (!artifact) return html`<p class="subject-note">The source sent no facts about the artifact ${id}, so it has no diff.</p>`;
    const { content } = artifact;
    const current = content.versionId ?? content.version;
    const version = versionId ?? current;
    const diffKey = `${keyOf(artifact)} ${toText(version)} ${artifact.sequence}`;
    if (diffKey !== this.#diffKey) {
      this.#diffKey = diffKey;
      this.#change = undefined;
      void this.#load(view, artifact, version, versionId, diffKey);
    }
    const isOld = versionId !== undefined && current !== undefined && ![content.versionId, content.version].map(toText).includes(toText(versionId));
    const previous = versionBefore(content, version);
    const number = version === undefined ? "version not stated" : previous === undefined ? `version ${formatValue(version)}` : `version ${formatValue(previous.version ?? previous.versionId)} → ${formatValue(version)}`;
    const change = this.#change;
    const hasDiff = change !== undefined && !("problem" in change);
    return html`<section class="subject">
      <div class="subject-head">
        ${icon("document")}<b class="artifact-name">${formatValue(content.title ?? content.name) || id}</b>
        <span class="subject-version">${number}${isOld ? `, the latest is ${formatValue(current)}` : ""}</span>
        ${statsOf(content.diffStat, isOld)}
        <span class="grow"></span>
        ${hasDiff ? html`<button type="button" class="button small side-by-side" data-kind="quiet" aria-pressed=${this.#isSplit} @click=${() => this.#setSplit(!this.#isSplit)}>${t("Side by side")}</button>
          <button type="button" class="button small icon-button fold" data-kind="quiet" aria-label="Diff" aria-expanded=${!this.#isFolded} title="Show or hide the diff (d)" @click=${() => this.toggle()}><span class="chevron">${icon("chevron-right")}</span></button>` : nothing}
        <button type="button" class="button small icon-button" data-kind="quiet" aria-label=${t("Open artifact")} title=${t("Open artifact")} @click=${() => view.open({ kind: "artifact", id, runId: artifact.runId })}>${icon("expand")}</button>
      </div>
      ${this.#isFolded ? nothing : this.#diff()}
    </section>`;
  }

  /** @param {boolean} isSplit */
  #setSplit(isSplit) {
    this.#isSplit = isSplit;
    this.#isFolded = false;
    this.#redraw();
  }

  #diff() {
    const change = this.#change;
    if (!change) return html`<p class="subject-note" role="status">${t("Loading the diff…")}</p>`;
    if ("problem" in change) return html`<p class="subject-note" role="status">${change.problem}</p>`;
    const options = /** @type {const} */ ({ mode: this.#isSplit ? "split" : "unified", context: 2 });
    const { diffView, patchView } = /** @type {typeof import("../ui/diff.js")} */ (this.#drawing);
    if ("before" in change) return diffView(reveal(change.before), reveal(change.after), options);
    return html`${patchView(reveal(change.patch), options)}${change.isWhole ? nothing : html`<p class="subject-note">This is the beginning of the diff.</p>`}`;
  }

  /**
   * @param {CardView} view
   * @param {Activity} artifact
   * @param {unknown} version
   * @param {unknown} requested
   * @param {string} diffKey
   */
  async #load(view, artifact, version, requested, diffKey) {
    /** @type {Change} */
    let change;
    try {
      this.#drawing ??= await loadDiffs();
      const bodies = await import("./bodies.js");
      change = (await readBodies(bodies, view, artifact, version)) ?? { patch: "", isWhole: true };
      if ("patch" in change) {
        const { text, isWhole } = await bodies.readDiff(view, artifact, requested);
        change = { patch: text, isWhole };
      }
    } catch (error) {
      change = { problem: t("Diff unavailable: {reason}", { reason: error instanceof Error ? error.message : error }) };
    }
    if (diffKey !== this.#diffKey) return;
    this.#change = change;
    this.#redraw();
  }

  /** @param {string} text */
  #setPlanText(text) {
    if (text === this.#plainText) return;
    this.#plainText = text;
    if (this.#prose) return this.#prose.set(text);
    this.#planText.textContent = text;
    void import("./prose.js").then(({ Prose }) => {
      this.#planText.replaceChildren();
      this.#prose ??= new Prose(this.#planText);
      this.#prose.set(this.#plainText);
    }, () => {});
  }

  /**
   * @param {CardView} view
   * @param {Activity} action
   * @param {boolean} isPending
   */
  #plan(view, action, isPending) {
    const { kind, subject } = action.content;
    const plan = action.content.plan ?? subject?.plan;
    // A request without a plan is about the latest plan of its run.
    const newest = plan === undefined && PLANS.has(kind) && isPending ? findPlan(view, action) : undefined;
    const { text, steps } = planOf(plan ?? newest?.content);
    const hasText = joinText(text) !== "";
    this.#setPlanText(hasText ? reveal(joinText(text)) : "");
    const isMissing = PLANS.has(kind) && isPending && !hasText && steps.length === 0;
    if (!isMissing && !hasText && steps.length === 0) return nothing;
    const note = isMissing ? t("The source did not state the plan.") : newest ? t("The request names no plan. This is the latest plan of the run.") : "";
    return html`<section class="subject plan-subject" aria-label="Plan">
      ${hasText ? this.#planText : nothing}
      ${stepsTemplate(steps)}
      ${note ? html`<p class="subject-note plan-note">${note}</p>` : nothing}
    </section>`;
  }
}

/** @param {import("./links.js").Link[]} links */
const linksTemplate = (links) => html`<span class="links">${links.map(({ words, go, missing }) => (go ? html`<button type="button" class="link" @click=${go}>${words}</button>` : html`<span>${words}${missing ? ` (${missing})` : ""}</span>`))}</span>`;

/** @param {any} stat @param {boolean} isOld The figures are those of the latest version. */
function statsOf(stat, isOld) {
  if (isOld || stat === null || typeof stat !== "object") return nothing;
  const deleted = stat.removed ?? stat.deleted;
  return html`${typeof stat.added === "number" ? html`<span class="added">+${stat.added}</span>` : nothing}${typeof deleted === "number" ? html`<span class="deleted">−${deleted}</span>` : nothing}`;
}

/**
 * @param {Record<string, any>} content Of the artifact.
 * @param {unknown} version
 */
function versionBefore({ versions }, version) {
  if (!Array.isArray(versions)) return undefined;
  const at = versions.findIndex((one) => isVersion(one, version));
  return at > 0 ? versions[at - 1] : undefined;
}

/** @param {any} entry @param {unknown} version */
const isVersion = (entry, version) => toText(entry?.versionId) === toText(version) || toText(entry?.version) === toText(version);

/**
 * @param {typeof import("./bodies.js")} bodies
 * @param {CardView} view
 * @param {Activity} artifact
 * @param {unknown} version
 * @returns {Promise<Change | undefined>} `undefined` if the source did not send both bodies.
 */
async function readBodies({ readBody }, view, artifact, version) {
  const { versions } = artifact.content;
  const previous = versionBefore(artifact.content, version);
  const current = Array.isArray(versions) ? versions.find((one) => isVersion(one, version)) : undefined;
  if (!previous || !current) return undefined;
  const [before, after] = await Promise.all([previous, current].map((one) => readBody(view, artifact, one))).catch(() => []);
  return before?.isWhole && after?.isWhole ? { before: before.text, after: after.text } : undefined;
}

/**
 * @param {CardView} view
 * @param {Activity} action
 */
function findReview(view, action) {
  const id = artifactOf(action);
  if (id === undefined) return undefined;
  const { versionId } = action.content;
  const isOf = (/** @type {any} */ target) => (typeof target === "string" ? target === id : toText(target?.artifactId) === id && (versionId === undefined || (target.version ?? target.versionId) === undefined || isVersion(target, versionId)));
  const review = view.store.sorted((one) => one.activityType === "review" && one.runId === action.runId && isOf(one.content.target)).at(-1);
  if (!review) return undefined;
  const { reviewer, verdict, status, target, summary } = review.content;
  const result = toText(verdict ?? status);
  const who = reviewer === undefined ? "A reviewer" : (findAgentName(view, review, toText(reviewer)) ?? toText(reviewer));
  const state = stateOf(result);
  const version = target?.version ?? target?.versionId;
  const word = VERDICTS[result] ?? `(${result.replaceAll("_", " ") || "no verdict"})`;
  const subject = version === undefined ? "it" : `version ${formatValue(version)}`;
  const sign = state === "ok" ? "completed" : state === "failed" || state === "running" ? state : "idle";
  return html`<span class="review">${glyph(sign)}${who} ${word} ${subject}${summary ? html` <span class="hint">${formatValue(summary)}</span>` : nothing}</span>`;
}

/**
 * @param {CardView} view
 * @param {Activity} action
 */
function findPlan(view, action) {
  const plans = view.store.sorted((one) => one.activityType === "plan" && one.runId === action.runId && one.opened <= action.sequence);
  const { agentId, kind } = action.content;
  const own = plans.findLast((one) => (one.agentId ?? one.content.agentId) === agentId);
  // Another agent's plan is not this teammate's.
  return own ?? (kind === "teammate_plan_decision" ? undefined : plans.at(-1));
}
