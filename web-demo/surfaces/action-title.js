/**
 * The title of a decision: the action as a question, made only of what the source said.
 */

import { toText } from "./base.js";
import { siblingOf } from "./card.js";
import { QUESTIONS, isApproval } from "./decision.js";
import { artifactOf, findActivity, formatValue } from "./facts.js";
import { t } from "../ui/texts.js";
import { reveal } from "../ui/reveal.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./base.js").CardView} CardView */

/** A longer message is no title. In characters. */
const TITLE_CHARS_MAX = 160;
/** A longer argument is no part of a title. In characters. */
const ARGUMENT_CHARS_MAX = 60;

/** Titles by kind, where the source says nothing better. @type {Record<string, import("../ui/texts.js").Text>} */
export const TITLES = {
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
/** Kinds whose subject is not the tool call. */
const OTHER_SUBJECTS = new Set(["plan_decision", "teammate_plan_decision", "artifact_review"]);
/** Verbs that may begin a tool's name, so that the name reads as an action. */
const VERBS = new Set("add apply approve archive buy call cancel change close commit copy create delete deploy drop edit execute export fetch grant import install merge modify move open order pay post publish push read remove rename replace reset restart restore revoke rotate run schedule send set share start stop submit transfer uninstall update upload write".split(" "));

/**
 * @param {CardView} view
 * @param {Activity} action
 * @returns {string} `Delete branch main?`, `Run deploy?`, or the question of the source.
 */
export const actionTitle = (view, action) => reveal(titleOf(view, action));

/**
 * @param {CardView} view
 * @param {Activity} action
 */
function titleOf(view, action) {
  const { title, kind, message, toolCallId, toolName, parameters, safeInput, input, versionId } = /** @type {Record<string, any>} */ (action.content);
  const asksApproval = isApproval(action.content);
  const given = formatValue(title);
  if (given) return asksApproval && !/[?!.…]$/.test(given) ? `${given}?` : given;
  if (!asksApproval && kind !== "credential_request" && toText(message) !== "" && toText(message).length <= TITLE_CHARS_MAX) return toText(message);
  const call = toolCallId === undefined ? undefined : siblingOf(view, action, "tool-call-progress", toText(toolCallId))?.content;
  const tool = formatValue(toolName ?? call?.tool_name);
  if (tool && asksApproval && !OTHER_SUBJECTS.has(kind)) return toolTitle(tool, parameters ?? safeInput ?? input ?? call?.input);
  const id = kind === "artifact_review" ? artifactOf(action) : undefined;
  const artifact = id === undefined ? undefined : findActivity(view, action, "artifact", id);
  if (artifact) {
    const version = versionId ?? artifact.content.version;
    return t(version === undefined ? "Approve {title}?" : "Approve version {version} of {title}?", { version: formatValue(version), title: formatValue(artifact.content.title ?? artifact.content.name) || id });
  }
  if (QUESTIONS.has(kind) && asksApproval) return t(toolCallId === undefined ? "Approve?" : TITLES.tool_approval);
  return t(TITLES[kind] ?? "Decision needed");
}

/**
 * @param {string} tool
 * @param {any} input
 */
function toolTitle(tool, input) {
  const words = tool.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  if (words.length < 2 || !VERBS.has(words[0].toLowerCase())) return t("Run {tool}?", { tool });
  const values = input !== null && typeof input === "object" && !Array.isArray(input) ? Object.values(input) : [];
  const [only] = values;
  const subject = values.length === 1 && (typeof only === "string" || typeof only === "number") && String(only).length <= ARGUMENT_CHARS_MAX ? ` ${only}` : "";
  const sentence = words.join(" ");
  return `${sentence.charAt(0).toUpperCase()}${sentence.slice(1)}${subject}?`;
}
