/**
 * Text that grows: appending costs what is appended, not what is there.
 *
 * It stands in blocks: paragraphs, headings, code; and these in sections, for a browser looks at all that stand side by side when
 * one of them changes. Only the last block does while text streams.
 *
 * What Markdown means by its signs is shown, and so are they: whoever copies a text, or compares it, has it as it was said, and
 * where they meant nothing of the kind nothing is lost.
 */

import { element, joined } from "./base.js";

/** A block is not made longer than this, in characters, where it has a line's end to be cut at. */
const BLOCK_MAX = 4000;
/** Blocks of a section. */
const SECTION_MAX = 32;
/** Where another block begins in the middle of a paragraph: before a heading, or a fence. */
const BEGINS = /\n(?=#{1,6} |```|~~~)/;
/** Characters of such a beginning, at most. */
const BEGIN_CHARS = 7;
const HEADING = /^#{1,6} /;
const FENCE = /^(`{3,}|~{3,})/;
/** What stands out in a line: code and strong words, with the signs around them. It looks at no character twice. */
const MARKED = /(?<!`)(`{1,2})[^`\n]+\1(?!`)|\*\*(?=\S)[^*\n]+\*\*/g;

/** @typedef {{ kind: "text" | "sign" | "code" | "strong", text: string }} Span */
/**
 * `fence`: the one that its code stands in; empty for none. `isInside`: its code began in the block before.
 * @typedef {{ root: HTMLElement, text: string, spans: Span[], fence: string, isInside: boolean }} Block
 */

export class Prose {
  #root;
  /** The text so far, in the pieces in which it came: strings that are one and the same are compared at once. @type {string[]} */
  #pieces = [];
  #section = element("div");
  /** @type {Block | undefined} */
  #last;

  /** @param {HTMLElement} root Its children are this object's alone. */
  constructor(root) {
    this.#root = root;
  }

  /** @param {unknown} text The whole of it, as it now is: a text, or a list of its chunks. */
  set(text) {
    const pieces = Array.isArray(text) ? text.map(joined) : [joined(text)];
    const more = addedTo(this.#pieces, pieces);
    if (more === undefined) this.#clear();
    this.#pieces = pieces;
    const chunk = more ?? pieces.join("");
    if (chunk) this.#append(chunk);
  }

  #clear() {
    this.#root.replaceChildren();
    this.#last = undefined;
  }

  /** @param {string} chunk */
  #append(chunk) {
    let block = this.#last ?? this.#begin("");
    block.text += chunk;
    for (;;) {
      // Its first line may have grown.
      if (!block.isInside) block.fence = FENCE.exec(block.text)?.[1] ?? "";
      const { cut, fence } = endOf(block);
      const rest = cut < 0 ? "" : block.text.slice(cut);
      // What separates two blocks stays with the first: whoever copies the text gets it whole.
      if (cut >= 0) block.text = block.text.slice(0, cut);
      draw(block);
      if (cut < 0) return;
      block = this.#begin(fence);
      block.text = rest;
    }
  }

  /** @param {string} fence */
  #begin(fence) {
    if (!this.#last || this.#section.childElementCount === SECTION_MAX) this.#root.append((this.#section = element("div")));
    const root = element("p");
    this.#section.append(root);
    return (this.#last = { root, text: "", spans: [], fence, isInside: fence !== "" });
  }
}

/**
 * What a text has more than before; `undefined`, where it is another.
 * @param {string[]} known
 * @param {string[]} pieces
 */
function addedTo(known, pieces) {
  const last = known.length - 1;
  const goesOn = last < 0 || (pieces[last]?.startsWith(known[last]) && known.every((piece, at) => at === last || piece === pieces[at]));
  if (goesOn) return (last < 0 ? "" : pieces[last].slice(known[last].length)) + pieces.slice(last + 1).join("");
  // A snapshot has it in one piece.
  const [before, now] = [known.join(""), pieces.join("")];
  return now.startsWith(before) ? now.slice(before.length) : undefined;
}

/**
 * Where a block ends, and the fence that goes on after it.
 * @param {Block} block
 * @returns {{ cut: number, fence: string }} `cut` is -1, while it goes on.
 */
function endOf(block) {
  const { text, fence } = block;
  const tooLong = text.length > BLOCK_MAX ? text.lastIndexOf("\n", BLOCK_MAX) + 1 || -1 : -1;
  if (fence) {
    const closed = closedAt(tooLong > 0 ? { ...block, text: text.slice(0, tooLong + fence.length) } : block);
    if (tooLong > 0 && (closed < 0 || tooLong <= closed)) return { cut: tooLong, fence };
    const end = closed < 0 ? -1 : text.indexOf("\n", closed);
    return { cut: end >= 0 && end + 1 < text.length ? end + 1 : -1, fence: "" };
  }
  const mark = HEADING.test(text) ? "\n" : "\n\n";
  const behind = text.indexOf(mark) + mark.length;
  const first = Math.min(...[behind, tooLong].filter((end) => end >= mark.length), text.length);
  const other = text.slice(0, first + BEGIN_CHARS).search(BEGINS) + 1;
  const cut = other > 0 ? Math.min(first, other) : first;
  return { cut: cut < text.length ? cut : -1, fence: "" };
}

/**
 * Where the line is that closes a block's code; -1, while there is none.
 * @param {Block} block
 */
function closedAt({ text, fence, isInside }) {
  if (isInside && text.startsWith(fence)) return 0;
  const at = text.indexOf(`\n${fence}`, isInside ? 0 : fence.length);
  return at < 0 ? -1 : at + 1;
}

/**
 * Shows a block as it now is. What is shown already stays, so that a selection in it does.
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
  root.append(...spans.slice(same).map(made));
  block.spans = spans;
}

/** @param {Span} a @param {Span} b */
const isSame = (a, b) => a.kind === b.kind && a.text === b.text;

/** @param {Span} span @returns {Node} */
function made({ kind, text }) {
  if (kind === "text") return document.createTextNode(text);
  if (kind === "sign") return element("span", "sign", text);
  const signs = kind === "strong" ? 2 : (/^`+/.exec(text)?.[0].length ?? 1);
  const node = element(kind);
  node.append(element("span", "sign", text.slice(0, signs)), text.slice(signs, -signs), element("span", "sign", text.slice(-signs)));
  return node;
}

