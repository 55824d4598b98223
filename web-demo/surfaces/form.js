/**
 * A form from a JSON Schema: what an action asks for, as controls that a person can use.
 *
 * It knows objects one level deep, enums, booleans, strings, numbers, and lists of strings; anything else is asked for as JSON.
 * What it gives is what the schema wants, or the reason why it is not.
 */

import { element, spoken, words } from "./base.js";

/** @typedef {{ value?: unknown, problem?: string, field?: HTMLElement }} Answer A value, or why there is none and where. */
/** @typedef {{ root: HTMLElement, read: () => Answer }} Field */

/** Choices that are shown all at once; more become a list that opens. */
const RADIOS_MAX = 5;
/** A string that may be longer than this gets a field of several lines. */
const LINE_CHARS = 120;

let made = 0;
const unique = () => `ask-${(made += 1)}`;

/**
 * @param {unknown} schema
 * @returns {Field}
 */
export function formOf(schema) {
  const root = isObject(schema) ? schema : {};
  return isObject(root.properties) ? objectField(root, 0) : field("value", { title: "Your answer", ...root }, true, 0);
}

/**
 * One choice of several, by what the source calls them.
 * @param {string} legend
 * @param {unknown[]} options Strings, or `{ value | id | optionId, label | name | title, description }`.
 * @returns {Field}
 */
export function choiceOf(legend, options) {
  return radios(legend, options.map(optionOf), undefined, true);
}

/** @param {unknown} option */
export function optionOf(option) {
  if (!isObject(option)) return { value: option, label: spoken(option), description: "" };
  const value = option.value ?? option.id ?? option.optionId ?? option;
  return { value, label: words(option.label ?? option.name ?? option.title ?? value), description: words(option.description) };
}

/**
 * @param {Record<string, any>} schema
 * @param {number} depth
 * @returns {Field}
 */
function objectField(schema, depth) {
  const root = element("div", "stack");
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = Object.entries(schema.properties).map(([name, inner]) => {
    const one = field(name, isObject(inner) ? inner : {}, required.has(name), depth);
    root.append(one.root);
    return { name, ...one };
  });
  const read = () => {
    /** @type {Record<string, unknown>} */
    const value = {};
    for (const one of fields) {
      const answer = one.read();
      if (answer.problem) return answer;
      if (answer.value !== undefined) value[one.name] = answer.value;
    }
    return { value };
  };
  return { root, read };
}

/**
 * @param {string} name
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 * @param {number} depth
 * @returns {Field}
 */
function field(name, schema, isRequired, depth) {
  const title = words(schema.title) || spoken(name);
  if (Array.isArray(schema.enum)) return choice(title, schema, isRequired);
  const type = Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;
  if (type === "boolean") return checkbox(title, schema);
  if (type === "number" || type === "integer") return number(title, schema, isRequired, type === "integer");
  if (type === "object" && isObject(schema.properties) && depth === 0) return nested(title, schema, isRequired);
  if (type === "array" && (!isObject(schema.items) || schema.items.type === "string")) return list(title, schema, isRequired);
  if (type === "string" || type === undefined) return line(title, schema, isRequired);
  return json(title, schema, isRequired);
}

/**
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {boolean} isRequired
 */
function nested(title, schema, isRequired) {
  const inner = objectField(schema, 1);
  const root = element("fieldset", "stack nested");
  root.append(element("legend", "label", title), inner.root);
  const read = () => {
    const answer = inner.read();
    const isEmpty = !answer.problem && Object.keys(/** @type {object} */ (answer.value)).length === 0;
    return isEmpty && !isRequired ? {} : answer;
  };
  return { root, read };
}

/**
 * A label over its control, with what the schema says of it below.
 * @param {string} title
 * @param {Record<string, any>} schema
 * @param {HTMLElement} control
 * @param {boolean} isRequired
 */
