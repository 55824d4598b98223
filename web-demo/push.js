/**
 * Web Push: this device shows when a run waits, also while the page is closed.
 *
 * The browser has the subscription, and the server a copy, which ends after 30 days without renewal. The page renews it
 * at each load, and answers its service worker, push-worker.js.
 */

import { notifications } from "./attention.js";
import { request } from "./client/http.js";
import { loadStyle } from "./styles.js";
import { parse } from "./route.js";
import { failureOf } from "./toasts.js";
import { html, nothing, render } from "./vendor/lit.js";

/** @typedef {import("./client/http.js").Server} Server */
/** @typedef {{ sessions: string[], agents: string[] }} Muted */
/** What a person chose for a device. @typedef {{ events?: string[], audience?: string, muted?: Muted }} Choice */
/** @typedef {{ id: string, host: string, audience: string, events: string[], muted: Muted, until: string }} Device A subscription as the server has it. */

/** Where the browser keeps that the person has answered the offer. */
const ANSWERED_KEY = "proscenium.push-offer";
const ADDRESS = "/v1/push";
const BLOCKED = "The browser blocks notifications of this page. Allow them in the settings of the site.";

/** The subscription of this device. */
export class Push {
  /** @param {Server} server */
  constructor(server) {
    this.#server = server;
    navigator.serviceWorker.addEventListener("message", (event) => void this.#answer(event));
  }

  #server;
  /** @type {Promise<void> | undefined} */
  #renewal;
  /** This device, as the server has it; `undefined` while it is off. @type {Device | undefined} */
  device;

  /** @param {Partial<RequestInit>} [init] */
  #request(init) {
    return request(this.#server, ADDRESS, { headers: { "content-type": "application/json" }, ...init });
  }

  /** What the server has. @returns {Promise<{ publicKey: string, subscriptions: Device[] }>} */
  async read() {
    return (await this.#request()).json();
  }

  /** @returns {Promise<PushSubscription | undefined>} */
  async #subscription() {
    const registration = await navigator.serviceWorker.getRegistration();
    return (await registration?.pushManager.getSubscription()) ?? undefined;
  }

  /**
   * @param {PushSubscription} subscription
   * @param {Choice} [choice] What is absent stays.
   */
  async #put(subscription, choice) {
    const response = await this.#request({ method: "PUT", body: JSON.stringify({ ...subscription.toJSON(), ...choice }) });
    this.#set(await response.json());
  }

  /** @param {Device | undefined} device */
  #set(device) {
    this.device = device;
    // The worker shows what waits; the page would show it once more.
    notifications.arePushed = device !== undefined;
  }

  /**
   * Tells the server that this device is still here, once in each page.
   * @param {boolean} [isAgain] Whether the token or the subscription is another one.
   * @returns {Promise<void>}
   */
  renew(isAgain = false) {
    if (isAgain) this.#renewal = undefined;
    this.#renewal ??= this.#renew().catch((error) => {
      this.#renewal = undefined;
      throw error;
    });
    return this.#renewal;
  }

  /** @param {Choice} [choice] */
  async #renew(choice) {
    const subscription = await this.#subscription();
    if (!subscription) return this.#set(undefined);
    const { publicKey } = await this.read();
    if (publicKey === keyOf(subscription)) return this.#put(subscription, choice);
    // The server has lost its store: no message of it would reach the old subscription.
    await subscription.unsubscribe();
    await this.#subscribe(publicKey);
  }

  /** @param {string} publicKey */
  async #subscribe(publicKey) {
    const registration = await navigator.serviceWorker.register("/push-worker.js");
    await navigator.serviceWorker.ready;
    const subscription = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: publicKey });
    try {
      await this.#put(subscription, { events: ["run.waiting"], audience: parse(location.hash).audience });
    } catch (error) {
      await subscription.unsubscribe();
      throw error;
    }
  }

  /** Asks the browser for the permission, and the server for the messages. */
  async turnOn() {
    if ((await notifications.ask()) !== "granted") throw new Error(BLOCKED);
    await this.#subscribe((await this.read()).publicKey);
    localStorage.setItem(ANSWERED_KEY, "yes");
  }

  async turnOff() {
    const subscription = await this.#subscription();
    if (subscription) {
      const body = JSON.stringify({ endpoint: subscription.endpoint });
      // Without the server, the browser alone ends it: the push service refuses the next message.
      const refused = await this.#request({ method: "DELETE", body }).then(() => undefined, (error) => error);
      await subscription.unsubscribe();
      if (refused) console.warn("The server still has the subscription:", refused);
    }
    this.#set(undefined);
  }

  /** @param {Muted} muted */
  async mute(muted) {
    const subscription = await this.#subscription();
    if (subscription) await this.#put(subscription, { muted });
  }

  /** @param {MessageEvent} event A question of the worker. */
  async #answer({ data, ports: [port] }) {
    if (data.push === "open") location.hash = data.address;
    if (data.push === "renew") {
      const { events, audience, muted } = this.device ?? {};
      await this.#renew({ events, audience, muted }).catch(warn);
    }
    port?.postMessage(location.hash);
  }
}

/** @param {PushSubscription} subscription @returns {string} Base64url, as the server writes it. */
function keyOf({ options: { applicationServerKey: key } }) {
  return key ? btoa(String.fromCharCode(...new Uint8Array(key))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "") : "";
}

/** @param {unknown} error */
const warn = (error) => console.warn("The push subscription was not renewed:", error);

/** @type {Push | undefined} */
let push;

/** @param {Server} server @returns {Push} The one of the page. */
export const pushOf = (server) => (push ??= new Push(server));

/** Renews the subscription of this device, if it has one, under the token that the server has accepted. @param {Server} server */
export const renewPush = (server) => void pushOf(server).renew(true).catch(warn);

/**
 * Offers, after a first decision, to tell of the next one. The answer is remembered. The browser can push.
 * @param {Server} server
 */
export async function offerPush(server) {
  if (Notification.permission === "denied" || localStorage.getItem(ANSWERED_KEY) !== null || document.getElementById("push-offer")) return;
  const device = pushOf(server);
  try {
    await Promise.all([device.renew(), device.read(), loadStyle("settings.css")]);
  } catch {
    // This server pushes nothing, or the token may not.
    return;
  }
  if (device.device) return;
  const offer = Object.assign(document.createElement("section"), { id: "push-offer", className: "push-offer" });
  offer.setAttribute("aria-label", "Notifications");
  let note = "";
  const answer = async (/** @type {boolean} */ isYes) => {
    localStorage.setItem(ANSWERED_KEY, isYes ? "yes" : "no");
    try {
      if (isYes) await device.turnOn();
      offer.remove();
    } catch (error) {
      note = failureOf(error);
      draw();
    }
  };
  const draw = () => render(html`
    <p class="grow">${note ? nothing : "Tell me on this device when a run waits"}<span role="alert" dir="auto">${note}</span></p>
    ${note ? nothing : html`<button type="button" class="button" data-kind="primary" @click=${() => void answer(true)}>Turn on</button>`}
    <button type="button" class="button" data-kind="quiet" @click=${() => void answer(false)}>${note ? "Close" : "No thanks"}</button>`, offer);
  draw();
  const place = document.querySelector(document.body.dataset.view === "inbox" ? "#view-inbox" : ".deck");
  place?.prepend(offer);
}
