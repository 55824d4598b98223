/**
 * The dialog for notifications of this device: on or off, and which sessions and agents stay silent.
 */

import { pathSegment, request } from "./client/http.js";
import { pushOf } from "./push.js";
import { parse } from "./route.js";
import { Sheet } from "./sheet.js";
import { html, nothing } from "./vendor/lit.js";

/** @typedef {import("./client/http.js").Server} Server */
/** @typedef {import("./push.js").Muted} Muted */

/**
 * The agents that may ask in what is open: those that wait there, and its team.
 * @param {Server} server
 * @param {import("./route.js").Route} route
 * @returns {Promise<string[]>}
 */
async function agentsOf(server, { session, run, audience }) {
  const query = new URLSearchParams({ audience });
  const { items } = await (await request(server, `/v1/attention?limit=200&${query}`)).json();
  const here = items.filter((/** @type {any} */ item) => (session === undefined ? item.runId === run : item.sessionId === session));
  // A session without facts is 404.
  const { team = [] } = session === undefined ? {} : await request(server, `/v1/sessions/${pathSegment(session)}?${query}`).then((answer) => answer.json(), () => ({}));
  return [...new Set([...here.map((/** @type {any} */ item) => item.agentId), ...team.map((/** @type {any} */ agent) => agent.agentId)])].filter(Boolean);
}

/** @param {Server} server */
export function showPushSettings(server) {
  const push = pushOf(server);
  const route = parse(location.hash);
  /** @type {string[]} */
  let agents = [];
  let others = 0;
  const sheet = new Sheet("push-settings", "Notifications", () => (push.device ? on(push.device) : off()));

  const load = async () => {
    await push.renew();
    const [{ subscriptions }, found] = await Promise.all([push.read(), agentsOf(server, route)]);
    agents = found;
    others = subscriptions.filter(({ id }) => id !== push.device?.id).length;
  };

  /** @param {() => Promise<void>} change */
  const attempt = (change) => void sheet.attempt(async () => {
    await change();
    await load();
    return "";
  });

  /** @param {() => Promise<void>} change @param {string} label */
  const button = (label, change, kind = "plain") => html`<button type="button" class="button small" data-kind=${kind} ?disabled=${sheet.isBusy} @click=${() => attempt(change)}>${label}</button>`;

  const off = () => html`
    <p>Tell me on this device when a run waits, also while this page is closed.</p>
    <p class="row">${button("Turn on", () => push.turnOn(), "primary")}</p>${elsewhere()}`;

  /** @param {import("./push.js").Device} device */
  const on = ({ muted, until }) => html`
    <p>On for this device. It ends on ${new Date(until).toLocaleDateString()}, unless you open the page before.</p>
    <p class="row">${button("Turn off", () => push.turnOff())}</p>
    <ul>
      ${route.session === undefined ? nothing : row("This session", muted, "sessions", route.session)}
      ${agents.map((agent) => row(`Agent ${agent}`, muted, "agents", agent))}
      ${muted.sessions.filter((id) => id !== route.session).map((id) => row(`Session ${id}`, muted, "sessions", id))}
      ${muted.agents.filter((id) => !agents.includes(id)).map((id) => row(`Agent ${id}`, muted, "agents", id))}
    </ul>${elsewhere()}`;

  const elsewhere = () => (others === 0 ? nothing : html`<p class="hint">Also on for ${others} other ${others === 1 ? "device" : "devices"}.</p>`);

  /**
   * @param {string} label
   * @param {Muted} muted
   * @param {keyof Muted} kind
   * @param {string} id
   */
  const row = (label, muted, kind, id) => {
    const isMuted = muted[kind].includes(id);
    const change = () => push.mute({ ...muted, [kind]: isMuted ? muted[kind].filter((one) => one !== id) : [...muted[kind], id] });
    return html`<li><span class="truncate" dir="auto">${label}${isMuted ? html` <span class="tag">muted</span>` : nothing}</span>${button(isMuted ? "Unmute" : "Mute", change)}</li>`;
  };

  sheet.open();
  attempt(async () => {});
}
