/**
 * Helpers of the browser tests: a server, a browser, and pages with fixtures.
 *
 * A proxy (the front) serves the fixtures, which are not in the binary, and the workbench's modules, with the page's
 * content security policy. It forwards everything else to the server.
 *
 * PROSCENIUM_BIN names the binary (default target/debug/proscenium), CHROMIUM_BIN the browser (default: those of
 * Debian). With PROSCENIUM_JITTER_MS (tests/jitter.mjs) the front delays everything by a random time. Tests wait for
 * conditions; none depends on the speed of the machine.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, request } from "node:http";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { createInterface } from "node:readline";
import { after, afterEach, before } from "node:test";
import { fileURLToPath } from "node:url";
import { DEADLINE, limit } from "../deadline.mjs";
import { jitter, jitterStream } from "../jitter.mjs";

// The page's development dependencies are in web-demo.
const require = createRequire(new URL("../../web-demo/package.json", import.meta.url));
const { chromium } = require("playwright-core");

export const BINARY = process.env.PROSCENIUM_BIN ?? fileURLToPath(new URL("../../target/debug/proscenium", import.meta.url));
export const CHROMIUM = process.env.CHROMIUM_BIN ?? "/usr/bin/chromium";
/** Chromium's build without windows, which takes two thirds of the processor time; where Debian has none, Chromium itself. */
const HEADLESS_CHROMIUM = process.env.CHROMIUM_BIN ?? ["/usr/bin/chromium-headless-shell", CHROMIUM].find(existsSync);
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
export { limit };

/** The policy of the page: src/serve/api/workbench.rs. */
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const KINDS = { ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8" };
const ROOTS = { "/assets/": new URL("../../web-demo/", import.meta.url), "/fixtures/": new URL("fixtures/", import.meta.url) };

/** The source of axe-core, for `page.evaluate`: the policy blocks other ways to add a script. */
export const axe = () => readFile(require.resolve("axe-core/axe.min.js"), "utf8");

export class Stage {
  /** The browser of the stages that are opened from now on. */
  static chromium = HEADLESS_CHROMIUM;

  /** Returns the promise for which the answer to a request waits, if any. @type {((asked: { method: string, url: string }) => Promise<void> | undefined) | undefined} */
  holds;

  /** Starts a server with a store in memory, and a browser with a new profile. */
  static async open(...args) {
    return Stage.#start(["serve", "--listen", "127.0.0.1:0", "--store", "memory", ...args]);
  }

  /** The same, with the demo. */
  static async demo(...args) {
    return Stage.#start(["demo", "--listen", "127.0.0.1:0", ...args]);
  }

  static async #start(args) {
    const server = spawn(BINARY, args, { stdio: ["ignore", "pipe", "ignore"] });
    let url;
    for await (const line of createInterface({ input: server.stdout })) {
      url = line.match(/^listening on (http:\S+)$/)?.[1];
      break;
    }
    assert.ok(url, "the first line names the address");
    server.stdout.resume();
    const stage = await Stage.on(url);
    stage.server = server;
    return stage;
  }

  /** A browser for a server that runs already. The front forwards to `url`, which a test may change. */
  static async on(url) {
    const stage = new Stage();
    stage.url = url;
    stage.front = await front(() => Number(new URL(stage.url).port), (asked) => stage.holds?.(asked));
    stage.profile = await mkdtemp(join(tmpdir(), "proscenium-stage-"));
    stage.browser = await chromium.launchPersistentContext(stage.profile, { executablePath: Stage.chromium, args: FLAGS, viewport: { width: 1280, height: 900 } });
    stage.browser.setDefaultTimeout(DEADLINE);
    return stage;
  }

  async close() {
    await this.browser?.close();
    this.front?.server.closeAllConnections();
    this.front?.server.close();
    if (this.server && this.server.exitCode === null) {
      const ended = new Promise((resolve) => this.server.once("exit", resolve));
      this.server.kill("SIGTERM");
      await ended;
    }
    if (this.profile) await rm(this.profile, { recursive: true, force: true });
  }

  /** Sends facts to a run, or to a session's own log (`session:<id>`). */
  async publish(to, facts, query = {}) {
    const path = to.startsWith("session:") ? `sessions/${encodeURIComponent(to.slice(8))}` : `runs/${encodeURIComponent(to)}`;
    return this.#post(`/v1/${path}/facts?${new URLSearchParams(query)}`, facts);
  }

  /** Sends a request that must succeed. */
  async #post(path, body) {
    const answer = await fetch(`${this.url}${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    assert.equal(answer.status, 200, await answer.clone().text());
    return answer.json();
  }

  /**
   * Claims the next control of an agent and acknowledges or rejects it, as its runtime would. Acknowledges controls of
   * other tests.
   * @param {string} agent
   * @param {{ run?: string, how?: "ack" | "nack", reason?: string }} [verdict]
   */
  async claim(agent, { run, how = "ack", ...why } = {}) {
    for (;;) {
      const { controls: [control] } = await this.#post(`/v1/agents/${agent}/controls/claim?wait=30&max=1`);
      assert.ok(control, "a control is pending");
      const isWanted = run === undefined || control.runId === run;
      await this.#post(`/v1/controls/${control.controlId}/${isWanted ? how : "ack"}`, { lease: control.lease, ...(isWanted && why) });
      if (isWanted) return control;
    }
  }

  /** Reads JSON from the server. */
  async read(path) {
    return (await fetch(`${this.url}${path}`)).json();
  }

  /**
   * Adds activities to the stream of a run: content that no source of these tests produces.
   * @param {import("playwright-core").Page} page
   * @param {string} run
   * @param {{ activityType: string, activityId: string, surface?: string, agentId?: string, content: object }[]} activities
   */
  async bring(page, run, activities) {
    await page.route(`**/v1/runs/${run}/stream?*`, async (route) => {
      const { activities: own, sequence } = await this.read(`/v1/runs/${run}/activities`);
      const brought = activities.map((one) => ({ surface: "conversation", opened: sequence, sequence, ...one }));
      const isBrought = ({ activityType, activityId }) => activities.some((one) => one.activityType === activityType && one.activityId === activityId);
      const frames = [...[...own.filter((one) => !isBrought(one)), ...brought].map((one) => ({ frame: "ActivitySnapshot", runId: run, ...one })), { frame: "Hydrated", runId: run, sequence }];
      await route.fulfill({ contentType: "text/event-stream", body: frames.map((frame) => `data: ${JSON.stringify(frame)}\nid: 0000000000000001:${frame.sequence * 2}\n\n`).join("") });
    });
  }

  /** Opens an empty page. Collects its errors in `problems`. */
  async blank() {
    const page = await this.browser.newPage();
    page.problems = [];
    page.on("pageerror", (error) => page.problems.push(String(error)));
    // A run or session without facts is 404, which is not an error of the page.
    const isExpected = (message) => message.text().includes("404") && /\/v1\/(runs|sessions)\//.test(message.location().url);
    page.on("console", (message) => message.type() === "error" && !isExpected(message) && page.problems.push(message.text()));
    return page;
  }

  /** Opens the workbench at an address. */
  async look(hash = {}, page = undefined) {
    page ??= await this.blank();
    await page.goto(`${this.front.url}/#${new URLSearchParams(hash)}`);
    return page;
  }

  /** Opens a page with a fixture. */
  async show(fixture, hash = {}) {
    const page = await this.blank();
    await page.goto(`${this.front.url}/fixtures/${fixture}#${new URLSearchParams(hash)}`);
    await until(page, () => window.bench?.isReady);
    return page;
  }
}

