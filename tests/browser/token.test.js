/**
 * The page of a server with authentication: a pasted token opens it, and stays in the tab only.
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
  dir = await mkdtemp(join(tmpdir(), "proscenium-token-"));
  key = join(dir, "key");
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"]);
  stage = await Stage.open("--auth-key", key);
  ({ url } = stage);
}, limit);

after(async () => {
  await stage?.close();
  if (dir) await rm(dir, { recursive: true, force: true });
});

/** Creates a token with the server's key. */
const token = (...rights) => execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", ...rights], { encoding: "utf8" }).trim();

test("a pasted token opens the page and appears in no address", limit, async () => {
  const publish = async (facts) => {
    const headers = { "content-type": "application/json", authorization: `Bearer ${token("--can", "publish")}` };
    const answer = await fetch(`${url}/v1/runs/a-run/facts`, { method: "POST", headers, body: JSON.stringify(facts) });
    assert.equal(answer.status, 200);
  };
  await publish([{ type: "run.started" }, { type: "text.delta", messageId: "m", payload: { text: "Hello " } }]);
  const page = await stage.blank();
  const requestedUrls = [];
  page.on("request", (request) => requestedUrls.push(request.url()));
  await page.goto(url);
  await page.locator("#token").waitFor({ state: "visible" });
  assert.equal(await page.locator("#sessions .session").count(), 0);

  const pageToken = token("--can", "read");
  await page.locator("#token input").fill(pageToken);
  await page.locator("#token button").click();
  await page.locator(".speech .body", { hasText: "Hello" }).waitFor();
  // Live updates arrive, too.
  await publish([{ type: "text.delta", messageId: "m", payload: { text: "world" } }]);
  await page.locator(".speech .body", { hasText: "Hello world" }).waitFor();
  assert.equal(await page.locator("#token input").inputValue(), "");

  // A reload of the tab keeps the token; another tab needs one.
  await page.reload();
  await page.locator(".speech .body", { hasText: "Hello world" }).waitFor();
  const secondPage = await stage.blank();
  await secondPage.goto(url);
  await secondPage.locator("#token").waitFor({ state: "visible" });
  assert.equal(await secondPage.locator("#sessions .session").count(), 0);

  assert.ok(requestedUrls.some((address) => address.includes("ticket=")), "the stream was opened with a ticket");
  for (const address of [...requestedUrls, page.url()]) assert.ok(!address.includes(pageToken), address);
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((name) => name !== "proscenium.since" && name !== "proscenium.read")), []);
  assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage))).includes(pageToken));
  assert.equal(await page.evaluate(() => document.cookie), "");
});

test("after login the focus leaves the field, and the page offers only what the token permits", limit, async () => {
  const publish = async (facts) => {
    const headers = { "content-type": "application/json", authorization: `Bearer ${token("--can", "publish")}` };
    const answer = await fetch(`${url}/v1/runs/asking/facts?sessionId=asking`, { method: "POST", headers, body: JSON.stringify(facts) });
    assert.equal(answer.status, 200);
  };
  await publish([{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { kind: "tool_approval", title: "Deploy?" } }]);
  // The address asks for more than the token permits.
  const page = await stage.look({ session: "asking", audience: "internal" });
  await page.locator("#token").waitFor({ state: "visible" });
  await page.locator("#token input").fill(token("--can", "read"));
  await page.locator("#token input").press("Enter");
  await page.locator('#sessions [data-session="asking"]').waitFor();
  await page.locator(".ask", { hasText: "Deploy?" }).waitFor();
  await page.waitForURL(/audience=user/);
  // The next keys are for the page: they do not become a token.
  await page.keyboard.type("y");
  await page.keyboard.press("Enter");
  assert.ok(await page.locator("#token").isHidden());
  for (const offered of ["#audience", "#compare", "ps-composer", ".ask .yes .button"]) assert.ok(await page.locator(offered).first().isHidden(), offered);
  await page.locator("#account-button").click();
  await page.locator("#sign-out").click();
  await page.locator("#token").waitFor({ state: "visible" });
  assert.equal(await page.locator("#sessions .session").count(), 0);
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);

  // Another token permits more, and the page offers it.
  await page.locator("#token input").fill(token("--can", "read", "--can", "control", "--audience", "internal"));
  await page.locator("#token input").press("Enter");
  await page.locator('#sessions [data-session="asking"]').waitFor();
  for (const offered of ["#audience", "#compare", "ps-composer", ".ask .yes .button"]) await page.locator(offered).first().waitFor({ state: "visible" });
});
