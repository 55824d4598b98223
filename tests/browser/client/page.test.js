/**
 * The client in a real browser: imported from the page's own origin, and from another one.
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
import { DEADLINE, limit } from "../../deadline.mjs";
import { BINARY, startFlakyProxy, sortByOpened, fetchActivities, publish, startServer } from "./harness.js";

const { chromium } = createRequire(new URL("../../../web-demo/package.json", import.meta.url))("playwright-core");

const BROWSER = process.env.CHROMIUM_BIN ?? "/usr/bin/chromium";
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

let dir, browser, otherServer, origin, server;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "proscenium-client-page-"));
  otherServer = createServer((request, response) => response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>Another page</title>"));
  await new Promise((resolve) => otherServer.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${otherServer.address().port}`;
  server = await startServer("--cors-origin", origin);
  browser = await chromium.launchPersistentContext(join(dir, "profile"), { executablePath: BROWSER, args: FLAGS });
}, limit);

after(async () => {
  await browser?.close();
  otherServer?.close();
  await server?.stop();
  if (dir) await rm(dir, { recursive: true, force: true });
});

/** Opens a page with the client of `base` as globals. */
async function openPage(from, base = from) {
  const page = await browser.newPage();
  page.setDefaultTimeout(DEADLINE);
  const requestedUrls = [];
  page.on("request", (request) => requestedUrls.push(request.url()));
  await page.goto(from);
  await page.evaluate(async (address) => {
    const client = await import(address);
    globalThis.client = client;
    globalThis.store = new client.Store();
    globalThis.follow = (options) => (globalThis.connection = client.connect(options, globalThis.store));
  }, `${base}/assets/client/index.js`);
  return { page, requestedUrls };
}

const startFacts = (text) => [{ type: "run.started" }, { type: "text.delta", messageId: "m", payload: { text } }];
const textFacts = (text) => [{ type: "text.delta", messageId: "m", payload: { text } }];
/** Waits until the run's message has this text, in the page. */
const waitForText = (page, run, text) =>
  page.waitForFunction(([run, text]) => client.textOf(store.get(`${run} message m`)?.content.parts[0].text) === text, [run, text], { timeout: DEADLINE, polling: 20 });

/** @type {[string, Record<string, string>, string][]} */
const READERS = [["EventSource", {}, "eventsource"], ["fetch", { reader: "fetch" }, "fetch"], ["a WebSocket", { transport: "websocket" }, "websocket"]];

for (const [name, options, reader] of READERS) {
  test(`a page follows a run by ${name} and resumes after a broken connection`, limit, async () => {
    const run = `page-${reader}`;
    await publish(server.base, run, startFacts("one "));
    const proxy = await startFlakyProxy(server.port, () => Infinity);
    const { page } = await openPage(proxy.base);
    await page.evaluate((options) => void follow(options), { run, audience: "internal", timing: { retryMs: 20 }, ...options });
    await waitForText(page, run, "one ");
    assert.equal(await page.evaluate(() => connection.state.reader), reader);
    proxy.cut();
    await publish(server.base, run, textFacts("two "));
    await waitForText(page, run, "one two ");
    await page.evaluate(() => connection.cut());
    await publish(server.base, run, textFacts("three"));
    await page.evaluate(() => connection.mend());
    await waitForText(page, run, "one two three");
    await publish(server.base, run, [{ type: "run.finished" }]);
    await page.waitForFunction(() => connection.state.kind === "ended", undefined, { timeout: DEADLINE });
    const { state, activities } = await page.evaluate(() => ({ state: connection.state, activities: store.sorted().map(({ runId, ...activity }) => activity) }));
    assert.deepEqual([state.gaps, state.faults, state.status], [0, 0, "completed"]);
    assert.ok(state.resumes >= 2, JSON.stringify(state));
    assert.deepEqual(sortByOpened(activities), sortByOpened(await fetchActivities(server.base, run, "internal")));
    await page.close();
  });

  test(`a page of an allowed origin imports the client and follows by ${name}`, limit, async () => {
    const run = `elsewhere-${reader}`;
    await publish(server.base, run, startFacts("hello"));
    const { page, requestedUrls } = await openPage(origin, server.base);
    await page.evaluate((options) => void follow(options), { base: server.base, run, ...options });
    await waitForText(page, run, "hello");
    const result = await page.evaluate(async ([base, run]) => {
      const hydration = new client.Hydration({ base, token: () => "" });
      const { status } = await hydration.run(run);
      return { status, queued: (await client.submit({ base }, { run, control: "interrupt", controlId: run })).status };
    }, [server.base, run]);
    assert.deepEqual(result, { status: "running", queued: "queued" });
    assert.ok(requestedUrls.some((url) => url === `${server.base}/assets/client/patch.js`));
    await page.close();
  });
}

