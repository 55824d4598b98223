/**
 * The queue of a producer, and the loop that sends it.
 *
 * Each fact has a number, and keeps it until the server has acknowledged it. After a lost answer the loop sends the
 * same facts under the same numbers again, so the server stores each once.
 */

import { Problem } from "./client/http.js";
import { toJson } from "./json.js";
import type { Outcome, Transport } from "./transport.js";

/** The most unacknowledged facts, by count and by UTF-16 code units. A single fact may be larger. */
export const QUEUE_FACTS_MAX = 16_384;
export const QUEUE_SIZE_MAX = 8 * 1024 * 1024;
/** The most facts and code units of one request. Its answer acknowledges them. */
const BODY_FACTS_MAX = 8_192;
const BODY_SIZE_MAX = 2 * 1024 * 1024;
export const STALL_TIMEOUT_MS = 30_000;
/** The server calls a silent run stale after 60 s, by default. */
export const KEEP_ALIVE_MS = 20_000;
const BACKOFF_MS = 100;
const BACKOFF_MAX_MS = 5_000;
const RETRY_AFTER_MAX_MS = 60_000;
/** The most rejected facts that an error names. */
const REJECTED_MAX = 100;

/** Counts a producer's facts by outcome. `published` is the sum of the others without `repeated`. */
export interface Counters {
  published: number;
  /** Durable at the server. */
  acknowledged: number;
  /** Acknowledged facts that the server already had, because an earlier answer was lost. */
  repeated: number;
  /** The server never accepts them; a diagnostic has their place. */
  rejected: number;
  /** Lost, because the queue was full, or the server was away for too long or refuses this producer. */
  dropped: number;
  waiting: number;
}

/** The server made no progress for too long. `waiting` facts are sent again until the producer is closed. */
export class Unreachable extends Error {
  override name = "Unreachable";

  constructor(
    readonly waiting: number,
    readonly lost: number,
    why: string,
  ) {
    super(`the server made no progress: ${why}; ${waiting} facts wait, ${lost} are lost`);
  }
}

/** The queue is full. Await `drain()` between facts. */
export class QueueFull extends Error {
  override name = "QueueFull";

  constructor(waiting: number) {
    super(`the queue is full: ${waiting} facts are not acknowledged; await drain() between facts`);
  }
}

/** A fact that the server can never accept. */
export interface RejectedFact {
  number: number;
  text: string;
  problem: Problem;
}

/** The server rejected some facts. It has all others. */
export class Rejected extends Error {
  override name = "Rejected";

  constructor(readonly facts: [RejectedFact, ...RejectedFact[]]) {
    const [{ number, text, problem }, ...others] = facts;
    const more = others.length > 0 ? `; ${others.length} more facts were rejected` : "";
    super(`fact ${number} (${text.slice(0, 200)}) was rejected: ${problem.message} (${problem.code})${more}`);
  }
}

interface Entry {
  text: string;
  source: string;
  isPlaceholder?: boolean;
}

export class Publisher {
  #transport: Transport;
  #stallTimeoutMs: number;
  #waiting: Entry[] = [];
  #inFlight: Entry[] = [];
  #size = 0;
  /** The number of the first fact that is not acknowledged. */
  #number = 0;
  #counters = { published: 0, acknowledged: 0, repeated: 0, rejected: 0, dropped: 0 };
  /** Losses that `flush` has not reported yet. */
  #rejected: RejectedFact[] = [];
  #reportedDrops = 0;
  /** When the server last settled a fact or, if later, when the queue began to fill. */
  #progressAt = Date.now();
  #failure = "it has not answered yet";
  #refusal: Problem | undefined;
  #isClosed = false;
  #isSending = false;
  /** Wakes those who wait for the server. */
  #wake = new Set<() => void>();
  #keepAlive: ReturnType<typeof setInterval> | undefined;

  constructor(transport: Transport, stallTimeoutMs = STALL_TIMEOUT_MS) {
    this.#transport = transport;
    this.#stallTimeoutMs = stallTimeoutMs;
  }

  /** Tells the server at intervals that the producer lives, until the publisher is closed. */
  keepAlive(): void {
    this.#keepAlive ??= setInterval(() => this.#isSending || void this.#transport.keepAlive(), KEEP_ALIVE_MS);
  }

