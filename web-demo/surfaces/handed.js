/**
 * Controls that were handed over, and what becomes of them, as the server's lists say: for what the picture does not show, or
 * showed and took back before anybody looked.
 */

import { element, setText, toText } from "./base.js";

/**
 * @typedef {import("./base.js").Control} Control
 * @typedef {import("./base.js").SubmittedControl} SubmittedControl
 * @typedef {import("./base.js").View} View
 *
 * How a control stands: `queued`, `claimed`, `acked`, `nacked` or `expired`, and why its owner refused it.
 * @typedef {{ status: string, reason: string }} ControlStatus
 */

/** How often what was handed over is asked after, in milliseconds. */
export const POLL_MS = 1500;
/** The longest between two questions, where nothing changes, in milliseconds. */
const POLL_MAX_MS = 15_000;
/** How long what its owner took is shown as taken, in milliseconds, if no fact takes its place. */
export const ACCEPTED_SHOWN_MS = 6000;
/** More than a run or a session remembers: a list is one page. */
const LIST_LIMIT = 1000;

/**
 * How the controls of a list stand, by their ids.
 * @param {View} view
 * @param {string} list
 * @returns {Promise<Map<string, ControlStatus>>} Rejects with the server's words.
 */
export async function readControlStatuses(view, list) {
  const { controls } = await view.read(`${list}?${new URLSearchParams({ limit: String(LIST_LIMIT), audience: view.audience })}`);
  return new Map(controls.map((/** @type {any} */ one) => [toText(one.controlId), { status: toText(one.status), reason: toText(one.reason) }]));
}

/** Whether its owner has refused it, or nobody took it in time. @param {string | undefined} status */
export const hasFailed = (status) => status === "nacked" || status === "expired";

/**
 * A button that sends a control. While it is on its way the button is disabled and says so; what the server answers, and what
 * becomes of it, stands in `told`. It settles nothing: the fact comes from its owner, or does not.
 * @param {string} label
 * @param {() => View} view
 * @param {() => Control | null} control Asked for when it is pressed; null, where something is missing and has been said.
 * @param {{ kind?: "primary" | "danger" | "quiet", feedback?: HTMLElement, sent?: () => void }} [more]
 */
export function controlButton(label, view, control, more = {}) {
  const button = element("button", "button", label);
  button.type = "button";
  if (more.kind) button.dataset.kind = more.kind;
  button.addEventListener("click", async () => {
    const request = control();
    if (!request || button.disabled) return;
    button.disabled = true;
    button.dataset.control = "submitting";
    setText(button, `${label} …`);
    const note = more.feedback && new Note(more.feedback);
    note?.show("Sending …");
    try {
      const submitted = await view().act(request);
      note?.follow(view(), submitted);
      more.sent?.();
    } catch (error) {
      note?.show(error instanceof Error ? error.message : String(error), "failed");
    } finally {
      button.disabled = false;
      delete button.dataset.control;
      setText(button, label);
    }
  });
  return button;
}

/** What a note says of a control that was handed over; nothing, of one that is forgotten. @param {ControlStatus} fate */
function statusText({ status, reason }) {
  switch (status) {
    case "queued": return "Submitted. The runtime has not confirmed it yet.";
    case "claimed": return "The runtime received it and has not confirmed it yet.";
    case "acked": return "The runtime has taken it.";
    case "nacked": return reason ? `The runtime refused it: ${reason}` : "The runtime refused it.";
    case "expired": return "Expired: the runtime did not claim it in time.";
    default: return status;
  }
}

/** Whose words a place shows: the newest note's. @type {WeakMap<HTMLElement, Note>} */
const newestNotes = new WeakMap();

/** What is said of one control, in a place that others may use after it. */
class Note {
  #element;
  #pollDelayMs = POLL_MS;

  /** @param {HTMLElement} target */
  constructor(target) {
    this.#element = target;
    newestNotes.set(target, this);
  }

  /**
   * @param {string} text
   * @param {"idle" | "failed"} [state] Only what failed looks like a failure.
   */
  show(text, state = "idle") {
    if (newestNotes.get(this.#element) !== this) return;
    this.#element.dataset.state = state;
    setText(this.#element, text);
  }

  /**
   * Says what becomes of it, until that is decided, or nobody sees it any more.
   * @param {View} view
   * @param {SubmittedControl} submitted
   * @param {ControlStatus} [previous]
   */
  follow(view, submitted, previous = { status: "queued", reason: "" }) {
    this.show(statusText(previous), hasFailed(previous.status) ? "failed" : "idle");
    if (hasFailed(previous.status)) return;
    if (previous.status === "acked") return void setTimeout(() => this.show(""), ACCEPTED_SHOWN_MS);
    setTimeout(() => this.#poll(view, submitted, previous), this.#pollDelayMs);
  }

  /**
   * @param {View} view
   * @param {SubmittedControl} submitted
   * @param {ControlStatus} previous
   */
  async #poll(view, submitted, previous) {
    if (newestNotes.get(this.#element) !== this || !this.#element.isConnected) return this.show("");
    /** @type {ControlStatus | undefined} */
    let current = previous;
    try {
      current = (await readControlStatuses(view, submitted.list)).get(submitted.controlId);
    } catch {
      // The server is away; the connection bar says so. What is not known stays as it was last told.
    }
    // It has long been over.
    if (!current) return this.show("");
    this.#pollDelayMs = current.status === previous.status ? Math.min(this.#pollDelayMs * 1.5, POLL_MAX_MS) : POLL_MS;
    this.follow(view, submitted, current);
  }
}
