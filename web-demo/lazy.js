/**
 * Elements that load when they are first shown.
 *
 * The first screen does not need them, so their modules are not imported statically. Until its module has loaded, such
 * an element is an empty element without a class. Call `upgrade` with a name to use one earlier. To make an element
 * lazy, import its module nowhere statically (types by JSDoc only) and add it to `MODULES`.
 */

import { loadStyle } from "./styles.js";
import { define } from "./surfaces/base.js";

/** The elements of the Team tab, and those that need work of a team. */
const TEAM = { load: () => import("./surfaces/team.js"), styles: ["surfaces/team.css"] };
const TEAM_WORK = { load: () => import("./surfaces/team-work.js"), styles: ["surfaces/team.css"] };

/** The modules that define lazy elements, with the styles that only they use. @type {Record<string, { load: () => Promise<unknown>, styles?: string[] }>} */
const MODULES = {
  "ps-team-policy": TEAM, "ps-team-roster": TEAM,
  "ps-again": { load: () => import("./surfaces/again.js"), styles: ["surfaces/feedback.css"] },
  "ps-background-teammates": TEAM_WORK, "ps-handoff-lane": TEAM_WORK, "ps-remote-teammates": TEAM_WORK, "ps-worker-notifications": TEAM_WORK,
  "ps-delegation-graph": { load: () => import("./surfaces/delegation-graph.js"), styles: ["surfaces/team.css"] },
  "ps-first-use": { load: () => import("./surfaces/first-use.js"), styles: ["surfaces/first-use.css"] },
  "ps-feedback": { load: () => import("./surfaces/feedback.js"), styles: ["surfaces/feedback.css"] },
  "ps-inbox": { load: () => import("./surfaces/inbox.js").then(({ Inbox }) => define("ps-inbox", Inbox)), styles: ["surfaces/inbox.css"] },
  "ps-review-lane": { load: () => import("./surfaces/review-lane.js"), styles: ["surfaces/team.css"] },
  "ps-work-board": { load: () => import("./surfaces/work-board.js"), styles: ["surfaces/team.css"] },
  "ps-artifacts": { load: () => import("./surfaces/artifacts.js"), styles: ["surfaces/artifacts.css", "ui/diff.css", "ui/json.css"] },
  "ps-audiences": { load: () => import("./tools/audiences.js"), styles: ["tools/tools.css"] },
  "ps-diagnostics": { load: () => import("./surfaces/diagnostics.js"), styles: ["surfaces/diagnostics.css", "ui/json.css"] },
  "ps-events": { load: () => import("./surfaces/events.js"), styles: ["surfaces/filter.css", "surfaces/events.css", "ui/json.css"] },
  "ps-runs": { load: () => import("./surfaces/runs.js"), styles: ["surfaces/filter.css", "surfaces/runs.css"] },
  "ps-scrubber": { load: () => import("./tools/scrubber.js"), styles: ["tools/tools.css"] },
  "ps-task-capsule": { load: () => import("./surfaces/task-capsule.js"), styles: ["surfaces/task-capsule.css"] },
  "ps-teammate-transcript": { load: () => import("./surfaces/teammate-transcript.js"), styles: ["surfaces/team.css"] },
  "ps-trace": { load: () => import("./surfaces/trace.js").then(({ Trace }) => define("ps-trace", Trace)), styles: ["surfaces/trace.css"] },
};

/** The elements that load only once an activity of one of these types is there. @type {Record<string, string[]>} */
export const NEEDED_TYPES = {
  "ps-background-teammates": ["agent", "task"], "ps-delegation-graph": ["agent"], "ps-handoff-lane": ["handoff"], "ps-remote-teammates": ["agent", "artifact", "task"], "ps-task-capsule": ["task"],
  "ps-worker-notifications": ["worker-notification"],
};

/** The loads that have begun, by element name. @type {Map<string, Promise<unknown>>} */
const loads = new Map();

/**
 * Loads the module of an element unless it is loaded.
 * @param {string} name The element's name.
 * @returns {Promise<unknown>} Resolves at once for an element that is not lazy. Rejects if the server is unreachable;
 * the next call tries again.
 */
export function upgrade(name) {
  const { load, styles = [] } = MODULES[name] ?? {};
  if (!load) return Promise.resolve();
  let pending = loads.get(name);
  if (!pending) {
    pending = Promise.all([load(), ...styles.map(loadStyle)]).catch((error) => {
      loads.delete(name);
      throw error;
    });
    loads.set(name, pending);
  }
  return pending;
}
