/**
 * A virtual list of rows of equal height: only rows near the viewport are in the document.
 */

import { element, oncePerFrame } from "./base.js";

/** Rows drawn above and below the viewport, so that scrolling shows no gap. */
const MARGIN_ROWS = 8;
/** How long after an input a scroll may come from the viewer, in milliseconds. */
const USED_MS = 500;
/** The distance from the end that still counts as the end, in pixels. */
const STICKY_PX = 40;

/** @template Item */
export class FixedHeightList {
  /** @type {Item[]} */
  #items = [];
  #options;
  /** The drawn rows, by the key of their item. @type {Map<string, HTMLElement>} */
  #rows = new Map();
  /** The index at which each row is. A write of the same style costs, too. @type {WeakMap<HTMLElement, number>} */
  #places = new WeakMap();
  /** Whether the viewer is at the end, before items change. */
  #isAtEnd = true;
  /** Whether the next scroll event comes from `show`. */
  #isFollowing = false;
  /** When the viewer last used the list. */
  #usedAt = -Infinity;
  /** The number of items of the last `show`: a caller may append to the same array. */
  #shownLength = 0;
  /** The height of the viewport in pixels, as of the last resize. */
  #viewHeight = 0;

  /**
   * @param {object} options
   * @param {number} options.height The height of a row in pixels.
   * @param {string} options.label The accessible name.
   * @param {(item: Item, at: number) => string} options.keyOf
   * @param {(item: Item) => HTMLElement} options.make
   * @param {(row: HTMLElement, item: Item, at: number) => void} options.change
   * @param {boolean} [options.isListbox] The rows are options of a listbox, which keeps the focus.
   * @param {() => number} [options.activeRow] The rows are rows of a grid whose heading is row 1. The one at this index has the
   * focus, and stays in the document when it is scrolled away: the focus would be lost with it.
   * @param {boolean} [options.startsAtTop] The list begins at its start, and does not follow its end until scrolled to it.
   * @param {boolean} [options.isRecycled] A row that leaves the viewport may show another item: `change` sets everything.
   */
  constructor(options) {
    this.#options = options;
    const { label, isListbox = false, activeRow, startsAtTop = false } = options;
    this.#isAtEnd = !startsAtTop;
    this.root = element("div", "rows");
    this.#space = element("div", "rows-space");
    this.#space.setAttribute("role", isListbox || activeRow ? "presentation" : "list");
    if (!isListbox && !activeRow) this.#space.setAttribute("aria-label", label);
    if (!activeRow) this.root.tabIndex = 0;
    this.root.setAttribute("role", isListbox ? "listbox" : activeRow ? "rowgroup" : "group");
    this.root.setAttribute("aria-label", label);
    this.root.append(this.#space);
    this.root.addEventListener("scroll", () => {
      // A list that follows its end scrolls with each change, and measuring costs a layout.
      const isOwn = this.#isFollowing && performance.now() - this.#usedAt > USED_MS;
      this.#isFollowing = false;
      if (isOwn) return;
      this.#isAtEnd = this.#distanceToEnd < STICKY_PX;
      this.#scheduleDraw();
    }, { passive: true });
    for (const name of ["wheel", "touchmove", "pointerdown", "pointermove", "keydown"]) this.root.addEventListener(name, () => (this.#usedAt = performance.now()), { passive: true });
    new ResizeObserver(() => {
      this.#viewHeight = this.root.clientHeight;
      if (this.#isAtEnd && !this.isHeld) this.root.scrollTop = this.root.scrollHeight;
      this.#scheduleDraw();
    }).observe(this.root);
  }

  /** Whether new items leave the viewer in place even at the end: they read a row there. */
  isHeld = false;
  #space;
  #scheduleDraw = oncePerFrame(() => this.#draw());

  get #distanceToEnd() {
    return this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight;
  }

  /** The number of rows. */
  get size() {
    return this.#items.length;
  }

  /** Whether the last row is in view. */
  get isAtEnd() {
    return this.#isAtEnd;
  }

  /**
   * Sets the items. A viewer at the end stays there; elsewhere the visible rows stay in place.
   * @param {Item[]} items
   * @param {number} [added] How many items were prepended.
   */
  show(items, added = 0) {
    const { height } = this.#options;
    const scrollTop = added > 0 ? this.root.scrollTop : 0;
    this.#items = items;
    this.#space.style.height = `${items.length * height}px`;
    if (this.#isAtEnd && !this.isHeld && items.length !== this.#shownLength) {
      this.#isFollowing = items.length > this.#shownLength && items.length * height > this.#viewHeight;
      this.root.scrollTop = items.length * height;
    } else if (added > 0) {
      this.root.scrollTop = scrollTop + added * height;
    }
    this.#shownLength = items.length;
    this.#draw();
  }

  /** Sets the height of all rows. @param {number} height In pixels. */
  set rowHeight(height) {
    if (height === this.#options.height) return;
    const { scrollTop } = this.root;
    const at = scrollTop / this.#options.height;
    this.#options.height = height;
    this.#places = new WeakMap();
    this.#space.style.height = `${this.#items.length * height}px`;
    this.root.scrollTop = at * height;
    this.#scheduleDraw();
  }

  /** The indexes of the first row in view, and of the one after the last. */
  get range() {
    const { scrollTop, clientHeight } = this.root;
    return [Math.floor(scrollTop / this.#options.height), Math.min(this.#items.length, Math.ceil((scrollTop + clientHeight) / this.#options.height))];
  }

  /** The row of the item with this key, if it is in the document. @param {string} key */
  row(key) {
    return this.#rows.get(key);
  }

  /** Draws the visible rows again: something besides the items changed. */
  redraw() {
    this.#scheduleDraw();
  }

  /** Scrolls to the end, and stays there when items are added. */
  toEnd() {
    this.#isAtEnd = true;
    this.root.scrollTop = this.root.scrollHeight;
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
    this.#isAtEnd = this.#distanceToEnd < STICKY_PX;
    this.#draw();
    return true;
  }

  /**
   * Scrolls as little as possible until the row at this index is in view.
   * @param {number} at
   */
  scrollIntoView(at) {
    const { height } = this.#options;
    const { scrollTop, clientHeight } = this.root;
    if (at * height < scrollTop) this.root.scrollTop = at * height;
    else if ((at + 1) * height > scrollTop + clientHeight) this.root.scrollTop = (at + 1) * height - clientHeight;
    this.#isAtEnd = this.#distanceToEnd < STICKY_PX;
    this.#draw();
  }

  #draw() {
    const { height, keyOf, make, change, isListbox = false, activeRow, isRecycled = false } = this.#options;
    const { scrollTop, clientHeight } = this.root;
    const first = Math.max(0, Math.floor(scrollTop / height) - MARGIN_ROWS);
    const last = Math.min(this.#items.length, Math.ceil((scrollTop + clientHeight) / height) + MARGIN_ROWS);
    const active = activeRow?.() ?? -1;
    // A grid is read in the order of the document.
    const isSorted = !isRecycled || activeRow !== undefined;
    /** @type {Map<string, number>} */
    const visible = new Map();
    if (active >= 0 && active < first && active < this.#items.length) visible.set(keyOf(this.#items[active], active), active);
    for (let at = first; at < last; at += 1) visible.set(keyOf(this.#items[at], at), at);
    if (active >= last && active < this.#items.length) visible.set(keyOf(this.#items[active], active), active);
    /** @type {HTMLElement[]} */
    const free = [];
    for (const [key, row] of this.#rows) {
      if (visible.has(key)) continue;
      this.#rows.delete(key);
      // A row with the focus cannot show another item: the focus would move without the viewer.
      if (isRecycled && !row.contains(document.activeElement)) free.push(row);
      else row.remove();
    }
    for (const [key, at] of visible) {
      const item = this.#items[at];
      let row = this.#rows.get(key);
      if (!row) {
        const reused = free.pop();
        row = reused ?? make(item);
        if (!reused) row.setAttribute("role", isListbox ? "option" : activeRow ? "row" : "listitem");
        if (!reused || isSorted) this.#space.append(row);
      }
      this.#rows.set(key, row);
      if (this.#places.get(row) !== at) {
        this.#places.set(row, at);
        row.style.transform = `translateY(${at * height}px)`;
        row.setAttribute(activeRow ? "aria-rowindex" : "aria-posinset", String(activeRow ? at + 2 : at + 1));
      }
      if (!activeRow) row.setAttribute("aria-setsize", String(this.#items.length));
      change(row, item, at);
    }
    for (const row of free) row.remove();
    if (isSorted) this.#sort(visible);
  }

  /**
   * Puts the rows of a list in order: the focus and screen readers follow the document.
   * @param {Map<string, number>} visible
   */
  #sort(visible) {
    let next = this.#space.firstElementChild;
    for (const key of visible.keys()) {
      const row = /** @type {HTMLElement} */ (this.#rows.get(key));
      if (row === next) next = next.nextElementSibling;
      else this.#space.insertBefore(row, next);
    }
  }
}