function labelled(title, schema, control, isRequired) {
  const root = element("label", "field");
  root.append(element("span", "", isRequired ? title : `${title} (optional)`), control);
  if (schema.description) {
    const hint = element("span", "hint", words(schema.description));
    hint.id = unique();
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
function line(title, schema, isRequired) {
  const isLong = (schema.maxLength ?? 0) > LINE_CHARS || schema.format === "textarea" || schema.contentMediaType !== undefined;
  const control = isLong ? element("textarea") : element("input");
  if (control instanceof HTMLInputElement) control.type = { email: "email", uri: "url", date: "date", password: "password" }[String(schema.format)] ?? "text";
  control.autocomplete = "off";
  control.value = words(schema.default);
  if (typeof schema.maxLength === "number") control.maxLength = schema.maxLength;
  const read = () => {
    const value = control.value;
    if (value === "") return isRequired ? { problem: `${title} is needed.`, field: control } : {};
    if (typeof schema.minLength === "number" && value.length < schema.minLength) return { problem: `${title} needs ${schema.minLength} characters.`, field: control };
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
function number(title, schema, isRequired, isWhole) {
  const control = element("input");
  control.type = "number";
  control.step = isWhole ? "1" : "any";
  if (typeof schema.minimum === "number") control.min = String(schema.minimum);
  if (typeof schema.maximum === "number") control.max = String(schema.maximum);
  control.value = words(schema.default);
  const read = () => {
    if (control.value === "" && !control.validity.badInput) return isRequired ? { problem: `${title} is needed.`, field: control } : {};
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
function checkbox(title, schema) {
  const root = element("label", "row check");
  const control = element("input");
  control.type = "checkbox";
  control.checked = schema.default === true;
  root.append(control, element("span", "", title));
  if (schema.description) root.append(element("span", "hint", words(schema.description)));
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
  const options = values.map((value, at) => ({ value, label: words(labels[at]) || spoken(value), description: "" }));
  if (options.length <= RADIOS_MAX) return radios(title, options, schema.default, isRequired);
  const control = element("select");
  control.append(new Option("Choose …", ""));
  options.forEach((option, at) => control.append(new Option(option.label, String(at), false, option.value === schema.default)));
  const read = () => {
    if (control.value === "") return isRequired ? { problem: `${title} is needed.`, field: control } : {};
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
function radios(title, options, chosen, isRequired) {
  const root = element("fieldset", "stack choices");
  const name = unique();
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
function list(title, schema, isRequired) {
  const options = isObject(schema.items) && Array.isArray(schema.items.enum) ? schema.items.enum : undefined;
  if (options) return checks(title, options);
  const control = element("textarea");
  control.rows = 3;
  const read = () => {
    const value = control.value.split("\n").map((one) => one.trim()).filter(Boolean);
    return value.length === 0 && isRequired ? { problem: `${title} is needed.`, field: control } : { value };
  };
  return { root: labelled(title, { description: "One a line.", ...schema }, control, isRequired), read };
}

/**
 * @param {string} title
 * @param {unknown[]} options
 * @returns {Field}
 */
function checks(title, options) {
  const root = element("fieldset", "stack choices");
  root.append(element("legend", "", title));
  const controls = options.map((option) => {
    const label = element("label", "row check");
    const control = element("input");
    control.type = "checkbox";
    label.append(control, element("span", "", spoken(option)));
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
function json(title, schema, isRequired) {
  const control = element("textarea", "mono");
  control.rows = 4;
  control.value = schema.default === undefined ? "" : JSON.stringify(schema.default, null, 2);
  const read = () => {
    if (control.value.trim() === "") return isRequired ? { problem: `${title} is needed.`, field: control } : {};
    try {
      return { value: JSON.parse(control.value) };
    } catch {
      return { problem: `${title} is not JSON.`, field: control };
    }
  };
  return { root: labelled(title, { description: "As JSON.", ...schema }, control, isRequired), read };
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, any>}
 */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
