/**
 * The keys of the whole page. Panels, the scrubber and cards handle their own keys first.
 *
 * The listener is on the window, after those on the document, so that a handled key is recognised as such. A key that
 * takes the focus elsewhere remembers where it was, and Escape gives it back.
 */

/** How long `g` waits for the second key, in milliseconds. */
const SEQUENCE_MS = 1500;

/**
 * @typedef {object} KeyActions
 * @property {() => void} palette
 * @property {() => void} help
 * @property {() => boolean} back Closes what is open. Returns whether a person thereby goes back to where they were.
 * @property {(step: number) => void} move
 * @property {() => void} filter
 * @property {() => void} compose
 * @property {() => void} rail
 * @property {() => void} pane
 * @property {() => void} rename
 * @property {(name: "inbox" | "runs" | "trace" | "events") => void} go
 */

/** @param {EventTarget | null} target */
const isField = (target) => target instanceof HTMLElement && target.closest("input:not([type=radio], [type=checkbox], [type=range]), select, textarea, [contenteditable]") !== null;

/** What had the focus before a key took it elsewhere. @type {Element | null} */
let origin = null;

/** @param {() => void} go Takes the focus elsewhere. */
const leaveFor = (go) => () => {
  const { activeElement } = document;
  // The way back from a second place leads to where the first one began.
  if (activeElement !== document.body && !activeElement?.closest(".view, .side")) origin = activeElement;
  go();
};

function returnFocus() {
  const place = /** @type {HTMLElement | null} */ (origin?.checkVisibility() ? origin : document.getElementById("stage"));
  origin = null;
  place?.focus({ preventScroll: true });
}

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
      if (key === "Escape") returnFocus();
      return;
    }
    const isSecond = performance.now() - sequenceAt < SEQUENCE_MS;
    sequenceAt = key === "g" ? performance.now() : -Infinity;
    const destination = /** @type {const} */ ({ i: "inbox", r: "runs", t: "trace", e: "events" })[/** @type {"i" | "r" | "t" | "e"} */ (key)];
    /** @type {Record<string, () => void>} */
    const commands = {
      "?": actions.help, "/": leaveFor(actions.filter), c: leaveFor(actions.compose), "[": actions.rail, "]": actions.pane, F2: actions.rename, Escape: () => actions.back() && returnFocus(),
      j: () => actions.move(1), k: () => actions.move(-1),
    };
    const run = isSecond && destination ? leaveFor(() => actions.go(destination)) : commands[key];
    if (!run) return;
    event.preventDefault();
    run();
  });
}
