/**
 * Web Push in the page: the offer after a first decision, the settings, and the real service worker.
 *
 * No push service can be reached. So a stub in the page subscribes, a receiver of the test takes what the server sends
 * and decrypts it, and the browser's developer tools deliver it to the worker, as a push service would.
 */

import assert from "node:assert/strict";
import { createDecipheriv, createECDH, hkdfSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { after, afterEach, before, test } from "node:test";
import { DEADLINE } from "../deadline.mjs";
import { CHROMIUM, Stage, limit, text, until } from "./stage.js";

/** Looks for a notification after which its message is delivered again: the worker asks pages for a second at most. */
const LOOKS_MAX = 60;
const OFFER = "Tell me on this device when a run waits";

let stage, page, receiver, runs = 0;
/** What the page has sent to `/v1/push`. */
let sent = [];
/** What the server has sent, decrypted, by the path of the device. @type {Map<string, any[]>} */
const pushed = new Map();
/** The keys of the browser. */
const device = createECDH("prime256v1");
const auth = randomBytes(16);

// The build without windows has no notifications.
Stage.chromium = CHROMIUM;

before(async () => {
  device.generateKeys();
  receiver = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    pushed.set(request.url, [...(pushed.get(request.url) ?? []), decrypt(Buffer.concat(parts))]);
    response.writeHead(201).end();
  });
  await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${receiver.address().port}`;
  stage = await Stage.open("--push-host", host);
  await stage.browser.addInitScript(stubSubscription, { base: `http://${host}/`, keys: { p256dh: device.getPublicKey("base64url"), auth: auth.toString("base64url") } });
  stage.browser.on("request", (request) => {
    if (new URL(request.url()).pathname === "/v1/push") sent.push({ method: request.method(), body: request.postDataJSON() });
  });
}, limit);
after(async () => {
  await stage?.close();
  receiver?.close();
});
afterEach(async () => {
  await page?.close();
  await stage.browser.clearPermissions();
});

/** Decrypts a message (RFC 8291, RFC 8188). */
function decrypt(body) {
  const [salt, sender] = [body.subarray(0, 16), body.subarray(21, 21 + body[20])];
  const info = Buffer.concat([Buffer.from("WebPush: info\0"), device.getPublicKey(), sender]);
  const secret = hkdfSync("sha256", device.computeSecret(sender), auth, info, 32);
  const derived = (name, bytes) => Buffer.from(hkdfSync("sha256", Buffer.from(secret), salt, `Content-Encoding: ${name}\0`, bytes));
  const cipher = createDecipheriv("aes-128-gcm", derived("aes128gcm", 16), derived("nonce", 12));
  const sealed = body.subarray(21 + body[20]);
  cipher.setAuthTag(sealed.subarray(-16));
  const padded = Buffer.concat([cipher.update(sealed.subarray(0, -16)), cipher.final()]);
  return JSON.parse(padded.subarray(0, padded.lastIndexOf(2)).toString());
}

