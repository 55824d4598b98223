/**
 * Renders growing text: an append costs its own length, not that of the whole text.
 *
 * The text is split into blocks (paragraphs, headings, code), and blocks into sections: a browser re-examines all
 * siblings of a changed element. While text streams, only the last block changes.
 *
 * Markdown is styled, and its signs stay visible. A copied text is thus the original text, and nothing is lost where a
 * sign was not meant as Markdown.
 */

import { element, joinText } from "./base.js";

/** The maximum length of a block in characters, if it has a line end at which it can be split. */
const BLOCK_CHARS_MAX = 4000;
/** The maximum number of blocks in a section. */
const SECTION_BLOCKS_MAX = 32;
/** Where a block begins inside a paragraph: before a heading or a fence. */
const BLOCK_START = /\n(?=#{1,6} |```|~~~)/;
/** The maximum length of such a beginning, in characters. */
const BLOCK_START_CHARS_MAX = 7;
const HEADING = /^#{1,6} /;
const FENCE = /^(`{3,}|~{3,})/;
/** Inline code and strong text, with their signs. The expression visits no character twice. */
const INLINE_MARKUP = /(?<!`)(`{1,2})[^`\n]+\1(?!`)|\*\*(?=\S)[^*\n]+\*\*/g;

/** @typedef {{ kind: "text" | "sign" | "code" | "strong", text: string }} Span */
/**
 * `fence`: the fence of its code; empty for none. `continuesCode`: its code began in the previous block.
 * @typedef {{ root: HTMLElement, text: string, spans: Span[], fence: string, continuesCode: boolean }} Block
 */

export class Prose {
  #root;
  /** The chunks so far. Identical strings compare in constant time. @type {string[]} */
  #chunks = [];
  #section = element("div");
  /** @type {Block | undefined} */
  #last;

  /** @param {HTMLElement} root This object owns its children. */
  constructor(root) {
    this.#root = root;
  }

  /** @param {unknown} text The whole text, or the list of its chunks. */
  set(text) {
    const chunks = Array.isArray(text) ? text.map(joinText) : [joinText(text)];
    const more = appendedText(this.#chunks, chunks);
    if (more === undefined) this.#clear();
    this.#chunks = chunks;
    const chunk = more ?? chunks.join("");
    if (chunk) this.#append(chunk);
  }

  #clear() {
    this.#root.replaceChildren();
    this.#last = undefined;
  }

  /** @param {string} chunk */
  #append(chunk) {
    let block = this.#last ?? this.#beginBlock("");
    block.text += chunk;
    for (;;) {
      // The first line may have grown.
      if (!block.continuesCode) block.fence = FENCE.exec(block.text)?.[1] ?? "";
      const { cut, fence } = endOf(block);
      const rest = cut < 0 ? "" : block.text.slice(cut);
      // A separator belongs to the block before it, so that a copied text is complete.
      if (cut >= 0) block.text = block.text.slice(0, cut);
      draw(block);
      if (cut < 0) return;
      block = this.#beginBlock(fence);
      block.text = rest;
    }
  }

  /** @param {string} fence */
  #beginBlock(fence) {
    if (!this.#last || this.#section.childElementCount === SECTION_BLOCKS_MAX) this.#root.append((this.#section = element("div")));
    const root = element("p");
    this.#section.append(root);
    return (this.#last = { root, text: "", spans: [], fence, continuesCode: fence !== "" });
  }
}

/**
 * Returns the text that `chunks` adds to `known`; `undefined` if it is another text.
 * @param {string[]} known
 * @param {string[]} chunks
 */
function appendedText(known, chunks) {
  const last = known.length - 1;
  const goesOn = last < 0 || (chunks[last]?.startsWith(known[last]) && known.every((chunk, at) => at === last || chunk === chunks[at]));
  if (goesOn) return (last < 0 ? "" : chunks[last].slice(known[last].length)) + chunks.slice(last + 1).join("");
  // A snapshot has the text in one chunk.
  const [before, now] = [known.join(""), chunks.join("")];
  return now.startsWith(before) ? now.slice(before.length) : undefined;
}

/**
 * Returns where a block ends, and the fence that continues after it.
 * @param {Block} block
 * @returns {{ cut: number, fence: string }} `cut` is -1 while the block is open.
 */
function endOf(block) {
  const { text, fence } = block;
  const tooLong = text.length > BLOCK_CHARS_MAX ? text.lastIndexOf("\n", BLOCK_CHARS_MAX) + 1 || -1 : -1;
  if (fence) {
    const closed = closedAt(tooLong > 0 ? { ...block, text: text.slice(0, tooLong + fence.length) } : block);
    if (tooLong > 0 && (closed < 0 || tooLong <= closed)) return { cut: tooLong, fence };
    const end = closed < 0 ? -1 : text.indexOf("\n", closed);
    return { cut: end >= 0 && end + 1 < text.length ? end + 1 : -1, fence: "" };
  }
  const mark = HEADING.test(text) ? "\n" : "\n\n";
  const behind = text.indexOf(mark) + mark.length;
  const first = Math.min(...[behind, tooLong].filter((end) => end >= mark.length), text.length);
  const other = text.slice(0, first + BLOCK_START_CHARS_MAX).search(BLOCK_START) + 1;
  const cut = other > 0 ? Math.min(first, other) : first;
  return { cut: cut < text.length ? cut : -1, fence: "" };
}

/**
 * Returns the position of the line that closes a block's code; -1 if none.
 * @param {Block} block
 */
function closedAt({ text, fence, continuesCode }) {
  if (continuesCode && text.startsWith(fence)) return 0;
  const at = text.indexOf(`\n${fence}`, continuesCode ? 0 : fence.length);
  return at < 0 ? -1 : at + 1;
}

/**
 * Draws a block. Drawn text is kept, and with it a selection.
 * @param {Block} block
 */
function draw(block) {
  const { root, text, fence } = block;
  const kind = fence ? "code" : HEADING.test(text) ? "heading" : "";
  if (root.className !== kind) root.className = kind;
  const spans = fence ? spansOfCode(block) : spansOf(text);
  let same = 0;
  while (same < spans.length && same < block.spans.length && isSame(spans[same], block.spans[same])) same += 1;
  const [grown, known] = [spans[same], block.spans[same]];
  if (grown?.kind === "text" && known?.kind === "text" && grown.text.startsWith(known.text)) {
    /** @type {Text} */ (root.childNodes[same]).appendData(grown.text.slice(known.text.length));
    same += 1;
  }
  while (root.childNodes.length > same) root.lastChild?.remove();
  root.append(...spans.slice(same).map(createNode));
  block.spans = spans;
}

/** @param {Span} a @param {Span} b */
const isSame = (a, b) => a.kind === b.kind && a.text === b.text;

/** @param {Span} span @returns {Node} */
function createNode({ kind, text }) {
  if (kind === "text") return document.createTextNode(text);
  if (kind === "sign") return element("span", "sign", text);
  const signs = kind === "strong" ? 2 : (/^`+/.exec(text)?.[0].length ?? 1);
  const node = element(kind);
  node.append(element("span", "sign", text.slice(0, signs)), text.slice(signs, -signs), element("span", "sign", text.slice(-signs)));
  return node;
}

