/**
 * The artifacts: one-line rows, and the selected one's preview, source and diffs of any two versions. Bodies are loaded
 * on demand, from a blob or from the log.
 */

import { compareTexts, countChanges, diffView, parsePatch, patchView } from "../ui/diff.js";
import { age, formatBytes } from "../ui/format.js";
import { glyph } from "../ui/glyphs.js";
import { icon } from "../ui/icons.js";
import { downloadIcon } from "../ui/lazy-icons.js";
import { html, nothing, render } from "../vendor/lit.js";
import { actionTitle } from "./action-title.js";
import { ArtifactPreview, BODY_CHARS_MAX, KIND_NAMES, fileNameOf, kindOf, sourceOf } from "./artifact-preview.js";
import { Surface, define, displayedStatus, element, formatCount, humanize, keyOf, setText, stateOf, toText } from "./base.js";
import { blobOf, bodyRefOf, isDataAddress, readBody, readDiff, versionName } from "./bodies.js";
import { artifactState } from "./describe.js";
import { artifactOf, controlTarget, findActivity, formatValue } from "./facts.js";
import { evidenceLinks, refLinks } from "./links.js";
import { readImage } from "./part-media.js";
import { controlButton } from "./control-button.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("../ui/glyphs.js").Status} Status */
/** @typedef {import("./links.js").Link} Link */
/** @typedef {Record<string, any>} Version */
/** @typedef {"preview" | "diff" | "source"} Mode */

/**
 * A body or a patch on display. `isLoading`: the request is on its way. `problem`: why there is no text.
 * @typedef {{ isLoading: boolean, text: string, isWhole: boolean, problem: string }} Body
 */

/** Artifacts listed at first. */
const LISTED_MAX = 100;
/** The width from which the surface has columns, in pixels. The style sheet has the same. */
const WIDE_PX = 860;
/** Bodies that are kept. */
const BODIES_MAX = 20;

/** Glyphs of visual states. Amber means that the user is waited for, which a status of an artifact never says. @type {Record<import("./base.js").State, Status>} */
const GLYPHS = { ok: "completed", running: "running", waiting: "idle", warning: "idle", failed: "failed", stale: "idle", unknown: "idle", idle: "idle" };
/** Glyphs of reviews. Requested changes wait for a person. @type {Record<string, Status>} */
const REVIEW_GLYPHS = { passed: "completed", approved: "completed", completed: "completed", failed: "failed", rejected: "failed", changes_requested: "waiting" };

