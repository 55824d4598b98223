/**
 * The base class of surfaces, and helpers for elements and texts.
 *
 * A surface is a custom element with its content in the light DOM. It owns no facts: it draws activities, sends
 * controls to the runtime that owns them, and keeps only the viewer's state (expanded, scrolled). The text of a run
 * becomes `textContent`, never markup.
 */

import { keyOf } from "../client/store.js";
import { nothing, render } from "../vendor/lit.js";

export { keyOf };

/** @typedef {import("../client/types.js").Activity} Activity */

/**
 * A control. The shell adds the focused run if the control names no target.
 * @typedef {object} Control
 * @property {string} control A control of seed 003: approve, reject, answer, edit, send, queue, steer, interrupt …
 * @property {string} [run] The target run.
 * @property {string} [session] The target session, for a control of the session.
 * @property {string} [actionId]
 * @property {string} [toolCallId]
 * @property {string} [agentId]
 * @property {string} [taskId]
 * @property {string} [artifactId]
 * @property {string} [evidenceId]
 * @property {unknown} [value]
 */

/**
 * A control that the server has recorded: its id, and the path of the list with its state.
 * @typedef {{ controlId: string, list: string }} SubmittedControl
 */

/**
 * A target of navigation: an agent's transcript, an artifact, evidence, a session or a run by id, an event
 * (`<run>:<sequence>`), a decision of the conversation, or a blob by path.
 * @typedef {{ kind: "teammate" | "artifact" | "evidence" | "session" | "run" | "event" | "action" | "blob", id?: string, runId?: string, href?: string }} Target
 */

/**
 * The data and actions that a surface gets.
 * @typedef {object} View
 * @property {import("../client/store.js").Store} store The activities on display.
 * @property {"user" | "dashboard" | "internal"} audience The viewer's audience.
 * @property {boolean} isLive False for a past moment, at which no control is possible.
 * @property {import("../client/hydration.js").Hydration} hydration REST reads.
 * @property {() => Promise<import("../client/hydration.js").Hydration>} reads The same, where it loads only when needed.
 * @property {(control: Control) => Promise<SubmittedControl>} act Submits a control. Rejects with the server's problem.
 * @property {(controlId: string) => Promise<void>} withdraw Withdraws a control that no runtime has claimed.
 * @property {(file: File) => Promise<import("../client/controls.js").AttachedFile>} [attach] Adds a file to the open session. Rejects with the server's problem.
 * @property {import("../client/http.js").Server} [server] The server, of a live view.
 * @property {(name: string) => Promise<unknown>} [upgrade] Loads the module of a lazy element, where the page has such.
 * @property {import("../branches.js").Tree} [tree] The tree of the open session, once that is known.
 * @property {(activity: Activity) => void} inspect Shows the envelopes of an activity.
 * @property {(target: Target) => void} open Opens the target.
 * @property {() => number} now Milliseconds since 1970; of the past moment if one is shown.
 * @property {string | undefined} runId The focused run: the open one, or the session's newest.
 * @property {string[]} runs Runs by start time, as far as that is known.
 * @property {string | undefined} sessionId The open session.
 * @property {number | null} at The past moment on display: the sum of the last sequences of all logs; null for live.
 * @property {(moment: Moment | null) => void} travel Shows a past moment on all surfaces; null for live.
 * @property {{ hasMore: boolean, load: () => Promise<void> }} [earlier] Older history, loaded on demand.
 * @property {(path: string) => Promise<any>} read An authorized GET of JSON. Rejects with the server's problem.
 * @property {() => Promise<string>} [position] The cursor that the stream of the session or run has reached.
 * @property {(after: string, listener: (frame: import("../client/types.js").Frame, cursor: string) => void) => () => void} [follow]
 * Follows the envelopes of the session or run from a cursor. Returns the function that stops.
 */

/** What a card needs: an activity needs no history. @typedef {Omit<View, "hydration">} CardView */

/**
 * A past moment of the session or run. `at`: the sum of the last sequences of all logs; for one run its sequence.
 * @typedef {{ at: number, store: import("../client/store.js").Store, time: number }} Moment `time` in milliseconds since 1970.
 */

/**
 * An element that shows activities of a store. The feeder sets `view` and calls `update` at most once per animation
 * frame.
 */
export class Surface extends HTMLElement {
  /**
   * Whether the surface shows this activity.
   * @param {Activity} _activity
   * @returns {boolean}
   */
  static shows(_activity) {
    return false;
  }

  /** @type {View | undefined} */
  #view;

