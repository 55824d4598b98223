/**
 * The comparison of audiences: a session, or one run, as user, dashboard and internal, side by side and live, over a
 * connection each.
 * A cell without content means that the server withholds the activity; the page hides nothing itself.
 */

import { formatCount, define, element, updateChildren, setBadge, oncePerFrame, setText } from "../surfaces/base.js";
import { describe } from "../surfaces/describe.js";
import { connect } from "../client/connection.js";
import { Store } from "../client/store.js";
import { parseTime } from "../ui/format.js";

/** @typedef {import("../client/types.js").Activity} Activity */
/** @typedef {import("../client/types.js").Audience} Audience */
/** @typedef {import("../client/types.js").State} State */
/** @typedef {import("../surfaces/base.js").View} View */

/** From the audience that sees least to the one that sees all. @type {Audience[]} */
const AUDIENCES = ["user", "dashboard", "internal"];
/** Rows drawn at first; the newest. */
const ROWS_MAX = 100;
/** The maximum number of withheld members that a cell names. */
const MEMBERS_MAX = 8;

/** @typedef {{ audience: Audience, store: Store, connection: import("../client/connection.js").Connection }} Reader */
/**
 * One activity, by audience.
 * @typedef {{ key: string, time: number, opened: number, cells: (Activity | undefined)[] }} Row `time`: when it was opened, in milliseconds since 1970.
 */

export class Audiences extends HTMLElement {
  /** @type {Reader[]} */
  #readers = [];
  /** @type {(() => void)[]} */
  #unsubscribers = [];
  /** @type {Pick<View, "inspect" | "sessionId"> | undefined} */
  #view;
  #limit = ROWS_MAX;
  #scheduleDraw = oncePerFrame(() => this.#draw());
  /** All activities that any audience sees, by key. @type {Map<string, Row>} */
  #rows = new Map();
  /** The sorted rows; `undefined` while they must be sorted again. @type {Row[] | undefined} */
  #order = [];
  /** Changed keys that are not in the rows yet, by audience. @type {Set<string>[]} */
  #changed = AUDIENCES.map(() => new Set());

