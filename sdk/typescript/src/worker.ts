/** The controls of an agent: claimed under leases, acknowledged, refused. */

import { isTransient, pathSegment, Problem, problemOf, retryAfterOf } from "./client/http.js";
import { newId } from "./calls.js";
import type { DecidedBy } from "./decisions.js";
import { delay, sleep } from "./publisher.js";
import { Run } from "./run.js";
import { reasonOf, send, type Server } from "./transport.js";
import type { ControlName } from "./vocabulary.js";

/** Attempts to answer a control before the error reaches the caller. */
const ANSWER_ATTEMPTS_MAX = 5;

export interface WorkerOptions extends Server {
  agent?: string;
  /** How many controls to hold at once. */
  max?: number;
  /** 1 to 600. */
  leaseSeconds?: number;
  /** How long one request waits for a control. */
  waitSeconds?: number;
  /** Ends the worker. */
  signal?: AbortSignal;
}

/** A claimed control, as the server hands it out. It may have further members. */
export interface ControlDocument {
  control: ControlName;
  controlId: string;
  lease: string;
  leaseExpiresAt: string;
  attempt: number;
  agentId?: string;
  runId?: string;
  sessionId?: string;
  threadId?: string;
  actionId?: string;
  toolCallId?: string;
  taskId?: string;
  /** The text or the data. */
  value?: unknown;
  /** Who submitted it, as the server knows it. */
  decidedBy?: DecidedBy;
  /** The server no longer has the secret in the value, so the worker refuses the control. */
  redacted?: boolean;
  /** The actions that a message supersedes: they no longer take a decision. */
  supersedes?: string[];
}

/**
 * A control that this worker holds under a lease, until `claimed.leaseExpiresAt`. Answer it with `ack` or `nack`
 * before; then the lease is over. The server hands out an unanswered control again, with `attempt` one higher. `ack`
 * says that the control was accepted, not that the work is done.
 */
export class Control {
  readonly control: ControlName;
  readonly value: unknown;
  #server: Server;

  constructor(server: Server, readonly claimed: ControlDocument) {
    this.#server = server;
    this.control = claimed.control;
    this.value = claimed.value;
  }

  /** The words of a message: the value, its `text`, or the last words of the user of an AG-UI or AI SDK client. */
  get text(): string {
    const text = (this.value as { text?: unknown } | null | undefined)?.text ?? this.value;
    if (typeof text === "string") return text;
    const { content, parts = content } = this.#userMessage;
    if (typeof parts === "string") return parts;
    return Array.isArray(parts) ? parts.map((part: { text?: unknown } | null) => (typeof part?.text === "string" ? part.text : "")).join("") : "";
  }

  /** The id of that message in the client, under which the run publishes it. */
  get messageId(): string | undefined {
    return this.#userMessage.id;
  }

  get #userMessage(): { id?: string; role?: string; content?: unknown; parts?: unknown } {
    const { messages } = (this.value ?? {}) as { messages?: { id?: string; role?: string }[] };
    return (Array.isArray(messages) && messages.findLast(({ role }) => role === "user")) || {};
  }

  /** Accepts the control. Throws a `Problem` with the code `lease_lost` if the lease is over. */
  async ack(): Promise<void> {
    await this.#answer("ack", {});
  }

  /** Refuses the control. `requeue`: it returns to the queue, for any worker of the agent. */
  async nack(reason: string, { requeue = false } = {}): Promise<void> {
    await this.#answer("nack", { reason, requeue });
  }

  /** Returns the run that this control is about, or for a new turn the run that the client named, else a new one. */
  run(runId?: string): Run {
    const { sessionId, agentId } = this.claimed;
    const { runId: named } = (this.value ?? {}) as { runId?: string };
    const run = new Run({ ...this.#server, run: runId ?? named ?? this.claimed.runId ?? newId("run"), session: sessionId, agent: agentId });
    return run.runId === this.claimed.runId && runId === undefined ? run.continuing() : run;
  }

  /**
   * Begins the run of this control, acknowledges it once the first fact is durable, and does the work. In this order a
   * client that reloads meanwhile finds the run.
   */
  async accept<R>(work: (run: Run) => R | Promise<R>, runId?: string): Promise<R> {
    return this.run(runId).during(async (run) => {
      run.status("accepted");
      await run.flush();
      await this.ack();
      return work(run);
    });
  }

  async #answer(verb: string, body: object): Promise<void> {
    const path = `/v1/controls/${pathSegment(this.claimed.controlId)}/${verb}`;
    for (let attempt = 0; ; attempt += 1) {
      try {
        await post(this.#server, path, { lease: this.claimed.lease, ...body });
        return;
      } catch (error) {
        if (isFinal(error) || attempt === ANSWER_ATTEMPTS_MAX - 1) throw error;
        await backOff(error, attempt);
      }
    }
  }
}

/**
 * Yields the controls of an agent as they come, in the order of its queue. It waits while the server is away, and
 * throws a `Problem` if the server refuses the worker.
 */
export async function* worker({ agent = "default", max = 1, leaseSeconds = 30, waitSeconds = 30, signal, ...server }: WorkerOptions): AsyncGenerator<Control, void, void> {
  const path = `/v1/agents/${pathSegment(agent)}/controls/claim?${new URLSearchParams({ wait: `${waitSeconds}`, max: `${max}`, leaseSeconds: `${leaseSeconds}` })}`;
  for (let attempt = 0; ; ) {
    let claimed: { controls: ControlDocument[] };
    try {
      claimed = await post(server, path, undefined, AbortSignal.any([AbortSignal.timeout((waitSeconds + 20) * 1000), ...(signal ? [signal] : [])]));
      attempt = 0;
    } catch (error) {
      if (signal?.aborted) return;
      if (isFinal(error)) throw error;
      await backOff(error, attempt, signal).catch(() => {});
      if (signal?.aborted) return;
      attempt += 1;
      continue;
    }
    for (const control of claimed.controls) yield new Control(server, { agentId: agent, ...control });
  }
}

class Delayed extends Problem {
  afterMs = 0;
}

async function post<R>(server: Server, path: string, body?: object, signal = AbortSignal.timeout(20_000)): Promise<R> {
  const init = body ? { headers: { "content-type": "application/json" }, body: JSON.stringify(body) } : {};
  const response = await send(server, path, { method: "POST", signal, ...init });
  if (response.status === 200) return (await response.json()) as R;
  const problem = new Delayed(await problemOf(response));
  problem.afterMs = retryAfterOf(response);
  throw problem;
}

const isFinal = (error: unknown): boolean => error instanceof Problem && !isTransient(error.status) && error.code !== "unknown";

async function backOff(error: unknown, attempt: number, signal?: AbortSignal): Promise<void> {
  if (attempt === 0) console.warn(`proscenium: the server does not answer the worker, which tries again: ${reasonOf(error)}`);
  await sleep(delay(attempt, error instanceof Delayed ? error.afterMs : 0), signal);
}