/**
 * @param {string} text Of a paragraph or a heading.
 * @returns {Span[]}
 */
function spansOf(text) {
  // Whatever that is, nobody wrote it by hand.
  if (text.length > BLOCK_MAX) return [{ kind: "text", text }];
  /** @type {Span[]} */
  const spans = [];
  const heading = HEADING.exec(text)?.[0] ?? "";
  if (heading) spans.push({ kind: "sign", text: heading });
  let at = heading.length;
  for (const { 0: marked, index } of text.matchAll(MARKED)) {
    if (index > at) spans.push({ kind: "text", text: text.slice(at, index) });
    spans.push({ kind: marked.startsWith("*") ? "strong" : "code", text: marked });
    at = index + marked.length;
  }
  if (at < text.length) spans.push({ kind: "text", text: text.slice(at) });
  return spans;
}

/**
 * @param {Block} block Of code, or of a part of it.
 * @returns {Span[]}
 */
function spansOfCode(block) {
  const { text, isInside } = block;
  const head = isInside ? 0 : text.indexOf("\n") + 1 || text.length;
  const closed = closedAt(block);
  const foot = closed < 0 ? text.length : closed;
  /** @type {Span[]} */
  const spans = [{ kind: "sign", text: text.slice(0, head) }, { kind: "text", text: text.slice(head, foot) }, { kind: "sign", text: text.slice(foot) }];
  return spans.filter((span) => span.text !== "");
}
