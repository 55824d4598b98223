/**
 * The panels beside the conversation, as tabs; one of them may take the whole width.
 *
 * Below 1100 px the pane lies over the conversation, behind a button.
 */

import { setText } from "./surfaces/base.js";

/** Whether the pane lies over the conversation: the breakpoint of shell.css. */
const NARROW = matchMedia("(max-width: 1099px)");

/** The panels that count activities of a type. @type {Record<string, string>} */
const PANEL_OF = { agent: "team", task: "work", review: "work", artifact: "artifacts", diagnostics: "diagnostics", metrics: "diagnostics", state: "diagnostics" };

export class Panels {
  /** @param {() => void} onChange Called when another panel, or another width, is shown. */
  constructor(onChange) {
    this.#onChange = onChange;
    const byId = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
    const list = byId("panels");
    this.#tabs = [.../** @type {NodeListOf<HTMLButtonElement>} */ (list.querySelectorAll("[role=tab]"))];
    this.#side = byId("side");
    this.#stage = byId("stage");
    this.#expand = byId("expand");
    this.#openButton = byId("open-pane");
    for (const tab of this.#tabs) tab.addEventListener("click", () => this.show(tab.dataset.panel ?? ""));
    list.addEventListener("keydown", (event) => this.#handleKey(event));
    this.#expand.addEventListener("click", () => this.setFull(!this.#isFull));
    byId("close-pane").addEventListener("click", () => this.toggle(false));
    this.#openButton.addEventListener("click", () => this.toggle());
    NARROW.addEventListener("change", () => {
      this.#isOpen = this.#isFull || !NARROW.matches;
      this.#draw();
      this.#onChange();
    });
    this.#draw();
  }

  #onChange;
  #tabs;
  #side;
  #stage;
  #expand;
  #openButton;
  #panel = "team";
  #isOpen = !NARROW.matches;
  #isFull = false;

  /** The name of the selected panel. */
  get current() {
    return this.#panel;
  }

  /** Whether the panel takes the whole width. */
  get isFull() {
    return this.#isFull;
  }

  /** The names and labels of the panels with a tab. @returns {[string, string][]} */
  get names() {
    return this.#tabs.filter((tab) => !tab.hidden).map((tab) => [tab.dataset.panel ?? "", tab.firstChild?.textContent ?? ""]);
  }

  /** Whether a panel lies over the conversation. */
  get coversStage() {
    return this.#isOpen && (this.#isFull || NARROW.matches);
  }

  /** The label of the selected panel. */
  get label() {
    return this.#tabs.find((tab) => tab.dataset.panel === this.#panel)?.firstChild?.textContent ?? "";
  }

  /**
   * Shows a panel, and the pane if it is hidden.
   * @param {string} name
   */
  show(name) {
    if (!this.#has(name)) return;
    this.#panel = name;
    this.#isOpen = true;
    this.#draw();
    this.#onChange();
  }

  /**
   * Selects a panel. A hidden pane stays hidden.
   * @param {string} name
   */
  select(name) {
    if (!this.#has(name) || name === this.#panel) return;
    this.#panel = name;
    this.#draw();
    this.#onChange();
  }

  /** @param {boolean} isFull Whether the panel takes the whole width. */
  setFull(isFull) {
    if (isFull === this.#isFull) return;
    this.#isFull = isFull;
    if (isFull) this.#isOpen = true;
    this.#draw();
    this.#onChange();
  }

  /**
   * Shows or hides the pane.
   * @param {boolean} [isOpen] Default: the opposite.
   */
  toggle(isOpen = !this.#isOpen) {
    if (isOpen === this.#isOpen) return;
    this.#isOpen = isOpen;
    if (!isOpen) this.#isFull = false;
    const hadFocus = this.#side.contains(document.activeElement);
    this.#draw();
    this.#onChange();
    if (isOpen && NARROW.matches) this.#tabs.find((tab) => tab.tabIndex === 0)?.focus();
    else if (hadFocus) this.#openButton.focus();
  }

  /** Shows the conversation: no panel over it. */
  showConversation() {
    this.setFull(false);
    if (NARROW.matches) this.toggle(false);
  }

  /**
   * Shows the number of items of each panel in its tab. A panel with an optional tab has one only with items.
   * @param {import("./surfaces/base.js").Activity[]} activities
   */
  count(activities) {
    /** @type {Record<string, number>} */
    const counts = {};
    for (const { activityType, surface } of activities) {
      // Some tasks are the agent's own list, which the conversation shows.
      const panel = activityType === "task" && surface !== "work_board" ? undefined : (PANEL_OF[activityType] ?? (surface === "diagnostics" ? "diagnostics" : undefined));
      if (panel) counts[panel] = (counts[panel] ?? 0) + 1;
    }
    for (const tab of this.#tabs) {
      const count = counts[tab.dataset.panel ?? ""] ?? 0;
      tab.dataset.filled = String(count > 0);
      if (tab.dataset.panel === "diagnostics") tab.hidden = count === 0 && this.#panel !== "diagnostics";
      const label = tab.querySelector("i") ?? tab.appendChild(document.createElement("i"));
      setText(label, count > 0 ? String(count) : "");
    }
    for (const panel of document.querySelectorAll(".panel")) {
      const emptyHint = /** @type {HTMLElement | null} */ (panel.querySelector(".nothing"));
      if (emptyHint) emptyHint.hidden = [...panel.children].some((child) => child !== emptyHint && !(/** @type {HTMLElement} */ (child).hidden) && child.childElementCount > 0);
    }
  }

  /** @param {string} name */
  #has(name) {
    return this.#tabs.some((tab) => tab.dataset.panel === name);
  }

  #draw() {
    const { body } = document;
    body.dataset.panel = this.#panel;
    body.dataset.pane = this.#isOpen ? "open" : "hidden";
    if (this.#isFull) body.dataset.full = "";
    else delete body.dataset.full;
    this.#side.hidden = !this.#isOpen;
    // What lies under a panel is out of reach.
    this.#stage.inert = this.coversStage;
    this.#expand.setAttribute("aria-pressed", String(this.#isFull));
    this.#openButton.setAttribute("aria-expanded", String(this.#isOpen));
    for (const tab of this.#tabs) {
      const isSelected = tab.dataset.panel === this.#panel;
      if (isSelected) {
        tab.hidden = false;
        const list = /** @type {HTMLElement} */ (tab.parentElement);
        const { left, right } = tab.getBoundingClientRect();
        const box = list.getBoundingClientRect();
        // Not `scrollIntoView`: it would move the start of the tab order here.
        list.scrollLeft += Math.max(0, right - box.right) - Math.max(0, box.left - left);
      }
      tab.setAttribute("aria-selected", String(isSelected));
      tab.tabIndex = isSelected ? 0 : -1;
      const panel = document.getElementById(tab.getAttribute("aria-controls") ?? "");
      if (panel) panel.hidden = !isSelected;
    }
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
