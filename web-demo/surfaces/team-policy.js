/**
 * What each teammate may do: permission mode, sandbox, plan mode, budget, approvals that wait, and the last decision. What
 * differs from the coordinator's is seen by standing beside it.
 */

import { Surface, define, element, inspectButton, updateChildren, setBadge, setText, humanize, toText } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./handed.js";
import { canStop } from "./team-roster.js";
import { addHeading, setLinks, findAgentName, splitWords, controlTarget, formatValue, refLinks, setFacts } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */

/** Members that are not a policy's words. */
const HIDDEN_MEMBERS = ["agentId", "taskId", "toolCallId", "actionId", "refs", "withheld", "status", "decision"];

/**
 * Who is bound: an agent, the run, or whatever a source names.
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
    const subject = this.#subjects();
    this.hidden = subject.length === 0;
    if (!this.list) return;
    updateChildren(this.list, subject, (it) => it.key, (it) => this.#createCard(it), (card, it) => this.#updateCard(card, it));
  }

  /** Everybody of whom a policy is known. */
  #subjects() {
    const all = this.activities();
    /** @type {Map<string, PolicySubject>} */
    const subject = new Map();
    const upsert = (/** @type {Activity} */ it, /** @type {string} */ id, /** @type {string} */ name) => {
      const key = `${it.runId} ${id}`;
      const known = subject.get(key) ?? { key, name, waiting: 0 };
      subject.set(key, known);
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
      const requester = subject.get(`${it.runId} ${it.content.agentId}`);
      if (requester && it.activityType === "action" && it.content.status === "pending") requester.waiting += 1;
    }
    return [...subject.values()];
  }

  /** @type {WeakMap<Element, PolicySubject>} */
  #shown = new WeakMap();

  /** @param {PolicySubject} subject */
  #createCard(subject) {
    const card = element("li", "card");
    const head = element("div", "card-head");
    const side = element("div", "row");
    const now = () => this.#shown.get(card) ?? subject;
    const feedback = element("p", "hint told");
    feedback.setAttribute("role", "status");
    side.append(element("span", "badge"), inspectButton(() => this.view, () => now().policy ?? now().agent));
    head.append(element("h3", "card-title"), side);
    const stop = controlButton("Stop teammate", () => this.view, () => {
      const { agent } = now();
      return agent ? { control: "stop", ...controlTarget(agent), agentId: agent.activityId } : null;
    }, { kind: "danger", feedback });
    const foot = element("div", "card-foot");
    foot.append(stop);
    card.append(head, element("dl", "facts"), element("div", "row links"), foot, feedback);
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
    setText(part(".card-title"), subject.name);
    const decision = content.decision ?? content.status;
    setBadge(part(".badge"), subject.waiting > 0 ? "waiting" : decision ?? "idle", subject.waiting > 0 ? `${subject.waiting} to approve` : decision ? humanize(decision) : "no decision yet");
    const members = Object.entries(content).filter(([name]) => !HIDDEN_MEMBERS.includes(name));
    const own = agent?.content.policy;
    const ownPairs = own && typeof own === "object" && !Array.isArray(own) ? Object.entries(own) : own === undefined ? [] : [["mode", own]];
    const pairs = [...ownPairs.filter(([name]) => content[name] === undefined), ...members];
    setFacts(/** @type {HTMLDListElement} */ (part(".facts")), /** @type {[string, unknown][]} */ ([
      ["Mode", content.mode ?? own?.mode ?? "unknown"],
      ["Sandbox", content.sandbox ?? own?.sandbox ?? "unknown"],
      ...pairs.filter(([name]) => name !== "mode" && name !== "sandbox").map(([name, value]) => [capitalize(splitWords(name)), value]),
      ["About call", content.toolCallId],
      ["About approval", content.actionId],
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
