/** The base of runs and reporters: one numbered producer, from one process, to one run. */

import { newId, ToolCall } from "./calls.js";
import { toJson } from "./json.js";
import { Publisher, type Counters } from "./publisher.js";
import { HttpTransport, type Outcome, type Server, type Transport } from "./transport.js";
import type { Fact } from "./vocabulary.js";

const ID_BYTES_MAX = 256;

/** The destination of a producer. Without `base` all methods do nothing. */
export interface ProducerOptions extends Omit<Server, "base"> {
  base: string | undefined;
  run: string;
  /** The ids of facts that name none. */
  session?: string | undefined;
  thread?: string | undefined;
  agent?: string | undefined;
  parentSession?: string | undefined;
  /** An id that outlives this process: a restarted producer with it replaces its predecessor. Default: a random id. */
  producerId?: string | undefined;
  /**
   * The generation of the producer. A larger one starts again at number 0 and ends the older one; with the same one
   * `resume` continues. Default: the time in microseconds.
   */
  epoch?: number | undefined;
  /** The time without progress of the server after which nothing waits for it any longer, in milliseconds. */
  stallTimeoutMs?: number | undefined;
}

/** Sends facts to one run, each once and in order. */
export class Producer {
  readonly runId: string;
  protected readonly publisher: Publisher | undefined;

  constructor({ base, run, session, thread, agent, parentSession, producerId, epoch, stallTimeoutMs, token, fetch }: ProducerOptions, transport?: Transport) {
    this.runId = checkId("run", run);
    const ids = { sessionId: session, threadId: thread, agentId: agent, parentSessionId: parentSession };
    const known = Object.entries(ids).filter((id): id is [string, string] => id[1] !== undefined);
    for (const [member, id] of known) checkId(member, id);
    const id = checkId("producerId", producerId ?? newId("typescript"));
    if (!/^[\x20-\x7e]+$/.test(id)) throw new TypeError(`producerId ${JSON.stringify(id)} is not ASCII, which its HTTP header requires.`);
    if (base !== undefined) transport ??= new HttpTransport({ base: checkBase(base), token, fetch }, run, Object.fromEntries(known), id, epoch ?? nextEpoch());
    this.publisher = transport && new Publisher(transport, stallTimeoutMs);
  }

  /**
   * Asks the server how many facts it has from this `producerId` and `epoch`, and continues after them. Call it before
   * the first fact. A producer that makes the same facts again after a crash skips that many.
   */
  async resume(): Promise<number> {
    return this.publisher?.resume() ?? 0;
  }

  /** Returns a call, by the runtime's id of the call. */
  call(callId: string, toolName: string): ToolCall {
    return new ToolCall(this.publisher && ((fact) => this.report(fact)), checkId("callId", callId), toolName);
  }

  /**
   * Waits until all facts so far are durable. Throws `Unreachable` if the server makes no progress within the stall
   * timeout, `Rejected` if it rejected facts since the last call, and `Problem` if it refuses this producer.
   */
  async flush(): Promise<void> {
    await this.publisher?.flush();
  }

  /**
   * Accepts no more facts, and flushes. Throws for facts that are not durable within the stall timeout: they are lost.
   */
  async close(): Promise<void> {
    await this.publisher?.close();
  }

  /** Waits while the queue is full. A full queue takes no facts. */
  async drain(): Promise<void> {
    await this.publisher?.drain();
  }

  /** The facts so far, by outcome. */
  get counters(): Counters {
    return this.publisher?.counters ?? { published: 0, acknowledged: 0, repeated: 0, rejected: 0, dropped: 0, waiting: 0 };
  }

  /** Sends a report, which never throws. Returns whether it is on its way. */
  protected report(fact: Fact): boolean {
    return this.publisher !== undefined && this.publisher.put(toJson(fact)) === undefined;
  }

  /** Sends a fact. Throws if the queue does not take it. */
  protected send(fact: unknown, source: string): void {
    const loss = this.publisher?.put(toJson(fact), source);
    if (loss) throw loss;
  }
}

/** Reports tools of one run, beside the runtime's own facts: use `call` for each call. Reporting never fails a tool. */
export class Reporter extends Producer {}

/** The facts of a producer in memory, in order, for tests. Flush the producer before you read them. */
export class Recording implements Transport {
  readonly facts: Record<string, unknown>[] = [];
  readonly sources: string[] = [];

  async send(source: string, _number: number, facts: string[]): Promise<Outcome> {
    this.facts.push(...facts.map((fact) => JSON.parse(fact) as Record<string, unknown>));
    this.sources.push(...facts.map(() => source));
    return { kind: "acknowledged", repeated: 0 };
  }

  async expected(): Promise<number> {
    return this.facts.length;
  }

  async keepAlive(): Promise<void> {}
}

let lastEpoch = 0;

/** Returns the time in microseconds, and more than before: two producers may start at once. */
function nextEpoch(): number {
  lastEpoch = Math.max(Date.now() * 1000, lastEpoch + 1);
  return lastEpoch;
}

/** Returns the id. Throws if the server would reject it. */
function checkId(member: string, id: string): string {
  const bytes = new TextEncoder().encode(id).length;
  if (bytes < 1 || bytes > ID_BYTES_MAX) throw new TypeError(`${member} has ${bytes} bytes; an id has 1 to ${ID_BYTES_MAX}.`);
  if (/\p{Cc}/u.test(id)) throw new TypeError(`${member} ${JSON.stringify(id)} has a control character; ids are printable text.`);
  return id;
}

function checkBase(base: string): string {
  const url = URL.canParse(base) ? new URL(base) : undefined;
  // An empty address is the page's own origin.
  if (base !== "" && !(url && /^https?:$/.test(url.protocol))) throw new TypeError(`${JSON.stringify(base)} is not a server's address; use one such as http://127.0.0.1:8787.`);
  return base;
}
