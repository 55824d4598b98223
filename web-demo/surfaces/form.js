/**
 * Forms from a JSON Schema: the fields of an action.
 *
 * Supported: objects one level deep, enums, booleans, strings, numbers and lists of strings. Anything else is a JSON
 * field. A field returns a value that fits the schema, or the problem. A member that contains the decision has no
 * field: the pressed button fills it in.
 */

import { parseJson } from "../client/json.js";
import { element, formatCount, humanize, toText } from "./base.js";
import { REASON_NAME, decisionOf, optionOf, typedDecisions } from "./decision.js";
import { reveal } from "../ui/reveal.js";
import { t } from "../ui/texts.js";
import { html, nothing, render } from "../vendor/lit.js";

/** @typedef {import("./decision.js").Verdict} Verdict */
/** @typedef {ReturnType<typeof html>} Template */
/** @typedef {{ value?: unknown, problem?: string, field?: HTMLElement }} Answer A value, or a problem and its field. */
/**
 * `decides`: whether the button fills in a part. `isEmpty`: whether it has no other field.
 * @typedef {{ root: HTMLElement, read: (verdict?: Verdict) => Answer, decides?: boolean, isEmpty?: boolean }} Field
 */

/** The maximum number of choices shown as radio buttons; more become a select. */
const RADIOS_MAX = 5;
/** A string with a larger maximum length gets a text area. */
const SINGLE_LINE_CHARS_MAX = 120;

let idCount = 0;
const uniqueId = () => `ask-${(idCount += 1)}`;

/**
 * @param {unknown} schema
 * @param {{ isQuestion?: boolean }} [of] In a question, a single boolean is the answer; in an approval it is the decision.
 * @returns {Field}
 */
export function formOf(schema, { isQuestion = false } = {}) {
  const root = isObject(schema) ? schema : {};
  if (isObject(root.properties)) return objectField(root, 0);
  const typed = isQuestion ? undefined : typedDecisions(root);
  if (typed) return { root: element("div"), read: (verdict) => ({ value: verdict === "reject" ? typed.reject : typed.approve }), decides: true, isEmpty: true };
  const title = toText(root.title) || t("Your answer");
  const decision = isQuestion ? undefined : decisionField("", root, title);
  if (decision) return decision;
  // Unlike a checkbox, radio buttons send nothing before a choice.
  if (root.type === "boolean") return radioField(title, [{ value: true, label: t("Yes"), description: "" }, { value: false, label: t("No"), description: "" }], root.default, true);
  return field("value", { title: t("Your answer"), ...root }, true, 0);
}

/**
 * Builds the form of a question.
 * @param {string} kind The kind of the action.
 * @param {unknown} schema
 */
export function questionOf(kind, schema) {
  if (kind === "credential_request" && schema === undefined) return formOf({ title: t("Credential. Only the runtime that asked receives it; this page does not store it."), type: "string", format: "password" }, { isQuestion: true });
  return formOf(schema ?? { title: t("Your answer"), type: "string", format: "textarea" }, { isQuestion: true });
}

/**
 * Builds the field of a decision. If several values approve (once, always), the field offers them.
 * @param {string} name
 * @param {Record<string, any>} schema
 * @param {string} title
 * @returns {Field | undefined}
 */
function decisionField(name, schema, title) {
  const decision = decisionOf(name, schema);
  if (!decision) return undefined;
  const isChoice = decision.approve.length > 1;
  const choice = isChoice ? radioField(title, decision.approve.map((value) => ({ value, label: humanize(value), description: "" })), schema.default, true) : undefined;
  const read = (/** @type {Verdict | undefined} */ verdict) => {
    if (verdict === "reject") return decision.reject.length > 0 ? { value: decision.reject[0] } : {};
    if (choice) return choice.read();
    return decision.approve.length > 0 ? { value: decision.approve[0] } : { problem: t("The schema of this request has no approving value."), field: undefined };
  };
  return { root: choice?.root ?? element("div"), read, decides: true, isEmpty: !isChoice };
}

/**
 * Builds a choice among a source's options.
 * @param {string} legend
 * @param {unknown[]} options Strings, or `{ value | id | optionId, label | name | title, description }`.
 * @returns {Field}
 */
export function choiceOf(legend, options) {
  return radioField(legend, options.map(optionOf), undefined, true);
}

/**
 * @param {Record<string, any>} schema
 * @param {number} depth
 * @returns {Field}
 */
