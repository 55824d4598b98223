/**
 * Renders growing Markdown: an append costs the length of the last block, not that of the whole text.
 *
 * A block (paragraph, list, table, code) stays in the document as soon as further text cannot change it. Only the last
 * blocks are parsed again, and their nodes are changed in place, so that a selection in them survives. Blocks are in
 * sections, since a browser examines all siblings of a changed element.
 *
 * The result is a tree of known elements. HTML in the text appears as text. Links lead to http, https and mailto only.
 */

import { define, element, joinText } from "./base.js";
import { CodeBlock } from "../ui/code.js";
import { Lexer } from "../vendor/marked.js";

/** @typedef {{ tag: string, attributes?: Record<string, string>, children?: Content[], code?: { language: string, text: string, isComplete: boolean }, image?: string }} Element_ */
/** @typedef {string | Element_} Content A text, or an element of the tree. */
/** @typedef {(href: string) => Promise<string>} ReadImage Reads an image of this server as a data URL. */

/** The maximum length of text that is parsed again with each append, in characters. */
const TAIL_CHARS_MAX = 8000;
/** The maximum number of blocks in a section. */
const SECTION_BLOCKS_MAX = 32;
/** The first line of code at the beginning of a text: fence and language. */
const FENCE = /^ {0,3}(`{3,}(?=[^`\n]*\n)|~{3,})([^\n]*)\n/;
const LINK = /^(https?:|mailto:)/i;
const STORED_IMAGE = /^\/v1\/blobs\/[0-9a-f]+$/;
const DATA_IMAGE = /^data:image\/(png|jpeg|gif|webp|avif|bmp);base64,[A-Za-z0-9+/=\s]+$/;
/** @type {Record<string, string>} */
const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&nbsp;": "\u00a0" };

define("ps-code", CodeBlock);

export class Prose {
  #root;
  #readImage;
  /** The chunks so far. Identical strings compare in constant time. @type {string[]} */
  #chunks = [];
  /** The text of the blocks that further text may change. */
  #tail = "";
  /** The elements of these blocks. @type {HTMLElement[]} */
  #blocks = [];
  #section = element("div");
  /** The targets of reference links. @type {Record<string, any>} */
  #links = {};

  /**
   * @param {HTMLElement} root This object owns its children.
   * @param {ReadImage} [readImage] Without it, images of the server are named only.
   */
  constructor(root, readImage) {
    this.#root = root;
    this.#readImage = readImage;
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
    this.#tail = "";
    this.#blocks = [];
    this.#links = {};
  }

  /** @param {string} chunk */
  #append(chunk) {
    this.#tail += chunk.replaceAll("\r", "");
    while (this.#drawTail());
  }

