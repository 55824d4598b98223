/**
 * What waits for somebody's decision: who asks, for what, at what risk, and the controls that answer it.
 *
 * An answer settles nothing here. It goes to the runtime that asked; until that says otherwise the card stays pending and says
 * that an answer is on its way.
 */

import { badge, define, duration, element, inspectButton, mark, say, spoken, stateOf, words } from "./base.js";
import { Card, agentName } from "./card.js";
import { choiceOf, formOf } from "./form.js";
import { POLL_MS, TAKEN_MS, fates, isLost } from "./handed.js";
import { inputSummary, pretty } from "./tool.js";

/** How often the time that is left is said anew, in milliseconds. */
const TICK_MS = 1000;

/** What is asked, as a title. @type {Record<string, string>} */
const TITLES = {
  tool_approval: "May this tool run?",
  plan_decision: "Is this plan right?",
  teammate_plan_decision: "A teammate's plan",
  structured_input: "Some details are needed",
  clarification: "A question",
  permission_grant: "A permission is asked for",
  delegated_permission: "A teammate asks for a permission",
  credential_request: "A credential is needed",
  artifact_review: "Please review",
};

/** Kinds that want an answer; the others are approved or rejected. */
const QUESTIONS = new Set(["structured_input", "clarification", "credential_request"]);
/** Kinds where one may say what should be different. */
const EDITED = new Set(["plan_decision", "teammate_plan_decision", "artifact_review"]);
/** Kinds that a teammate asks, so that who asks is always said. */
const DELEGATED = new Set(["teammate_plan_decision", "delegated_permission"]);

const RISKS = new Map([["low", "idle"], ["medium", "warning"], ["moderate", "warning"], ["high", "failed"], ["critical", "failed"]]);

/** @typedef {{ label: string, control: string, kind?: "primary" | "danger" | "quiet", value: () => import("./form.js").Answer }} Choice */

export class Action extends Card {
  #title = element("h3", "card-title");
  #badge = element("span");
  #risk = element("span", "chip");
  #who = element("p", "who");
  #message = element("p", "message");
  #facts = element("dl", "facts");
  #input = element("pre", "preview");
  #form = element("form", "stack ask");
  #told = element("p", "note told");
  #expiry = element("p", "hint expiry");
  /** What of the activity the form was made of: it is made anew only when the question is another. */
  #asked = "";
  #isSending = false;
  /** This page's own answer, which the server has, and of which the picture may not tell. @type {import("./base.js").Handed & { question: string, at: number } | undefined} */
  #given;
  /** The question to which, as the picture said last, an answer is on its way. */
  #submitted = "";
  /** The question whose answer was not taken. */
  #refused = "";
  /** Why an answer to a question was not handed over. @type {{ state: string, text: string, question: string } | undefined} */
  #problem;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #ticking;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #asking;

