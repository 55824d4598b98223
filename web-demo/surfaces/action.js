/**
 * A decision: its requester, subject, risk and scope, the reviewed content, and the controls that answer it.
 *
 * An answer decides nothing on this page. It goes to the runtime that asked. Until the runtime reports a result, the
 * card stays pending and shows that an answer was submitted. Facts that the source omitted are shown as “not stated”.
 */

import { createBadge, define, formatDuration, element, inspectButton, setBadge, setText, humanize, stateOf, toText } from "./base.js";
import { Card, agentName } from "./card.js";
import { QUESTIONS, contradicts, isApproval, optionOf } from "./decision.js";
import { choiceOf, formOf } from "./form.js";
import { POLL_MS, ACCEPTED_SHOWN_MS, readControlStatuses, hasFailed } from "./submitted-controls.js";
import { formatValue } from "./lane.js";
import { DecisionSubject } from "./decision-subject.js";
import { summarizeInput, formatJson } from "./tool.js";

/** The interval at which the time left is updated, in milliseconds. */
const TICK_MS = 1000;
/** From this time left on, the card shows a date. */
const DAY_MS = 24 * 3_600_000;

/** Titles by kind. @type {Record<string, string>} */
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

/** The text for a fact that the source omitted. */
export const NOT_STATED = "not stated";
/** Kinds for which the answer may request changes. */
const EDITABLE_KINDS = new Set(["plan_decision", "teammate_plan_decision", "artifact_review"]);
/** Kinds that teammates request; the card always names the requester. */
const DELEGATED_KINDS = new Set(["teammate_plan_decision", "delegated_permission"]);
/** Kinds that permit an operation: tool, arguments, risk and scope each have a line, known or not. */
const PERMISSION_KINDS = new Set(["tool_approval", "permission_grant", "delegated_permission"]);
/** The server's replacement for a secret. Arguments with it differ from the real ones, so they cannot be edited. */
const REDACTED = "[redacted]";

const RISK_STATES = new Map([["low", "idle"], ["medium", "warning"], ["moderate", "warning"], ["high", "failed"], ["critical", "failed"]]);

/** @typedef {{ label: string, control: string, kind?: "primary" | "danger" | "quiet", value: () => import("./form.js").Answer }} Choice */

export class Action extends Card {
  #title = element("h3", "card-title");
  #badge = element("span");
  #risk = element("span", "chip");
  #requester = element("p", "who");
  #message = element("p", "message");
  #description = element("p", "hint description");
  #facts = element("dl", "facts");
  #inputLabel = element("p", "label", "Arguments");
  #input = element("pre", "preview");
  #reviewed = new DecisionSubject();
  #payloadLabel = element("p", "label", "Details from the source");
  #payload = element("pre", "preview");
  #form = element("form", "stack ask");
  #status = element("p", "note told");
  #expiry = element("p", "hint expiry");
  /** The parts of the question of which the form was built. Another question builds another form. */
  #formKey = "";
  #isSending = false;
  /** The answer that this page submitted and the store may not show yet. @type {import("./base.js").SubmittedControl & { question: string, at: number } | undefined} */
  #pageAnswer;
  /** The question for which the store shows a submitted answer. */
  #submittedQuestion = "";
  /** The question whose answer the runtime did not accept. */
  #rejectedQuestion = "";
  /** Why an answer was not submitted. @type {{ state: string, text: string, question: string } | undefined} */
  #problem;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #tickTimer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #pollTimer;

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
    this.#status.setAttribute("role", "status");
    this.append(head, this.#requester, this.#message, this.#description, this.#facts, this.#inputLabel, this.#input, this.#reviewed.root, this.#payloadLabel, this.#payload, this.#form, this.#status, this.#expiry);
  }