/** Replaces what needs a push service. The subscription outlives a reload, as the browser's would. */
function stubSubscription({ base, keys }) {
  if (!("PushManager" in globalThis)) return;
  const KEY = "test.subscription";
  const known = () => {
    const { endpoint, key } = JSON.parse(localStorage.getItem(KEY));
    const bytes = Uint8Array.from(atob(key.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
    return { endpoint, options: { applicationServerKey: bytes.buffer }, toJSON: () => ({ endpoint, expirationTime: null, keys }), unsubscribe: async () => (localStorage.removeItem(KEY), true) };
  };
  PushManager.prototype.subscribe = async ({ userVisibleOnly, applicationServerKey }) => {
    if (!userVisibleOnly) throw new TypeError("a message must be visible");
    localStorage.setItem(KEY, JSON.stringify({ endpoint: base + crypto.randomUUID(), key: applicationServerKey }));
    return known();
  };
  PushManager.prototype.getSubscription = async () => (localStorage.getItem(KEY) === null ? null : known());
}

const allow = () => stage.browser.grantPermissions(["notifications"], { origin: stage.front.url });

const isReady = () => document.getElementById("stage").dataset.hydration === "whole" && document.getElementById("connection").dataset.kind === "live";

/** Publishes a run that asks, and opens its session in a browser that knows nothing. */
async function openAsking({ isAllowed = true } = {}) {
  if (isAllowed) await allow();
  const id = `push-${++runs}`;
  const asks = { type: "action.required", actionId: "a", agentId: "coder", payload: { kind: "tool_approval", title: "Deploy?", risk: "low" } };
  await stage.publish(id, [{ type: "run.started" }, asks], { sessionId: id, agentId: "coder" });
  page = await stage.blank();
  await page.goto(`${stage.front.url}/`);
  await page.evaluate(async () => {
    localStorage.clear();
    for (const registration of await navigator.serviceWorker.getRegistrations()) await registration.unregister();
  });
  sent = [];
  await stage.look({ session: id }, page);
  await page.reload();
  await page.locator("ps-conversation .ask").waitFor();
  await until(page, isReady);
  return id;
}

const approve = () => page.locator("ps-conversation .ask .yes .button").first().click();

/** Opens the session and turns push on from the offer. */
async function openSubscribed() {
  const id = await openAsking();
  await approve();
  await page.locator("#push-offer").getByRole("button", { name: "Turn on" }).click();
  await page.locator("#push-offer").waitFor({ state: "detached" });
  return id;
}

async function openSettings() {
  // The palette has what the account's menu has, once the page knows the rights of its token.
  await page.locator('[data-setting="Notifications"]').waitFor({ state: "attached" });
  await page.keyboard.press("Control+k");
  await page.locator("dialog.palette input").fill("Notifications");
  await page.keyboard.press("Enter");
  await page.locator("#push-settings").waitFor();
}

/** The service worker's registration, from a page that stays. */
async function worker() {
  const other = await stage.browser.newPage();
  const devtools = await stage.browser.newCDPSession(other);
  const registered = new Promise((resolve) => devtools.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
    const own = registrations.find(({ scopeURL, isDeleted }) => scopeURL === `${stage.front.url}/` && !isDeleted);
    if (own) resolve(own.registrationId);
  }));
  await devtools.send("ServiceWorker.enable");
  const registrationId = await registered;
  const inWorker = async (run, argument) => {
    const isOurs = (one) => one.url() === `${stage.front.url}/push-worker.js`;
    const one = stage.browser.serviceWorkers().findLast(isOurs) ?? (await stage.browser.waitForEvent("serviceworker", isOurs));
    return one.evaluate(run, argument);
  };
  const push = (message) => devtools.send("ServiceWorker.deliverPushMessage", { origin: stage.front.url, registrationId, data: typeof message === "string" ? message : JSON.stringify(message) });
  const shown = () => inWorker(async () => (await self.registration.getNotifications()).map(({ title, body, tag, data }) => ({ title, body, tag, data })));
  return {
    inWorker, push, shown,
    close: () => other.close(),
    /** Delivers a message until a notification has the wanted title: the browser drops what comes while the worker starts. */
    async deliver(message, wanted = message.notification.title) {
      const isWanted = (all) => all.some(({ title }) => title === wanted);
      let looks = 0;
      return eventually(`a notification "${wanted}"`, async () => {
        if (looks++ % LOOKS_MAX === 0) await push(message);
        return shown();
      }, isWanted);
    },
    clear: () => inWorker(async () => (await self.registration.getNotifications()).forEach((one) => one.close())),
  };
}

/** A message as the server makes it, for a run whose messages a test does not wait for. */
const waiting = (id, title = "Deploy?") => ({ web_push: 8030, type: "run.waiting", notification: { title, body: "coder waits for you", navigate: `/#session=${id}&run=${id}&action=a&audience=user`, tag: title } });

