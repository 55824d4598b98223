/**
 * The account: the sign-in at an identity provider, and the menu with the name, the rights and the way out.
 *
 * The page loads this module once the server asks for a token or accepts one.
 */

import { Problem, request } from "./client/http.js";
import { opened } from "./dialogs.js";
import { loadStyle } from "./styles.js";
import { query } from "./query.js";
import { begin, finish, forget, isSignedIn, keepRenewing, takeFailure } from "./sign-in.js";
import { icon } from "./ui/icons.js";
import { html, nothing, render } from "./vendor/lit.js";

/** @typedef {import("./client/http.js").Server} Server */
/** @typedef {import("./sign-in.js").Provider} Provider */
/** @typedef {import("./token.js").Token} Token */
/** @typedef {import("./token.js").Me} Me */

/** How many names of a list the menu shows. */
const NAMES_MAX = 5;

/** @param {string[] | undefined} names */
function listed(names) {
  if (!names || names.length === 0) return "none";
  if (names.includes("*")) return "all";
  return names.length > NAMES_MAX ? `${names.slice(0, NAMES_MAX).join(", ")} and ${names.length - NAMES_MAX} more` : names.join(", ");
}

/** The button in the header that shares what is open. */
function shareButton() {
  const button = Object.assign(document.createElement("button"), { type: "button", id: "share", className: "button", title: "Share", hidden: true });
  button.dataset.kind = "quiet";
  button.setAttribute("aria-label", "Share");
  render(icon("link"), button);
  // It appears late, and moves nothing here: what is behind it stays where a person may be about to click.
  query("#audience", HTMLElement).before(button);
  return button;
}

/** Whether this browser can show what a server pushes. It offers that to secure pages alone. */
const hasPush = () => isSecureContext && "serviceWorker" in navigator && "PushManager" in globalThis && "Notification" in globalThis;

/** Whether the service worker of Web Push may have a subscription. */
const hasWorker = async () => hasPush() && (await navigator.serviceWorker.getRegistration()) !== undefined;

