/**
 * The workspace of what was made: a list, and of the chosen one its preview, versions, diff, and where it went. Bodies are read when
 * somebody asks for one, from where their owner or the log keeps them; none stands in the conversation.
 */

import { Surface, count, define, element, inspectButton, keyed, mark, say, spoken, standing, words } from "./base.js";
import { keyOf } from "../client/store.js";
import { BODIES, blobText, diffOf, drawDiff, keptText } from "./bodies.js";
import { artifactState } from "./describe.js";
import { controlButton } from "./handed.js";
import { BLOB, evidenceOf, headed, link, ownerOf, phrase, refsOf, tell } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./bodies.js").Text} Text */

/** Artifacts that are listed before somebody asks for more. */
const LISTED_MAX = 100;
/** Characters of a body that are put on the page. */
const BODY_CHARS_MAX = 200_000;
const REFS = ["bodyRef", "contentRef", "versionRef", "ref", "href"];

export class Artifacts extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType }) {
    return activityType === "artifact";
  }

  /** @type {string | undefined} The chosen one, by key. */
  #chosen;
  /** @type {{ id: string, runId?: string } | undefined} One that was asked for, and may not be there yet. */
  #wanted;
  #listed = LISTED_MAX;
  /** The newest question; an answer to an older one is dropped. */
  #asked = 0;

  /**
   * Chooses one.
   * @param {string} id
   * @param {string} [runId]
   */
  open(id, runId) {
    this.#wanted = { id, runId };
    if (this.isConnectedToView) this.update(null);
  }

  build() {
    this.#asked += 1;
    this.#listed = LISTED_MAX;
    this.head = headed(this, "Artifacts");
    this.list = element("ul", "artifact-list");
    this.more = element("button", "button", "Show more");
    this.more.type = "button";
    this.more.dataset.kind = "quiet";
    this.more.addEventListener("click", () => {
      this.#listed += LISTED_MAX;
      this.update(null);
    });
    const side = element("nav", "stack");
    side.setAttribute("aria-label", "Artifacts");
    side.append(this.list, this.more);
    this.detail = this.#detail();
    const space = element("div", "workspace");
    space.append(side, this.detail.root);
    this.append(space);
  }

  #detail() {
    const root = element("article", "card sheet");
    const made = {
      root, title: element("h3", "card-title"), state: element("span", "badge"), note: element("p", "note"), facts: element("dl", "facts"),
      preview: element("pre", "preview"), versions: element("ol", "versions"), links: element("div", "row links"), foot: element("div", "card-foot"),
      told: element("p", "hint told"), caption: element("p", "label"), body: element("pre", "body"), none: element("p", "hint", "No preview."),
      edit: element("details", "stack edit"), text: element("textarea"),
      versionsLabel: element("p", "label", "versions"), previewLabel: element("p", "label", "preview"),
    };
    const head = element("div", "card-head");
    const side = element("div", "row");
    side.append(made.state, inspectButton(() => this.view, () => this.#artifact()));
    head.append(made.title, side);
    made.told.setAttribute("role", "status");
    made.caption.setAttribute("role", "status");
    for (const scrolled of [made.preview, made.body]) scrolled.tabIndex = 0;
    made.preview.setAttribute("role", "group");
    made.body.setAttribute("role", "group");
    made.preview.setAttribute("aria-label", "Preview");
    made.body.setAttribute("aria-label", "Body");
    const read = this.#button("Read body", () => this.#read(undefined));
    const diff = this.#button("Show diff", () => this.#diff());
    read.classList.add("read");
    diff.classList.add("show-diff");
    const control = (/** @type {string} */ name) => () => {
      const it = this.#artifact();
      return it ? { control: name, ...ownerOf(it), artifactId: it.activityId, ...(name === "request_review" ? { value: { target: it.activityId } } : {}) } : null;
    };
    const writes = element("div", "row writes");
    writes.append(
      controlButton("Export", () => this.view, control("export"), { told: made.told }),
      controlButton("Request review", () => this.view, control("request_review"), { told: made.told }),
    );
    made.foot.append(read, diff, writes);
    made.edit.append(element("summary", "", "Edit"), this.#editor(made.text, made.told));
    root.append(head, made.note, made.facts, made.previewLabel, made.preview, made.none, made.versionsLabel, made.versions, made.links, made.foot, made.edit, made.told, made.caption, made.body);
    return made;
  }

  /**
   * A new body for the artifact's owner: it becomes a version when the owner says so.
   * @param {HTMLTextAreaElement} text
   * @param {HTMLElement} told
   */
  #editor(text, told) {
    const form = element("form", "stack");
    const field = element("label", "field");
    text.rows = 6;
    field.append(element("span", "", "New body"), text);
    const fill = this.#button("Start from the newest body", async () => {
      const it = this.#artifact();
      if (!it) return;
      try {
        const { text: body, isWhole } = await this.#bodyOf(it, undefined);
        if (!isWhole) throw new Error("the body is too long to be edited here");
        if (it.activityId === this.#artifact()?.activityId) text.value = body;
      } catch (why) {
        told.dataset.state = "failed";
        say(told, why instanceof Error ? why.message : String(why));
      }
    });
    fill.dataset.kind = "quiet";
    const send = controlButton("Send edit", () => this.view, () => {
      const it = this.#artifact();
      if (!it || text.value === "") return say(told, "Enter the new body."), null;
      const base = it.content.versionId ?? it.content.version;
      return { control: "edit", ...ownerOf(it), artifactId: it.activityId, value: { body: text.value, ...(base === undefined ? {} : { baseVersion: base }) } };
    }, { told });
    send.dataset.does = "edit";
    form.addEventListener("submit", (event) => event.preventDefault());
    const row = element("div", "row");
    row.append(fill, send);
    form.append(field, row);
    return form;
  }

  /**
   * @param {string} label
   * @param {() => void} does
   */
  #button(label, does) {
    const button = element("button", "button", label);
    button.type = "button";
    button.addEventListener("click", does);
    return button;
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const all = this.activities().toReversed();
    this.hidden = all.length === 0;
    if (this.hidden || !this.list || !this.more) return;
    const wanted = this.#wanted;
    const asked = wanted && (all.find((it) => it.activityId === wanted.id && it.runId === (wanted.runId ?? it.runId)));
    if (asked) {
      this.#wanted = undefined;
      this.#choose(keyOf(asked));
    }
    if (!all.some((it) => keyOf(it) === this.#chosen)) this.#choose(keyOf(all[0]));
    say(/** @type {HTMLElement} */ (this.head?.querySelector(".count")), String(all.length));
    keyed(this.list, all.slice(0, this.#listed), keyOf, (it) => this.#line(it), (line, it) => this.#fillLine(line, it));
    this.more.hidden = all.length <= this.#listed;
    this.#draw();
  }

  /** @param {string} key */
  #choose(key) {
    if (key === this.#chosen) return;
    this.#chosen = key;
    if (this.detail) this.detail.text.value = "";
    this.#asked += 1;
    this.#show("", "");
  }

  #artifact() {
    return this.#chosen === undefined ? undefined : this.view.store.get(this.#chosen);
  }

  /** @param {Activity} artifact */
  #line(artifact) {
    const line = element("li");
    const button = this.#button("", () => {
      this.#choose(keyOf(artifact));
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
  #fillLine(line, { content, activityId, ...of }) {
    const button = /** @type {HTMLElement} */ (line.firstElementChild);
    const [title, kind, state] = /** @type {HTMLElement[]} */ ([...button.children]);
    const key = keyOf({ ...of, activityId });
    line.dataset.key = key;
    if (key === this.#chosen) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    say(title, phrase(content.title ?? content.name) || activityId);
    say(kind, [phrase(content.kind ?? content.artifactKind ?? content.artifactType ?? content.mimeType) || "unknown kind", content.version === undefined ? "" : `version ${phrase(content.version)}`].filter(Boolean).join(" · "));
    mark(state, standing(content), spoken(standing(content)));
    state.dataset.state = artifactState(standing(content));
  }

  #draw() {
    const it = this.#artifact();
    const detail = this.detail;
    if (!it || !detail) return;
    const { content } = it;
    detail.root.dataset.key = keyOf(it);
    say(detail.title, phrase(content.title ?? content.name) || it.activityId);
    mark(detail.state, standing(content));
    detail.state.dataset.state = artifactState(standing(content));
    const isGone = content.status === "deleted";
    const trouble = content.status === "failed" ? `Failed: ${phrase(content.error?.message ?? content.error) || "the source gave no reason"}` : isGone ? "Deleted by its owner." : "";
    detail.note.hidden = trouble === "";
    detail.note.dataset.state = isGone ? "idle" : "failed";
    say(detail.note, trouble);
    tell(detail.facts, [
      ["Id", it.activityId],
      ["Kind", content.kind ?? content.artifactKind ?? content.artifactType ?? content.mimeType ?? "unknown"],
      ["Version", content.version ?? (content.versions ? undefined : "unknown")],
      ["Path", content.path],
      ["Language", content.language],
      ["Size", content.bytes ?? content.size],
      ["Summary", content.summary],
      ["Diff", content.diffStat],
      ["Made by", content.agentId],
      ["Task", content.taskId],
      ["Export", content.exportFormat],
      ["Read only", content.readOnly],
    ]);
    say(detail.preview, words(content.preview));
    detail.preview.hidden = detail.preview.textContent === "";
    detail.previewLabel.hidden = detail.preview.hidden;
    detail.none.hidden = !detail.preview.hidden;
    const versions = Array.isArray(content.versions) ? content.versions.toReversed() : [];
    detail.versionsLabel.hidden = versions.length === 0;
    keyed(detail.versions, versions, (version) => `${it.runId} ${it.activityId} ${version?.sequence} ${phrase(version?.version ?? version?.versionId)}`, (version) => this.#version(version), (row, version) => fillVersion(row, version, content.version));
    link(detail.links, [
      ...refsOf(this.view, content.ref ?? content.href ?? content.url ?? content.uri),
      ...refsOf(this.view, content.previewRef, "preview"),
      ...refsOf(this.view, content.diffRef, "diff"),
      ...refsOf(this.view, content.exportRef, "export"),
      ...evidenceOf(this.view, it, content.evidenceRefs),
      ...refsOf(this.view, content.refs),
    ]);
    detail.links.hidden = detail.links.childElementCount === 0;
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (detail.foot.querySelector(name));
    part(".read").hidden = isGone || it.runId === "";
    part(".show-diff").hidden = content.diffRef === undefined && content.diffStat === undefined && content.status !== "diff_ready";
    part(".writes").hidden = detail.edit.hidden = !this.view.isLive || isGone;
    detail.edit.hidden ||= content.readOnly === true;
  }

  /** @param {Record<string, any>} version */
  #version(version) {
    const row = element("li", "spread");
    const what = element("span", "row");
    what.append(element("span", "name"), element("span", "hint"));
    const side = element("span", "row");
    const open = this.#button("Read", () => this.#read(version));
    const back = controlButton("Roll back", () => this.view, () => {
      const it = this.#artifact();
      return it ? { control: "rollback", ...ownerOf(it), artifactId: it.activityId, value: { version: version.version ?? version.versionId } } : null;
    }, { kind: "quiet", told: this.detail?.told });
    open.dataset.kind = "quiet";
    const name = phrase(version?.version ?? version?.versionId) || "unknown";
    open.setAttribute("aria-label", `Read version ${name}`);
    back.setAttribute("aria-label", `Roll back to version ${name}`);
    back.hidden = !this.view.isLive;
    side.append(open, back);
    row.append(what, side);
    return row;
  }

  /* ── bodies, on demand ── */

  /**
   * @param {Record<string, any> | undefined} version The newest body, where none is named.
   */
  async #read(version) {
    const it = this.#artifact();
    if (!it) return;
    const name = version ? `version ${phrase(version.version ?? version.versionId)}` : "the newest body";
    await this.#load(`Reading ${name} …`, async () => ({ caption: name, ...(await this.#bodyOf(it, version)) }));
  }

  /**
   * @param {Activity} it
   * @param {Record<string, any> | undefined} version
   * @returns {Promise<Text>}
   */
  async #bodyOf(it, version) {
    const name = version ? `version ${phrase(version.version ?? version.versionId)}` : "the newest body";
    const ref = REFS.map((member) => (version ?? it.content)[member]).find((href) => typeof href === "string" && BLOB.test(href));
    if (ref) return blobText(this.view, ref);
    const kept = await keptText(this.view, it, version?.sequence, BODIES, ["artifact.created", "artifact.updated", "artifact.changed", "artifact.version.created"]);
    if (kept === undefined) throw new Error(`unavailable: no fact holds ${name}${version?.ref ? `; its owner keeps it at ${version.ref}` : ""}`);
    return kept;
  }

  async #diff() {
    const it = this.#artifact();
    if (!it) return;
    await this.#load("Reading the diff …", async () => ({ caption: "diff", ...(await diffOf(this.view, it)), isDiff: true }));
  }

  /**
   * @param {string} meanwhile
   * @param {() => Promise<Text & { caption: string, isDiff?: boolean }>} load
   */
  async #load(meanwhile, load) {
    const asked = ++this.#asked;
    this.#show(meanwhile, "");
    try {
      const { caption, text, isWhole, isDiff } = await load();
      const shown = text.slice(0, BODY_CHARS_MAX);
      if (asked === this.#asked) this.#show(isWhole && shown === text ? caption : `${caption}: the first ${count(shown.length)} characters`, shown, isDiff);
    } catch (why) {
      if (asked === this.#asked) this.#show(why instanceof Error ? why.message : String(why), "");
    }
  }

  /**
   * @param {string} caption
   * @param {string} text
   * @param {boolean} [isDiff]
   */
  #show(caption, text, isDiff = false) {
    if (!this.detail) return;
    const { caption: says, body } = this.detail;
    says.hidden = caption === "";
    body.hidden = text === "";
    body.dataset.kind = isDiff ? "diff" : "body";
    say(says, caption);
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
  say(name, `Version ${phrase(number) || "unknown"}${current !== undefined && number === current ? " (current)" : ""}`);
  say(hint, [phrase(version?.summary ?? version?.title), phrase(version?.createdAt), phrase(version?.ref ?? version?.href)].filter(Boolean).join(" · "));
}

define("ps-artifacts", Artifacts);
