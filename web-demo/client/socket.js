/**
 * Frames over a WebSocket (`proscenium.v1`): many subscriptions on one connection.
 */

import { guarded, reasonOf } from "./sse.js";

/**
 * @typedef {import("./sse.js").Reading} Reading
 * @typedef {import("./sse.js").Reader} Reader
 * @typedef {import("./types.js").ProblemDocument} ProblemDocument
 *
 * @typedef {Record<string, any> & { id: string }} Subscription What `subscribe` says, beside `op`.
 */

/** What is spoken. */
const SUBPROTOCOL = "proscenium.v1";

/** Close codes after which it is of no use to come back, and why: what was sent could not be taken. */
const FINAL = new Map([[1003, "the server takes text only"], [1007, "the server could not read what it was sent"], [1009, "what was sent is too large"], [1010, "the server lacks an extension"]]);
const UNAUTHENTICATED = 4401;

/**
 * @param {string} url `ws://…/v1/ws`
 * @param {{ token: string | undefined, subscriptions: Subscription[], pingMs: number, WebSocket: typeof globalThis.WebSocket }} how
 * @param {Reading} on
 * @returns {Reader}
 */
export function readBySocket(url, { token, subscriptions, pingMs, WebSocket }, on) {
  const tell = guarded(on);
  const socket = new WebSocket(url, SUBPROTOCOL);
  const open = new Set(subscriptions.map((subscription) => subscription.id));
  /** @type {ProblemDocument | undefined} */
  let problem;
  let [pings, asked, isOpen] = [0, 0, false];
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let pinging;

  /** @param {Record<string, any>} message */
  const say = (message) => socket.send(JSON.stringify(message));
  const ping = () => {
    [pings, asked] = [pings + 1, performance.now()];
    say({ op: "ping", id: pings });
  };
  const end = () => {
    clearInterval(pinging);
    [socket.onopen, socket.onmessage, socket.onclose] = [null, null, null];
    socket.close();
  };
  /** @param {import("./sse.js").Over} over */
  const over = (over) => {
    end();
    tell.over(over);
  };
  const subscribe = () => {
    for (const subscription of subscriptions) say({ op: "subscribe", ...subscription });
    pinging = setInterval(ping, pingMs);
    ping();
    tell.opened();
  };
  /** @param {Record<string, any>} answer */
  const obey = (answer) => {
    if (answer.op === "authenticated") return subscribe();
    if (answer.op === "pong" && answer.id === pings) return tell.echo(performance.now() - asked);
    if (answer.op !== "error") return;
    const { op, id, ...document } = answer;
    problem = /** @type {ProblemDocument} */ (document);
    // What is wrong with a subscription is told as its stream would tell it; what is wrong with the connection, by its close.
    if (open.has(id)) tell.came([{ frame: { frame: "Error", sequence: 0, problem }, cursor: "", sub: id }]);
  };

  socket.onopen = () => {
    isOpen = true;
    if (token) say({ op: "auth", token });
    else subscribe();
  };
  socket.onmessage = (message) => {
    tell.heard();
    try {
      const { sub, cursor = "", ...frame } = JSON.parse(message.data);
      if (typeof frame.op === "string") obey(frame);
      else if (open.has(sub)) tell.came([{ frame, cursor, sub }]);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      over({ kind: "broken", why: `what came is no frame: ${reasonOf(error)}` });
    }
  };
  socket.onclose = ({ code, reason }) => {
    // Browsers do not say which.
    const cut = isOpen ? "the connection was cut off" : "the server was not reached, or takes no WebSocket from here";
    const why = reason || FINAL.get(code) || cut;
    if (code === UNAUTHENTICATED) problem ??= { status: 401, code: "unauthenticated", detail: why };
    if (code === UNAUTHENTICATED && problem) over({ kind: "problem", why: problem.detail, problem: { ...problem, status: 401 } });
    else if (FINAL.has(code)) over({ kind: "problem", why, problem: problem ?? { status: 400, code: "unknown", detail: why } });
    else over({ kind: "lost", why });
  };
  return { close: () => (tell.end(), end()) };
}

/**
 * The address of a server's WebSocket.
 * @param {string} base Empty means the page's own.
 */
export function socketUrl(base) {
  const url = new URL(`${base}/v1/ws`, typeof location === "undefined" ? undefined : location.href);
  url.protocol = url.protocol.replace(/^http/, "ws");
  return url.href;
}
