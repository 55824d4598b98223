/**
 * Non-text parts of a message: images, files and file changes. An image comes from this server or from the fact itself:
 * the page requests no other address.
 */

import { createBadge, element, toText } from "./base.js";
import { readBlobText } from "./bodies.js";
import { BLOB_PATH, formatValue } from "./facts.js";
import { setLinks, refLinks } from "./links.js";
import { loadDiffs } from "../diffs.js";
import { IMAGE_TYPE, TEXT_KINDS, hrefOf, readImage } from "./part-media.js";
import { render } from "../vendor/lit.js";

/** @typedef {import("./base.js").CardView} CardView */

const DATA_IMAGE = /^data:image\/(png|jpeg|gif|webp|avif|bmp);base64,[A-Za-z0-9+/=\s]+$/;
/** The part that each element shows. @type {WeakMap<HTMLElement, unknown>} */
const drawnParts = new WeakMap();

/** @param {any} part */
const typeOf = (part) => toText(part.mediaType ?? part.mimeType ?? part.mime_type ?? part.contentType ?? part.source?.mediaType);

/**
 * Draws the media of a part that has some.
 * @param {HTMLElement} root
 * @param {CardView} view
 * @param {any} part
 */
export function drawMedia(root, view, part) {
  if (drawnParts.get(root) === part) return;
  drawnParts.set(root, part);
  root.replaceChildren();
  const isText = TEXT_KINDS.has(part.kind);
  if (part.kind === "file_change" || part.diff !== undefined || part.patch !== undefined || part.diffRef !== undefined) drawChange(root, view, part);
  else if (!isText) drawFile(root, view, part);
  for (const attachment of Array.isArray(part.attachments) ? part.attachments : []) drawFile(root, view, attachment);
  if (part.refs !== undefined) {
    const chips = element("div", "row links");
    setLinks(chips, refLinks(view, part.refs));
    root.append(chips);
  }
}

/**
 * @param {HTMLElement} root
 * @param {CardView} view
 * @param {any} part
 */
function drawChange(root, view, part) {
  const head = element("p", "row");
  const change = part.change ?? part.changeKind ?? part.operation ?? part.action;
  head.append(element("span", "mono", formatValue(part.path ?? part.file ?? part.name ?? part.title) || "path not stated"));
  if (change !== undefined) head.append(createBadge(toText(change)));
  if (part.diffStat !== undefined) head.append(element("span", "hint", formatValue(part.diffStat)));
  root.append(head);
  const diff = part.diff ?? part.patch;
  const draw = async (/** @type {string} */ text) => {
    const body = root.appendChild(element("div"));
    const { patchView } = await loadDiffs();
    render(patchView(text), body);
  };
  if (diff !== undefined) return void draw(toText(diff)).catch((error) => console.warn("The diff did not load:", error));
  const ref = toText(part.diffRef?.href ?? part.diffRef);
  if (!BLOB_PATH.test(ref)) return void (ref && root.append(element("p", "hint mono", ref)));
  const show = element("button", "button", "Show diff");
  show.type = "button";
  show.dataset.kind = "quiet";
  show.addEventListener("click", async () => {
    show.disabled = true;
    try {
      await draw((await readBlobText(view, ref)).text);
      show.remove();
    } catch (error) {
      show.disabled = false;
      head.append(element("span", "hint", `Unavailable: ${error instanceof Error ? error.message : error}`));
    }
  });
  root.append(show);
}

/**
 * @param {HTMLElement} root
 * @param {CardView} view
 * @param {any} part
 */
function drawFile(root, view, part) {
  const href = hrefOf(part);
  const type = typeOf(part);
  const name = formatValue(part.name ?? part.filename ?? part.title ?? part.alt);
  const isImage = part.kind === "image" || part.type === "image" || IMAGE_TYPE.test(type);
  const data = typeof part.data === "string" ? (part.data.startsWith("data:") ? part.data : `data:${type};base64,${part.data}`) : href?.startsWith("data:") ? href : undefined;
  const row = element("figcaption", "file");
  row.append(element("span", "file-name", name || `${isImage ? "Image" : "File"}, name not stated`), element("span", "", type), element("span", "grow"));
  const figure = element("figure", isImage ? "figure" : "figure attachment");
  figure.append(row);
  root.append(figure);
  if (isImage && data !== undefined && DATA_IMAGE.test(data)) return void row.before(imageOf(data, name));
  if (href === undefined || href.startsWith("data:")) return;
  if (!BLOB_PATH.test(href)) return void row.append(element("span", "hint mono", formatValue(href)));
  if (!isImage) {
    const open = element("button", "link", "Open");
    open.type = "button";
    open.addEventListener("click", () => view.open({ kind: "blob", href }));
    return void row.append(open);
  }
  void readImage(view, href, type).then((address) => {
    if (drawnParts.get(root) === part || root.contains(row)) row.before(imageOf(address, name));
  }, (error) => row.append(element("span", "hint", `Unavailable: ${error instanceof Error ? error.message : error}`)));
}

/**
 * @param {string} address
 * @param {string} name
 */
function imageOf(address, name) {
  const image = element("img", "image");
  image.src = address;
  image.alt = name || "Image without a description";
  return image;
}
