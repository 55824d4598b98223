/**
 * The images in the output of a tool, in the forms of MCP, ACP and model providers. It loads with the first of them.
 */

import { toText } from "./base.js";
import { drawMedia } from "./media.js";
import { IMAGE_TYPE } from "./part-media.js";
import { WholeContent } from "./whole-content.js";

/** @typedef {import("./base.js").CardView} CardView */
/** @typedef {{ type: "image", data: string, mediaType: string, name: string }} Image */

/** How deep an image may be in an output, and how many are drawn. */
const DEPTH_MAX = 5;
const IMAGES_MAX = 12;

/** The whole content of each element that shows one: an image is often stored apart. @type {WeakMap<HTMLElement, WholeContent>} */
const wholes = new WeakMap();

/**
 * Finds images.
 * @param {any} value
 * @param {number} [depth]
 * @returns {Image[]}
 */
export function imagesIn(value, depth = 0) {
  if (value === null || typeof value !== "object" || depth > DEPTH_MAX) return [];
  if (Array.isArray(value)) return value.flatMap((one) => imagesIn(one, depth + 1));
  const mediaType = toText(value.mimeType ?? value.mediaType ?? value.media_type ?? value.source?.media_type);
  const data = value.data ?? value.source?.data;
  if (typeof data === "string" && IMAGE_TYPE.test(mediaType)) return [{ type: "image", data, mediaType, name: toText(value.name ?? value.title) }];
  return Object.values(value).flatMap((one) => imagesIn(one, depth + 1));
}

/**
 * Draws the images of an output below each other.
 * @param {HTMLElement} root
 * @param {CardView} view
 * @param {Record<string, any>} content
 */
export function drawImages(root, view, content) {
  const whole = wholes.get(root) ?? new WholeContent(() => drawImages(root, view, content));
  wholes.set(root, whole);
  const images = imagesIn(whole.of(view, content).output).slice(0, IMAGES_MAX);
  const key = JSON.stringify(images.map(({ data, mediaType }) => [mediaType, data.length, data.slice(0, 64)]));
  if (root.dataset.images === key) return;
  root.dataset.images = key;
  root.replaceChildren(...images.map((image) => {
    const place = document.createElement("div");
    drawMedia(place, view, image);
    return place;
  }));
}
