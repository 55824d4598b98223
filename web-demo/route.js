/**
 * What is open, as the address says it: it can be sent to somebody, and a reload shows the same again. No token ever stands in it.
 */

/** @typedef {"user" | "dashboard" | "internal"} Audience */

/**
 * @typedef {object} Route
 * @property {string} [session] The session that is open.
 * @property {string} [run] Or the run.
 * @property {Audience} audience As whom one looks.
 * @property {number | null} at A past moment, as a sequence of the run; null for now.
 * @property {string} [panel] The surface that stands beside.
 */

/** @type {Audience[]} */
const AUDIENCES = ["user", "dashboard", "internal"];

/**
 * @param {string} hash With or without its `#`.
 * @returns {Route}
 */
export function parse(hash) {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const at = asked.get("at");
  const run = asked.get("run") ?? undefined;
  return {
    session: asked.get("session") || undefined,
    run: run || undefined,
    audience: AUDIENCES.find((name) => name === asked.get("audience")) ?? "user",
    at: at !== null && /^\d+$/.test(at) ? Number(at) : null,
    panel: asked.get("panel") ?? undefined,
  };
}

/**
 * @param {Route} route
 * @returns {string} With its `#`.
 */
export function format({ session, run, audience, at, panel }) {
  const said = new URLSearchParams();
  if (session) said.set("session", session);
  if (run) said.set("run", run);
  said.set("audience", audience);
  if (at !== null) said.set("at", String(at));
  if (panel) said.set("panel", panel);
  return `#${said}`;
}
