/** One body to the server, and the meaning of the answer for its facts. */

import { isTransient, pathSegment, Problem, problemOf, retryAfterOf } from "./client/http.js";
import type { Token } from "./client/types.js";

/** A number that no producer reaches: the server answers with the number that it expects. */
const NUMBER_MAX = Number.MAX_SAFE_INTEGER;
/** Problems that concern the address, the numbering or the right to send, and so every fact. */
const PRODUCER_CODES = ["bad_id", "bad_query", "bad_producer", "unknown_source", "too_many_producers", "too_many_subjects"];
const REQUEST_TIME_MAX_MS = 30_000;

export type Outcome =
  /** All facts are durable. The server already had `repeated` of them. */
  | { kind: "acknowledged"; repeated: number }
  /** The server lacks facts before the first one, and expects this number. */
  | { kind: "gap"; expected: number }
  /** The facts before `index` are durable, and the server never accepts that one. */
  | { kind: "fact"; index: number; problem: Problem }
  /** One fact is invalid, or the body is too large. Smaller bodies tell which. */
  | { kind: "body"; problem: Problem }
  /** The server accepts nothing from this producer. */
  | { kind: "refused"; problem: Problem }
  /** The same body may succeed later, after `afterMs` at the earliest. */
  | { kind: "retry"; why: string; afterMs: number };

export interface Transport {
  send(source: string, number: number, facts: string[]): Promise<Outcome>;
  /** Asks for the number of the next fact. */
  expected(): Promise<number | Outcome>;
  /** Tells the server that the producer lives. */
  keepAlive(): Promise<void>;
}

/** How to reach a server. */
export interface Server {
  /** The server's address, such as `http://127.0.0.1:8787`. */
  base: string;
  /** Returns the bearer token of the next request. */
  token?: Token | undefined;
  /** A replacement for the global `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
}

/** Sends to the facts of one run. */
export class HttpTransport implements Transport {
  #server: Server;
  #path: string;
  #ids: Record<string, string>;
  #producer: Record<string, string>;

  constructor(server: Server, run: string, ids: Record<string, string>, producerId: string, epoch: number) {
    this.#server = server;
    this.#path = `/v1/runs/${pathSegment(run)}/facts`;
    this.#ids = ids;
    this.#producer = { "producer-id": producerId, "producer-epoch": String(epoch) };
  }

  async send(source: string, number: number, facts: string[]): Promise<Outcome> {
    const headers = { ...this.#producer, "producer-seq": String(number), "content-type": "application/x-ndjson" };
    return this.#post(source, headers, `${facts.join("\n")}\n`, facts.length);
  }

  async expected(): Promise<number | Outcome> {
    const headers = { ...this.#producer, "producer-seq": String(NUMBER_MAX), "content-type": "application/json" };
    const outcome = await this.#post("agentui", headers, "[]", 0);
    return outcome.kind === "gap" ? outcome.expected : outcome;
  }

  async keepAlive(): Promise<void> {
    // A failure does not matter: the next fact finds out, and is sent again.
    await this.#post("agentui", { "content-type": "application/json" }, "[]", 0);
  }

  async #post(source: string, headers: Record<string, string>, body: string, facts: number): Promise<Outcome> {
    const query = new URLSearchParams({ source, ...this.#ids });
    try {
      const signal = AbortSignal.timeout(REQUEST_TIME_MAX_MS);
      return await classify(await send(this.#server, `${this.#path}?${query}`, { method: "POST", headers, body, signal }), facts);
    } catch (error) {
      return { kind: "retry", why: reasonOf(error), afterMs: 0 };
    }
  }
}

/** Sends a request with the token. Redirects are not followed: a token is for one server. */
export async function send(server: Server, path: string, init: RequestInit): Promise<Response> {
  const token = await server.token?.();
  const headers = { ...(init.headers as Record<string, string>), ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const address = `${server.base.replace(/\/+$/, "")}${path}`;
  return (server.fetch ?? globalThis.fetch)(address, { cache: "no-store", redirect: "manual", ...init, headers });
}

/**
 * Returns the meaning of the answer to a body of `facts` facts. Only an answer in the form of our server settles facts.
 * Any other comes from something between, and is retried.
 */
export async function classify(response: Response, facts: number): Promise<Outcome> {
  if (response.status === 200) {
    const text = await response.text();
    const { accepted = 0, duplicates = 0, shed = 0 } = receiptOf(text);
    if (accepted + duplicates + shed === facts) return { kind: "acknowledged", repeated: duplicates };
    return { kind: "retry", why: `the answer does not account for ${facts} facts: ${text.slice(0, 200)}`, afterMs: 0 };
  }
  const document: Record<string, unknown> & { status: number; code: string; detail: string } = { ...(await problemOf(response)) };
  const problem = new Problem(document);
  const { status, code, expected, line, retryAfter } = document;
  if (code === "producer_gap" && typeof expected === "number") return { kind: "gap", expected };
  if ((isTransient(status) || code === "unknown" || code === "run_erased") && status !== 413) {
    const afterMs = typeof retryAfter === "number" ? retryAfter * 1000 : retryAfterOf(response);
    return { kind: "retry", why: `${problem.message} (${status} ${code})`, afterMs };
  }
  if (PRODUCER_CODES.includes(code) || ![400, 413, 422].includes(status)) return { kind: "refused", problem };
  if (typeof line === "number" && line >= 1 && line <= facts) return { kind: "fact", index: line - 1, problem };
  return { kind: "body", problem };
}

function receiptOf(text: string): Record<string, number> {
  try {
    return (JSON.parse(text) as Record<string, number> | null) ?? {};
  } catch {
    return { accepted: -1 };
  }
}

/** The cause of a failed `fetch`, whose own message says only that it failed. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error && error.cause.message ? `${error.message}: ${error.cause.message}` : error.message;
}