  /** Asks the server which number comes next, and continues there. Must precede the first fact. */
  async resume(): Promise<number> {
    const deadline = Date.now() + this.#stallTimeoutMs;
    for (let attempt = 0; ; attempt += 1) {
      const expected = await this.#transport.expected();
      if (typeof expected === "number") {
        if (this.#counters.published > 0) throw new Error("resume() comes before the first fact: the facts after it are numbered already");
        this.#number = expected;
        return expected;
      }
      if (expected.kind === "refused") throw expected.problem;
      if (Date.now() > deadline) throw new Unreachable(0, 0, expected.kind === "retry" ? expected.why : expected.kind);
      await sleep(delay(attempt, expected.kind === "retry" ? expected.afterMs : 0));
    }
  }

  /** Adds a fact. Returns why it is lost, if it is. */
  put(text: string, source = "agentui"): Error | undefined {
    this.#counters.published += 1;
    const loss = this.#refusal ?? (this.#isClosed ? new Error("the producer is closed") : this.isFull ? new QueueFull(this.counters.waiting) : undefined);
    if (loss) {
      this.#counters.dropped += 1;
      this.#failure = loss.message;
      return loss;
    }
    if (this.#waiting.length + this.#inFlight.length === 0) this.#progressAt = Date.now();
    this.#waiting.push({ text, source });
    this.#size += text.length;
    if (!this.#isSending) {
      this.#isSending = true;
      // Facts of the same turn of the event loop share a request.
      queueMicrotask(() => void this.#send());
    }
    return undefined;
  }

  get isFull(): boolean {
    return this.#waiting.length + this.#inFlight.length >= QUEUE_FACTS_MAX || this.#size >= QUEUE_SIZE_MAX;
  }

  /** Waits while the queue is full, at most until the stall timeout. */
  async drain(): Promise<void> {
    while (this.isFull && this.#leftMs > 0) await this.#settled();
  }

  /** Waits until all facts so far are durable. Throws for losses since the last call. */
  async flush(): Promise<void> {
    const target = this.#counters.published;
    while (this.#counters.published - this.counters.waiting < target) {
      if (this.#leftMs <= 0 && this.#isSending) throw new Unreachable(this.counters.waiting, 0, this.#failure);
      await this.#settled();
    }
    if (this.#refusal) throw this.#refusal;
    const lost = this.#counters.dropped - this.#reportedDrops;
    this.#reportedDrops += lost;
    if (lost > 0) throw new Unreachable(this.counters.waiting, lost, this.#failure);
    const [first, ...others] = this.#rejected.splice(0);
    if (first) throw new Rejected([first, ...others]);
  }

  /** Accepts no more facts, and flushes. Facts that are not durable after the stall timeout are lost. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#keepAlive);
    await this.flush();
  }

  get counters(): Counters {
    const { published, acknowledged, rejected, dropped } = this.#counters;
    return { ...this.#counters, waiting: published - acknowledged - rejected - dropped };
  }

  get #leftMs(): number {
    return this.#progressAt + this.#stallTimeoutMs - Date.now();
  }

  /** Waits until the server settles something, or until the stall timeout. */
  #settled(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(wake, Math.max(this.#leftMs, 1));
      const waiting = this.#wake;
      waiting.add(wake);
      function wake(): void {
        clearTimeout(timer);
        waiting.delete(wake);
        resolve();
      }
    });
  }

  /** Sends the queue until it is empty or given up. */
  async #send(): Promise<void> {
    let [attempt, factsMax] = [0, BODY_FACTS_MAX];
    while (this.#waiting.length > 0 && !this.#refusal && !(this.#isClosed && this.#leftMs <= 0)) {
      this.#take(factsMax);
      const outcome = await this.#transport.send(this.#inFlight[0]!.source, this.#number, this.#inFlight.map(({ text }) => text));
      factsMax = outcome.kind === "body" ? Math.max(1, this.#inFlight.length >> 1) : Math.min(BODY_FACTS_MAX, factsMax * 2);
      const waitMs = this.#settle(outcome, attempt);
      attempt = waitMs === undefined ? 0 : attempt + 1;
      if (waitMs !== undefined) await sleep(waitMs);
    }
    if (this.#waiting.length > 0) {
      this.#isClosed = true;
      this.#counters.dropped += this.#waiting.filter(({ isPlaceholder }) => !isPlaceholder).length;
      this.#waiting = [];
      this.#size = 0;
    }
    this.#isSending = false;
    for (const wake of [...this.#wake]) wake();
  }

  /** Moves the first waiting facts of one source into flight, up to one body. */
  #take(factsMax: number): void {
    let [count, size] = [0, 0];
    const source = this.#waiting[0]!.source;
    for (const { text, source: its } of this.#waiting) {
      if (its !== source || count === factsMax || (count > 0 && size + text.length > BODY_SIZE_MAX)) break;
      count += 1;
      size += text.length;
    }
    this.#inFlight = this.#waiting.splice(0, count);
  }

  /** Applies an outcome to the facts in flight. Returns how long to wait before the next request. */
  #settle(outcome: Outcome, attempt: number): number | undefined {
    let retry = outcome.kind === "retry" ? outcome : undefined;
    if (outcome.kind === "acknowledged") {
      this.#counters.repeated += outcome.repeated;
      this.#acknowledge(this.#inFlight.length);
    } else if (outcome.kind === "fact") {
      this.#acknowledge(outcome.index);
      this.#reject(outcome.problem);
    } else if (outcome.kind === "body" && this.#inFlight.length === 1) {
      this.#reject(outcome.problem);
    } else if (outcome.kind === "refused") {
      console.error(`proscenium: the server refuses this producer: ${outcome.problem.message}`);
      this.#refusal = outcome.problem;
    } else if (outcome.kind === "gap" && outcome.expected < this.#number) {
      // The run was erased, or the store is in memory. The acknowledged facts are gone for good.
      console.warn(`proscenium: the server lost facts ${outcome.expected} to ${this.#number - 1}`);
      this.#number = outcome.expected;
    } else if (outcome.kind === "gap") {
      retry = { kind: "retry", why: `it expects fact ${outcome.expected} after ${this.#number}`, afterMs: 0 };
    }
    // The next request begins with the facts that are not settled.
    this.#waiting = [...this.#inFlight, ...this.#waiting];
    this.#inFlight = [];
    for (const wake of [...this.#wake]) wake();
    if (!retry) return undefined;
    if (attempt === 0) console.warn(`proscenium: facts do not reach the server, which is tried again: ${retry.why}`);
    this.#failure = retry.why;
    return delay(attempt, retry.afterMs);
  }

  #acknowledge(facts: number): void {
    for (const { text, isPlaceholder } of this.#inFlight.splice(0, facts)) {
      this.#size -= text.length;
      if (!isPlaceholder) this.#counters.acknowledged += 1;
    }
    this.#number += facts;
    this.#progressAt = Date.now();
  }

  /** Replaces the first fact in flight by a placeholder under its number, so that all others keep theirs. */
  #reject(problem: Problem): void {
    const { text, isPlaceholder } = this.#inFlight.shift()!;
    this.#size -= text.length;
    this.#progressAt = Date.now();
    if (isPlaceholder) return; // The next fact takes the number.
    console.error(`proscenium: the server rejected fact ${this.#number}: ${problem.message}`);
    if (this.#rejected.length < REJECTED_MAX) this.#rejected.push({ number: this.#number, text, problem });
    const payload = { kind: "report_refused", message: problem.detail.slice(0, 300), bytes: text.length };
    const placeholder = toJson({ type: "diagnostic.changed", audience: "internal", payload });
    this.#inFlight.unshift({ text: placeholder, source: "agentui", isPlaceholder: true });
    this.#size += placeholder.length;
    this.#counters.rejected += 1;
  }
}

/** The wait after a failed attempt. Half of it is random, so that producers do not return together. */
export function delay(attempt: number, afterMs: number): number {
  const backoff = Math.min(BACKOFF_MAX_MS, BACKOFF_MS * 2 ** Math.min(attempt, 10));
  return Math.min(afterMs, RETRY_AFTER_MAX_MS) + backoff * (0.5 + Math.random() / 2);
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const aborted = (): void => (clearTimeout(timer), reject(signal?.reason as Error));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", aborted), resolve()), ms);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}
