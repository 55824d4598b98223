/**
 * The heading of the page: the title of what is open, the way back from a view over it, what is loading, and the
 * number of decisions that need the person.
 */

import { setText } from "./surfaces/base.js";
import { icon } from "./ui/icons.js";
import { html, render } from "./vendor/lit.js";

/** The titles of the main views. @type {Record<import("./route.js").MainView, string>} */
export const VIEW_TITLES = { inbox: "Needs you", transcript: "Transcript", compare: "Audiences side by side" };

/** What is loading, by the last step that is complete. @type {Record<import("./view-model.js").Step | "none", string>} */
const LOADING = {
  none: "Opening…", shell: "Loading recent messages…", window: "Loading status…", status: "Loading references…", references: "", whole: "",
};

const byId = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class Heading {
  #title = byId("title");
  #hint = byId("hydration");
  #back = byId("back");
  #needs = byId("needs-you");

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
