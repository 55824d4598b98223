/**
 * One run, three readers: what a user, a dashboard and an internal reader are given, side by side and live, over a connection each.
 * What one of them is not given stands as an empty place that says so: the server withheld it, nothing was hidden here.
 */

import { formatCount, define, element, updateChildren, setBadge, oncePerFrame, setText } from "../surfaces/base.js";
import { describe } from "../surfaces/describe.js";
import { connect } from "../client/connection.js";
import { Store } from "../client/store.js";

/** @typedef {import("../client/types.js").Activity} Activity */
/** @typedef {import("../client/types.js").Audience} Audience */
/** @typedef {import("../client/types.js").State} State */
/** @typedef {import("../surfaces/base.js").View} View */

/** From the one who sees least to the one who sees all. @type {Audience[]} */
const AUDIENCES = ["user", "dashboard", "internal"];
/** Rows that are drawn, the newest, before somebody asks for more. */
const ROWS_MAX = 100;
/** Members that a cell names as missing. */
const MEMBERS_MAX = 8;

/** @typedef {{ audience: Audience, store: Store, connection: import("../client/connection.js").Connection }} Reader */
/** @typedef {{ key: string, opened: number, cells: (Activity | undefined)[] }} Row One activity, as each of them has it. */

export class Audiences extends HTMLElement {
  /** @type {Reader[]} */
  #readers = [];
  /** @type {(() => void)[]} */
  #unsubscribers = [];
  /** @type {Pick<View, "inspect"> | undefined} */
  #view;
  #run = "";
  #limit = ROWS_MAX;
  #scheduleDraw = oncePerFrame(() => this.#draw());
  /** Everything that any of them sees. @type {Map<string, Row>} */
  #rows = new Map();
  /** The same in order; undefined when that has to be found out anew. @type {Row[] | undefined} */
  #order = [];
  /** What changed and is not in the rows yet, by reader. @type {Set<string>[]} */
  #changed = AUDIENCES.map(() => new Set());

  connectedCallback() {
    this.classList.add("audiences");
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "The run as each audience sees it");
  }

  disconnectedCallback() {
    this.close();
  }

  /** How each of the three stores stands, from the one who sees least. */
  get stores() {
    return this.#readers.map(({ audience, store }) => ({ audience, store }));
  }

  /**
   * Follows a run as all three.
   * @param {string} run
   * @param {{ base?: string, token?: import("../client/types.js").Token, transport?: "sse" | "websocket" }} [server] Over WebSockets,
   * unless told otherwise: a browser keeps few other connections to one server, and the page needs those.
   * @param {Pick<View, "inspect">} [view]
   */
  follow(run, { base, token, transport = "websocket" } = {}, view) {
    this.close();
    this.#run = run;
    this.#view = view;
    this.#limit = ROWS_MAX;
    this.connectedCallback();
    this.#build();
    this.#readers = AUDIENCES.map((audience, at) => {
      const store = new Store();
      const connection = connect({ base, token, transport, run, audience }, store);
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

  /** Lets go of all three. */
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
    // One thing scrolls, so that the three always stand side by side.
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

  /** Everything that any of them sees, in its order; only what changed is looked at. @returns {Row[]} */
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
   * @param {number} at The reader.
   * @param {Activity | undefined} activity As it has it now.
   */
  #setCell(key, at, activity) {
    const known = this.#rows.get(key);
    if (!known && !activity) return;
    const row = known ?? { key, opened: activity?.opened ?? 0, cells: [undefined, undefined, undefined] };
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
    const { kind, why, sequence } = connection.state;
    const state = /** @type {HTMLElement} */ (head.querySelector(".badge"));
    setBadge(state, kind, kind);
    state.dataset.state = { connecting: "waiting", live: "running", away: "warning", ended: "ok", refused: "failed" }[kind];
    const hydrated = this.#isHydrated(store);
    setText(/** @type {HTMLElement} */ (head.querySelector(".hint")), why || `${formatCount(store.size)} things, ${hydrated ? `${formatCount(missing)} withheld` : "loading"}, event ${formatCount(sequence)}`);
    head.dataset.missing = hydrated ? String(missing) : "unknown";
  }

  /** @param {Store} store */
  #isHydrated(store) {
    return store.run(this.#run)?.isHydrated === true;
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

  /** What each cell was drawn of, so that only what changed is drawn again. @type {WeakMap<Element, unknown[]>} */
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
      part(".inspect").setAttribute("aria-label", `Show the events that made this, as ${AUDIENCES[at]}`);
      setText(part(".text"), description?.text ?? "");
      setText(part(".withheld"), activity ? missingText(activity, widest) : hydrated ? `withheld from ${AUDIENCES[at]}` : "not known yet");
    });
  }
}

/** @param {Row} a @param {Row} b */
const compareRows = (a, b) => a.opened - b.opened || (a.key < b.key ? -1 : 1);

/**
 * What of a thing this reader is not given, in words.
 * @param {Activity} activity
 * @param {Activity | undefined} widest As the one sees it who sees most.
 */
function missingText(activity, widest) {
  const missing = Object.keys(widest?.content ?? {}).filter((member) => !(member in activity.content));
  if (missing.length === 0) return activity.content.withheld === true ? "the rest of its end is withheld" : "";
  const more = missing.length > MEMBERS_MAX ? ` and ${missing.length - MEMBERS_MAX} more` : "";
  return `without ${missing.slice(0, MEMBERS_MAX).map((member) => member.replaceAll("_", " ")).join(", ")}${more}`;
}

define("ps-audiences", Audiences);
