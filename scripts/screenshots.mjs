#!/usr/bin/env node
/**
 * Takes the pictures of the documentation: `node --experimental-websocket scripts/screenshots.mjs`. With a directory, it
 * takes each screen into it for a look: in light and dark, 1600×1000 and 390×844.
 *
 * PROSCENIUM_BIN and CHROMIUM_BIN as for the browser tests; the binary has the feature `test-clock`, and the page's files
 * are those of web-demo. Run `npm ci` in web-demo and in tests/clients first, and `cargo build --examples`.
 */

import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { crc32, deflateSync } from "node:zlib";
import { Stage } from "../tests/browser/stage.js";
import { publish, requestJson, startServer } from "../tests/clients/harness.mjs";
import { openBrowser, servePages } from "../tests/clients/pages.mjs";

const WIDE = { width: 1600, height: 1000 };
const PHONE = { width: 390, height: 844 };
/** How many times faster than real time the demo plays. */
const SPEED = "8";
/** How long something may take to appear, in milliseconds. */
const PATIENCE_MS = 60_000;
/** The time for transitions and late answers, in milliseconds. */
const SETTLE_MS = 900;
/** Colours of a picture: the most that a PNG with a palette holds. */
const COLORS_MAX = 256;
/** Colours closer than this look the same; squared distance in RGB. */
const SAME_COLOR = 30;

/** Questions to an agent and its answers, the oldest first. */
const CONVERSATIONS = [
  ["Which licence has the font?", "The SIL Open Font License 1.1."],
  ["Compare the two offers for the printer", "The second one costs 12 % less over three years."],
  ["Write to the landlord about the heating", "Here is a draft of the letter."],
  ["Plan a trip to Rome in May", "Four days are enough for the city: the Forum, Trastevere, the Vatican, and one day of rest."],
];

const TITLES = ["Fix the flaky login test", "Invoice mail", "Import of the old wiki", "Upgrade the search index", "Nightly benchmark"];

/** What the documentation shows in dark, too. The others would cost more bytes than they tell. */
const DARK = ["approval", "phone", "runs", "trace", "workbench"];

const isForLook = process.argv[2] !== undefined;
const directory = process.argv[2] ?? fileURLToPath(new URL("../docs/src/pictures", import.meta.url));
await mkdir(directory, { recursive: true });

const empty = await Stage.open();
try {
  const page = await open(empty, {});
  await page.locator("main").waitFor();
  await take(page, "empty");
} finally {
  await empty.close();
}

const stage = await Stage.demo("--speed", SPEED);
try {
  const page = await open(stage, { session: "demo-1" });
  const question = page.locator('ps-conversation ps-action[data-status="pending"]');
  await question.first().waitFor();
  await take(page, "workbench");
  await page.locator("#needs-you").click();
  await page.locator(".inbox-row", { hasText: "Run deploy on production" }).click();
  await page.locator("ps-inbox .ask .outcomes").waitFor();
  await take(page, "inbox");
  await page.locator("#needs-you").click();
  await question.first().getByRole("button", { name: /^(Send|Answer|Submit)/ }).first().click();
  await page.locator('ps-conversation ps-action[data-status="pending"]', { hasText: "Publish" }).first().waitFor();
  await take(page, "approval");
  await page.setViewportSize(PHONE);
  await take(page, "phone");
  await page.setViewportSize(WIDE);
  await page.locator("#tab-trace").click();
  await page.locator("#expand").click();
  await page.locator('ps-trace .trace-row[data-kind="failed"]').first().click();
  await take(page, "trace");
  await page.locator("#tab-events").click();
  await page.locator("ps-events .event-row", { hasText: "action.required" }).last().click();
  await page.locator("ps-events .event-changes li").first().waitFor();
  await take(page, "events");
  await page.locator("#tab-artifacts").click();
  await page.locator("ps-artifacts .artifact-row", { hasText: "release notes" }).click();
  await page.locator("ps-artifacts .mode-diff").click();
  await page.locator("ps-artifacts .diff-line").first().waitFor();
  await take(page, "artifact");
  await page.locator("#expand").click();
  await page.locator("#compare").click();
  await page.locator("ps-audiences .audience-row").first().waitFor();
  await take(page, "audiences");
} finally {
  await stage.close();
}

await takeRuns();
await takeThreads();

