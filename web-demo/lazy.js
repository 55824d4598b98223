/**
 * Elements that load when they are first shown.
 *
 * The first screen does not need them, so their modules are not imported statically. Until its module has loaded, such
 * an element is an empty element without a class. Call `upgrade` with a name to use one earlier. To make an element
 * lazy, import its module nowhere statically (types by JSDoc only) and add it to `MODULES`.
 */

/** The elements of the Team tab. */
const TEAM = { load: () => import("./surfaces/team.js"), styles: ["surfaces/team.css"] };

/** The modules that define lazy elements, with the styles that only they use. @type {Record<string, { load: () => Promise<unknown>, styles?: string[] }>} */
const MODULES = {
  "ps-background-teammates": TEAM, "ps-handoff-lane": TEAM, "ps-remote-teammates": TEAM, "ps-team-policy": TEAM, "ps-team-roster": TEAM, "ps-worker-notifications": TEAM,
  "ps-delegation-graph": { load: () => import("./surfaces/delegation-graph.js"), styles: ["surfaces/team.css"] },
  "ps-first-use": { load: () => import("./surfaces/first-use.js"), styles: ["surfaces/first-use.css"] },
  "ps-inbox": { load: () => import("./surfaces/inbox.js"), styles: ["surfaces/inbox.css"] },
  "ps-review-lane": { load: () => import("./surfaces/review-lane.js"), styles: ["surfaces/team.css"] },
  "ps-work-board": { load: () => import("./surfaces/work-board.js"), styles: ["surfaces/team.css"] },
  "ps-artifacts": { load: () => import("./surfaces/artifacts.js"), styles: ["surfaces/artifacts.css", "ui/diff.css", "ui/json.css"] },
  "ps-audiences": { load: () => import("./tools/audiences.js"), styles: ["tools/tools.css"] },
  "ps-diagnostics": { load: () => import("./surfaces/diagnostics.js"), styles: ["surfaces/diagnostics.css", "ui/json.css"] },
  "ps-events": { load: () => import("./surfaces/events.js"), styles: ["surfaces/events.css", "ui/json.css"] },
  "ps-scrubber": { load: () => import("./tools/scrubber.js"), styles: ["tools/tools.css"] },
  "ps-teammate-transcript": { load: () => import("./surfaces/teammate-transcript.js"), styles: ["surfaces/team.css"] },
  "ps-trace": { load: () => import("./surfaces/trace.js"), styles: ["surfaces/trace.css"] },
};

/** The loads that have begun, by element name. @type {Map<string, Promise<unknown>>} */
const loads = new Map();
/** The style sheets that have begun to load, by path. @type {Map<string, Promise<void>>} */
const sheets = new Map();

/**
 * Loads a style sheet of the page once.
 * @param {string} path Relative to this module.
 * @returns {Promise<void>} Resolves when it applies, or has failed to load: an element without styles is better than none.
 */
export function loadStyle(path) {
  let pending = sheets.get(path);
  if (!pending) {
    pending = new Promise((resolve) => {
      document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL(path, import.meta.url).href, onload: () => resolve(), onerror: () => resolve() }));
    });
    sheets.set(path, pending);
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

/**
 * Loads what draws diffs: no first screen needs it.
 * @returns {Promise<typeof import("./ui/diff.js")>}
 */
export async function loadDiffs() {
  const [module] = await Promise.all([import("./ui/diff.js"), loadStyle("ui/diff.css")]);
  return module;
}