function objectField(schema, depth) {
  const root = element("div", "stack");
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = Object.entries(schema.properties).map(([name, given]) => {
    const inner = isObject(given) ? given : {};
    const one = decisionField(name, inner, toText(inner.title) || humanize(name)) ?? field(name, inner, required.has(name), depth);
    if (!one.isEmpty) root.append(one.root);
    return { name, ...one };
  });
  const read = (/** @type {Verdict | undefined} */ verdict) => {
    /** @type {Record<string, unknown>} */
    const value = {};
    for (const one of fields) {
      // A rejection needs only the decision; a remark is sent along.
      if (verdict === "reject" && !one.decides && !REASON_NAME.test(one.name)) continue;
      const answer = one.read(verdict);
      if (answer.problem && verdict === "reject" && !one.decides) continue;
      if (answer.problem) return answer;
      if (answer.value !== undefined) value[one.name] = answer.value;
    }
    return verdict === "reject" && Object.keys(value).length === 0 ? {} : { value };
  };
  return { root, read, decides: fields.some((one) => one.decides), isEmpty: fields.every((one) => one.isEmpty) };
}

/**
 * @param {string} name
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @param {number} depth
 * @returns {Field}
 */
function field(name, schema, isRequired, depth) {
  const title = toText(schema.title) || humanize(name);
  if (Array.isArray(schema.enum)) return choice(title, schema, isRequired);
  const type = Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;
  if (type === "boolean") return checkboxField(title, schema);
  if (type === "number" || type === "integer") return numberField(title, schema, isRequired, type === "integer");
  if (type === "object" && isObject(schema.properties) && depth === 0) return nestedField(title, schema, isRequired);
  if (type === "array" && (!isObject(schema.items) || schema.items.type === "string")) return listField(title, schema, isRequired);
  if (type === "string" || type === undefined) return textField(title, schema, isRequired);
  return jsonField(title, schema, isRequired);
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @returns {Field}
 */
function nestedField(title, schema, isRequired) {
  const inner = objectField(schema, 1);
  const read = (/** @type {Verdict | undefined} */ verdict) => {
    const answer = inner.read(verdict);
    const isEmpty = !answer.problem && Object.keys(/** @type {object} */ (answer.value ?? {})).length === 0;
    return isEmpty && !isRequired ? {} : answer;
  };
  return { root: build(html`<fieldset class="stack nested"><legend class="label">${title}</legend>${inner.root}</fieldset>`), read, decides: inner.decides, isEmpty: inner.isEmpty };
}

/**
 * Draws a template once. Its controls keep what a person enters.
 * @param {Template} template
 */
function build(template) {
  const frame = document.createDocumentFragment();
  render(template, frame);
  const root = /** @type {HTMLElement} */ (frame.firstElementChild);
  // The texts are the source's: their hidden characters show, and each has its own direction.
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let text = /** @type {Text | null} */ (texts.nextNode()); text; text = /** @type {Text | null} */ (texts.nextNode())) {
    const shown = reveal(text.data);
    if (shown !== text.data) text.data = shown;
    if (text.data.trim() !== "" && text.parentElement) text.parentElement.dir = "auto";
  }
  return root;
}

/**
 * Builds a label with its control and a hint: the range of a number, and the schema's description.
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @param {(hint: string | typeof nothing) => Template} control Takes the id of the hint.
 * @returns {{ root: HTMLElement, control: any }}
 */
function labelled(title, schema, isRequired, control) {
  const hint = [rangeOf(schema), toText(schema.description)].filter(Boolean).join(". ");
  const id = hint ? uniqueId() : nothing;
  const root = build(html`<label class="field"><span>${isRequired ? title : `${title} (optional)`}</span>${control(id)}${hint ? html`<span class="hint" id=${id}>${hint}</span>` : nothing}</label>`);
  return { root, control: root.querySelector("input, select, textarea") };
}

