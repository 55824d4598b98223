#!/usr/bin/env node
/**
 * Scrolls the conversation of 10,000 activities and the list of 100,000 events, and prints the frames.
 *
 * Run it alone on the machine: `node --experimental-websocket benches/page/scroll.mjs`. PROSCENIUM_BIN and CHROMIUM_BIN
 * as for the browser tests; PROSCENIUM_SECONDS is the duration of each measurement (default 10).
 */

import { Stage, until } from "../../tests/browser/stage.js";
import { report, scroll, start } from "./measure.mjs";

const SECONDS = Number(process.env.PROSCENIUM_SECONDS ?? 10);
const ACTIVITIES = 10_000;
const EVENTS = 100_000;
/** Facts of one request. */
const BATCH = 3000;

const stage = await Stage.open();
try {
  if (process.argv[2] !== "events") await conversation();
  await events();
} finally {
  await stage.close();
}

/** @param {string} run @param {object[]} facts */
async function publish(run, facts) {
  for (let at = 0; at < facts.length; at += BATCH) await stage.publish(run, facts.slice(at, at + BATCH));
}

async function conversation() {
  const facts = [{ type: "run.started" }];
  for (let at = 0; at < ACTIVITIES / 2; at += 1) {
    facts.push({ type: "text.final", messageId: `m${at}`, payload: { role: at % 2 ? "assistant" : "user", text: `Message ${at}. It has **some** words and \`code\`.` } });
    facts.push({ type: "tool.started", toolCallId: `c${at}`, payload: { toolName: "step" } }, { type: "tool.result", toolCallId: `c${at}`, payload: {} });
  }
  await publish("long", facts);
  const page = await stage.look({ run: "long", panel: "team" });
  await until(page, () => [...document.querySelectorAll(".speech .body")].some((one) => one.textContent.startsWith(`Message ${4999}`)));
  await page.waitForTimeout(2000);
  await start(page);
  await scroll(page, "ps-conversation .scroller", { pixels: -60, seconds: SECONDS });
  await report(page, `conversation of ${ACTIVITIES} activities, 60 px a frame`);
  await page.close();
}

async function events() {
  const facts = [{ type: "run.started" }];
  for (let at = 0; facts.length < EVENTS; at += 1) {
    const types = [{ type: "text.delta", messageId: `m${at % 500}`, payload: { text: `word ${at} ` } }, { type: "tool.progress", toolCallId: `c${at % 500}`, payload: { progress: 0.5 } }];
    facts.push(types[at % 2]);
  }
  await publish("many", facts);
  const page = await stage.look({ run: "many", panel: "events", audience: "internal" });
  await until(page, () => document.querySelectorAll("ps-events .event-row").length > 10);
  await until(page, () => document.querySelector("ps-events .events-older") !== null);
  const began = Date.now();
  await page.locator("ps-events").getByRole("button", { name: "Load all" }).click();
  await page.waitForFunction((all) => document.querySelector("ps-events .events-count")?.textContent.startsWith(all), EVENTS.toLocaleString("en"), { timeout: 120_000 });
  console.log(`${EVENTS} events loaded in ${((Date.now() - began) / 1000).toFixed(1)} s`);
  await page.locator("#expand").click();
  await page.waitForTimeout(2000);
  for (const pixels of [26, 400, 20_000]) {
    await start(page);
    await scroll(page, "ps-events .rows", { pixels: -pixels, seconds: SECONDS });
    await report(page, `${EVENTS} events, ${pixels} px a frame`);
  }
  const filtering = Date.now();
  await start(page);
  await page.locator("ps-events input[type=search]").fill("word 77");
  await until(page, () => /of 100,000/.test(document.querySelector("ps-events .events-count")?.textContent ?? ""));
  await report(page, `filter of ${EVENTS} events in ${Date.now() - filtering} ms`);
  await page.close();
}
