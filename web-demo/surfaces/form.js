/**
 * Forms from a JSON Schema: the fields of an action.
 *
 * Supported: objects one level deep, enums, booleans, strings, numbers and lists of strings. Anything else is a JSON
 * field. A field returns a value that fits the schema, or the problem. A member that contains the decision has no
 * field: the pressed button fills it in.
 */

import { element, humanize, toText } from "./base.js";
import { decisionOf, optionOf } from "./decision.js";

/** @typedef {import("./decision.js").Verdict} Verdict */
/** @typedef {{ value?: unknown, problem?: string, field?: HTMLElement }} Answer A value, or a problem and its field. */
/**
 * `decides`: whether the button fills in a part. `isEmpty`: whether it has no other field.
 * @typedef {{ root: HTMLElement, read: (verdict?: Verdict) => Answer, decides?: boolean, isEmpty?: boolean }} Field
 */

/** Names of members that may explain a rejection. A rejection needs no other field. */
const REMARK_NAME = /reason|comment|feedback|note|message|explanation|remark/i;

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
  const title = toText(root.title) || "Your answer";
  const decision = isQuestion ? undefined : decisionField("", root, title);
  if (decision) return decision;
  // Unlike a checkbox, radio buttons send nothing before a choice.
  if (root.type === "boolean") return radioField(title, [{ value: true, label: "Yes", description: "" }, { value: false, label: "No", description: "" }], root.default, true);
  return field("value", { title: "Your answer", ...root }, true, 0);
}

/**
 * Builds the form of a question.
 * @param {string} kind The kind of the action.
 * @param {unknown} schema
 */
