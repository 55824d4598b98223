/**
 * The surface of `<ps-inbox>`, and the lists that it shows.
 */

import sheet from "../surfaces/inbox.css";
import { Hydration } from "../client/hydration.js";
import { LiveModel } from "../live-model.js";
import { PendingDecisions } from "../pending.js";
import { PushedEntries } from "../pushed-entries.js";
import { entryOf } from "../session-entry.js";
import { define } from "../surfaces/base.js";
import { isDecisionKey } from "../surfaces/decision-keys.js";
import { Inbox } from "../surfaces/inbox.js";
import { addSheet } from "./sheets.js";
import { closeSource, openSource, serverOf } from "./source.js";

/** @typedef {import("../session-entry.js").Entry} Entry */
/** @typedef {import("./inbox.js").InboxElement} InboxElement */

define("ps-inbox-view", Inbox);
addSheet(sheet);

export class InboxParts {
  #element;
  #lists;
  #inbox = new Inbox();
  #pending = new PendingDecisions(() => this.#publish());
  /** Reads the decisions that were made before. */
  #hydration;

  /** @param {InboxElement} element */
  constructor(element) {
    this.#element = element;
    const { place } = element;
    const server = serverOf(place);
    this.#hydration = new Hydration({ ...server, audience: place.audience });
    this.#lists = new PushedEntries({ ...server, audience: place.audience, lists: { attention: true, sessions: true } }, {
      changed: element.schedule,
      hydrated: element.schedule,
      state: () => element.schedule(),
    });
  }

  close() {
    this.#inbox.close();
    this.#lists.connection.close();
    this.#pending.clear();
  }

  draw() {
    const [element, lists] = [this.#element, this.#lists];
    const { state } = lists.connection;
    if (lists.isHydrated || state.kind === "refused" || state.kind === "away") element.showConnection(state);
    if (!lists.isHydrated) return;
    if (!this.#inbox.isConnected) element.content.replaceChildren(this.#inbox);
    const waiting = [...lists.attention.values()].filter(({ control }) => control === undefined).sort((a, b) => a.askedAt.localeCompare(b.askedAt));
    this.#pending.update({ all: this.#entries(), waiting });
  }

  /** @returns {Entry[]} */
  #entries() {
    return [...this.#lists.sessions.values()].map((one) => entryOf("session", one));
  }

  /** Shows the decisions, and reports their number. */
  #publish() {
    if (!this.#pending.isRead) return;
    this.#inbox.show(this.#pending.items, this.#host);
    this.#element.showEmpty(this.#pending.items.length === 0);
    this.#element.emit("ps-count", { count: this.#pending.items.length });
  }

  /** What the surface needs. @type {import("../surfaces/inbox.js").InboxHost} */
  #host = {
    watch: ({ kind, id }) => openSource(this.#element.place, { [kind]: id }, LiveModel),
    release: closeSource,
    open: ({ kind, id }) => this.#element.report({ kind, id }),
    entries: () => this.#entries(),
    hydration: () => this.#hydration,
    target: (target) => this.#element.report(target),
  };

  /** @param {KeyboardEvent} event @returns {boolean} Whether the key has a meaning here. */
  handleKey(event) {
    const step = { j: 1, k: -1 }[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return isDecisionKey(event) && this.#inbox.handleKey(event.key);
    if (event.target instanceof HTMLElement && event.target.matches("input, select, textarea")) return false;
    this.#inbox.move(step);
    return true;
  }
}
