/**
 * What all surfaces share: how one is given what it shows, and the few ways in which things are drawn.
 *
 * A surface is a custom element with its content in the light DOM. It owns no fact: it draws activities, sends controls to
 * whoever owns the fact, and keeps what is the viewer's alone (what is folded, what is scrolled). Whatever a run says becomes
 * text (`textContent`), never markup.
 */

import { keyOf } from "../client/store.js";

export { keyOf };

/** @typedef {import("../client/types.js").Activity} Activity */

/**
 * A control, as a surface asks for it; the shell adds the run where it is left out.
 * @typedef {object} Control
 * @property {string} control Seed 003's name: approve, reject, answer, edit, send, queue, steer, interrupt …
 * @property {string} [run] The run whose control it is.
 * @property {string} [session] Or the session, for a control of its own.
 * @property {string} [actionId]
 * @property {string} [toolCallId]
 * @property {string} [agentId]
 * @property {string} [taskId]
 * @property {string} [artifactId]
 * @property {string} [evidenceId]
 * @property {unknown} [value]
 */

/**
 * A control that the server has: its id, and where it is listed with what becomes of it.
 * @typedef {{ controlId: string, list: string }} Handed
 */

/**
 * What may be opened from a surface: an agent's transcript, an artifact, evidence, a session or a run by its id, a blob by its address.
 * @typedef {{ kind: "teammate" | "artifact" | "evidence" | "session" | "run" | "blob", id?: string, runId?: string, href?: string }} Target
 */

/**
 * What every surface is given.
 * @typedef {object} View
 * @property {import("../client/store.js").Store} store The activities of what is looked at.
 * @property {"user" | "dashboard" | "internal"} audience As whom one looks.
 * @property {boolean} isLive False while a past moment is shown: then nothing can be answered.
 * @property {import("../client/hydration.js").Hydration} hydration The reads by REST.
 * @property {(control: Control) => Promise<Handed>} act Hands a control to its owner; rejects with the server's words.
 * @property {(activity: Activity) => void} inspect Shows the envelopes that made it.
 * @property {(target: Target) => void} open Goes there.
 * @property {() => number} now Milliseconds since 1970; the past moment's, where one is shown.
 * @property {string | undefined} runId The run in focus: the one that is looked at, or the session's newest.
 * @property {string[]} runs Runs in the order in which they began, as far as that is known.
 * @property {string | undefined} sessionId The session that is looked at.
 * @property {number | null} at The past moment of `runId` that is shown, as a sequence; null for now.
 * @property {(moment: Moment | null) => void} travel Shows all surfaces a past moment; null for now again.
 * @property {{ hasMore: boolean, load: () => Promise<void> }} [earlier] Older history, which is read on demand.
 * @property {(path: string) => Promise<any>} read An authorised GET of a path of the server, as JSON; rejects with the server's words.
 */

/**
 * A past moment, as the scrubber made it: what was known then.
 * @typedef {{ at: number, store: import("../client/store.js").Store, time: number }} Moment `time` in milliseconds since 1970.
 */

/**
 * An element that shows some of a store's activities. The shell sets `view`, and calls `update` at most once an animation frame.
 */
export class Surface extends HTMLElement {
  /**
   * Which activities concern it.
   * @param {Activity} _activity
   * @returns {boolean}
   */
  static shows(_activity) {
    return false;
  }

  /** @type {View | undefined} */
  #view;

  /** @returns {View} What it was given; asking before it was is an error. */
  get view() {
    if (!this.#view) throw new Error(`${this.localName} has no view yet`);
    return this.#view;
  }

  /** Begins anew with another view: what was drawn is gone, and everything is drawn again. */
  set view(view) {
    this.#view = view;
    this.classList.add(this.localName.replace(/^ps-/, ""));
    this.replaceChildren();
    this.build();
    this.update(null);
  }

  /** Whether it has a view. */
  get isConnectedToView() {
    return this.#view !== undefined;
  }

  /** Draws what is there whatever the activities are. Called with each new view, before the first update. */
  build() {}

  /**
   * Draws what changed.
   * @param {Set<string> | null} _changed Keys of changed activities that it shows; null for all.
   */
  update(_changed) {}

  /**
   * The activities that it shows, by the order in which they opened.
   * @returns {Activity[]}
   */
  activities() {
    const { shows } = /** @type {typeof Surface} */ (this.constructor);
    return this.view.store.sorted(shows);
  }
}

/**
 * A custom element's class under its name; twice the same is once.
 * @param {string} name
 * @param {CustomElementConstructor} kind
 */
export function define(name, kind) {
  if (!customElements.get(name)) customElements.define(name, kind);
}

/* ── elements ── */

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {string} [className] Several, with spaces between; none, where it is empty.
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[T]}
 */
export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

/**
 * An element of a drawing.
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @returns {SVGElement}
 */
