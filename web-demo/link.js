/**
 * Opens a share link: exchanges the secret of the address for a token, and renews that while the page is open.
 *
 * The secret and the token are in memory alone. A reload of the page needs the link again.
 */

import { Problem, problemOf } from "./client/http.js";
import { loadStyle } from "./styles.js";
import { format } from "./route.js";
import { showToast } from "./toasts.js";
import { Token } from "./token.js";

/** How long before its end a token is renewed, and the longest and shortest wait, in milliseconds. */
const RENEW_BEFORE_MS = 60_000;
const RENEW_MS_MAX = 14 * 60_000;
const RENEW_MS_MIN = 30_000;

/**
 * @typedef {{ runId?: string, sessionId?: string, at?: number, can: string[], token?: string, expiresAt?: string, until: string }} OpenedLink
 * The answer of `POST /v1/links/exchange`.
 */

/** The token of a share link. */
class LinkToken extends Token {
  isOfLink = true;
  #canDecide;

  /** @param {boolean} canDecide */
  constructor(canDecide) {
    super();
    this.#canDecide = canDecide;
  }

  get hasToken() {
    return text !== "";
  }

  get value() {
    return text || undefined;
  }

  /** @returns {import("./route.js").Audience} */
  get audience() {
    return "user";
  }

  get canControl() {
    return this.#canDecide;
  }
}

/** The token itself. */
let text = "";

/**
 * @param {string} secret
 * @returns {Promise<OpenedLink>}
 */
async function exchange(secret) {
  const response = await fetch("/v1/links/exchange", { method: "POST", cache: "no-store", headers: { "content-type": "application/json" }, body: JSON.stringify({ secret }) });
  if (!response.ok) throw new Problem(await problemOf(response));
  const opened = /** @type {OpenedLink} */ (await response.json());
  text = opened.token ?? "";
  if (opened.expiresAt) {
    const wait = Date.parse(opened.expiresAt) - Date.now() - RENEW_BEFORE_MS;
    setTimeout(() => void renew(secret), Math.min(Math.max(wait, RENEW_MS_MIN), RENEW_MS_MAX));
  }
  return opened;
}

/** @param {string} secret */
async function renew(secret) {
  try {
    await exchange(secret);
  } catch (error) {
    if (!(error instanceof Problem) || error.status >= 429) return void setTimeout(() => void renew(secret), RENEW_MS_MIN);
    showToast({ text: "This share link has ended. Ask the person who sent it for another one.", isFailure: true });
  }
}

/**
 * Opens the link of the address, and removes its secret from there.
 * @returns {Promise<Token | undefined>} Its token; `undefined` if it was not opened.
 */
export async function openLink() {
  const secret = new URLSearchParams(location.hash.slice(1)).get("link") ?? "";
  history.replaceState(null, "", location.pathname + location.search);
  try {
    const { sessionId, runId, at, can } = await exchange(secret);
    history.replaceState(null, "", format({ session: sessionId, run: runId, audience: "user", at: null }));
    await loadStyle("link.css");
    document.body.dataset.link = at !== undefined ? "moment" : can.includes("control") ? "decides" : "reads";
    document.body.dataset.rail = "hidden";
    return new LinkToken(can.includes("control"));
  } catch (error) {
    const failure = error instanceof Problem && error.status === 404 ? "This share link has ended, or is not complete. Ask the person who sent it for another one."
      : error instanceof Problem ? `The share link was not opened: ${error.detail}` : "The share link was not opened: the server is unreachable.";
    showToast({ text: failure, isFailure: true });
    return undefined;
  }
}