/**
 * Opens a stage before the tests of a file, and closes it after them. Closes the page after each test.
 * @param {(stage: Stage) => void} opened Takes the stage.
 * @param {() => import("playwright-core").Page | undefined} page The page that the last test opened.
 */
export function useStage(opened, page) {
  let stage;
  before(async () => opened((stage = await Stage.open())), limit);
  after(() => stage?.close());
  afterEach(() => page()?.close());
}

/** Waits until a predicate holds in the page. */
export const until = (page, holds, argument) => page.waitForFunction(holds, argument, { timeout: DEADLINE, polling: 50 });

/**
 * Scrolls a conversation until its message with this text is drawn. New content may scroll it back.
 * @param {"start" | "end"} end
 */
export const scrollTo = (page, end, text) => until(page, ([end, text]) => {
  const scroller = document.querySelector("ps-conversation .scroller");
  scroller.scrollTop = end === "start" ? 0 : scroller.scrollHeight;
  return [...document.querySelectorAll("ps-conversation .speech .body")].some((one) => one.textContent === text);
}, [end, text]);

/** Returns the visible tabs of the panels. Waits for them: a loop over no tabs would test nothing. */
export async function visibleTabs(page) {
  const tabs = page.locator("#panels [role=tab]:visible");
  await tabs.first().waitFor();
  return tabs.all();
}

/** Returns the trimmed text of an element. */
export const text = async (locator) => (await locator.innerText()).trim();

/**
 * @param {() => number} port The port of the server.
 * @param {(asked: import("node:http").IncomingMessage) => Promise<void> | undefined} holds The promise for which an answer waits.
 */
async function front(port, holds) {
  const server = createServer(async (asked, answer) => {
    await jitter();
    if (answer.destroyed) return;
    const { pathname } = new URL(asked.url, "http://front");
    if (pathname === "/") return void serveFile("/assets/", "index.html", answer);
    if (pathname === "/push-worker.js") return void serveFile("/assets/", "push-worker.js", answer);
    const prefix = Object.keys(ROOTS).find((root) => pathname.startsWith(root));
    if (prefix) return void serveFile(prefix, pathname.slice(prefix.length), answer);
    const behind = request({ port: port(), host: "127.0.0.1", path: asked.url, method: asked.method, headers: asked.headers }, async (response) => {
      response.on("error", () => answer.destroy());
      await Promise.all([jitter(), holds(asked)]);
      if (answer.destroyed) return;
      answer.writeHead(response.statusCode, response.headers);
      response.pipe(jitterStream()).pipe(answer);
    });
    behind.on("error", () => answer.destroy());
    answer.on("close", () => behind.destroy());
    asked.pipe(behind);
  });
  server.on("upgrade", (asked, near, head) => {
    const far = connect(port(), "127.0.0.1", () => {
      const lines = [`${asked.method} ${asked.url} HTTP/1.1`];
      for (let at = 0; at < asked.rawHeaders.length; at += 2) lines.push(`${asked.rawHeaders[at]}: ${asked.rawHeaders[at + 1]}`);
      far.write(`${lines.join("\r\n")}\r\n\r\n`);
      far.write(head);
      near.pipe(jitterStream()).pipe(far).pipe(jitterStream()).pipe(near);
    });
    for (const end of [near, far]) {
      end.on("error", () => {});
      end.on("close", () => (near.destroy(), far.destroy()));
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, url: `http://127.0.0.1:${server.address().port}` };
}

async function serveFile(prefix, path, answer) {
  const name = normalize(decodeURIComponent(path));
  try {
    if (name.startsWith("..")) throw new Error("outside");
    const body = await readFile(new URL(name, ROOTS[prefix]));
    answer.writeHead(200, { "content-type": KINDS[extname(name)] ?? "text/plain", "content-security-policy": POLICY, "cache-control": "max-age=3600" });
    answer.end(body);
  } catch {
    answer.writeHead(404).end();
  }
}