export function drawing(tag, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

/** Elements' keys. Beside the elements, so that no payload can be mistaken for one. @type {WeakMap<Element, string>} */
const keys = new WeakMap();

/**
 * Keeps a parent's children by key: known ones are changed where they are, new ones made, gone ones removed. A child that
 * stands right is not moved, for moving it would take the focus and the selection away. Children that it did not make stay
 * behind the others, where they are.
 * @template Item
 * @template {HTMLElement | SVGElement} Child
 * @param {Element} parent
 * @param {Iterable<Item>} items In the order wanted.
 * @param {(item: Item) => string} keyOf
 * @param {(item: Item) => Child} make
 * @param {(child: Child, item: Item) => void} change Called for new ones, too.
 */
export function keyed(parent, items, keyOf, make, change) {
  /** @type {Map<string, Child>} */
  const known = new Map();
  for (const child of parent.children) {
    const key = keys.get(child);
    if (key !== undefined) known.set(key, /** @type {Child} */ (child));
  }
  const wanted = [...items];
  const stays = new Set(wanted.map(keyOf));
  for (const [key, child] of known) if (!stays.has(key)) child.remove();
  let next = parent.firstElementChild;
  for (const item of wanted) {
    const key = keyOf(item);
    let child = known.get(key);
    if (!child) {
      child = make(item);
      keys.set(child, key);
      known.set(key, child);
    }
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
    change(child, item);
  }
}

/**
 * Sets a text, where it is another: setting the same one would end a selection in it.
 * @param {Element} on
 * @param {string} text
 */
export function say(on, text) {
  if (on.textContent !== text) on.textContent = text;
}

/**
 * The same drawing, which is done in the next animation frame, once, however often it is asked for until then.
 * @param {() => void} draw
 * @returns {() => void}
 */
export function onceAFrame(draw) {
  let isDue = false;
  return () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      draw();
    });
  };
}

/* ── values in words ── */

/**
 * A text that may be a list of its chunks.
 * @param {unknown} value
 * @returns {string}
 */
export function joined(value) {
  if (Array.isArray(value)) return value.map((chunk) => (typeof chunk === "string" ? chunk : words(chunk))).join("");
  return typeof value === "string" ? value : words(value);
}

/**
 * Any value as text: strings as they are, nothing as nothing, the rest as JSON.
 * @param {unknown} value
 * @returns {string}
 */
export function words(value) {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/**
 * `needs_input` → `needs input`; what is not given is `unknown`.
 * @param {unknown} name
 */
export const spoken = (name) => words(name).replaceAll("_", " ") || "unknown";

/**
 * @param {unknown} ms
 * @returns {string} `840 ms`, `5.2 s`, `3 min 20 s`, `2 h 5 min`; `unknown` for what is no number.
 */
export function duration(ms) {
  if (typeof ms !== "number" || !Number.isFinite(ms)) return "unknown";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const COUNT = new Intl.NumberFormat("en");

/**
 * @param {unknown} value
 * @returns {string} `12,400`; `unknown` for what is no number.
 */
export const count = (value) => (typeof value === "number" ? COUNT.format(value) : "unknown");

/** @typedef {"ok" | "running" | "waiting" | "warning" | "failed" | "stale" | "unknown" | "idle"} State A state of the design. */

/** @type {Record<string, State>} Statuses of seed 003 and of the protocol, by the state as which they look. */
const STATES = {
  completed: "ok", complete: "ok", done: "ok", passed: "ok", approved: "ok", answered: "ok", verified: "ok", resolved: "ok", accepted_review: "ok", ready: "ok", returned: "ok", "output-available": "ok",
  created: "ok", updated: "ok", preview_ready: "ok", version_created: "ok", diff_ready: "ok", export_completed: "ok", export_started: "running",
  accepted: "running", running: "running", retrying: "running", in_progress: "running", active: "running", streaming: "running", working: "running", started: "running", progress: "running", spawning: "running", claimed: "running",
  reviewing: "running", merging: "running", forming: "running", waking: "running", resumed: "running", promoted: "running", "input-streaming": "running", "input-available": "running", submitted: "running", assigned: "running", open: "running",
  waiting: "waiting", pending: "waiting", needs_input: "waiting", plan_ready: "waiting", input_required: "waiting", auth_required: "waiting", requested: "waiting", handoff_requested: "waiting", queued: "waiting",
  blocked: "warning", changes_requested: "warning", paused: "warning", interrupted: "warning", shutdown_requested: "warning", expired: "warning", unavailable: "warning", truncated: "warning",
  failed: "failed", rejected: "failed", killed: "failed", "output-error": "failed", error: "failed",
  stale: "stale",
  idle: "idle", sleeping: "idle", scheduled: "idle", closed: "idle", cancelled: "idle", canceled: "idle", removed: "idle", archived: "idle", deleted: "idle",
};

/**
 * As which state a status looks; what nobody knows looks unknown.
 * @param {unknown} status
 * @returns {State}
 */
export const stateOf = (status) => (typeof status === "string" && Object.hasOwn(STATES, status) ? STATES[status] : "unknown");

/**
 * Makes a badge say a status, in words and in its state's colour.
 * @param {HTMLElement} on
 * @param {unknown} status
 * @param {string} [text] Other words for it.
 */
export function mark(on, status, text = spoken(status)) {
  on.classList.add("badge");
  on.dataset.state = stateOf(status);
  on.dataset.status = words(status) || "unknown";
  say(on, text);
}

/**
 * A status as it looks. A stale item is not known to go on, so nothing about it moves.
 * @param {Record<string, any>} content
 * @returns {unknown}
 */
export const standing = (content) => (content.stale === true ? "stale" : content.status);

/**
 * A badge of a status.
 * @param {unknown} status
 * @param {string} [text]
 */
export function badge(status, text) {
  const made = element("span", "badge");
  mark(made, status, text);
  return made;
}

/* ── what every activity's element has ── */

/**
 * The small "i" that shows the envelopes of an activity.
 * @param {() => View} view
 * @param {() => Activity | undefined} activity As it is when it is asked.
 */
export function inspectButton(view, activity) {
  const button = element("button", "inspect", "i");
  button.type = "button";
  button.title = "Show the events that made this";
  button.setAttribute("aria-label", "Show the events that made this");
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    const now = activity();
    if (now) view().inspect(now);
  });
  return button;
}
