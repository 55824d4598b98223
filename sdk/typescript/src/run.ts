/** A run that this process reports. */

import { failureOf, newId, now, ToolCall } from "./calls.js";
import { surroundings, within } from "./context.js";
import { Producer, Recording } from "./producer.js";
import type { Fact, Phase } from "./vocabulary.js";

export type ActionKind =
  | "tool_approval"
  | "permission_grant"
  | "delegated_permission"
  | "plan_decision"
  | "teammate_plan_decision"
  | "structured_input"
  | "clarification"
  | "credential_request"
  | "artifact_review";
export type ActionOutcome = "approved" | "rejected" | "answered" | "cancelled" | "expired" | "superseded";

/** A choice that an action offers. `kind` says what it does: `allow_once`, `allow_always`, `reject_once`, `reject_always`; no label does. */
export interface ActionOption {
  optionId: string;
  label: string;
  kind?: string;
  description?: string;
  /** What the option does, where no kind says it. */
  effect?: "allow" | "reject" | "answer";
  /** How far a yes reaches, where no kind says it. */
  width?: "once" | "turn" | "session" | "always" | "unknown";
}

/** Returns the run of the surrounding `during`, in Node, Deno and Bun. */
export const currentRun = (): Run | undefined => surroundings().run;

/** A run. `during` reports its start and its end. */
export class Run extends Producer {
  #isAccepted = false;
  #hasStarted = false;
  #hasEnded = false;
  #pending = new Set<string>();

  /** Returns a run that records into memory, for tests. */
  static recording(run = "recording"): [Run, Recording] {
    const recording = new Recording();
    return [new Run({ base: undefined, run }, recording), recording];
  }

  /** Returns this run, for a run that has started before: another `run.started` would be another attempt. */
  continuing(): this {
    this.#hasStarted = true;
    return this;
  }

  /** As `Producer.resume`, for a run that only publishes facts. Its own `run.started` does not count. */
  override async resume(): Promise<number> {
    const expected = await super.resume();
    if (this.#hasStarted || expected === 0) return expected;
    this.#hasStarted = true;
    return expected - 1;
  }

  /** Publishes native facts. Throws `QueueFull` if the queue is full: await `drain()` between many facts. */
  publish(...facts: Fact[]): void {
    this.#start();
    for (const fact of facts) this.send(fact, "agentui");
  }

  /** Publishes facts of another vocabulary, whose source starts the run. `ends`: the facts also end it. */
  forward(source: string, facts: readonly object[], { ends = false } = {}): void {
    this.#hasStarted = true;
    this.#hasEnded ||= ends;
    for (const fact of facts) this.send(fact, source);
  }

  /** Returns a message of the agent, to stream its text. */
  message(messageId = newId("message")): Message {
    return new Message((fact) => this.publish(now({ ...fact, messageId })), messageId);
  }

  /** Publishes a message of the user. It accepts the run but does not start it: a forwarded source does that. */
  userMessage(text: string, messageId = newId("message")): void {
    if (!this.#hasStarted && !this.#isAccepted) this.status("accepted");
    this.send(now({ type: "text.final", messageId, payload: { role: "user", text } }), "agentui");
  }

  /** Returns a call of a tool that this process runs; use its `during`. */
  tool(toolName: string, input?: unknown, callId = newId("call")): ToolCall {
    this.#start();
    return new ToolCall(this.publisher && ((fact) => this.report(fact)), callId, toolName, surroundings().call?.callId, input);
  }

  /** Publishes a status of the run. `accepted` precedes its start. */
  status(phase: Phase, message?: string): void {
    const fact = now({ type: "run.status", phase, payload: { message } });
    if (phase !== "accepted") return this.publish(fact);
    this.#isAccepted = true;
    this.send(fact, "agentui");
  }

  /**
   * Asks a person, and returns the action's id. The run waits until `resolveAction`, also after `during`. `payload` has
   * further members: `risk`, `options`, `responseSchema`, `expiresAt`, …
   */
  requireAction(kind: ActionKind, message?: string, { actionId = newId("action"), toolCallId, ...payload }: { actionId?: string; toolCallId?: string; options?: (ActionOption | string)[] } & Record<string, unknown> = {}): string {
    this.publish(now({ type: "action.required", actionId, ...(toolCallId ? { toolCallId } : {}), payload: { kind, message, ...payload } }));
    this.#pending.add(actionId);
    return actionId;
  }

  /** Reports the outcome of an action. */
  resolveAction(actionId: string, outcome: ActionOutcome, value?: unknown): void {
    this.publish(now({ type: "action.resolved", actionId, payload: { outcome, value } }));
    this.#pending.delete(actionId);
  }

  /** Leaves the run open when `during` ends: something outside this process continues it. */
  suspend(): void {
    this.#hasEnded = true;
  }

  /** Ends the run. The end of `during` does it otherwise. */
  finish(result?: unknown, phase: Phase = "completed"): void {
    this.publish(now({ type: "run.finished", phase, payload: { result } }));
    this.#hasEnded = true;
  }

  /** Ends the run as failed. An exception that leaves `during` does it otherwise. */
  fail(message: string, code?: string): void {
    this.publish(now({ type: "run.failed", payload: { error: { code, message } } }));
    this.#hasEnded = true;
  }

  /**
   * Does the work, and closes the run. The first fact of the agent is preceded by `run.started`. The end publishes
   * `run.finished`, or `run.failed` after an exception (an `AbortError`: cancelled), and waits until everything is
   * durable. A run with an unanswered action stays open instead. Meanwhile silence does not make the run stale.
   */
  async during<R>(work: (run: this) => R | Promise<R>): Promise<R> {
    this.publisher?.keepAlive();
    let result: R;
    try {
      result = await within({ run: this }, () => work(this));
    } catch (error) {
      // The caller learns its own error, and not that the server could not take the report of it.
      try {
        if (error instanceof Error && error.name === "AbortError") this.finish(undefined, "cancelled");
        else this.fail(...failureOf(error));
        await this.close();
      } catch (reason) {
        console.error("proscenium: the failure of the run is not durable:", reason);
      }
      throw error;
    }
    if (!this.#hasEnded && this.#pending.size === 0) this.#finishQuietly();
    await this.close();
    return result;
  }

  /** A queue that takes no more makes `close` throw. */
  #finishQuietly(): void {
    this.#start();
    this.report(now({ type: "run.finished", phase: "completed" }));
  }

  #start(): void {
    if (this.#hasStarted) return;
    this.#hasStarted = true;
    this.report(now({ type: "run.started" }));
  }
}

/** A message of the agent. Close it when it is complete. */
export class Message {
  #publish: (fact: Fact) => void;
  #isReasoning = false;
  #hasText = false;

  constructor(publish: (fact: Fact) => void, readonly messageId: string) {
    this.#publish = publish;
  }

  /** Appends to the text. */
  text(text: string): void {
    this.#endReasoning();
    this.#hasText = true;
    this.#publish({ type: "text.delta", payload: { text } });
  }

  /** Appends to the reasoning. */
  reasoning(text: string): void {
    this.#isReasoning = true;
    this.#publish({ type: "reasoning.delta", payload: { text } });
  }

  /** Ends the message. Without it the end of the run does, as an interruption. */
  close(): void {
    this.#endReasoning();
    if (this.#hasText) this.#publish({ type: "text.final" });
    this.#hasText = false;
  }

  #endReasoning(): void {
    if (this.#isReasoning) this.#publish({ type: "reasoning.summary" });
    this.#isReasoning = false;
  }
}
