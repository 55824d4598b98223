/**
 * What the options and the schema of an approval mean: which of them approve, reject or ask for a change.
 *
 * A button and the control that it sends say the same. So the form never asks for what the button already decides, and an
 * answer that contradicts its button is not sent.
 */

import { toText } from "./base.js";

/** @typedef {"approve" | "reject" | "edit"} Verdict */

/** @type {Map<Verdict, Set<string>>} */
const VERDICT_WORDS = new Map([
  ["approve", new Set(["accept", "accepted", "agree", "agreed", "allow", "allowed", "approval", "approve", "approved", "authorize", "authorized", "confirm", "confirmed", "consent", "continue", "grant", "granted", "ok", "okay", "permit", "permitted", "proceed", "yes"])],
  ["reject", new Set(["abort", "block", "blocked", "cancel", "canceled", "cancelled", "decline", "declined", "denied", "deny", "disallow", "no", "refuse", "refused", "reject", "rejected"])],
  ["edit", new Set(["change", "changes", "edit", "modify", "revise"])],
]);
const NEGATIONS = ["dont", "never", "not"];
/** Words that change nothing about what a member's name decides: `isApproved`, `user_approved`. */
const FILLERS = ["be", "been", "has", "human", "is", "user", "was"];
/** Names of members whose value is the decision, where all their values are one. */
const DECISION_NAMES = ["action", "answer", "approval", "choice", "decision", "outcome", "permission", "resolution", "response", "result", "status", "verdict"];
/** How deep an answer is searched for a contradiction. */
const DEPTH_MAX = 6;

/** @param {unknown} text */
const tokens = (text) => toText(text).replace(/['’]/g, "").replace(/([a-z0-9])([A-Z])/g, "$1 $2").toLowerCase().split(/[^a-z]+/).filter(Boolean);

/**
 * What a choice means by its words; nothing, if they say nothing or two things.
 * @param {unknown} text
 * @returns {Verdict | undefined}
 */
export function verdictOf(text) {
  const names = tokens(text);
  const found = [...VERDICT_WORDS].filter(([, known]) => names.some((word) => known.has(word))).map(([verdict]) => verdict);
  if (names.some((word) => NEGATIONS.includes(word))) return found.length === 1 && found[0] === "approve" ? "reject" : undefined;
  return found.length === 1 ? found[0] : undefined;
}

/**
 * What `true` means for a member of this name, if the name is nothing but a decision. `allowNetwork` is none: it asks for more.
 * @param {string} name
 * @returns {Verdict | undefined}
 */
function trueMeans(name) {
  const names = tokens(name).filter((word) => !FILLERS.includes(word));
  return names.length === 1 ? verdictOf(names[0]) : undefined;
}

/**
 * Whether a member of this name holds the decision in words.
 * @param {string} name
 */
const isDecisionName = (name) => trueMeans(name) !== undefined || (tokens(name).length === 1 && DECISION_NAMES.includes(tokens(name)[0]));

/**
 * A member of a schema that a button decides: its values, by what they mean.
 * @typedef {{ approve: unknown[], reject: unknown[] }} Decision
 */

/**
 * @param {string} name Empty for the schema's root.
 * @param {Record<string, any>} schema
 * @returns {Decision | undefined} Nothing for a member that decides something else.
 */
export function decisionOf(name, schema) {
  const isRoot = name === "";
  if (Array.isArray(schema.enum)) {
    if (!isRoot && !isDecisionName(name)) return undefined;
    const all = schema.enum.map((value) => ({ value, verdict: typeof value === "boolean" ? meaning(name, value) : verdictOf(value) }));
    const valuesOf = (/** @type {Verdict} */ verdict) => all.filter((one) => one.verdict === verdict).map(({ value }) => value);
    const decision = { approve: valuesOf("approve"), reject: valuesOf("reject") };
    return all.every(({ verdict }) => verdict !== undefined) && decision.approve.length > 0 ? decision : undefined;
  }
  const type = Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;
  if (type !== "boolean" && typeof schema.const !== "boolean") return undefined;
  if (meaning(name, true) === undefined) return undefined;
  const values = typeof schema.const === "boolean" ? [schema.const] : [true, false];
  return { approve: values.filter((value) => meaning(name, value) === "approve"), reject: values.filter((value) => meaning(name, value) === "reject") };
}

/** Kinds of actions that ask for an answer rather than for an approval. */
export const QUESTIONS = new Set(["structured_input", "clarification", "credential_request"]);

/**
 * Whether an action asks for an approval: by its kind, or because its schema holds the decision.
 * @param {Record<string, any>} action Its content.
 */
export function isApproval({ kind, responseSchema, schema }) {
  return !QUESTIONS.has(kind) || holdsDecision(responseSchema ?? schema, 1);
}

/**
 * @param {any} schema
 * @param {number} depth Objects inside of it that are looked into, as the form does.
 * @returns {boolean}
 */
function holdsDecision(schema, depth) {
  const properties = schema?.properties;
  if (properties === null || typeof properties !== "object") return false;
  return Object.entries(properties).some(([name, inner]) => inner !== null && typeof inner === "object" && (decisionOf(name, inner) !== undefined || (depth > 0 && holdsDecision(inner, depth - 1))));
}

/**
 * @param {string} name
 * @param {boolean} value
 * @returns {"approve" | "reject" | undefined}
 */
function meaning(name, value) {
  const yes = name === "" ? "approve" : trueMeans(name);
  if (yes !== "approve" && yes !== "reject") return undefined;
  return (yes === "approve") === value ? "approve" : "reject";
}

/**
 * Whether an answer says the opposite of the button that sends it.
 * @param {unknown} value
 * @param {Verdict} verdict
 * @param {string} [name] Of the member that holds it.
 * @param {number} [depth]
 * @returns {boolean}
 */
export function contradicts(value, verdict, name = "", depth = DEPTH_MAX) {
  if (verdict === "edit" || depth === 0) return false;
  const opposite = verdict === "approve" ? "reject" : "approve";
  if (typeof value === "boolean") return meaning(name, value) === opposite;
  if (typeof value === "string") return (name === "" || name === "option" || isDecisionName(name)) && verdictOf(value) === opposite;
  if (typeof value !== "object" || value === null) return false;
  if (Array.isArray(value)) return value.some((one) => typeof one === "object" && contradicts(one, verdict, name, depth - 1));
  return Object.entries(value).some(([member, inner]) => contradicts(inner, verdict, member, depth - 1));
}

/**
 * A choice that a source offers, in the words of the source, and what it means. `value` goes out: `{ optionId }` where it has one.
 * @typedef {{ value: unknown, label: string, description: string, verdict?: Verdict }} Option
 */

/**
 * @param {unknown} option A string, or `{ optionId | value | id, label | name | title, kind, description }`.
 * @returns {Option}
 */
export function optionOf(option) {
  if (option === null || typeof option !== "object" || Array.isArray(option)) return { value: option, label: toText(option).replaceAll("_", " "), description: "", verdict: verdictOf(option) };
  const { value: given, id, optionId, label, name, title, kind, description } = /** @type {Record<string, any>} */ (option);
  const choice = given ?? optionId ?? id;
  const names = toText(label ?? name ?? title ?? choice ?? option);
  // The label is what is read before the press, so it decides where the kind says otherwise: the server refuses such a control.
  const verdict = verdictOf(names) ?? verdictOf(kind) ?? (typeof choice === "string" ? verdictOf(choice) : undefined);
  return { value: given === undefined && optionId !== undefined ? { optionId } : (choice ?? option), label: names, description: toText(description), verdict };
}
