/**
 * Reads frames over a WebSocket (`proscenium.v1`), which carries many subscriptions on one connection.
 */

import { parseJson } from "./json.js";
import { guarded, reasonOf } from "./sse.js";

/**
 * @typedef {import("./sse.js").ReaderListener} ReaderListener
 * @typedef {import("./sse.js").Reader} Reader
 * @typedef {import("./types.js").ProblemDocument} ProblemDocument
 *
 * @typedef {Record<string, any> & { id: string }} Subscription The members of `subscribe` except `op`.
 */

/** The WebSocket subprotocol of the server. */
const SUBPROTOCOL = "proscenium.v1";

/**
 * Close codes after which a retry would fail again, with the reason: the server could not accept a message of the
 * client.
 */
const FINAL_CLOSE_CODES = new Map([
  [1003, "The server accepts text only."], [1007, "The server could not decode a message of the client."],
  [1009, "A message of the client is too large."], [1010, "The server lacks an extension that the client requires."],
]);
const UNAUTHENTICATED_CLOSE_CODE = 4401;

/**
 * @param {string} url `ws://…/v1/ws`
 * @param {{ token: string | undefined, subscriptions: Subscription[], pingMs: number, WebSocket: typeof globalThis.WebSocket }} how
 * @param {ReaderListener} listener
 * @returns {Reader}
 */
export function readBySocket(url, { token, subscriptions, pingMs, WebSocket }, listener) {
  const emit = guarded(listener);
  const socket = new WebSocket(url, SUBPROTOCOL);
  const openIds = new Set(subscriptions.map((subscription) => subscription.id));
  /** @type {ProblemDocument | undefined} */
  let problem;
  let [pingId, pingedAt, isOpen] = [0, 0, false];
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let pingTimer;

  /** @param {Record<string, any>} message */
  const send = (message) => socket.send(JSON.stringify(message));
  const ping = () => {
    [pingId, pingedAt] = [pingId + 1, performance.now()];
    send({ op: "ping", id: pingId });
  };
  const end = () => {
    clearInterval(pingTimer);
    [socket.onopen, socket.onmessage, socket.onclose] = [null, null, null];
    socket.close();
  };
  /** @param {import("./sse.js").ReaderEnd} reason */
  const fail = (reason) => {
    end();
    emit.ended(reason);
  };
  const subscribe = () => {
    for (const subscription of subscriptions) send({ op: "subscribe", ...subscription });
    pingTimer = setInterval(ping, pingMs);
    ping();
    emit.opened();
  };
  /** @param {Record<string, any>} reply */
  const handleReply = (reply) => {
    if (reply.op === "authenticated") return subscribe();
    if (reply.op === "pong" && reply.id === pingId) return emit.roundTrip(performance.now() - pingedAt);
    if (reply.op !== "error") return;
    const { op, id, ...document } = reply;
    problem = /** @type {ProblemDocument} */ (document);
    // The error of a subscription becomes an `Error` frame, as on its SSE stream. The close code reports that of the
    // connection.
    if (openIds.has(id)) emit.frames([{ frame: { frame: "Error", sequence: 0, problem }, cursor: "", sub: id }]);
  };

  socket.onopen = () => {
    isOpen = true;
    if (token) send({ op: "auth", token });
    else subscribe();
  };
  socket.onmessage = (message) => {
    emit.activity();
    try {
      const { sub, cursor = "", ...frame } = parseJson(message.data);
      // A list frame has an `op`, too.
      if (sub === undefined) handleReply(frame);
      else if (openIds.has(sub)) emit.frames([{ frame, cursor, sub }]);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      fail({ kind: "malformed", why: `The client received malformed data: ${reasonOf(error)}` });
    }
  };
  socket.onclose = ({ code, reason }) => {
    // Browsers do not report why a handshake failed.
    const cut = isOpen ? "The connection was interrupted." : "The server is unreachable or rejects a WebSocket from this origin.";
    const why = reason || FINAL_CLOSE_CODES.get(code) || cut;
    if (code === UNAUTHENTICATED_CLOSE_CODE) problem ??= { status: 401, code: "unauthenticated", detail: why };
    if (code === UNAUTHENTICATED_CLOSE_CODE && problem) fail({ kind: "problem", why: problem.detail, problem: { ...problem, status: 401 } });
    else if (FINAL_CLOSE_CODES.has(code)) fail({ kind: "problem", why, problem: problem ?? { status: 400, code: "unknown", detail: why } });
    else fail({ kind: "lost", why });
  };
  return { close: () => (emit.silence(), end()) };
}

/**
 * Returns the address of a server's WebSocket.
 * @param {string} base Empty means the page's origin.
 */
export function socketUrl(base) {
  const url = new URL(`${base}/v1/ws`, typeof location === "undefined" ? undefined : location.href);
  url.protocol = url.protocol.replace(/^http/, "ws");
  return url.href;
}
