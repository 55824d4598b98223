/**
 * The keys of the whole page. Panels, the scrubber and cards handle their own keys first.
 *
 * The listener is on the window, after those on the document, so that a handled key is recognised as such.
 */

/** How long `g` waits for the second key, in milliseconds. */
const SEQUENCE_MS = 1500;

/**
 * @typedef {object} KeyActions
 * @property {() => void} palette
 * @property {() => void} help
 * @property {() => void} back
 * @property {(step: number) => void} move
 * @property {() => void} filter
 * @property {() => void} rail
 * @property {() => void} pane
 * @property {(name: "inbox" | "trace" | "events") => void} go
 */

/** @param {EventTarget | null} target */
const isField = (target) => target instanceof HTMLElement && target.closest("input:not([type=radio], [type=checkbox], [type=range]), select, textarea, [contenteditable]") !== null;

/** @param {KeyActions} actions */
export function listenToKeys(actions) {
  /** When `g` was pressed, in milliseconds. */
  let sequenceAt = -Infinity;
  addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (key.toLowerCase() === "k" && (event.metaKey || event.ctrlKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      return actions.palette();
    }
    if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey) return;
    // The browser closes what is open above the page; a prevented Escape would keep it open.
    if (document.querySelector("dialog[open], :popover-open")) return;
    if (isField(target)) {
      if (key === "Escape") /** @type {HTMLElement} */ (target).blur();
      return;
    }
    const isSecond = performance.now() - sequenceAt < SEQUENCE_MS;
    sequenceAt = key === "g" ? performance.now() : -Infinity;
    const destination = /** @type {const} */ ({ i: "inbox", t: "trace", e: "events" })[/** @type {"i" | "t" | "e"} */ (key)];
    /** @type {Record<string, () => void>} */
    const commands = {
      "?": actions.help, "/": actions.filter, "[": actions.rail, "]": actions.pane, Escape: actions.back,
      j: () => actions.move(1), k: () => actions.move(-1),
    };
    const run = isSecond && destination ? () => actions.go(destination) : commands[key];
    if (!run) return;
    event.preventDefault();
    run();
  });
}
