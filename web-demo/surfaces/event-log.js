/**
 * The envelopes of a session or a run, in commit order: older ones by page, new ones live.
 *
 * A row keeps its envelope as JSON text: a hundred thousand of them then take tens of megabytes, and text is what a
 * search reads and an export writes.
 */

import { isMadeBy, typesOf } from "../tools/made-by.js";
import { parseTime } from "../ui/format.js";
import { toText } from "./base.js";

/** @typedef {import("../client/types.js").Envelope} Envelope */
/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").View} View */

/**
 * An envelope as a row.
 * @typedef {object} Row
 * @property {string} key Unique in its session: `<run>:<sequence>`.
 * @property {string} run Empty for the session's own log.
 * @property {number} sequence
 * @property {number} time Milliseconds since 1970, by the server's clock; NaN if unknown.
 * @property {string} type
 * @property {string} owner
 * @property {string} audience
 * @property {string} agent
 * @property {string} subject What the envelope is about: consecutive envelopes of one subject and type belong together.
 * @property {string} summary
 * @property {boolean} hasTitle Whether the summary names what the envelope is about.
 * @property {{ activityType: string, activityId: string } | undefined} item What the envelope is about, if it has an id of its own.
 * @property {boolean} isWithheld Whether this audience sees only a part of it.
 * @property {number} size Of the JSON text, in bytes.
 * @property {string} json
 * @property {string} cursor Its place in commit order; empty if unknown.
 */

/** Envelopes of one request. A larger page would block the page for longer than a frame. */
const PAGE_EVENTS = 500;
/** Envelopes that are loaded without a request of the viewer. */
const LOADED_AT_FIRST = 10_000;
/** The number of envelopes searched for an activity before a click continues. */
const SCANNED_MAX = 5000;
/** The maximum length of a summary, in characters. */
const SUMMARY_CHARS_MAX = 240;

const encoder = new TextEncoder();

/** Members of a payload that summarise it, best first. */
const TITLES = ["title", "toolName", "tool_name", "agentName", "teamName", "message", "summary", "headline", "name", "text", "delta", "reason", "kind", "verdict"];
const SUBJECTS = /** @type {const} */ (["toolCallId", "messageId", "actionId", "artifactId", "evidenceId", "taskId", "agentId"]);

/** The activities of ids, most specific first. @type {[member: "toolCallId" | "actionId" | "artifactId" | "evidenceId" | "taskId" | "agentId", activityType: string][]} */
const ITEMS = [["toolCallId", "tool-call-progress"], ["actionId", "action"], ["artifactId", "artifact"], ["evidenceId", "evidence"], ["taskId", "task"], ["agentId", "agent"]];
/** Types of envelopes about an item: those of a message or a run have ids of other items, too. */
const ITEM_TYPES = /^(tool|action|control|artifact|evidence|task|agent|worker)\./;

/**
 * Summarises an envelope by what its source said.
 * @param {Envelope} event
 */
function summaryOf({ payload = {} }) {
  const title = TITLES.map((name) => payload[name]).find((value) => typeof value === "string" && value !== "");
  const status = [payload.status, payload.state, payload.decision].find((value) => typeof value === "string");
  const version = payload.version === undefined ? undefined : `v${toText(payload.version)}`;
  return { hasTitle: title !== undefined, summary: [[version, title].filter(Boolean).join(" "), status].filter(Boolean).join(" · ").replace(/\s+/g, " ").slice(0, SUMMARY_CHARS_MAX) };
}

/**
 * @param {Envelope} event
 * @returns {Row["item"]}
 */
function itemOf(event) {
  const found = ITEM_TYPES.test(event.type) ? ITEMS.find(([member]) => event[member] !== undefined) : undefined;
  return found && { activityType: found[1], activityId: toText(event[found[0]]) };
}

/**
 * @param {Envelope} event
 * @param {string} cursor
 * @returns {Row}
 */
export function rowOf(event, cursor = "") {
  const json = JSON.stringify(event);
  const run = toText(event.runId);
  const id = SUBJECTS.map((name) => event[name]).find(Boolean) ?? "";
  return {
    key: `${run}:${event.sequence}`, run, sequence: event.sequence, time: parseTime(event.receivedAt ?? event.timestamp),
    type: event.type, owner: toText(event.owner), audience: toText(event.audience), agent: toText(event.agentId), subject: `${run} ${event.type} ${id} ${toText(event.partId)}`,
    ...summaryOf(event), item: itemOf(event), isWithheld: event.payload?.withheld === true, size: encoder.encode(json).length, json, cursor,
  };
}

export class EventLog {
  /**
   * @param {View} view
   * @param {Activity | undefined} activity Only the envelopes of this activity; of all if it is left out.
   * @param {(added: { before: Row[], after: Row[] }) => void} onChange Called with new rows, and when the state changes.
   */
  constructor(view, activity, onChange) {
    this.#view = view;
    this.#onChange = onChange;
    this.activity = activity;
    this.isAvailable = activity === undefined || activity.runId !== "";
    this.#scanned = activity ? activity.opened - 1 : 0;
  }

