/**
 * The page in a real browser, against the built binary's `demo`: what a visitor sees.
 *
 * PROSCENIUM_BIN names the binary (default target/debug/proscenium), CHROMIUM_BIN the browser (default /usr/bin/chromium).
 * Everything waits for what it wants to see, with a generous deadline; no test depends on how fast anything is.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";

// The page's development dependencies live beside the page.
const { chromium } = createRequire(new URL("../../web-demo/package.json", import.meta.url))("playwright-core");

const BINARY = process.env.PROSCENIUM_BIN ?? fileURLToPath(new URL("../../target/debug/proscenium", import.meta.url));
const BROWSER = process.env.CHROMIUM_BIN ?? "/usr/bin/chromium";
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const DEADLINE = 60_000;

let server, url, profile, browser, page, problems;

before(async () => {
  server = spawn(BINARY, ["demo", "--listen", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface({ input: server.stdout })) {
    url = line.match(/^listening on (http:\S+)$/)?.[1];
    break;
  }
  assert.ok(url, "the first line says where the demo listens");
  server.stdout.resume();
  profile = await mkdtemp(join(tmpdir(), "proscenium-browser-"));
  browser = await chromium.launchPersistentContext(profile, { executablePath: BROWSER, args: FLAGS });
}, { timeout: DEADLINE });

after(async () => {
  await browser?.close();
  if (server && server.exitCode === null) {
    const ended = new Promise((resolve) => server.once("exit", resolve));
    server.kill("SIGTERM");
    await ended;
  }
  if (profile) await rm(profile, { recursive: true, force: true });
});

beforeEach(async () => {
  page = await browser.newPage();
  page.setDefaultTimeout(DEADLINE);
  problems = [];
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
});

afterEach(async () => page.close());

const text = (selector) => page.locator(selector).first().innerText();
const frames = async () => Number(await text("#frame-count"));
/** Waits until `holds`, a function in the page, does. */
const until = (holds, argument) => page.waitForFunction(holds, argument, { timeout: DEADLINE, polling: 50 });

/** The next run of this recording that has begun, by its name. */
async function nextRun(recording) {
  for (;;) {
    const { runs } = await (await fetch(`${url}/v1/runs`)).json();
    const live = runs.find((run) => run.runId.endsWith(`-${recording}`));
    if (live) return live.runId;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** A line to the server that can be cut: what a proxy, a tunnel or a train does. */
async function phoneLine(port) {
  const open = new Set();
  const resumed = [];
  const exchange = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const end of [near, far]) {
      open.add(end);
      end.on("close", () => (near.destroy(), far.destroy(), open.delete(end)));
      end.on("error", () => {});
    }
    near.on("data", (bytes) => String(bytes).match(/last-event-id: (\S+)/i)?.slice(1).forEach((id) => resumed.push(id)));
    near.pipe(far).pipe(near);
  });
  await new Promise((resolve) => exchange.listen(0, "127.0.0.1", resolve));
  const cut = () => open.forEach((end) => end.destroy());
  return { port: exchange.address().port, resumed, cut, close: () => (cut(), exchange.close()) };
}

async function look(run, audience = "user") {
  await page.goto(`${url}/#${new URLSearchParams({ run, audience })}`);
  await until(() => Number(document.getElementById("frame-count").textContent) > 0);
}

test("the newest live run opens by itself and streams", { timeout: 2 * DEADLINE }, async () => {
  await page.goto(url);
  await until(() => document.querySelector("#story .speech .body")?.textContent.length > 0);
  assert.match(await text("#story-title"), /^demo-\d+-/);
  assert.equal(await page.locator("#runs button[aria-current]").count(), 1);
  const before = await frames();
  await until((before) => Number(document.getElementById("frame-count").textContent) > before, before);
  assert.equal(await text("#gaps"), "none");
  assert.match(await text("#cursor"), /^[0-9a-f]{16}:\d+$/);
  assert.deepEqual(problems, []);
});

test("a tool's progress moves to its end, and the text below it grows", { timeout: 2 * DEADLINE }, async () => {
  await look(await nextRun("tool-progress"));
  await until(() => document.querySelector("#story .tool progress")?.value === 1);
  await until(() => document.querySelector("#story .tool .badge")?.textContent === "done");
  await until(() => [...document.querySelectorAll("#story .speech .body")].at(-1).textContent === "Indexed 10 batches.");
  await until(() => document.getElementById("connection").textContent === "ended: completed");
  assert.equal(await text("#run-status"), "completed");
  assert.deepEqual(problems, []);
});

