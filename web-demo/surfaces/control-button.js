/**
 * Buttons that send a control, and what they say about its status.
 */

import { element, setText } from "./base.js";
import { ACCEPTED_SHOWN_MS, POLL_MAX_MS, POLL_MS, hasFailed, readControlStatuses } from "./submitted-controls.js";
import { t } from "../ui/texts.js";

/**
 * @typedef {import("./base.js").Control} Control
 * @typedef {import("./base.js").SubmittedControl} SubmittedControl
 * @typedef {import("./base.js").CardView} CardView
 * @typedef {import("./submitted-controls.js").ControlStatus} ControlStatus
 */

/**
 * Creates a button that sends a control. While sending, the button is disabled and says so. `feedback` shows the
 * server's response and then the status of the control. Only a fact of the runtime changes anything else on the page.
 * @param {string} label
 * @param {() => CardView} view
 * @param {() => Control | null} control Called on a click. Null if input is missing; it then shows a message.
 * @param {{ kind?: "primary" | "danger" | "quiet", feedback?: HTMLElement, sent?: () => void }} [more]
 */
export function controlButton(label, view, control, more = {}) {
  const button = element("button", "button control", label);
  button.type = "button";
  if (more.kind) button.dataset.kind = more.kind;
  button.addEventListener("click", async () => {
    const request = control();
    if (!request || button.disabled) return;
    button.disabled = true;
    button.dataset.control = "submitting";
    setText(button, `${label}…`);
    const note = more.feedback && new Note(more.feedback);
    note?.show(t("Sending…"));
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

/** Returns the text for a status. @param {ControlStatus} status */
function statusText({ status, reason }) {
  switch (status) {
    case "queued": return t("Submitted. The runtime has not confirmed it yet.");
    case "claimed": return t("The runtime received it and has not confirmed it yet.");
    case "acked": return t("The runtime accepted it.");
    case "nacked": return reason ? t("The runtime rejected it: {reason}", { reason }) : t("The runtime rejected it.");
    case "expired": return t("Expired: the runtime did not claim it in time.");
    default: return status;
  }
}

/** The newest note of each element; older notes no longer change it. @type {WeakMap<HTMLElement, Note>} */
const newestNotes = new WeakMap();

/** The text about one control, in an element that later controls reuse. */
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
   * @param {"idle" | "failed"} [state] The visual state.
   */
  show(text, state = "idle") {
    if (newestNotes.get(this.#element) !== this) return;
    this.#element.dataset.state = state;
    setText(this.#element, text);
  }

  /**
   * Shows the status until it is final or the element leaves the page.
   * @param {CardView} view
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
   * @param {CardView} view
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
      // The server is unreachable; the connection bar shows that. The last known status stays.
    }
    // The server no longer lists the control: it ended some time ago.
    if (!current) return this.show("");
    this.#pollDelayMs = current.status === previous.status ? Math.min(this.#pollDelayMs * 1.5, POLL_MAX_MS) : POLL_MS;
    this.follow(view, submitted, current);
  }
}
