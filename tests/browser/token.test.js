/**
 * The page of a server that asks who is there: what somebody pastes opens it, and stands nowhere but in the tab.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { BINARY, DEADLINE, Stage } from "./stage.js";

let stage, url, dir, key;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "proscenium-token-"));
  key = join(dir, "key");
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"]);
  stage = await Stage.open("--auth-key", key);
  ({ url } = stage);
}, { timeout: DEADLINE });

after(async () => {
  await stage?.close();
  if (dir) await rm(dir, { recursive: true, force: true });
});

/** A token by the server's key. */
const token = (...rights) => execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", ...rights], { encoding: "utf8" }).trim();

test("a token that is pasted opens the page, and is in no address", { timeout: DEADLINE }, async () => {
  const publish = async (facts) => {
    const headers = { "content-type": "application/json", authorization: `Bearer ${token("--can", "publish")}` };
    const answer = await fetch(`${url}/v1/runs/a-run/facts`, { method: "POST", headers, body: JSON.stringify(facts) });
    assert.equal(answer.status, 200);
  };
  await publish([{ type: "run.started" }, { type: "text.delta", messageId: "m", payload: { text: "Hello " } }]);
  const page = await stage.blank();
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.goto(url);
  await page.locator("#token").waitFor({ state: "visible" });
  assert.equal(await page.locator("#sessions button").count(), 0);

  const mine = token("--can", "read");
  await page.locator("#token input").fill(mine);
  await page.locator("#token button").click();
  await page.locator(".speech .body", { hasText: "Hello" }).waitFor();
  // Live, not only what was there.
  await publish([{ type: "text.delta", messageId: "m", payload: { text: "world" } }]);
  await page.locator(".speech .body", { hasText: "Hello world" }).waitFor();
  assert.equal(await page.locator("#token input").inputValue(), "");

  // Another look at it in the same tab needs no more words; another tab does.
  await page.reload();
  await page.locator(".speech .body", { hasText: "Hello world" }).waitFor();
  const other = await stage.blank();
  await other.goto(url);
  await other.locator("#token").waitFor({ state: "visible" });
  assert.equal(await other.locator("#sessions button").count(), 0);

  assert.ok(asked.some((address) => address.includes("ticket=")), "the stream was opened with a ticket");
  for (const address of [...asked, page.url()]) assert.ok(!address.includes(mine), address);
  assert.equal(await page.evaluate(() => localStorage.length), 0);
  assert.equal(await page.evaluate(() => document.cookie), "");
});
