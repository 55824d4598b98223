/**
 * The heading of the page: the title of what is open with its menu, the way back from a view over it, what is loading,
 * and the number of decisions that need the person.
 */

import { opened } from "./dialogs.js";
import { TITLE_ORIGINS } from "./session-list.js";
import { setText } from "./surfaces/base.js";
import { icon } from "./ui/icons.js";
import { html, nothing, render } from "./vendor/lit.js";

/** @typedef {import("./session-entry.js").Entry} Entry */

/** The titles of the main views. @type {Record<import("./route.js").MainView, string>} */
export const VIEW_TITLES = { inbox: "Needs you", runs: "Runs", transcript: "Transcript", compare: "Audiences side by side" };

/** What is loading, by the last step that is complete. @type {Record<import("./view-model.js").Step | "none", string>} */
const LOADING = {
  none: "Opening…", shell: "Loading recent messages…", window: "Loading status…", status: "Loading references…", references: "", whole: "",
};

const byId = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class Heading {
  /** @param {import("./actions.js").Actions} actions */
  constructor(actions) {
    this.#actions = actions;
    this.#title.addEventListener("dblclick", () => this.rename());
  }

  #actions;
  #title = byId("title");
  #menu = byId("title-actions");
  #hint = byId("hydration");
  #back = byId("back");
  #needs = byId("needs-you");
  /** @type {import("./title-field.js").TitleField | undefined} */
  #field;
  /** The session or run whose title stands here. @type {Entry | undefined} */
  #entry;

  /**
   * @param {string} title Of what is open; empty if nothing is.
   * @param {string} over The title of the view over it; empty for none.
   * @param {string} empty The title without both.
   */
  show(title, over, empty) {
    this.#back.hidden = over === "" || title === "";
    render(html`${icon("back")}<span class="crumb-text truncate">${title}</span>${icon("chevron-right")}`, this.#back);
    this.#back.setAttribute("aria-label", `Back to ${title}`);
    setText(this.#title, over || title || empty);
  }

  /** Offers what a person can do to what is open. @param {Entry | undefined} entry `undefined`: nothing. */
  showActions(entry) {
    this.#entry = entry;
    if (this.#field?.key && this.#field.key !== entry?.key) this.#field.cancel();
    else this.#drawActions();
  }

  get canRename() {
    return this.#entry !== undefined && this.#actions.canRename(this.#entry);
  }

  /** Begins to rename what is open, if the token permits it. */
  rename() {
    const entry = this.#entry;
    if (!entry || !this.canRename) return;
    void opened("The field", async () => {
      const actions = await this.#actions.load();
      this.#field ??= actions.field("heading-title", () => this.#drawActions(), () => document.getElementById("title-menu")?.focus());
      this.#field.begin(entry);
    });
  }

  #drawActions() {
    const entry = this.#entry;
    const field = this.#field?.key ? this.#field : undefined;
    this.#title.hidden = field !== undefined;
    this.#title.title = entry ? [entry.title, TITLE_ORIGINS[entry.titleFrom], this.canRename ? "Double-click or F2 renames it" : ""].filter(Boolean).join(" · ") : "";
    const open = (/** @type {Event} */ { currentTarget }) => void opened("The menu", async () => {
      const actions = await this.#actions.load();
      if (this.#entry) actions.openMenu(this.#entry, () => this.rename(), /** @type {HTMLElement} */ (currentTarget));
    });
    render(field ? field.template() : entry ? html`
      ${entry.isArchived ? html`<span class="tag">Archived</span>` : nothing}
      <button type="button" class="button small icon-button" data-kind="quiet" id="title-menu" aria-label="Actions for this ${entry.kind}" title="Actions" aria-haspopup="menu" aria-expanded="false" @click=${open}>${icon("more")}</button>` : nothing, this.#menu);
  }

  /** @param {import("./view-model.js").Step | "none"} step */
  showLoading(step) {
    setText(this.#hint, LOADING[step]);
  }

  /** Says how many decisions the inbox holds. @param {import("./pending.js").PendingItem[]} items */
  showDecisions(items) {
    const sessions = new Set(items.map(({ entry }) => entry.id)).size;
    setText(this.#hint, `${items.length} ${items.length === 1 ? "decision" : "decisions"} in ${sessions} ${sessions === 1 ? "session" : "sessions"}`);
  }

  /** Draws the button that opens the inbox. @param {number} count */
  showNeeds(count) {
    this.#needs.hidden = count === 0;
    render(html`${icon("inbox")}<span>${count}</span><span class="needs-word">${count === 1 ? "needs you" : "need you"}</span>`, this.#needs);
  }
}