  disconnectedCallback() {
    this.#stopTicking();
    clearTimeout(this.#pollTimer);
    this.#pollTimer = undefined;
  }

  #stopTicking() {
    clearInterval(this.#tickTimer);
    this.#tickTimer = undefined;
  }

  draw() {
    const content = this.content;
    const isPending = content.status === "pending";
    this.#trackAnswer(isPending);
    const status = isPending ? (this.#isSubmitted ? "submitted" : "pending") : content.status === "resolved" ? (content.outcome ?? "resolved") : content.status;
    this.dataset.status = toText(content.status);
    this.dataset.kind = toText(content.kind);
    this.dataset.state = stateOf(isPending ? "pending" : status);
    setText(this.#title, formatValue(content.title) || this.#heading);
    setBadge(this.#badge, isPending ? "pending" : status, isPending ? (this.#isSubmitted ? "Answer submitted" : isApproval(content) ? "Needs approval" : "Waiting for input") : humanize(status));
    this.#risk.hidden = content.risk === undefined;
    const risk = formatValue(content.risk?.level ?? content.risk);
    this.#risk.dataset.state = RISK_STATES.get(risk.toLowerCase()) ?? "unknown";
    setText(this.#risk, `${risk} risk`);
    this.#drawRequester();
    this.#message.hidden = content.message === undefined || content.message === content.title;
    setText(this.#message, toText(content.message));
    this.#description.hidden = content.description === undefined;
    setText(this.#description, formatValue(content.description));
    this.#drawFacts();
    this.#drawInput(isPending);
    this.#reviewed.show(this.view, this.activity, isPending);
    this.#drawForm(isPending);
    this.#drawStatus(isPending);
    this.#drawExpiry();
  }

  /** The title where the source gives none. */
  get #heading() {
    const { kind, toolCallId } = this.content;
    if (QUESTIONS.has(kind) && isApproval(this.content)) return toolCallId === undefined ? "Approve?" : TITLES.tool_approval;
    return TITLES[kind] ?? "Decision needed";
  }

  /** Whether the decision permits an operation, so that its facts each have a line, known or not. */
  get #isPermission() {
    const { kind, toolCallId } = this.content;
    return PERMISSION_KINDS.has(kind) || (toolCallId !== undefined && isApproval(this.content) && !EDITABLE_KINDS.has(kind));
  }

  /** The identity of the question: with another wording it is another question. */
  get #questionKey() {
    const { kind, message, schema, responseSchema, options, title, parameters, versionId } = this.content;
    return JSON.stringify([kind, message, schema, responseSchema, options, title, parameters, versionId]);
  }

  get #isSubmitted() {
    return this.#isSending || this.#pageAnswer !== undefined || this.#submittedQuestion !== "";
  }

  /**
   * Tracks the answer. If it is no longer submitted while the same question waits, the runtime did not accept it.
   * @param {boolean} isPending
   */
  #trackAnswer(isPending) {
    const question = this.#questionKey;
    const submitted = isPending && this.content.control === "submitted" ? question : "";
    const hasEnded = this.#submittedQuestion !== "" && submitted === "";
    if (!isPending || submitted !== "") this.#rejectedQuestion = "";
    else if (hasEnded) this.#rejectedQuestion = this.#submittedQuestion;
    if (!isPending || hasEnded || this.#pageAnswer?.question !== question) this.#pageAnswer = undefined;
    this.#submittedQuestion = submitted;
    this.#schedulePoll();
  }

  /** Polls the status of an answer that the store does not show: the runtime may have rejected it before a draw. */
  #schedulePoll() {
    const isUnconfirmed = this.#pageAnswer !== undefined && this.#submittedQuestion === "" && this.view.isLive;
    if (isUnconfirmed) this.#pollTimer ??= setTimeout(() => this.#pollStatus(), POLL_MS);
  }

  async #pollStatus() {
    const answer = this.#pageAnswer;
    try {
      const statuses = answer && (await readControlStatuses(this.view, answer.list));
      if (answer === this.#pageAnswer && this.#submittedQuestion === "") this.#applyStatus(answer && statuses?.get(answer.controlId)?.status);
    } catch {
      // The server is unreachable; the connection bar shows that. The last known status stays.
    }
    this.#pollTimer = undefined;
    if (this.isConnected) this.draw();
  }

  /** @param {string | undefined} status The answer's status; `undefined` if the server no longer lists it, which it does some time after the end. */
  #applyStatus(status) {
    if (!this.#pageAnswer) return;
    const { at, question } = this.#pageAnswer;
    if (hasFailed(status)) this.#rejectedQuestion = question;
    // Facts decide an accepted answer that is no longer pending; the store has them or will get them.
    const hasEnded = status === undefined || hasFailed(status) || (status === "acked" && this.view.now() - at > ACCEPTED_SHOWN_MS);
    if (hasEnded) this.#pageAnswer = undefined;
  }

  /** Names the requester. A request for a permission has this line even if the source names none. */
  #drawRequester() {
    const { agentId, kind, parentRouting, agentName: sourceName } = this.content;
    const isKnown = agentId !== undefined || sourceName !== undefined;
    this.#requester.hidden = !isKnown && !DELEGATED_KINDS.has(kind) && !this.#isPermission;
    if (this.#requester.hidden) return;
    const name = agentId === undefined ? (toText(sourceName) || NOT_STATED) : this.nameOf(toText(agentId));
    const id = agentId !== undefined && name !== agentId ? ` (${toText(agentId)})` : "";
    setText(this.#requester, isKnown ? `Requested by ${name}${id}${parentRouting === undefined ? "" : `, via ${toText(parentRouting)}`}` : `Requested by: ${NOT_STATED}`);
    if (agentId !== undefined) this.#requester.dataset.agent = toText(agentId);
  }

  /** The tool call that waits for this decision, as this audience sees it. @returns {Record<string, any>} */
  get #call() {
    const { toolCallId } = this.content;
    return (toolCallId === undefined ? undefined : this.sibling("tool-call-progress", toText(toolCallId))?.content) ?? {};
  }

  /** The arguments of the tool call. */
  get #arguments() {
    const { parameters, safeInput, input } = this.content;
    return parameters ?? safeInput ?? input ?? this.#call.input;
  }

  #drawFacts() {
    const { kind, scope, policyScope, risk, reason, taskId, toolName, toolCallId, outcome, value, status } = this.content;
    const isPermission = this.#isPermission;
    const isPending = status === "pending";
    // Facts that a decision depends on have a line even if the source omits them.
    const needed = (/** @type {unknown} */ fact) => formatValue(fact) || (isPermission && isPending ? NOT_STATED : "");
    /** @type {[string, string][]} */
    const facts = [
      ["Tool", toolName === undefined && toolCallId === undefined && kind !== "tool_approval" ? "" : needed(toolName ?? this.#call.tool_name)],
      ["Kind", kind === "unknown" || TITLES[kind] === undefined ? humanize(kind) : ""],
      ["Credential", this.#credentialKind === undefined ? "" : humanize(this.#credentialKind)],
      ["Risk", risk === undefined ? needed(undefined) : typeof risk === "object" ? formatValue(risk) : ""],
      ["Scope", humanizeName(needed(scope ?? policyScope))],
      ["Reason", formatValue(reason) === kind ? "" : humanizeName(formatValue(reason))],
      ["Task", toText(taskId)],
      ["Outcome", status === "resolved" ? humanize(outcome) : ""],
      // The answer to a credential request is a secret, even if a source repeats it.
      ["Answer", value === undefined || kind === "credential_request" ? "" : summarizeInput(value)],
    ];
    const shown = facts.filter(([, text]) => text !== "");
    if (this.#facts.textContent !== shown.flat().join("")) {
      this.#facts.replaceChildren(...shown.flatMap(([name, text]) => {
        const row = element("dd", "", text);
        row.toggleAttribute("data-unknown", text === NOT_STATED);
        return [element("dt", "", name), row];
      }));
    }
    this.#facts.hidden = shown.length === 0;
  }

