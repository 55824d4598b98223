/**
 * Opens a recording: sends the envelopes or facts of a local NDJSON file to the server, as `proscenium import` does.
 *
 * The whole file is checked before any of it is sent. The id of the producer comes from the content, so opening the
 * same file again stores nothing twice.
 */

import { parseJson } from "./client/json.js";
import { Problem, pathSegment, request } from "./client/http.js";
import { showToast } from "./toasts.js";

/** The members that a server assigns to every accepted envelope. A recording has those of another server. */
const SERVER_MEMBERS = ["runId", "eventId", "sequence", "receivedAt", "startAudience"];

/** The facts of one log of the file. @typedef {{ path: string, lines: string[], numbers: number[], firstEvent: unknown }} Log `numbers`: the lines of the file, from 1. */

/**
 * Lets a person choose a recording, and sends it to the server.
 * @param {import("./client/http.js").Server} server
 * @param {(target: { session: string } | { run: string }) => void} sent Takes what the recording is about.
 */
export function chooseRecording(server, sent) {
  const input = Object.assign(document.createElement("input"), { type: "file", accept: ".ndjson,.jsonl,application/x-ndjson" });
  input.addEventListener("change", async () => {
    const [file] = input.files ?? [];
    if (!file) return;
    try {
      sent(await sendRecording(server, file));
    } catch (error) {
      showToast({ text: `${file.name} was not opened. ${error instanceof Error ? error.message : error}`, isFailure: true });
    }
  });
  input.click();
}

/**
 * Sends a recording.
 * @param {import("./client/http.js").Server} server
 * @param {File} file
 * @returns {Promise<{ session: string } | { run: string }>} What the recording is about.
 * @throws {Error} With the number of the invalid line and the reason.
 */
async function sendRecording(server, file) {
  const text = await file.text();
  const { logs, target } = parse(text, file.name.replace(/\.[^.]*$/, "") || "recording");
  const producer = await producerOf(text);
  for (const log of logs) {
    if (await isStored(server, log)) continue;
    try {
      await request(server, `${log.path}/facts?source=agentui`, { method: "POST", body: log.lines.join("\n"), headers: { "content-type": "application/x-ndjson", ...producer } });
    } catch (error) {
      const line = error instanceof Problem ? log.numbers[Number(/** @type {any} */ (error.document).line) - 1] : undefined;
      // The server counts the lines of its body, which has no blank ones.
      throw line === undefined ? error : new Error(`Line ${line}: ${/** @type {Problem} */ (error).detail.replace(/^line \d+: /, "")}`);
    }
  }
  return target;
}

/**
 * @param {string} text
 * @param {string} name The run of facts that name none.
 * @returns {{ logs: Log[], target: { session: string } | { run: string } }}
 */
function parse(text, name) {
  /** @type {Map<string, Log>} */
  const logs = new Map();
  /** @type {{ session: string } | { run: string } | undefined} */
  let target;
  for (const [at, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    const { runId, ...fact } = parseLine(line, at + 1);
    const { sessionId, eventId, sequence } = fact;
    const isOfRun = typeof runId === "string" || typeof sessionId !== "string" || sequence === undefined;
    const run = typeof runId === "string" ? runId : name;
    const path = isOfRun ? `/v1/runs/${pathSegment(run)}` : `/v1/sessions/${pathSegment(sessionId)}`;
    const log = logs.get(path) ?? /** @type {Log} */ ({ path, lines: [], numbers: [], firstEvent: eventId });
    logs.set(path, log);
    for (const member of SERVER_MEMBERS) delete fact[member];
    log.lines.push(JSON.stringify(fact));
    log.numbers.push(at + 1);
    if (typeof sessionId === "string" && !(target && "session" in target)) target = { session: sessionId };
    target ??= { run };
  }
  if (!target) throw new Error("The file has no envelope. Each line of a recording is one JSON object.");
  return { logs: [...logs.values()], target };
}

/**
 * @param {string} line
 * @param {number} number
 * @returns {Record<string, any>}
 */
function parseLine(line, number) {
  let fact;
  try {
    fact = parseJson(line);
  } catch (error) {
    throw new Error(`Line ${number} is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  if (fact === null || typeof fact !== "object" || Array.isArray(fact)) throw new Error(`Line ${number} is not a JSON object. Each line of a recording is one envelope or fact.`);
  if (typeof fact.type !== "string") throw new Error(`Line ${number} has no "type". Each line of a recording is one envelope or fact.`);
  return fact;
}

/**
 * Returns the headers of a producer that numbers the facts of this content.
 * @param {string} text
 * @returns {Promise<Record<string, string>>} Empty where the browser has no digest: over HTTP from another machine.
 */
async function producerOf(text) {
  if (!crypto.subtle) return {};
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  const hex = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return { "producer-id": `recording-${hex}`, "producer-epoch": "0", "producer-seq": "0" };
}

/**
 * Whether the server already has this log: the recording was exported from it.
 * @param {import("./client/http.js").Server} server
 * @param {Log} log
 */
async function isStored(server, { path, firstEvent }) {
  if (firstEvent === undefined) return false;
  try {
    const { events } = await (await request(server, `${path}/events?limit=1&audience=user`)).json();
    return events[0]?.eventId === firstEvent;
  } catch {
    // The log does not exist, or the token may only publish.
    return false;
  }
}
