/**
 * A virtual list: only rows near the viewport are in the document.
 *
 * Rows may have any height: drawn rows are measured, the others estimated. A viewer at the end stays there while rows
 * are added. Elsewhere the browser's scroll anchoring keeps the visible rows in place.
 */

import { element, updateChildren, oncePerFrame } from "./base.js";

/** The estimated height of a row that was never drawn, in pixels. */
const ESTIMATED_ROW_PX = 96;
/** How far beyond the viewport rows are drawn, in viewports, above and below. */
const OVERSCAN_VIEWPORTS = 1;
/** The distance from the end that still counts as the end, in pixels. */
const END_TOLERANCE_PX = 24;

/**
 * @template Row
 * @typedef {object} RowRenderer
 * @property {(row: Row) => string} keyOf
 * @property {(row: Row) => HTMLElement} make
 * @property {(child: HTMLElement, row: Row) => void} change
 * @property {(row: Row) => boolean} isHeld Whether the end of the list shows the head of this last row, if the row is too tall.
 */

/** @template Row */
export class VirtualList {
  #scroller;
  #above = element("div", "beyond");
  #list = element("div", "near");
  #below = element("div", "beyond");
  /** @type {Row[]} */
  #rows = [];
  /** @type {Map<string, number>} */
  #heights = new Map();
  /** @type {WeakMap<Element, string>} */
  #keys = new WeakMap();
  /** @type {Set<Element>} */
  #observed = new Set();
  #renderer;
  #scheduleDraw = oncePerFrame(() => this.draw(() => false));
  #isAtEnd = true;
  #lastTop = 0;
  /** The last row whose head the viewer scrolled away from. */
  #releasedKey = "";
  #resizes = new ResizeObserver((entries) => this.#measured(entries));