  /** @param {boolean} isPending */
  #drawInput(isPending) {
    const { kind } = this.content;
    const details = this.#details;
    const shown = this.#arguments;
    const isNeeded = kind === "tool_approval" || this.content.toolCallId !== undefined;
    this.#inputLabel.hidden = this.#input.hidden = !isPending || (shown === undefined && !isNeeded);
    setText(this.#input, shown === undefined ? NOT_STATED : formatJson(shown));
    this.#input.toggleAttribute("data-unknown", shown === undefined);
    this.#payloadLabel.hidden = this.#payload.hidden = !isPending || details === undefined;
    setText(this.#payload, formatJson(details));
  }

  /** @param {boolean} isPending */
  #drawForm(isPending) {
    const isAskable = isPending && this.view.isLive;
    this.#form.hidden = !isAskable;
    if (!isAskable) {
      this.#formKey = "";
      this.#form.replaceChildren();
      return;
    }
    const { kind, schema, responseSchema, options } = this.content;
    const formKey = JSON.stringify([kind, schema, responseSchema, options, this.#isSignIn, this.#canEdit ? this.#editable : undefined]);
    // An unrelated change must not replace a form that a person is filling in.
    if (formKey !== this.#formKey) {
      this.#formKey = formKey;
      this.#form.replaceChildren(...this.#fields());
    }
    const isDisabled = this.#isSubmitted || this.#isExpired;
    for (const control of this.#form.elements) /** @type {HTMLButtonElement} */ (control).disabled = isDisabled;
  }

  get #canEdit() {
    return this.content.kind === "tool_approval" && this.#editable !== undefined && !JSON.stringify(this.#editable).includes(REDACTED);
  }

  /** The complete arguments. A version that the source shortened for display must not go back as the whole. */
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
   * Builds the form of a question: an answer, or none. The buttons fill in a decision that the schema contains.
   * @param {string} kind
   * @param {unknown} schema
   * @param {import("./decision.js").Option[]} offered
   */
  #answers(kind, schema, offered) {
    const ask = offered.length > 0 && schema === undefined ? choiceOf("Your answer", this.content.options) : this.#question(kind, schema);
    // A secret is never displayed, even if a schema asks for plain text.
    if (kind === "credential_request") for (const input of ask.root.querySelectorAll("input")) if (input.type === "text") input.type = "password";
    const row = element("div", "row");
    if (ask.decides) row.append(this.#button("Approve", "answer", () => ask.read("approve"), "primary", "approve"), this.#button("Reject", "reject", () => ask.read("reject"), "danger", "reject"));
    else row.append(this.#button("Send answer", "answer", () => ask.read(), "primary"), this.#button("Decline", "reject", () => ({}), "danger"));
    return ask.isEmpty ? [row] : [ask.root, row];
  }

  /**
   * Builds the form of an approval. An option whose words approve, reject or request changes is a button; other options
   * are choices of the approval, such as its duration.
   * @param {string} kind
   * @param {unknown} schema
   * @param {import("./decision.js").Option[]} offered
   */
  #decisions(kind, schema, offered) {
    const form = schema === undefined ? undefined : formOf(schema);
    const plain = offered.filter(({ verdict }) => verdict === undefined);
    const choice = plain.length > 0 ? choiceOf("Options", plain.map(({ value, label, description }) => ({ value, label, description }))) : undefined;
    const row = element("div", "row");
    const has = (/** @type {import("./decision.js").Verdict} */ verdict) => offered.some((one) => one.verdict === verdict);
    /** @param {import("./decision.js").Verdict} verdict @param {() => import("./form.js").Answer} [option] */
    const read = (verdict, option) => () => {
      const formAnswer = form?.read(verdict) ?? {};
      return option ? combine(option(), formAnswer) : formAnswer;
    };
    if (choice || !has("approve")) row.append(this.#button("Approve", "approve", read("approve", choice && (() => choice.read())), "primary", "approve"));
    for (const { value, label, description, verdict } of offered) {
      if (verdict === undefined) continue;
      const style = verdict === "reject" ? "danger" : verdict === "approve" && !row.querySelector('[data-kind="primary"]') ? "primary" : undefined;
      const button = this.#button(capitalize(label), verdict, read(verdict, () => ({ value })), style, verdict);
      button.title = description;
      row.append(button);
    }
    if (!has("reject")) row.append(this.#button("Reject", "reject", read("reject"), "danger", "reject"));
    const fields = [];
    if (choice) fields.push(choice.root);
    if (form && !form.isEmpty) fields.push(form.root);
    if (EDITABLE_KINDS.has(kind)) fields.push(this.#edit("Which changes do you want?", "Request changes", (text) => ({ value: text })));
    else if (this.#canEdit) fields.push(this.#editInput(this.#editable));
    return [...fields, row];
  }

  /**
   * @param {string} kind
   * @param {unknown} schema
   */
  #question(kind, schema) {
    if (kind === "credential_request" && schema === undefined) return formOf({ title: "Credential. Only the runtime that asked receives it; this page does not store it.", type: "string", format: "password" }, { isQuestion: true });
    return formOf(schema ?? { title: "Your answer", type: "string", format: "textarea" }, { isQuestion: true });
  }

  /** Whether the credential comes from a sign-in elsewhere, so that nothing can be entered here. */
  get #isSignIn() {
    return this.#credentialKind === "oauth";
  }

  /** The kind of a credential: `oauth`, `api_key`, `text`, or a kind of the source. @returns {unknown} */
  get #credentialKind() {
    return this.content.kind === "credential_request" ? this.content.payload?.credentialKind : undefined;
  }

  /** The payload of the source, without the members that have their own line. */
  get #details() {
    const { payload } = this.content;
    if (this.#credentialKind === undefined) return payload;
    const { credentialKind: _, ...rest } = payload;
    return Object.keys(rest).length === 0 ? undefined : rest;
  }

  #signIn() {
    const row = element("div", "row");
    row.append(this.#button("Decline", "reject", () => ({}), "danger"));
    return [element("p", "hint", "This credential needs a sign-in (OAuth) in the runtime's own interface. You cannot enter it here."), row];
  }

  /**
   * Builds a text field that requests a change, collapsed under a summary.
   * @param {string} title
   * @param {string} label
   * @param {(text: string) => import("./form.js").Answer} valueOf
   * @param {string} [text] The initial text.
   */
  #edit(title, label, valueOf, text = "") {
    const root = element("details", "stack edit");
    const field = element("label", "field");
    const control = element("textarea");
    control.rows = 3;
    control.value = text;
    field.append(element("span", "", title), control);
    const read = () => (control.value.trim() === "" ? { problem: "Enter the changes that you want.", field: control } : valueOf(control.value));
    root.append(element("summary", "", label), field, this.#button(label, "edit", read));
    return root;
  }

  /** @param {unknown} input */
  #editInput(input) {
    return this.#edit("Arguments (JSON)", "Edit arguments", (text) => {
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
   * @param {import("./decision.js").Verdict} [verdict] The meaning of the label, which the answer must not contradict.
   */
  #button(label, control, read, kind, verdict) {
    const button = element("button", "button", label);
    button.type = "button";
    button.dataset.control = control;
    if (kind) button.dataset.kind = kind;
    button.addEventListener("click", () => {
      const answer = read();
      const isContradiction = verdict !== undefined && answer.value !== undefined && contradicts(answer.value, verdict);
      void this.#send(control, isContradiction ? { problem: `Not sent: the answer contradicts “${label}”. Change the answer, or use the other button.` } : answer);
    });
    return button;
  }

  /**
   * @param {string} control
   * @param {import("./form.js").Answer} answer
   */
  async #send(control, answer) {
    if (this.#isSubmitted) return;
    if (answer.problem) {
      this.#problem = { state: "warning", text: answer.problem, question: this.#questionKey };
      this.draw();
      answer.field?.focus();
      return;
    }
    const question = this.#questionKey;
    this.#isSending = true;
    this.#problem = undefined;
    this.draw();
    try {
      const { runId, sessionId, activityId } = this.activity;
      const wanted = { control, ...(runId ? { run: runId } : { session: sessionId }), actionId: activityId, ...(answer.value === undefined ? {} : { value: answer.value }) };
      this.#pageAnswer = { ...(await this.view.act(wanted)), question, at: this.view.now() };
    } catch (error) {
      this.#problem = { state: "failed", text: `Not submitted: ${error instanceof Error ? error.message : error}`, question };
    }
    this.#isSending = false;
    this.draw();
  }

  /** @param {boolean} isPending */
  #drawStatus(isPending) {
    const [state, text] = this.#statusText(isPending);
    this.#status.dataset.state = state;
    setText(this.#status, text);
    this.#status.hidden = text === "";
  }

  /**
   * Returns the text about the answer, and its visual state.
   * @param {boolean} isPending
   */
  #statusText(isPending) {
    const question = this.#questionKey;
    if (this.content.status === "interrupted") return ["warning", "The run ended before a decision."];
    if (!isPending) return ["", ""];
    if (!this.view.isLive) return ["stale", "You are viewing a past state. Go back to live to answer."];
    if (this.#isSending) return ["running", "Submitting your answer…"];
    if (this.#isSubmitted) return ["waiting", "Submitted. Waiting for the runtime to confirm."];
    if (this.#problem?.question === question) return [this.#problem.state, this.#problem.text];
    if (this.#rejectedQuestion === question) return ["warning", "The runtime did not accept the answer. You can answer again."];
    return ["", ""];
  }

  get #isExpired() {
    const until = Date.parse(toText(this.content.expiresAt));
    return Number.isFinite(until) && until <= this.view.now();
  }

  #drawExpiry() {
    const until = Date.parse(toText(this.content.expiresAt));
    const isCounting = this.content.status === "pending" && Number.isFinite(until);
    this.#expiry.hidden = !isCounting;
    if (!isCounting) return this.#stopTicking();
    const left = until - this.view.now();
    setText(this.#expiry, left > DAY_MS ? `Answer before ${new Date(until).toLocaleString()}.` : left > 0 ? `Time left to answer: ${formatDuration(Math.ceil(left / 1000) * 1000)}.` : "The time to answer has expired. The runtime decides how to continue.");
    if (left <= 0) {
      for (const control of this.#form.elements) /** @type {HTMLButtonElement} */ (control).disabled = true;
      return this.#stopTicking();
    }
    this.#tickTimer ??= setInterval(() => this.#drawExpiry(), TICK_MS);
  }
}

define("ps-action", Action);

/**
 * Combines an option and a form: the option alone, or `{ optionId | option, …form }`.
 * @param {import("./form.js").Answer} option
 * @param {import("./form.js").Answer} form
 * @returns {import("./form.js").Answer}
 */
function combine(option, form) {
  if (option.problem || form.problem) return option.problem ? option : form;
  if (form.value === undefined) return option;
  const isObject = (/** @type {unknown} */ value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const chosen = isObject(option.value) ? /** @type {object} */ (option.value) : { option: option.value };
  return { value: { ...chosen, ...(isObject(form.value) ? /** @type {object} */ (form.value) : { value: form.value }) } };
}

/** @param {string} text */
const capitalize = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

/** @param {string} text A name such as `tool_call`, or a sentence. */
const humanizeName = (text) => (/^[a-z]+(_[a-z]+)+$/.test(text) ? text.replaceAll("_", " ") : text);

/**
 * Draws one line for a decision that is resolved or that waits elsewhere.
 * @param {import("./base.js").View} view
 * @param {import("./base.js").Activity} activity
 */
export function decisionLine(view, activity) {
  const content = /** @type {Record<string, any>} */ (activity.content);
  const row = element("span", "row");
  row.append(createBadge(content.outcome ?? content.status), element("span", "", TITLES[content.kind] ?? humanize(content.kind)));
  if (content.agentId) row.append(element("span", "hint", agentName(view, activity, toText(content.agentId))));
  return row;
}
