/**
 * One stop of the Tab key for each group of buttons; the arrow keys move within it. The way to the composer is then as
 * short with three hundred sessions as with one.
 *
 * The stops are set at the key: surfaces draw their buttons again at any time.
 */

/** The groups: what they are in, their members, and the member that is the stop at first. @type {[string, string, string?][]} */
const GROUPS = [
  [".header", "button:not([popover] *)"],
  [".rail", ".rail-view, #new-session"],
  [".filters", "button"],
  [".rail-list", "button", "[aria-current]"],
  // Decisions and fields keep their own stops.
  [".conversation .scroller", ".scroller, .scroller :is(button, summary, a, [tabindex]):not(.ask *, form *, pre)"],
  [".deck", "button:not(ps-composer *), summary"],
];

/** The members that had the focus last, by group. @type {Map<string, HTMLElement>} */
const last = new Map();

/** @param {[string, string, string?]} group @returns {HTMLElement[]} Its members on display. */
const membersOf = ([root, members]) => [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(`${root} :is(${members}), ${root}:is(${members})`))].filter((one) => one.checkVisibility({ visibilityProperty: true }));

/** @param {[string, string, string?]} group */
function setStop(group) {
  const members = membersOf(group);
  const known = /** @type {HTMLElement} */ (last.get(group[0]));
  const stop = members.includes(known) ? known : (members.find((one) => group[2] && one.matches(group[2])) ?? members[0]);
  for (const one of members) one.tabIndex = one === stop ? 0 : -1;
}

/** @param {KeyboardEvent} event */
function move(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const target = /** @type {HTMLElement} */ (event.target);
  if (step === undefined || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || target.matches("input, textarea, select, [role=tab]")) return;
  const members = GROUPS.map(membersOf).find((all) => all.includes(target));
  if (!members) return;
  event.preventDefault();
  members[Math.min(members.length - 1, Math.max(0, members.indexOf(target) + step))].focus();
}

/** Begins to listen. */
export function roveTabs() {
  addEventListener("keydown", (event) => event.key === "Tab" && GROUPS.forEach(setStop), true);
  addEventListener("keydown", move);
  addEventListener("focusin", ({ target }) => {
    for (const [root, members] of GROUPS) if (target instanceof HTMLElement && target.closest(root) && target.matches(members)) last.set(root, target);
  });
}
