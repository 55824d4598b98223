/**
 * Bodies and diffs of artifacts, read on demand: from a blob of this server, or from the artifact's own envelopes.
 */

import { element, words } from "./base.js";
import { BLOB, phrase } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */
/** @typedef {{ text: string, isWhole: boolean }} Text A body, or its beginning. */

/** Members of an envelope's payload that are a body. */
export const BODIES = ["body", "content", "contents", "text", "markdown", "html", "data"];
/** Bytes of a blob that are read. */
const BYTES_MAX = 800_000;
/** Envelopes that are searched for a body or a diff that nothing points at. */
const EVENTS_MAX = 1000;
/** Lines of a diff that are put on the page. */
const DIFF_LINES_MAX = 5000;

/**
 * A body from the artifact's own envelopes: the one of this sequence, or else the newest that has one.
 * @param {View} view
 * @param {Activity} it
 * @param {number | undefined} sequence
 * @param {string[]} members
 * @param {string[]} type
 * @param {(payload: Record<string, any>) => boolean} [fits] Which payloads count.
 * @returns {Promise<Text | undefined>}
 */
export async function keptText(view, it, sequence, members, type, fits = () => true) {
  if (!it.runId) return undefined;
  const place = sequence === undefined ? { after: it.opened - 1, limit: EVENTS_MAX, type } : { after: sequence - 1, before: sequence + 1 };
  const { events } = await view.hydration.events(it.runId, { ...place, audience: view.audience });
  for (const event of events.toReversed()) {
    if (event.artifactId !== it.activityId || !fits(event.payload ?? {})) continue;
    const member = members.find((name) => event.payload?.[name] !== undefined);
    if (member === undefined) continue;
    // What is long was moved to a blob; the member keeps its beginning.
    const refs = Array.isArray(event.refs) ? event.refs : [];
    const ref = refs.find((/** @type {any} */ ref) => BLOB.test(words(ref?.href)) && words(ref?.member) === `/payload/${member}`);
    return ref ? blobText(view, ref.href) : { text: words(event.payload?.[member]), isWhole: true };
  }
  return undefined;
}

/**
 * @param {View} view
 * @param {string} href
 * @returns {Promise<Text>}
 */
export async function blobText(view, href) {
  const { blob, isWhole } = await view.hydration.blob(href, { from: 0, to: BYTES_MAX - 1, audience: view.audience });
  return { text: await blob.text(), isWhole };
}

/**
 * The newest diff of an artifact; with a version, the newest that is of it or names none.
 * @param {View} view
 * @param {Activity} it
 * @param {unknown} [version]
 * @returns {Promise<Text>} Rejects where no fact holds one.
 */
export async function diffOf(view, it, version) {
  const { diffRef } = it.content;
  const isCurrent = version === undefined || [it.content.versionId, it.content.version].includes(version);
  if (isCurrent && typeof diffRef === "string" && BLOB.test(diffRef)) return blobText(view, diffRef);
  const isOf = (/** @type {Record<string, any>} */ { versionId, version: number }) => version === undefined || (versionId === undefined && number === undefined) || versionId === version || number === version || words(number) === words(version);
  const kept = await keptText(view, it, undefined, ["diff", "patch", ...BODIES], ["artifact.diff.ready"], isOf);
  if (kept === undefined) throw new Error(`unavailable: no fact holds the diff${diffRef ? `; its owner keeps it at ${phrase(diffRef)}` : ""}`);
  return kept;
}

/**
 * Draws a unified diff, line by line.
 * @param {HTMLElement} on
 * @param {string} text
 */
export function drawDiff(on, text) {
  on.dataset.kind = "diff";
  on.replaceChildren(...text.split("\n").slice(0, DIFF_LINES_MAX).map((line) => {
    const made = element("span", "", `${line}\n`);
    made.dataset.line = line.startsWith("+") && !line.startsWith("+++") ? "added" : line.startsWith("-") && !line.startsWith("---") ? "removed" : line.startsWith("@@") ? "place" : "same";
    return made;
  }));
}
