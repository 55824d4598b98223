/**
 * Who works here: the team, how it is organised, and its teammates, each under its own name.
 */

import { define, element, keyed, mark, say, spoken, words } from "./base.js";
import { keyOf } from "../client/store.js";
import { controlButton } from "./handed.js";
import { Lane, OVER, face, link, ownerOf, phrase, tell } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */
/** @typedef {import("./lane.js").Card} Card */

/** What waits for somebody stands above what only runs. */
const FIRST = ["needs_input", "input_required", "auth_required", "plan_ready"];

export class TeamRoster extends Lane {
  static heading = "Team";

  /** @param {Activity} activity */
  static shows({ activityType }) {
    return activityType === "agent" || activityType === "team";
  }

  /** @param {Set<string> | null} changed */
  update(changed) {
    super.update(changed);
    const teams = super.activities().filter((it) => it.activityType === "team");
    if (teams.length > 0) this.hidden = false;
    if (this.top) keyed(this.top, teams, keyOf, () => teamHead(), (head, team) => changeTeam(head, team));
  }

  /** Its cards are the teammates; teams stand above them. */
  activities() {
    return super.activities().filter((it) => it.activityType === "agent");
  }

  /** @param {Activity[]} activities */
  arranged(activities) {
    const rank = (/** @type {Activity} */ { content }) => {
      const status = words(content.status);
      // What is over stands below.
      return FIRST.includes(status) ? 0 : OVER.includes(status) ? 2 : 1;
    };
    return activities.toSorted((a, b) => rank(a) - rank(b));
  }

  /** @param {Card} card */
  dress(card) {
    const control = (/** @type {string} */ name) => () => ({ control: name, ...ownerOf(card.activity), agentId: card.activity.activityId });
    const stop = controlButton("Stop", () => this.view, control("stop"), { kind: "danger", told: card.told });
    const close = controlButton("Close", () => this.view, control("close"), { kind: "quiet", told: card.told });
    card.foot.append(stop, close);
  }

  /**
   * @param {Card} card
   * @param {Record<string, any>} content
   */
  fill(card, content) {
    const name = words(content.agentName) || card.activity.activityId;
    const old = card.title.parentElement?.querySelector(".face");
    if (card.root.dataset.face !== `${name} ${content.color}`) {
      card.root.dataset.face = `${name} ${content.color}`;
      old?.remove();
      card.title.before(face(name, content.color));
    }
    say(card.title, name);
    say(card.body, phrase(content.error?.message ?? content.summary ?? content.message));
    const isWithheld = content.withheld === true;
    tell(card.facts, [
      ["Role", content.role ?? (isWithheld ? "withheld from this audience" : "unknown")],
      ["Team", content.teamName],
      ["Model", content.model],
      ["Source", content.source],
      ["Can", content.capabilityRef],
      ["May", content.policy],
      ["Last turn", content.latestTurnStatus && spoken(content.latestTurnStatus)],
      ["Waiting turns", content.queuedTurnCount],
      ["Why it waits", content.queueReason],
      ["Needs", content.inputNeeds ?? content.authNeeds],
      ["Task", content.taskId],
      ["Spawned by", content.parentSessionId && `session ${content.parentSessionId}${content.parentThreadId ? `, thread ${content.parentThreadId}` : ""}`],
      ["Spawned for", content.spawnReason],
      ["Used", content.usage],
      ["Transcript at", content.transcriptRef],
    ]);
    const session = words(content.sessionId);
    const isChild = session !== "" && content.parentSessionId !== undefined && session !== content.parentSessionId;
    const { activityId: id, runId } = card.activity;
    link(card.links, [
      { label: "transcript", words: name, go: () => this.view.open({ kind: "teammate", id, runId }) },
      ...(isChild ? [{ label: "session", words: session, go: () => this.view.open({ kind: "session", id: session }) }] : []),
    ]);
    for (const button of card.foot.querySelectorAll("button")) button.hidden = OVER.includes(words(content.status));
  }
}

function teamHead() {
  const head = element("div", "team-head");
  const row = element("div", "spread");
  const name = element("p", "card-title");
  const badges = element("div", "row");
  badges.append(element("span", "badge phase"), element("span", "chip topology"));
  row.append(name, badges);
  const budget = element("div", "row budget");
  const meter = element("progress", "meter");
  budget.append(meter, element("span", "hint"));
  head.append(row, budget, element("dl", "facts"));
  return head;
}

/**
 * @param {HTMLElement} head
 * @param {Activity} team
 */
function changeTeam(head, team) {
  const { content } = team;
  const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (head.querySelector(name));
  head.dataset.key = keyOf(team);
  head.dataset.topology = words(content.topology);
  say(part(".card-title"), words(content.teamName) || team.activityId);
  mark(part(".phase"), content.teamPhase ?? content.status);
  say(part(".topology"), content.topology && content.topology !== "unknown" ? spoken(content.topology) : "topology unknown");
  const { teamActiveCount: active, teamParallelBudget: most, teamQueuedCount: queued } = content;
  const meter = /** @type {HTMLProgressElement} */ (part(".meter"));
  meter.hidden = typeof active !== "number" || typeof most !== "number" || most <= 0;
  if (!meter.hidden) {
    meter.max = most;
    meter.value = active;
    meter.setAttribute("aria-label", `Teammates at work in ${words(content.teamName) || team.activityId}`);
  }
  // Limits and queues are no failures: they are said as they are.
  const told = [
    typeof active === "number" ? `${active} at work` : "",
    typeof most === "number" ? `at most ${most} at once` : "",
    typeof queued === "number" ? `${queued} waiting` : "",
  ];
  say(part(".budget .hint"), told.filter(Boolean).join(", "));
  tell(/** @type {HTMLDListElement} */ (part(".facts")), [
    ["Coordinator", content.coordinator],
    ["Members", content.members ?? content.agents ?? content.roster],
    ["Queue", content.queueReason],
    ["Shared memory", content.memoryRefs],
    ["May", content.policy],
  ]);
}

define("ps-team-roster", TeamRoster);
