#!/usr/bin/env node
/**
 * Opens the demo's session in a browser with a new profile, and prints what the first load costs: the bytes of all
 * responses with their heads, and the first contentful paint.
 *
 * `node --experimental-websocket benches/page/first-load.mjs [--list]`. PROSCENIUM_BIN and CHROMIUM_BIN as for the browser
 * tests. The live stream counts until the first screen is complete.
 */

import { Stage, until } from "../../tests/browser/stage.js";

/** How long the page may still load files after its first screen is complete, in milliseconds. */
const SETTLE_MS = 3000;

const stage = await Stage.demo();
try {
  const page = await stage.blank();
  const network = await page.context().newCDPSession(page);
  await network.send("Network.enable");
  /** @type {Map<string, { url: string, bytes: number, isFinished: boolean }>} */
  const responses = new Map();
  let isComplete = false;
  network.on("Network.responseReceived", ({ requestId, response }) => responses.set(requestId, { url: response.url, bytes: response.encodedDataLength, isFinished: false }));
  network.on("Network.dataReceived", ({ requestId, encodedDataLength }) => {
    const response = responses.get(requestId);
    if (response && !isComplete) response.bytes += encodedDataLength;
  });
  network.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    const response = responses.get(requestId);
    // With its head. A stream does not finish.
    if (response) Object.assign(response, { bytes: encodedDataLength, isFinished: true });
  });
  await page.goto(`${stage.url}/#session=demo-1`);
  await until(page, () => document.querySelector("ps-conversation .speech") && document.querySelector("ps-team-roster:defined") && document.querySelector("ps-scrubber:defined"));
  isComplete = true;
  await page.waitForTimeout(SETTLE_MS);
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
  const all = [...responses.values()].filter(({ url }) => url.startsWith("http"));
  const files = all.filter(({ url }) => !new URL(url).pathname.startsWith("/v1/"));
  const sum = (some) => some.reduce((total, { bytes }) => total + bytes, 0);
  if (process.argv.includes("--list")) for (const { url, bytes, isFinished } of all) console.log(`${String(bytes).padStart(8)} ${url.replace(stage.url, "")}${isFinished ? "" : " (open)"}`);
  console.log(`first load: ${(sum(all) / 1000).toFixed(1)} kB in ${all.length} responses, ${(sum(files) / 1000).toFixed(1)} kB of them in ${files.length} files of the page`);
  console.log(`first contentful paint: ${Math.round(paint)} ms`);
  console.log(`problems: ${page.problems.length === 0 ? "none" : page.problems.join("; ")}`);
} finally {
  await stage.close();
}
