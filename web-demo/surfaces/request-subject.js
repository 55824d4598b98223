/**
 * What a request is about, as the server read it from the call: a command, the change of a file, or a question's facts.
 * Several requests of one action are rows.
 */

import { argumentsTemplate } from "./argument-list.js";
import { formatValue } from "./facts.js";
import { loadDiffs } from "../diffs.js";
import { reveal } from "../ui/reveal.js";
import { t } from "../ui/texts.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {{ path: string, oldText?: string, newText?: string, patch?: string }} FileDiff */
/** @typedef {{ kind: string, title?: string, toolName?: string, text?: string, command?: string, cwd?: string, path?: string, diffs?: FileDiff[], fields?: { name: string, value: unknown }[], clipped?: boolean }} RequestSubjectContent */

/**
 * Returns the subjects of an action.
 * @param {Record<string, any>} content
 * @returns {RequestSubjectContent[]}
 */
export const subjectsOf = ({ subject, subjects }) => (Array.isArray(subjects) ? subjects : subject ? [subject] : []);

/**
 * Returns the arguments that the subject does not say by itself; `undefined` if it does not say all of the others.
 * @param {Record<string, any>} content
 * @returns {Record<string, unknown> | undefined}
 */
export function otherArguments(content) {
  const [subject, ...more] = subjectsOf(content);
  if (more.length > 0) return {};
  return subject && !subject.clipped ? named(subject.fields) : undefined;
}

/** @param {RequestSubjectContent["fields"]} fields */
const named = (fields = []) => Object.fromEntries(fields.map(({ name, value }) => [name, value]));

/** The height of a line of a diff, in pixels (`decision.css` limits the whole), and the unchanged lines around a change. */
const [DIFF_LINE_PX, CONTEXT_LINES] = [21, 2];

/**
 * About how many lines a diff shows: the page reserves their height, so that nothing moves when it comes.
 * @param {FileDiff} diff
 */
function diffLines({ oldText = "", newText = "", patch }) {
  if (patch !== undefined) return patch.split("\n").length;
  const [before, after] = [oldText.split("\n"), newText.split("\n")];
  const isSame = (/** @type {number} */ a, /** @type {number} */ b) => before[a] === after[b];
  const shorter = Math.min(before.length, after.length);
  let [head, tail] = [0, 0];
  while (head < shorter && isSame(head, head)) head += 1;
  while (tail < shorter - head && isSame(before.length - 1 - tail, after.length - 1 - tail)) tail += 1;
  return before.length + after.length - 2 * (head + tail) + Math.min(head, CONTEXT_LINES) + Math.min(tail, CONTEXT_LINES);
}

export class RequestSubject {
  #redraw;
  /** The module that draws diffs. @type {typeof import("../ui/diff.js") | undefined} */
  #drawing;
  #isLoading = false;
  #problem = "";

  /** @param {() => void} redraw Called when the module of diffs is there. */
  constructor(redraw) {
    this.#redraw = redraw;
  }

  /** @param {Record<string, any>} content Of the action. */
  template(content) {
    const subjects = subjectsOf(content);
    if (subjects.length < 2) return subjects.map((subject) => this.#one(subject));
    return html`<ol class="requests">${subjects.map((subject) => html`<li>
      <h4 dir="auto">${reveal(subject.title ?? formatValue(subject.toolName))}</h4>
      ${subject.text ? html`<p class="hint" dir="auto">${reveal(subject.text)}</p>` : nothing}
      ${this.#one(subject)}${subject.fields && subject.fields.length > 0 ? argumentsTemplate(named(subject.fields)) : nothing}
      ${subject.clipped ? html`<p class="hint">${t("More than this is asked; the rest is in the arguments.")}</p>` : nothing}</li>`)}</ol>`;
  }

  /** @param {RequestSubjectContent} subject */
  #one(subject) {
    if (subject.kind === "command") return html`<pre class="request-command" dir="ltr">${subject.cwd ? html`<span class="hint">${reveal(subject.cwd)} $</span> ` : nothing}${reveal(subject.command ?? "")}</pre>`;
    if (subject.kind !== "edit") return nothing;
    return html`<section class="subject request-diffs">${(subject.diffs ?? []).map((diff) => html`<div class="subject-head"><b class="mono" dir="ltr">${reveal(diff.path)}</b></div><div class="diff-place" .style=${`min-height: min(248px, ${diffLines(diff) * DIFF_LINE_PX}px)`}>${this.#diff(diff)}</div>`)}</section>`;
  }

  /** @param {FileDiff} diff */
  #diff({ oldText = "", newText = "", patch }) {
    if (this.#problem) return html`<p class="subject-note" role="status">${this.#problem}</p>`;
    if (!this.#drawing) {
      void this.#load();
      return html`<p class="subject-note" role="status">${t("Loading the diff…")}</p>`;
    }
    const options = /** @type {const} */ ({ mode: "unified", context: CONTEXT_LINES });
    return patch === undefined ? this.#drawing.diffView(reveal(oldText), reveal(newText), options) : this.#drawing.patchView(reveal(patch), options);
  }

  async #load() {
    if (this.#isLoading) return;
    this.#isLoading = true;
    try {
      this.#drawing = await loadDiffs();
    } catch (error) {
      this.#problem = t("Diff unavailable: {reason}", { reason: error instanceof Error ? error.message : error });
    }
    this.#redraw();
  }
}
