/**
 * What a run's events add up to: messages, tools, actions, and how the run stands.
 *
 * Knows no page: `take` changes the fold and says which items changed; whoever shows them reads `items`. Text only grows at
 * its end, except where `rewrites` says that it was replaced.
 */

/**
 * @typedef {Record<string, any>} Event An envelope.
 *
 * @typedef {object} Speech Streamed text: of a message, or of reasoning or a plan.
 * @property {"speech"} kind
 * @property {"text" | "reasoning" | "plan"} channel
 * @property {string} message
 * @property {string} part
 * @property {string} role
 * @property {string} agent
 * @property {string} text
 * @property {number} rewrites
 * @property {"streaming" | "complete" | "interrupted"} status
 *
 * @typedef {object} Tool
 * @property {"tool"} kind
 * @property {string} name
 * @property {boolean} nested
 * @property {string} status
 * @property {number | null} progress
 * @property {string} message
 * @property {string} input
 * @property {string} output
 *
 * @typedef {object} Action
 * @property {"action"} kind
 * @property {string} what
 * @property {string} message
 * @property {string} risk
 * @property {string} status
 *
 * @typedef {object} Note
 * @property {"note"} kind
 * @property {string} text
 *
 * @typedef {Speech | Tool | Action | Note} Item
 */

/** What is shown of one text or body, in characters; the rest is in the log. */
const TEXT_CHARS_MAX = 200_000;
const BODY_CHARS_MAX = 4000;
/** Items of a run that are kept; beyond that the oldest go. */
const ITEMS_MAX = 300;

/** Statuses in which a tool is at work. */
const WORKING = ["started", "pending", "running"];

export class Fold {
  constructor() {
    /** @type {Map<string, Item>} In the order in which they first appeared. */
    this.items = new Map();
    /** How the run stands. */
    this.status = "unknown";
    /** Items that were let go. */
    this.dropped = 0;
    /** @type {Set<string>} */
    this.changed = new Set();
  }

  /** The keys of the items that changed since the last call. Those that `items` lacks are gone. */
  takeChanged() {
    const changed = this.changed;
    this.changed = new Set();
    return changed;
  }

  /**
   * Adds the next event.
   * @param {Event} event
   */
  take(event) {
    const payload = event.payload ?? {};
    switch (event.type) {
      case "text.delta": this.#chunk(event, payload, "text"); break;
      case "reasoning.delta": this.#chunk(event, payload, "reasoning"); break;
      case "plan.delta": this.#chunk(event, payload, "plan"); break;
      case "text.final": this.#seal(event, payload, "text"); break;
      case "reasoning.summary": this.#seal(event, payload, "reasoning"); break;
      case "plan.final": this.#seal(event, payload, "plan"); break;
      case "messages.snapshot": this.#messages(event, payload); break;
      case "tool.started":
      case "tool.args":
      case "tool.progress":
      case "tool.output.delta":
      case "tool.result":
      case "tool.failed": this.#tool(event, payload); break;
      case "action.required":
        this.status = "waiting";
        this.#put(`action:${event.actionId}`, { kind: "action", what: text(payload.kind), message: text(payload.message), risk: text(payload.risk), status: "pending" });
        break;
      case "action.resolved": this.#resolve(event, payload); break;
      case "run.started": this.status = "running"; break;
      case "run.status":
        if (payload.step === undefined) this.status = text(payload.status) || (event.phase === "waiting" ? "waiting" : "running");
        break;
      case "run.finished":
      case "run.failed": this.#end(event, payload); break;
      case "agent.spawned":
      case "agent.completed":
      case "agent.handoff":
      case "worker.notification":
        this.#note(event, [event.type, text(payload.agentName) || event.agentId, text(payload.summary)].filter(Boolean).join(" · "));
        break;
      default: break;
    }
  }

