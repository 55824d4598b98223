/**
 * Server-sent events: what a reader reports, and the reader by `EventSource`.
 */

import { parseJson } from "./json.js";

/**
 * @typedef {import("./types.js").Frame} Frame
 * @typedef {import("./types.js").ProblemDocument} ProblemDocument
 *
 * @typedef {{ frame: Frame, cursor: string, sub?: string }} ReceivedFrame A frame with its cursor (empty if it has none)
 * and its subscription.
 *
 * @typedef {object} ReaderEnd Why a reader stopped. `lost`: the connection broke; `finished`: the server has nothing more,
 * ever; `opaque`: the response is one that this reader cannot inspect; `problem`: the server rejected the request;
 * `malformed`: the client could not parse a frame.
 * @property {"lost" | "finished" | "opaque" | "problem" | "malformed"} kind
 * @property {string} why
 * @property {ProblemDocument} [problem]
 * @property {number} [retryAfterMs]
 *
 * @typedef {object} ReaderListener The events of a reader. None follows `ended`, or `close`.
 * @property {() => void} opened The connection is open.
 * @property {() => void} activity Bytes arrived.
 * @property {(frames: ReceivedFrame[]) => void} frames Frames that arrived together, in order.
 * @property {(ms: number) => void} retry The server's reconnection delay.
 * @property {(ms: number) => void} roundTrip The round-trip time of a ping.
 * @property {(end: ReaderEnd) => void} ended
 *
 * @typedef {{ close: () => void }} Reader
 */

/**
 * Reads SSE by `EventSource`, which every browser has, but which sends no header and reports neither status nor
 * heartbeat. The reader closes it on the first error instead of letting it reconnect: the connection must find out the
 * reason.
 * @param {string} url
 * @param {typeof globalThis.EventSource} EventSource
 * @param {ReaderListener} listener
 * @returns {Reader}
 */
export function readByEventSource(url, EventSource, listener) {
  const emit = guarded(listener);
  const source = new EventSource(url);
  const close = () => (emit.silence(), source.close());
  source.onopen = () => (emit.activity(), emit.opened());
  source.onmessage = (message) => {
    let frame;
    try {
      frame = parseJson(message.data);
    } catch (error) {
      source.close();
      return emit.ended({ kind: "malformed", why: `The client received malformed data: ${reasonOf(error)}` });
    }
    emit.activity();
    emit.frames([{ frame, cursor: message.lastEventId }]);
  };
  source.onerror = () => {
    // For a response that is not a stream, `EventSource` reports only that it gave up.
    const isClosed = source.readyState === 2;
    source.close();
    emit.ended(isClosed ? { kind: "opaque", why: "The response is not an event stream." } : { kind: "lost", why: "The stream was interrupted." });
  };
  return { close };
}

/**
 * Wraps a listener so that it gets no event after `ended` or `silence`.
 * @param {ReaderListener} listener
 * @returns {ReaderListener & { silence: () => void }}
 */
export function guarded(listener) {
  let hasEnded = false;
  return {
    opened: () => void (hasEnded || listener.opened()),
    activity: () => void (hasEnded || listener.activity()),
    frames: (frames) => void (hasEnded || listener.frames(frames)),
    retry: (ms) => void (hasEnded || listener.retry(ms)),
    roundTrip: (ms) => void (hasEnded || listener.roundTrip(ms)),
    ended: (end) => {
      if (hasEnded) return;
      hasEnded = true;
      listener.ended(end);
    },
    silence: () => void (hasEnded = true),
  };
}

/** @param {unknown} error */
export function reasonOf(error) {
  if (!(error instanceof Error)) return String(error);
  // The message of undici says only that the request failed; its cause says why.
  return error.cause instanceof Error && error.cause.message ? `${error.message}: ${error.cause.message}` : error.message;
}
