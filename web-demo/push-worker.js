/**
 * The service worker of Web Push: it shows what the server pushes, and opens what a person clicks.
 *
 * A plain script, served at `/push-worker.js`, so that it covers the whole page. It has no token and requests nothing:
 * the page alone talks to the server. It asks the open pages by a message with a port, because the address of a client
 * that the browser reports may be the one with which the page began.
 */

/** How long a page may take to answer, in milliseconds. A page that does not is closed, or does not listen. */
const ANSWER_MS = 1000;

/** What the server pushes, in the declarative form. @typedef {{ title?: string, body?: string, navigate?: string, tag?: string }} Pushed */

const worker = /** @type {any} */ (self);

/** The open pages, those in the foreground first. @returns {Promise<any[]>} */
const openPages = () => worker.clients.matchAll({ type: "window", includeUncontrolled: true });

/**
 * Asks a page, and waits for its answer.
 * @param {any} page
 * @param {{ push: "address" | "open" | "renew", address?: string }} question
 * @returns {Promise<any>} `undefined` without an answer.
 */
function ask(page, question) {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    const timer = setTimeout(() => resolve(undefined), ANSWER_MS);
    port1.onmessage = ({ data }) => {
      clearTimeout(timer);
      resolve(data);
    };
    page.postMessage(question, [port2]);
  });
}

/**
 * Whether a page at this address shows what a message leads to.
 * @param {string} address The fragment of the page.
 * @param {string} target The fragment of the message: `#session=…&run=…&audience=…&action=…`.
 */
function shows(address, target) {
  const [open, wanted] = [address, target].map((fragment) => new URLSearchParams(fragment.replace(/^#/, "")));
  const name = open.has("session") ? "session" : "run";
  return open.has(name) && open.get(name) === wanted.get(name);
}

/** The fragment of an address: the server may know this page by another origin. @param {string} address */
const fragmentOf = (address) => new URL(address, worker.registration.scope).hash;

/** @param {any[]} open @returns {Promise<{ page: any, address: string }[]>} The pages that answer, and where they are. */
async function located(open) {
  const addresses = await Promise.all(open.map((page) => ask(page, { push: "address" })));
  return open.map((page, at) => ({ page, address: addresses[at] })).filter(({ address }) => address !== undefined);
}

/** @param {string} target @returns {Promise<boolean>} Whether a person looks at it. */
async function isSeen(target) {
  const visible = (await openPages()).filter(({ visibilityState }) => visibilityState === "visible");
  return (await located(visible)).some(({ address }) => shows(address, target));
}

/** @param {{ json: () => any } | null} message */
async function showPushed(message) {
  const { title = "A run waits for you", body, tag, navigate = "/" } = readPushed(message);
  const target = fragmentOf(navigate);
  if (await isSeen(target)) return;
  // A reminder of the same action sounds again.
  await worker.registration.showNotification(title, { body, data: { target }, ...(tag && { tag, renotify: true }) });
}

/** @param {{ json: () => any } | null} message @returns {Pushed} Empty for a message that this worker cannot read. */
function readPushed(message) {
  try {
    return message?.json().notification ?? {};
  } catch {
    return {};
  }
}

/**
 * Opens what a notification leads to: in the page that shows it, else in any open one, else in a new one.
 * @param {string} target
 */
async function openTarget(target) {
  const found = await located(await openPages());
  const { page } = found.find(({ address }) => shows(address, target)) ?? found[0] ?? {};
  if (!page) return worker.clients.openWindow(new URL(target || "/", worker.registration.scope));
  await ask(page, { push: "open", address: target });
  return page.focus();
}

worker.addEventListener("push", (/** @type {any} */ event) => event.waitUntil(showPushed(event.data)));

worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  event.waitUntil(openTarget(event.notification.data.target));
});

/**
 * Replaces a subscription that the browser has ended. A page tells the server, now or when it is next opened.
 * @param {{ oldSubscription?: any, newSubscription?: any }} change
 */
async function resubscribe({ oldSubscription, newSubscription }) {
  if (!newSubscription && oldSubscription) await worker.registration.pushManager.subscribe(oldSubscription.options);
  const [page] = await located(await openPages());
  if (page) await ask(page.page, { push: "renew" });
}

worker.addEventListener("pushsubscriptionchange", (/** @type {any} */ event) => event.waitUntil(resubscribe(event)));