  /**
   * @param {HTMLElement} scroller The scroll container. The list owns its content.
   * @param {RowRenderer<Row>} renderer
   */
  constructor(scroller, renderer) {
    this.#scroller = scroller;
    this.#renderer = renderer;
    scroller.append(this.#above, this.#list, this.#below);
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#resizes.observe(scroller);
  }

  /** Whether the list stays at its end while rows are added. */
  get isAtEnd() {
    return this.#isAtEnd;
  }

  /** Stops observing sizes. */
  close() {
    this.#resizes.disconnect();
  }

  /** @param {Row[]} rows */
  set(rows) {
    this.#rows = rows;
  }

  /**
   * Draws the rows near the viewport.
   * @param {((key: string) => boolean) | null} isChanged Which rows to update; null for all. New rows are always drawn.
   */
  draw(isChanged) {
    const { keyOf } = this.#renderer;
    const [from, to] = this.#range();
    this.#above.style.height = `${this.#sum(0, from)}px`;
    this.#below.style.height = `${this.#sum(to, this.#rows.length)}px`;
    const drawn = new Set();
    /** @param {HTMLElement} child @param {Row} row */
    const change = (child, row) => {
      const key = keyOf(row);
      drawn.add(child);
      const isNew = this.#keys.get(child) !== key;
      this.#keys.set(child, key);
      if (isNew) this.#observe(child);
      if (isNew || !isChanged || isChanged(key)) this.#renderer.change(child, row);
    };
    updateChildren(this.#list, this.#rows.slice(from, to), keyOf, this.#renderer.make, change);
    for (const child of this.#observed) if (!drawn.has(child)) this.#forget(child);
    if (this.#isAtEnd) this.#setTop(this.#endTop());
  }

  /** The last row, if it is held. */
  get #held() {
    const last = this.#rows.at(-1);
    return last !== undefined && this.#renderer.isHeld(last) && this.#renderer.keyOf(last) !== this.#releasedKey ? last : undefined;
  }

  /** The position of the end: the last pixels, or the head of a held row that is taller than the viewport. */
  #endTop() {
    const { scrollHeight, scrollTop } = this.#scroller;
    const child = this.#held && this.#list.lastElementChild;
    if (!child) return scrollHeight;
    return Math.min(scrollHeight, scrollTop + child.getBoundingClientRect().top - this.#scroller.getBoundingClientRect().top);
  }

  /** Where the viewer is: the first row in view, and the pixels of it that are not; `undefined` at the end. */
  get position() {
    if (this.#isAtEnd) return undefined;
    const { top } = this.#scroller.getBoundingClientRect();
    const first = [...this.#list.children].find((child) => child.getBoundingClientRect().bottom > top);
    return first && { key: this.#keys.get(first) ?? "", offset: top - first.getBoundingClientRect().top };
  }

  /**
   * Scrolls to a position.
   * @param {{ key: string, offset: number }} position
   * @returns {boolean} Whether its row is there.
   */
  restore({ key, offset }) {
    const at = this.#rows.findIndex((row) => this.#renderer.keyOf(row) === key);
    if (at < 0) return false;
    this.#isAtEnd = false;
    this.#setTop(this.#sum(0, at) + offset);
    this.draw(() => false);
    const child = [...this.#list.children].find((one) => this.#keys.get(one) === key);
    if (child) this.#setTop(this.#scroller.scrollTop + child.getBoundingClientRect().top - this.#scroller.getBoundingClientRect().top + offset);
    return true;
  }

  /** @param {number} top */
  #setTop(top) {
    this.#scroller.scrollTop = top;
    // Rows are often lower than estimated. Without this, the smaller position would look like a scroll by the viewer.
    this.#lastTop = this.#scroller.scrollTop;
  }

  /** Scrolls to the end and stays there. */
  scrollToEnd() {
    this.#isAtEnd = true;
    this.draw(() => false);
  }

  /**
   * Scrolls to a row.
   * @param {string} key
   */
  scrollToRow(key) {
    const at = this.#rows.findIndex((row) => this.#renderer.keyOf(row) === key);
    if (at < 0) return;
    this.#isAtEnd = false;
    this.#scroller.scrollTop = this.#sum(0, at);
    this.draw(() => false);
    for (const child of this.#list.children) if (this.#keys.get(child) === key) child.scrollIntoView({ block: "center" });
  }

  /** Returns the range of rows to draw: first, and one past the last. */
  #range() {
    const { clientHeight } = this.#scroller;
    const overscan = Math.max(clientHeight, 400) * OVERSCAN_VIEWPORTS;
    const { length } = this.#rows;
    if (this.#isAtEnd) {
      let from = length;
      for (let height = 0; from > 0 && height < clientHeight + overscan; from -= 1) height += this.#height(from - 1);
      return [from, length];
    }
    const top = this.#scroller.scrollTop;
    let from = 0;
    let at = 0;
    while (from < length && at + this.#height(from) < top - overscan) at += this.#height(from++);
    let to = from;
    while (to < length && at < top + clientHeight + overscan) at += this.#height(to++);
    return [from, to];
  }

  /** @param {number} at */
  #height(at) {
    return this.#heights.get(this.#renderer.keyOf(this.#rows[at])) ?? ESTIMATED_ROW_PX;
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  #sum(from, to) {
    let sum = 0;
    for (let at = from; at < to; at += 1) sum += this.#height(at);
    return sum;
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    const held = this.#isAtEnd ? this.#held : undefined;
    if (held && scrollTop !== this.#lastTop && Math.abs(this.#endTop() - scrollTop) > END_TOLERANCE_PX) this.#releasedKey = this.#renderer.keyOf(held);
    // A resize of the surroundings scrolls, too; only an upward scroll leaves the end.
    if (scrollHeight - scrollTop - clientHeight < END_TOLERANCE_PX) this.#isAtEnd = true;
    else if (scrollTop < this.#lastTop) this.#isAtEnd = false;
    this.#lastTop = scrollTop;
    this.#scheduleDraw();
  }

  /** @param {Element} child */
  #observe(child) {
    this.#observed.add(child);
    this.#resizes.observe(child);
  }

  /** @param {Element} child */
  #forget(child) {
    this.#observed.delete(child);
    this.#resizes.unobserve(child);
  }

  /** @param {ResizeObserverEntry[]} entries */
  #measured(entries) {
    let hasChanged = false;
    for (const { target, borderBoxSize } of entries) {
      const key = this.#keys.get(target);
      if (key === undefined) {
        hasChanged = true;
        continue;
      }
      const height = borderBoxSize[0].blockSize;
      if (height === 0 || this.#heights.get(key) === height) continue;
      this.#heights.set(key, height);
      hasChanged = true;
    }
    if (hasChanged) this.#scheduleDraw();
  }
}
