/**
 * Server-sent events: how they are written, and the two ways to read them.
 */

import { problemOf, retryAfterOf } from "./http.js";

/**
 * @typedef {import("./types.js").Frame} Frame
 * @typedef {import("./types.js").ProblemDocument} ProblemDocument
 *
 * @typedef {{ frame: Frame, cursor: string, sub?: string }} Came A frame, with its cursor if it has one, and the subscription that it is for.
 *
 * @typedef {object} Over Why a reader has stopped. `lost`: the line; `nothing`: the server has no more to say, ever; `unseen`: there was an answer that
 * this reader cannot see; `problem`: the server says no; `broken`: the server said what cannot be understood.
 * @property {"lost" | "nothing" | "unseen" | "problem" | "broken"} kind
 * @property {string} why
 * @property {ProblemDocument} [problem]
 * @property {number} [retryAfterMs]
 *
 * @typedef {object} Reading What a reader tells. Nothing comes after `over`, or after it was closed.
 * @property {() => void} opened The line stands.
 * @property {() => void} heard A sign of life.
 * @property {(came: Came[]) => void} came Frames, in order, as many as came at once.
 * @property {(ms: number) => void} retry How long the server wants readers to wait before they come back.
 * @property {(ms: number) => void} echo How long a question took there and back.
 * @property {(over: Over) => void} over
 *
 * @typedef {{ close: () => void }} Reader
 */

/** One event. A block without data is none, as in `EventSource`. */
/** @typedef {{ data: string, id: string | undefined }} SseEvent */

/**
 * Reads a stream of events, wherever it was cut into pieces. An event is only taken when the blank line behind it has come.
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
   * Takes the next piece.
   * @param {string} piece
   * @returns {SseEvent[]} What has become whole with it.
   */
  push(piece) {
    /** @type {SseEvent[]} */
    const events = [];
    let from = 0;
    if (piece !== "" && this.#isFirst) {
      this.#isFirst = false;
      if (piece.startsWith("\uFEFF")) from = 1;
    }
    // CR and LF may come in two pieces, and are one end of a line.
    if (this.#afterCr && piece[from] === "\n") from += 1;
    if (piece !== "") this.#afterCr = false;
    const ends = /\r\n|\n|\r/g;
    ends.lastIndex = from;
    for (let end = ends.exec(piece); end; end = ends.exec(piece)) {
      const event = this.#take(this.#line + piece.slice(from, end.index));
      if (event) events.push(event);
      this.#line = "";
      from = ends.lastIndex;
      this.#afterCr = end[0] === "\r" && from === piece.length;
    }
    // Joined when the line is whole, not searched again meanwhile: an event may be megabytes in many pieces.
    this.#line += piece.slice(from);
    return events;
  }

  /**
   * @param {string} line
   * @returns {SseEvent | undefined}
   */
  #take(line) {
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
 * By `fetch`: sees statuses and heartbeats, and sends headers.
 * @param {string} url
 * @param {Record<string, string>} headers
 * @param {typeof globalThis.fetch} fetch
 * @param {Reading} on
 * @returns {Reader}
 */
export function readByFetch(url, headers, fetch, on) {
  const stop = new AbortController();
  const tell = guarded(on);
  const read = async () => {
    const answer = await fetch(url, { headers: { accept: "text/event-stream", ...headers }, cache: "no-store", signal: stop.signal });
    if (answer.status === 204) return tell.over({ kind: "nothing", why: "there is no more to come" });
    if (!answer.ok) {
      const problem = await problemOf(answer);
      return tell.over({ kind: "problem", why: problem.detail, problem, retryAfterMs: retryAfterOf(answer) });
    }
    if (!answer.headers.get("content-type")?.startsWith("text/event-stream") || !answer.body) {
      stop.abort();
      return tell.over({ kind: "lost", why: "the answer is no stream of events" });
    }
    tell.opened();
    const [parser, decoder, body] = [new SseParser(tell.retry), new TextDecoder(), answer.body.getReader()];
    for (;;) {
      const { done, value } = await body.read();
      if (done) return tell.over({ kind: "lost", why: "the stream was cut off" });
      tell.heard();
      const { came, broken } = framesOf(parser.push(decoder.decode(value, { stream: true })));
      if (came.length > 0) tell.came(came);
      if (broken) throw broken;
    }
  };
  read().catch((error) => {
    stop.abort();
    tell.over(error instanceof SyntaxError ? { kind: "broken", why: `what came is no frame: ${error.message}` } : { kind: "lost", why: reasonOf(error) });
  });
  return { close: () => (tell.end(), stop.abort()) };
}

/**
 * The frames of events, up to one that is none.
 * @param {SseEvent[]} events
 */
function framesOf(events) {
  /** @type {Came[]} */
  const came = [];
  try {
    for (const { data, id } of events) came.push({ frame: JSON.parse(data), cursor: id ?? "" });
    return { came };
  } catch (broken) {
    return { came, broken };
  }
}

/**
 * By `EventSource`: it cannot send a header nor see a status or a heartbeat, but every browser has it. It is not left to come
 * back by itself, for what it cannot see has to be found out otherwise.
 * @param {string} url
 * @param {typeof globalThis.EventSource} EventSource
 * @param {Reading} on
 * @returns {Reader}
 */
export function readByEventSource(url, EventSource, on) {
  const tell = guarded(on);
  const source = new EventSource(url);
  const close = () => (tell.end(), source.close());
  source.onopen = () => (tell.heard(), tell.opened());
  source.onmessage = (message) => {
    let frame;
    try {
      frame = JSON.parse(message.data);
    } catch (error) {
      source.close();
      return tell.over({ kind: "broken", why: `what came is no frame: ${reasonOf(error)}` });
    }
    tell.heard();
    tell.came([{ frame, cursor: message.lastEventId }]);
  };
  source.onerror = () => {
    // Of an answer that is no stream it says no more than that it gave up.
    const isClosed = source.readyState === 2;
    source.close();
    tell.over(isClosed ? { kind: "unseen", why: "the answer was no stream" } : { kind: "lost", why: "the stream was cut off" });
  };
  return { close };
}

/**
 * The same listener, which hears nothing after `over` or `end`.
 * @param {Reading} on
 * @returns {Reading & { end: () => void }}
 */
export function guarded(on) {
  let isOver = false;
  return {
    opened: () => void (isOver || on.opened()),
    heard: () => void (isOver || on.heard()),
    came: (came) => void (isOver || on.came(came)),
    retry: (ms) => void (isOver || on.retry(ms)),
    echo: (ms) => void (isOver || on.echo(ms)),
    over: (over) => {
      if (isOver) return;
      isOver = true;
      on.over(over);
    },
    end: () => void (isOver = true),
  };
}

/** @param {unknown} error */
export function reasonOf(error) {
  if (!(error instanceof Error)) return String(error);
  // What undici says of its own is only that it failed.
  return error.cause instanceof Error && error.cause.message ? `${error.message}: ${error.cause.message}` : error.message;
}