export class Account {
  /**
   * @param {Server} server
   * @param {Token} token
   * @param {() => void} onRights Called when the rights are known.
   */
  constructor(server, token, onRights) {
    this.#server = server;
    this.#token = token;
    this.#onRights = onRights;
    void loadStyle("account.css");
    document.addEventListener("decided", () => void this.#offerPush());
    // A person put a share link into the address of the open page.
    addEventListener("popstate", () => location.hash.startsWith("#link=") && location.reload());
    this.#share.addEventListener("click", () => void this.#openShare());
  }

  #server;
  #token;
  #onRights;
  #menu = query("#account", HTMLElement);
  #choice = query("#sign-in", HTMLElement);
  #share = shareButton();
  /** @type {Provider | undefined} */
  #provider;
  /** The server asked for a token after what began last. */
  #isAsking = false;

  /** Shows whose token the server has accepted. */
  async show() {
    this.#isAsking = false;
    render(nothing, this.#choice);
    if (isSignedIn()) keepRenewing((token) => this.#renewed(token));
    let me;
    try {
      me = /** @type {Me} */ (await (await request(this.#server, "/v1/me")).json());
    } catch (error) {
      // The next answer of the lists says more.
      return console.warn("The rights of the token are unknown:", error);
    }
    if (this.#isAsking) return;
    this.#token.rights = me;
    this.#onRights();
    this.#share.hidden = !me.can.includes("share");
    this.#menu.hidden = me.sub === undefined;
    this.#draw(me);
    if (await hasWorker()) void opened("Notifications", async () => (await import("./push.js")).renewPush(this.#server));
  }

  async #offerPush() {
    if (hasPush()) await opened("The offer", async () => (await import("./push.js")).offerPush(this.#server));
  }

  /** What a person can set, by its name. The palette has the same buttons. @param {Me} me @returns {[string, () => Promise<void>][]} */
  #settings({ can, sessions }) {
    /** @type {[string, () => Promise<void>][]} */
    const settings = [];
    if (hasPush()) settings.push(["Notifications", async () => (await import("./push-settings.js")).showPushSettings(this.#server)]);
    // The server answers others by 403.
    if (can.includes("admin") && sessions.includes("*")) settings.push(["Webhooks", async () => (await import("./webhooks.js")).showWebhooks(this.#server)]);
    return settings;
  }

  /** Offers a share link to what is open. */
  #openShare() {
    return opened("The share dialog", async () => {
      const [{ showShare }] = await Promise.all([import("./share.js"), loadStyle("share.css")]);
      showShare(this.#server, this.#token);
    });
  }

  /** @param {string} token */
  #renewed(token) {
    const { rights } = this.#token;
    this.#token.set(token);
    this.#token.rights = rights;
  }

  /** Offers the sign-in of the server, if it has one. @returns {Promise<void>} */
  async ask() {
    this.#isAsking = true;
    this.#menu.hidden = this.#share.hidden = true;
    render(nothing, this.#menu);
    // The provider has sent the person back: the page begins again, with the token and where it was.
    if (await finish()) return location.reload();
    let failure = takeFailure();
    try {
      this.#provider ??= (await (await request({ ...this.#server, token: undefined }, "/v1/sign-in")).json()).provider;
    } catch (error) {
      failure ||= error instanceof Problem ? error.detail : "";
    }
    if (!this.#isAsking) return;
    this.#offer(this.#provider, failure);
  }

  /**
   * @param {Provider | undefined} provider
   * @param {string} failure
   */
  #offer(provider, failure) {
    render(html`
      ${provider ? html`<button type="button" class="button" data-kind="primary" id="sign-in-button" @click=${() => this.#signIn(provider)}>Sign in with ${new URL(provider.issuer).host}</button>` : nothing}
      ${failure ? html`<p class="note" data-state="failed" role="alert" dir="auto">${failure}</p>` : nothing}`, this.#choice);
  }

  /** @param {Provider} provider */
  async #signIn(provider) {
    try {
      await begin(provider);
    } catch (error) {
      this.#offer(provider, error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {Me} me */
  #draw(me) {
    const { sub, name, audience, can, sessions, runs, agents, owner, owners, expiresAt } = me;
    const until = expiresAt === undefined ? "" : new Date(expiresAt).toLocaleString();
    const row = (/** @type {string} */ label, /** @type {string | undefined} */ value) => (value ? html`<dt>${label}</dt><dd dir="auto">${value}</dd>` : nothing);
    render(html`
      <button type="button" class="button small" data-kind="quiet" id="account-button" popovertarget="account-menu"><span class="truncate" dir="auto">${name ?? sub}</span></button>
      <div class="popover" id="account-menu" popover role="dialog" aria-label="Account">
        <dl class="facts">
          ${row("Name", name)}${row("Subject", sub)}${row("May", listed(can))}${row("Audience", audience)}${row("Sessions", listed(sessions))}
          ${runs.length > 0 ? row("Runs", listed(runs)) : nothing}${row("Agents", listed(agents))}${row("Owner", owner)}${owners ? row("Owners", listed(owners)) : nothing}${row("Until", until)}
        </dl>
        <p class="row">${this.#settings(me).map(([name, open]) => html`<button type="button" class="button small" data-setting=${name} @click=${() => this.#openSetting(name, open)}>${name}…</button>`)}</p>
        ${this.#token.hasToken ? html`<button type="button" class="button small" id="sign-out" @click=${() => void this.#signOut()}>Sign out</button>` : html`<p class="hint">A proxy in front of the server signed you in.</p>`}
      </div>`, this.#menu);
  }

  /**
   * @param {string} name
   * @param {() => Promise<void>} open
   */
  #openSetting(name, open) {
    query("#account-menu", HTMLElement).hidePopover();
    return opened(name, async () => {
      await loadStyle("settings.css");
      await open();
    });
  }

  async #signOut() {
    // Another person may sign in here, whom the messages are not for.
    if (await hasWorker()) await opened("Notifications", async () => (await import("./push.js")).pushOf(this.#server).turnOff());
    const elsewhere = forget();
    this.#token.set("");
    localStorage.removeItem("proscenium.read");
    // Nothing that the token showed stays in the page.
    history.replaceState(null, "", location.pathname);
    if (elsewhere) location.assign(elsewhere);
    else location.reload();
  }
}