  /** @returns {View} The view. Throws before it is set. */
  get view() {
    if (!this.#view) throw new Error(`${this.localName} has no view yet`);
    return this.#view;
  }

  /** Sets another view and draws everything again. */
  set view(view) {
    this.#view = view;
    this.classList.add(surfaceName(this));
    this.replaceChildren();
    // Without its children, a rendered template is gone too: lit-html keeps its place in this member.
    Reflect.deleteProperty(this, "_$litPart$");
    this.build();
    this.update(null);
  }

  /** Whether it has a view. */
  get isConnectedToView() {
    return this.#view !== undefined;
  }

  /** Draws the static parts. Called with each new view, before the first update. */
  build() {}

  /**
   * Draws the changes.
   * @param {Set<string> | null} _changed Keys of changed activities that the surface shows; null for all.
   */
  update(_changed) {}

  /**
   * Returns the activities that the surface shows, by `opened`.
   * @returns {Activity[]}
   */
  activities() {
    const { shows } = /** @type {typeof Surface} */ (this.constructor);
    return this.view.store.sorted(shows);
  }
}

/** A surface whose content is a template: each update renders it, and lit-html changes what differs. */
export class TemplateSurface extends Surface {
  /** Returns the content for the current view. @returns {unknown} */
  template() {
    return nothing;
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    render(this.template(), this);
  }
}

/**
 * The name of a surface, which its styles have as a class. On a page of others, “ps-inbox” is the element around the
 * surface “ps-inbox-view”.
 * @param {Element} surface
 */
export const surfaceName = ({ localName }) => localName.replace(/^ps-|-view$/g, "");

/**
 * Registers a custom element unless its name is registered.
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
 * @param {string} [className] Class names, separated by spaces.
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[T]}
 */
export function element(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}

/**
 * Creates an SVG element.
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @returns {SVGElement}
 */
export function svgElement(tag, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  return node;
}

/** The keys of children. A map beside the elements, so that no payload can pose as a key. @type {WeakMap<Element, string>} */
const childKeys = new WeakMap();

/**
 * Reconciles a parent's children by key: updates known ones, creates new ones, removes the others. A child in the right
 * position is not moved, since a move would lose focus and selection. Children without a key stay behind the others.
 * @template Item
 * @template {HTMLElement | SVGElement} Child
 * @param {Element} parent
 * @param {Iterable<Item>} items In display order.
 * @param {(item: Item) => string} keyOf
 * @param {(item: Item) => Child} make
 * @param {(child: Child, item: Item) => void} change Called for new children, too.
 */
export function updateChildren(parent, items, keyOf, make, change) {
  /** @type {Map<string, Child>} */
  const existing = new Map();
  for (const child of parent.children) {
    const key = childKeys.get(child);
    if (key !== undefined) existing.set(key, /** @type {Child} */ (child));
  }
  const wanted = [...items];
  const wantedKeys = new Set(wanted.map(keyOf));
  for (const [key, child] of existing) if (!wantedKeys.has(key)) child.remove();
  let next = parent.firstElementChild;
  for (const item of wanted) {
    const key = keyOf(item);
    let child = existing.get(key);
    if (!child) {
      child = make(item);
      childKeys.set(child, key);
      existing.set(key, child);
    }
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
    change(child, item);
  }
}

/**
 * The focused element in the tree of a node: a shadow root has one of its own.
 * @param {Node} node
 */
export const focusedBeside = (node) => /** @type {Document | ShadowRoot} */ (node.getRootNode()).activeElement;

/**
 * Sets an element's text if it differs: setting the same text would clear a selection in it.
 * @param {Element} on
 * @param {string} text
 */
export function setText(on, text) {
  if (on.textContent !== text) on.textContent = text;
}

/**
 * Returns a function that schedules `draw` for the next animation frame, once per frame.
 * @param {() => void} draw
 * @returns {() => void}
 */
export function oncePerFrame(draw) {
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

/* ── formatting ── */

/**
 * Joins a text that may be a list of chunks.
 * @param {unknown} value
 * @returns {string}
 */
export function joinText(value) {
  if (Array.isArray(value)) return value.map((chunk) => (typeof chunk === "string" ? chunk : toText(chunk))).join("");
  return typeof value === "string" ? value : toText(value);
}

/**
 * Formats any value as text: strings unchanged, null and undefined as the empty string, the rest as JSON.
 * @param {unknown} value
 * @returns {string}
 */
export function toText(value) {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/**
 * Formats a name: `needs_input` → `needs input`; a missing one → `unknown`.
 * @param {unknown} name
 */
export const humanize = (name) => toText(name).replaceAll("_", " ") || "unknown";

/**
 * @param {unknown} ms
 * @returns {string} `840 ms`, `5.2 s`, `3 min 20 s`, `2 h 5 min`; `unknown` if it is not a number.
 */
export function formatDuration(ms) {
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
 * @returns {string} `12,400`; `unknown` if it is not a number.
 */
export const formatCount = (value) => (typeof value === "number" ? COUNT.format(value) : "unknown");

/** @typedef {"ok" | "running" | "waiting" | "warning" | "failed" | "stale" | "unknown" | "idle"} State A visual state; each has a color. */

/** @type {Record<string, State>} The visual states of the statuses of seed 003 and of the protocol. */
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
 * Returns the visual state of a status; `unknown` for an unknown status.
 * @param {unknown} status
 * @returns {State}
 */
export const stateOf = (status) => (typeof status === "string" && Object.hasOwn(STATES, status) ? STATES[status] : "unknown");

/**
 * Sets a badge's text and color to a status.
 * @param {HTMLElement} on
 * @param {unknown} status
 * @param {string} [text] The text, if it is not the status.
 */
export function setBadge(on, status, text = humanize(status)) {
  on.classList.add("badge");
  on.dataset.state = stateOf(status);
  on.dataset.status = toText(status) || "unknown";
  setText(on, text);
}

/**
 * Returns the status to display. A stale item shows `stale`: whether it still works is unknown.
 * @param {Record<string, any>} content
 * @returns {unknown}
 */
export const displayedStatus = (content) => (content.stale === true ? "stale" : content.status);

/**
 * Creates a badge for a status.
 * @param {unknown} status
 * @param {string} [text]
 */
export function createBadge(status, text) {
  const node = element("span", "badge");
  setBadge(node, status, text);
  return node;
}

/* ── the inspect button ── */

/**
 * Creates the “i” button that shows the envelopes of an activity.
 * @param {() => CardView} view
 * @param {() => Activity | undefined} activity Returns the current activity.
 */
export function inspectButton(view, activity) {
  const button = element("button", "inspect", "i");
  button.type = "button";
  button.title = "Show events";
  button.setAttribute("aria-label", "Show events");
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    const now = activity();
    if (now) view().inspect(now);
  });
  return button;
}
