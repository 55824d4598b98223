/**
 * The facts of a decision: tool, arguments, risk, scope and what else the source stated, as a list. Facts that a
 * decision depends on, and that the source omits, are named in one line.
 */

import { TITLES } from "./action-title.js";
import { argumentsTemplate } from "./argument-list.js";
import { humanize, toText } from "./base.js";
import { isApproval } from "./decision.js";
import { formatValue } from "./facts.js";
import { otherArguments, subjectsOf } from "./request-subject.js";
import { summarizeInput } from "./values.js";
import { reveal } from "../ui/reveal.js";
import { t } from "../ui/texts.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {import("./card.js").Card} Card */

/** Kinds whose tool only carries a question or a plan, which the card shows. */
const CARRIED_KINDS = new Set(["question", "plan"]);
/** Kinds for which the answer may request changes. */
export const EDITABLE_KINDS = new Set(["plan_decision", "teammate_plan_decision", "artifact_review"]);
/** Kinds that permit an operation: the card says if the tool, the arguments, the risk or the scope is unknown. */
const PERMISSION_KINDS = new Set(["tool_approval", "permission_grant", "delegated_permission"]);
/** The server's replacement for a secret. Arguments with it differ from the real ones, so they cannot be edited. */
const REDACTED = "[redacted]";

/** The tool call that waits for a decision, as this audience sees it. @param {Card} card @returns {Record<string, any>} */
function callOf(card) {
  const { toolCallId } = card.content;
  return (toolCallId === undefined ? undefined : card.sibling("tool-call-progress", toText(toolCallId))?.content) ?? {};
}

/**
 * Returns the arguments that a person may edit, as the source stated them in full.
 * @param {Card} card
 */
export function editableArguments(card) {
  const { kind, safeInput, parameters, input } = card.content;
  if (kind !== "tool_approval") return undefined;
  // A version that the source shortened for display must not go back as the whole.
  const whole = parameters ?? input ?? (safeInput === undefined ? callOf(card).input : undefined);
  return whole === undefined || JSON.stringify(whole).includes(REDACTED) ? undefined : whole;
}

/**
 * Returns the kind of a credential: `oauth`, `api_key`, `text`, or a kind of the source.
 * @param {Record<string, any>} content
 * @returns {unknown}
 */
export const credentialKindOf = ({ kind, payload }) => (kind === "credential_request" ? payload?.credentialKind : undefined);

/**
 * Returns the payload of the source, without the members that have their own line.
 * @param {Record<string, any>} content
 */
function detailsOf(content) {
  if (credentialKindOf(content) === undefined) return content.payload;
  const { credentialKind: _, ...rest } = content.payload;
  return Object.keys(rest).length === 0 ? undefined : rest;
}

/** Whether a decision permits an operation. @param {Record<string, any>} content */
const isPermission = (content) => PERMISSION_KINDS.has(content.kind) || (content.toolCallId !== undefined && isApproval(content) && !EDITABLE_KINDS.has(content.kind));

/**
 * The facts that a decision depends on and that the source omits.
 * @param {Card} card
 * @returns {import("../ui/texts.js").Text[]}
 */
export function unstatedFacts(card) {
  const { content } = card;
  const { kind, scope, policyScope, risk, toolName, toolCallId, parameters, safeInput, input } = content;
  const call = callOf(card);
  const needsTool = toolName !== undefined || toolCallId !== undefined || kind === "tool_approval";
  const isAsked = isPermission(content);
  /** @type {[import("../ui/texts.js").Text, boolean][]} */
  const facts = [
    ["tool", isAsked && needsTool && formatValue(toolName ?? call.tool_name) === ""],
    ["arguments", (kind === "tool_approval" || toolCallId !== undefined) && (parameters ?? safeInput ?? input ?? call.input) === undefined && subjectsOf(content).every(({ kind: of }) => !CARRIED_KINDS.has(of))],
    ["risk", isAsked && formatValue(risk) === ""],
    ["scope", isAsked && formatValue(scope ?? policyScope) === ""],
  ];
  return facts.filter(([, isUnstated]) => isUnstated).map(([name]) => name);
}

/**
 * @param {Card} card
 * @param {boolean} isPending
 * @param {[string, unknown][]} subject Facts about what the decision changes.
 */
export function factsTemplate(card, isPending, subject) {
  const { content } = card;
  const { kind, scope, policyScope, risk, reason, taskId, toolName, outcome, value, parameters, safeInput, input } = content;
  const call = callOf(card);
  const others = isPending ? otherArguments(content) : undefined;
  const shown = others ?? parameters ?? safeInput ?? input ?? call.input;
  const hasArguments = shown !== undefined && (others === undefined || Object.keys(others).length > 0);
  const details = isPending ? detailsOf(content) : undefined;
  const credential = credentialKindOf(content);
  /** @type {[string, unknown][]} */
  const facts = [
    ["Tool", isPending && subjectsOf(content).some((one) => CARRIED_KINDS.has(one.kind)) ? "" : formatValue(toolName ?? call.tool_name)],
    ["Arguments", hasArguments ? argumentsTemplate(shown) : ""],
    ["Kind", kind === "unknown" || TITLES[kind] === undefined ? humanize(kind) : ""],
    ["Credential", credential === undefined ? "" : humanize(credential)],
    ["Risk", typeof risk === "object" ? formatValue(risk) : ""],
    ["Scope", humanizeName(formatValue(scope ?? policyScope))],
    ...subject,
    ["Reason", formatValue(reason) === kind ? "" : humanizeName(formatValue(reason))],
    ["Task", toText(taskId)],
    ["Details", details === undefined ? "" : detailsTemplate(details, subjectsOf(content).length > 0)],
    ["Outcome", isPending ? "" : humanize(outcome ?? content.status)],
    // The answer to a credential request is a secret, even if a source repeats it.
    ["Answer", isPending || value === undefined || kind === "credential_request" ? "" : summarizeInput(value)],
  ];
  const rows = facts.filter(([, fact]) => fact !== "");
  return rows.length === 0 ? nothing : html`<dl class="facts">${rows.map(([name, fact]) => html`<dt>${t(/** @type {import("../ui/texts.js").Text} */ (name))}</dt><dd class=${name === "Tool" ? "mono" : ""} dir="auto">${typeof fact === "string" ? reveal(fact) : fact}</dd>`)}</dl>`;
}

/**
 * @param {unknown} details
 * @param {boolean} isSaid Whether the subject says what they are about, so that they are one click away.
 */
function detailsTemplate(details, isSaid) {
  const list = argumentsTemplate(details, t("Details from the source"));
  return isSaid ? html`<details class="raw"><summary>${t("Show details")}</summary>${list}</details>` : list;
}

/** @param {string} text A name such as `tool_call`, or a sentence. */
const humanizeName = (text) => (/^[a-z]+(_[a-z]+)+$/.test(text) ? text.replaceAll("_", " ") : text);
