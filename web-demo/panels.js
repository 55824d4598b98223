/**
 * The surfaces beside the conversation, in tabs. On a narrow screen the conversation is one of them.
 */

/** The panel that stands for the conversation, where there is room for one thing only. */
const TALK = "talk";

export class Panels {
  /** @param {() => void} changed Another panel is shown. */
  constructor(changed) {
    this.#changed = changed;
    const list = /** @type {HTMLElement} */ (document.getElementById("panels"));
    this.#tabs = [.../** @type {NodeListOf<HTMLButtonElement>} */ (list.querySelectorAll("[role=tab]"))];
    this.#shell = /** @type {HTMLElement} */ (document.querySelector(".shell"));
    for (const tab of this.#tabs) tab.addEventListener("click", () => this.show(tab.dataset.panel ?? ""));
    list.addEventListener("keydown", (event) => this.#move(event));
    this.#draw();
  }

  #changed;
  #tabs;
  #shell;
  #panel = "team";
  /** Whether the conversation is shown, where only one thing is. */
  #isTalk = true;

  /** Which one is shown beside the conversation. */
  get current() {
    return this.#panel;
  }

  /** @param {string} name */
  show(name) {
    if (!this.#tabs.some((tab) => tab.dataset.panel === name)) return;
    this.#isTalk = name === TALK;
    if (!this.#isTalk) this.#panel = name;
    this.#draw();
    this.#changed();
  }

  /**
   * Which panel stands beside the conversation; where only one thing is shown, that stays what it is.
   * @param {string} name
   */
  select(name) {
    if (name === TALK || !this.#tabs.some((tab) => tab.dataset.panel === name)) return;
    this.#panel = name;
    this.#draw();
  }

  /** Shows the conversation, where only one thing is shown. */
  toTalk() {
    this.#isTalk = true;
    this.#draw();
  }

  /** Says where there is something, and where there is nothing. */
  count() {
    for (const panel of document.querySelectorAll(".panel")) {
      const nothing = /** @type {HTMLElement | null} */ (panel.querySelector(".nothing"));
      const isFilled = [...panel.children].some((child) => child !== nothing && !(/** @type {HTMLElement} */ (child).hidden) && child.childElementCount > 0);
      if (nothing) nothing.hidden = isFilled;
      const tab = this.#tabs.find((one) => one.getAttribute("aria-controls") === panel.id);
      if (tab) tab.dataset.filled = String(isFilled);
    }
  }

  #draw() {
    this.#shell.dataset.narrow = this.#isTalk ? TALK : "side";
    for (const tab of this.#tabs) {
      const isMine = tab.dataset.panel === this.#panel;
      const isShown = this.#isNarrow ? (this.#isTalk ? tab.dataset.panel === TALK : isMine) : isMine;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
      if (tab.dataset.panel === TALK) continue;
      const panel = document.getElementById(tab.getAttribute("aria-controls") ?? "");
      if (panel) panel.hidden = !isMine;
    }
  }

  get #isNarrow() {
    return matchMedia("(max-width: 819px)").matches;
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const shown = this.#tabs.filter((tab) => tab.offsetParent !== null);
    const at = shown.findIndex((tab) => tab === document.activeElement);
    const next = shown[(at + step + shown.length) % shown.length];
    event.preventDefault();
    next?.focus();
    this.show(next?.dataset.panel ?? "");
  }
}