  /**
   * @param {string} key
   * @param {Item} item
   */
  #put(key, item) {
    this.items.set(key, item);
    this.changed.add(key);
    if (this.items.size > ITEMS_MAX) {
      const [oldest] = this.items.keys();
      this.items.delete(oldest);
      this.changed.add(oldest);
      this.dropped += 1;
    }
  }

  /**
   * @param {Event} event
   * @param {string} words
   */
  #note(event, words) {
    this.#put(`note:${event.sequence}`, { kind: "note", text: words });
  }

  /**
   * @param {Event} event
   * @param {Record<string, any>} payload
   * @param {Speech["channel"]} channel
   * @returns {Speech}
   */
  #speech(event, payload, channel) {
    const key = `${channel}:${event.messageId}/${event.partId ?? ""}`;
    const known = this.items.get(key);
    if (known?.kind === "speech") return known;
    /** @type {Speech} */
    const speech = {
      kind: "speech", channel, message: text(event.messageId), part: text(event.partId),
      role: text(payload.role) || "assistant", agent: text(event.agentId), text: "", rewrites: 0, status: "streaming",
    };
    this.#put(key, speech);
    return speech;
  }

  /**
   * @param {Event} event
   * @param {Record<string, any>} payload
   * @param {Speech["channel"]} channel
   */
  #chunk(event, payload, channel) {
    const speech = this.#speech(event, payload, channel);
    if (speech.text.length < TEXT_CHARS_MAX) speech.text += text(payload.text);
    this.changed.add(keyOf(speech));
  }

  /**
   * The end of a part, or of all parts of a message. It reconciles what was streamed and never adds it twice.
   * @param {Event} event
   * @param {Record<string, any>} payload
   * @param {Speech["channel"]} channel
   */
  #seal(event, payload, channel) {
    const of = this.#speeches((speech) => speech.channel === channel && speech.message === event.messageId && (!event.partId || speech.part === event.partId));
    const whole = text(payload.text);
    if (whole && of.length === 0) of.push(this.#speech(event, payload, channel));
    if (whole && of.map((speech) => speech.text).join("") !== whole) {
      of.forEach((speech, at) => rewrite(speech, at === of.length - 1 ? whole : ""));
    }
    for (const speech of of) {
      speech.status = "complete";
      this.changed.add(keyOf(speech));
    }
  }

  /** @param {(speech: Speech) => boolean} wanted */
  #speeches(wanted) {
    return [...this.items.values()].filter((item) => item.kind === "speech").filter(wanted);
  }

  /**
   * @param {Event} event
   * @param {Record<string, any>} payload
   */
  #messages(event, payload) {
    const isRepair = payload.mode === "repair";
    for (const message of payload.messages ?? []) {
      const known = this.#speeches((speech) => speech.message === message.messageId);
      if (!isRepair && known.length > 0) continue;
      // Retracted parts are emptied and closed; what the repair holds is what the message is now.
      for (const speech of known) {
        rewrite(speech, "");
        speech.status = "complete";
        this.changed.add(keyOf(speech));
      }
      for (const part of message.parts ?? []) {
        const channel = part.kind === "reasoning" || part.kind === "plan" ? part.kind : "text";
        const speech = this.#speech({ messageId: message.messageId, partId: part.partId, agentId: message.agentId }, message, channel);
        rewrite(speech, joined(part.text));
        speech.status = "complete";
        this.changed.add(keyOf(speech));
      }
    }
    if (isRepair) this.#note(event, `What was streamed of a message is void${payload.reason ? `: ${text(payload.reason)}` : ""}`);
  }

  /**
   * @param {Event} event
   * @param {Record<string, any>} payload
   */
  #tool(event, payload) {
    const key = `tool:${event.toolCallId}`;
    let tool = this.items.get(key);
    if (tool?.kind !== "tool") {
      tool = { kind: "tool", name: text(event.toolCallId), nested: false, status: "started", progress: null, message: "", input: "", output: "" };
      this.#put(key, tool);
    }
    this.changed.add(key);
    if (payload.toolName) tool.name = text(payload.toolName);
    if (payload.parent_call_id) tool.nested = true;
    const isOpen = WORKING.includes(tool.status);
    switch (event.type) {
      case "tool.args":
        tool.input = payload.input === undefined ? grown(tool.input, payload.inputText) : brief(payload.input);
        break;
      case "tool.output.delta": tool.output = grown(tool.output, payload.text); break;
      case "tool.progress":
        if (payload.activityType) {
          tool.output = `${payload.activityType}: ${brief(payload.content ?? payload.patch)}`;
          break;
        }
        // Late progress of an ended call updates its message only.
        if (isOpen && payload.status) tool.status = text(payload.status);
        if (isOpen && typeof payload.progress === "number") tool.progress = Math.min(1, Math.max(0, payload.progress));
        if (payload.message) tool.message = text(payload.message);
        break;
      case "tool.result":
        tool.status = "done";
        tool.output = payload.withheld ? "(not for this audience)" : brief(payload.output ?? payload.structured ?? tool.output);
        break;
      case "tool.failed":
        tool.status = payload.error?.code === "cancelled" ? "cancelled" : "failed";
        tool.message = [payload.error?.code, payload.error?.message].filter(Boolean).map(text).join(": ");
        break;
      default: break;
    }
  }

  /**
   * @param {Event} event
   * @param {Record<string, any>} payload
   */
  #resolve(event, payload) {
    const key = `action:${event.actionId}`;
    const action = this.items.get(key);
    if (action?.kind === "action") {
      action.status = text(payload.outcome) || "resolved";
      this.changed.add(key);
    }
    const waits = [...this.items.values()].some((item) => item.kind === "action" && item.status === "pending");
    if (!waits) this.status = "running";
  }

  /**
   * The run's end closes whatever is still open: nobody is left with a spinner that nothing will stop.
   * @param {Event} event
   * @param {Record<string, any>} payload
   */
  #end(event, payload) {
    this.status = event.type === "run.failed" ? "failed" : text(payload.status) || text(event.phase) || "completed";
    if (payload.error?.message) this.#note(event, `The run failed: ${text(payload.error.message)}`);
    for (const [key, item] of this.items) {
      if (item.kind === "tool" && WORKING.includes(item.status)) item.status = "cancelled";
      else if (item.kind === "speech" && item.status === "streaming") item.status = "interrupted";
      else if (item.kind === "action" && item.status === "pending") item.status = "interrupted";
      else continue;
      this.changed.add(key);
    }
  }
}