  /** Draws the blocks of the tail. Returns whether it became shorter, so that the rest needs to be drawn. */
  #drawTail() {
    const fence = FENCE.exec(this.#tail);
    if (fence) return this.#drawCode(fence);
    const { length } = this.#tail;
    const isCut = length > TAIL_CHARS_MAX;
    const source = isCut ? this.#tail.slice(0, this.#tail.lastIndexOf("\n", TAIL_CHARS_MAX) + 1 || TAIL_CHARS_MAX) : this.#tail;
    const lexer = new Lexer();
    Object.assign(lexer.tokens.links, this.#links);
    /** @type {any[]} */
    const tokens = lexer.lex(source);
    this.#links = lexer.tokens.links;
    const stable = isCut ? stableOfCut(tokens) : stableCount(tokens);
    const contents = tokens.map((token) => blockOf(token));
    const fixed = contents.slice(0, stable).flatMap((content) => content ?? []);
    this.#drawBlocks(fixed.concat(contents.slice(stable).flatMap((content) => content ?? [])));
    this.#fix(fixed.length, tokens.slice(0, stable).reduce((sum, { raw }) => sum + raw.length, 0));
    return this.#tail.length < length && (isCut || FENCE.test(this.#tail));
  }

  /**
   * Draws a tail that begins with code.
   * @param {RegExpExecArray} fence
   */
  #drawCode([{ length: start }, sign, info]) {
    const close = closeOf(this.#tail, sign, start - 1);
    const text = close ? this.#tail.slice(start, Math.max(close.at, start)) : this.#tail.slice(start);
    this.#drawBlocks([codeOf(info, text, close !== undefined)]);
    // Without a line end, the closing fence may still become a line of the code.
    if (!close || close.end === this.#tail.length) return false;
    this.#fix(1, close.end + 1);
    return this.#tail !== "";
  }

  /**
   * Removes fixed blocks from the tail.
   * @param {number} count
   * @param {number} length
   */
  #fix(count, length) {
    this.#blocks.splice(0, count);
    this.#tail = this.#tail.slice(length);
  }

  /** @param {Content[]} contents */
  #drawBlocks(contents) {
    for (const [at, content] of contents.entries()) {
      const known = this.#blocks[at];
      if (known && canBecome(known, content)) {
        change(known, content, this.#readImage);
        continue;
      }
      const block = /** @type {HTMLElement} */ (create(content, this.#readImage));
      if (known) known.replaceWith(block);
      else this.#place(block);
      this.#blocks[at] = block;
    }
    for (const block of this.#blocks.splice(contents.length)) block.remove();
  }

  /** @param {HTMLElement} block */
  #place(block) {
    if (this.#section.parentNode !== this.#root || this.#section.childElementCount >= SECTION_BLOCKS_MAX) this.#root.append((this.#section = element("div")));
    this.#section.append(block);
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
 * Returns the number of tokens that further text cannot change: all before the last block, and before a list that the
 * last block may still join.
 * @param {any[]} tokens
 */
function stableCount(tokens) {
  const last = tokens.findLastIndex(({ type }) => type !== "space");
  const previous = tokens.slice(0, Math.max(last, 0)).findLastIndex(({ type }) => type !== "space");
  return Math.max(previous >= 0 && (tokens[previous].type === "list" || tokens[previous].codeBlockStyle === "indented") ? previous : last, 0);
}

/**
 * Returns the number of tokens to keep of a text that was cut: all, but code at its end continues.
 * @param {any[]} tokens
 */
function stableOfCut(tokens) {
  const isCode = tokens.length > 1 && tokens.at(-1).type === "code" && tokens.at(-1).codeBlockStyle === undefined;
  return isCode ? tokens.length - 1 : tokens.length;
}

/**
 * Returns the closing fence of code: where its line end before it and its own line's end are.
 * @param {string} text
 * @param {string} sign The opening fence.
 * @param {number} from
 * @returns {{ at: number, end: number } | undefined}
 */
function closeOf(text, sign, from) {
  const pattern = sign.startsWith("`") ? /\n {0,3}(`{3,})[ \t]*(?=\n|$)/g : /\n {0,3}(~{3,})[ \t]*(?=\n|$)/g;
  pattern.lastIndex = from;
  for (let found = pattern.exec(text); found; found = pattern.exec(text)) if (found[1].length >= sign.length) return { at: found.index, end: pattern.lastIndex };
  return undefined;
}

/* ── from tokens to a tree ── */

/**
 * @param {string} info The rest of the fence's line.
 * @param {string} text
 * @param {boolean} isComplete
 * @returns {Element_}
 */
const codeOf = (info, text, isComplete) => ({ tag: "ps-code", code: { language: /^\S*/.exec(info.trim())?.[0] ?? "", text, isComplete } });

/**
 * @param {any} token A block.
 * @returns {Element_ | undefined} `undefined` if it has no appearance.
 */
function blockOf(token) {
  switch (token.type) {
    case "space": case "def": case "checkbox": return undefined;
    case "heading": return { tag: `h${Math.min(token.depth + 2, 6)}`, attributes: { "data-depth": String(token.depth) }, children: inlineOf(token.tokens) };
    case "code": return codeOf(token.lang ?? "", token.text, token.codeBlockStyle === "indented" || /\n {0,3}(`{3,}|~{3,})[ \t]*\n*$/.test(token.raw));
    case "blockquote": return { tag: "blockquote", children: blocksOf(token.tokens) };
    case "hr": return { tag: "hr" };
    case "list": return { tag: token.ordered ? "ol" : "ul", attributes: { ...(token.ordered && token.start !== 1 && { start: String(token.start) }), ...(token.items.some((/** @type {any} */ item) => item.task) && { class: "tasks" }) }, children: token.items.map(itemOf) };
    case "table": return tableOf(token);
    case "paragraph": case "text": return { tag: "p", children: inlineOf(token.tokens ?? [token]) };
    default: return { tag: "p", children: [toPlainText(token)] };
  }
}

/** @param {any[]} tokens */
const blocksOf = (tokens) => tokens.flatMap((token) => blockOf(token) ?? []);

/** @param {any} item @returns {Element_} */
function itemOf(item) {
  const label = item.task ? [{ tag: "input", attributes: { type: "checkbox", disabled: "", "aria-label": item.checked ? "done" : "open", ...(item.checked && { checked: "" }) } }] : [];
  // The text of a tight list has no paragraph of its own.
  const content = item.tokens.flatMap((/** @type {any} */ token) => (token.type === "text" ? inlineOf(token.tokens ?? [token]) : (blockOf(token) ?? [])));
  return { tag: "li", children: [...label, ...content] };
}

/** @param {any} token @returns {Element_} */
function tableOf({ header, rows, align }) {
  const cell = (/** @type {string} */ tag) => (/** @type {any} */ one, /** @type {number} */ at) => ({ tag, attributes: align[at] ? { "data-align": align[at] } : {}, children: inlineOf(one.tokens) });
  const head = { tag: "thead", children: [{ tag: "tr", children: header.map(cell("th")) }] };
  const body = { tag: "tbody", children: rows.map((/** @type {any[]} */ row) => ({ tag: "tr", children: row.map(cell("td")) })) };
  return { tag: "div", attributes: { class: "table-scroll", role: "group", "aria-label": "Table", tabindex: "0" }, children: [{ tag: "table", children: [head, body] }] };
}

/**
 * @param {any[]} tokens
 * @returns {Content[]}
 */
function inlineOf(tokens) {
  /** @type {Content[]} */
  const contents = [];
  for (const token of tokens) {
    const content = spanOf(token);
    const last = contents.at(-1);
    if (typeof content === "string" && typeof last === "string") contents[contents.length - 1] = last + content;
    else if (content !== "") contents.push(content);
  }
  return contents;
}

/** @param {any} token @returns {Content} */
function spanOf(token) {
  switch (token.type) {
    case "strong": case "em": case "del": return { tag: token.type, children: inlineOf(token.tokens) };
    case "codespan": return { tag: "code", children: [token.text] };
    case "br": return { tag: "br" };
    case "html": return /^<br *\/?>$/i.test(token.raw) ? { tag: "br" } : token.raw;
    case "link": return linkOf(token.href, token.title, inlineOf(token.tokens)) ?? token.raw;
    case "image": return imageOf(token);
    case "text": return token.tokens ? { tag: "span", children: inlineOf(token.tokens) } : toPlainText(token);
    default: return toPlainText(token);
  }
}

/** @param {any} token */
const toPlainText = (token) => String(token.type === "escape" ? token.text : token.raw).replace(/&(?:amp|lt|gt|quot|#39|nbsp);/g, (entity) => (token.type === "text" ? ENTITIES[entity] : entity));

/**
 * @param {string} href
 * @param {string | null} title
 * @param {Content[]} children
 * @returns {Element_ | undefined}
 */
function linkOf(href, title, children) {
  if (!LINK.test(href)) return undefined;
  return { tag: "a", attributes: { href, target: "_blank", rel: "noopener noreferrer", ...(title && { title }) }, children };
}

/** @param {any} token @returns {Content} */
function imageOf({ href, text, title, raw }) {
  const alt = text || "Image without a description";
  if (STORED_IMAGE.test(href) || DATA_IMAGE.test(href)) return { tag: "img", attributes: { class: "image", alt, ...(title && { title }) }, image: href };
  // The page requests no address that a run names.
  return linkOf(href, title, [`Image: ${alt}`]) ?? raw;
}

/* ── from the tree to elements ── */

/** The tree that each element shows. @type {WeakMap<Node, Element_>} */
const shown = new WeakMap();

/**
 * @param {Content} content
 * @param {ReadImage | undefined} readImage
 * @returns {Node}
 */
function create(content, readImage) {
  if (typeof content === "string") return document.createTextNode(content);
  const node = document.createElement(content.tag);
  change(node, content, readImage);
  return node;
}

/**
 * @param {Node} node
 * @param {Content} content
 */
function canBecome(node, content) {
  if (typeof content === "string") return node.nodeType === Node.TEXT_NODE;
  const before = shown.get(node);
  return before !== undefined && before.tag === content.tag && before.image === content.image && JSON.stringify(before.attributes) === JSON.stringify(content.attributes);
}

/**
 * @param {Node} node
 * @param {Content} content
 * @param {ReadImage | undefined} readImage
 */
function change(node, content, readImage) {
  if (typeof content === "string") return changeText(/** @type {Text} */ (node), content);
  const target = /** @type {HTMLElement} */ (node);
  if (!shown.has(target)) {
    for (const [name, value] of Object.entries(content.attributes ?? {})) target.setAttribute(name, value);
    if (content.image !== undefined) loadImage(/** @type {HTMLImageElement} */ (target), content.image, readImage);
  }
  shown.set(target, content);
  if (content.code) return /** @type {CodeBlock} */ (target).show(content.code);
  const children = content.children ?? [];
  for (const [at, child] of children.entries()) {
    const known = target.childNodes[at];
    if (known && canBecome(known, child)) change(known, child, readImage);
    else if (known) known.replaceWith(create(child, readImage));
    else target.append(create(child, readImage));
  }
  while (target.childNodes.length > children.length) target.lastChild?.remove();
}

/**
 * @param {Text} node
 * @param {string} text
 */
function changeText(node, text) {
  // An append keeps a selection; other data would clear it.
  if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
  else node.data = text;
}

/**
 * @param {HTMLImageElement} image
 * @param {string} href
 * @param {ReadImage | undefined} readImage
 */
function loadImage(image, href, readImage) {
  if (href.startsWith("data:")) image.src = href;
  else if (!readImage) image.replaceWith(`Image: ${image.alt}`);
  else readImage(href).then((address) => (image.src = address), (error) => image.replaceWith(`Image: ${image.alt} (unavailable: ${error instanceof Error ? error.message : error})`));
}
