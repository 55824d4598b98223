/**
 * A decision: the action as a question, its requester, tool, arguments, risk and scope, what it changes, and the
 * controls that answer it.
 *
 * An answer decides nothing on this page. It goes to the runtime that asked. Until the runtime reports a result, the
 * card stays pending and shows that an answer was submitted. Facts that the source omitted are shown as “not stated”. A
 * decided card is one line.
 */

import { parseJson } from "../client/json.js";
import { define, focusedBeside, formatDuration, humanize, inspectButton, keyOf, stateOf, toText } from "./base.js";
import { EDITABLE_KINDS, credentialKindOf, editableArguments, factsTemplate, unstatedFacts } from "./action-facts.js";
import { actionTitle } from "./action-title.js";
import { Card } from "./card.js";
import { QUESTIONS, REASON_NAME, contradicts, isApproval, optionOf, plainYes, typedDecisions } from "./decision.js";
import { POLL_MS, ACCEPTED_SHOWN_MS, readControlStatuses, hasFailed } from "./submitted-controls.js";
import { artifactOf, formatValue } from "./facts.js";
import { isLiveRun } from "./live-run.js";
import { RequestSubject } from "./request-subject.js";
import { formatExact, formatSpan, parseTime, timesOf } from "../ui/format.js";
import { SEND_KEYS } from "../ui/keys.js";
import { escapeHidden, reveal } from "../ui/reveal.js";
import { chevron, glyph, statusLabel } from "../ui/glyphs.js";
import { t } from "../ui/texts.js";
import { html, nothing, render } from "../vendor/lit.js";

/** @typedef {import("../client/contents.js").ActionContent} ActionContent */
/** @typedef {import("./decision.js").Option} Option */
/** @typedef {import("./decision.js").Verdict} Verdict */
/** @typedef {import("./form.js").Answer} Answer */
/** @typedef {import("./form.js").Field} Field */

/** The interval at which the waiting time and the time left are updated, in milliseconds. */
const TICK_MS = 1000;
/** From this time left on, the card shows a date. */
const DAY_MS = 24 * 3_600_000;

/** Words for outcomes. @type {Record<string, import("../ui/texts.js").Text>} */
const OUTCOMES = { approved: "Approved", rejected: "Rejected", answered: "Answered", cancelled: "Cancelled", expired: "Expired", superseded: "Superseded", interrupted: "Interrupted", resolved: "Resolved" };

/** Risks that have a color. */
const HIGH_RISKS = new Set(["high", "critical"]);

/**
 * The parts of the form of one question. `approve` and `reject`: the options of the source with that verdict.
 * @typedef {object} Form
 * @property {boolean} isQuestion
 * @property {boolean} decides Whether the buttons approve and reject.
 * @property {Field} [fields] The fields of the schema, or of a plain question.
 * @property {Field} [choice] Options without a verdict.
 * @property {Option[]} approve
 * @property {Option[]} reject
 * @property {Option[]} edits
 * @property {Option[]} answers The options of a question, each with its answer.
 * @property {boolean} isSignIn Whether the credential comes from a sign-in elsewhere.
 * @property {boolean} asksReason Whether a rejection asks for a reason.
 * @property {string} reasonName The member with the reason.
 */

/** What a person has filled in, by question: it outlives the elements. @type {Map<string, { isRejecting: boolean, values: [string, boolean][] }>} */
const filled = new Map();

/**
 * A module that loads with the first card that needs it, which then draws again. Without an answer of the server, the
 * next drawing tries again.
 * @template Module
 * @param {() => Promise<Module>} load
 * @returns {(card: Action) => Module | undefined} `undefined` until it is there.
 */
function lazily(load) {
  /** @type {Module | undefined} */
  let module;
  return (card) => {
    if (!module) void load().then((loaded) => {
      module = loaded;
      if (card.isConnected) card.draw();
    }, () => {});
    return module;
  };
}

/** What builds forms: most approvals need none. */
const forms = lazily(() => import("./form.js"));
/** What draws how far a decision is and who made it. */
const records = lazily(() => import("./decision-record.js"));
/** What draws the yes that reach further than the narrowest one. */
const menus = lazily(() => import("./allow-menu.js"));
/** What draws artifacts, plans, reviews and evidence. */
const subjects = lazily(() => import("./decision-subject.js"));
/** What reads values that the server moved to blobs. */
const wholes = lazily(() => import("./whole-content.js"));

