/**
 * Server-sent events: the parser, and two readers (`fetch` and `EventSource`).
 */

import { parseJson } from "./json.js";
import { problemOf, retryAfterOf } from "./http.js";

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

/** @typedef {{ data: string, id: string | undefined }} SseEvent One event. As in `EventSource`, a block without data is none. */

/**
 * Parses a stream of events that arrives in arbitrary chunks. An event is complete when its blank line has arrived.
 */
export class SseParser {
  /** @param {(ms: number) => void} [retry] */
  constructor(retry = () => {}) {
    this.#retry = retry;
  }

  #retry;
  #line = "";
  #afterCr = false;
  #isFirst = true;
  /** @type {string[]} */
  #data = [];
  /** @type {string | undefined} */
  #id;

  /**
   * Parses the next chunk.
   * @param {string} chunk
   * @returns {SseEvent[]} The events that it completes.
   */
  push(chunk) {
    /** @type {SseEvent[]} */
    const events = [];
    let from = 0;
    if (chunk !== "" && this.#isFirst) {
      this.#isFirst = false;
      if (chunk.startsWith("\uFEFF")) from = 1;
    }
    // CR and LF may arrive in two chunks and are still one line end.
    if (this.#afterCr && chunk[from] === "\n") from += 1;
    if (chunk !== "") this.#afterCr = false;
    const lineEnds = /\r\n|\n|\r/g;
    lineEnds.lastIndex = from;
    for (let lineEnd = lineEnds.exec(chunk); lineEnd; lineEnd = lineEnds.exec(chunk)) {
      const event = this.#takeLine(this.#line + chunk.slice(from, lineEnd.index));
      if (event) events.push(event);
      this.#line = "";
      from = lineEnds.lastIndex;
      this.#afterCr = lineEnd[0] === "\r" && from === chunk.length;
    }
    // Joined when the line is complete, and not searched again until then: one event may be megabytes in many chunks.
    this.#line += chunk.slice(from);
    return events;
  }

  /**
   * @param {string} line
   * @returns {SseEvent | undefined}
   */
  #takeLine(line) {
    if (line === "") {
      const event = this.#data.length > 0 ? { data: this.#data.join("\n"), id: this.#id } : undefined;
      [this.#data, this.#id] = [[], undefined];
      return event;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#data.push(value);
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.#retry(Number(value));
    return undefined;
  }
}

/**
 * Reads SSE by `fetch`, which reports statuses and heartbeats and can send headers.
 * @param {string} url
 * @param {Record<string, string>} headers
 * @param {typeof globalThis.fetch} fetch
 * @param {ReaderListener} listener
 * @returns {Reader}
 */
export function readByFetch(url, headers, fetch, listener) {
  const abort = new AbortController();
  const emit = guarded(listener);
  const run = async () => {
    const response = await fetch(url, { headers: { accept: "text/event-stream", ...headers }, cache: "no-store", signal: abort.signal });
    if (response.status === 204) return emit.ended({ kind: "finished", why: "The stream has ended." });
    if (!response.ok) {
      const problem = await problemOf(response);
      return emit.ended({ kind: "problem", why: problem.detail, problem, retryAfterMs: retryAfterOf(response) });
    }
    if (!response.headers.get("content-type")?.startsWith("text/event-stream") || !response.body) {
      abort.abort();
      return emit.ended({ kind: "lost", why: "The response is not an event stream." });
    }
    emit.opened();
    const [parser, decoder, body] = [new SseParser(emit.retry), new TextDecoder(), response.body.getReader()];
    for (;;) {
      const { done, value } = await body.read();
      if (done) return emit.ended({ kind: "lost", why: "The stream was interrupted." });
      emit.activity();
      const { frames, malformed } = framesOf(parser.push(decoder.decode(value, { stream: true })));
      if (frames.length > 0) emit.frames(frames);
      if (malformed) throw malformed;
    }
  };
  run().catch((error) => {
    abort.abort();
    emit.ended(error instanceof SyntaxError ? { kind: "malformed", why: `The client received malformed data: ${error.message}` } : { kind: "lost", why: reasonOf(error) });
  });
  return { close: () => (emit.silence(), abort.abort()) };
}

/**
 * Parses events into frames, up to the first that is malformed.
 * @param {SseEvent[]} events
 */
function framesOf(events) {
  /** @type {ReceivedFrame[]} */
  const frames = [];
  try {
    for (const { data, id } of events) frames.push({ frame: parseJson(data), cursor: id ?? "" });
    return { frames };
  } catch (malformed) {
    return { frames, malformed };
  }
}

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