/** The runs of a day: of three agents, some of which wait or failed. */
async function takeRuns() {
  const { stage, advance, stop } = await openClocked();
  const fact = (type, payload, ids = {}) => ({ type, ...ids, payload });
  const ask = (n) => fact("action.required", { kind: "tool_approval", toolName: "deploy", title: `Deploy build ${n}`, parameters: { build: n } }, { actionId: "deploy" });
  const ENDS = [(n) => fact("run.failed", { error: { message: `The runner ran out of disk space (job ${n})` } }), ask, () => fact("run.finished", {})];
  try {
    for (let n = 60; n > 0; n -= 1) {
      // The more of them, the busier the hour.
      await advance((4 + (n * n) % 37) * 60_000);
      const calls = ["read_file", "run_tests"].flatMap((toolName, at) => [fact("tool.started", { toolName }, { toolCallId: toolName }), fact(n % 3 === 0 && at === 1 ? "tool.failed" : "tool.result", { output: "done" }, { toolCallId: toolName })]);
      const usage = { kind: "llm_call", usage: { inputTokens: 9000 + n * 710, outputTokens: 300, costUsd: 0.02 * n } };
      const begin = [fact("session.opened", { title: `${TITLES[n % TITLES.length]} #${n}` }), fact("run.started", {}, { agentId: `agent-${(n % 3) + 1}` })];
      const rest = [...calls, { ...fact("metric.changed", usage), audience: "dashboard" }, ENDS[n % 3](n)];
      for (const [at, one] of [...begin, ...rest].entries()) {
        if (at > 0) await advance((n * (at + 7) % 53) * 1000);
        await publishAgain(stage, `run-${n}`, [one], { sessionId: `session-${n}` });
      }
    }
    const page = await stage.blank();
    await page.clock.setSystemTime(Date.now() + advance.by);
    await open(stage, { session: "session-60", view: "runs", audience: "dashboard" }, page);
    await page.locator(".run-row .run-title").first().waitFor();
    for (const at of [2, 5]) await page.locator(".run-row input").nth(at).click();
    await take(page, "runs");
    await page.getByRole("button", { name: "Compare", exact: true }).click();
    await page.locator(".pair-row").first().waitFor();
    await take(page, "runs-compare");
    await page.goBack();
    await page.getByRole("button", { name: "Clear the selection" }).click();
    await page.getByRole("button", { name: "Group: none" }).click();
    await page.getByRole("menuitemradio", { name: "Status" }).click();
    await page.locator('.run-row[data-status="head"]').first().waitFor();
    await take(page, "runs-grouped");
  } finally {
    await stop();
  }
}

/** Sends facts, again where the server has closed the idle connection: its clock went on. @param {Stage} stage @param {Parameters<Stage["publish"]>} facts */
async function publishAgain(stage, ...facts) {
  try {
    await stage.publish(...facts);
  } catch (error) {
    if (error.cause?.code !== "UND_ERR_SOCKET") throw error;
    await publishAgain(stage, ...facts);
  }
}

/** A server whose clocks `advance` sets forward by milliseconds. */
async function openClocked() {
  const folder = await mkdtemp(join(tmpdir(), "proscenium-clock-"));
  const path = join(folder, "clock");
  process.env.PROSCENIUM_TEST_CLOCK = path;
  const stage = await Stage.open().finally(() => delete process.env.PROSCENIUM_TEST_CLOCK);
  const advance = Object.assign((ms) => new Promise((resolve, reject) => {
    advance.by += ms;
    const socket = connect(path, () => socket.write(`advance ${ms}\n`));
    socket.on("error", reject).on("data", () => (socket.end(), resolve()));
  }), { by: 0 });
  return { stage, advance, stop: async () => (await stage.close(), rm(folder, { recursive: true })) };
}

/** The page of the guide for CopilotKit with its threads. */
async function takeThreads() {
  const [pages, browser] = await Promise.all([servePages(), openBrowser()]);
  const server = await startServer("--cors-origin", pages.origin);
  try {
    for (const [at, [question, answer]] of CONVERSATIONS.entries()) {
      const said = (role, text) => ({ type: "text.final", messageId: `${role}-${at}`, payload: { role, text } });
      const facts = [{ type: "run.started" }, said("user", question), said("assistant", answer), { type: "run.finished" }];
      await publish(server.url, { run: `run-${at}`, thread: `t${CONVERSATIONS.length - at}`, agent: "guide" }, facts);
    }
    await requestJson(`${server.url}/copilotkit/threads/t4/archive`, { method: "POST" });
    const page = await browser.context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    await page.setViewportSize({ width: 1100, height: 640 });
    await page.goto(await pages.add("copilotkit", "guide", server.url, { heading: "Threads" }));
    await page.getByRole("button", { name: "Restore" }).waitFor();
    await page.getByText(CONVERSATIONS.at(-1)[1]).waitFor();
    await takeIn(page, "copilotkit-threads", "light");
  } finally {
    await Promise.all([server.stop(), pages.stop(), browser.close()]);
  }
}