/** Waits until a promise of a value fulfils a condition. A wait that fails names what it waited for, and what it saw last. */
async function eventually(what, read, holds) {
  const ends = Date.now() + DEADLINE;
  for (;;) {
    const value = await read();
    if (holds(value)) return value;
    assert.ok(Date.now() < ends, `waited for ${what}, saw ${JSON.stringify(value)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test("the page offers notifications after the first decision, never at load, and remembers a no", limit, async () => {
  await openAsking();
  assert.equal(await page.locator("#push-offer").count(), 0);
  assert.deepEqual(sent, [], "a page without a subscription asks nothing");
  await approve();
  await page.locator("#push-offer", { hasText: OFFER }).waitFor();
  await page.locator("#push-offer").getByRole("button", { name: "No thanks" }).click();
  await page.locator("#push-offer").waitFor({ state: "detached" });
  await stage.publish(`push-${runs}`, [{ type: "action.required", actionId: "b", payload: { kind: "tool_approval", title: "Again?" } }], { sessionId: `push-${runs}` });
  const again = page.locator("ps-conversation .ask", { hasText: "Again?" });
  await again.locator(".yes .button").first().click();
  await again.locator("[role=status]", { hasText: "Answered by you." }).waitFor();
  assert.equal(await page.locator("#push-offer").count(), 0);
  assert.ok(!sent.some(({ method }) => method === "PUT"));
  assert.deepEqual(page.problems, []);
});

test("nothing is offered where the browser or the server cannot push", limit, async () => {
  await openAsking();
  await page.route("**/v1/push", (route) => route.fulfill({ status: 404, json: { status: 404, code: "not_found", detail: "No such address." } }));
  const asked = page.waitForResponse("**/v1/push");
  await approve();
  await (await asked).finished();
  await page.locator("ps-conversation .ask [role=status]", { hasText: "Answered by you." }).waitFor();
  assert.equal(await page.locator("#push-offer").count(), 0);
  await page.close();

  await stage.browser.grantPermissions([]);
  await openAsking({ isAllowed: false });
  await page.addInitScript(() => delete globalThis.PushManager);
  await page.reload();
  await page.locator("ps-conversation .ask").waitFor();
  await until(page, isReady);
  await approve();
  await page.locator("ps-conversation .ask [role=status]", { hasText: "Answered by you." }).waitFor();
  assert.equal(await page.locator("#push-offer").count(), 0);
  assert.deepEqual(sent, []);
});

test("turning on subscribes with the server's key, and each load of the page renews", limit, async () => {
  await openSubscribed();
  const { endpoint, key } = JSON.parse(await page.evaluate(() => localStorage.getItem("test.subscription")));
  assert.equal(key, (await stage.read("/v1/push")).publicKey);
  const put = sent.find(({ method }) => method === "PUT").body;
  assert.deepEqual([put.endpoint, put.events, put.audience], [endpoint, ["run.waiting"], "user"]);
  const renewed = page.waitForResponse((response) => response.url().endsWith("/v1/push") && response.request().method() === "PUT");
  await page.reload();
  const response = await renewed;
  assert.equal(response.status(), 200);
  assert.deepEqual(response.request().postDataJSON(), { endpoint, expirationTime: null, keys: put.keys }, "what the person chose stays");
  assert.deepEqual(page.problems, []);
});

test("a push shows a notification while the page is closed, and none while a visible page has the session open", limit, async () => {
  const id = await openSubscribed();
  const { endpoint } = JSON.parse(await page.evaluate(() => localStorage.getItem("test.subscription")));
  const { push, deliver, clear, close, inWorker } = await worker();
  await page.bringToFront();
  await stage.publish(id, [{ type: "action.required", actionId: "b", payload: { kind: "tool_approval", title: "Delete it?" } }], { sessionId: id });
  const message = await eventually("a message from the server", () => pushed.get(new URL(endpoint).pathname)?.at(-1), (last) => last !== undefined);
  await deliver(waiting("elsewhere", "First?"));
  await push(message);
  const all = await deliver(waiting("elsewhere", "Other?"));
  assert.deepEqual(all.map(({ title }) => title).sort(), ["First?", "Other?"], "the page has the session of the message between them open");
  await clear();
  await page.close();
  await eventually("no open page", () => inWorker(async () => (await self.clients.matchAll({ includeUncontrolled: true })).filter(({ url }) => url.startsWith(self.registration.scope)).length), (open) => open === 0);
  const [{ title, body, data }] = await deliver(message);
  assert.deepEqual([title, body], ["Delete it?", `${message.data.agentId} waits for you`]);
  const target = new URLSearchParams(data.target.slice(1));
  assert.deepEqual(["session", "run", "action"].map((name) => target.get(name)), [id, id, "b"]);
  await clear();
  await deliver("no JSON", "A run waits for you");
  await clear();
  await close();
});

/** Clicks the notification with a title, as the browser would: a script may not focus or open a window by itself. */
function clickInWorker(title) {
  return (async () => {
    const [notification] = (await self.registration.getNotifications()).filter((one) => one.title === title);
    const opened = [];
    let focused = 0;
    Object.defineProperty(self.clients, "openWindow", { configurable: true, value: async (url) => void opened.push(String(url)) });
    WindowClient.prototype.focus = async () => void (focused += 1);
    const event = new NotificationEvent("notificationclick", { notification });
    const work = [];
    event.waitUntil = (promise) => work.push(promise);
    self.dispatchEvent(event);
    await Promise.allSettled(work);
    return { opened, focused, left: (await self.registration.getNotifications()).filter((one) => one.title === title).length };
  })();
}

test("a click on a notification leads the open page to the card, or opens the page at it", limit, async () => {
  const id = await openSubscribed();
  const other = `other-${id}`;
  await stage.publish(other, [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { kind: "tool_approval", title: "Elsewhere?" } }], { sessionId: other });
  const { deliver, close, inWorker } = await worker();
  await page.bringToFront();
  await deliver(waiting(other, "Elsewhere?"));
  assert.deepEqual(await inWorker(clickInWorker, "Elsewhere?"), { opened: [], focused: 1, left: 0 });
  const card = page.locator("ps-conversation .ask", { hasText: "Elsewhere?" });
  await card.waitFor();
  await until(page, () => document.activeElement?.matches("ps-conversation .ask"));
  assert.deepEqual(page.problems, []);
  const { url: front } = stage.front;
  await page.close();

  await deliver(waiting(other, "Later?"));
  const address = `${front}/#session=${other}&run=${other}&action=a&audience=user`;
  assert.deepEqual(await inWorker(clickInWorker, "Later?"), { opened: [address], focused: 0, left: 0 });
  page = await stage.blank();
  await page.goto(address);
  await until(page, () => document.activeElement?.matches("ps-conversation .ask"));
  await close();
});

test("a session and an agent can be muted in the settings, and push be turned off", limit, async () => {
  const id = await openAsking();
  await openSettings();
  const settings = page.locator("#push-settings");
  await settings.getByRole("button", { name: "Turn on" }).click();
  await settings.getByText("On for this device").waitFor();
  const { endpoint } = JSON.parse(await page.evaluate(() => localStorage.getItem("test.subscription")));
  const before = (await stage.read("/v1/push")).subscriptions.length;
  const row = (label) => settings.locator("li", { hasText: label });
  const muted = () => sent.findLast(({ method }) => method === "PUT").body.muted;
  await row("This session").getByRole("button", { name: "Mute", exact: true }).click();
  await row("This session").getByRole("button", { name: "Unmute" }).waitFor();
  assert.deepEqual(muted(), { sessions: [id], agents: [] });
  await row("Agent coder").getByRole("button", { name: "Mute", exact: true }).click();
  await row("Agent coder").getByRole("button", { name: "Unmute" }).waitFor();
  assert.deepEqual(muted(), { sessions: [id], agents: ["coder"] });
  await row("This session").getByRole("button", { name: "Unmute" }).click();
  await row("This session").getByRole("button", { name: "Mute", exact: true }).waitFor();
  assert.deepEqual(muted(), { sessions: [], agents: ["coder"] });
  const { inWorker, close } = await worker();
  const [renewed] = await Promise.all([
    page.waitForRequest((request) => request.url().endsWith("/v1/push") && request.method() === "PUT"),
    inWorker(() => void self.dispatchEvent(Object.assign(new Event("pushsubscriptionchange"), { waitUntil: () => {} }))),
  ]);
  assert.deepEqual([renewed.postDataJSON().audience, renewed.postDataJSON().muted], ["user", { sessions: [], agents: ["coder"] }], "the choice goes along when the browser replaces the subscription");
  await close();
  await settings.getByRole("button", { name: "Turn off" }).click();
  await settings.getByRole("button", { name: "Turn on" }).waitFor();
  assert.deepEqual(sent.findLast(({ method }) => method === "DELETE").body, { endpoint });
  assert.equal((await stage.read("/v1/push")).subscriptions.length, before - 1);
  assert.deepEqual(page.problems, []);
});

test("the settings say what to do where the person has blocked notifications", limit, async () => {
  await openAsking();
  await page.evaluate(() => (Notification.requestPermission = async () => "denied"));
  await openSettings();
  await page.locator("#push-settings").getByRole("button", { name: "Turn on" }).click();
  assert.match(await text(page.locator("#push-settings .note[data-state=failed]")), /blocks notifications/);
  assert.ok(!sent.some(({ method }) => method === "PUT"));
});