/**
 * @param {string} text The text of a paragraph or heading.
 * @returns {Span[]}
 */
function spansOf(text) {
  // A block of this length is machine-made; styling it would only cost time.
  if (text.length > BLOCK_CHARS_MAX) return [{ kind: "text", text }];
  /** @type {Span[]} */
  const spans = [];
  const heading = HEADING.exec(text)?.[0] ?? "";
  if (heading) spans.push({ kind: "sign", text: heading });
  let at = heading.length;
  for (const { 0: marked, index } of text.matchAll(INLINE_MARKUP)) {
    if (index > at) spans.push({ kind: "text", text: text.slice(at, index) });
    spans.push({ kind: marked.startsWith("*") ? "strong" : "code", text: marked });
    at = index + marked.length;
  }
  if (at < text.length) spans.push({ kind: "text", text: text.slice(at) });
  return spans;
}

/**
 * @param {Block} block A block of code, or a part of one.
 * @returns {Span[]}
 */
function spansOfCode(block) {
  const { text, continuesCode } = block;
  const head = continuesCode ? 0 : text.indexOf("\n") + 1 || text.length;
  const closed = closedAt(block);
  const foot = closed < 0 ? text.length : closed;
  /** @type {Span[]} */
  const spans = [{ kind: "sign", text: text.slice(0, head) }, { kind: "text", text: text.slice(head, foot) }, { kind: "sign", text: text.slice(foot) }];
  return spans.filter((span) => span.text !== "");
}
