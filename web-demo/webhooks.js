/**
 * The dialog with the webhooks of the server: where they go, what became of each message, and sending one again.
 */

import { pathSegment, request } from "./client/http.js";
import { Sheet } from "./sheet.js";
import { age } from "./ui/format.js";
import { html, nothing, repeat } from "./vendor/lit.js";

/** @typedef {import("./client/http.js").Server} Server */

/**
 * @typedef {{ id: string, url: string, events: string[], audience: string, configured: boolean, disabledAt?: string }} Webhook An entry of `GET /v1/webhooks`.
 * @typedef {{ at: string, status?: number, error?: string }} Outcome
 * @typedef {{ id: string, type: string, status: "open" | "delivered" | "failed" | "dropped", attempts: number, createdAt: string, nextAttemptAt?: string, last?: Outcome, sessionId?: string, runId?: string, actionId?: string }} Delivery
 */

const DELIVERIES_MAX = 50;

/** The states of a delivery in words, with their tones. @type {Record<Delivery["status"], [string, string]>} */
const STATES = { open: ["Waiting", "wait"], delivered: ["Delivered", "done"], failed: ["Failed", "fail"], dropped: ["Dropped", ""] };

/** @param {Outcome | undefined} last */
const outcomeText = (last) => (last ? [last.status, last.error?.replaceAll("_", " ")].filter(Boolean).join(" ") : "");

/** @param {Server} server */
export function showWebhooks(server) {
  /** @type {Webhook[] | undefined} */
  let webhooks;
  /** The webhook whose deliveries are open. */
  let opened = "";
  /** @type {Delivery[]} */
  let deliveries = [];
  const sheet = new Sheet("webhooks", "Webhooks", () => content());

  const json = async (/** @type {string} */ path, /** @type {RequestInit} */ init = {}) => (await request(server, `/v1/webhooks${path}`, init)).json();
  const post = (/** @type {string} */ path, body = {}) => json(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

  const load = async () => {
    ({ webhooks } = await json(""));
    deliveries = opened === "" ? [] : (await json(`/${pathSegment(opened)}/deliveries?limit=${DELIVERIES_MAX}`)).deliveries;
    return "";
  };

  /** @param {Webhook} webhook */
  const test = ({ id }) => void sheet.attempt(async () => {
    const { delivered, last } = await post(`/${pathSegment(id)}/test`);
    await load();
    return delivered ? `${id} took the test message.` : `${id} did not take the test message: ${outcomeText(last)}.`;
  });

  /** @param {Delivery} delivery */
  const sendAgain = ({ id }) => void sheet.attempt(async () => {
    await post(`/${pathSegment(opened)}/redeliver`, { deliveryId: id });
    await load();
    return "The message is sent again.";
  });

  /** @param {Webhook} webhook */
  const toggle = ({ id }) => void sheet.attempt(() => {
    opened = opened === id ? "" : id;
    return load();
  });

  const content = () => (webhooks === undefined ? nothing : html`
    ${webhooks.length === 0 ? html`<p>No webhooks yet. The configuration file or <code>POST /v1/webhooks</code> makes them.</p>` : nothing}
    <ul>${repeat(webhooks, ({ id }) => id, (webhook) => html`<li class="webhook" data-id=${webhook.id}>
      <div class="grow"><b dir="auto">${webhook.id}</b>${webhook.disabledAt ? html` <span class="tag" data-tone="fail" title="Its receiver answered 410. A test that succeeds enables it again.">Disabled</span>` : nothing}
        <p class="hint truncate" dir="auto">${webhook.url}</p><p class="hint">${webhook.events.length > 0 ? webhook.events.join(", ") : "all messages"} · ${webhook.audience}</p></div>
      <button type="button" class="button small" ?disabled=${sheet.isBusy} @click=${() => test(webhook)}>Send a test</button>
      <button type="button" class="button small" aria-expanded=${opened === webhook.id} ?disabled=${sheet.isBusy} @click=${() => toggle(webhook)}>Deliveries</button>
      ${opened === webhook.id ? deliveryList() : nothing}</li>`)}</ul>`);

  const deliveryList = () => (deliveries.length === 0 ? html`<p class="hint deliveries">No deliveries yet.</p>` : html`
    <ul class="deliveries" aria-label="Deliveries">${repeat(deliveries, ({ id }) => id, (delivery) => {
      const { type, status, attempts, createdAt, last, sessionId, runId } = delivery;
      const [word, tone] = STATES[status] ?? [status, ""];
      return html`<li data-status=${status}><span class="tag" data-tone=${tone || nothing}>${word}</span>
        <span class="grow truncate"><b>${type}</b> <span class="hint" dir="auto">${runId ?? sessionId ?? ""}</span></span>
        <span class="hint">${[attempts > 1 ? `${attempts} attempts` : "", outcomeText(last)].filter(Boolean).join(" · ")}</span>
        ${age(createdAt, Date.now())}
        ${status === "open" ? nothing : html`<button type="button" class="button small" ?disabled=${sheet.isBusy} @click=${() => sendAgain(delivery)}>Send again</button>`}</li>`;
    })}</ul>`);

  sheet.open();
  void sheet.attempt(load);
}