test("who looks decides what there is to see", { timeout: 2 * DEADLINE }, async () => {
  const run = await nextRun("tool-progress");
  await look(run);
  await until(() => document.getElementById("connection").dataset.state === "ended");
  const seen = { user: await frames() };
  for (const audience of ["dashboard", "internal"]) {
    await page.getByLabel(audience, { exact: true }).check();
    await until(() => document.getElementById("connection").dataset.state === "ended");
    seen[audience] = await frames();
  }
  assert.ok(seen.user < seen.dashboard && seen.dashboard < seen.internal, JSON.stringify(seen));
  assert.equal(await text("#gaps"), "none");
  assert.ok(await page.locator('#frames .who[data-audience="internal"]').count() > 0);
  assert.deepEqual(problems, []);
});

test("a cut connection comes back where it was, without a gap", { timeout: 4 * DEADLINE }, async () => {
  const line = await phoneLine(Number(new URL(url).port));
  const run = await nextRun("several-tools");
  await page.goto(`http://127.0.0.1:${line.port}/#${new URLSearchParams({ run, audience: "internal" })}`);
  await until(() => Number(document.getElementById("frame-count").textContent) > 5);
  line.cut();
  await until(() => document.getElementById("connection").dataset.state === "away");
  await until(() => document.getElementById("connection").dataset.state === "ended");
  assert.ok(line.resumed.length > 0, "the browser came back with its cursor");
  const whole = (await (await fetch(`${url}/v1/runs/${run}?audience=internal`)).json()).counts.events;
  assert.equal(await frames(), whole);
  assert.equal(await text("#gaps"), "none");
  line.close();
});

test("a gap is shown where it is", { timeout: 2 * DEADLINE }, async () => {
  const event = (sequence, prev, words) => ({
    frame: "Event", runId: "r", sequence, prev,
    event: { type: "text.delta", sequence, audience: "user", messageId: "m", partId: "p", payload: { text: words } },
  });
  const stream = [event(1, 0, "one "), event(5, 4, "five"), { frame: "End", runId: "r", sequence: 5, status: "completed" }];
  const body = stream.map((frame, at) => `data: ${JSON.stringify(frame)}\nid: 0000000000000001:${at}\n\n`).join("");
  await page.route("**/stream?*", (route) => route.fulfill({ contentType: "text/event-stream", body }));
  await look("r");
  await until(() => document.getElementById("connection").dataset.state === "ended");
  assert.equal(await text("#gaps"), "1");
  assert.equal(await text("#frames .gap"), "Something is missing: after 1 should have come 4.");
});

test("what a run says is text, whatever it looks like", { timeout: 2 * DEADLINE }, async () => {
  const words = "<img src=x onerror=alert(1)><script>alert(2)</script>";
  const fact = (type, more) => ({ type, messageId: "m", partId: "p", toolCallId: "c", actionId: "a", ...more });
  const facts = [
    fact("text.delta", { payload: { text: words } }),
    fact("tool.started", { payload: { toolName: words } }),
    fact("tool.progress", { audience: "user", payload: { message: words, progress: 0.5 } }),
    fact("action.required", { payload: { kind: words, message: words } }),
  ];
  const sent = await fetch(`${url}/v1/runs/hostile/facts`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(facts) });
  assert.equal(sent.status, 200);
  await look("hostile");
  await until(() => document.querySelectorAll("#story article").length === 3);
  assert.equal(await text("#story .speech .body"), words);
  assert.equal(await page.locator("#story img, #story script, #frames img, #frames script").count(), 0);
  assert.deepEqual(problems, []);
});

test("a reload shows the same run again, whole", { timeout: 2 * DEADLINE }, async () => {
  const run = await nextRun("tool-progress");
  await look(run, "internal");
  await page.reload();
  await until(() => document.getElementById("connection").dataset.state === "ended");
  assert.equal(await text("#story-title"), run);
  const whole = (await (await fetch(`${url}/v1/runs/${run}?audience=internal`)).json()).counts.events;
  assert.equal(await frames(), whole);
  assert.equal(await text("#gaps"), "none");
  assert.deepEqual(problems, []);
});