/** @param {Record<string, any>} schema */
function rangeOf({ minimum, maximum }) {
  const [least, most] = [minimum, maximum].map((one) => (typeof one === "number" ? formatCount(one) : undefined));
  return least !== undefined && most !== undefined ? `Between ${least} and ${most}` : least !== undefined ? `At least ${least}` : most !== undefined ? `At most ${most}` : "";
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @returns {Field}
 */
function textField(title, schema, isRequired) {
  const isLong = (schema.maxLength ?? 0) > SINGLE_LINE_CHARS_MAX || schema.format === "textarea" || schema.contentMediaType !== undefined;
  const type = { email: "email", uri: "url", date: "date", password: "password" }[String(schema.format)] ?? "text";
  const [text, length] = [toText(schema.default), typeof schema.maxLength === "number" ? schema.maxLength : nothing];
  const { root, control } = labelled(title, schema, isRequired, (hint) => (isLong
    ? html`<textarea autocomplete="off" maxlength=${length} aria-describedby=${hint} .value=${text}></textarea>`
    : html`<input type=${type} autocomplete="off" maxlength=${length} aria-describedby=${hint} .value=${text}>`));
  const read = () => {
    const { value } = control;
    if (value === "") return isRequired ? { problem: `${title} is required.`, field: control } : {};
    if (typeof schema.minLength === "number" && value.length < schema.minLength) return { problem: `${title} needs at least ${schema.minLength} characters.`, field: control };
    return { value };
  };
  return { root, read };
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @param {boolean} isWhole
 * @returns {Field}
 */
function numberField(title, schema, isRequired, isWhole) {
  const [least, most] = [schema.minimum, schema.maximum].map((one) => (typeof one === "number" ? one : nothing));
  const { root, control } = labelled(title, schema, isRequired, (hint) => html`<input type="number" step=${isWhole ? "1" : "any"} min=${least} max=${most} aria-describedby=${hint} .value=${toText(schema.default)}>`);
  const read = () => {
    if (control.value === "" && !control.validity.badInput) return isRequired ? { problem: `${title} is required.`, field: control } : {};
    if (!control.validity.valid) return { problem: `${title}: ${control.validationMessage}`, field: control };
    return { value: control.valueAsNumber };
  };
  return { root, read };
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @returns {Field}
 */
function checkboxField(title, schema) {
  const root = build(html`<label class="row check"><input type="checkbox" .checked=${schema.default === true}><span>${title}</span>${hintOf(schema.description)}</label>`);
  return { root, read: () => ({ value: root.querySelector("input")?.checked }) };
}

/** @param {unknown} text */
const hintOf = (text) => (text ? html`<span class="hint">${toText(text)}</span>` : nothing);

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @returns {Field}
 */
function choice(title, schema, isRequired) {
  /** @type {unknown[]} */
  const values = schema.enum;
  const labels = Array.isArray(schema.enumNames) ? schema.enumNames : [];
  const options = values.map((value, at) => ({ value, label: toText(labels[at]) || humanize(value), description: "" }));
  if (options.length <= RADIOS_MAX) return radioField(title, options, schema.default, isRequired);
  const { root, control } = labelled(title, schema, isRequired, (hint) => html`<select aria-describedby=${hint}><option value="">Choose…</option>${options.map(({ value, label }, at) => html`<option value=${at} ?selected=${value === schema.default}>${label}</option>`)}</select>`);
  const read = () => {
    if (control.value === "") return isRequired ? { problem: `${title} is required.`, field: control } : {};
    return { value: values[Number(control.value)] };
  };
  return { root, read };
}

/**
 * @param {string} title
 * @param {{ value: unknown, label: string, description: string }[]} options
 * @param {unknown} chosen
 * @param {boolean} isRequired
 * @returns {Field}
 */
function radioField(title, options, chosen, isRequired) {
  const name = uniqueId();
  const root = build(html`<fieldset class="stack choices"><legend>${title}</legend>${options.map(({ value, label, description }) => html`<label class="row choice"><input type="radio" name=${name} .checked=${chosen !== undefined && value === chosen}><span>${label}</span>${hintOf(description)}</label>`)}</fieldset>`);
  const controls = [...root.querySelectorAll("input")];
  const read = () => {
    const at = controls.findIndex((control) => control.checked);
    if (at < 0) return isRequired ? { problem: `${title}: choose one.`, field: controls[0] } : {};
    return { value: options[at].value };
  };
  return { root, read };
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @returns {Field}
 */
function listField(title, schema, isRequired) {
  /** @type {unknown[] | undefined} */
  const options = isObject(schema.items) && Array.isArray(schema.items.enum) ? schema.items.enum : undefined;
  if (options) {
    const root = build(html`<fieldset class="stack choices"><legend>${title}</legend>${options.map((option) => html`<label class="row check"><input type="checkbox"><span>${humanize(option)}</span></label>`)}</fieldset>`);
    const controls = root.querySelectorAll("input");
    return { root, read: () => ({ value: options.filter((_, at) => controls[at].checked) }) };
  }
  const { root, control } = labelled(title, { description: "One per line.", ...schema }, isRequired, (hint) => html`<textarea rows="3" aria-describedby=${hint}></textarea>`);
  const read = () => {
    const value = control.value.split("\n").map((/** @type {string} */ one) => one.trim()).filter(Boolean);
    return value.length === 0 && isRequired ? { problem: `${title} is required.`, field: control } : { value };
  };
  return { root, read };
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @returns {Field}
 */
function jsonField(title, schema, isRequired) {
  const text = schema.default === undefined ? "" : JSON.stringify(schema.default, null, 2);
  const { root, control } = labelled(title, { description: "JSON.", ...schema }, isRequired, (hint) => html`<textarea class="mono" rows="4" aria-describedby=${hint} .value=${text}></textarea>`);
  const read = () => {
    if (control.value.trim() === "") return isRequired ? { problem: `${title} is required.`, field: control } : {};
    try {
      return { value: parseJson(control.value) };
    } catch {
      return { problem: `${title} is not valid JSON.`, field: control };
    }
  };
  return { root, read };
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, any>}
 */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
