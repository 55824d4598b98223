/**
 * The client in a real browser, as a page imports it: from the server's own address, and from another.
 *
 * CHROMIUM_BIN names the browser (default /usr/bin/chromium).
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { BINARY, DEADLINE, breakingLine, ordered, picture, say, serve } from "./harness.js";

const { chromium } = createRequire(new URL("../../../web-demo/package.json", import.meta.url))("playwright-core");

const BROWSER = process.env.CHROMIUM_BIN ?? "/usr/bin/chromium";
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const TIMEOUT = { timeout: 4 * DEADLINE };

let dir, browser, elsewhere, origin, server;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "proscenium-client-page-"));
  elsewhere = createServer((request, response) => response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>Another page</title>"));
  await new Promise((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${elsewhere.address().port}`;
  server = await serve("--cors-origin", origin);
  browser = await chromium.launchPersistentContext(join(dir, "profile"), { executablePath: BROWSER, args: FLAGS });
}, TIMEOUT);

after(async () => {
  await browser?.close();
  elsewhere?.close();
  await server?.stop();
  if (dir) await rm(dir, { recursive: true, force: true });
});

/** A page that has the client of `base` and nothing that runs by itself. */
async function pageOf(from, base = from) {
  const page = await browser.newPage();
  page.setDefaultTimeout(DEADLINE);
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.goto(from);
  await page.evaluate(async (address) => {
    const client = await import(address);
    globalThis.client = client;
    globalThis.store = new client.Store();
    globalThis.follow = (options) => (globalThis.link = client.connect(options, globalThis.store));
  }, `${base}/assets/client/index.js`);
  return { page, asked };
}

const story = (words) => [{ type: "run.started" }, { type: "text.delta", messageId: "m", payload: { text: words } }];
const more = (words) => [{ type: "text.delta", messageId: "m", payload: { text: words } }];
/** Waits until the message of the run says this, in the page. */
const says = (page, run, words) =>
  page.waitForFunction(([run, words]) => client.textOf(store.get(`${run} message m`)?.content.parts[0].text) === words, [run, words], { timeout: DEADLINE, polling: 20 });

/** @type {[string, Record<string, string>, string][]} */
const WAYS = [["EventSource", {}, "eventsource"], ["fetch", { reader: "fetch" }, "fetch"], ["a WebSocket", { transport: "websocket" }, "websocket"]];

for (const [way, options, reader] of WAYS) {
  test(`a page follows a run by ${way}, loses its line, and goes on`, TIMEOUT, async () => {
    const run = `page-${reader}`;
    await say(server.base, run, story("one "));
    const line = await breakingLine(server.port, () => Infinity);
    const { page } = await pageOf(line.base);
    await page.evaluate((options) => void follow(options), { run, audience: "internal", timing: { retryMs: 20 }, ...options });
    await says(page, run, "one ");
    assert.equal(await page.evaluate(() => link.state.reader), reader);
    line.cut();
    await say(server.base, run, more("two "));
    await says(page, run, "one two ");
    await page.evaluate(() => link.cut());
    await say(server.base, run, more("three"));
    await page.evaluate(() => link.mend());
    await says(page, run, "one two three");
    await say(server.base, run, [{ type: "run.finished" }]);
    await page.waitForFunction(() => link.state.kind === "ended", undefined, { timeout: DEADLINE });
    const { state, activities } = await page.evaluate(() => ({ state: link.state, activities: store.sorted().map(({ runId, ...activity }) => activity) }));
    assert.deepEqual([state.gaps, state.faults, state.status], [0, 0, "completed"]);
    assert.ok(state.resumes >= 2, JSON.stringify(state));
    assert.deepEqual(ordered(activities), ordered(await picture(server.base, run, "internal")));
    await page.close();
  });

  test(`a page of another origin that is let in imports the client, and follows by ${way}`, TIMEOUT, async () => {
    const run = `elsewhere-${reader}`;
    await say(server.base, run, story("hello"));
    const { page, asked } = await pageOf(origin, server.base);
    await page.evaluate((options) => void follow(options), { base: server.base, run, ...options });
    await says(page, run, "hello");
    const told = await page.evaluate(async ([base, run]) => {
      const hydration = new client.Hydration({ base, token: () => "" });
      const { status } = await hydration.run(run);
      return { status, queued: (await client.submit({ base }, { run, control: "interrupt", controlId: run })).status };
    }, [server.base, run]);
    assert.deepEqual(told, { status: "running", queued: "queued" });
    assert.ok(asked.some((url) => url === `${server.base}/assets/client/patch.js`));
    await page.close();
  });
}

