/**
 * The address of the page: a person can share it, and a reload shows the same view. It never contains a token.
 */

/** @typedef {"user" | "dashboard" | "internal"} Audience */

/** A main view over the conversation. @typedef {"inbox" | "runs" | "transcript" | "compare"} MainView */

/**
 * @typedef {object} Route
 * @property {string} [session] The open session.
 * @property {string} [run] The open run, if no session is open.
 * @property {Audience} audience The viewer's audience.
 * @property {number | null} at A past moment as a sequence of the run; null for live.
 * @property {string} [panel] The panel beside the conversation.
 * @property {boolean} [full] Whether the panel takes the whole width.
 * @property {MainView} [view] The main view over the conversation.
 * @property {string} [filter] The filter of the runs.
 * @property {string} [sort] The order of the runs.
 * @property {string} [pair] The two runs that are compared: their encoded ids with a comma between.
 * @property {string} [group] What groups the runs: `status`, `agent` or `source`.
 * @property {string} [columns] The columns of the runs, with commas between.
 * @property {string} [agent] The teammate of the transcript.
 * @property {{ id: string, runId?: string }} [artifact] The open artifact of the panel.
 * @property {{ id: string, runId?: string }} [action] The decision to go to.
 * @property {import("./text-search.js").Place} [message] The message to go to.
 * @property {string} [event] The selected event: `<sequence>` of the focused run, or `<run>:<sequence>`.
 */

/** @type {Audience[]} */
export const AUDIENCES = ["user", "dashboard", "internal"];
/** @type {MainView[]} */
const VIEWS = ["inbox", "runs", "transcript", "compare"];
/** What the address has of the runs. */
const RUNS = /** @type {const} */ (["filter", "sort", "pair", "group", "columns"]);

/**
 * @param {string} hash With or without its `#`.
 * @returns {Route}
 */
export function parse(hash) {
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  const [at, action] = [query.get("at"), query.get("action")];
  const [session, run] = [query.get("session") || undefined, query.get("run") || undefined];
  return {
    session,
    // Messages name the run of a session, too.
    run: session === undefined ? run : undefined,
    audience: AUDIENCES.find((name) => name === query.get("audience")) ?? "user",
    at: at !== null && /^\d+$/.test(at) ? Number(at) : null,
    panel: query.get("panel") ?? undefined,
    full: query.has("full") || undefined,
    view: VIEWS.find((name) => name === query.get("view")),
    ...Object.fromEntries(RUNS.map((name) => [name, query.get(name) ?? undefined])),
    agent: query.get("agent") ?? undefined,
    event: query.get("event") ?? undefined,
    action: action ? { id: action, runId: run } : undefined,
    artifact: parseArtifact(query.get("artifact") ?? ""),
  };
}

/**
 * @param {string} text `<id>`, or `<run>/<id>`; a slash in the run is encoded.
 * @returns {Route["artifact"]}
 */
function parseArtifact(text) {
  const [, run, id] = /^(?:([^/]*)\/)?(.+)$/s.exec(text) ?? [];
  if (!id) return undefined;
  try {
    return run === undefined ? { id } : { id, runId: decodeURIComponent(run) };
  } catch {
    return { id: text };
  }
}

/**
 * @param {Route} route
 * @returns {string} With its `#`.
 */
export function format(route) {
  const { session, run, audience, at, panel, full, view, agent, artifact } = route;
  const query = new URLSearchParams();
  if (session) query.set("session", session);
  if (run) query.set("run", run);
  query.set("audience", audience);
  if (at !== null) query.set("at", String(at));
  if (panel) query.set("panel", panel);
  if (full) query.set("full", "1");
  if (view) query.set("view", view);
  if (view === "runs") for (const name of RUNS) if (route[name] !== undefined) query.set(name, route[name]);
  if (view === "transcript" && agent) query.set("agent", agent);
  if (panel === "artifacts" && artifact) query.set("artifact", `${artifact.runId === undefined ? "" : `${encodeURIComponent(artifact.runId)}/`}${artifact.id}`);
  return `#${query}`;
}
