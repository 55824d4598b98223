/**
 * A virtual list of rows of equal height: only rows near the viewport are in the document.
 */

import { element, updateChildren, oncePerFrame } from "./base.js";

/** Rows drawn above and below the viewport, so that scrolling shows no gap. */
const MARGIN_ROWS = 8;
/** The distance from the end that still counts as the end, in pixels. */
const STICKY_PX = 40;

/** @template Item */
export class FixedHeightList {
  /** @type {Item[]} */
  #items = [];
  #options;

  /**
   * @param {object} options
   * @param {number} options.height The height of a row in pixels.
   * @param {string} options.label The accessible name.
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
    this.root.addEventListener("scroll", () => this.#scheduleDraw(), { passive: true });
    new ResizeObserver(() => this.#scheduleDraw()).observe(this.root);
  }

  #space;
  #scheduleDraw = oncePerFrame(() => this.#draw());

  /** The number of rows. */
  get size() {
    return this.#items.length;
  }

  /**
   * Sets the items. A viewer at the end stays there; elsewhere the visible rows stay in place.
   * @param {Item[]} items
   * @param {number} [added] How many items were prepended.
   */
  show(items, added = 0) {
    const { scrollHeight, scrollTop, clientHeight } = this.root;
    const wasAtEnd = scrollHeight - scrollTop - clientHeight < STICKY_PX;
    this.#items = items;
    this.#space.style.height = `${items.length * this.#options.height}px`;
    if (added > 0) this.root.scrollTop = scrollTop + added * this.#options.height;
    else if (wasAtEnd) this.root.scrollTop = this.root.scrollHeight;
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
    const visible = this.#items.slice(first, last).map((item, n) => ({ item, at: first + n }));
    updateChildren(this.#space, visible, ({ item }) => keyOf(item), ({ item }) => {
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
