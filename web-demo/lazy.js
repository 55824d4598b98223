/**
 * Elements that load when they are first shown.
 *
 * The first screen does not need them, so their modules are not imported statically. Until its module has loaded, such
 * an element is an empty element without a class. Call `upgrade` with a name to use one earlier. To make an element
 * lazy, import its module nowhere statically (types by JSDoc only) and add it to `MODULES`.
 */

/** The modules that define lazy elements, with the styles that only they use. @type {Record<string, { load: () => Promise<unknown>, style?: string }>} */
const MODULES = {
  "ps-background-teammates": { load: () => import("./surfaces/background-teammates.js"), style: "surfaces/team.css" },
  "ps-delegation-graph": { load: () => import("./surfaces/delegation-graph.js"), style: "surfaces/team.css" },
  "ps-handoff-lane": { load: () => import("./surfaces/handoff-lane.js"), style: "surfaces/team.css" },
  "ps-remote-teammates": { load: () => import("./surfaces/remote-teammates.js"), style: "surfaces/team.css" },
  "ps-first-use": { load: () => import("./surfaces/first-use.js"), style: "surfaces/first-use.css" },
  "ps-inbox": { load: () => import("./surfaces/inbox.js"), style: "surfaces/inbox.css" },
  "ps-review-lane": { load: () => import("./surfaces/review-lane.js"), style: "surfaces/team.css" },
  "ps-team-policy": { load: () => import("./surfaces/team-policy.js"), style: "surfaces/team.css" },
  "ps-team-roster": { load: () => import("./surfaces/team-roster.js"), style: "surfaces/team.css" },
  "ps-work-board": { load: () => import("./surfaces/work-board.js"), style: "surfaces/team.css" },
  "ps-worker-notifications": { load: () => import("./surfaces/worker-notifications.js"), style: "surfaces/team.css" },
  "ps-artifacts": { load: () => import("./surfaces/artifacts.js"), style: "surfaces/artifacts.css" },
  "ps-audiences": { load: () => import("./tools/audiences.js"), style: "tools/tools.css" },
  "ps-diagnostics": { load: () => import("./surfaces/diagnostics.js"), style: "surfaces/diagnostics.css" },
  "ps-events": { load: () => import("./surfaces/events.js"), style: "surfaces/events.css" },
  "ps-scrubber": { load: () => import("./tools/scrubber.js"), style: "tools/tools.css" },
  "ps-task-capsule": { load: () => import("./surfaces/task-capsule.js") },
  "ps-teammate-transcript": { load: () => import("./surfaces/teammate-transcript.js"), style: "surfaces/team.css" },
  "ps-trace": { load: () => import("./surfaces/trace.js"), style: "surfaces/trace.css" },
};

/** The loads that have begun, by element name. @type {Map<string, Promise<unknown>>} */
const loads = new Map();
/** The style sheets that have begun to load, by path. @type {Map<string, Promise<void>>} */
const styles = new Map();

/**
 * Loads a style sheet of the page once.
 * @param {string} path Relative to this module.
 * @returns {Promise<void>} Resolves when it applies, or has failed to load: an element without styles is better than none.
 */
export function loadStyle(path) {
  let pending = styles.get(path);
  if (!pending) {
    pending = new Promise((resolve) => {
      document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL(path, import.meta.url).href, onload: () => resolve(), onerror: () => resolve() }));
    });
    styles.set(path, pending);
  }
  return pending;
}

/**
 * Loads the module of an element unless it is loaded.
 * @param {string} name The element's name.
 * @returns {Promise<unknown>} Resolves at once for an element that is not lazy. Rejects if the server is unreachable;
 * the next call tries again.
 */
export function upgrade(name) {
  const { load, style } = MODULES[name] ?? {};
  if (!load) return Promise.resolve();
  let pending = loads.get(name);
  if (!pending) {
    pending = Promise.all([load(), style && loadStyle(style)]).catch((error) => {
      loads.delete(name);
      throw error;
    });
    loads.set(name, pending);
  }
  return pending;
}
