/**
 * A diff of two texts, or of a unified patch: line numbers, word marks, and folded unchanged lines.
 *
 * jsdiff is loaded with the first diff. A patch appears at once; its word marks follow. Of a long diff, only the lines
 * near the viewport are in the document.
 */

import { html, nothing, render } from "../vendor/lit.js";

/** @typedef {{ text: string, isChanged: boolean }} Piece */
/**
 * One line of a diff. `gap`: lines that a patch leaves out, `skipped` of them if the patch says how many. `file`: the
 * name of the next file of a patch.
 * @typedef {{ kind: "same" | "add" | "delete" | "gap" | "file", text: string, before?: number, after?: number, skipped?: number, pieces?: Piece[] }} Line
 */
/** @typedef {{ mode?: "unified" | "split", context?: number, label?: string }} DiffOptions `context`: unchanged lines around a change. */

/** Unchanged lines around a change. */
const CONTEXT_LINES = 3;
/** The maximum number of lines shown. */
const LINES_MAX = 20_000;
/** Rows of a chunk, which is drawn as a whole, and the chunks that are drawn at first. */
const CHUNK_ROWS = 100;
const FIRST_CHUNKS = 2;
/** The height of a row that was never drawn, in pixels: that of a line in the style sheet. */
const ROW_PX = 21;
/** How far from the viewport chunks are drawn. */
const AHEAD = "800px";
/** How long marking words may block the page, in milliseconds. */
const SLICE_MS = 8;
/** A longer block of changed lines gets no word marks: they would cost more than they explain. */
const MARKED_CHARS_MAX = 8000;
/** Below this share of common characters, two blocks are different texts, and word marks would be noise. */
const COMMON_SHARE_MIN = 0.3;

const loadJsdiff = () => import("../vendor/diff.js");

