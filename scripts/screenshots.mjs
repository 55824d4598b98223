#!/usr/bin/env node
/**
 * Takes screenshots of the workbench while `proscenium demo` plays: `scripts/screenshots.mjs DIRECTORY`.
 *
 * PROSCENIUM_BIN is the binary (default target/debug/proscenium), CHROMIUM_BIN the browser. Run `npm ci` in web-demo first.
 */

import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const { chromium } = createRequire(new URL("../web-demo/package.json", import.meta.url))("playwright-core");

const BINARY = process.env.PROSCENIUM_BIN ?? fileURLToPath(new URL("../target/debug/proscenium", import.meta.url));
const BROWSER = process.env.CHROMIUM_BIN ?? "/usr/bin/chromium";
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
/** The time limit for the subject of a screenshot to appear, in milliseconds. */
const DEADLINE = 90_000;
const WIDE = { width: 1600, height: 1000 };
const NARROW = { width: 390, height: 844 };

const directory = process.argv[2];
if (!directory) {
  console.error("usage: scripts/screenshots.mjs DIRECTORY");
  process.exit(2);
}
await mkdir(directory, { recursive: true });

const demo = spawn(BINARY, ["demo", "--listen", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "ignore"] });
const profile = await mkdtemp(join(tmpdir(), "proscenium-screenshots-"));
let browser;
try {
  const url = await readListenUrl();
  browser = await chromium.launchPersistentContext(profile, { executablePath: BROWSER, args: FLAGS, viewport: WIDE });
  const page = await browser.newPage();
  page.setDefaultTimeout(DEADLINE);
  await page.goto(url);
  await page.locator("ps-conversation .speech .body").first().waitFor();
  await takeScreenshot(page, "conversation");
  // The story reaches a question that waits for the viewer.
  await page.locator('ps-conversation ps-action[data-status="pending"]').first().waitFor();
  await takeScreenshot(page, "question");
  await page.emulateMedia({ colorScheme: "dark" });
  await takeScreenshot(page, "question-dark");
  for (const tab of ["work", "artifacts", "timeline", "diagnostics"]) {
    await page.locator(`#tab-${tab}`).click();
    await takeScreenshot(page, tab);
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.locator("ps-conversation .inspect:visible").last().click();
  await page.locator("ps-inspector .envelope").first().waitFor();
  await takeScreenshot(page, "events");
  await page.locator("#compare").click();
  await page.locator("ps-audiences .audience-row").first().waitFor();
  await takeScreenshot(page, "audiences");
  await page.locator("#compare").click();
  await page.getByRole("button", { name: "Previous event" }).click();
  await page.locator("#past").waitFor();
  await takeScreenshot(page, "past");
  await page.getByRole("button", { name: "Back to live" }).click();
  await page.setViewportSize(NARROW);
  await page.locator("#tab-talk").click();
  await takeScreenshot(page, "narrow");
  await page.locator("#tab-team").click();
  await takeScreenshot(page, "narrow-team");
} finally {
  await browser?.close();
  demo.kill("SIGTERM");
  await rm(profile, { recursive: true, force: true });
}

/** Returns the URL that the demo prints. */
async function readListenUrl() {
  for await (const line of createInterface({ input: demo.stdout })) {
    const url = line.match(/^listening on (http:\S+)$/)?.[1];
    demo.stdout.resume();
    if (url) return url;
  }
  throw new Error("the demo did not start");
}

/** @param {import("playwright-core").Page} page @param {string} name */
async function takeScreenshot(page, name) {
  const path = join(directory, `${name}.png`);
  await page.screenshot({ path, animations: "disabled" });
  console.log(path);
}