/** @param {Speech} speech */
export const keyOf = (speech) => `${speech.channel}:${speech.message}/${speech.part}`;

/**
 * @param {Speech} speech
 * @param {string} whole
 */
function rewrite(speech, whole) {
  if (speech.text === whole) return;
  speech.text = whole.slice(0, TEXT_CHARS_MAX);
  speech.rewrites += 1;
}

/** @param {unknown} value */
const text = (value) => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value));

/** @param {unknown} value Text that may be an array of its chunks. */
const joined = (value) => (Array.isArray(value) ? value.map(text).join("") : text(value));

/** @param {unknown} value */
const brief = (value) => text(value).slice(0, BODY_CHARS_MAX);

/**
 * @param {string} body
 * @param {unknown} chunk
 */
const grown = (body, chunk) => (body.length < BODY_CHARS_MAX ? body + text(chunk) : body);

/**
 * One line that says what an event is about.
 * @param {Event} event
 */
export function caption(event) {
  const payload = event.payload ?? {};
  if (payload.withheld) return "(withheld)";
  const words = payload.error?.message ?? payload.text ?? payload.message ?? payload.inputText ?? payload.status ?? payload.step ?? payload.toolName
    ?? payload.outcome ?? (Object.keys(payload).length > 0 ? payload : "");
  const activity = payload.activityType ? `${payload.activityType} ${text(payload.content ?? payload.patch)}` : undefined;
  const percent = typeof payload.progress === "number" ? `${Math.round(payload.progress * 100)}% ` : "";
  return (percent + text(activity ?? words)).slice(0, 160);
}