export class Artifacts extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType }) {
    return ["artifact", "review", "action", "evidence", "agent"].includes(activityType);
  }

  /** @type {string | undefined} The key of the selected artifact. */
  #selectedKey;
  /** @type {{ id: string, runId?: string } | undefined} The artifact to select once it exists. */
  #requested;
  #listLimit = LISTED_MAX;
  /** @type {Mode} */
  #mode = "preview";
  #isSplit = true;
  /** The sequence of the version on display; the newest if undefined. @type {number | undefined} */
  #shownVersion;
  /** The sequence of the version to compare with; the previous one if undefined. @type {number | undefined} */
  #baseVersion;
  /** @type {Map<string, Body>} */
  #bodies = new Map();
  /** Added and deleted lines of the diff on display, by its texts. @type {{ key: string, added: number, deleted: number, changes: number } | undefined} */
  #stat;
  #preview = new ArtifactPreview((href) => readImage(this.view, href));
  #isWide = false;
  #resized = new ResizeObserver(() => this.#updateWidth());

  connectedCallback() {
    this.#resized.observe(this);
    this.addEventListener("keydown", this.#handleKey);
  }

  disconnectedCallback() {
    this.#resized.disconnect();
    this.removeEventListener("keydown", this.#handleKey);
  }

  #updateWidth() {
    const isWide = this.clientWidth >= WIDE_PX;
    if (isWide === this.#isWide) return;
    this.#isWide = isWide;
    if (this.isConnectedToView) this.update(null);
  }

  /**
   * Selects an artifact.
   * @param {string} id
   * @param {string} [runId]
   */
  open(id, runId) {
    this.#requested = { id, runId };
    if (this.isConnectedToView) this.update(null);
  }

  /** Shows the list again. */
  close() {
    this.#requested = undefined;
    if (!this.isConnectedToView) return;
    this.#select(undefined);
    this.update(null);
  }

  build() {
    this.#bodies.clear();
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Artifacts");
    this.feedback = element("p", "hint told");
    this.feedback.setAttribute("role", "status");
    const control = (/** @type {string} */ name) => () => {
      const artifact = this.#artifact();
      return artifact ? { control: name, ...controlTarget(artifact), artifactId: artifact.activityId, ...(name === "request_review" ? { value: { target: artifact.activityId } } : {}) } : null;
    };
    const more = { feedback: this.feedback };
    this.controls = {
      review: controlButton("Request review", () => this.view, control("request_review"), more),
      export: controlButton("Export", () => this.view, control("export"), more),
      rollback: controlButton("Roll back to this version", () => this.view, () => {
        const [artifact, version] = [this.#artifact(), this.#version()];
        return artifact && version ? { control: "rollback", ...controlTarget(artifact), artifactId: artifact.activityId, value: { version: version.version ?? version.versionId } } : null;
      }, more),
    };
    for (const button of Object.values(this.controls)) button.classList.add("small");
    this.editor = this.#createEditor();
  }

  /** Builds the editor. A new body becomes a version when the runtime reports it. */
  #createEditor() {
    const form = element("form", "stack");
    const text = element("textarea");
    const field = element("label", "field");
    text.rows = 10;
    field.append(element("span", "", "New body"), text);
    const report = (/** @type {string} */ message) => {
      if (!this.feedback) return;
      this.feedback.dataset.state = "failed";
      setText(this.feedback, message);
    };
    const fill = element("button", "button small", "Start from the latest body");
    fill.type = "button";
    fill.dataset.kind = "quiet";
    fill.addEventListener("click", async () => {
      const artifact = this.#artifact();
      if (!artifact) return;
      try {
        const { text: body, isWhole } = await readBody(this.view, artifact, undefined);
        if (!isWhole) throw new Error("The body is too long to edit here.");
        if (artifact.activityId === this.#artifact()?.activityId) text.value = body;
      } catch (error) {
        report(error instanceof Error ? error.message : String(error));
      }
    });
    const send = controlButton("Send edit", () => this.view, () => {
      const artifact = this.#artifact();
      if (!artifact || text.value === "") return report("Enter the new body."), null;
      const base = artifact.content.versionId ?? artifact.content.version;
      return { control: "edit", ...controlTarget(artifact), artifactId: artifact.activityId, value: { body: text.value, ...(base === undefined ? {} : { baseVersion: base }) } };
    }, { feedback: this.feedback });
    send.classList.add("small");
    send.dataset.does = "edit";
    form.addEventListener("submit", (event) => event.preventDefault());
    const row = element("div", "row");
    row.append(fill, send);
    form.append(field, row);
    return { form, text };
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const all = this.view.store.sorted(({ activityType }) => activityType === "artifact").toReversed();
    this.hidden = all.length === 0;
    const requested = this.#requested;
    const found = requested && all.find((artifact) => artifact.activityId === requested.id && artifact.runId === (requested.runId ?? artifact.runId));
    if (found) {
      this.#requested = undefined;
      this.#select(keyOf(found));
    }
    if (this.#selectedKey !== undefined && !this.#artifact()) this.#select(undefined);
    // A wide panel has room for both; a narrow one begins with the list.
    if (this.#isWide && this.#selectedKey === undefined && all.length > 0) this.#select(keyOf(all[0]));
    this.toggleAttribute("data-open", this.#selectedKey !== undefined);
    render(this.#template(all), this);
  }

  /** @param {string | undefined} key */
  #select(key) {
    if (key === this.#selectedKey) return;
    this.#selectedKey = key;
    [this.#shownVersion, this.#baseVersion, this.#mode] = [undefined, undefined, "preview"];
    if (this.editor) this.editor.text.value = "";
    if (this.feedback) setText(this.feedback, "");
  }

  /** @param {string | undefined} key */
  #show(key) {
    this.#select(key);
    this.update(null);
    const artifact = this.#artifact();
    this.dispatchEvent(new CustomEvent("artifact", { bubbles: true, detail: artifact && { id: artifact.activityId, runId: artifact.runId } }));
    /** @type {HTMLElement | null} */ (this.querySelector(key === undefined ? ".artifact-row" : ".artifact-title"))?.focus();
  }

  #artifact() {
    return this.#selectedKey === undefined ? undefined : this.view.store.get(this.#selectedKey);
  }

  /** The versions of the selected artifact, oldest first. @returns {Version[]} */
  #versions() {
    const versions = this.#artifact()?.content.versions;
    return Array.isArray(versions) ? versions : [];
  }

  /** The version on display; undefined if the source stated none. @returns {Version | undefined} */
  #version() {
    const versions = this.#versions();
    return versions.find(({ sequence }) => sequence === this.#shownVersion) ?? versions.at(-1);
  }

  /** The version that the diff begins with. @returns {Version | undefined} */
  #base() {
    const versions = this.#versions();
    const shown = this.#version();
    return versions.find(({ sequence }) => sequence === this.#baseVersion && sequence !== shown?.sequence) ?? versions[versions.indexOf(/** @type {Version} */ (shown)) - 1] ?? versions.find((version) => version !== shown);
  }

  /* ── bodies, on demand ── */

  /**
   * Returns a body, and loads it with the first call.
   * @param {string} name
   * @param {() => Promise<{ text: string, isWhole: boolean }>} read
   * @returns {Body}
   */
  #load(name, read) {
    const key = `${this.#selectedKey} ${name}`;
    const known = this.#bodies.get(key);
    if (known) return known;
    /** @type {Body} */
    const body = { isLoading: true, text: "", isWhole: true, problem: "" };
    this.#bodies.set(key, body);
    if (this.#bodies.size > BODIES_MAX) this.#bodies.delete(/** @type {string} */ (this.#bodies.keys().next().value));
    const { view } = this;
    read().then(({ text, isWhole }) => Object.assign(body, { text, isWhole }), (error) => Object.assign(body, { problem: error instanceof Error ? error.message : String(error) })).finally(() => {
      body.isLoading = false;
      if (view === this.view) this.update(null);
    });
    return body;
  }

  /**
   * @param {Activity} artifact
   * @param {Version | undefined} version
   */
  #body(artifact, version) {
    // Without versions, each change may have changed the body.
    return this.#load(`body ${version ? version.sequence : `@${artifact.sequence}`}`, async () => {
      const ref = bodyRefOf(version ?? artifact.content);
      const type = toText(artifact.content.mimeType ?? artifact.content.mediaType);
      if (ref && kindOf(artifact.content) === "image" && /^image\/(?!svg)/.test(type)) return { text: await readImage(this.view, ref, type), isWhole: true };
      return readBody(this.view, artifact, version);
    });
  }

  /* ── templates ── */

  /** @param {Activity[]} all */
  #template(all) {
    const artifact = this.#artifact();
    return html`
      <nav class="artifact-side" aria-label="Artifacts">${artifact && this.#isWide ? this.#versionList(artifact) : nothing}
        ${artifact && this.#isWide ? html`<h3 class="artifact-heading"><span>Artifacts</span><span>${all.length}</span></h3>` : nothing}
        <ul class="artifact-list">${all.slice(0, this.#listLimit).map((one) => this.#row(one))}</ul>
        ${all.length > this.#listLimit ? html`<button type="button" class="button small" data-kind="quiet" @click=${() => {
          this.#listLimit += LISTED_MAX;
          this.update(null);
        }}>Show more</button>` : nothing}</nav>
      ${artifact ? this.#sheet(artifact) : nothing}`;
  }

  /** @param {Activity} artifact */
  #row(artifact) {
    const { content, activityId, updatedAt } = artifact;
    const key = keyOf(artifact);
    const status = displayedStatus(content);
    const kind = kindOf(content);
    return html`<li data-key=${key}><button type="button" class="artifact-row" aria-current=${key === this.#selectedKey ? "true" : nothing} @click=${() => this.#show(key)}>
      ${icon(kind === "image" ? "image" : "document")}<span class="truncate" dir="auto">${formatValue(content.title ?? content.name) || activityId}</span>
      <span class="artifact-kind hint">${KIND_NAMES[kind]}</span><span class="artifact-number">${content.version === undefined ? "" : `v${formatValue(content.version)}`}</span>
      <span class="status" data-status=${GLYPHS[artifactState(status)]}>${glyph(GLYPHS[artifactState(status)])}<span class="word">${humanize(status)}</span></span>${age(updatedAt, this.view.now())}</button></li>`;
  }

  /** @param {Activity} artifact */
  #sheet(artifact) {
    const { content } = artifact;
    const version = this.#version();
    const isDeleted = content.status === "deleted";
    const status = displayedStatus(content);
    const state = GLYPHS[artifactState(status)];
    const problem = content.status === "failed" ? `Failed: ${formatValue(content.error?.message ?? content.error) || "no reason given"}` : isDeleted ? "Deleted by the source." : "";
    return html`<article class="artifact-sheet" data-key=${keyOf(artifact)}>
      <header class="artifact-head">
        <button type="button" class="button small icon-button artifact-back" data-kind="quiet" aria-label="Back to the list" title="Back to the list (Esc)" @click=${() => this.#show(undefined)}>${icon("back")}</button>
        <h3 dir="auto" class="artifact-title truncate" tabindex="-1">${formatValue(content.title ?? content.name) || artifact.activityId}</h3>
        ${version ? html`<span class="hint nowrap">v${formatValue(version.version ?? version.versionId) || "unknown"}</span>` : nothing}
        <span class="status" data-status=${state}>${glyph(state)}${humanize(status)}</span>
        <button type="button" class="inspect" title="Show events" aria-label="Show events" @click=${() => this.view.inspect(artifact)}>i</button>
      </header>
      ${problem ? html`<p class="note" data-state=${isDeleted ? "idle" : "failed"}>${problem}</p>` : nothing}
      ${isDeleted ? nothing : this.#toolbar(artifact)}
      ${this.#isWide ? nothing : this.#versionList(artifact)}
      <div class="artifact-body" data-mode=${this.#mode}>${isDeleted ? nothing : this.#mode === "diff" ? this.#diff(artifact) : this.#text(artifact, version)}</div>
      <div class="artifact-detail">${this.feedback}${this.#decisions(artifact)}${this.#reviews(artifact)}${this.#evidence(artifact)}${this.#details(artifact)}
        ${this.view.isLive && !isDeleted && content.readOnly !== true ? html`<details class="edit"><summary>Edit</summary>${this.editor?.form}</details>` : nothing}</div>
    </article>`;
  }

  /** @param {Activity} artifact */
  #toolbar(artifact) {
    const { content } = artifact;
    const versions = this.#versions();
    const hasDiff = versions.length > 1 || content.diffRef !== undefined || content.diffStat !== undefined || content.status === "diff_ready";
    const mode = (/** @type {Mode} */ name, /** @type {string} */ label) => html`<button type="button" class="mode-${name}" aria-pressed=${this.#mode === name} ?disabled=${name === "diff" && !hasDiff} title=${name === "diff" && !hasDiff ? "There is only one version" : ""} @click=${() => {
      this.#mode = name;
      this.update(null);
    }}>${label}</button>`;
    const { controls, view } = this;
    const isCurrent = this.#version() === versions.at(-1);
    return html`<div class="artifact-bar">
      <div class="segments" role="group" aria-label="View">${mode("preview", "Preview")}${mode("diff", "Diff")}${mode("source", "Source")}</div>
      ${this.#mode === "diff" ? this.#diffBar() : nothing}
      <span class="grow"></span>
      <button type="button" class="button small" @click=${() => this.#download(artifact)}>${downloadIcon}Download</button>
      ${view.isLive ? html`<span class="writes">${controls?.review}${controls?.export}${isCurrent ? nothing : controls?.rollback}</span>` : nothing}
    </div>`;
  }

  #diffBar() {
    const versions = this.#versions();
    const [base, version] = [this.#base(), this.#version()];
    const stat = this.#stat;
    const choice = (/** @type {string} */ label, /** @type {Version | undefined} */ selected, /** @type {(sequence: number) => void} */ choose) => html`<select class="small-select" aria-label=${label} @change=${(/** @type {Event} */ event) => {
      choose(Number(/** @type {HTMLSelectElement} */ (event.target).value));
      this.update(null);
    }}>${versions.map((one) => html`<option value=${one.sequence} ?selected=${one === selected}>v${formatValue(one.version ?? one.versionId) || "unknown"}</option>`)}</select>`;
    return html`${versions.length > 1 ? html`<span class="artifact-pair">${choice("Compare", base, (sequence) => (this.#baseVersion = sequence))}<span aria-hidden="true">→</span>${choice("With", version, (sequence) => (this.#shownVersion = sequence))}</span>` : nothing}
      ${stat ? html`<span class="artifact-stat"><span class="added">+${formatCount(stat.added)}</span> <span class="deleted">−${formatCount(stat.deleted)}</span> <span class="hint">${formatCount(stat.changes)} ${stat.changes === 1 ? "change" : "changes"}</span></span>
      <button type="button" class="button small icon-button" data-kind="quiet" aria-label="Previous change" title="Previous change (k)" @click=${() => this.#toChange(-1)}>${icon("up")}</button>
      <button type="button" class="button small icon-button flip" data-kind="quiet" aria-label="Next change" title="Next change (j)" @click=${() => this.#toChange(1)}>${icon("up")}</button>` : nothing}
      ${this.#isWide ? html`<div class="segments" role="group" aria-label="Layout"><button type="button" aria-pressed=${this.#isSplit} @click=${() => this.#setSplit(true)}>Side by side</button><button type="button" aria-pressed=${!this.#isSplit} @click=${() => this.#setSplit(false)}>Inline</button></div>` : nothing}`;
  }

  /** @param {boolean} isSplit */
  #setSplit(isSplit) {
    this.#isSplit = isSplit;
    this.update(null);
  }

  /** @param {Activity} artifact */
  #versionList(artifact) {
    const versions = this.#versions().toReversed();
    if (versions.length === 0) return nothing;
    const shown = this.#version();
    const base = this.#mode === "diff" ? this.#base() : undefined;
    const { version: current, versionId } = artifact.content;
    return html`<h3 class="artifact-heading"><span>Versions</span><span>${versions.length}</span></h3>
      <ol class="versions">${versions.map((version) => {
        const name = formatValue(version.version ?? version.versionId) || "unknown";
        const isCurrent = version.versionId !== undefined && versionId !== undefined ? version.versionId === versionId : current !== undefined && version.version === current;
        const review = this.#reviewsOf(artifact, version)[0];
        return html`<li><button type="button" class="version-row" aria-current=${version === shown ? "true" : nothing} ?data-base=${version === base} @click=${() => {
          this.#shownVersion = version.sequence;
          this.update(null);
        }}><span class="visually-hidden">Show version ${name}:</span><span class="name">v${name}</span><span class="truncate" dir="auto">${formatValue(version.summary ?? version.title) || (isCurrent ? "Current version" : "")}</span>${age(version.at ?? version.createdAt, this.view.now())}
          <span class="truncate hint">${[version.agentId ? this.#agentName(artifact, version.agentId) : "", isCurrent ? "current" : "", formatBytes(version.bytes)].filter(Boolean).join(" · ")}</span>${review ? glyph(reviewGlyph(review)) : nothing}</button></li>`;
      })}</ol>`;
  }

  /**
   * @param {Activity} artifact
   * @param {Version | undefined} version
   */
  #text(artifact, version) {
    const { content } = artifact;
    if (artifact.runId === "") return html`<p class="hint">Its body is in a session's own log, which the page cannot read.</p>`;
    const body = this.#body(artifact, version);
    if (body.isLoading) return html`<p class="hint caption" role="status">Loading ${versionName(version)}…</p>`;
    const name = fileNameOf(content, artifact.activityId);
    const kind = kindOf(content);
    if (body.problem) {
      const preview = toText(version?.preview ?? content.preview);
      return html`<p class="hint caption" role="status">${body.problem}</p>${preview ? html`<h4>The source's preview</h4>${this.#preview.show(kind === "markdown" ? kind : "text", preview, name)}` : html`<p class="hint">No preview.</p>`}`;
    }
    // A data URL cannot be cut.
    const shown = kind === "image" ? body.text : body.text.slice(0, BODY_CHARS_MAX);
    const caption = body.isWhole && shown === body.text ? nothing : html`<p class="hint caption">${versionName(version)}: the first ${formatCount(shown.length)} characters</p>`;
    return html`${caption}${this.#mode === "source" ? sourceOf(shown.slice(0, BODY_CHARS_MAX), name) : this.#preview.show(kind, shown, name)}`;
  }

  /** @param {Activity} artifact */
  #diff(artifact) {
    const [base, version] = [this.#base(), this.#version()];
    const mode = this.#isWide && this.#isSplit ? "split" : "unified";
    const [before, after] = base && version ? [this.#body(artifact, base), this.#body(artifact, version)] : [];
    if (before?.isLoading || after?.isLoading) return html`<p class="hint caption" role="status">Loading both versions…</p>`;
    if (before && after && !before.problem && !after.problem) {
      const [old, now] = [before.text.slice(0, BODY_CHARS_MAX), after.text.slice(0, BODY_CHARS_MAX)];
      this.#count(`${base?.sequence} ${version?.sequence} ${now.length}`, () => compareTexts(old, now));
      return html`${mode === "split" ? html`<div class="artifact-columns"><div>${this.#versionHead(artifact, base)}</div><div>${this.#versionHead(artifact, version)}</div></div>` : nothing}${diffView(old, now, { mode, label: `Diff of ${versionName(base)} and ${versionName(version)}` })}`;
    }
    // Without both bodies, the source may have sent a diff of its own.
    const patch = this.#load(`diff ${version?.sequence ?? ""}@${artifact.sequence}`, () => readDiff(this.view, artifact, version?.versionId ?? version?.version));
    const why = before?.problem || after?.problem || "";
    if (patch.isLoading) return html`<p class="hint caption" role="status">Loading the diff…</p>`;
    if (patch.problem) return html`<p class="hint caption" role="status">${[why, patch.problem].filter(Boolean).join(" ")}</p>`;
    this.#count(`patch ${version?.sequence} ${patch.text.length}`, async () => parsePatch(patch.text));
    return html`<p class="hint caption">The source's diff of ${versionName(version)}${why ? `. ${why}` : ""}</p>${patchView(patch.text, { mode, label: "Diff" })}`;
  }

  /**
   * Counts the changes of the diff on display, once.
   * @param {string} name
   * @param {() => Promise<import("../ui/diff.js").Line[]>} read
   */
  #count(name, read) {
    const key = `${this.#selectedKey} ${name}`;
    if (this.#stat?.key === key) return;
    this.#stat = { key, added: 0, deleted: 0, changes: 0 };
    void read().then((lines) => {
      const isChange = (/** @type {number} */ at) => lines[at]?.kind === "add" || lines[at]?.kind === "delete";
      const changes = lines.filter((_, at) => isChange(at) && !isChange(at - 1)).length;
      if (this.#stat?.key === key) this.#stat = { key, ...countChanges(lines), changes };
      this.update(null);
    });
  }

  /**
   * @param {Activity} artifact
   * @param {Version | undefined} version
   */
  #versionHead(artifact, version) {
    if (!version) return nothing;
    const review = this.#reviewsOf(artifact, version)[0];
    const time = age(version.at ?? version.createdAt, this.view.now());
    return html`<strong>v${formatValue(version.version ?? version.versionId) || "unknown"}</strong> <span class="hint">${version.agentId ? `${this.#agentName(artifact, version.agentId)} · ` : nothing}${time}${review ? ` · ${reviewText(review)} by ${this.#agentName(artifact, toText(review.content.reviewer))}` : nothing}</span>`;
  }

  /* ── beside the body ── */

  /**
   * The reviews of an artifact, newest first: of a version if one is given.
   * @param {Activity} artifact
   * @param {Version} [version]
   */
  #reviewsOf(artifact, version) {
    const id = artifact.activityId;
    return this.view.store.sorted(({ activityType, content, runId }) => {
      if (activityType !== "review" || runId !== artifact.runId) return false;
      const { target, artifactRefs } = content;
      const isOfArtifact = target === id || target?.artifactId === id || content.artifactId === id || (Array.isArray(artifactRefs) && artifactRefs.includes(id));
      if (!isOfArtifact || !version) return isOfArtifact;
      const reviewed = toText(target?.versionId ?? target?.version ?? content.versionId ?? content.version);
      return reviewed !== "" && [version.versionId, version.version].some((name) => name !== undefined && toText(name) === reviewed);
    }).toReversed();
  }

  /** @param {Activity} artifact */
  #decisions(artifact) {
    const pending = this.view.store.sorted(({ activityType, content, runId }) => activityType === "action" && runId === artifact.runId && content.status === "pending" && [artifactOf({ content }), content.target?.artifactId, content.safeInput?.artifactId].includes(artifact.activityId));
    return pending.length === 0 ? nothing : html`<section><h4>Decision pending</h4>${pending.map((action) => html`<p class="artifact-line">${glyph("waiting")}<button type="button" class="link" @click=${() => this.view.open({ kind: "action", id: action.activityId, runId: action.runId })}>${actionTitle(this.view, action)}</button>${action.content.risk ? html`<span class="tag risk" data-tone=${["high", "critical"].includes(action.content.risk) ? "fail" : nothing}>${humanize(action.content.risk).replace(/^./, (first) => first.toUpperCase())} risk</span>` : nothing}</p>`)}</section>`;
  }

  /** @param {Activity} artifact */
  #reviews(artifact) {
    const reviews = this.#reviewsOf(artifact);
    return reviews.length === 0 ? nothing : html`<section><h4>Review</h4>${reviews.map((review) => html`<p class="artifact-line">${glyph(reviewGlyph(review))}<span>${this.#agentName(artifact, toText(review.content.reviewer)) || "unknown reviewer"}: ${reviewText(review)}${review.content.target?.version === undefined ? "" : ` v${formatValue(review.content.target.version)}`}</span>${age(review.updatedAt, this.view.now())}
      <button type="button" class="inspect" title="Show events" aria-label="Show events" @click=${() => this.view.inspect(review)}>i</button></p>${review.content.summary ? html`<p class="artifact-quote">${formatValue(review.content.summary)}</p>` : nothing}`)}</section>`;
  }

  /** @param {Activity} artifact */
  #evidence(artifact) {
    const ids = new Set([artifact, ...this.#reviewsOf(artifact)].flatMap(({ content }) => (Array.isArray(content.evidenceRefs) ? content.evidenceRefs : content.evidenceRefs === undefined ? [] : [content.evidenceRefs])));
    if (ids.size === 0) return nothing;
    return html`<section><h4>Evidence</h4>${evidenceLinks(this.view, artifact, [...ids]).map((link) => {
      return html`<p class="artifact-line">${glyph(link.missing ? "idle" : "completed")}${linkOf(link)}${link.missing ? html`<span class="hint">${link.missing}</span>` : nothing}</p>`;
    })}</section>`;
  }

  /** @param {Activity} artifact */
  #details(artifact) {
    const { content, activityId } = artifact;
    const version = this.#version();
    const size = version?.bytes ?? content.bytes ?? content.size;
    /** @type {[string, unknown][]} */
    const facts = [
      ["Type", [KIND_NAMES[kindOf(content)], formatBytes(size)].filter(Boolean).join(", ")],
      ["Source type", content.kind ?? content.artifactKind ?? content.artifactType ?? content.mimeType ?? "unknown"],
      ["Id", activityId],
      ["Version", content.version ?? (content.versions ? undefined : "unknown")],
      ["Path", content.path],
      ["Language", content.language],
      ["Digest", content.digest ?? content.sha256],
      ["Summary", version?.summary ?? content.summary],
      ["Changed lines", content.diffStat],
      ["Written by", version?.agentId ? this.#agentName(artifact, version.agentId) : content.agentId ? this.#agentName(artifact, content.agentId) : undefined],
      ["Task", content.taskId],
      ["Export", content.exportFormat],
      ["Read-only", content.readOnly],
    ];
    const links = [
      ...refLinks(this.view, version?.ref ?? content.ref ?? content.href ?? content.url ?? content.uri), ...refLinks(this.view, content.previewRef, "preview"), ...refLinks(this.view, content.diffRef, "diff"),
      ...refLinks(this.view, content.exportRef, "export"), ...refLinks(this.view, content.refs),
    ];
    return html`<section><h4>Details</h4><dl class="facts">${facts.map(([name, value]) => [name, formatValue(value)]).filter(([, value]) => value !== "").map(([name, value]) => html`<dt>${name}</dt><dd ?data-unknown=${value === "unknown"}>${value}</dd>`)}
      ${links.map((link) => html`<dt>${link.label}</dt><dd>${linkOf(link)}</dd>`)}</dl></section>`;
  }

  /**
   * @param {Activity} artifact
   * @param {string} id
   */
  #agentName(artifact, id) {
    return formatValue(findActivity(this.view, artifact, "agent", id)?.content.agentName) || id;
  }

  /* ── actions ── */

  /** @param {Activity} artifact */
  async #download(artifact) {
    const { content } = artifact;
    const version = this.#version();
    const ref = bodyRefOf(version ?? content);
    try {
      const stored = ref ? (await this.view.hydration.blob(ref, { audience: this.view.audience })).blob : undefined;
      const isBytes = stored !== undefined && !(await isDataAddress(stored));
      const blob = isBytes ? stored : await blobOf(stored ? await stored.text() : (await readBody(this.view, artifact, version)).text, toText(content.mimeType));
      const link = element("a");
      link.href = URL.createObjectURL(blob);
      link.download = fileNameOf(content, artifact.activityId);
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href));
    } catch (error) {
      if (!this.feedback) return;
      this.feedback.dataset.state = "failed";
      setText(this.feedback, error instanceof Error ? error.message : String(error));
    }
  }

  /** Scrolls to the next or previous change. @param {number} step */
  #toChange(step) {
    const scroller = this.querySelector(".artifact-body");
    if (!scroller) return;
    const isChanged = (/** @type {Element | null} */ line) => line?.matches('[data-kind="add"], [data-kind="delete"]') || line?.querySelector('[data-kind="add"], [data-kind="delete"]') != null;
    // Of a long diff only the chunks near the viewport have lines; another one is a place to go to.
    const starts = [...scroller.querySelectorAll(".diff-line, .diff-chunk:not(:has(.diff-line))")].filter((line) => line.matches(".diff-chunk") || (isChanged(line) && !isChanged(line.previousElementSibling)));
    const top = scroller.getBoundingClientRect().top + CHANGE_MARGIN_PX;
    const next = step > 0 ? starts.find((line) => line.getBoundingClientRect().top > top + 1) : starts.findLast((line) => line.getBoundingClientRect().top < top - 1);
    if (next) scroller.scrollTop += next.getBoundingClientRect().top - top;
  }

  /** @param {KeyboardEvent} event */
  #handleKey = (event) => {
    const { target } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || (target instanceof HTMLElement && target.closest("input, textarea, select"))) return;
    if (event.key === "Escape" && this.#selectedKey !== undefined && !this.#isWide) this.#show(undefined);
    else if (event.key !== "j" && event.key !== "k") return;
    else if (this.#mode === "diff" && this.#selectedKey !== undefined) this.#toChange(event.key === "j" ? 1 : -1);
    else this.#moveFocus(event.key === "j" ? 1 : -1);
    event.preventDefault();
    event.stopPropagation();
  };

  /** Moves through the rows of artifacts and versions. @param {number} step */
  #moveFocus(step) {
    const rows = /** @type {HTMLElement[]} */ ([...this.querySelectorAll(".artifact-row, .version-row")].filter((row) => row instanceof HTMLElement && row.offsetParent !== null));
    const at = rows.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    rows[Math.min(rows.length - 1, Math.max(0, at + step))]?.focus();
  }
}

/** The distance of a change from the top, after a jump to it, in pixels. */
const CHANGE_MARGIN_PX = 48;

/** @param {Activity} review */
const reviewGlyph = ({ content }) => REVIEW_GLYPHS[toText(content.verdict ?? content.status)] ?? (stateOf(content.status) === "running" ? "running" : "idle");

/** @param {Activity} review */
const reviewText = ({ content }) => humanize(content.verdict ?? content.status);

/** @param {Link} link */
const linkOf = ({ words, go }) => (go ? html`<button type="button" class="link go" @click=${go}>${words}</button>` : html`<span class="mono">${words}</span>`);

define("ps-artifacts", Artifacts);