/** Kinds of decisions about a plan or an artifact. */
const SUBJECT_KINDS = new Set(["plan_decision", "teammate_plan_decision", "artifact_review"]);

/** Whether a decision is about more than its call. @param {import("./base.js").Activity} action */
function hasSubject(action) {
  const { kind, plan, subject, evidenceId, evidenceRefs, refs } = action.content;
  return SUBJECT_KINDS.has(kind) || artifactOf(action) !== undefined || [plan, subject?.plan, evidenceId, evidenceRefs, refs].some((one) => one !== undefined);
}

/** The controls of a form that a person fills in. @param {ParentNode} root @returns {(HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement)[]} */
const controlsIn = (root) => [...root.querySelectorAll("input:not([type=password]), textarea, select")].map((control) => /** @type {HTMLInputElement} */ (control));

export class Action extends Card {
  /** @type {typeof import("./decision-record.js") | undefined} */
  #record;
  #request = new RequestSubject(() => this.draw());
  /** @type {import("./decision-subject.js").DecisionSubject | undefined} */
  #subject;
  /** A person decides about whole values, not about previews. @type {import("./whole-content.js").WholeContent | undefined} */
  #whole;
  /** The question to the agent, once a person asks one. @type {import("./ask-agent.js").AskAgent | undefined} */
  #question;
  #inspect = inspectButton(() => this.view, () => this.activity);
  /** The parts of the question of which the form was built. Another question builds another form. */
  #formKey = "";
  /** @type {Form | undefined} */
  #form;
  /** @type {import("./allow-menu.js").AllowMenu | undefined} */
  #menu;
  #isRejecting = false;
  /** Where the card stands among several, on a page that says so. @type {unknown} */
  #place = nothing;
  /** Whether a decided card shows its facts. */
  #isOpen = false;
  #isSending = "";
  /** The answer that this page submitted and the store may not show yet. @type {import("./base.js").SubmittedControl & { question: string, at: number, button: string, control: string } | undefined} */
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

