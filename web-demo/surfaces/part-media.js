/**
 * Which parts of a message have media. What draws them loads with the first such part.
 */

import { readImageAddress } from "./bodies.js";
import { loadStyle } from "../styles.js";

/** @typedef {import("./base.js").CardView} CardView */

/** Image types without script. */
export const IMAGE_TYPE = /^image\/(png|jpeg|gif|webp|avif|bmp)$/;
/** Kinds of text parts, regardless of their other members. */
export const TEXT_KINDS = new Set(["assistant_text", "user_text", "text", "system_text", "tool_text", "reasoning", "plan"]);

/** @param {any} part */
export const hrefOf = (part) => [part.href, part.url, part.ref, part.src, part.uri, part.source, part.image_url?.url ?? part.image_url, part.image, part.source?.url, part.file?.url].find((one) => typeof one === "string");

/**
 * Whether a part has media besides its text.
 * @param {any} part
 */
export function hasMedia(part) {
  if (part === undefined || part === null) return false;
  if (part.refs !== undefined || Array.isArray(part.attachments)) return true;
  if (TEXT_KINDS.has(part.kind)) return false;
  return part.kind === "file_change" || part.diff !== undefined || part.patch !== undefined || part.diffRef !== undefined || part.path !== undefined || part.name !== undefined || part.data !== undefined || hrefOf(part) !== undefined;
}

/**
 * Draws the media of a part, or hides the element of a part without media.
 * @param {HTMLElement} root
 * @param {CardView} view
 * @param {any} part
 */
export function drawMedia(root, view, part) {
  root.hidden = !hasMedia(part);
  if (root.hidden) return;
  Promise.all([import("./media.js"), loadStyle("surfaces/media.css")]).then(([media]) => media.drawMedia(root, view, part), (error) => console.warn("The media of a message did not load:", error));
}

/**
 * Reads a stored image as a data URL.
 * @param {CardView} view
 * @param {string} href
 * @param {string} [type] Its media type. A browser detects the type of bitmaps by itself, and nothing else is drawn.
 */
export const readImage = (view, href, type = "") => readImageAddress(view, href, IMAGE_TYPE.test(type) ? type : "image/png");
