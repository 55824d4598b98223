/**
 * The preview of an artifact's body by its type: Markdown, code, image, JSON, table, HTML in a sandbox, plain text.
 */

import { parseJson } from "../client/json.js";
import { jsonTree } from "../ui/json.js";
import { html, nothing } from "../vendor/lit.js";
import { element, formatCount, toText } from "./base.js";
import { Prose } from "./prose.js";

/** @typedef {"markdown" | "html" | "image" | "json" | "table" | "code" | "text"} Kind */

/** The maximum number of characters of a body on the page. */
export const BODY_CHARS_MAX = 200_000;
/** The maximum number of rows and columns of a table. */
const ROWS_MAX = 500;
const COLUMNS_MAX = 50;
/** Image data without script. A page draws SVG in an `img` element, which runs none. */
const DATA_IMAGE = /^data:image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml);base64,[A-Za-z0-9+/=\s]+$/;

/** @type {[RegExp, Kind][]} */
const MEDIA_TYPES = [
  [/^text\/(x-)?markdown/, "markdown"], [/^(text\/html|application\/xhtml)/, "html"], [/^image\//, "image"], [/json/, "json"], [/^text\/(csv|tab-separated)/, "table"],
  [/^text\/(x-|css|javascript|typescript)|javascript|x-sh|xml|yaml|toml|sql/, "code"], [/^text\/plain/, "text"],
];
/** @type {[RegExp, Kind][]} */
const EXTENSIONS = [
  [/\.(md|markdown)$/i, "markdown"], [/\.html?$/i, "html"], [/\.(png|jpe?g|gif|webp|avif|bmp|svg)$/i, "image"], [/\.json$/i, "json"], [/\.(csv|tsv)$/i, "table"],
  [/\.(js|mjs|ts|tsx|jsx|py|rs|go|sh|css|sql|toml|ya?ml|xml|diff|patch)$/i, "code"],
];
/** @type {Record<string, Kind>} */
const KINDS = { markdown: "markdown", document: "markdown", html: "html", image: "image", json: "json", table: "table", csv: "table", code: "code" };

/** The names of kinds on the page. @type {Record<Kind, string>} */
export const KIND_NAMES = { markdown: "Markdown", html: "HTML", image: "Image", json: "JSON", table: "Table", code: "Code", text: "Text" };

/**
 * Returns the kind of an artifact, by what its source said: media type, file name, kind.
 * @param {Record<string, any>} content
 * @returns {Kind}
 */
export function kindOf(content) {
  const mediaType = toText(content.mimeType ?? content.mediaType ?? content.contentType).toLowerCase();
  const byType = MEDIA_TYPES.find(([pattern]) => pattern.test(mediaType))?.[1];
  if (byType) return byType;
  const names = [content.path, content.title, content.name].map(toText);
  const byName = EXTENSIONS.find(([pattern]) => names.some((name) => pattern.test(name)))?.[1];
  return byName ?? KINDS[toText(content.kind ?? content.artifactKind ?? content.artifactType).toLowerCase()] ?? "text";
}

/**
 * The file name of an artifact.
 * @param {Record<string, any>} content
 * @param {string} id
 */
export const fileNameOf = (content, id) => toText(content.path).split("/").at(-1) || toText(content.title ?? content.name) || id;

export class ArtifactPreview {
  /** @param {import("./prose.js").ReadImage} readImage Reads the images of Markdown. */
  constructor(readImage) {
    this.#readImage = readImage;
  }

  #readImage;
  /** The text that `#node` shows. */
  #text = "";
  #kind = "";
  /** @type {unknown} */
  #content = nothing;

  /**
   * Returns the preview; the same for the same text, so that what the viewer opened stays open.
   * @param {Kind} kind
   * @param {string} text
   * @param {string} name The file name, for the language and as an accessible name.
   */
  show(kind, text, name) {
    if (kind === this.#kind && text === this.#text) return this.#content;
    [this.#kind, this.#text] = [kind, text];
    this.#content = this.#draw(kind, text, name);
    return this.#content;
  }

  /**
   * @param {Kind} kind
   * @param {string} text
   * @param {string} name
   */
  #draw(kind, text, name) {
    switch (kind) {
      case "markdown": {
        const root = element("div", "body prose");
        new Prose(root, this.#readImage).set(text);
        return root;
      }
      case "html": return html`<iframe class="artifact-frame" sandbox="" referrerpolicy="no-referrer" srcdoc=${text} title=${name}></iframe><p class="hint">Sandboxed: its scripts do not run, and it loads nothing from elsewhere.</p>`;
      case "image": return imageOf(text, name);
      case "json": return parsedJson(text, name);
      case "table": return tableOf(text, name);
      case "code": return codeOf(text, name);
      default: return html`<pre dir="auto" class="body plain" tabindex="0" role="group" aria-label=${name}>${text}</pre>`;
    }
  }
}

/**
 * Code in the language of the file name.
 * @param {string} text
 * @param {string} name
 */
function codeOf(text, name) {
  const block = /** @type {import("../ui/code.js").CodeBlock} */ (document.createElement("ps-code"));
  block.className = "body";
  block.show({ language: /[^.]*$/.exec(name)?.[0] ?? "", text, isComplete: true });
  return block;
}

/**
 * The source of any text.
 * @param {string} text
 * @param {string} name
 */
export function sourceOf(text, name) {
  return html`<pre class="body source" tabindex="0" role="group" aria-label="Source of ${name}">${text}</pre>`;
}

/**
 * @param {string} text
 * @param {string} name
 */
function imageOf(text, name) {
  const address = DATA_IMAGE.test(text) ? text : /^\s*<(\?xml|svg)/.test(text) ? `data:image/svg+xml,${encodeURIComponent(text)}` : "";
  if (address === "") return html`<p class="hint">The body is not an image that the page can show. Download it, or open its source.</p>`;
  return html`<figure class="artifact-image"><img src=${address} alt=${name}></figure>`;
}

/**
 * @param {string} text
 * @param {string} name
 */
function parsedJson(text, name) {
  try {
    return html`<div class="json-tree body" role="group" tabindex="0" aria-label=${name}>${jsonTree(parseJson(text))}</div>`;
  } catch (error) {
    return html`<p class="hint">Not valid JSON: ${error instanceof Error ? error.message : error}</p>${sourceOf(text, name)}`;
  }
}

/**
 * Parses comma- or tab-separated values (RFC 4180).
 * @param {string} text
 * @returns {string[][]}
 */
export function parseTable(text) {
  const separator = text.split("\n", 1)[0].includes("\t") ? "\t" : ",";
  /** @type {string[][]} */
  const rows = [];
  let row = /** @type {string[]} */ ([]);
  let cell = "";
  let isQuoted = false;
  for (let at = 0; at <= text.length && rows.length <= ROWS_MAX; at += 1) {
    const char = text[at];
    if (isQuoted && char !== undefined) {
      if (char !== '"') cell += char;
      else if (text[at + 1] === '"') [cell, at] = [`${cell}"`, at + 1];
      else isQuoted = false;
    } else if (char === '"' && cell === "") {
      isQuoted = true;
    } else if (char === separator || char === "\n" || char === undefined) {
      row.push(cell.replace(/\r$/, ""));
      cell = "";
      if (char === separator) continue;
      if (row.length > 1 || row[0] !== "") rows.push(row);
      row = [];
    } else {
      cell += char;
    }
  }
  return rows;
}

/**
 * @param {string} text
 * @param {string} name
 */
function tableOf(text, name) {
  const [head = [], ...rows] = parseTable(text);
  const isNumber = head.map((_, column) => rows.length > 0 && rows.every((row) => row[column] === undefined || row[column] === "" || Number.isFinite(Number(row[column]))));
  const cells = (/** @type {string[]} */ row) => row.slice(0, COLUMNS_MAX).map((cell, column) => html`<td class=${isNumber[column] ? "number" : ""}>${cell}</td>`);
  return html`<div class="artifact-table body" tabindex="0" role="group" aria-label=${name}><table><thead><tr>${head.slice(0, COLUMNS_MAX).map((cell, column) => html`<th scope="col" class=${isNumber[column] ? "number" : ""}>${cell}</th>`)}</tr></thead>
    <tbody>${rows.slice(0, ROWS_MAX - 1).map((row) => html`<tr>${cells(row)}</tr>`)}</tbody></table></div>
    <p class="hint">${rows.length >= ROWS_MAX ? `The first ${formatCount(ROWS_MAX - 1)} rows` : `${formatCount(rows.length)} ${rows.length === 1 ? "row" : "rows"}`} · ${formatCount(head.length)} columns</p>`;
}
