/**
 * What a person takes from the events: an event as JSON, as a curl command or as a link, and the rows as a file.
 */

import { parseJson } from "../client/json.js";

/** @typedef {import("./base.js").View} View */
/** @typedef {import("./event-log.js").Row} Row */
/** @typedef {"json" | "curl" | "link"} CopyForm */

/** What the page says after a copy. @type {Record<CopyForm, string>} */
const COPIED = { json: "Copied as JSON.", curl: "Copied as curl. Set PROSCENIUM_TOKEN if the server requires a token.", link: "Copied the link." };

/**
 * Copies an event.
 * @param {View} view
 * @param {Row} row
 * @param {CopyForm} form
 * @param {string | undefined} before The cursor before the event.
 * @returns {Promise<string>} What to tell the person.
 */
export async function copyEvent(view, row, form, before) {
  const text = { json: () => JSON.stringify(parseJson(row.json), null, 2), curl: () => curlOf(view, row, before), link: () => linkOf(view, row) }[form]();
  try {
    await navigator.clipboard.writeText(text);
    return COPIED[form];
  } catch {
    return "The browser denied access to the clipboard.";
  }
}

/**
 * @param {View} view
 * @param {Row} row
 * @param {string | undefined} before
 */
function curlOf(view, { run, sequence }, before) {
  const query = run ? `after=${sequence - 1}&before=${sequence + 1}` : `limit=1${before ? `&after=${encodeURIComponent(before)}` : ""}`;
  const path = run ? `/v1/runs/${encodeURIComponent(run)}/events` : `/v1/sessions/${encodeURIComponent(view.sessionId ?? "")}/events`;
  return `curl -s \${PROSCENIUM_TOKEN:+-H "authorization: Bearer $PROSCENIUM_TOKEN"} '${location.origin}${path}?${query}&audience=${view.audience}'`;
}

/**
 * @param {View} view
 * @param {Row} row
 */
function linkOf(view, { run, sequence }) {
  const query = new URLSearchParams(location.hash.slice(1));
  query.set("panel", "events");
  query.set("event", view.sessionId === undefined ? String(sequence) : `${run}:${sequence}`);
  return `${location.origin}${location.pathname}#${query}`;
}

/**
 * Downloads rows as NDJSON.
 * @param {View} view
 * @param {Row[]} rows
 */
export function exportRows(view, rows) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(rows.map(({ json }) => `${json}\n`), { type: "application/x-ndjson" }));
  link.download = `${view.sessionId ?? view.runId ?? "events"}-events.ndjson`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
}
