/**
 * The meaning of the options and the schema of an approval: approve, reject or request changes.
 *
 * The label of a button and its control must agree. The form therefore does not ask for the decision itself, and the
 * page does not send an answer that contradicts its button.
 */

import { toText } from "./base.js";
import { reveal } from "../ui/reveal.js";

/** @typedef {"approve" | "reject" | "edit"} Verdict */

/** @type {Map<Verdict, Set<string>>} */
const VERDICT_WORDS = new Map([
  ["approve", new Set(["accept", "accepted", "agree", "agreed", "allow", "allowed", "approval", "approve", "approved", "authorize", "authorized", "confirm", "confirmed", "consent", "continue", "grant", "granted", "ok", "okay", "permit", "permitted", "proceed", "yes"])],
  ["reject", new Set(["abort", "block", "blocked", "cancel", "canceled", "cancelled", "decline", "declined", "denied", "deny", "disallow", "no", "refuse", "refused", "reject", "rejected"])],
  ["edit", new Set(["change", "changes", "edit", "modify", "revise"])],
]);
const NEGATIONS = ["dont", "never", "not"];
/** Words without meaning in a member's name: `isApproved`, `user_approved`. */
const FILLERS = ["be", "been", "has", "human", "is", "user", "was"];
/** Names of members whose value is the decision, if every value is one. */
const DECISION_NAMES = ["action", "answer", "approval", "choice", "decision", "outcome", "permission", "resolution", "response", "result", "status", "verdict"];
/** The depth to which an answer is searched for a contradiction. */
const DEPTH_MAX = 6;

/** @param {unknown} text */
const tokens = (text) => toText(text).replace(/['’]/g, "").replace(/([a-z0-9])([A-Z])/g, "$1 $2").toLowerCase().split(/[^a-z]+/).filter(Boolean);

/**
 * Returns the verdict of a text; `undefined` if it has none, or two.
 * @param {unknown} text
 * @returns {Verdict | undefined}
 */
export function verdictOf(text) {
  const names = tokens(text);
  // "Yes, and don't ask again" allows: what follows only qualifies it.
  if (names.length > 1 && names[0] === "yes") return "approve";
  if (names.length > 1 && names[0] === "no") return "reject";
  const found = [...VERDICT_WORDS].filter(([, known]) => names.some((word) => known.has(word))).map(([verdict]) => verdict);
  if (names.some((word) => NEGATIONS.includes(word))) return found.length === 1 && found[0] === "approve" ? "reject" : undefined;
  return found.length === 1 ? found[0] : undefined;
}

/**
 * Returns the verdict of `true` for a member whose name is only a decision. `allowNetwork` is not: it asks for more.
 * @param {string} name
 * @returns {Verdict | undefined}
 */
function trueMeans(name) {
  const names = tokens(name).filter((word) => !FILLERS.includes(word));
  return names.length === 1 ? verdictOf(names[0]) : undefined;
}

/**
 * Whether a member of this name contains the decision as text.
 * @param {string} name
 */
const isDecisionName = (name) => trueMeans(name) !== undefined || (tokens(name).length === 1 && DECISION_NAMES.includes(tokens(name)[0]));

/**
 * A schema member that a button fills in: its values by verdict.
 * @typedef {{ approve: unknown[], reject: unknown[] }} Decision
 */

/**
 * @param {string} name Empty for the root of the schema.
 * @param {Record<string, any>} schema
 * @returns {Decision | undefined} `undefined` if the member is not a decision.
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

/**
 * Returns the answers of a schema that has one object for each decision, told apart by their `type`. `reasonName`: the
 * member of the rejection that explains it.
 * @param {any} schema
 * @returns {{ approve: { type: string }, reject?: { type: string }, reasonName?: string } | undefined}
 */
export function typedDecisions(schema) {
  const branches = Array.isArray(schema?.oneOf) ? schema.oneOf.map((/** @type {any} */ branch) => schema.$defs?.[toText(branch?.$ref).replace("#/$defs/", "")] ?? branch) : [];
  const of = (/** @type {Verdict} */ verdict) => branches.find((/** @type {any} */ { properties }) => typeof properties?.type?.const === "string" && verdictOf(properties.type.const) === verdict);
  const [approve, reject] = [of("approve"), of("reject")];
  if (!approve) return undefined;
  return { approve: { type: approve.properties.type.const }, reject: reject && { type: reject.properties.type.const }, reasonName: Object.keys(reject?.properties ?? {}).find((name) => REASON_NAME.test(name)) };
}

/** Names of members that may explain a rejection. */
export const REASON_NAME = /reason|comment|feedback|note|message|explanation|remark/i;

/** Kinds of actions that ask for an answer, not for an approval. */
export const QUESTIONS = new Set(["structured_input", "clarification", "credential_request"]);

/**
 * Whether an action asks for an approval: by its kind, or because its schema contains the decision.
 * @param {Record<string, any>} action The content of the action.
 */
export function isApproval({ kind, responseSchema, schema }) {
  return !QUESTIONS.has(kind) || holdsDecision(responseSchema ?? schema, 1);
}

/**
 * @param {any} schema
 * @param {number} depth How many levels of nested objects are searched, as in the form.
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
 * Whether an answer contradicts the button that sends it.
 * @param {unknown} value
 * @param {Verdict} verdict
 * @param {string} [name] The name of the member with this value.
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
 * An option of a source, with its verdict. The control sends `value`: `{ optionId }` where the source gives one.
 * @typedef {{ value: unknown, label: string, description: string, verdict?: Verdict, width?: string }} Option
 */

/** The verdicts of the server's effects. Its order is from narrow to wide. @type {Record<string, Verdict>} */
const EFFECTS = { allow: "approve", reject: "reject" };
/** What a yes allows, by the width of an option. @type {Record<string, import("../ui/texts.js").Text>} */
export const WIDTHS = { once: "This time only", turn: "For this turn", session: "For this session", always: "Always, without asking again", unknown: "How far it reaches is not stated" };

/**
 * Returns the option that a plain yes takes, as the server chooses it: the one that allows once, or the only one. `null`:
 * a person must name one of the options. `undefined`: the source offers none.
 * @param {Option[]} approving
 */
export function plainYes(approving) {
  const [first, second] = approving;
  if (first === undefined || first.width === "once" || (second === undefined && first.width === "unknown")) return first;
  return null;
}

/**
 * @param {unknown} option A string, or `{ optionId | value | id, label | name | title, kind, description }`.
 * @returns {Option}
 */
export function optionOf(option) {
  if (option === null || typeof option !== "object" || Array.isArray(option)) return { value: option, label: reveal(toText(option)).replaceAll("_", " "), description: "" };
  const { value: given, id, optionId, label, name, title, kind, description, effect, width } = /** @type {Record<string, any>} */ (option);
  const choice = given ?? optionId ?? id;
  const names = reveal(toText(label ?? name ?? title ?? choice ?? option));
  // A label decides nothing: an agent may write "Allow once" on any option.
  const verdict = EFFECTS[effect] ?? (kind === "edit" ? "edit" : undefined);
  return { value: given === undefined && optionId !== undefined ? { optionId } : (choice ?? option), label: names, description: reveal(toText(description)), verdict, width };
}
