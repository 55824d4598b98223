/**
 * The panels beside the conversation, as tabs. On a narrow screen the conversation is a tab, too.
 */

/** The tab of the conversation on a narrow screen. */
const CONVERSATION = "talk";

export class Panels {
  /** @param {() => void} onChange Called when another panel is shown. */
  constructor(onChange) {
    this.#onChange = onChange;
    const list = /** @type {HTMLElement} */ (document.getElementById("panels"));
    this.#tabs = [.../** @type {NodeListOf<HTMLButtonElement>} */ (list.querySelectorAll("[role=tab]"))];
    this.#shell = /** @type {HTMLElement} */ (document.querySelector(".shell"));
    for (const tab of this.#tabs) tab.addEventListener("click", () => this.show(tab.dataset.panel ?? ""));
    list.addEventListener("keydown", (event) => this.#handleKey(event));
    this.#draw();
  }

  #onChange;
  #tabs;
  #shell;
  #panel = "team";
  /** Whether a narrow screen shows the conversation. */
  #showsConversation = true;

  /** The name of the panel beside the conversation. */
  get current() {
    return this.#panel;
  }

  /** @param {string} name */
  show(name) {
    if (!this.#tabs.some((tab) => tab.dataset.panel === name)) return;
    this.#showsConversation = name === CONVERSATION;
    if (!this.#showsConversation) this.#panel = name;
    this.#draw();
    this.#onChange();
  }

  /**
   * Selects the panel beside the conversation. A narrow screen keeps showing what it shows.
   * @param {string} name
   */
  select(name) {
    if (name === CONVERSATION || !this.#tabs.some((tab) => tab.dataset.panel === name)) return;
    this.#panel = name;
    this.#draw();
  }

  /** Shows the conversation on a narrow screen. */
  showConversation() {
    this.#showsConversation = true;
    this.#draw();
  }

  /** Shows the hint of each empty panel, and marks the tabs of the others. */
  updateTabs() {
    for (const panel of document.querySelectorAll(".panel")) {
      const emptyHint = /** @type {HTMLElement | null} */ (panel.querySelector(".nothing"));
      const isFilled = [...panel.children].some((child) => child !== emptyHint && !(/** @type {HTMLElement} */ (child).hidden) && child.childElementCount > 0);
      if (emptyHint) emptyHint.hidden = isFilled;
      const tab = this.#tabs.find((one) => one.getAttribute("aria-controls") === panel.id);
      if (tab) tab.dataset.filled = String(isFilled);
    }
  }

  #draw() {
    this.#shell.dataset.narrow = this.#showsConversation ? CONVERSATION : "side";
    for (const tab of this.#tabs) {
      const isSelected = tab.dataset.panel === this.#panel;
      const isShown = this.#isNarrow ? (this.#showsConversation ? tab.dataset.panel === CONVERSATION : isSelected) : isSelected;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
      if (tab.dataset.panel === CONVERSATION) continue;
      const panel = document.getElementById(tab.getAttribute("aria-controls") ?? "");
      if (panel) panel.hidden = !isSelected;
    }
  }

  get #isNarrow() {
    return matchMedia("(max-width: 819px)").matches;
  }

  /** @param {KeyboardEvent} event */
  #handleKey(event) {
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
