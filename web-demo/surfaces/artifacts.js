/**
 * The artifacts: a list, and the selected one's preview, versions, diff and references. Bodies are loaded on demand,
 * from a blob or from the log.
 */

import { Surface, formatCount, define, element, inspectButton, updateChildren, setBadge, setText, humanize, displayedStatus, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { BODY_MEMBERS, readBlobText, readDiff, drawDiff, readTextFromEvents } from "./bodies.js";
import { artifactState } from "./describe.js";
import { controlButton } from "./submitted-controls.js";
import { BLOB_PATH, evidenceLinks, addHeading, setLinks, controlTarget, formatValue, refLinks, setFacts } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./bodies.js").Text} Text */

/** Artifacts listed at first. */
const LISTED_MAX = 100;
/** The maximum number of characters of a body on the page. */
const BODY_CHARS_MAX = 200_000;
const BODY_REF_MEMBERS = ["bodyRef", "contentRef", "versionRef", "ref", "href"];

export class Artifacts extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType }) {
    return activityType === "artifact";
  }

  /** @type {string | undefined} The key of the selected artifact. */
  #selectedKey;
  /** @type {{ id: string, runId?: string } | undefined} The artifact to select once it exists. */
  #requested;
  #listLimit = LISTED_MAX;
  /** The id of the newest load. The result of an older one is dropped. */
  #requestId = 0;

  /**
   * Selects an artifact.
   * @param {string} id
   * @param {string} [runId]
   */
  open(id, runId) {
    this.#requested = { id, runId };
    if (this.isConnectedToView) this.update(null);
  }

  build() {
    this.#requestId += 1;
    this.#listLimit = LISTED_MAX;
    this.head = addHeading(this, "Artifacts");
    this.list = element("ul", "artifact-list");
    this.more = element("button", "button", "Show more");
    this.more.type = "button";
    this.more.dataset.kind = "quiet";
    this.more.addEventListener("click", () => {
      this.#listLimit += LISTED_MAX;
      this.update(null);
    });
    const side = element("nav", "stack");
    side.setAttribute("aria-label", "Artifacts");
    side.append(this.list, this.more);
    this.detail = this.#createDetail();
    const space = element("div", "workspace");
    space.append(side, this.detail.root);
    this.append(space);
  }

  #createDetail() {
    const root = element("article", "card sheet");
    const parts = {
      root, title: element("h3", "card-title"), state: element("span", "badge"), note: element("p", "note"), facts: element("dl", "facts"),
      preview: element("pre", "preview"), versions: element("ol", "versions"), links: element("div", "row links"), foot: element("div", "card-foot"),
      feedback: element("p", "hint told"), caption: element("p", "label"), body: element("pre", "body"), none: element("p", "hint", "No preview."),
      edit: element("details", "stack edit"), text: element("textarea"),
      versionsLabel: element("p", "label", "versions"), previewLabel: element("p", "label", "preview"),
    };
    const head = element("div", "card-head");
    const side = element("div", "row");
    side.append(parts.state, inspectButton(() => this.view, () => this.#artifact()));
    head.append(parts.title, side);
    parts.feedback.setAttribute("role", "status");
    parts.caption.setAttribute("role", "status");
    for (const scrolled of [parts.preview, parts.body]) scrolled.tabIndex = 0;
    parts.preview.setAttribute("role", "group");
    parts.body.setAttribute("role", "group");
    parts.preview.setAttribute("aria-label", "Preview");
    parts.body.setAttribute("aria-label", "Body");
    const read = this.#button("Show body", () => this.#read(undefined));
    const diff = this.#button("Show diff", () => this.#diff());
    read.classList.add("read");
    diff.classList.add("show-diff");
    const control = (/** @type {string} */ name) => () => {
      const artifact = this.#artifact();
      return artifact ? { control: name, ...controlTarget(artifact), artifactId: artifact.activityId, ...(name === "request_review" ? { value: { target: artifact.activityId } } : {}) } : null;
    };
    const writeControls = element("div", "row writes");
    writeControls.append(
      controlButton("Export", () => this.view, control("export"), { feedback: parts.feedback }),
      controlButton("Request review", () => this.view, control("request_review"), { feedback: parts.feedback }),
    );
    parts.foot.append(read, diff, writeControls);
    parts.edit.append(element("summary", "", "Edit"), this.#editor(parts.text, parts.feedback));
    root.append(head, parts.note, parts.facts, parts.previewLabel, parts.preview, parts.none, parts.versionsLabel, parts.versions, parts.links, parts.foot, parts.edit, parts.feedback, parts.caption, parts.body);
    return parts;
  }

  /**
   * Builds the editor. A new body becomes a version when the runtime reports it.
   * @param {HTMLTextAreaElement} text
   * @param {HTMLElement} feedback
   */
  #editor(text, feedback) {
    const form = element("form", "stack");
    const field = element("label", "field");
    text.rows = 6;
    field.append(element("span", "", "New body"), text);
    const fill = this.#button("Start from the latest body", async () => {
      const artifact = this.#artifact();
      if (!artifact) return;
      try {
        const { text: body, isWhole } = await this.#bodyOf(artifact, undefined);
        if (!isWhole) throw new Error("The body is too long to edit here.");
        if (artifact.activityId === this.#artifact()?.activityId) text.value = body;
      } catch (error) {
        feedback.dataset.state = "failed";
        setText(feedback, error instanceof Error ? error.message : String(error));
      }
    });
    fill.dataset.kind = "quiet";
    const send = controlButton("Send edit", () => this.view, () => {
      const artifact = this.#artifact();
      if (!artifact || text.value === "") return setText(feedback, "Enter the new body."), null;
      const base = artifact.content.versionId ?? artifact.content.version;
      return { control: "edit", ...controlTarget(artifact), artifactId: artifact.activityId, value: { body: text.value, ...(base === undefined ? {} : { baseVersion: base }) } };
    }, { feedback });
    send.dataset.does = "edit";
    form.addEventListener("submit", (event) => event.preventDefault());
    const row = element("div", "row");
    row.append(fill, send);
    form.append(field, row);
    return form;
  }

  /**
   * @param {string} label
   * @param {() => void} onClick
   */
  #button(label, onClick) {
    const button = element("button", "button", label);
    button.type = "button";
    button.addEventListener("click", onClick);
    return button;
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const all = this.activities().toReversed();
    this.hidden = all.length === 0;
    if (this.hidden || !this.list || !this.more) return;
    const requested = this.#requested;
    const found = requested && (all.find((artifact) => artifact.activityId === requested.id && artifact.runId === (requested.runId ?? artifact.runId)));
    if (found) {
      this.#requested = undefined;
      this.#select(keyOf(found));
    }
    if (!all.some((artifact) => keyOf(artifact) === this.#selectedKey)) this.#select(keyOf(all[0]));
    setText(/** @type {HTMLElement} */ (this.head?.querySelector(".count")), String(all.length));
    updateChildren(this.list, all.slice(0, this.#listLimit), keyOf, (artifact) => this.#createLine(artifact), (line, artifact) => this.#updateLine(line, artifact));
    this.more.hidden = all.length <= this.#listLimit;
    this.#draw();
  }

  /** @param {string} key */
  #select(key) {
    if (key === this.#selectedKey) return;
    this.#selectedKey = key;
    if (this.detail) this.detail.text.value = "";
    this.#requestId += 1;
    this.#showBody("", "");
  }

  #artifact() {
    return this.#selectedKey === undefined ? undefined : this.view.store.get(this.#selectedKey);
  }

  /** @param {Activity} artifact */
  #createLine(artifact) {
    const line = element("li");
    const button = this.#button("", () => {
      this.#select(keyOf(artifact));
      this.update(null);
    });
    button.className = "line";
    button.append(element("span", "card-title truncate"), element("span", "hint"), element("span", "badge"));
    line.append(button);
    return line;
  }

  /**
   * @param {HTMLElement} line
   * @param {Activity} artifact
   */
  #updateLine(line, { content, activityId, ...of }) {
    const button = /** @type {HTMLElement} */ (line.firstElementChild);
    const [title, kind, state] = /** @type {HTMLElement[]} */ ([...button.children]);
    const key = keyOf({ ...of, activityId });
    line.dataset.key = key;
    if (key === this.#selectedKey) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    setText(title, formatValue(content.title ?? content.name) || activityId);
    setText(kind, [formatValue(content.kind ?? content.artifactKind ?? content.artifactType ?? content.mimeType) || "unknown kind", content.version === undefined ? "" : `version ${formatValue(content.version)}`].filter(Boolean).join(" · "));
    setBadge(state, displayedStatus(content), humanize(displayedStatus(content)));
    state.dataset.state = artifactState(displayedStatus(content));
  }

  #draw() {
    const artifact = this.#artifact();
    const detail = this.detail;
    if (!artifact || !detail) return;
    const { content } = artifact;
    detail.root.dataset.key = keyOf(artifact);
    setText(detail.title, formatValue(content.title ?? content.name) || artifact.activityId);
    setBadge(detail.state, displayedStatus(content));
    detail.state.dataset.state = artifactState(displayedStatus(content));
    const isDeleted = content.status === "deleted";
    const problem = content.status === "failed" ? `Failed: ${formatValue(content.error?.message ?? content.error) || "no reason given"}` : isDeleted ? "Deleted by the source." : "";
    detail.note.hidden = problem === "";
    detail.note.dataset.state = isDeleted ? "idle" : "failed";
    setText(detail.note, problem);
    setFacts(detail.facts, [
      ["Id", artifact.activityId],
      ["Kind", content.kind ?? content.artifactKind ?? content.artifactType ?? content.mimeType ?? "unknown"],
      ["Version", content.version ?? (content.versions ? undefined : "unknown")],
      ["Path", content.path],
      ["Language", content.language],
      ["Size", content.bytes ?? content.size],
      ["Summary", content.summary],
      ["Diff", content.diffStat],
      ["Created by", content.agentId],
      ["Task", content.taskId],
      ["Export", content.exportFormat],
      ["Read-only", content.readOnly],
    ]);
    setText(detail.preview, toText(content.preview));
    detail.preview.hidden = detail.preview.textContent === "";
    detail.previewLabel.hidden = detail.preview.hidden;
    detail.none.hidden = !detail.preview.hidden;
    const versions = Array.isArray(content.versions) ? content.versions.toReversed() : [];
    detail.versionsLabel.hidden = versions.length === 0;
    updateChildren(detail.versions, versions, (version) => `${artifact.runId} ${artifact.activityId} ${version?.sequence} ${formatValue(version?.version ?? version?.versionId)}`, (version) => this.#version(version), (row, version) => fillVersion(row, version, content.version));
    setLinks(detail.links, [
      ...refLinks(this.view, content.ref ?? content.href ?? content.url ?? content.uri),
      ...refLinks(this.view, content.previewRef, "preview"),
      ...refLinks(this.view, content.diffRef, "diff"),
      ...refLinks(this.view, content.exportRef, "export"),
      ...evidenceLinks(this.view, artifact, content.evidenceRefs),
      ...refLinks(this.view, content.refs),
    ]);
    detail.links.hidden = detail.links.childElementCount === 0;
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (detail.foot.querySelector(name));
    part(".read").hidden = isDeleted || artifact.runId === "";
    part(".show-diff").hidden = content.diffRef === undefined && content.diffStat === undefined && content.status !== "diff_ready";
    part(".writes").hidden = detail.edit.hidden = !this.view.isLive || isDeleted;
    detail.edit.hidden ||= content.readOnly === true;
  }

  /** @param {Record<string, any>} version */
  #version(version) {
    const row = element("li", "spread");
    const what = element("span", "row");
    what.append(element("span", "name"), element("span", "hint"));
    const side = element("span", "row");
    const open = this.#button("Show", () => this.#read(version));
    const back = controlButton("Roll back", () => this.view, () => {
      const artifact = this.#artifact();
      return artifact ? { control: "rollback", ...controlTarget(artifact), artifactId: artifact.activityId, value: { version: version.version ?? version.versionId } } : null;
    }, { kind: "quiet", feedback: this.detail?.feedback });
    open.dataset.kind = "quiet";
    const name = formatValue(version?.version ?? version?.versionId) || "unknown";
    open.setAttribute("aria-label", `Show version ${name}`);
    back.setAttribute("aria-label", `Roll back to version ${name}`);
    back.hidden = !this.view.isLive;
    side.append(open, back);
    row.append(what, side);
    return row;
  }

  /* ── bodies, on demand ── */

  /**
   * @param {Record<string, any> | undefined} version The version; the latest body if it is left out.
   */
  async #read(version) {
    const artifact = this.#artifact();
    if (!artifact) return;
    const name = version ? `version ${formatValue(version.version ?? version.versionId)}` : "the latest body";
    await this.#loadBody(`Loading ${name}…`, async () => ({ caption: name, ...(await this.#bodyOf(artifact, version)) }));
  }

  /**
   * @param {Activity} artifact
   * @param {Record<string, any> | undefined} version
   * @returns {Promise<Text>}
   */
  async #bodyOf(artifact, version) {
    const name = version ? `version ${formatValue(version.version ?? version.versionId)}` : "the latest body";
    const ref = BODY_REF_MEMBERS.map((member) => (version ?? artifact.content)[member]).find((href) => typeof href === "string" && BLOB_PATH.test(href));
    if (ref) return readBlobText(this.view, ref);
    const text = await readTextFromEvents(this.view, artifact, version?.sequence, BODY_MEMBERS, ["artifact.created", "artifact.updated", "artifact.changed", "artifact.version.created"]);
    if (text === undefined) throw new Error(`Unavailable: the source sent no facts with ${name}${version?.ref ? `. It is stored at ${version.ref}` : ""}.`);
    return text;
  }

  async #diff() {
    const artifact = this.#artifact();
    if (!artifact) return;
    await this.#loadBody("Loading the diff…", async () => ({ caption: "diff", ...(await readDiff(this.view, artifact)), isDiff: true }));
  }

  /**
   * @param {string} progress
   * @param {() => Promise<Text & { caption: string, isDiff?: boolean }>} load
   */
  async #loadBody(progress, load) {
    const requestId = ++this.#requestId;
    this.#showBody(progress, "");
    try {
      const { caption, text, isWhole, isDiff } = await load();
      const shown = text.slice(0, BODY_CHARS_MAX);
      if (requestId === this.#requestId) this.#showBody(isWhole && shown === text ? caption : `${caption}: the first ${formatCount(shown.length)} characters`, shown, isDiff);
    } catch (error) {
      if (requestId === this.#requestId) this.#showBody(error instanceof Error ? error.message : String(error), "");
    }
  }

  /**
   * @param {string} caption
   * @param {string} text
   * @param {boolean} [isDiff]
   */
  #showBody(caption, text, isDiff = false) {
    if (!this.detail) return;
    const { caption: captionElement, body } = this.detail;
    captionElement.hidden = caption === "";
    body.hidden = text === "";
    body.dataset.kind = isDiff ? "diff" : "body";
    setText(captionElement, caption);
    if (isDiff) drawDiff(body, text);
    else body.replaceChildren(text);
  }
}

/**
 * @param {HTMLElement} row
 * @param {Record<string, any>} version
 * @param {unknown} current
 */
function fillVersion(row, version, current) {
  const [name, hint] = /** @type {HTMLElement[]} */ ([...row.children[0].children]);
  const number = version?.version ?? version?.versionId;
  setText(name, `Version ${formatValue(number) || "unknown"}${current !== undefined && number === current ? " (current)" : ""}`);
  setText(hint, [formatValue(version?.summary ?? version?.title), formatValue(version?.createdAt), formatValue(version?.ref ?? version?.href)].filter(Boolean).join(" · "));
}

define("ps-artifacts", Artifacts);
