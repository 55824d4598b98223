/**
 * A long list of which only what is near the viewport is in the document.
 *
 * Rows have the heights that they have: those that were drawn are measured, the others guessed. Whoever stands at the end stays
 * there while rows come; everywhere else the browser's scroll anchoring keeps what is looked at in its place.
 */

import { element, keyed, onceAFrame } from "./base.js";

/** The height of a row that was never drawn, in pixels. */
const GUESS_PX = 96;
/** How much beyond the viewport is drawn, in viewports, above and below. */
const BEYOND = 1;
/** How close to the end counts as at it, in pixels. */
const END_PX = 24;

/**
 * @template Row
 * @typedef {object} Rows
 * @property {(row: Row) => string} keyOf
 * @property {(row: Row) => HTMLElement} make
 * @property {(child: HTMLElement, row: Row) => void} change
 */

/** @template Row */
export class Windowed {
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
  #how;
  #later = onceAFrame(() => this.draw(() => false));
  #isAtEnd = true;
  #lastTop = 0;
  #resizes = new ResizeObserver((entries) => this.#measured(entries));

  /**
   * @param {HTMLElement} scroller What scrolls; its content is this object's.
   * @param {Rows<Row>} how
   */
  constructor(scroller, how) {
    this.#scroller = scroller;
    this.#how = how;
    scroller.append(this.#above, this.#list, this.#below);
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#resizes.observe(scroller);
  }

  /** Whether it stays at its end while rows come. */
  get isAtEnd() {
    return this.#isAtEnd;
  }

  /** Ends what it observes. */
  close() {
    this.#resizes.disconnect();
  }

  /** @param {Row[]} rows */
  set(rows) {
    this.#rows = rows;
  }

  /**
   * Draws what is near the viewport.
   * @param {((key: string) => boolean) | null} isChanged Which rows to draw again; null for all. New ones always are.
   */
  draw(isChanged) {
    const { keyOf } = this.#how;
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
      if (isNew || !isChanged || isChanged(key)) this.#how.change(child, row);
    };
    keyed(this.#list, this.#rows.slice(from, to), keyOf, this.#how.make, change);
    for (const child of this.#observed) if (!drawn.has(child)) this.#forget(child);
    if (this.#isAtEnd) this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }

  /** Goes to the end, and stays there. */
  toEnd() {
    this.#isAtEnd = true;
    this.draw(() => false);
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }

  /**
   * Goes to a row.
   * @param {string} key
   */
  to(key) {
    const at = this.#rows.findIndex((row) => this.#how.keyOf(row) === key);
    if (at < 0) return;
    this.#isAtEnd = false;
    this.#scroller.scrollTop = this.#sum(0, at);
    this.draw(() => false);
    for (const child of this.#list.children) if (this.#keys.get(child) === key) child.scrollIntoView({ block: "center" });
  }

  /** From which row to before which is drawn. */
  #range() {
    const { clientHeight } = this.#scroller;
    const beyond = Math.max(clientHeight, 400) * BEYOND;
    const { length } = this.#rows;
    if (this.#isAtEnd) {
      let from = length;
      for (let height = 0; from > 0 && height < clientHeight + beyond; from -= 1) height += this.#height(from - 1);
      return [from, length];
    }
    const top = this.#scroller.scrollTop;
    let from = 0;
    let at = 0;
    while (from < length && at + this.#height(from) < top - beyond) at += this.#height(from++);
    let to = from;
    while (to < length && at < top + clientHeight + beyond) at += this.#height(to++);
    return [from, to];
  }

  /** @param {number} at */
  #height(at) {
    return this.#heights.get(this.#how.keyOf(this.#rows[at])) ?? GUESS_PX;
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
    // What is around the list may take room from it: only who moves up leaves its end.
    if (scrollHeight - scrollTop - clientHeight < END_PX) this.#isAtEnd = true;
    else if (scrollTop < this.#lastTop) this.#isAtEnd = false;
    this.#lastTop = scrollTop;
    this.#later();
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
    let isOther = false;
    for (const { target, borderBoxSize } of entries) {
      const key = this.#keys.get(target);
      if (key === undefined) {
        isOther = true;
        continue;
      }
      const height = borderBoxSize[0].blockSize;
      if (height === 0 || this.#heights.get(key) === height) continue;
      this.#heights.set(key, height);
      isOther = true;
    }
    if (isOther) this.#later();
  }
}