test("the ten lines of plain DOM in the README are ten, and show what a run says", TIMEOUT, async () => {
  const readme = readFileSync(new URL("../../../web-demo/client/README.md", import.meta.url), "utf8");
  const lines = (title) => readme.split(`## ${title}\n`)[1].match(/```jsx?\n([^]*?)```/)[1].split("\n").filter((line) => line !== "");
  const example = lines("Ten lines of plain DOM");
  const react = lines("Ten lines of React").filter((line) => !line.startsWith("import "));
  assert.deepEqual([example.length <= 10, react.length], [true, 10]);
  await say(server.base, "run-1", story("Hello <b>"));
  const page = await browser.newPage();
  const html = `<!doctype html><title>An example</title><div id="messages"></div><script type="module">${example.join("\n")}</script>`;
  await page.route(`${server.base}/example.html`, (route) => route.fulfill({ contentType: "text/html", body: html }));
  await page.goto(`${server.base}/example.html`);
  await page.locator("#messages p", { hasText: "Hello <b>" }).waitFor({ timeout: DEADLINE });
  await say(server.base, "run-1", more("world"));
  await page.locator("#messages p", { hasText: "Hello <b>world" }).waitFor({ timeout: DEADLINE });
  assert.equal(await page.locator("#messages b").count(), 0);
  await page.close();
});

test("what EventSource cannot see is looked at with fetch: a status, and that there is no more", TIMEOUT, async () => {
  const problem = (status, code) => ({ status, contentType: "application/problem+json", body: JSON.stringify({ status, code, detail: `no: ${code}` }) });
  const hydrated = { status: 200, contentType: "text/event-stream", body: 'data: {"frame":"Hydrated","runId":"busy","sequence":0}\nid: e:0\n\n' };
  const answers = { refused: () => problem(403, "forbidden"), over: () => ({ status: 204 }), busy: (n) => (n === 0 ? problem(503, "busy") : hydrated) };
  const { page } = await pageOf(server.base);
  const seen = {};
  for (const [run, answer] of Object.entries(answers)) {
    let streams = 0;
    await page.route(`**/v1/runs/${run}/stream?*`, (route) => route.fulfill(answer(streams++)));
    await page.evaluate((run) => void follow({ run, timing: { retryMs: 20 } }), run);
    await page.waitForFunction(() => link.state.kind === "refused" || link.state.kind === "ended" || link.state.frames > 0, undefined, { timeout: DEADLINE, polling: 20 });
    seen[run] = await page.evaluate(() => (link.close(), [link.state.kind, link.state.problem?.code ?? "", link.state.reader]));
  }
  assert.deepEqual(seen, { refused: ["refused", "forbidden", "fetch"], over: ["ended", "", "fetch"], busy: ["away", "", "fetch"] });
  await page.close();
});

test("with a token, EventSource opens with a ticket and comes back with another; the token is in no address", TIMEOUT, async () => {
  const key = join(dir, "key");
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"], { stdio: "ignore" });
  const asking = await serve("--auth-key", key);
  try {
    const token = (...rights) => execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", ...rights], { encoding: "utf8" }).trim();
    const headers = { authorization: `Bearer ${token("--can", "publish")}` };
    await say(asking.base, "r", story("one "), { headers });
    const line = await breakingLine(asking.port, () => Infinity);
    const { page, asked } = await pageOf(line.base);
    const mine = token("--can", "read");
    await page.evaluate((mine) => void follow({ run: "r", token: async () => mine, timing: { retryMs: 20 } }), mine);
    await says(page, "r", "one ");
    line.cut();
    await say(asking.base, "r", more("two"), { headers });
    await says(page, "r", "one two");
    assert.equal(await page.evaluate(() => link.state.reader), "eventsource");
    const tickets = asked.map((url) => new URL(url).searchParams.get("ticket")).filter(Boolean);
    assert.ok(tickets.length >= 2 && new Set(tickets).size === tickets.length, "each line has a ticket of its own");
    for (const url of asked) assert.ok(!url.includes(mine), url);
    await page.close();
  } finally {
    await asking.stop();
  }
});