test("the README's DOM example has ten lines and shows a run's messages", limit, async () => {
  const readme = readFileSync(new URL("../../../web-demo/client/README.md", import.meta.url), "utf8");
  const lines = (title) => readme.split(`## ${title}\n`)[1].match(/```jsx?\n([^]*?)```/)[1].split("\n").filter((proxy) => proxy !== "");
  const example = lines("Ten lines of plain DOM");
  const react = lines("Ten lines of React").filter((proxy) => !proxy.startsWith("import "));
  assert.deepEqual([example.length <= 10, react.length], [true, 10]);
  await publish(server.base, "run-1", startFacts("Hello <b>"));
  const page = await browser.newPage();
  const html = `<!doctype html><title>An example</title><div id="messages"></div><script type="module">${example.join("\n")}</script>`;
  await page.route(`${server.base}/example.html`, (route) => route.fulfill({ contentType: "text/html", body: html }));
  await page.goto(`${server.base}/example.html`);
  await page.locator("#messages p", { hasText: "Hello <b>" }).waitFor({ timeout: DEADLINE });
  await publish(server.base, "run-1", textFacts("world"));
  await page.locator("#messages p", { hasText: "Hello <b>world" }).waitFor({ timeout: DEADLINE });
  assert.equal(await page.locator("#messages b").count(), 0);
  await page.close();
});

test("for statuses that EventSource hides the client switches to fetch", limit, async () => {
  const problem = (status, code) => ({ status, contentType: "application/problem+json", body: JSON.stringify({ status, code, detail: `no: ${code}` }) });
  const hydrated = { status: 200, contentType: "text/event-stream", body: 'data: {"frame":"Hydrated","runId":"busy","sequence":0}\nid: e:0\n\n' };
  const answers = { refused: () => problem(403, "forbidden"), over: () => ({ status: 204 }), busy: (n) => (n === 0 ? problem(503, "busy") : hydrated) };
  const { page } = await openPage(server.base);
  const states = {};
  for (const [run, answer] of Object.entries(answers)) {
    let streams = 0;
    await page.route(`**/v1/runs/${run}/stream?*`, (route) => route.fulfill(answer(streams++)));
    await page.evaluate((run) => void follow({ run, timing: { retryMs: 20 } }), run);
    await page.waitForFunction(() => connection.state.kind === "refused" || connection.state.kind === "ended" || connection.state.frames > 0, undefined, { timeout: DEADLINE, polling: 20 });
    states[run] = await page.evaluate(() => (connection.close(), [connection.state.kind, connection.state.problem?.code ?? "", connection.state.reader]));
  }
  assert.deepEqual(states, { refused: ["refused", "forbidden", "fetch"], over: ["ended", "", "fetch"], busy: ["away", "", "fetch"] });
  await page.close();
});

test("with a token, each EventSource connection uses its own ticket, and no address contains the token", limit, async () => {
  const key = join(dir, "key");
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"], { stdio: "ignore" });
  const authServer = await startServer("--auth-key", key);
  try {
    const token = (...rights) => execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", ...rights], { encoding: "utf8" }).trim();
    const headers = { authorization: `Bearer ${token("--can", "publish")}` };
    await publish(authServer.base, "r", startFacts("one "), { headers });
    const proxy = await startFlakyProxy(authServer.port, () => Infinity);
    const { page, requestedUrls } = await openPage(proxy.base);
    const clientToken = token("--can", "read");
    await page.evaluate((clientToken) => void follow({ run: "r", token: async () => clientToken, timing: { retryMs: 20 } }), clientToken);
    await waitForText(page, "r", "one ");
    proxy.cut();
    await publish(authServer.base, "r", textFacts("two"), { headers });
    await waitForText(page, "r", "one two");
    assert.equal(await page.evaluate(() => connection.state.reader), "eventsource");
    const tickets = requestedUrls.map((url) => new URL(url).searchParams.get("ticket")).filter(Boolean);
    assert.ok(tickets.length >= 2 && new Set(tickets).size === tickets.length, "each connection has its own ticket");
    for (const url of requestedUrls) assert.ok(!url.includes(clientToken), url);
    await page.close();
  } finally {
    await authServer.stop();
  }
});
