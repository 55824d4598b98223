/**
 * Server-sent events by `fetch`: the parser, and the reader. It loads where `EventSource` is absent or cannot report.
 */

import { parseJson } from "./json.js";
import { problemOf, retryAfterOf } from "./http.js";
import { guarded, reasonOf } from "./sse.js";

/**
 * @typedef {import("./sse.js").Reader} Reader
 * @typedef {import("./sse.js").ReaderListener} ReaderListener
 * @typedef {import("./sse.js").ReceivedFrame} ReceivedFrame
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
