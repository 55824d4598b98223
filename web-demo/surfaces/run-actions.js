/**
 * What a person does to selected runs: retry, archive, export.
 */

import { submit } from "../client/controls.js";
import { pathSegment, request } from "../client/http.js";
import { entryKey } from "../session-entry.js";
import { archivedHere, keepArchivedHere } from "../session-list.js";
import { failureOf, showToast } from "../toasts.js";
import { nameOfRun } from "./run-row.js";

/** @typedef {import("../client/hydration.js").RunLine} RunLine */
/** @typedef {import("../client/http.js").Server} Server */
/** @typedef {import("../route.js").Audience} Audience */

/** Requests under way at once: a browser opens few connections to a server. */
const AT_ONCE = 4;

/**
 * Does something to each, and reports how it went in one message.
 * @template Item
 * @param {Item[]} items
 * @param {(item: Item) => Promise<unknown>} work
 * @param {(count: number) => string} done What the message says of those that went well.
 * @param {(item: Item) => string} nameOf
 */
async function forAll(items, work, done, nameOf) {
  /** @type {string[]} */
  const failures = [];
  const waiting = [...items];
  const next = async () => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) {
      try {
        await work(item);
      } catch (error) {
        failures.push(`“${nameOf(item)}”: ${failureOf(error)}`);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  const count = items.length - failures.length;
  const more = failures.length > 1 ? ` ${failures.length - 1} more failed.` : "";
  showToast({ text: [count > 0 ? done(count) : "", failures.length > 0 ? `${failures[0]}${more}` : ""].filter(Boolean).join(" "), isFailure: failures.length > 0 });
}

/** @param {number} count @param {string} one @param {string} [many] */
const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** @param {RunLine} run Whether its runtime may be asked to run it again. */
export const canRetry = ({ status }) => ["failed", "cancelled", "interrupted"].includes(status);

/**
 * Asks the runtimes to run them again.
 * @param {Server} server
 * @param {RunLine[]} runs
 * @param {Audience} audience
 */
export const retryRuns = (server, runs, audience) => forAll(runs.filter(canRetry), ({ runId }) => submit(server, { run: runId, control: "retry", audience }), (count) => `Asked to retry ${counted(count, "run")}.`, nameOfRun);

/**
 * Archives the sessions of runs, for all who see them; of runs without a session, in this browser.
 * @param {Server} server
 * @param {RunLine[]} runs
 * @param {Audience} audience
 */
export async function archiveRuns(server, runs, audience) {
  const sessions = [...new Set(runs.flatMap(({ sessionId }) => sessionId ?? []))];
  const headers = { "content-type": "application/json", "x-proscenium-client": "page" };
  const loose = runs.filter(({ sessionId }) => !sessionId);
  const keys = archivedHere();
  for (const { runId } of loose) keys.add(entryKey({ kind: "run", id: runId }));
  if (loose.length > 0) keepArchivedHere(keys);
  await forAll([...sessions, ...loose], async (one) => {
    if (typeof one === "string") await request(server, `/v1/sessions/${pathSegment(one)}?audience=${audience}`, { method: "PATCH", headers, body: JSON.stringify({ archived: true }) });
  }, (count) => `Archived ${sessions.length === 0 ? counted(count, "run") : counted(count, "session")}.`, (one) => (typeof one === "string" ? one : nameOfRun(one)));
}

/**
 * Downloads the events of runs as one file, which `proscenium import` reads.
 * @param {Server} server
 * @param {RunLine[]} runs
 * @param {Audience} audience
 */
export async function exportRuns(server, runs, audience) {
  /** @type {Map<string, string>} */
  const texts = new Map();
  await forAll(runs, async ({ runId }) => void texts.set(runId, await (await request(server, `/v1/runs/${pathSegment(runId)}/export?audience=${audience}`)).text()), (count) => `Exported the events of ${counted(count, "run")}.`, nameOfRun);
  if (texts.size === 0) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(runs.map(({ runId }) => texts.get(runId) ?? ""), { type: "application/x-ndjson" }));
  link.download = runs.length === 1 ? `${runs[0].runId}.ndjson` : "runs.ndjson";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
}
