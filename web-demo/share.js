/**
 * The dialog that shares what is open: makes a link, copies it, lists the links to it, and revokes them.
 */

import { Problem, pathSegment, request } from "./client/http.js";
import { parse } from "./route.js";
import { showToast } from "./toasts.js";
import { html, nothing, render, repeat } from "./vendor/lit.js";

/** @typedef {import("./client/http.js").Server} Server */

/**
 * @typedef {object} Link An entry of `GET /v1/links`.
 * @property {string} id
 * @property {string} until
 * @property {string[]} can
 * @property {number} uses
 * @property {string} [runId]
 * @property {string} [sessionId]
 * @property {number} [at]
 * @property {{ actionId: string, controlId: string }} [decided]
 */

/** How long a link lasts, in hours. @type {[number, string][]} */
const LIVES = [[1, "1 hour"], [24, "1 day"], [168, "7 days"]];

/** @param {Link} link */
const describe = ({ until, can, at, uses, decided }) => [
  `until ${new Date(until).toLocaleString()}`, at === undefined ? "" : `up to event ${at}`,
  decided ? "has decided" : can.includes("control") ? "may decide once" : "", `opened ${uses} ${uses === 1 ? "time" : "times"}`,
].filter(Boolean).join(" · ");

/**
 * Shows the dialog for the session or the run of the page's address.
 * @param {Server} server
 * @param {import("./token.js").Token} token
 */
export function showShare(server, token) {
  const { session, run } = parse(location.hash);
  if (session === undefined && run === undefined) return showToast({ text: "Open a session or a run first, then share it." });
  const target = session === undefined ? { runId: run } : { sessionId: session };
  const dialog = Object.assign(document.createElement("dialog"), { className: "share", id: "share-dialog" });
  dialog.setAttribute("aria-labelledby", "share-title");
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  /** @type {Link[]} */
  let links = [];
  let url = "";
  let note = "";
  let isFailure = false;
  let isBusy = false;
  // A server without tokens holds no reader to a moment or to one decision.
  const hasTokens = token.hasToken;

  /** @param {() => Promise<string>} work Its result is the note. */
  const attempt = async (work) => {
    [isBusy, note] = [true, ""];
    draw();
    try {
      [note, isFailure] = [await work(), false];
    } catch (error) {
      [note, isFailure] = [error instanceof Problem ? error.detail : "The server is unreachable. Check that it runs.", true];
    }
    isBusy = false;
    draw();
  };

  const load = async () => {
    const page = await (await request(server, "/v1/links")).json();
    links = page.links.filter((/** @type {Link} */ link) => link.runId === target.runId && link.sessionId === target.sessionId);
  };

  /** @param {SubmitEvent} event */
  const make = (event) => {
    event.preventDefault();
    const chosen = new FormData(/** @type {HTMLFormElement} */ (event.target));
    void attempt(async () => {
      const until = new Date(Date.now() + Number(chosen.get("hours")) * 3_600_000).toISOString();
      const at = chosen.has("moment") && run !== undefined ? (await (await request(server, `/v1/runs/${pathSegment(run)}`)).json()).lastSequence : undefined;
      const can = chosen.has("decide") ? ["control"] : undefined;
      const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ ...target, until, at, can }) };
      url = new URL((await (await request(server, "/v1/links", init)).json()).url, location.href).href;
      await load();
      return copy();
    });
  };

  const copy = async () => {
    try {
      await navigator.clipboard.writeText(url);
      return "Copied. Only this dialog shows the link: the server does not keep it.";
    } catch {
      return "Copy the link now. Only this dialog shows it: the server does not keep it.";
    }
  };

  /** @param {Link} link */
  const revoke = ({ id }) => void attempt(async () => {
    await request(server, `/v1/links/${pathSegment(id)}`, { method: "DELETE" });
    await load();
    return "The link is revoked.";
  });

  const draw = () => render(html`
    <div class="spread"><h2 id="share-title">Share this ${session === undefined ? "run" : "session"}</h2><button type="button" class="button" @click=${() => dialog.close()}>Close</button></div>
    <p class="hint">${hasTokens ? "Anyone with the link can read it, without a token, until the link ends." : "This server asks for no token: anyone who reaches it can read everything."}</p>
    <form @submit=${make}>
      <label>Ends in <select class="input" name="hours">${LIVES.map(([hours, label]) => html`<option value=${hours}>${label}</option>`)}</select></label>
      ${hasTokens && run !== undefined && session === undefined ? html`<label><input type="checkbox" name="moment"> Only up to now</label>` : nothing}
      ${hasTokens && token.canControl ? html`<label><input type="checkbox" name="decide"> May decide one action, once</label>` : nothing}
      <button type="submit" class="button" data-kind="primary" ?disabled=${isBusy}>Make a link</button>
    </form>
    ${url ? html`<div class="share-url"><input class="input" readonly aria-label="Link" .value=${url} @focus=${(/** @type {FocusEvent} */ event) => /** @type {HTMLInputElement} */ (event.target).select()}><button type="button" class="button" @click=${() => void attempt(copy)}>Copy</button></div>` : nothing}
    <p class="note" role="status" data-state=${isFailure ? "failed" : "idle"} ?hidden=${note === ""}>${note}</p>
    ${links.length > 0 ? html`<h3 class="label">Open links</h3><ul>${repeat(links, ({ id }) => id, (link) => html`<li><span>${describe(link)}</span><button type="button" class="button small" ?disabled=${isBusy} @click=${() => revoke(link)}>Revoke</button></li>`)}</ul>` : nothing}`, dialog);

  draw();
  document.body.append(dialog);
  dialog.showModal();
  void attempt(async () => {
    await load();
    return "";
  });
}
