/** A tool's own reports: its progress, its activities, and its start and end. */

import { surroundings, within } from "./context.js";
import type { Audience, CallPayload, Fact } from "./vocabulary.js";

export type ProgressStatus = "pending" | "running" | "done" | "failed" | "cancelled";
export const TOOL_CALL_PROGRESS_ACTIVITY_TYPE = "tool-call-progress";
export const TOOL_CALL_PROGRESS_SCHEMA = "tool-call-progress.v1";

/** An operation of a JSON Patch (RFC 6902). */
export interface PatchOperation {
  op: "add" | "remove" | "replace" | "move" | "copy" | "test";
  path: string;
  from?: string;
  value?: unknown;
}

export interface Progress {
  message?: string | undefined;
  /** The completed fraction, 0.0 to 1.0. Absent: unknown. */
  progress?: number | undefined;
  /** Counts in the tool's own unit. */
  loaded?: number | undefined;
  total?: number | undefined;
}

/** Returns the call that runs here; without one, a call whose methods do nothing. */
export const currentCall = (): ToolCall => surroundings().call ?? new ToolCall(undefined, "", "");

/** Stamps a fact with the time of its report: it may wait long for the server. */
export const now = (fact: Fact): Fact => ({ ...fact, timestamp: new Date().toISOString() });

export const newId = (kind: string): string => {
  // `randomUUID` exists only in secure contexts, and a page may come over plain HTTP.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `${kind}-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
};

/**
 * Reports one call of a tool. No method fails the tool: a report that does not reach the server is counted, and `flush`
 * of its run or reporter says so.
 */
export class ToolCall {
  #sink: ((fact: Fact) => boolean) | undefined;
  /** The first report of a call decides its audience. */
  #hasBegun = false;
  #status: ProgressStatus | undefined;
  #hasEnded = false;

  constructor(
    sink: ((fact: Fact) => boolean) | undefined,
    readonly callId: string,
    readonly toolName: string,
    readonly parent?: string,
    readonly input?: unknown,
  ) {
    this.#sink = sink;
  }

  /** Returns a call that this call makes. */
  child(callId: string, toolName: string): ToolCall {
    return new ToolCall(this.#sink, callId, toolName, this.callId || undefined);
  }

  /** Reports progress. */
  reportProgress(status: ProgressStatus, message?: string, progress?: number, counts: Pick<Progress, "loaded" | "total"> = {}): void {
    const content = {
      schema: TOOL_CALL_PROGRESS_SCHEMA,
      node_id: this.callId,
      call_id: this.callId,
      tool_name: this.toolName,
      status,
      progress,
      ...counts,
      message,
      parent_node_id: this.parent,
      parent_call_id: this.parent,
    };
    const payload: CallPayload = { activityType: TOOL_CALL_PROGRESS_ACTIVITY_TYPE, content, replace: true };
    if (this.#put({ type: "tool.progress", audience: "user", payload })) {
      this.#hasBegun = true;
      this.#status = status;
    }
  }

  /** Reports the whole content of the tool's own activity. Plain text is valid content. */
  reportActivity(activityType: string, content: unknown): void {
    this.#reportActivity({ activityType, content, replace: true });
  }

  /** Reports a change of an activity, as a JSON Patch (RFC 6902). A single operation needs no array. */
  reportActivityDelta(activityType: string, patch: PatchOperation | PatchOperation[]): void {
    this.#reportActivity({ activityType, patch: [patch].flat() });
  }

  #reportActivity(payload: CallPayload): void {
    // A compacted log needs the history of an activity. Progress is useful only while the run is live.
    this.#put({ type: "tool.progress", audience: "user", persistence: "snapshot", payload });
  }

  /** Emits a progress event for logs and telemetry. */
  emit(message: string, percent?: number, audience: Audience = "internal"): void {
    const progress = percent === undefined ? {} : { percent, progress: Math.min(Math.max(percent / 100, 0), 1) };
    const payload: CallPayload = { toolName: this.toolName, message, ...progress };
    // With the last status, so that the event does not reopen a completed call.
    if (this.#hasBegun) this.#put({ type: "tool.progress", audience, payload: { ...payload, status: this.#status } });
    else this.#send({ type: "tool.progress", audience, refs: { toolCallId: this.callId }, payload });
  }

  /** Streams output of the call. It is internal, unless the result says otherwise. */
  output(text: string, channel?: string): void {
    this.#put({ type: "tool.output.delta", payload: { text, channel } satisfies CallPayload });
  }

  /** Reports the start of the call, if no runtime does. */
  started(input: unknown = this.input): void {
    const payload: CallPayload = { toolName: this.toolName, input, parentToolCallId: this.parent };
    this.#hasBegun = this.#put({ type: "tool.started", payload }) || this.#hasBegun;
  }

  /** Reports the result, if no runtime does. Every reader of the start sees the end; the output is for `audience`. */
  result(output?: unknown, audience: Audience = "internal"): void {
    this.#hasEnded = true;
    this.#put({ type: "tool.result", audience, payload: { toolName: this.toolName, output } satisfies CallPayload });
  }

  /** Reports the failure of the call, if no runtime does. Every reader of the start sees it. */
  failed(message: string, code?: string): void {
    this.#hasEnded = true;
    this.#put({ type: "tool.failed", payload: { toolName: this.toolName, error: { code, message } } satisfies CallPayload });
  }

  /**
   * Reports the start, does the work as the `currentCall`, reports the result or the failure, and returns the output.
   */
  async during<R>(work: (call: ToolCall) => R | Promise<R>, audience: Audience = "internal"): Promise<R> {
    if (!this.#hasBegun) this.started();
    try {
      const output = await within({ call: this }, () => work(this));
      if (!this.#hasEnded) this.result(output, audience);
      return output;
    } catch (error) {
      if (!this.#hasEnded) this.failed(...failureOf(error));
      throw error;
    }
  }

  #put(fact: Fact): boolean {
    return this.#send({ ...fact, toolCallId: this.callId });
  }

  #send(fact: Fact): boolean {
    return this.#sink?.(now(fact)) ?? false;
  }
}

/** The message and the code of a thrown value. */
export const failureOf = (error: unknown): [message: string, code?: string] =>
  error instanceof Error ? [error.message || error.name, error.name] : [String(error)];
