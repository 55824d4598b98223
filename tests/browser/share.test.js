/**
 * Share links in the page: a person makes one in the dialog, and another one opens it without a token.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { BINARY, Stage, limit } from "./stage.js";

let stage, url, dir, key;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "proscenium-share-"));
  key = join(dir, "key");
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"]);
  stage = await Stage.open("--auth-key", key);
  ({ url } = stage);
}, limit);

after(async () => {
  await stage?.close();
  if (dir) await rm(dir, { recursive: true, force: true });
});

const token = (...rights) => execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", ...rights], { encoding: "utf8" }).trim();

async function publish(run, facts, session) {
  const headers = { "content-type": "application/json", authorization: `Bearer ${token("--can", "publish")}` };
  const answer = await fetch(`${url}/v1/runs/${run}/facts?sessionId=${session}`, { method: "POST", headers, body: JSON.stringify(facts) });
  assert.equal(answer.status, 200);
}

const says = (text) => ({ type: "text.delta", messageId: "m", payload: { text } });
const asks = (action, title) => ({ type: "action.required", actionId: action, payload: { kind: "tool_approval", title, risk: "low" } });

/** Opens the page of a person who may share, on a session or a run. */
async function sharer(target) {
  const page = await stage.look(target);
  await page.locator("#token").waitFor({ state: "visible" });
  await page.locator("#token input").fill(token("--can", "read,control,share"));
  await page.locator("#token input").press("Enter");
  await page.locator("#share").waitFor({ state: "visible" });
  return page;
}

/** Makes a link in the dialog; returns its address. */
async function share(page, ...boxes) {
  await page.locator("#share").click();
  for (const name of boxes) await page.locator(`#share-dialog [name="${name}"]`).check();
  await page.locator('#share-dialog [type="submit"]').click();
  await page.locator("#share-dialog li").waitFor();
  return page.locator(".share-url input").inputValue();
}

/** Opens a link in a page of its own; returns that, and the addresses that it requests. */
async function open(address) {
  const page = await stage.blank();
  const requested = [];
  page.on("request", (request) => requested.push(request.url()));
  await page.goto(address);
  return { page, requested };
}

test("a link from the dialog opens the session read-only, keeps its secret out of addresses, and ends when it is revoked", limit, async () => {
  await publish("one", [{ type: "run.started" }, says("Hello ")], "shared");
  await publish("other", [{ type: "run.started" }], "secret-session");
  const maker = await sharer({ session: "shared" });
  const address = await share(maker);
  const [, secret] = address.split("#link=");
  assert.equal(secret.length, 43);

  const { page, requested } = await open(address);
  await page.locator(".speech .body", { hasText: "Hello" }).waitFor();
  await publish("one", [says("world")], "shared");
  await page.locator(".speech .body", { hasText: "Hello world" }).waitFor();
  for (const place of [...requested, page.url()]) assert.ok(!place.includes(secret), place);
  // The maker's page, which shares the storage, has noted when it first listed sessions.
  assert.deepEqual(await page.evaluate(() => [sessionStorage.length, Object.keys(localStorage), document.cookie]), [0, ["proscenium.since"], ""]);
  for (const hidden of ["ps-composer", "#rail", "#share", "#token"]) assert.ok(await page.locator(hidden).first().isHidden(), hidden);
  assert.ok(!(await page.content()).includes("secret-session"));

  await maker.locator("#share-dialog li button").click();
  await maker.locator("#share-dialog .note", { hasText: "revoked" }).waitFor();
  assert.equal(await maker.locator("#share-dialog li").count(), 0);
  const { page: late } = await open(address);
  await late.locator(".toast", { hasText: "This share link has ended" }).waitFor();
  assert.ok(!late.url().includes(secret));
});

test("a link that a person puts into the address of an open page opens there", limit, async () => {
  await publish("put", [{ type: "run.started" }, says("Put here")], "put");
  const maker = await sharer({ session: "put" });
  const address = await share(maker);
  const { page } = await open(stage.url);
  await page.locator("#sessions button").first().waitFor();
  await page.evaluate((link) => (location.href = link), address);
  await page.locator(".speech .body", { hasText: "Put here" }).waitFor();
  assert.ok(await page.locator("#rail").isHidden());
  // A browser opens six connections to a server, which the pages of a test share.
  await Promise.all([page, maker].map((one) => one.close()));
});

test("a link to a moment shows nothing that came after it", limit, async () => {
  await publish("moment", [{ type: "run.started" }, says("early")], "moments");
  const address = await share(await sharer({ run: "moment" }), "moment");
  await publish("moment", [says(" and late")], "moments");
  const { page } = await open(address);
  await page.locator(".speech .body", { hasText: "early" }).waitFor();
  await page.locator('#stage[data-hydration="whole"]').waitFor();
  assert.ok(!(await page.locator("body").innerText()).includes("late"));
});

test("a link that may decide decides one action", limit, async () => {
  await publish("asking", [{ type: "run.started" }, asks("first", "First?"), asks("second", "Second?")], "questions");
  const address = await share(await sharer({ session: "questions" }), "decide");
  const { page } = await open(address);
  const card = (title) => page.locator(".ask", { hasText: title });
  await card("First?").waitFor();
  assert.ok(await page.locator("ps-composer").isHidden());
  const decided = (status) => page.waitForResponse((response) => new URL(response.url()).pathname.endsWith("/controls") && response.request().method() === "POST" && response.status() === status);
  await Promise.all([decided(202), card("First?").locator(".yes .button").first().click()]);
  await Promise.all([decided(409), card("Second?").locator(".yes .button").first().click()]);
  const headers = { authorization: `Bearer ${token("--can", "read", "--audience", "internal")}` };
  const { controls } = await (await fetch(`${url}/v1/runs/asking/controls?audience=internal`, { headers })).json();
  assert.deepEqual(controls.map(({ actionId, decidedBy }) => [actionId, decidedBy.via]), [["first", "link"]]);
});

test("an open link gets another token before the last one ends, and says when the link has ended", limit, async () => {
  await publish("long", [{ type: "run.started" }, says("Hello")], "lasting");
  const maker = await sharer({ session: "lasting" });
  const address = await share(maker);
  const page = await stage.blank();
  await page.clock.install();
  const isExchange = (one) => new URL(one.url()).pathname === "/v1/links/exchange";
  const [first] = await Promise.all([page.waitForResponse(isExchange), page.goto(address)]);
  await page.locator(".speech .body", { hasText: "Hello" }).waitFor();
  const [second] = await Promise.all([page.waitForResponse(isExchange), page.clock.fastForward("14:01")]);
  const [before, after] = [await first.json(), await second.json()];
  assert.ok(before.token && after.token && Date.parse(after.expiresAt) >= Date.parse(before.expiresAt));
  // The page may ask by itself before its clock is moved again: its time runs on.
  const refused = page.waitForResponse((one) => isExchange(one) && !one.ok());
  await maker.locator("#share-dialog li button").click();
  await maker.locator("#share-dialog .note", { hasText: "revoked" }).waitFor();
  await Promise.all([refused, page.clock.fastForward("14:01")]);
  await page.locator(".toast", { hasText: "This share link has ended" }).waitFor();
});