  connectedCallback() {
    if (this.#tickTimer === undefined && this.isShown) this.draw();
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

  /** @returns {ActionContent} */
  get content() {
    const content = /** @type {ActionContent} */ (super.content);
    if (content.bodies === undefined) return content;
    const module = wholes(this);
    this.#whole ??= module && new module.WholeContent(() => this.draw());
    return /** @type {ActionContent} */ (this.#whole?.of(this.view, content) ?? content);
  }

  /** @param {unknown} place A template for its head. */
  set place(place) {
    this.#place = place;
    this.draw();
  }

  draw() {
    const content = this.content;
    const isPending = content.status === "pending";
    this.#trackAnswer(isPending);
    this.#record = records(this);
    const subjectModule = hasSubject(this.activity) ? subjects(this) : undefined;
    this.#subject ??= subjectModule && new subjectModule.DecisionSubject(() => this.draw());
    this.dataset.status = toText(content.status);
    this.dataset.kind = toText(content.kind);
    this.dataset.submitted = String(isPending && this.#isSubmitted);
    const wasPending = this.querySelector(".ask") !== null;
    const hadFocus = this.contains(focusedBeside(this));
    if (isPending) this.#isOpen = false;
    if (isPending && this.isConnected) this.#tickTimer ??= setInterval(() => this.draw(), TICK_MS);
    if (!isPending) this.#stopTicking();
    render(isPending ? this.#pending() : this.#decided(), this);
    this.dispatchEvent(new Event("decision-drawn", { bubbles: true }));
    // The focus stays where the decision was.
    if (wasPending && !isPending && hadFocus) /** @type {HTMLElement | null} */ (this.querySelector(".summary"))?.focus({ preventScroll: true });
  }

  /* ── a decided card ── */

  #decided() {
    const { status, outcome } = this.content;
    const result = toText(status === "resolved" ? (outcome ?? "resolved") : status);
    const state = stateOf(result);
    const word = OUTCOMES[result] ? t(OUTCOMES[result]) : humanize(result);
    const [asked, answered] = timesOf(this.activity);
    const waited = formatWhole(answered - asked);
    const toggle = () => {
      this.#isOpen = !this.#isOpen;
      this.draw();
    };
    return html`<div class="process-line">
      <button type="button" class="summary" aria-expanded=${this.#isOpen} @click=${toggle}>
        <span class="chevron">${chevron("right")}</span>
        <span class="status outcome" data-status=${state === "ok" ? "completed" : state === "failed" ? "failed" : "idle"}>${glyph(state === "ok" ? "completed" : state === "failed" ? "failed" : "idle")}<span class="badge">${word}</span></span>
        <span class="words card-title" dir="auto">${this.#title}</span>
        ${this.#record?.makerTemplate(this.content)}
        ${waited ? html`<span class="spent">${t("waited {time}", { time: waited })}</span>` : nothing}
      </button>${this.#inspect}</div>
      ${status === "interrupted" ? html`<p class="told" data-state="warning">${t("The run ended before a decision.")}</p>` : nothing}
      ${this.#isOpen ? html`<div class="decided-details">${this.#requester(false)}${this.#message()}${factsTemplate(this, false, [...this.#subjectFacts, ...(this.#record?.recordFacts(this.content) ?? [])])}${this.#subject?.template(this.view, this.activity, false)}</div>` : nothing}`;
  }

  /* ── a pending card ── */

  #pending() {
    const { risk, description } = this.content;
    const level = formatValue(risk?.level ?? risk);
    const submit = (/** @type {Event} */ event) => event.preventDefault();
    return html`<article class="ask" part="decision" aria-label=${this.#title} tabindex="-1">
      <header class="ask-head">
        <h3 class="card-title" part="title" dir="auto">${this.#title}</h3>
        ${level ? html`<span class="tag risk" data-tone=${HIGH_RISKS.has(level.toLowerCase()) ? "fail" : nothing}>${t("{level} risk", { level: capitalize(level) })}</span>` : nothing}
        ${this.#inspect}
        ${this.#requester(true)}
      </header>
      ${this.#message()}
      ${description === undefined ? nothing : html`<p class="description" dir="auto">${reveal(formatValue(description))}</p>`}
      ${this.#request.template(this.content)}
      ${factsTemplate(this, true, this.#subjectFacts)}
      ${this.#subject?.template(this.view, this.activity, true)}
      <form novalidate @submit=${submit} @input=${() => this.#keepForm()} @change=${() => this.#keepForm()} @keydown=${(/** @type {KeyboardEvent} */ event) => this.#handleFormKey(event)}>${this.#parts() ?? this.#answers()}</form>
      ${this.#status()}
    </article>`;
  }

  get #subjectFacts() {
    return this.#subject?.facts(this.view, this.activity) ?? [];
  }

  /** Says that something is not there yet. A question is answered only by a person who sees all of it. */
  #parts() {
    if (!this.#subject && hasSubject(this.activity)) return html`<p class="told">${t("Loading…")}</p>`;
    if (this.content.bodies === undefined) return undefined;
    const problem = this.#whole?.problem ?? "";
    return problem === "" ? html`<p class="told">${t("Loading the whole arguments…")}</p>` : html`<p class="told" data-state="warning">${t("The whole arguments cannot be shown: {problem} Reload the page to try again.", { problem })}</p>`;
  }

  #message() {
    const { message, title } = this.content;
    const text = reveal(toText(message));
    return message === undefined || message === title || text === this.#title ? nothing : html`<p class="message" dir="auto">${text}</p>`;
  }

  get #title() {
    return actionTitle(this.view, this.activity);
  }

  get #requesterName() {
    const { agentId, agentName } = this.content;
    return reveal(agentId === undefined ? toText(agentName) : this.nameOf(toText(agentId)));
  }

