/**
 * The page of a server that asks who is there: what somebody pastes opens it, and stands nowhere but in the tab.
 */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const { chromium } = createRequire(new URL("../../web-demo/package.json", import.meta.url))("playwright-core");

const BINARY = process.env.PROSCENIUM_BIN ?? fileURLToPath(new URL("../../target/debug/proscenium", import.meta.url));
const BROWSER = process.env.CHROMIUM_BIN ?? "/usr/bin/chromium";
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const DEADLINE = 60_000;

let server, url, dir, browser, key;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "proscenium-token-"));
  key = join(dir, "key");
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"]);
  server = spawn(BINARY, ["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--auth-key", key], { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface({ input: server.stdout })) {
    url = line.match(/^listening on (http:\S+)$/)?.[1];
    break;
  }
  server.stdout.resume();
  browser = await chromium.launchPersistentContext(join(dir, "profile"), { executablePath: BROWSER, args: FLAGS });
}, { timeout: DEADLINE });

after(async () => {
  await browser?.close();
  if (server && server.exitCode === null) {
    const ended = new Promise((resolve) => server.once("exit", resolve));
    server.kill("SIGTERM");
    await ended;
  }
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
  const page = await browser.newPage();
  page.setDefaultTimeout(DEADLINE);
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
  const other = await browser.newPage();
  await other.goto(url);
  await other.locator("#token").waitFor({ state: "visible" });
  assert.equal(await other.locator("#sessions button").count(), 0);

  assert.ok(asked.some((address) => address.includes("ticket=")), "the stream was opened with a ticket");
  for (const address of [...asked, page.url()]) assert.ok(!address.includes(mine), address);
  assert.equal(await page.evaluate(() => localStorage.length), 0);
  assert.equal(await page.evaluate(() => document.cookie), "");
});