/**
 * @param {Stage} of
 * @param {Record<string, string>} hash
 * @param {import("playwright-core").Page} [opened]
 */
async function open(of, hash, opened) {
  const page = opened ?? await of.blank();
  page.setDefaultTimeout(PATIENCE_MS);
  await page.setViewportSize(WIDE);
  return of.look(hash, page);
}

/**
 * Takes a picture, in both themes if it is one of those; for a look also on a phone.
 * @param {import("playwright-core").Page} page
 * @param {string} name
 */
async function take(page, name) {
  await page.mouse.move(0, 0);
  const themes = /** @type {const} */ (["light", "dark"]).filter((theme) => theme === "light" || isForLook || DARK.includes(name));
  for (const colorScheme of themes) await takeIn(page, name, colorScheme);
  const size = page.viewportSize();
  if (isForLook && size.width > PHONE.width) {
    await page.setViewportSize(PHONE);
    for (const colorScheme of themes) await takeIn(page, `${name}-on-a-phone`, colorScheme);
    await page.setViewportSize(size);
  }
  await page.emulateMedia({ colorScheme: "light" });
}

/**
 * Takes a picture in one theme.
 * @param {import("playwright-core").Page} page
 * @param {string} name
 * @param {"light" | "dark"} colorScheme
 */
async function takeIn(page, name, colorScheme) {
  await page.emulateMedia({ colorScheme });
  await page.waitForTimeout(SETTLE_MS);
  const path = join(directory, `${name}${colorScheme === "dark" ? "-dark" : ""}.png`);
  const picture = await reduceColors(page, await page.screenshot({ animations: "disabled", caret: "hide" }));
  await writeFile(path, picture);
  console.log(`${path}: ${Math.round(picture.length / 1000)} kB`);
}

/**
 * Writes a picture with a palette: a third of the size, and no difference that a reader sees.
 * @param {import("playwright-core").Page} page The browser decodes the picture.
 * @param {Buffer} png
 */
async function reduceColors(page, png) {
  const blank = await page.context().newPage();
  const { width, height, palette, indexes } = await blank.evaluate(async ({ base64, most, same }) => {
    const bitmap = await createImageBitmap(new Blob([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))], { type: "image/png" }));
    const { width, height } = bitmap;
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d");
    context.drawImage(bitmap, 0, 0);
    const { data } = context.getImageData(0, 0, width, height);
    const colorAt = (at) => (data[4 * at] << 16) | (data[4 * at + 1] << 8) | data[4 * at + 2];
    const distance = (a, b) => ((a >> 16) - (b >> 16)) ** 2 + (((a >> 8) & 255) - ((b >> 8) & 255)) ** 2 + ((a & 255) - (b & 255)) ** 2;
    const counts = new Map();
    for (let at = 0; at < width * height; at += 1) counts.set(colorAt(at), (counts.get(colorAt(at)) ?? 0) + 1);
    const byCount = [...counts].sort(([, a], [, b]) => b - a).map(([color]) => color);
    const palette = [];
    for (const color of byCount) if (palette.length < most && palette.every((one) => distance(one, color) > (palette.length < 32 ? 0 : same))) palette.push(color);
    const nearest = new Map(byCount.map((color) => [color, palette.reduce((best, one, at) => (distance(one, color) < distance(palette[best], color) ? at : best), 0)]));
    let indexes = "";
    for (let at = 0; at < width * height; at += 1) indexes += String.fromCharCode(nearest.get(colorAt(at)));
    return { width, height, palette, indexes: btoa(indexes) };
  }, { base64: png.toString("base64"), most: COLORS_MAX, same: SAME_COLOR });
  await blank.close();
  const pixels = Buffer.from(indexes, "base64");
  // Each line begins with its filter: none.
  const lines = Buffer.alloc((width + 1) * height);
  for (let row = 0; row < height; row += 1) pixels.copy(lines, row * (width + 1) + 1, row * width, (row + 1) * width);
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  // Eight bits for each index into the palette.
  header.set([8, 3, 0, 0, 0], 8);
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([signature, chunk("IHDR", header), chunk("PLTE", Buffer.from(palette.flatMap((color) => [color >> 16, (color >> 8) & 255, color & 255]))), chunk("IDAT", deflateSync(lines, { level: 9 })), chunk("IEND", Buffer.alloc(0))]);
}

/**
 * @param {string} type
 * @param {Buffer} data
 */
function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const frame = Buffer.alloc(body.length + 8);
  frame.writeUInt32BE(data.length, 0);
  body.copy(frame, 4);
  frame.writeUInt32BE(crc32(body), body.length + 4);
  return frame;
}