  build() {
    this.classList.add("card");
    const head = element("div", "card-head");
    const marks = element("span", "row");
    marks.append(this.#risk, this.#badge, inspectButton(() => this.view, () => this.activity));
    head.append(this.#title, marks);
    this.#input.tabIndex = 0;
    this.#input.setAttribute("aria-label", "What is to be allowed");
    this.#form.noValidate = true;
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    this.#told.setAttribute("role", "status");
    this.append(head, this.#who, this.#message, this.#facts, this.#input, this.#form, this.#told, this.#expiry);
  }

  disconnectedCallback() {
    this.#stopTicking();
    clearTimeout(this.#asking);
    this.#asking = undefined;
  }

  #stopTicking() {
    clearInterval(this.#ticking);
    this.#ticking = undefined;
  }

  draw() {
    const content = this.content;
    const isPending = content.status === "pending";
    this.#follow(isPending);
    const status = isPending ? (this.#isOnItsWay ? "submitted" : "pending") : content.status === "resolved" ? (content.outcome ?? "resolved") : content.status;
    this.dataset.status = words(content.status);
    this.dataset.kind = words(content.kind);
    this.dataset.state = stateOf(isPending ? "pending" : status);
    say(this.#title, TITLES[content.kind] ?? "A decision is needed");
    mark(this.#badge, isPending ? "pending" : status, isPending ? (this.#isOnItsWay ? "answer submitted" : "waits for you") : spoken(status));
    this.#risk.hidden = content.risk === undefined;
    this.#risk.dataset.state = RISKS.get(words(content.risk).toLowerCase()) ?? "unknown";
    say(this.#risk, `${words(content.risk)} risk`);
    this.#drawWho();
    this.#message.hidden = content.message === undefined;
    say(this.#message, words(content.message));
    this.#drawFacts();
    this.#drawForm(isPending);
    this.#drawTold(isPending);
    this.#drawExpiry();
  }

  /** What is asked: asked anew in other words it is another question. */
  get #wording() {
    const { kind, message, schema, options } = this.content;
    return JSON.stringify([kind, message, schema, options]);
  }

  get #isOnItsWay() {
    return this.#isSending || this.#given !== undefined || this.#submitted !== "";
  }

  /**
   * An answer that was on its way and is so no more, while the same question still waits, was not taken: it can be answered again.
   * @param {boolean} isPending
   */
  #follow(isPending) {
    const question = this.#wording;
    const submitted = isPending && this.content.control === "submitted" ? question : "";
    const isOver = this.#submitted !== "" && submitted === "";
    if (!isPending || submitted !== "") this.#refused = "";
    else if (isOver) this.#refused = this.#submitted;
    if (!isPending || isOver || this.#given?.question !== question) this.#given = undefined;
    this.#submitted = submitted;
    this.#askLater();
  }

  /** What this page gave and the picture does not tell of is asked after: it may have been refused before the picture was drawn. */
  #askLater() {
    const isUntold = this.#given !== undefined && this.#submitted === "" && this.view.isLive;
    if (isUntold) this.#asking ??= setTimeout(() => this.#ask(), POLL_MS);
  }

  async #ask() {
    const given = this.#given;
    try {
      const told = given && (await fates(this.view, given.list));
      if (given === this.#given && this.#submitted === "") this.#settle(given && told?.get(given.controlId)?.status);
    } catch {
      // The server is away; the connection bar says so. What is not known stays as it was last told.
    }
    this.#asking = undefined;
    if (this.isConnected) this.draw();
  }

  /** @param {string | undefined} status What became of the answer; nothing, if the server has forgotten it, as it does when it has long been over. */
  #settle(status) {
    if (!this.#given) return;
    const { at, question } = this.#given;
    if (isLost(status)) this.#refused = question;
    // What was taken and is not on its way any more was answered by facts, which this picture has or will have.
    const isOver = status === undefined || isLost(status) || (status === "acked" && this.view.now() - at > TAKEN_MS);
    if (isOver) this.#given = undefined;
  }

  /** Who asks is a fact, and is said whenever there is one; of a delegated question it is said that it is unknown, if it is. */
  #drawWho() {
    const { agentId, kind, parentRouting } = this.content;
    this.#who.hidden = agentId === undefined && !DELEGATED.has(kind);
    if (this.#who.hidden) return;
    const name = agentId === undefined ? "a teammate that nobody named" : this.nameOf(words(agentId));
    const id = agentId !== undefined && name !== agentId ? ` (${words(agentId)})` : "";
    say(this.#who, `Asked by ${name}${id}${parentRouting === undefined ? "" : `, by way of ${words(parentRouting)}`}`);
    if (agentId !== undefined) this.#who.dataset.agent = words(agentId);
  }

  #drawFacts() {
    const { kind, policyScope, taskId, toolCallId, input, safeInput, outcome, value, status } = this.content;
    const tool = toolCallId === undefined ? undefined : this.beside("tool-call-progress", words(toolCallId));
    const toolName = words(/** @type {any} */ (tool?.content)?.tool_name);
    /** @type {[string, string][]} */
    const facts = [];
    if (toolCallId !== undefined) facts.push(["Tool", toolName || "unknown"]);
    if (kind === "unknown" || TITLES[kind] === undefined) facts.push(["Kind", spoken(kind)]);
    if (policyScope !== undefined) facts.push(["Scope", spoken(policyScope)]);
    if (taskId !== undefined) facts.push(["Task", words(taskId)]);
    if (status === "resolved") facts.push(["Outcome", spoken(outcome)]);
    // What answered a credential request is a secret, whoever put it there.
    if (value !== undefined && kind !== "credential_request") facts.push(["Answer", inputSummary(value)]);
    const rows = facts.flatMap(([name, said]) => [element("dt", "", name), element("dd", "", said)]);
    if (this.#facts.textContent !== facts.flat().join("")) this.#facts.replaceChildren(...rows);
    this.#facts.hidden = facts.length === 0;
    const shown = safeInput ?? input;
    this.#input.hidden = shown === undefined || status !== "pending";
    say(this.#input, pretty(shown));
  }

  /** @param {boolean} isPending */
  #drawForm(isPending) {
    const isAskable = isPending && this.view.isLive;
    this.#form.hidden = !isAskable;
    if (!isAskable) {
      this.#asked = "";
      this.#form.replaceChildren();
      return;
    }
    const { kind, schema, options } = this.content;
    const asked = JSON.stringify([kind, schema, options]);
    // A form that somebody is filling in must not be taken away by a change of something else.
    if (asked !== this.#asked) {
      this.#asked = asked;
      this.#form.replaceChildren(...this.#fields());
    }
    const isDisabled = this.#isOnItsWay || this.#isExpired;
    for (const control of this.#form.elements) /** @type {HTMLButtonElement} */ (control).disabled = isDisabled;
  }

  #fields() {
    const { kind, schema, options, input, safeInput } = this.content;
    const isQuestion = QUESTIONS.has(kind);
    const choices = Array.isArray(options) && options.length > 0 ? choiceOf(isQuestion ? "Your answer" : "For how long, or how", options) : undefined;
    const row = element("div", "row");
    const fields = [];
    /** @type {() => import("./form.js").Answer} */
    const nothing = () => ({});
    if (isQuestion) {
      const ask = choices && schema === undefined ? choices : this.#question(kind, schema);
      fields.push(ask.root);
      row.append(this.#button("Send answer", "answer", ask.read, "primary"), this.#button("Decline", "reject", nothing, "danger"));
    } else {
      const form = schema === undefined ? undefined : formOf(schema);
      if (choices) fields.push(choices.root);
      if (form) fields.push(form.root);
      const read = (choices ?? form)?.read ?? nothing;
      row.append(this.#button("Approve", "approve", choices && form ? both(choices, form) : read, "primary"), this.#button("Reject", "reject", nothing, "danger"));
      if (EDITED.has(kind)) fields.push(this.#edit("What should be different?", "Request changes", (text) => ({ value: text })));
      else if ((input ?? safeInput) !== undefined && kind === "tool_approval" && input !== undefined) fields.push(this.#editInput(input));
    }
    fields.push(row);
    return fields;
  }

  /**
   * @param {string} kind
   * @param {unknown} schema
   */
  #question(kind, schema) {
    if (kind === "credential_request") return formOf({ title: "The credential. It goes to whoever asked for it, and is kept nowhere else.", type: "string", format: "password" });
    return formOf(schema ?? { title: "Your answer", type: "string", format: "textarea" });
  }

  /**
   * Words that say what should be different, behind a summary.
   * @param {string} title
   * @param {string} label
   * @param {(text: string) => import("./form.js").Answer} valueOf
   * @param {string} [text] What stands there to begin with.
   */
  #edit(title, label, valueOf, text = "") {
    const root = element("details", "stack edit");
    const field = element("label", "field");
    const control = element("textarea");
    control.rows = 3;
    control.value = text;
    field.append(element("span", "", title), control);
    const read = () => (control.value.trim() === "" ? { problem: "Say what should be different.", field: control } : valueOf(control.value));
    root.append(element("summary", "", label), field, this.#button(label, "edit", read));
    return root;
  }

  /** @param {unknown} input */
  #editInput(input) {
    return this.#edit("The input, as JSON", "Edit the input", (text) => {
      try {
        return { value: JSON.parse(text) };
      } catch {
        return { problem: "The input is not JSON." };
      }
    }, pretty(input));
  }

  /**
   * @param {string} label
   * @param {string} control
   * @param {() => import("./form.js").Answer} read
   * @param {"primary" | "danger" | "quiet"} [kind]
   */
  #button(label, control, read, kind) {
    const button = element("button", "button", label);
    button.type = "button";
    button.dataset.control = control;
    if (kind) button.dataset.kind = kind;
    button.addEventListener("click", () => this.#send(control, read()));
    return button;
  }

  /**
   * @param {string} control
   * @param {import("./form.js").Answer} answer
   */
  async #send(control, answer) {
    if (this.#isOnItsWay) return;
    if (answer.problem) {
      this.#problem = { state: "warning", text: answer.problem, question: this.#wording };
      this.draw();
      answer.field?.focus();
      return;
    }
    const question = this.#wording;
    this.#isSending = true;
    this.#problem = undefined;
    this.draw();
    try {
      const { runId, sessionId, activityId } = this.activity;
      const wanted = { control, ...(runId ? { run: runId } : { session: sessionId }), actionId: activityId, ...(answer.value === undefined ? {} : { value: answer.value }) };
      this.#given = { ...(await this.view.act(wanted)), question, at: this.view.now() };
    } catch (why) {
      this.#problem = { state: "failed", text: `Not submitted: ${why instanceof Error ? why.message : why}`, question };
    }
    this.#isSending = false;
    this.draw();
  }

  /** @param {boolean} isPending */
  #drawTold(isPending) {
    const [state, text] = this.#state(isPending);
    this.#told.dataset.state = state;
    say(this.#told, text);
    this.#told.hidden = text === "";
  }

  /**
   * What there is to say of its answer, and in which state that is.
   * @param {boolean} isPending
   */
  #state(isPending) {
    const question = this.#wording;
    if (this.content.status === "interrupted") return ["warning", "The run ended before it was decided."];
    if (!isPending) return ["", ""];
    if (!this.view.isLive) return ["stale", "This is how it stood then. Only what is now can be answered."];
    if (this.#isSending) return ["running", "Submitting your answer …"];
    if (this.#isOnItsWay) return ["waiting", "Submitted. It is not decided until the runtime confirms it."];
    if (this.#problem?.question === question) return [this.#problem.state, this.#problem.text];
    if (this.#refused === question) return ["warning", "The answer was not taken. It still waits for one."];
    return ["", ""];
  }

  get #isExpired() {
    const until = Date.parse(words(this.content.expiresAt));
    return Number.isFinite(until) && until <= this.view.now();
  }

  #drawExpiry() {
    const until = Date.parse(words(this.content.expiresAt));
    const isCounting = this.content.status === "pending" && Number.isFinite(until);
    this.#expiry.hidden = !isCounting;
    if (!isCounting) return this.#stopTicking();
    const left = until - this.view.now();
    say(this.#expiry, left > 0 ? `Can be answered for another ${duration(Math.ceil(left / 1000) * 1000)}.` : "The time to answer it is over. What becomes of it is for the runtime to say.");
    if (left <= 0) {
      for (const control of this.#form.elements) /** @type {HTMLButtonElement} */ (control).disabled = true;
      return this.#stopTicking();
    }
    this.#ticking ??= setInterval(() => this.#drawExpiry(), TICK_MS);
  }
}

define("ps-action", Action);

/**
 * A choice and a form at once: `{ option, …what the form gives }`.
 * @param {import("./form.js").Field} choice
 * @param {import("./form.js").Field} form
 */
function both(choice, form) {
  return () => {
    const [option, value] = [choice.read(), form.read()];
    if (option.problem || value.problem) return option.problem ? option : value;
    return { value: { option: option.value, ...(typeof value.value === "object" ? value.value : { value: value.value }) } };
  };
}

/**
 * One line for a decision that is over, or waits elsewhere.
 * @param {import("./base.js").View} view
 * @param {import("./base.js").Activity} activity
 */
export function decided(view, activity) {
  const content = /** @type {Record<string, any>} */ (activity.content);
  const row = element("span", "row");
  row.append(badge(content.outcome ?? content.status), element("span", "", TITLES[content.kind] ?? spoken(content.kind)));
  if (content.agentId) row.append(element("span", "hint", agentName(view, activity, words(content.agentId))));
  return row;
}
