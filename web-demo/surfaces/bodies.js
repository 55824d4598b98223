/**
 * Bodies and diffs of artifacts, loaded on demand: from a blob of this server, or from the artifact's envelopes.
 */

import { toText } from "./base.js";
import { BLOB_PATH, formatValue } from "./facts.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").CardView} CardView */
/** @typedef {{ text: string, isWhole: boolean }} Text A body or its beginning. */

/** Members of an envelope's payload that contain a body. */
const BODY_MEMBERS = ["body", "content", "contents", "text", "markdown", "html", "data"];
/** The maximum number of bytes read of a blob. */
const BYTES_MAX = 800_000;
/** The number of envelopes searched for a body or diff without a reference. */
const EVENTS_MAX = 1000;
/** The maximum size of an image, in bytes. */
const IMAGE_BYTES_MAX = 4 * 1024 * 1024;
/** Members of an artifact or a version that refer to its body. */
const BODY_REF_MEMBERS = ["bodyRef", "contentRef", "versionRef", "ref", "href"];
/** Envelopes that may contain a body. */
const BODY_TYPES = ["artifact.created", "artifact.updated", "artifact.changed", "artifact.version.created"];

/** The name of a version on the page. @param {Record<string, any> | undefined} version */
export const versionName = (version) => (version ? `version ${formatValue(version.version ?? version.versionId) || "unknown"}` : "the latest body");

/**
 * Returns the path of a stored body.
 * @param {Record<string, any>} holder An artifact's content, or a version.
 * @returns {string | undefined}
 */
export const bodyRefOf = (holder) => BODY_REF_MEMBERS.map((member) => holder[member]).find((href) => typeof href === "string" && BLOB_PATH.test(href));

/**
 * Reads the body of a version, or the latest one.
 * @param {CardView} view
 * @param {Activity} artifact
 * @param {Record<string, any> | undefined} version
 * @returns {Promise<Text>} Rejects if no fact contains it.
 */
export async function readBody(view, artifact, version) {
  const ref = bodyRefOf(version ?? artifact.content);
  if (ref) return readBlobText(view, ref);
  const text = await readTextFromEvents(view, artifact, version?.sequence, BODY_MEMBERS, BODY_TYPES);
  if (text === undefined) throw new Error(`Unavailable: the source sent no facts with ${versionName(version)}${version?.ref ? `. It is stored at ${version.ref}` : ""}.`);
  return text;
}

/**
 * Makes the file of a body: of the bytes in a data URL, else of the text.
 * @param {string} text
 * @param {string} type
 */
export async function blobOf(text, type) {
  const data = /^data:([^;,]*);base64,([A-Za-z0-9+/=\s]+)$/.exec(text);
  if (!data) return new Blob([text], { type: type || "text/plain" });
  return new Blob([Uint8Array.from(atob(data[2]), (char) => char.charCodeAt(0))], { type: data[1] });
}

/** Whether a stored body is the text of a data URL: the source sent the bytes of a file in it. @param {Blob} blob */
export const isDataAddress = async (blob) => (await blob.slice(0, 5).text()) === "data:";

/**
 * Reads a stored image as a data URL: an `img` element cannot send a token.
 * @param {CardView} view
 * @param {string} href
 * @param {string} type Its media type.
 * @returns {Promise<string>}
 */
export async function readImageAddress(view, href, type) {
  const { blob, isWhole } = await (await view.reads()).blob(href, { from: 0, to: IMAGE_BYTES_MAX - 1, audience: view.audience });
  if (!isWhole) throw new Error("Unavailable: the image is too large.");
  if (await isDataAddress(blob)) return blob.text();
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(new Blob([blob], { type }));
  });
}

/**
 * Reads a body from the artifact's envelopes: from the one with this sequence, else from the newest that has one.
 * @param {CardView} view
 * @param {Activity} artifact
 * @param {number | undefined} sequence
 * @param {string[]} members
 * @param {string[]} type
 * @param {(payload: Record<string, any>) => boolean} [accepts] Filters payloads.
 * @returns {Promise<Text | undefined>}
 */
export async function readTextFromEvents(view, artifact, sequence, members, type, accepts = () => true) {
  if (!artifact.runId) return undefined;
  const range = sequence === undefined ? { after: artifact.opened - 1, limit: EVENTS_MAX, type } : { after: sequence - 1, before: sequence + 1 };
  const { events } = await (await view.reads()).events(artifact.runId, { ...range, audience: view.audience });
  for (const event of events.toReversed()) {
    if (event.artifactId !== artifact.activityId || !accepts(event.payload ?? {})) continue;
    const member = members.find((name) => event.payload?.[name] !== undefined);
    if (member === undefined) continue;
    // The server moved a long value to a blob; the member keeps its beginning.
    const refs = Array.isArray(event.refs) ? event.refs : [];
    const ref = refs.find((/** @type {any} */ ref) => BLOB_PATH.test(toText(ref?.href)) && toText(ref?.member) === `/payload/${member}`);
    return ref ? readBlobText(view, ref.href) : { text: toText(event.payload?.[member]), isWhole: true };
  }
  return undefined;
}

/**
 * @param {CardView} view
 * @param {string} href
 * @returns {Promise<Text>}
 */
export async function readBlobText(view, href) {
  const { blob, isWhole } = await (await view.reads()).blob(href, { from: 0, to: BYTES_MAX - 1, audience: view.audience });
  return { text: await blob.text(), isWhole };
}

/**
 * Reads the latest diff of an artifact. With a version: the latest of that version, or without a version.
 * @param {CardView} view
 * @param {Activity} artifact
 * @param {unknown} [version]
 * @returns {Promise<Text>} Rejects if no fact contains one.
 */
export async function readDiff(view, artifact, version) {
  const { diffRef } = artifact.content;
  const isCurrent = version === undefined || [artifact.content.versionId, artifact.content.version].includes(version);
  if (isCurrent && typeof diffRef === "string" && BLOB_PATH.test(diffRef)) return readBlobText(view, diffRef);
  const matchesVersion = (/** @type {Record<string, any>} */ { versionId, version: number }) => version === undefined || (versionId === undefined && number === undefined) || versionId === version || number === version || toText(number) === toText(version);
  const found = await readTextFromEvents(view, artifact, undefined, ["diff", "patch", ...BODY_MEMBERS], ["artifact.diff.ready"], matchesVersion);
  if (found === undefined) throw new Error(`The source sent no diff${diffRef ? `; it is stored at ${formatValue(diffRef)}` : ""}.`);
  return found;
}
