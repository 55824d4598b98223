/**
 * Splitters: they resize a part of the frame by pointer and by keyboard, and remember its width.
 */

/** @typedef {{ property: string, min: number, max: number, isAtEnd?: boolean }} Part `property`: the custom property of its width. `isAtEnd`: the part is after its splitter. */

/** Pixels of one key press. */
const STEP_PX = 16;

/**
 * Makes an element with the role `separator` resize a part.
 * @param {HTMLElement} splitter
 * @param {Part} part
 */
export function resizable(splitter, { property, min, max, isAtEnd = false }) {
  const key = `proscenium${property.replace(/^--/, ".")}`;
  const root = document.documentElement;
  const controlled = /** @type {HTMLElement} */ (document.getElementById(splitter.getAttribute("aria-controls") ?? ""));
  splitter.setAttribute("aria-valuemin", String(min));
  splitter.setAttribute("aria-valuemax", String(max));

  /** @param {number | null} width Null for the default. */
  const apply = (width) => {
    if (width === null) root.style.removeProperty(property);
    else root.style.setProperty(property, `${width}px`);
    const now = width ?? Math.round(controlled.getBoundingClientRect().width);
    splitter.setAttribute("aria-valuenow", String(Math.min(max, Math.max(min, now))));
  };
  /** @param {number | null} width */
  const set = (width) => {
    const clamped = width === null ? null : Math.min(max, Math.max(min, Math.round(width)));
    if (clamped === null) localStorage.removeItem(key);
    else localStorage.setItem(key, String(clamped));
    apply(clamped);
  };
  const direction = isAtEnd ? -1 : 1;

  splitter.addEventListener("pointerdown", (event) => {
    const startX = event.clientX;
    const startWidth = controlled.getBoundingClientRect().width;
    splitter.setPointerCapture(event.pointerId);
    event.preventDefault();
    splitter.dataset.active = "";
    const move = (/** @type {PointerEvent} */ { clientX }) => set(startWidth + direction * (clientX - startX));
    splitter.addEventListener("pointermove", move);
    splitter.addEventListener("lostpointercapture", () => {
      splitter.removeEventListener("pointermove", move);
      delete splitter.dataset.active;
    }, { once: true });
  });
  splitter.addEventListener("dblclick", () => set(null));
  splitter.addEventListener("keydown", (event) => {
    const width = controlled.getBoundingClientRect().width;
    const next = { ArrowLeft: width - direction * STEP_PX, ArrowRight: width + direction * STEP_PX, Home: min, End: max, Enter: null }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    set(next);
  });

  const stored = Number(localStorage.getItem(key));
  apply(stored >= min && stored <= max ? stored : null);
}
