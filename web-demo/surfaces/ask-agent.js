/**
 * A question to the agent that waits for a decision. It decides nothing: the agent gets a message by the control that
 * the page uses for messages to a teammate, or, if the source names no agent, by steering the run.
 */

import { element, focusedBeside, toText } from "./base.js";
import { controlButton } from "./control-button.js";
import { t } from "../ui/texts.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {import("./action.js").Action} Action */

/** The maximum length of a question, in characters. */
const QUESTION_CHARS_MAX = 4000;

export class AskAgent {
  #card;
  /** Whether the field is there. */
  isOpen = false;
  #feedback = element("p", "asked");
  #text = element("textarea");
  #send;

  /** @param {Action} card The card of the decision. */
  constructor(card) {
    this.#card = card;
    this.#text.rows = 2;
    this.#text.maxLength = QUESTION_CHARS_MAX;
    this.#feedback.setAttribute("role", "status");
    this.#send = controlButton(t("Send question"), () => card.view, () => this.#control(), {
      feedback: this.#feedback,
      sent: () => {
        this.#text.value = "";
        this.#close();
      },
    });
    this.#send.dataset.does = "ask";
  }

  /** @returns {import("./base.js").Control | null} Null without a text. */
  #control() {
    const { activity, content } = this.#card;
    const text = this.#text.value.trim();
    if (text === "") {
      this.#text.focus();
      return null;
    }
    const agentId = content.agentId === undefined ? undefined : toText(content.agentId);
    return { run: activity.runId, ...(agentId ? { control: "continue_agent", agentId } : { control: "steer" }), value: { text, actionId: activity.activityId } };
  }

  /** Shows the field. */
  open() {
    this.isOpen = true;
    this.#card.draw();
    this.#text.focus();
  }

  #close() {
    const hadFocus = this.#card.contains(focusedBeside(this.#card));
    this.isOpen = false;
    this.#card.draw();
    if (hadFocus) /** @type {HTMLElement | null} */ (this.#card.querySelector("[data-does=open-question]"))?.focus();
  }

  /** The field, and what became of the last question. @param {string} name The agent's name. */
  form(name) {
    const handleKey = (/** @type {KeyboardEvent} */ event) => {
      const isSend = event.key === "Enter" && (event.ctrlKey || event.metaKey);
      if (event.key !== "Escape" && !isSend) return;
      event.preventDefault();
      event.stopPropagation();
      if (isSend) this.#send.click();
      else this.#close();
    };
    if (!this.#card.canAsk) this.isOpen = false;
    const field = html`<div class="question" @keydown=${handleKey}><label class="field"><span>${t("Question for {name}. It decides nothing.", { name: name || t("the agent") })}</span>${this.#text}</label>
      <div class="row">${this.#send}<button type="button" class="button" data-kind="quiet" @click=${() => this.#close()}>${t("Cancel")}</button></div></div>`;
    return html`${this.isOpen ? field : nothing}${this.#feedback}`;
  }
}