export function questionOf(kind, schema) {
  if (kind === "credential_request" && schema === undefined) return formOf({ title: "Credential. Only the runtime that asked receives it; this page does not store it.", type: "string", format: "password" }, { isQuestion: true });
  return formOf(schema ?? { title: "Your answer", type: "string", format: "textarea" }, { isQuestion: true });
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
    return decision.approve.length > 0 ? { value: decision.approve[0] } : { problem: "The schema of this request has no approving value.", field: undefined };
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
      if (verdict === "reject" && !one.decides && !REMARK_NAME.test(one.name)) continue;
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
 */
function nestedField(title, schema, isRequired) {
  const inner = objectField(schema, 1);
  const root = element("fieldset", "stack nested");
  root.append(element("legend", "label", title), inner.root);
  const read = (/** @type {Verdict | undefined} */ verdict) => {
    const answer = inner.read(verdict);
    const isEmpty = !answer.problem && Object.keys(/** @type {object} */ (answer.value ?? {})).length === 0;
    return isEmpty && !isRequired ? {} : answer;
  };
  return { root, read, decides: inner.decides, isEmpty: inner.isEmpty };
}

/**
 * Builds a label with its control and the schema's description.
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {HTMLElement} control
 * @param {boolean} isRequired
 */
function labelled(title, schema, control, isRequired) {
  const root = element("label", "field");
  root.append(element("span", "", isRequired ? title : `${title} (optional)`), control);
  if (schema.description) {
    const hint = element("span", "hint", toText(schema.description));
    hint.id = uniqueId();
    control.setAttribute("aria-describedby", hint.id);
    root.append(hint);
  }
  return root;
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @returns {Field}
 */
function textField(title, schema, isRequired) {
  const isLong = (schema.maxLength ?? 0) > SINGLE_LINE_CHARS_MAX || schema.format === "textarea" || schema.contentMediaType !== undefined;
  const control = isLong ? element("textarea") : element("input");
  if (control instanceof HTMLInputElement) control.type = { email: "email", uri: "url", date: "date", password: "password" }[String(schema.format)] ?? "text";
  control.autocomplete = "off";
  control.value = toText(schema.default);
  if (typeof schema.maxLength === "number") control.maxLength = schema.maxLength;
  const read = () => {
    const value = control.value;
    if (value === "") return isRequired ? { problem: `${title} is required.`, field: control } : {};
    if (typeof schema.minLength === "number" && value.length < schema.minLength) return { problem: `${title} needs at least ${schema.minLength} characters.`, field: control };
    return { value };
  };
  return { root: labelled(title, schema, control, isRequired), read };
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @param {boolean} isWhole
 * @returns {Field}
 */
function numberField(title, schema, isRequired, isWhole) {
  const control = element("input");
  control.type = "number";
  control.step = isWhole ? "1" : "any";
  if (typeof schema.minimum === "number") control.min = String(schema.minimum);
  if (typeof schema.maximum === "number") control.max = String(schema.maximum);
  control.value = toText(schema.default);
  const read = () => {
    if (control.value === "" && !control.validity.badInput) return isRequired ? { problem: `${title} is required.`, field: control } : {};
    if (!control.validity.valid) return { problem: `${title}: ${control.validationMessage}`, field: control };
    return { value: control.valueAsNumber };
  };
  return { root: labelled(title, schema, control, isRequired), read };
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @returns {Field}
 */
function checkboxField(title, schema) {
  const root = element("label", "row check");
  const control = element("input");
  control.type = "checkbox";
  control.checked = schema.default === true;
  root.append(control, element("span", "", title));
  if (schema.description) root.append(element("span", "hint", toText(schema.description)));
  return { root, read: () => ({ value: control.checked }) };
}

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
  const control = element("select");
  control.append(new Option("Choose…", ""));
  options.forEach((option, at) => control.append(new Option(option.label, String(at), false, option.value === schema.default)));
  const read = () => {
    if (control.value === "") return isRequired ? { problem: `${title} is required.`, field: control } : {};
    return { value: values[Number(control.value)] };
  };
  return { root: labelled(title, schema, control, isRequired), read };
}

/**
 * @param {string} title
 * @param {{ value: unknown, label: string, description: string }[]} options
 * @param {unknown} chosen
 * @param {boolean} isRequired
 * @returns {Field}
 */
function radioField(title, options, chosen, isRequired) {
  const root = element("fieldset", "stack choices");
  const name = uniqueId();
  root.append(element("legend", "", title));
  const controls = options.map((option) => {
    const label = element("label", "row choice");
    const control = element("input");
    control.type = "radio";
    control.name = name;
    control.checked = chosen !== undefined && option.value === chosen;
    label.append(control, element("span", "", option.label));
    if (option.description) label.append(element("span", "hint", option.description));
    root.append(label);
    return control;
  });
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
  const options = isObject(schema.items) && Array.isArray(schema.items.enum) ? schema.items.enum : undefined;
  if (options) return checkboxListField(title, options);
  const control = element("textarea");
  control.rows = 3;
  const read = () => {
    const value = control.value.split("\n").map((one) => one.trim()).filter(Boolean);
    return value.length === 0 && isRequired ? { problem: `${title} is required.`, field: control } : { value };
  };
  return { root: labelled(title, { description: "One per line.", ...schema }, control, isRequired), read };
}

/**
 * @param {string} title
 * @param {unknown[]} options
 * @returns {Field}
 */
function checkboxListField(title, options) {
  const root = element("fieldset", "stack choices");
  root.append(element("legend", "", title));
  const controls = options.map((option) => {
    const label = element("label", "row check");
    const control = element("input");
    control.type = "checkbox";
    label.append(control, element("span", "", humanize(option)));
    root.append(label);
    return control;
  });
  return { root, read: () => ({ value: options.filter((_, at) => controls[at].checked) }) };
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @returns {Field}
 */
function jsonField(title, schema, isRequired) {
  const control = element("textarea", "mono");
  control.rows = 4;
  control.value = schema.default === undefined ? "" : JSON.stringify(schema.default, null, 2);
  const read = () => {
    if (control.value.trim() === "") return isRequired ? { problem: `${title} is required.`, field: control } : {};
    try {
      return { value: JSON.parse(control.value) };
    } catch {
      return { problem: `${title} is not valid JSON.`, field: control };
    }
  };
  return { root: labelled(title, { description: "JSON.", ...schema }, control, isRequired), read };
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, any>}
 */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