  #view;
  #onChange;
  #abort = new AbortController();
  /** The rows, in commit order. @type {Row[]} */
  rows = [];
  /** Whether requests are on their way. */
  isLoading = false;
  /** Why the last request failed; empty if it did not. */
  problem = "";
  /** Whether compaction has removed envelopes. */
  isCompacted = false;
  /** Whether new envelopes arrive live. */
  isLive = false;
  /** Whether everything older is loaded. */
  isWhole = false;
  /** Where the next older page ends. @type {string | number | undefined} */
  #before;
  /** For an activity: the sequence after which its log is still to be searched. @type {number | string | null} */
  #scanned;
  #stop = () => {};
  #keys = new Set();

  close() {
    this.#abort.abort();
    this.#stop();
  }

  /** Loads the newest envelopes, and follows the log. */
  async open() {
    if (!this.isAvailable) return this.#notify();
    await this.#whileLoading(async () => {
      if (this.activity) return this.#scan();
      // Only the stream knows the position without reading the whole log, and a log without envelopes has none yet.
      const position = this.#view.position?.() ?? Promise.resolve("");
      this.isWhole = (await this.#read({ limit: 1 })).events.length === 0;
      if (this.isWhole) return void position.then((cursor) => this.#follow(cursor), () => {});
      const cursor = await position;
      this.#follow(cursor);
      this.#before = this.#view.sessionId ? cursor : Number.MAX_SAFE_INTEGER;
      while (!this.isWhole && this.rows.length < LOADED_AT_FIRST) await this.#loadOlder();
    });
  }

  /** Loads older envelopes, or searches further for those of the activity. @param {number} [count] */
  async loadMore(count = PAGE_EVENTS) {
    if (this.isLoading || this.isWhole) return;
    await this.#whileLoading(async () => {
      if (this.activity) return this.#scan();
      const enough = this.rows.length + count;
      while (!this.isWhole && this.rows.length < enough) await this.#loadOlder();
    });
  }

  /** @param {() => Promise<void>} work */
  async #whileLoading(work) {
    this.isLoading = true;
    this.problem = "";
    this.#notify();
    try {
      await work();
    } catch (error) {
      if (this.#abort.signal.aborted) return;
      this.problem = error instanceof Error ? error.message : String(error);
    }
    this.isLoading = false;
    this.#notify();
  }

  /**
   * @param {{ before?: string | number, limit: number }} range
   * @returns {Promise<{ events: Envelope[], cursors?: string[], nextCursor: string | null, holes?: [number, number][] }>}
   */
  #read(range) {
    const { sessionId, runId, hydration, audience } = this.#view;
    const call = { ...range, audience, signal: this.#abort.signal };
    return sessionId ? hydration.sessionEvents(sessionId, call) : hydration.events(runId ?? "", call);
  }

  async #loadOlder() {
    const page = await this.#read({ before: this.#before, limit: PAGE_EVENTS });
    this.#before = page.nextCursor ?? undefined;
    this.isWhole = page.nextCursor === null;
    this.isCompacted ||= Boolean(page.holes?.length);
    this.#add(page.events.map((event, at) => rowOf(event, page.cursors?.[at])), "before");
  }

  /**
   * Searches the log of the activity for its envelopes, from the one that opened it.
   */
  async #scan() {
    const [activity, { hydration, audience, at, sessionId }, { signal }] = [/** @type {Activity} */ (this.activity), this.#view, this.#abort];
    const type = typesOf(activity);
    const range = at === null || sessionId !== undefined ? {} : { before: at + 1 };
    for (let scanned = 0; this.#scanned !== null && scanned < SCANNED_MAX;) {
      const page = await hydration.events(activity.runId, { after: this.#scanned, ...range, limit: PAGE_EVENTS, audience, signal, ...(type.length > 0 ? { type } : {}) });
      scanned += Math.max(1, page.events.length);
      this.isCompacted ||= Boolean(page.holes?.length);
      this.#add(page.events.filter((event) => isMadeBy(activity, event)).map((event) => rowOf(event)), "after");
      this.#scanned = page.nextCursor;
    }
    this.isWhole = this.#scanned === null;
    if (!this.isWhole || signal.aborted) return;
    // The last change may come from an envelope of another subject: the end of a run closes open activities.
    const { events } = await hydration.events(activity.runId, { after: activity.sequence - 1, before: activity.sequence + 1, audience, signal });
    this.#add(events.map((event) => rowOf(event)), "after");
  }

  /**
   * Follows the log from a position.
   * @param {string} after
   */
  #follow(after) {
    if (!this.#view.isLive || !this.#view.follow || this.#abort.signal.aborted) return;
    this.isLive = true;
    this.#stop = this.#view.follow(after, (frame, cursor) => {
      if (frame.frame === "Event") this.#add([rowOf(frame.event, cursor)], "after");
    });
  }

  /**
   * @param {Row[]} rows
   * @param {"before" | "after"} where
   */
  #add(rows, where) {
    if (this.#abort.signal.aborted) return;
    // A request and the stream may overlap.
    const added = rows.filter(({ key }) => !this.#keys.has(key));
    if (added.length === 0) return;
    for (const { key } of added) this.#keys.add(key);
    if (where === "before") this.rows = [...added, ...this.rows];
    else this.rows.push(...added);
    this.#onChange(where === "before" ? { before: added, after: [] } : { before: [], after: added });
  }

  #notify() {
    if (!this.#abort.signal.aborted) this.#onChange({ before: [], after: [] });
  }
}
