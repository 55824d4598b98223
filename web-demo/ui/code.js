/**
 * Code: its language, a copy button, and highlighting once it is complete. Growing code is appended in place.
 */

import { html, render } from "../vendor/lit.js";
import { icon } from "./icons.js";

/** Longer code is not highlighted: the time would be noticed. In characters. */
const HIGHLIGHTED_CHARS_MAX = 20_000;
/** Long code is split into segments at line ends, so that an append lays out the last one only. In characters. */
const SEGMENT_CHARS = 4000;
/** How long the button says that it copied, in milliseconds. */
const COPIED_MS = 1500;

/** Prism's name and the title of each language, by the names that people write. @type {Map<string, [string, string]>} */
const LANGUAGES = new Map(Object.entries({
  "bash sh shell zsh console": ["bash", "Shell"], "css": ["css", "CSS"], "diff patch": ["diff", "Diff"], "go golang": ["go", "Go"], "javascript js jsx mjs cjs": ["javascript", "JavaScript"],
  "json jsonc json5": ["json", "JSON"], "html xml svg markup": ["markup", "HTML"], "python py": ["python", "Python"], "rust rs": ["rust", "Rust"], "sql": ["sql", "SQL"],
  "toml": ["toml", "TOML"], "typescript ts tsx": ["typescript", "TypeScript"], "yaml yml": ["yaml", "YAML"],
}).flatMap(([names, language]) => names.split(" ").map((name) => /** @type {[string, [string, string]]} */ ([name, /** @type {[string, string]} */ (language)]))));

/**
 * Returns the language that the page highlights; `undefined` for another.
 * @param {string} name As written after a fence, or a file's extension.
 */
export const languageOf = (name) => LANGUAGES.get(name.toLowerCase())?.[0];

/**
 * Tokenizes code. Rejects if Prism cannot be loaded.
 * @param {string} text
 * @param {string} language
 * @returns {Promise<Node[]>}
 */
export async function highlight(text, language) {
  const { default: Prism } = await import("../vendor/prism.js");
  return nodesOf(Prism.tokenize(text, Prism.languages[language]));
}

/**
 * @param {string | import("prismjs").Token | (string | import("prismjs").Token)[]} stream
 * @returns {Node[]}
 */
function nodesOf(stream) {
  if (typeof stream === "string") return [document.createTextNode(stream)];
  if (Array.isArray(stream)) return stream.flatMap((part) => nodesOf(part));
  const node = document.createElement("span");
  // Prism's names are words such as "table" that other styles use, so they are no classes here.
  node.dataset.token = [stream.type, stream.alias ?? []].flat().join(" ");
  node.append(...nodesOf(/** @type {any} */ (stream.content)));
  return [node];
}

export class CodeBlock extends HTMLElement {
  #head = document.createElement("div");
  #code = document.createElement("code");
  #text = "";
  #language = "";
  #isCopied = false;
  /** Whether the code consists of segments: highlighted code does not. */
  #isSegmented = true;

  connectedCallback() {
    if (this.firstChild) return;
    const frame = document.createElement("pre");
    frame.tabIndex = 0;
    frame.append(this.#code);
    this.#head.className = "code-head";
    this.append(this.#head, frame);
    this.#drawHead();
  }

  /** @param {{ language: string, text: string, isComplete: boolean }} code `isComplete`: no text will follow, for now. */
  show({ language, text, isComplete }) {
    if (language !== this.#language) {
      this.#language = language;
      this.#drawHead();
    }
    if (text !== this.#text) this.#change(text);
    const known = languageOf(language);
    if (!isComplete || !known || !this.#isSegmented || text.length > HIGHLIGHTED_CHARS_MAX) return;
    highlight(text, known).then((nodes) => {
      if (this.#text !== text) return;
      this.#code.replaceChildren(...nodes);
      this.#isSegmented = false;
    }, () => {
      // Without Prism the code stays plain.
    });
  }

  /** @param {string} text */
  #change(text) {
    const isAppend = this.#isSegmented && text.startsWith(this.#text);
    let rest = isAppend ? text.slice(this.#text.length) : text;
    if (!isAppend) this.#code.replaceChildren();
    this.#isSegmented = true;
    this.#text = text;
    while (rest !== "") {
      let segment = this.#code.lastElementChild;
      const length = segment?.textContent?.length ?? 0;
      if (!segment || (length >= SEGMENT_CHARS && segment.textContent?.endsWith("\n"))) {
        segment = document.createElement("span");
        segment.className = "segment";
        this.#code.append(segment);
        continue;
      }
      const end = rest.indexOf("\n", Math.max(SEGMENT_CHARS - length, 0)) + 1 || rest.length;
      if (segment.firstChild instanceof Text) segment.firstChild.appendData(rest.slice(0, end));
      else segment.append(rest.slice(0, end));
      rest = rest.slice(end);
    }
  }

  #drawHead() {
    const copy = async () => {
      await navigator.clipboard.writeText(this.#text);
      this.#setCopied(true);
      setTimeout(() => this.#setCopied(false), COPIED_MS);
    };
    render(html`<span>${LANGUAGES.get(this.#language.toLowerCase())?.[1] ?? this.#language}</span><button type="button" class="button small copy" data-kind="quiet" @click=${copy}>${icon("copy")}${this.#isCopied ? "Copied" : "Copy"}</button>`, this.#head);
  }

  /** @param {boolean} isCopied */
  #setCopied(isCopied) {
    this.#isCopied = isCopied;
    this.#drawHead();
  }
}