  connectedCallback() {
    this.classList.add("audiences");
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "The session for each audience");
  }

  disconnectedCallback() {
    this.close();
  }

  /** The three stores, starting with the audience that sees least. */
  get stores() {
    return this.#readers.map(({ audience, store }) => ({ audience, store }));
  }

  /**
   * Follows the view's session with its child sessions, or a run, as each audience.
   * @param {string} run The run of a view without a session.
   * @param {{ base?: string, token?: import("../client/types.js").Token, transport?: "sse" | "websocket" }} [server] Default:
   * WebSockets. A browser allows few HTTP connections to one server, and the page needs those.
   * @param {Pick<View, "inspect" | "sessionId">} [view]
   */
  follow(run, { base, token, transport = "websocket" } = {}, view) {
    this.close();
    this.#view = view;
    this.#limit = ROWS_MAX;
    this.connectedCallback();
    this.#build();
    this.#readers = AUDIENCES.map((audience, at) => {
      const store = new Store();
      const filter = view?.sessionId === undefined ? { run } : { session: view.sessionId, children: true };
      const connection = connect({ base, token, transport, ...filter, audience }, store);
      const changed = (/** @type {import("../client/types.js").Changes} */ { keys }) => {
        for (const key of keys) this.#changed[at].add(key);
        this.#scheduleDraw();
      };
      this.#unsubscribers.push(store.subscribe(changed), connection.subscribe(() => this.#scheduleDraw()));
      return { audience, store, connection };
    });
    this.hidden = false;
    this.#scheduleDraw();
  }

  /** Closes the three connections. */
  close() {
    for (const end of this.#unsubscribers.splice(0)) end();
    for (const { connection } of this.#readers.splice(0)) connection.close();
    this.#rows.clear();
    this.#order = [];
    for (const keys of this.#changed) keys.clear();
    this.replaceChildren();
  }

  #build() {
    this.heads = element("div", "heads");
    for (const audience of AUDIENCES) {
      const head = element("div", "audience-head");
      head.dataset.audience = audience;
      const row = element("div", "spread");
      row.append(element("h3", "", audience), element("span", "badge"));
      head.append(row, element("p", "hint"));
      head.querySelector(".hint")?.setAttribute("role", "status");
      this.heads.append(head);
    }
    this.earlier = element("button", "button");
    this.earlier.type = "button";
    this.earlier.dataset.kind = "quiet";
    this.earlier.addEventListener("click", () => {
      this.#limit += ROWS_MAX;
      this.#scheduleDraw();
    });
    this.rows = element("ol", "audience-rows");
    // One scroll container, so that the three columns stay aligned.
    const scroll = element("div", "audience-scroll");
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "group");
    scroll.setAttribute("aria-label", "User, dashboard and internal, side by side");
    scroll.append(this.heads, this.earlier, this.rows);
    this.append(scroll);
  }

  #draw() {
    if (this.#readers.length === 0 || !this.rows || !this.heads || !this.earlier) return;
    const all = this.#sortedRows();
    this.#readers.forEach((reader, at) => this.#drawHead(/** @type {HTMLElement} */ (this.heads?.children[at]), reader, all.length - reader.store.size));
    const rest = all.length - this.#limit;
    this.earlier.hidden = rest <= 0;
    setText(this.earlier, `Show ${Math.min(rest, ROWS_MAX)} earlier of ${formatCount(rest)}`);
    updateChildren(this.rows, all.slice(-this.#limit), (row) => row.key, () => this.#createRow(), (item, row) => this.#drawRow(item, row));
  }

  /** The sorted rows, after applying the changes. @returns {Row[]} */
  #sortedRows() {
    this.#readers.forEach(({ store }, at) => {
      for (const key of this.#changed[at]) this.#setCell(key, at, store.get(key));
      this.#changed[at].clear();
    });
    this.#order ??= [...this.#rows.values()].sort(compareRows);
    return this.#order;
  }

  /**
   * @param {string} key
   * @param {number} at The index of the audience.
   * @param {Activity | undefined} activity The audience's current activity.
   */
  #setCell(key, at, activity) {
    const known = this.#rows.get(key);
    if (!known && !activity) return;
    const row = known ?? { key, time: parseTime(activity?.openedAt) || 0, opened: activity?.opened ?? 0, cells: [undefined, undefined, undefined] };
    row.cells[at] = activity;
    if (row.cells.every((cell) => cell === undefined)) {
      this.#rows.delete(key);
      this.#order = undefined;
    } else if (!known) {
      this.#rows.set(key, row);
      const last = this.#order?.at(-1);
      if (last && compareRows(last, row) > 0) this.#order = undefined;
      else this.#order?.push(row);
    }
  }

  /**
   * @param {HTMLElement} head
   * @param {Reader} reader
   * @param {number} missing
   */
  #drawHead(head, { store, connection }, missing) {
    const { kind, why } = connection.state;
    const state = /** @type {HTMLElement} */ (head.querySelector(".badge"));
    setBadge(state, kind, kind);
    state.dataset.state = { connecting: "waiting", live: "running", away: "warning", ended: "ok", refused: "failed" }[kind];
    const hydrated = this.#isHydrated(store);
    setText(/** @type {HTMLElement} */ (head.querySelector(".hint")), why || `${formatCount(store.size)} items, ${hydrated ? `${formatCount(missing)} withheld` : "loading"}`);
    head.dataset.missing = hydrated ? String(missing) : "unknown";
  }

  /** @param {Store} store */
  #isHydrated(store) {
    const logs = store.runs();
    return logs.length > 0 && logs.every(({ isHydrated }) => isHydrated);
  }

  #createRow() {
    const item = element("li", "audience-row");
    for (const audience of AUDIENCES) {
      const cell = element("div", "cell");
      cell.dataset.audience = audience;
      const head = element("div", "spread");
      const name = element("div", "row");
      name.append(element("span", "label"), element("span", "card-title"));
      const side = element("div", "row");
      head.append(name, side);
      const inspect = element("button", "inspect", "i");
      inspect.type = "button";
      inspect.addEventListener("click", () => {
        const at = AUDIENCES.indexOf(audience);
        const activity = this.#readers[at]?.store.get(item.dataset.key ?? "");
        if (activity) this.#view?.inspect(activity);
      });
      side.append(element("span", "badge"), inspect);
      cell.append(element("span", "cell-audience visually-hidden", `${audience}: `), head, element("p", "text"), element("p", "hint withheld"));
      item.append(cell);
    }
    return item;
  }

  /** The inputs of each drawn cell, so that only changed cells are drawn. @type {WeakMap<Element, unknown[]>} */
  #drawnCells = new WeakMap();

  /**
   * @param {HTMLElement} item
   * @param {Row} row
   */
  #drawRow(item, { key, cells }) {
    item.dataset.key = key;
    cells.forEach((activity, at) => {
      const cell = /** @type {HTMLElement} */ (item.children[at]);
      const widest = cells.findLast((it) => it !== undefined);
      const hydrated = this.#isHydrated(this.#readers[at].store);
      const inputs = [activity?.content, widest?.content, hydrated];
      if (this.#drawnCells.get(cell)?.every((it, n) => it === inputs[n])) return;
      this.#drawnCells.set(cell, inputs);
      const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (cell.querySelector(name));
      const description = activity && describe(activity);
      cell.dataset.shown = activity ? (activity.content.withheld === true ? "edge" : "whole") : hydrated ? "withheld" : "unknown";
      setText(part(".label"), description?.label ?? "");
      setText(part(".card-title"), description?.title ?? "");
      part(".badge").hidden = !description?.status;
      if (description) setBadge(part(".badge"), description.status);
      if (description) part(".badge").dataset.state = description.state;
      part(".inspect").hidden = !activity || !this.#view;
      part(".inspect").setAttribute("aria-label", `Show events as ${AUDIENCES[at]}`);
      setText(part(".text"), description?.text ?? "");
      setText(part(".withheld"), activity ? missingText(activity, widest) : hydrated ? `withheld from ${AUDIENCES[at]}` : "loading");
    });
  }
}

/** @param {Row} a @param {Row} b */
const compareRows = (a, b) => a.time - b.time || a.opened - b.opened || (a.key < b.key ? -1 : 1);

/**
 * Returns a text with the members that this audience cannot see.
 * @param {Activity} activity
 * @param {Activity | undefined} widest The activity for the audience that sees most of it.
 */
function missingText(activity, widest) {
  const missing = Object.keys(widest?.content ?? {}).filter((member) => !(member in activity.content));
  if (missing.length === 0) return activity.content.withheld === true ? "the rest of the result is withheld" : "";
  const more = missing.length > MEMBERS_MAX ? ` and ${missing.length - MEMBERS_MAX} more` : "";
  return `without ${missing.slice(0, MEMBERS_MAX).map((member) => member.replaceAll("_", " ")).join(", ")}${more}`;
}

define("ps-audiences", Audiences);
