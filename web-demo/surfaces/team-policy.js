/**
 * The policy of each teammate: permission mode, sandbox, plan mode, budget, pending approvals, and the last decision.
 */

import { Surface, define, element, updateChildren, setBadge, setText, humanize, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./control-button.js";
import { canStop } from "./team-roster.js";
import { findAgentName, splitWords, controlTarget, formatValue } from "./facts.js";
import { setLinks, refLinks, setFacts } from "./links.js";
import { addHeading, createOpenRow } from "./lane.js";

import { glyph } from "../ui/glyphs.js";
import { render } from "../vendor/lit.js";

/** @typedef {import("./base.js").Activity} Activity */

/** The parts of each row. @type {WeakMap<Element, import("./lane.js").OpenRow>} */
const rows = new WeakMap();

/** Members that are not part of the policy. */
const HIDDEN_MEMBERS = ["agentId", "taskId", "toolCallId", "actionId", "refs", "withheld", "status", "decision"];

/**
 * The subject of a policy: an agent, the run, or what a source names.
 * @typedef {{ key: string, name: string, policy?: Activity, agent?: Activity, waiting: number }} PolicySubject
 */

export class TeamPolicy extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType, content }) {
    return activityType === "permission" || (activityType === "agent" && content.policy !== undefined) || activityType === "action" || activityType === "run";
  }

  build() {
    this.head = addHeading(this, "Policy");
    this.list = element("ul", "cards");
    this.append(this.list);
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const subjects = this.#subjects();
    this.hidden = subjects.length === 0;
    if (!this.list) return;
    updateChildren(this.list, subjects, (it) => it.key, (it) => this.#createCard(it), (card, it) => this.#updateCard(card, it));
  }

  /** All subjects with a known policy. */
  #subjects() {
    const all = this.activities();
    /** @type {Map<string, PolicySubject>} */
    const subjects = new Map();
    const upsert = (/** @type {Activity} */ it, /** @type {string} */ id, /** @type {string} */ name) => {
      const key = `${it.runId} ${id}`;
      const known = subjects.get(key) ?? { key, name, waiting: 0 };
      subjects.set(key, known);
      return known;
    };
    for (const it of all) {
      if (it.activityType === "permission") {
        const agent = it.content.agentId;
        upsert(it, toText(agent) || it.activityId, agent ? findAgentName(this.view, it, agent) : it.activityId === "permission" ? "This run" : it.activityId).policy = it;
      } else if (it.activityType === "agent") {
        upsert(it, it.activityId, toText(it.content.agentName) || it.activityId).agent = it;
      }
    }
    for (const it of all) {
      const requester = subjects.get(`${it.runId} ${it.content.agentId}`);
      if (requester && it.activityType === "action" && it.content.status === "pending") requester.waiting += 1;
    }
    return [...subjects.values()];
  }

  /** @type {WeakMap<Element, PolicySubject>} */
  #shown = new WeakMap();

  /** @param {PolicySubject} subject */
  #createCard(subject) {
    const row = createOpenRow(() => this.view, () => now().policy ?? now().agent);
    const card = row.root;
    rows.set(card, row);
    const now = () => this.#shown.get(card) ?? subject;
    const feedback = element("p", "hint told");
    feedback.setAttribute("role", "status");
    const stop = controlButton("Stop teammate", () => this.view, () => {
      const { agent } = now();
      return agent ? { control: "stop", ...controlTarget(agent), agentId: agent.activityId } : null;
    }, { kind: "danger", feedback });
    const foot = element("div", "card-foot");
    foot.append(stop);
    row.side.append(element("span", "badge"));
    row.opened.append(element("dl", "facts"), element("div", "row links"), foot, feedback);
    return card;
  }

  /**
   * @param {HTMLElement} card
   * @param {PolicySubject} subject
   */
  #updateCard(card, subject) {
    this.#shown.set(card, subject);
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (card.querySelector(name));
    const { policy, agent } = subject;
    const content = policy?.content ?? {};
    card.dataset.key = keyOf(/** @type {Activity} */ (policy ?? agent));
    const row = /** @type {import("./lane.js").OpenRow} */ (rows.get(card));
    setText(row.title, subject.name);
    const decision = content.decision ?? content.status;
    const waitsForUser = subject.waiting > 0 ? "waiting" : "idle";
    if (row.root.dataset.shown !== waitsForUser) render(glyph(waitsForUser), row.mark);
    row.root.dataset.shown = waitsForUser;
    setBadge(part(".badge"), subject.waiting > 0 ? "waiting" : decision ?? "idle", subject.waiting > 0 ? `${subject.waiting} pending` : decision ? humanize(decision) : "no decision yet");
    const members = Object.entries(content).filter(([name]) => !HIDDEN_MEMBERS.includes(name));
    const own = agent?.content.policy;
    const ownPairs = own && typeof own === "object" && !Array.isArray(own) ? Object.entries(own) : own === undefined ? [] : [["mode", own]];
    const pairs = [...ownPairs.filter(([name]) => content[name] === undefined), ...members];
    setText(row.preview, [content.mode ?? own?.mode, content.sandbox ?? own?.sandbox].filter(Boolean).map((one) => formatValue(one)).join(", "));
    setFacts(/** @type {HTMLDListElement} */ (part(".facts")), /** @type {[string, unknown][]} */ ([
      ["Mode", content.mode ?? own?.mode ?? "unknown"],
      ["Sandbox", content.sandbox ?? own?.sandbox ?? "unknown"],
      ...pairs.filter(([name]) => name !== "mode" && name !== "sandbox").map(([name, value]) => [capitalize(splitWords(name)), value]),
      ["Tool call id", content.toolCallId],
      ["Approval id", content.actionId],
      ["Task", content.taskId],
    ]));
    setLinks(part(".links"), refLinks(this.view, content.refs));
    part(".links").hidden = part(".links").childElementCount === 0;
    part(".card-foot").hidden = !this.view.isLive || !agent || !canStop(this.view, agent);
  }
}

/** @param {string} text */
const capitalize = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

define("ps-team-policy", TeamPolicy);
