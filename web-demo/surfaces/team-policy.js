/**
 * What each teammate may do: permission mode, sandbox, plan mode, budget, approvals that wait, and the last decision. What
 * differs from the coordinator's is seen by standing beside it.
 */

import { Surface, define, element, inspectButton, keyed, mark, say, spoken, words } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./handed.js";
import { canStop } from "./team-roster.js";
import { headed, link, nameOf, named, ownerOf, phrase, refsOf, tell } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */

/** Members that are not a policy's words. */
const NOT_SAID = ["agentId", "taskId", "toolCallId", "actionId", "refs", "withheld", "status", "decision"];

/**
 * Who is bound: an agent, the run, or whatever a source names.
 * @typedef {{ key: string, name: string, policy?: Activity, agent?: Activity, waiting: number }} Bound
 */

export class TeamPolicy extends Surface {
  /** @param {Activity} activity */
  static shows({ activityType, content }) {
    return activityType === "permission" || (activityType === "agent" && content.policy !== undefined) || activityType === "action" || activityType === "run";
  }

  build() {
    this.head = headed(this, "Policy");
    this.list = element("ul", "cards");
    this.append(this.list);
  }

  /** @param {Set<string> | null} _changed */
  update(_changed) {
    const bound = this.#bound();
    this.hidden = bound.length === 0;
    if (!this.list) return;
    keyed(this.list, bound, (it) => it.key, (it) => this.#card(it), (card, it) => this.#change(card, it));
  }

  /** Everybody of whom a policy is known. */
  #bound() {
    const all = this.activities();
    /** @type {Map<string, Bound>} */
    const bound = new Map();
    const who = (/** @type {Activity} */ it, /** @type {string} */ id, /** @type {string} */ name) => {
      const key = `${it.runId} ${id}`;
      const known = bound.get(key) ?? { key, name, waiting: 0 };
      bound.set(key, known);
      return known;
    };
    for (const it of all) {
      if (it.activityType === "permission") {
        const agent = it.content.agentId;
        who(it, words(agent) || it.activityId, agent ? nameOf(this.view, it, agent) : it.activityId === "permission" ? "This run" : it.activityId).policy = it;
      } else if (it.activityType === "agent") {
        who(it, it.activityId, words(it.content.agentName) || it.activityId).agent = it;
      }
    }
    for (const it of all) {
      const asker = bound.get(`${it.runId} ${it.content.agentId}`);
      if (asker && it.activityType === "action" && it.content.status === "pending") asker.waiting += 1;
    }
    return [...bound.values()];
  }

  /** @type {WeakMap<Element, Bound>} */
  #shown = new WeakMap();

  /** @param {Bound} bound */
  #card(bound) {
    const card = element("li", "card");
    const head = element("div", "card-head");
    const side = element("div", "row");
    const now = () => this.#shown.get(card) ?? bound;
    const told = element("p", "hint told");
    told.setAttribute("role", "status");
    side.append(element("span", "badge"), inspectButton(() => this.view, () => now().policy ?? now().agent));
    head.append(element("h3", "card-title"), side);
    const stop = controlButton("Stop teammate", () => this.view, () => {
      const { agent } = now();
      return agent ? { control: "stop", ...ownerOf(agent), agentId: agent.activityId } : null;
    }, { kind: "danger", told });
    const foot = element("div", "card-foot");
    foot.append(stop);
    card.append(head, element("dl", "facts"), element("div", "row links"), foot, told);
    return card;
  }

  /**
   * @param {HTMLElement} card
   * @param {Bound} bound
   */
  #change(card, bound) {
    this.#shown.set(card, bound);
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (card.querySelector(name));
    const { policy, agent } = bound;
    const content = policy?.content ?? {};
    card.dataset.key = keyOf(/** @type {Activity} */ (policy ?? agent));
    say(part(".card-title"), bound.name);
    const decision = content.decision ?? content.status;
    mark(part(".badge"), bound.waiting > 0 ? "waiting" : decision ?? "idle", bound.waiting > 0 ? `${bound.waiting} to approve` : decision ? spoken(decision) : "no decision yet");
    const said = Object.entries(content).filter(([name]) => !NOT_SAID.includes(name));
    const own = agent?.content.policy;
    const ownPairs = own && typeof own === "object" && !Array.isArray(own) ? Object.entries(own) : own === undefined ? [] : [["mode", own]];
    const pairs = [...ownPairs.filter(([name]) => content[name] === undefined), ...said];
    tell(/** @type {HTMLDListElement} */ (part(".facts")), /** @type {[string, unknown][]} */ ([
      ["Mode", content.mode ?? own?.mode ?? "unknown"],
      ["Sandbox", content.sandbox ?? own?.sandbox ?? "unknown"],
      ...pairs.filter(([name]) => name !== "mode" && name !== "sandbox").map(([name, value]) => [capital(named(name)), value]),
      ["About call", content.toolCallId],
      ["About approval", content.actionId],
      ["Task", content.taskId],
    ]));
    link(part(".links"), refsOf(this.view, content.refs));
    part(".links").hidden = part(".links").childElementCount === 0;
    part(".card-foot").hidden = !this.view.isLive || !agent || !canStop(this.view, agent);
  }
}

/** @param {string} text */
const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

define("ps-team-policy", TeamPolicy);
