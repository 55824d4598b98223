/**
 * Controls: approve, answer, send, interrupt, …
 *
 * A control changes nothing by itself. The server records it and delivers it to the runtime that owns the run. The
 * runtime reports the result as facts on the stream. A page therefore shows nothing as done because it sent a control.
 */

import { Problem, request, isTransient, pathSegment } from "./http.js";

/**
 * @typedef {object} Control
 * @property {string} [run] The target run. Exactly one of `run` and `session` is required.
 * @property {string} [session] The target session, for `send`, `queue`, `assign`, `delegate`, `close`, …
 * @property {string} control `approve`, `reject`, `answer`, `send`, `queue`, `steer`, `interrupt`, `stop`, `retry`, …
 * @property {string} [controlId] The idempotency key: the runtime executes one id once. Generated if it is left out.
 * @property {string} [actionId]
 * @property {string} [toolCallId]
 * @property {string} [agentId]
 * @property {string} [taskId]
 * @property {string} [artifactId]
 * @property {string} [evidenceId]
 * @property {boolean} [supersede] With `send`: the message supersedes the pending actions of its agent, which then take no
 * decision. Without it, such a message is refused by 409 `would_supersede`.
 * @property {any} [value] The payload: an answer, a message, an edit.
 * @property {number} [ttlSeconds] How long the control waits for its runtime, in seconds.
 * @property {import("./types.js").Audience} [audience] The sender's audience. A sender cannot answer an action that its
 * audience cannot see.
 *
 * @typedef {{ controlId: string, status: "queued" }} Submitted
 */

/** The number of attempts, and the first wait between two in milliseconds. The wait doubles. */
const ATTEMPTS_MAX = 3;
const RETRY_MS = 400;

/**
 * Submits a control. Retries with the same id while the server is unreachable or busy, so it is executed at most once.
 * @param {import("./http.js").Server} server
 * @param {Control} control
 * @param {{ signal?: AbortSignal }} [call]
 * @returns {Promise<Submitted>} The server has recorded it and will deliver it.
 * @throws {Problem} The server rejected it: 409 if the action is not pending, 422 if its target cannot accept it, …
 */
export async function submit(server, { run, session, audience, ...control }, { signal } = {}) {
  if ((run === undefined) === (session === undefined)) throw new TypeError("A control needs exactly one of run and session.");
  const path = `${controlsOf({ run, session })}${audience ? `?${new URLSearchParams({ audience })}` : ""}`;
  const body = JSON.stringify({ controlId: newControlId(), ...control });
  for (let attempt = 1; ; attempt += 1) {
    try {
      const headers = { "content-type": "application/json", ...(server.client && { "x-proscenium-client": server.client }) };
      const response = await request(server, path, { method: "POST", headers, body, signal });
      return await response.json();
    } catch (error) {
      const isFinal = error instanceof Problem ? !isTransient(error.status) : signal?.aborted;
      if (isFinal || attempt === ATTEMPTS_MAX) throw error;
      await wait(RETRY_MS * 2 ** (attempt - 1) * (0.5 + Math.random() / 2), signal);
    }
  }
}

/**
 * Returns the path at which the controls of a run, or else of a session, are submitted and listed.
 * @param {{ run?: string, session?: string }} of
 */
export function controlsOf({ run, session = "" }) {
  return `${run !== undefined ? `/v1/runs/${pathSegment(run)}` : `/v1/sessions/${pathSegment(session)}`}/controls`;
}

/**
 * Withdraws a control that no runtime has claimed.
 * @param {import("./http.js").Server} server
 * @param {string} controlId
 * @returns {Promise<void>}
 * @throws {Problem} 409 if a runtime has it.
 */
export async function withdraw(server, controlId) {
  await request(server, `/v1/controls/${pathSegment(controlId)}`, { method: "DELETE" });
}

/** @typedef {{ href: string, mediaType: string, bytes: number, sha256: string, name?: string }} AttachedFile */

/**
 * Adds a file to a session, for the `attachments` of a message.
 * @param {import("./http.js").Server} server
 * @param {string} session
 * @param {File} file At most 10 MiB.
 * @returns {Promise<AttachedFile>}
 * @throws {Problem} Why it was not added.
 */
export async function attach(server, session, file) {
  const query = new URLSearchParams({ name: file.name.slice(0, 255) });
  const headers = { "content-type": file.type || "application/octet-stream" };
  const response = await request(server, `/v1/sessions/${pathSegment(session)}/attachments?${query}`, { method: "POST", headers, body: file });
  return response.json();
}

/** Generates a unique id. `randomUUID` exists only in secure contexts, and a page may come over plain HTTP. */
function newControlId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `control-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
function wait(ms, signal) {
  return new Promise((resolve, reject) => {
    const aborted = () => (clearTimeout(timer), reject(signal?.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", aborted), resolve()), ms);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}