  /**
   * Names the requester and the time that it waits.
   * @param {boolean} isPending
   */
  #requester(isPending) {
    const { agentId, parentRouting } = this.content;
    const name = this.#requesterName;
    const role = agentId === undefined ? undefined : this.sibling("agent", toText(agentId))?.content.role;
    const since = parseTime(this.activity.openedAt);
    const waits = isPending ? formatWhole(this.view.now() - since) : "";
    const word = t(this.#isSubmitted ? "Answer submitted" : isApproval(this.content) ? "Needs approval" : "Waiting for input");
    return html`<p class="who">
      ${isPending ? html`<span class="badge">${statusLabel(this.#isSubmitted ? "running" : "waiting", word)}</span>` : nothing}
      <span class="requester" title=${toText(agentId)}>${name ? html`<b>${name}</b>${role ? ` (${humanize(role)})` : ""} ${t(isPending ? "asks" : "asked")}${parentRouting === undefined ? "" : ` ${t("through {name}", { name: this.nameOf(toText(parentRouting)) })}`}` : html`${t("Requester:")} <i>${t("not stated")}</i>`}</span>
      ${waits ? html`<span class="waits" title=${formatExact(since)}>${t("waiting {time}", { time: waits })}</span>` : nothing}${isPending ? [this.#record?.progressTags(this.content, this.view.now()), this.#place] : nothing}
    </p>`;
  }

  /* ── the answer ── */

  /** The identity of the question: with another wording it is another question. */
  get #questionKey() {
    const { kind, message, schema, responseSchema, options, title, parameters, versionId } = this.content;
    return JSON.stringify([keyOf(this.activity), kind, message, schema, responseSchema, options, title, parameters, versionId]);
  }

  get #isSubmitted() {
    return this.#isSending !== "" || this.#pageAnswer !== undefined || this.#submittedQuestion !== "";
  }

  get #isExpired() {
    const until = parseTime(this.content.expiresAt);
    return Number.isFinite(until) && until <= this.view.now();
  }

  #answers() {
    if (!this.view.isLive) {
      this.#formKey = "";
      return nothing;
    }
    const { kind, schema, responseSchema, options } = this.content;
    const key = JSON.stringify([keyOf(this.activity), kind, schema, responseSchema, options, credentialKindOf(this.content)]);
    // An unrelated change must not replace a form that a person is filling in.
    if (key !== this.#formKey || !this.#form) {
      const form = this.#createForm();
      if (!form) return html`<p class="told">${t("Loading the form…")}</p>`;
      this.#formKey = key;
      this.#form = form;
      this.#isRejecting = filled.get(key)?.isRejecting ?? false;
      this.#menu?.close();
      if (filled.has(key)) queueMicrotask(() => this.#restoreForm(key));
    }
    const form = this.#form;
    const isDisabled = this.#isSubmitted || this.#isExpired;
    for (const field of [form.fields, form.choice]) for (const control of /** @type {NodeListOf<HTMLInputElement>} */ (field?.root.querySelectorAll("input, select, textarea") ?? [])) control.disabled = isDisabled;
    const fields = [form.choice, form.fields].filter((field) => field !== undefined && !field.isEmpty);
    return html`
      ${form.isSignIn ? html`<p class="fields hint">${t("This credential needs a sign-in (OAuth) in the runtime's own interface. You cannot enter it here.")}</p>` : nothing}
      ${fields.length > 0 ? html`<div class="fields">${fields.map((field) => field?.root)}</div>` : nothing}
      ${this.#unstated(form)}
      ${this.#edits(isDisabled)}
      <div class="outcomes" data-single=${form.isSignIn}>
        ${form.isSignIn ? nothing : html`<p class="yes-text">${plainYes(form.approve)?.description ?? ""}</p><div class="yes">${form.answers.length > 0 ? this.#choices(form, isDisabled) : this.#approval(form, isDisabled)}</div>`}
        <p class="no-text">${form.reject[0]?.description ?? ""}</p>
        <div class="no">${this.#rejection(form, isDisabled)}${this.#isRejecting ? nothing : this.#askButton()}</div>
      </div>${this.#question?.isOpen ? nothing : html`<div class="ask-row">${this.#askButton()}</div>`}${this.#question?.form(this.#requesterName)}`;
  }

  #keepForm() {
    const form = this.querySelector("form");
    if (form) filled.set(this.#formKey, { isRejecting: this.#isRejecting, values: controlsIn(form).map((control) => [control.value, control instanceof HTMLInputElement && control.checked]) });
  }

  /** @param {string} key */
  #restoreForm(key) {
    const form = this.querySelector("form");
    const values = filled.get(key)?.values;
    if (!form || !values || key !== this.#formKey) return;
    controlsIn(form).forEach((control, at) => {
      const [value, isChecked] = values[at] ?? [control.value, control instanceof HTMLInputElement && control.checked];
      if (control instanceof HTMLInputElement && ["checkbox", "radio"].includes(control.type)) control.checked = isChecked;
      else control.value = value;
      control.dispatchEvent(new Event("input"));
      control.dispatchEvent(new Event("change"));
    });
  }

  /** Whether a runtime can get a question: the agent is known, or its run is active. */
  get canAsk() {
    const { view, activity, content } = this;
    const run = this.sibling("run", activity.runId);
    return view.isLive && activity.runId !== "" && (content.agentId !== undefined || (run !== undefined && isLiveRun(run)));
  }

  /** The button beside the answers that opens the field for a question. */
  #askButton() {
    return this.canAsk && !this.#question?.isOpen ? html`<button type="button" class="button" data-kind="quiet" data-does="open-question" @click=${() => this.#ask()}>${t("Ask a question")}</button>` : nothing;
  }

  async #ask() {
    try {
      const { AskAgent } = await import("./ask-agent.js");
      this.#question ??= new AskAgent(this);
      this.#question.open();
    } catch (error) {
      this.#problem = { state: "failed", text: t("This did not load: {reason}", { reason: error instanceof Error ? error.message : error }), question: this.#questionKey };
      this.draw();
    }
  }

  /** Names in one line what the source omits of what a person needs to decide. @param {Form} form */
  #unstated(form) {
    const isResultKnown = !form.decides || [...form.approve, ...form.reject].some(({ description }) => description);
    const facts = [...unstatedFacts(this), ...(isResultKnown ? [] : [/** @type {const} */ ("result")])];
    return facts.length === 0 ? nothing : html`<p class="unstated">${t("Not stated: {facts}.", { facts: facts.map((fact) => t(fact)).join(", ") })}</p>`;
  }

  /**
   * @param {Form} form
   * @param {boolean} isDisabled
   */
  #approval(form, isDisabled) {
    if (!form.decides) return this.#button(t("Send answer"), "answer", () => form.fields?.read() ?? {}, { style: "primary", keys: SEND_KEYS, isDisabled });
    const option = plainYes(form.approve);
    const control = form.isQuestion ? "answer" : "approve";
    const label = option ? capitalize(option.label) : t("Approve");
    const read = () => this.#answer("approve", option ?? undefined);
    const main = option === null ? nothing : this.#button(label, control, read, { style: "primary", keys: "Y", isDisabled, verdict: "approve" });
    const wider = form.approve.filter((one) => one !== option);
    const module = wider.length > 0 ? menus(this) : undefined;
    this.#menu ??= module && new module.AllowMenu(this, () => this.draw());
    return wider.length === 0 || !this.#menu ? main : this.#menu.template(main, wider, isDisabled, (one) => void this.#sendDecision(one.label, control, this.#answer("approve", one), "approve"));
  }

  /**
   * The answers that a question offers.
   * @param {Form} form
   * @param {boolean} isDisabled
   */
  #choices(form, isDisabled) {
    const choice = (/** @type {Option} */ { value, label, description }) => html`<button type="button" class="button choice" data-control="answer" ?disabled=${isDisabled} @click=${() => void this.#send(label, "answer", { value })}><b dir="auto">${label}</b>${description ? html`<span dir="auto">${description}</span>` : nothing}</button>`;
    return html`<div class="choices-row" role="group" aria-label=${t("Your answer")}>${form.answers.map(choice)}</div>`;
  }

  /**
   * Sends by Ctrl-Enter or Command-Enter: the reason of a rejection, else the answer.
   * @param {KeyboardEvent} event
   */
  #handleFormKey(event) {
    if (event.key === "Escape" && this.#isRejecting) {
      event.stopPropagation();
      this.#isRejecting = false;
      this.draw();
      /** @type {HTMLElement | null} */ (this.querySelector("[data-opens]"))?.focus();
    }
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const { target } = event;
    const part = target instanceof Element && target.closest(".reason, .edit");
    /** @type {HTMLElement | null} */ ((part || this).querySelector(part ? "[data-control]" : ".yes [data-control]:not(.choice)"))?.click();
  }

  /**
   * @param {Form} form
   * @param {boolean} isDisabled
   */
  #rejection(form, isDisabled) {
    if (!form.decides) return this.#button(t("Decline"), "reject", () => ({}), { isDisabled });
    const [option, ...others] = form.reject;
    const label = option ? capitalize(option.label) : t("Reject");
    const button = (/** @type {Option | undefined} */ one, /** @type {string} */ name, /** @type {string} */ keys) => this.#button(name, "reject", () => this.#answer("reject", one), { style: "danger", keys, isDisabled, verdict: "reject" });
    const rest = [
      ...others.map((one) => button(one, capitalize(one.label), "")),
      ...form.edits.map((one) => this.#button(capitalize(one.label), "edit", () => this.#answer("edit", one), { isDisabled, verdict: "edit" })),
    ];
    if (!form.asksReason) return html`${button(option, label, "N")}${rest}`;
    const setRejecting = (/** @type {boolean} */ isRejecting) => {
      this.#isRejecting = isRejecting;
      this.draw();
      this.#keepForm();
      /** @type {HTMLElement | null} */ (this.querySelector(isRejecting ? ".reason textarea" : ".no [data-opens]"))?.focus();
    };
    if (!this.#isRejecting) return html`<button type="button" class="button" data-opens="reject" data-kind="danger" ?disabled=${isDisabled} @click=${() => setRejecting(true)}>${label}…<kbd aria-hidden="true">N</kbd></button>${rest}`;
    return html`<div class="reason">
      <label class="field"><span>${t("Reason (optional)")}</span><textarea rows="2" maxlength="4000" ?disabled=${isDisabled}></textarea></label>
      <div class="row">${button(option, label, "")}<button type="button" class="button" data-kind="quiet" ?disabled=${isDisabled} @click=${() => setRejecting(false)}>${t("Cancel")}</button></div>
    </div>`;
  }

  /**
   * Reads the answer of a decision: the option, the choice, the fields, and the reason of a rejection.
   * @param {Verdict} verdict
   * @param {Option | undefined} option
   * @returns {Answer}
   */
  #answer(verdict, option) {
    const form = this.#form;
    if (!form) return {};
    let answer = form.fields?.read(verdict) ?? {};
    if (verdict === "approve" && form.choice) answer = combine(form.choice.read(), answer);
    else if (option) answer = combine({ value: option.value }, answer);
    const reason = verdict === "reject" ? (/** @type {HTMLTextAreaElement | null} */ (this.querySelector(".reason textarea"))?.value.trim() ?? "") : "";
    return reason === "" || answer.problem ? answer : combine(answer.value === undefined ? { value: {} } : answer, { value: { [form.reasonName]: reason } });
  }

  /**
   * Fields that change what is approved, collapsed under their names.
   * @param {boolean} isDisabled
   */
  #edits(isDisabled) {
    if (this.#form?.isQuestion) return nothing;
    if (EDITABLE_KINDS.has(this.content.kind)) return this.#edit(t("Which changes do you want?"), t("Request changes"), "", (text) => (text.trim() === "" ? { problem: t("Enter the changes that you want.") } : { value: text }), isDisabled);
    const editable = editableArguments(this);
    if (editable === undefined) return nothing;
    return this.#edit(t("Arguments (JSON)"), t("Edit arguments"), escapeHidden(JSON.stringify(editable, null, 2)), (text) => {
      try {
        return { value: parseJson(text) };
      } catch {
        return { problem: t("The arguments are not JSON.") };
      }
    }, isDisabled);
  }

