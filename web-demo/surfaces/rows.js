/**
 * A list of any length, of which only the rows near the viewport are in the page. All rows are of one height.
 */

import { element, keyed, onceAFrame } from "./base.js";

/** Rows above and below the viewport that are drawn, so that scrolling does not show a gap. */
const MARGIN_ROWS = 8;
/** How close to its end it must be scrolled to stay there, in pixels. */
const STICKY_PX = 40;

/** @template Item */
export class Rows {
  /** @type {Item[]} */
  #items = [];
  #options;

  /**
   * @param {object} options
   * @param {number} options.height Of a row, in pixels.
   * @param {string} options.label What the list is, for who does not see it.
   * @param {(item: Item) => string} options.keyOf
   * @param {(item: Item) => HTMLElement} options.make
   * @param {(row: HTMLElement, item: Item) => void} options.change
   */
  constructor(options) {
    this.#options = options;
    this.root = element("div", "rows");
    this.#space = element("div", "rows-space");
    this.#space.setAttribute("role", "list");
    this.#space.setAttribute("aria-label", options.label);
    this.root.tabIndex = 0;
    this.root.setAttribute("role", "group");
    this.root.setAttribute("aria-label", options.label);
    this.root.append(this.#space);
    this.root.addEventListener("scroll", () => this.#soon(), { passive: true });
    new ResizeObserver(() => this.#soon()).observe(this.root);
  }

  #space;
  #soon = onceAFrame(() => this.#draw());

  /** How many rows it has. */
  get size() {
    return this.#items.length;
  }

  /**
   * Shows these. Whoever was at the end stays there; whoever looks at something keeps looking at it.
   * @param {Item[]} items
   * @param {number} [added] How many of them are new before what was there.
   */
  show(items, added = 0) {
    const { scrollHeight, scrollTop, clientHeight } = this.root;
    const follows = scrollHeight - scrollTop - clientHeight < STICKY_PX;
    this.#items = items;
    this.#space.style.height = `${items.length * this.#options.height}px`;
    if (added > 0) this.root.scrollTop = scrollTop + added * this.#options.height;
    else if (follows) this.root.scrollTop = this.root.scrollHeight;
    this.#draw();
  }

  /**
   * Scrolls to a row.
   * @param {(item: Item) => boolean} wanted
   */
  reveal(wanted) {
    const at = this.#items.findIndex(wanted);
    if (at < 0) return false;
    this.root.scrollTop = Math.max(0, (at + 0.5) * this.#options.height - this.root.clientHeight / 2);
    this.#draw();
    return true;
  }

  #draw() {
    const { height, keyOf, make, change } = this.#options;
    const first = Math.max(0, Math.floor(this.root.scrollTop / height) - MARGIN_ROWS);
    const last = Math.ceil((this.root.scrollTop + this.root.clientHeight) / height) + MARGIN_ROWS;
    const shown = this.#items.slice(first, last).map((item, n) => ({ item, at: first + n }));
    keyed(this.#space, shown, ({ item }) => keyOf(item), ({ item }) => {
      const row = make(item);
      row.setAttribute("role", "listitem");
      return row;
    }, (row, { item, at }) => {
      row.style.transform = `translateY(${at * height}px)`;
      row.setAttribute("aria-posinset", String(at + 1));
      row.setAttribute("aria-setsize", String(this.#items.length));
      change(row, item);
    });
  }
}
