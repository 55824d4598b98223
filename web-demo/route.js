/**
 * The address of the page: a person can share it, and a reload shows the same view. It never contains a token.
 */

/** @typedef {"user" | "dashboard" | "internal"} Audience */

/**
 * @typedef {object} Route
 * @property {string} [session] The open session.
 * @property {string} [run] The open run, if no session is open.
 * @property {Audience} audience The viewer's audience.
 * @property {number | null} at A past moment as a sequence of the run; null for live.
 * @property {string} [panel] The panel beside the conversation.
 * @property {string} [event] The selected event: `<sequence>` of the focused run, or `<run>:<sequence>`.
 */

/** @type {Audience[]} */
const AUDIENCES = ["user", "dashboard", "internal"];

/**
 * @param {string} hash With or without its `#`.
 * @returns {Route}
 */
export function parse(hash) {
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  const at = query.get("at");
  const run = query.get("run") ?? undefined;
  return {
    session: query.get("session") || undefined,
    run: run || undefined,
    audience: AUDIENCES.find((name) => name === query.get("audience")) ?? "user",
    at: at !== null && /^\d+$/.test(at) ? Number(at) : null,
    panel: query.get("panel") ?? undefined,
    event: query.get("event") ?? undefined,
  };
}

/**
 * @param {Route} route
 * @returns {string} With its `#`.
 */
export function format({ session, run, audience, at, panel }) {
  const query = new URLSearchParams();
  if (session) query.set("session", session);
  if (run) query.set("run", run);
  query.set("audience", audience);
  if (at !== null) query.set("at", String(at));
  if (panel) query.set("panel", panel);
  return `#${query}`;
}