  /**
   * @param {string} title
   * @param {string} label
   * @param {string} text The initial text.
   * @param {(text: string) => Answer} valueOf
   * @param {boolean} isDisabled
   */
  #edit(title, label, text, valueOf, isDisabled) {
    const control = () => /** @type {HTMLTextAreaElement} */ (this.querySelector(".edit textarea"));
    const read = () => {
      const answer = valueOf(control().value);
      return answer.problem ? { ...answer, field: control() } : answer;
    };
    return html`<details class="edit"><summary>${label}…</summary><div class="edit-body"><label class="field"><span>${title}</span><textarea rows="4" class=${text ? "mono" : ""} ?disabled=${isDisabled} .defaultValue=${text}></textarea></label>${this.#button(label, "edit", read, { isDisabled })}</div></details>`;
  }

  /** @returns {Form | undefined} `undefined` while what builds it loads. */
  #createForm() {
    const { kind, responseSchema: schema = this.content.schema } = this.content;
    const options = Array.isArray(this.content.options) ? this.content.options : [];
    const offered = options.map(optionOf);
    const isQuestion = QUESTIONS.has(kind);
    const isSignIn = kind === "credential_request" && schema === undefined && credentialKindOf(this.content) === "oauth";
    /** @type {Form} */
    const form = { isQuestion, decides: !isQuestion, approve: [], reject: [], edits: [], answers: [], isSignIn, asksReason: false, reasonName: "reason" };
    if (isSignIn) return form;
    if (isQuestion) {
      // An option with an answer of its own needs no form.
      const answersAll = offered.length > 0 && offered.every(({ verdict }) => verdict === undefined) && (schema === undefined || options.every((/** @type {any} */ one) => one?.value !== undefined));
      if (answersAll) return { ...form, answers: offered };
      const builder = forms(this);
      if (!builder) return undefined;
      form.fields = builder.questionOf(kind, schema);
      form.decides = form.fields.decides === true;
      // A secret is never displayed, even if a schema asks for plain text.
      if (kind === "credential_request") for (const input of form.fields.root.querySelectorAll("input")) if (input.type === "text") input.type = "password";
      return form;
    }
    // An option that answers in words, such as LangGraph's `respond`, is no choice between ways to approve.
    const plain = offered.filter(({ verdict }, at) => verdict === undefined && options[at]?.kind !== "answer");
    const of = (/** @type {Verdict} */ verdict) => offered.filter((one) => one.verdict === verdict);
    const builder = plain.length > 0 || schema !== undefined ? forms(this) : undefined;
    if ((plain.length > 0 || schema !== undefined) && !builder) return undefined;
    if (plain.length > 0) form.choice = builder?.choiceOf(t("Options"), plain.map(({ value, label, description }) => ({ value, label, description })));
    if (schema !== undefined) form.fields = builder?.formOf(schema);
    const properties = /** @type {any} */ (schema)?.properties;
    const hasReason = properties !== null && typeof properties === "object" && Object.keys(properties).some((name) => REASON_NAME.test(name));
    // A schema that describes something else than an object has no place for a reason.
    const reasonName = typedDecisions(schema)?.reasonName;
    const acceptsReason = schema === undefined || reasonName !== undefined || (properties !== undefined && /** @type {any} */ (schema).additionalProperties !== false);
    // The editor of the arguments says more than the option to edit them.
    const edits = editableArguments(this) === undefined ? of("edit") : [];
    return { ...form, approve: of("approve"), reject: of("reject"), edits, asksReason: !hasReason && acceptsReason, reasonName: reasonName ?? "reason" };
  }

  /**
   * @param {string} label
   * @param {string} control
   * @param {() => Answer} read
   * @param {{ style?: "primary" | "danger", keys?: string, isDisabled: boolean, verdict?: Verdict }} options `verdict`: the meaning of the label, which the answer must not contradict.
   */
  #button(label, control, read, { style, keys, isDisabled, verdict }) {
    const isPending = isDisabled && (this.#isSending === label || this.#pageAnswer?.button === label);
    const click = () => void this.#sendDecision(label, control, read(), verdict);
    return html`<button type="button" class="button" part="button ${control}" data-control=${control} data-kind=${style ?? "plain"} ?data-pending=${isPending} ?disabled=${isDisabled} @click=${click}>${isPending ? glyph("running") : nothing}${label}${keys && !isDisabled ? html`<kbd aria-hidden="true">${keys}</kbd>` : nothing}</button>`;
  }

  /**
   * Sends an answer, unless it contradicts its button.
   * @param {string} label
   * @param {string} control
   * @param {Answer} answer
   * @param {Verdict | undefined} verdict
   */
  #sendDecision(label, control, answer, verdict) {
    const isContradiction = verdict !== undefined && answer.value !== undefined && contradicts(answer.value, verdict);
    return this.#send(label, control, isContradiction ? { problem: t("Not sent: the answer contradicts “{label}”. Change the answer, or use the other button.", { label }) } : answer);
  }

  /**
   * @param {string} button
   * @param {string} control
   * @param {Answer} answer
   */
  async #send(button, control, answer) {
    if (this.#isSubmitted) return;
    if (answer.problem) {
      this.#problem = { state: "warning", text: answer.problem, question: this.#questionKey };
      this.draw();
      answer.field?.focus();
      return;
    }
    const question = this.#questionKey;
    this.#isSending = button;
    this.#problem = undefined;
    const hadFocus = this.contains(focusedBeside(this));
    this.draw();
    // A disabled button loses the focus.
    if (hadFocus) /** @type {HTMLElement | null} */ (this.querySelector(".ask"))?.focus({ preventScroll: true });
    try {
      const { runId, sessionId, activityId } = this.activity;
      const wanted = { control, ...(runId ? { run: runId } : { session: sessionId }), actionId: activityId, ...(answer.value === undefined ? {} : { value: answer.value }) };
      this.#pageAnswer = { ...(await this.view.act(wanted)), question, at: this.view.now(), button, control };
      filled.delete(this.#formKey);
      this.dispatchEvent(new CustomEvent("decided", { bubbles: true, detail: { control, controlId: this.#pageAnswer.controlId } }));
    } catch (error) {
      this.#problem = { state: "failed", text: t("Not submitted: {reason}", { reason: error instanceof Error ? error.message : error }), question };
    }
    this.#isSending = "";
    this.draw();
  }

  /** The text about the answer, and the time left. */
  #status() {
    const [state, text] = this.#statusText();
    const expiry = this.#expiryText();
    return html`<p class="told" role="status" data-state=${state} ?hidden=${text === ""}>${text}</p>${expiry ? html`<p class="expiry">${expiry}</p>` : nothing}`;
  }

  /** Returns the visual state of the answer, and its text. */
  #statusText() {
    const question = this.#questionKey;
    if (!this.view.isLive) return ["stale", t("You are viewing a past state. Go back to live to answer.")];
    if (this.#isSending !== "") return ["running", t("Submitting your answer…")];
    if (this.#isSubmitted) return ["running", (this.#pageAnswer?.control !== "reject" && this.#record?.countedText(this.content)) || t(this.#pageAnswer ? "Answered by you. Waiting for {name}." : "Answered. Waiting for {name}.", { name: this.#requesterName || t("the runtime") })];
    if (this.#problem?.question === question) return [this.#problem.state, this.#problem.text];
    if (this.#rejectedQuestion === question) return ["warning", t("The runtime did not accept the answer. You can answer again.")];
    return ["", ""];
  }

  #expiryText() {
    const until = parseTime(this.content.expiresAt);
    if (!Number.isFinite(until)) return "";
    const left = until - this.view.now();
    if (left <= 0) return t("The time to answer has expired. The runtime decides how to continue.");
    return left > DAY_MS ? t("Answer before {time}.", { time: new Date(until).toLocaleString() }) : t("Time left to answer: {time}.", { time: formatDuration(Math.ceil(left / 1000) * 1000) });
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

  /**
   * Handles a key of the page for the open decision: y and n focus its buttons, d shows or hides the diff. Where the yes
   * is an answer in a field, y focuses that.
   * @param {string} key
   * @returns {boolean} Whether the key has a meaning here.
   */
  handleKey(key) {
    if (key === "d") {
      this.#subject?.toggle();
      return true;
    }
    const field = key === "y" && this.#form?.decides === false ? this.querySelector(".fields :is(input, select, textarea):enabled") : null;
    const button = /** @type {HTMLElement | null} */ (field ?? this.querySelector(key === "y" ? ".yes .button" : ".no .button"));
    button?.scrollIntoView({ block: "nearest" });
    button?.focus();
    return button !== null;
  }
}

define("ps-action", Action);

/**
 * Combines an option and a form: the option alone, or `{ optionId | option, …form }`.
 * @param {Answer} option
 * @param {Answer} form
 * @returns {Answer}
 */
function combine(option, form) {
  if (option.problem || form.problem) return option.problem ? option : form;
  if (form.value === undefined) return option;
  const isObject = (/** @type {unknown} */ value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const chosen = isObject(option.value) ? /** @type {object} */ (option.value) : { option: option.value };
  return { value: { ...chosen, ...(isObject(form.value) ? /** @type {object} */ (form.value) : { value: form.value }) } };
}

/**
 * Formats a span in whole seconds, from one on: a tenth of a second says nothing about a person's time.
 * @param {number} ms
 */
const formatWhole = (ms) => (ms < 1000 ? "" : formatSpan(Math.floor(ms / 1000) * 1000).replace(".0s", "s"));

/** @param {string} text */
const capitalize = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
