/**
 * A pending decision: who asks, for what, at what risk and scope, what is reviewed, and the controls that answer it.
 *
 * An answer settles nothing here. It goes to the runtime that asked. Until that runtime reports a result, the card stays pending
 * and says that an answer is on its way. What the source did not state is shown as not stated.
 */

import { badge, define, duration, element, inspectButton, mark, say, spoken, stateOf, words } from "./base.js";
import { Card, agentName } from "./card.js";
import { QUESTIONS, contradicts, isApproval, optionOf } from "./decision.js";
import { choiceOf, formOf } from "./form.js";
import { POLL_MS, TAKEN_MS, fates, isLost } from "./handed.js";
import { phrase } from "./lane.js";
import { Reviewed } from "./reviewed.js";
import { inputSummary, pretty } from "./tool.js";

/** How often the time that is left is said anew, in milliseconds. */
const TICK_MS = 1000;
/** From this on a date says more than a number of hours. */
const DAY_MS = 24 * 3_600_000;

/** What is asked, as a title. @type {Record<string, string>} */
const TITLES = {
  tool_approval: "Approve this tool call?",
  plan_decision: "Approve this plan?",
  teammate_plan_decision: "Approve this teammate's plan?",
  structured_input: "Input needed",
  clarification: "Question",
  permission_grant: "Grant this permission?",
  delegated_permission: "Grant this permission to a teammate?",
  credential_request: "Credential needed",
  artifact_review: "Review this artifact",
};

/** Said in the place of a fact that the source left out. */
export const NOT_STATED = "not stated";
/** Kinds whose answer may ask for a change. */
const EDITED = new Set(["plan_decision", "teammate_plan_decision", "artifact_review"]);
/** Kinds that a teammate asks, so that the card always says who asks. */
const DELEGATED = new Set(["teammate_plan_decision", "delegated_permission"]);
/** Kinds that allow something to run, so that tool, arguments, risk and scope each have a line, known or not. */
const PERMISSIONS = new Set(["tool_approval", "permission_grant", "delegated_permission"]);
/** The guard's mark in the place of a secret. Arguments that hold it are not the real ones, so they cannot be edited. */
const REDACTED = "[redacted]";

const RISKS = new Map([["low", "idle"], ["medium", "warning"], ["moderate", "warning"], ["high", "failed"], ["critical", "failed"]]);

/** @typedef {{ label: string, control: string, kind?: "primary" | "danger" | "quiet", value: () => import("./form.js").Answer }} Choice */

