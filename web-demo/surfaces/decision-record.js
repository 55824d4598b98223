/**
 * What a card loads after its first drawing: how far a decision is, and who made it (the approvals so far, what a rule of
 * the operator did, and the person).
 */

import { toText } from "./base.js";
import { formatValue } from "./facts.js";
import { age } from "../ui/format.js";
import { reveal } from "../ui/reveal.js";
import { t } from "../ui/texts.js";
import { html, nothing } from "../vendor/lit.js";

/** @typedef {{ have: number, need: number }} Quorum */
/** @typedef {{ step: number, at: string }} Step */
/** @typedef {{ quorum?: Quorum, escalated?: Step, reminded?: Step }} Progress */
/** @typedef {import("../client/contents.js").ActionContent["decidedBy"]} DecidedBy */

/** The way of a decision in the words of people. @type {Record<string, string>} */
const WAYS = { page: "the page", cli: "the command line", rest: "REST", ws: "WebSocket", "ag-ui": "AG-UI", copilotkit: "CopilotKit", "ai-sdk": "AI SDK", tanstack: "TanStack AI", acp: "ACP", a2a: "A2A" };
/** What decided where no person did. @type {Record<string, string>} */
const OTHERS = { rule: "a rule", link: "a share link", runtime: "the runtime" };

/** @typedef {import("../client/contents.js").ActionContent} ActionContent */

/** @param {Quorum | undefined} quorum @returns {string} `1 of 2 approvals`; empty for an action that needs one. */
const quorumText = (quorum) => (quorum ? t("{have} of {need} approvals", { ...quorum }) : "");

/** What an approver reads while others must approve, too; empty if none must. @param {Progress} of */
export const countedText = ({ quorum }) => (quorum && quorum.have < quorum.need ? t("Your approval counts. It goes out once the others have approved.") : "");

/**
 * The tags of a pending decision: its approvals, and what a rule did.
 * @param {Progress} of
 * @param {number} now
 * @returns {unknown}
 */
export function progressTags({ quorum, escalated, reminded }, now) {
  const step = (/** @type {string} */ word, /** @type {Step | undefined} */ done) => (done ? html` <span class="tag" data-tone="wait">${word} ${age(done.at, now)}</span>` : nothing);
  return html`${quorum ? html` <span class="tag">${quorumText(quorum)}</span>` : nothing}${step(t("Escalated"), escalated)}${step(t("Reminded"), reminded)}`;
}

/**
 * @param {DecidedBy} by
 * @returns {string} `by Alice for Bob through AG-UI`, `by a rule`; empty if unknown.
 */
export function decidedByText(by) {
  if (by === undefined) return "";
  const { via, onBehalfOf } = by;
  const person = reveal(toText(by.name ?? by.sub));
  const other = OTHERS[via];
  if (other) return `by ${other}${person ? ` (${person})` : ""}`;
  const through = `through ${WAYS[via] ?? reveal(via)}`;
  return person ? `by ${person}${onBehalfOf ? ` for ${reveal(onBehalfOf)}` : ""} ${through}` : through;
}

/** Names the maker in the line of a decided card. @param {ActionContent} content @returns {unknown} */
export function makerTemplate({ decidedBy }) {
  const maker = decidedByText(decidedBy);
  return maker ? html`<span class="spent truncate" dir="auto">${maker}</span>` : nothing;
}

/** The facts of a decided card. @param {ActionContent} content @returns {[string, string][]} */
export const recordFacts = ({ decidedBy, resolvedBy, quorum }) => [["Decided", decidedByText(decidedBy)], ["Resolved by", formatValue(resolvedBy)], ["Approvals", quorumText(quorum)]];
