/** A `ChatTransport` of the AI SDK whose streams survive broken connections. */

import { isTransient, pathSegment, Problem, problemOf } from "./client/http.js";
import { SseParser } from "./client/sse-fetch.js";
import { delay, sleep } from "./publisher.js";
import { send, type Server } from "./transport.js";

/** The server sends a byte every 15 s, so a connection that is silent for longer is dead. */
const SILENCE_MS = 45_000;
/** Attempts to reach the server without any progress. With the waits between them about half a minute. */
const ATTEMPTS_MAX = 10;

export interface ChatTransportOptions extends Server {
  /** Default: `default`. */
  agent?: string;
  /** The major version of the page's `ai` package. */
  version?: 5 | 6 | 7;
}

interface RequestOptions {
  chatId: string;
  abortSignal?: AbortSignal | undefined;
  headers?: Record<string, string> | Headers | undefined;
  body?: object | undefined;
  metadata?: unknown;
}

/** The history of a chat. `messages` is for `useChat`. */
export interface ChatHistory {
  id: string;
  messages: any[];
  activeRun: string | null;
  truncated: boolean;
}

/**
 * Connects `useChat` to an agent behind Proscenium:
 * `useChat({ id, resume: true, messages, transport: new ProsceniumChatTransport({ base, agent }) })`.
 *
 * When a connection breaks, the stream continues where it was. The chat notices nothing.
 */
export class ProsceniumChatTransport {
  /** A reconnected stream begins with the start of the message. */
  readonly resumeStreamIsReplay = true;
  #server: Server;
  #path: string;
  #version: number;

  constructor({ agent = "default", version = 7, ...server }: ChatTransportOptions) {
    this.#server = server;
    this.#path = `/ai-sdk/${pathSegment(agent)}`;
    this.#version = version;
  }

  /**
   * Sends the user's message, and streams the answer. The request may repeat: the server names the run by its message.
   */
  async sendMessages({ chatId, abortSignal, headers, body, trigger, messageId, messages }: RequestOptions & { trigger: string; messageId?: string | undefined; messages: any[] }): Promise<ReadableStream<any>> {
    const init = { method: "POST", headers: { ...plain(headers), "content-type": "application/json" }, body: JSON.stringify({ ...body, id: chatId, messages, trigger, messageId }) };
    const stream = await this.#open(this.#path, init, abortSignal);
    if (!stream) throw new Problem({ status: 204, code: "unknown", detail: "The server answered without a stream." });
    return stream;
  }

  /** Streams the whole message of the chat's active run; `null` if none is active. */
  async reconnectToStream({ chatId, abortSignal, headers }: RequestOptions): Promise<ReadableStream<any> | null> {
    return this.#open(`${this.#path}/${pathSegment(chatId)}/stream`, { headers: plain(headers) }, abortSignal);
  }

  /** Reads the history of the chat. */
  async history(chatId: string): Promise<ChatHistory> {
    const response = await this.#request(`${this.#path}/${pathSegment(chatId)}`, {});
    return (await response.json()) as ChatHistory;
  }

  /** Asks for the end of the chat's active run. `stop()` of `useChat` only closes the connection. */
  async stop(chatId: string): Promise<void> {
    await this.#request(`${this.#path}/${pathSegment(chatId)}/stop`, { method: "POST" });
  }

  async #request(path: string, init: RequestInit): Promise<Response> {
    const query = `${path.includes("?") ? "&" : "?"}version=${this.#version}`;
    const response = await send(this.#server, `${path}${query}`, init);
    if (!response.ok) throw new Problem(await problemOf(response));
    return response;
  }

  async #open(path: string, init: RequestInit, signal: AbortSignal | undefined): Promise<ReadableStream<any> | null> {
    const connection = new Connection((path, init) => this.#request(path, init), path, init, signal);
    const chunks = connection.chunks();
    // The first read tells whether the server takes the request, and whether a run is active.
    const first = await chunks.next();
    if (first.done) return null;
    let next: Promise<IteratorResult<object, void>> | undefined = Promise.resolve(first);
    return new ReadableStream({
      async pull(controller) {
        const { done, value } = await (next ?? chunks.next());
        next = undefined;
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: () => connection.close(),
    });
  }
}

type Chunk = { type: string; messageId?: string };

/** One message over as many connections as it takes. */
class Connection {
  #request: (path: string, init: RequestInit) => Promise<Response>;
  #path: string;
  #init: RequestInit;
  #closed = new AbortController();
  #cursor = "";
  /** A message is a run, and has its id. */
  #run = "";
  /** The chunks since the last cursor. If the connection breaks, the server sends them again. */
  #held: Chunk[] = [];

  constructor(request: (path: string, init: RequestInit) => Promise<Response>, path: string, init: RequestInit, signal: AbortSignal | undefined) {
    [this.#request, this.#path, this.#init] = [request, path, init];
    if (signal?.aborted) this.#closed.abort(signal.reason);
    signal?.addEventListener("abort", () => this.#closed.abort(signal.reason), { once: true });
  }

  close(): void {
    this.#closed.abort();
  }

  async *chunks(): AsyncGenerator<object, void, void> {
    for (let attempt = 0; ; attempt += 1) {
      const before = this.#cursor;
      try {
        if (yield* this.#read()) return;
      } catch (error) {
        if (this.#closed.signal.aborted || (error instanceof Problem && !isTransient(error.status))) throw error;
        if (attempt === ATTEMPTS_MAX && before === this.#cursor) throw error;
      }
      if (before !== this.#cursor) attempt = 0;
      this.#held = [];
      await sleep(delay(attempt, 0), this.#closed.signal);
    }
  }

  /** Reads one connection. Returns whether the message is complete. */
  async *#read(): AsyncGenerator<object, boolean, void> {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(new Error("The connection is silent.")), SILENCE_MS);
    const signal = AbortSignal.any([this.#closed.signal, silence.signal]);
    try {
      const response = this.#cursor
        ? await this.#request(`/v1/runs/${pathSegment(this.#run)}/stream?format=ai-sdk`, { headers: { ...plain(this.#init.headers), "last-event-id": this.#cursor }, signal })
        : await this.#request(this.#path, { ...this.#init, signal });
      if (response.status === 204 || !response.body) return true;
      const isContinued = this.#cursor !== "";
      const [parser, decoder, reader] = [new SseParser(), new TextDecoder(), response.body.getReader()];
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return false;
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(new Error("The connection is silent.")), SILENCE_MS);
        for (const { data, id } of parser.push(decoder.decode(value, { stream: true }))) {
          if (data === "[DONE]") {
            yield* this.#held.splice(0);
            return true;
          }
          const chunk = JSON.parse(data) as Chunk;
          if (chunk.type === "start" && chunk.messageId) this.#run = chunk.messageId;
          // The chat has the start of a message that continues.
          if (!(isContinued && chunk.type === "start")) this.#held.push(chunk);
          if (id === undefined) continue;
          this.#cursor = id;
          yield* this.#held.splice(0);
        }
      }
    } finally {
      clearTimeout(timer);
      // An error, or a reader that leaves early, leaves no connection behind.
      silence.abort();
    }
  }
}

/** Returns headers as a record. */
const plain = (headers: HeadersInit | undefined): Record<string, string> => Object.fromEntries(new Headers(headers));