export class Action extends Card {
  #title = element("h3", "card-title");
  #badge = element("span");
  #risk = element("span", "chip");
  #who = element("p", "who");
  #message = element("p", "message");
  #description = element("p", "hint description");
  #facts = element("dl", "facts");
  #inputLabel = element("p", "label", "Arguments");
  #input = element("pre", "preview");
  #reviewed = new Reviewed();
  #payloadLabel = element("p", "label", "Details from the source");
  #payload = element("pre", "preview");
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
    for (const [scrolled, label] of /** @type {[HTMLElement, string][]} */ ([[this.#input, "Arguments"], [this.#payload, "Details from the source"]])) {
      scrolled.tabIndex = 0;
      scrolled.setAttribute("role", "group");
      scrolled.setAttribute("aria-label", label);
    }
    this.#form.noValidate = true;
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    this.#told.setAttribute("role", "status");
    this.append(head, this.#who, this.#message, this.#description, this.#facts, this.#inputLabel, this.#input, this.#reviewed.root, this.#payloadLabel, this.#payload, this.#form, this.#told, this.#expiry);
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
    say(this.#title, phrase(content.title) || this.#heading);
    mark(this.#badge, isPending ? "pending" : status, isPending ? (this.#isOnItsWay ? "answer submitted" : isApproval(content) ? "Needs approval" : "Waiting for input") : spoken(status));
    this.#risk.hidden = content.risk === undefined;
    const risk = phrase(content.risk?.level ?? content.risk);
    this.#risk.dataset.state = RISKS.get(risk.toLowerCase()) ?? "unknown";
    say(this.#risk, `${risk} risk`);
    this.#drawWho();
    this.#message.hidden = content.message === undefined || content.message === content.title;
    say(this.#message, words(content.message));
    this.#description.hidden = content.description === undefined;
    say(this.#description, phrase(content.description));
    this.#drawFacts();
    this.#drawInput(isPending);
    this.#reviewed.show(this.view, this.activity, isPending);
    this.#drawForm(isPending);
    this.#drawTold(isPending);
    this.#drawExpiry();
  }

  /** What it is called where the source gives no title. */
  get #heading() {
    const { kind, toolCallId } = this.content;
    if (QUESTIONS.has(kind) && isApproval(this.content)) return toolCallId === undefined ? "Approve?" : TITLES.tool_approval;
    return TITLES[kind] ?? "Decision needed";
  }

  /** Whether something is allowed to run, so that what a person needs to decide has a line, known or not. */
  get #isPermission() {
    const { kind, toolCallId } = this.content;
    return PERMISSIONS.has(kind) || (toolCallId !== undefined && isApproval(this.content) && !EDITED.has(kind));
  }

  /** What is asked: asked anew in other words it is another question. */
  get #wording() {
    const { kind, message, schema, responseSchema, options, title, parameters, versionId } = this.content;
    return JSON.stringify([kind, message, schema, responseSchema, options, title, parameters, versionId]);
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

  /** Who asks is a fact. A request for a permission says it even where the source did not. */
  #drawWho() {
    const { agentId, kind, parentRouting, agentName: given } = this.content;
    const isKnown = agentId !== undefined || given !== undefined;
    this.#who.hidden = !isKnown && !DELEGATED.has(kind) && !this.#isPermission;
    if (this.#who.hidden) return;
    const name = agentId === undefined ? (words(given) || NOT_STATED) : this.nameOf(words(agentId));
    const id = agentId !== undefined && name !== agentId ? ` (${words(agentId)})` : "";
    say(this.#who, isKnown ? `Asked by ${name}${id}${parentRouting === undefined ? "" : `, by way of ${words(parentRouting)}`}` : `Asked by: ${NOT_STATED}`);
    if (agentId !== undefined) this.#who.dataset.agent = words(agentId);
  }

  /** The call that waits for this decision, as far as this audience sees it. @returns {Record<string, any>} */
  get #call() {
    const { toolCallId } = this.content;
    return (toolCallId === undefined ? undefined : this.beside("tool-call-progress", words(toolCallId))?.content) ?? {};
  }

  /** What the tool is about to be called with. */
  get #arguments() {
    const { parameters, safeInput, input } = this.content;
    return parameters ?? safeInput ?? input ?? this.#call.input;
  }

  #drawFacts() {
    const { kind, scope, policyScope, risk, reason, taskId, toolName, toolCallId, outcome, value, status } = this.content;
    const isPermission = this.#isPermission;
    const isPending = status === "pending";
    // A line of its own for what a person needs to decide, also where the source is silent.
    const needed = (/** @type {unknown} */ fact) => phrase(fact) || (isPermission && isPending ? NOT_STATED : "");
    /** @type {[string, string][]} */
    const facts = [
      ["Tool", toolName === undefined && toolCallId === undefined && kind !== "tool_approval" ? "" : needed(toolName ?? this.#call.tool_name)],
      ["Kind", kind === "unknown" || TITLES[kind] === undefined ? spoken(kind) : ""],
      ["Credential", this.#credentialKind === undefined ? "" : spoken(this.#credentialKind)],
      ["Risk", risk === undefined ? needed(undefined) : typeof risk === "object" ? phrase(risk) : ""],
      ["Scope", spokenScope(needed(scope ?? policyScope))],
      ["Reason", phrase(reason) === kind ? "" : spokenScope(phrase(reason))],
      ["Task", words(taskId)],
      ["Outcome", status === "resolved" ? spoken(outcome) : ""],
      // What answered a credential request is a secret, also where a source repeats it.
      ["Answer", value === undefined || kind === "credential_request" ? "" : inputSummary(value)],
    ];
    const said = facts.filter(([, text]) => text !== "");
    if (this.#facts.textContent !== said.flat().join("")) {
      this.#facts.replaceChildren(...said.flatMap(([name, text]) => {
        const row = element("dd", "", text);
        row.toggleAttribute("data-unknown", text === NOT_STATED);
        return [element("dt", "", name), row];
      }));
    }
    this.#facts.hidden = said.length === 0;
  }

  /** @param {boolean} isPending */
  #drawInput(isPending) {
    const { kind } = this.content;
    const details = this.#details;
    const shown = this.#arguments;
    const isNeeded = kind === "tool_approval" || this.content.toolCallId !== undefined;
    this.#inputLabel.hidden = this.#input.hidden = !isPending || (shown === undefined && !isNeeded);
    say(this.#input, shown === undefined ? NOT_STATED : pretty(shown));
    this.#input.toggleAttribute("data-unknown", shown === undefined);
    this.#payloadLabel.hidden = this.#payload.hidden = !isPending || details === undefined;
    say(this.#payload, pretty(details));
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
    const { kind, schema, responseSchema, options } = this.content;
    const asked = JSON.stringify([kind, schema, responseSchema, options, this.#isSignIn, this.#canEdit ? this.#editable : undefined]);
    // A form that is being filled in must not be replaced by a change of something else.
    if (asked !== this.#asked) {
      this.#asked = asked;
      this.#form.replaceChildren(...this.#fields());
    }
    const isDisabled = this.#isOnItsWay || this.#isExpired;
    for (const control of this.#form.elements) /** @type {HTMLButtonElement} */ (control).disabled = isDisabled;
  }

  get #canEdit() {
    return this.content.kind === "tool_approval" && this.#editable !== undefined && !JSON.stringify(this.#editable).includes(REDACTED);
  }

  /** The arguments themselves: what a source shortened for showing must not go back as if it were all. */
  get #editable() {
    const { safeInput, parameters, input } = this.content;
    return parameters ?? input ?? (safeInput === undefined ? this.#call.input : undefined);
  }

  #fields() {
    const { kind, options } = this.content;
    const schema = this.content.responseSchema ?? this.content.schema;
    const isQuestion = QUESTIONS.has(kind);
    if (kind === "credential_request" && schema === undefined && this.#isSignIn) return this.#signIn();
    const offered = (Array.isArray(options) ? options : []).map(optionOf);
    return isQuestion ? this.#answers(kind, schema, offered) : this.#decisions(kind, schema, offered);
  }

  /**
   * A question: an answer, or none. Where the schema holds the decision, the buttons fill it in.
   * @param {string} kind
   * @param {unknown} schema
   * @param {import("./decision.js").Option[]} offered
   */
  #answers(kind, schema, offered) {
    const ask = offered.length > 0 && schema === undefined ? choiceOf("Your answer", this.content.options) : this.#question(kind, schema);
    // A secret is never in plain sight, also where a schema asks for it.
    if (kind === "credential_request") for (const input of ask.root.querySelectorAll("input")) if (input.type === "text") input.type = "password";
    const row = element("div", "row");
    if (ask.decides) row.append(this.#button("Approve", "answer", () => ask.read("approve"), "primary", "approve"), this.#button("Reject", "reject", () => ask.read("reject"), "danger", "reject"));
    else row.append(this.#button("Send answer", "answer", () => ask.read(), "primary"), this.#button("Decline", "reject", () => ({}), "danger"));
    return ask.isEmpty ? [row] : [ask.root, row];
  }

  /**
   * An approval: each button sends what it says. An option that approves, rejects or asks for a change by its words is a button
   * of its own; other options say how, or for how long.
   * @param {string} kind
   * @param {unknown} schema
   * @param {import("./decision.js").Option[]} offered
   */
  #decisions(kind, schema, offered) {
    const form = schema === undefined ? undefined : formOf(schema);
    const plain = offered.filter(({ verdict }) => verdict === undefined);
    const choice = plain.length > 0 ? choiceOf("For how long, or how", plain.map(({ value, label, description }) => ({ value, label, description }))) : undefined;
    const row = element("div", "row");
    const has = (/** @type {import("./decision.js").Verdict} */ verdict) => offered.some((one) => one.verdict === verdict);
    /** @param {import("./decision.js").Verdict} verdict @param {() => import("./form.js").Answer} [option] */
    const read = (verdict, option) => () => {
      const given = form?.read(verdict) ?? {};
      return option ? joint(option(), given) : given;
    };
    if (choice || !has("approve")) row.append(this.#button("Approve", "approve", read("approve", choice && (() => choice.read())), "primary", "approve"));
    for (const { value, label, description, verdict } of offered) {
      if (verdict === undefined) continue;
      const style = verdict === "reject" ? "danger" : verdict === "approve" && !row.querySelector('[data-kind="primary"]') ? "primary" : undefined;
      const button = this.#button(capital(label), verdict, read(verdict, () => ({ value })), style, verdict);
      button.title = description;
      row.append(button);
    }
    if (!has("reject")) row.append(this.#button("Reject", "reject", read("reject"), "danger", "reject"));
    const fields = [];
    if (choice) fields.push(choice.root);
    if (form && !form.isEmpty) fields.push(form.root);
    if (EDITED.has(kind)) fields.push(this.#edit("What should be different?", "Request changes", (text) => ({ value: text })));
    else if (this.#canEdit) fields.push(this.#editInput(this.#editable));
    return [...fields, row];
  }

  /**
   * @param {string} kind
   * @param {unknown} schema
   */
  #question(kind, schema) {
    if (kind === "credential_request" && schema === undefined) return formOf({ title: "The credential. Only the runtime that asked receives it; this page does not keep it.", type: "string", format: "password" }, { isQuestion: true });
    return formOf(schema ?? { title: "Your answer", type: "string", format: "textarea" }, { isQuestion: true });
  }

  /** Whether the credential comes of a sign-in elsewhere, so that there is nothing to type here. */
  get #isSignIn() {
    return this.#credentialKind === "oauth";
  }

  /** How a credential is given: `oauth`, `api_key` or `text`, or another word of its source. @returns {unknown} */
  get #credentialKind() {
    return this.content.kind === "credential_request" ? this.content.payload?.credentialKind : undefined;
  }

  /** The source's own members, without those that have a line of their own. */
  get #details() {
    const { payload } = this.content;
    if (this.#credentialKind === undefined) return payload;
    const { credentialKind: _, ...rest } = payload;
    return Object.keys(rest).length === 0 ? undefined : rest;
  }

  #signIn() {
    const row = element("div", "row");
    row.append(this.#button("Decline", "reject", () => ({}), "danger"));
    return [element("p", "hint", "This credential needs a sign-in (OAuth) in the runtime's own interface. It cannot be given here."), row];
  }

  /**
   * A text that asks for a change, behind a summary.
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
    const read = () => (control.value.trim() === "" ? { problem: "Enter what should be different.", field: control } : valueOf(control.value));
    root.append(element("summary", "", label), field, this.#button(label, "edit", read));
    return root;
  }

  /** @param {unknown} input */
  #editInput(input) {
    return this.#edit("The arguments, as JSON", "Edit the arguments", (text) => {
      try {
        return { value: JSON.parse(text) };
      } catch {
        return { problem: "The arguments are not JSON." };
      }
    }, JSON.stringify(input, null, 2));
  }

  /**
   * @param {string} label
   * @param {string} control
   * @param {() => import("./form.js").Answer} read
   * @param {"primary" | "danger" | "quiet"} [kind]
   * @param {import("./decision.js").Verdict} [verdict] What the label says, which the answer must not contradict.
   */
  #button(label, control, read, kind, verdict) {
    const button = element("button", "button", label);
    button.type = "button";
    button.dataset.control = control;
    if (kind) button.dataset.kind = kind;
    button.addEventListener("click", () => {
      const answer = read();
      const isContradiction = verdict !== undefined && answer.value !== undefined && contradicts(answer.value, verdict);
      void this.#send(control, isContradiction ? { problem: `Not sent: the answer says the opposite of “${label}”. Change the answer or press the other button.` } : answer);
    });
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
    if (this.content.status === "interrupted") return ["warning", "The run ended before a decision."];
    if (!isPending) return ["", ""];
    if (!this.view.isLive) return ["stale", "This is a past state. Return to now to answer."];
    if (this.#isSending) return ["running", "Submitting your answer …"];
    if (this.#isOnItsWay) return ["waiting", "Submitted. It is not decided until the runtime confirms it."];
    if (this.#problem?.question === question) return [this.#problem.state, this.#problem.text];
    if (this.#refused === question) return ["warning", "The runtime did not take the answer. You can answer again."];
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
    say(this.#expiry, left > DAY_MS ? `Answer before ${new Date(until).toLocaleString()}.` : left > 0 ? `Time left to answer: ${duration(Math.ceil(left / 1000) * 1000)}.` : "The time to answer is over. The runtime decides what follows.");
    if (left <= 0) {
      for (const control of this.#form.elements) /** @type {HTMLButtonElement} */ (control).disabled = true;
      return this.#stopTicking();
    }
    this.#ticking ??= setInterval(() => this.#drawExpiry(), TICK_MS);
  }
}

define("ps-action", Action);

/**
 * An option and a form at once: the option alone, or `{ optionId | option, …what the form gives }`.
 * @param {import("./form.js").Answer} option
 * @param {import("./form.js").Answer} given
 * @returns {import("./form.js").Answer}
 */
function joint(option, given) {
  if (option.problem || given.problem) return option.problem ? option : given;
  if (given.value === undefined) return option;
  const isObject = (/** @type {unknown} */ value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const chosen = isObject(option.value) ? /** @type {object} */ (option.value) : { option: option.value };
  return { value: { ...chosen, ...(isObject(given.value) ? /** @type {object} */ (given.value) : { value: given.value }) } };
}

/** @param {string} text */
const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

/** @param {string} text A name such as `tool_call`, or a sentence. */
const spokenScope = (text) => (/^[a-z]+(_[a-z]+)+$/.test(text) ? text.replaceAll("_", " ") : text);

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
