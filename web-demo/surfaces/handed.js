/**
 * Controls that were handed over, and what becomes of them, as the server's lists say: for what the picture does not show, or
 * showed and took back before anybody looked.
 */

import { element, say, words } from "./base.js";

/**
 * @typedef {import("./base.js").Control} Control
 * @typedef {import("./base.js").Handed} Handed
 * @typedef {import("./base.js").View} View
 *
 * How a control stands: `queued`, `claimed`, `acked`, `nacked` or `expired`, and why its owner refused it.
 * @typedef {{ status: string, reason: string }} Fate
 */

/** How often what was handed over is asked after, in milliseconds. */
export const POLL_MS = 1500;
/** The longest between two questions, where nothing changes, in milliseconds. */
const POLL_MAX_MS = 15_000;
/** How long what its owner took is shown as taken, in milliseconds, if no fact takes its place. */
export const TAKEN_MS = 6000;
/** More than a run or a session remembers: a list is one page. */
const LIMIT = 1000;

/**
 * How the controls of a list stand, by their ids.
 * @param {View} view
 * @param {string} list
 * @returns {Promise<Map<string, Fate>>} Rejects with the server's words.
 */
export async function fates(view, list) {
  const { controls } = await view.read(`${list}?${new URLSearchParams({ limit: String(LIMIT), audience: view.audience })}`);
  return new Map(controls.map((/** @type {any} */ one) => [words(one.controlId), { status: words(one.status), reason: words(one.reason) }]));
}

/** Whether its owner has refused it, or nobody took it in time. @param {string | undefined} status */
export const isLost = (status) => status === "nacked" || status === "expired";

/**
 * A button that sends a control. While it is on its way the button is disabled and says so; what the server answers, and what
 * becomes of it, stands in `told`. It settles nothing: the fact comes from its owner, or does not.
 * @param {string} label
 * @param {() => View} view
 * @param {() => Control | null} control Asked for when it is pressed; null, where something is missing and has been said.
 * @param {{ kind?: "primary" | "danger" | "quiet", told?: HTMLElement, sent?: () => void }} [more]
 */
export function controlButton(label, view, control, more = {}) {
  const button = element("button", "button", label);
  button.type = "button";
  if (more.kind) button.dataset.kind = more.kind;
  button.addEventListener("click", async () => {
    const wanted = control();
    if (!wanted || button.disabled) return;
    button.disabled = true;
    button.dataset.control = "submitting";
    say(button, `${label} …`);
    const note = more.told && new Note(more.told);
    note?.say("Sending …");
    try {
      const handed = await view().act(wanted);
      note?.follow(view(), handed);
      more.sent?.();
    } catch (why) {
      note?.say(why instanceof Error ? why.message : String(why), "failed");
    } finally {
      button.disabled = false;
      delete button.dataset.control;
      say(button, label);
    }
  });
  return button;
}

/** What a note says of a control that was handed over; nothing, of one that is forgotten. @param {Fate} fate */
function wordsOf({ status, reason }) {
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
const newest = new WeakMap();

/** What is said of one control, in a place that others may use after it. */
class Note {
  #place;
  #wait = POLL_MS;

  /** @param {HTMLElement} place */
  constructor(place) {
    this.#place = place;
    newest.set(place, this);
  }

  /**
   * @param {string} text
   * @param {"idle" | "failed"} [state] Only what failed looks like a failure.
   */
  say(text, state = "idle") {
    if (newest.get(this.#place) !== this) return;
    this.#place.dataset.state = state;
    say(this.#place, text);
  }

  /**
   * Says what becomes of it, until that is decided, or nobody sees it any more.
   * @param {View} view
   * @param {Handed} handed
   * @param {Fate} [known]
   */
  follow(view, handed, known = { status: "queued", reason: "" }) {
    this.say(wordsOf(known), isLost(known.status) ? "failed" : "idle");
    if (isLost(known.status)) return;
    if (known.status === "acked") return void setTimeout(() => this.say(""), TAKEN_MS);
    setTimeout(() => this.#look(view, handed, known), this.#wait);
  }

  /**
   * @param {View} view
   * @param {Handed} handed
   * @param {Fate} known
   */
  async #look(view, handed, known) {
    if (newest.get(this.#place) !== this || !this.#place.isConnected) return this.say("");
    /** @type {Fate | undefined} */
    let told = known;
    try {
      told = (await fates(view, handed.list)).get(handed.controlId);
    } catch {
      // The server is away; the connection bar says so. What is not known stays as it was last told.
    }
    // It has long been over.
    if (!told) return this.say("");
    this.#wait = told.status === known.status ? Math.min(this.#wait * 1.5, POLL_MAX_MS) : POLL_MS;
    this.follow(view, handed, told);
  }
}
