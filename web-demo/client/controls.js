/**
 * What people ask for: approve, answer, send, interrupt, …
 *
 * A control changes nothing by itself. The server records it and hands it to the runtime whose matter it is; what becomes of
 * it comes as facts, on the stream like all others. So nothing is shown as done because a control was sent.
 */

import { Problem, ask, isPassing, part } from "./http.js";

/**
 * @typedef {object} Control
 * @property {string} [run] The run that it is for; `run` or `session` has to be there.
 * @property {string} [session] The session: for `send`, `queue`, `assign`, `delegate`, `close`, …
 * @property {string} control `approve`, `reject`, `answer`, `send`, `queue`, `steer`, `interrupt`, `stop`, `retry`, …
 * @property {string} [controlId] Asked for twice by the same id, it is done once. One is made up if it is left out.
 * @property {string} [actionId]
 * @property {string} [toolCallId]
 * @property {string} [agentId]
 * @property {string} [taskId]
 * @property {string} [artifactId]
 * @property {string} [evidenceId]
 * @property {any} [value] What it says: an answer, a message, an edit.
 * @property {number} [ttlSeconds] How long it waits for its owner, in seconds.
 * @property {import("./types.js").Audience} [audience] As whom it is asked for: an action that an audience cannot see, it cannot answer.
 *
 * @typedef {{ controlId: string, status: "queued" }} Submitted
 */

/** How often it is tried, and the wait before another time, in milliseconds; it doubles. */
const ATTEMPTS_MAX = 3;
const RETRY_MS = 400;

/**
 * Submits a control. Where nobody answers, or the server is busy, it is tried again, by the same id: it is done once at most.
 * @param {import("./http.js").Server} server
 * @param {Control} control
 * @param {{ signal?: AbortSignal }} [call]
 * @returns {Promise<Submitted>} It is recorded, and on its way.
 * @throws {Problem} The server says no: 409 for an action that is not pending, 422 for a control that its target cannot take, …
 */
export async function submit(server, { run, session, audience, ...wish }, { signal } = {}) {
  if ((run === undefined) === (session === undefined)) throw new TypeError("a control is for a run or for a session");
  const path = `${controlsOf({ run, session })}${audience ? `?${new URLSearchParams({ audience })}` : ""}`;
  const body = JSON.stringify({ controlId: madeUp(), ...wish });
  for (let attempt = 1; ; attempt += 1) {
    try {
      const answer = await ask(server, path, { method: "POST", headers: { "content-type": "application/json" }, body, signal });
      return await answer.json();
    } catch (error) {
      const isFinal = error instanceof Problem ? !isPassing(error.status) : signal?.aborted;
      if (isFinal || attempt === ATTEMPTS_MAX) throw error;
      await pause(RETRY_MS * 2 ** (attempt - 1) * (0.5 + Math.random() / 2), signal);
    }
  }
}

/**
 * Where the controls of a run, or else of a session, are asked for and listed.
 * @param {{ run?: string, session?: string }} of
 */
export function controlsOf({ run, session = "" }) {
  return `${run !== undefined ? `/v1/runs/${part(run)}` : `/v1/sessions/${part(session)}`}/controls`;
}

/** An id that nobody else makes up. `randomUUID` is only there on pages that came safely. */
function madeUp() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `control-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const given = () => (clearTimeout(timer), reject(signal?.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", given), resolve()), ms);
    signal?.addEventListener("abort", given, { once: true });
  });
}