/** @param {string} text */
function splitLines(text) {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/**
 * Compares two texts line by line.
 * @param {string} before
 * @param {string} after
 * @returns {Promise<Line[]>} Without word marks.
 */
async function compareLines(before, after) {
  const { diffLines } = await loadJsdiff();
  /** @type {Line[]} */
  const lines = [];
  let [beforeNumber, afterNumber] = [1, 1];
  for (const { value, added, removed } of diffLines(before, after)) {
    for (const text of splitLines(value)) {
      if (added) lines.push({ kind: "add", text, after: afterNumber++ });
      else if (removed) lines.push({ kind: "delete", text, before: beforeNumber++ });
      else lines.push({ kind: "same", text, before: beforeNumber++, after: afterNumber++ });
    }
  }
  return lines;
}

/**
 * Compares two texts line by line, and marks words.
 * @param {string} before
 * @param {string} after
 */
export const compareTexts = async (before, after) => markWords(await compareLines(before, after));

/**
 * Reads a unified patch. A text without hunks is read as its lines, without numbers.
 * @param {string} patch
 * @returns {Line[]}
 */
export function parsePatch(patch) {
  /** @type {Line[]} */
  const lines = [];
  const source = splitLines(patch);
  let before = NaN;
  let after = NaN;
  let [beforeLeft, afterLeft] = [0, 0];
  const numbered = (/** @type {number} */ number) => (Number.isNaN(number) ? undefined : number);
  for (let at = 0; at < source.length; at += 1) {
    const text = source[at];
    // A hunk says how many lines it has, so that a deleted "-- x" is no header of a file.
    const isInHunk = beforeLeft > 0 || afterLeft > 0;
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(text);
    if (hunk) {
      const start = Number(hunk[1]);
      [beforeLeft, afterLeft] = [Number(hunk[2] ?? 1), Number(hunk[4] ?? 1)];
      const skipped = Number.isNaN(before) ? start - 1 : start - before;
      if (skipped > 0) lines.push({ kind: "gap", text: "", skipped });
      [before, after] = [start, Number(hunk[3])];
    } else if (!isInHunk && text.startsWith("--- ") && source[at + 1]?.startsWith("+++ ")) {
      lines.push({ kind: "file", text: fileName(source[at + 1]) || fileName(text) });
      at += 1;
      [before, after] = [NaN, NaN];
    } else if (/^(diff --git |index |new file|deleted file|similarity |rename |\\ No newline)/.test(text)) {
      // A source may count its lines wrong; the next file begins in any case.
      if (text.startsWith("diff ")) [beforeLeft, afterLeft] = [0, 0];
    } else if (text.startsWith("+")) {
      lines.push({ kind: "add", text: text.slice(1), after: numbered(after++) });
      afterLeft -= 1;
    } else if (text.startsWith("-")) {
      lines.push({ kind: "delete", text: text.slice(1), before: numbered(before++) });
      beforeLeft -= 1;
    } else {
      beforeLeft -= 1;
      afterLeft -= 1;
      lines.push({ kind: "same", text: text.startsWith(" ") ? text.slice(1) : text, before: numbered(before++), after: numbered(after++) });
    }
  }
  return lines;
}

/** @param {string} header A line that begins with `---` or `+++`. */
const fileName = (header) => header.slice(4).replace(/\t.*$/, "").replace(/^[ab]\//, "").replace(/^\/dev\/null$/, "");

/**
 * Counts added and deleted lines.
 * @param {Line[]} lines
 */
export const countChanges = (lines) => ({ added: lines.filter(({ kind }) => kind === "add").length, deleted: lines.filter(({ kind }) => kind === "delete").length });

/**
 * Marks the changed words of deleted lines and of the added lines that replace them.
 * @param {Line[]} lines
 * @returns {Promise<Line[]>}
 */
async function markWords(lines) {
  const { diffWordsWithSpace } = await loadJsdiff();
  const marked = [...lines];
  let until = performance.now() + SLICE_MS;
  for (let at = 0; at < lines.length; at += 1) {
    if (lines[at].kind !== "delete") continue;
    const start = at;
    while (lines[at]?.kind === "delete") at += 1;
    const middle = at;
    while (lines[at]?.kind === "add") at += 1;
    if (middle === at) continue;
    const textOf = (/** @type {Line[]} */ block) => block.map(({ text }) => text).join("\n");
    const [deleted, added] = [textOf(lines.slice(start, middle)), textOf(lines.slice(middle, at))];
    if (deleted.length + added.length > MARKED_CHARS_MAX) continue;
    if (performance.now() > until) {
      await new Promise((resolve) => setTimeout(resolve));
      until = performance.now() + SLICE_MS;
    }
    const parts = diffWordsWithSpace(deleted, added);
    const common = parts.reduce((sum, part) => sum + (part.added || part.removed ? 0 : part.value.trim().length), 0);
    if (common < COMMON_SHARE_MIN * Math.min(deleted.length, added.length)) continue;
    setPieces(marked, start, parts.filter((part) => !part.added).map(({ value, removed }) => ({ text: value, isChanged: removed === true })));
    setPieces(marked, middle, parts.filter((part) => !part.removed).map(({ value, added: isAdded }) => ({ text: value, isChanged: isAdded === true })));
    at -= 1;
  }
  return marked;
}

/**
 * Distributes the pieces of a block to its lines.
 * @param {Line[]} lines
 * @param {number} at The first line of the block.
 * @param {Piece[]} pieces
 */
function setPieces(lines, at, pieces) {
  // A space between two changed words is part of the change.
  const isGap = (/** @type {number} */ index) => pieces[index].text.trim() === "" && !pieces[index].text.includes("\n") && pieces[index - 1]?.isChanged && pieces[index + 1]?.isChanged;
  const joined = pieces.map((piece, index) => (isGap(index) ? { ...piece, isChanged: true } : piece)).reduce((/** @type {Piece[]} */ all, piece) => {
    const last = all.at(-1);
    return last && last.isChanged === piece.isChanged ? [...all.slice(0, -1), { ...last, text: last.text + piece.text }] : [...all, piece];
  }, []);
  lines[at] = { ...lines[at], pieces: [] };
  for (const { text, isChanged } of joined) {
    for (const [index, part] of text.split("\n").entries()) {
      if (index > 0) lines[(at += 1)] = { ...lines[at], pieces: [] };
      if (part !== "") lines[at].pieces?.push({ text: part, isChanged });
    }
  }
}

/**
 * A diff of two texts, as a template.
 * @param {string} before
 * @param {string} after
 * @param {DiffOptions} [options]
 */
export const diffView = (before, after, { mode = "unified", context = CONTEXT_LINES, label = "Diff" } = {}) => html`<ps-diff .source=${{ before, after }} .options=${{ mode, context, label }}></ps-diff>`;

/**
 * A unified patch, as a template.
 * @param {string} patch
 * @param {DiffOptions} [options]
 */
export const patchView = (patch, { mode = "unified", context = CONTEXT_LINES, label = "Diff" } = {}) => html`<ps-diff .source=${{ patch }} .options=${{ mode, context, label }}></ps-diff>`;

/** @typedef {{ before: string, after: string } | { patch: string }} Source */

/** @param {Source | undefined} a @param {Source | undefined} b */
const isSameSource = (a, b) => a !== undefined && b !== undefined && ("patch" in a ? "patch" in b && a.patch === b.patch : "before" in b && a.before === b.before && a.after === b.after);

/** The element of a diff. It keeps which folds are open, and which chunks of a long diff are near the viewport. */
class Diff extends HTMLElement {
  /** @type {Source | undefined} */
  #source;
  /** @type {Required<DiffOptions>} */
  #options = { mode: "unified", context: CONTEXT_LINES, label: "Diff" };
  /** @type {Line[] | undefined} */
  #lines;
  #problem = "";
  /** The folds that the viewer opened, by their first line. @type {Set<number>} */
  #openFolds = new Set();
  /** The chunks near the viewport, and the heights of those that were drawn, by index. @type {Set<number>} */
  #near = new Set(Array.from({ length: FIRST_CHUNKS }, (_, at) => at));
  /** @type {Map<number, number>} */
  #heights = new Map();
  /** @type {IntersectionObserver | undefined} */
  #observer;

  disconnectedCallback() {
    this.#observer?.disconnect();
    this.#observer = undefined;
  }

  /** @param {Required<DiffOptions>} options */
  set options(options) {
    if (options.mode !== this.#options.mode) this.#forgetChunks();
    this.#options = options;
    this.#draw();
  }

  /** @param {Source} source */
  set source(source) {
    if (isSameSource(this.#source, source)) return;
    this.#source = source;
    this.#openFolds = new Set();
    this.#forgetChunks();
    this.#lines = undefined;
    void this.#load(source);
  }

  /** Shows the lines as soon as they are known, and then their word marks. @param {Source} source */
  async #load(source) {
    const show = (/** @type {Line[]} */ lines) => {
      if (this.#source === source) this.#lines = lines;
      this.#draw();
    };
    try {
      if ("patch" in source) show(parsePatch(source.patch));
      else {
        this.#draw();
        show(await compareLines(source.before, source.after));
      }
      if (this.#lines && this.#source === source) show(await markWords(this.#lines));
    } catch (error) {
      // The lines are complete without word marks.
      if (this.#source !== source || this.#lines) return;
      this.#problem = `The diff cannot be computed: ${error instanceof Error ? error.message : error}`;
      this.#draw();
    }
  }

  #forgetChunks() {
    this.#near = new Set(Array.from({ length: FIRST_CHUNKS }, (_, at) => at));
    this.#heights = new Map();
  }

  #draw() {
    const { mode, label } = this.#options;
    this.classList.add("diff-view");
    this.dataset.mode = mode;
    const rows = this.#lines && this.#blocks(this.#lines.slice(0, LINES_MAX)).flat();
    const isLong = rows !== undefined && rows.length > CHUNK_ROWS * FIRST_CHUNKS;
    const hidden = (this.#lines?.length ?? 0) - LINES_MAX;
    render(html`
      ${this.#problem ? html`<p class="diff-note" role="status">${this.#problem}</p>` : nothing}
      ${rows === undefined && !this.#problem ? html`<p class="diff-note" role="status">Comparing…</p>` : nothing}
      ${rows === undefined ? nothing : html`<div class="diff-lines" role="group" aria-label=${label} tabindex="0">${isLong ? this.#chunks(rows) : rows}</div>`}
      ${rows?.length === 0 ? html`<p class="diff-note">The texts are equal.</p>` : nothing}
      ${hidden > 0 ? html`<p class="diff-note">${hidden} more lines are not shown.</p>` : nothing}`, this);
    if (isLong) this.#observe();
  }

  /** @param {unknown[]} rows */
  #chunks(rows) {
    const count = Math.ceil(rows.length / CHUNK_ROWS);
    return Array.from({ length: count }, (_, at) => html`<div class="diff-chunk" data-rows=${Math.min(CHUNK_ROWS, rows.length - at * CHUNK_ROWS)}>${this.#near.has(at) ? rows.slice(at * CHUNK_ROWS, (at + 1) * CHUNK_ROWS) : nothing}</div>`);
  }

  /** Gives chunks that are not drawn the height that they had, and follows which of them come near. */
  #observe() {
    const chunks = /** @type {HTMLElement[]} */ ([...this.querySelectorAll(".diff-chunk")]);
    for (const [at, chunk] of chunks.entries()) chunk.style.height = this.#near.has(at) ? "" : `${this.#heights.get(at) ?? Number(chunk.dataset.rows) * ROW_PX}px`;
    this.#observer ??= new IntersectionObserver((entries) => this.#moved(entries), /** @type {IntersectionObserverInit} */ ({ rootMargin: AHEAD, scrollMargin: AHEAD }));
    for (const chunk of chunks) this.#observer.observe(chunk);
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #moved(entries) {
    const chunks = [...this.querySelectorAll(".diff-chunk")];
    let isChanged = false;
    for (const { target, isIntersecting, boundingClientRect: { height } } of entries) {
      const at = chunks.indexOf(target);
      if (at < 0 || isIntersecting === this.#near.has(at)) continue;
      isChanged = true;
      if (isIntersecting) this.#near.add(at);
      else if (height > 0) {
        this.#heights.set(at, height);
        this.#near.delete(at);
      }
    }
    if (isChanged) this.#draw();
  }

  /** @param {Line[]} lines */
  #blocks(lines) {
    const { mode, context } = this.#options;
    /** @type {unknown[]} */
    const blocks = [];
    const draw = mode === "split" ? splitLine : unifiedLine;
    for (let at = 0; at < lines.length;) {
      const start = at;
      const { kind } = lines[at];
      if (kind === "same") {
        while (lines[at]?.kind === "same") at += 1;
        // The first and the last lines of a text have a change on one side only.
        const from = start === 0 ? start : Math.min(start + context, at);
        const to = at === lines.length ? at : Math.max(at - context, from);
        const isFolded = to - from > 1 && !this.#openFolds.has(start);
        if (!isFolded) blocks.push(lines.slice(start, at).map((line) => draw(line, line)));
        else blocks.push(lines.slice(start, from).map((line) => draw(line, line)), this.#fold(start, to - from), lines.slice(to, at).map((line) => draw(line, line)));
      } else if (kind === "gap" || kind === "file") {
        at += 1;
        blocks.push(kind === "file" ? html`<p class="diff-file">${lines[start].text}</p>` : html`<p class="diff-fold">${lines[start].skipped} unchanged ${lines[start].skipped === 1 ? "line" : "lines"}</p>`);
      } else {
        while (lines[at]?.kind === "delete") at += 1;
        const middle = at;
        while (lines[at]?.kind === "add") at += 1;
        const [deleted, added] = [lines.slice(start, middle), lines.slice(middle, at)];
        if (mode === "split") for (let row = 0; row < Math.max(deleted.length, added.length); row += 1) blocks.push(splitLine(deleted[row], added[row]));
        else blocks.push([...deleted, ...added].map((line) => unifiedLine(line)));
      }
    }
    return blocks;
  }

  /**
   * @param {number} start
   * @param {number} count
   */
  #fold(start, count) {
    const open = () => {
      this.#openFolds.add(start);
      this.#draw();
    };
    return html`<button type="button" class="diff-fold" @click=${open}>Show ${count} unchanged lines</button>`;
  }
}

customElements.define("ps-diff", Diff);

const SIGNS = { add: "+", delete: "−", same: "", gap: "", file: "" };

/** @param {Line} line */
const textOf = ({ text, pieces }) => (pieces ? pieces.map(({ text: part, isChanged }) => (isChanged ? html`<mark>${part}</mark>` : part)) : text);

/** @param {Line} line */
const unifiedLine = (line) => html`<div class="diff-line" data-kind=${line.kind}><span class="diff-number">${line.before ?? ""}</span><span class="diff-number">${line.after ?? ""}</span><span class="diff-sign">${SIGNS[line.kind]}</span><code>${textOf(line)}</code></div>`;

/**
 * @param {Line | undefined} before
 * @param {Line | undefined} after
 */
const splitLine = (before, after) => html`<div class="diff-line">
  <span class="diff-number" data-kind=${before?.kind ?? "none"}>${before?.before ?? ""}</span><code data-kind=${before?.kind ?? "none"}>${before ? textOf(before) : ""}</code>
  <span class="diff-number" data-kind=${after?.kind ?? "none"}>${after?.after ?? ""}</span><code data-kind=${after?.kind ?? "none"}>${after ? textOf(after) : ""}</code></div>`;
