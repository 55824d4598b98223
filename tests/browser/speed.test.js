/**
 * Performance: opening ten thousand activities, and drawing five hundred changes a second.
 *
 * Measured times are printed only: test machines differ from those of users. PROSCENIUM_SECONDS is the duration of the
 * second test (default 6).
 */

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { Stage, limit, scrollTo, until } from "./stage.js";

/** The maximum number of elements in the document, for any length of the conversation. */
const ELEMENTS_MAX = 3000;

const DELTAS = 500;
const SECONDS = Number(process.env.PROSCENIUM_SECONDS ?? 6);
/** The duration of a frame, in milliseconds. */
const FRAME_MS = 1000 / 60;

let stage, page;
before(async () => void (stage = await Stage.open()), limit);
after(() => stage?.close());
afterEach(() => page?.close());

/** The heap size of the page after a garbage collection, in bytes. */
async function heapOf() {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("HeapProfiler.collectGarbage");
  const { metrics } = await devtools.send("Performance.enable").then(() => devtools.send("Performance.getMetrics"));
  await devtools.detach();
  return metrics.find(({ name }) => name === "JSHeapUsedSize").value;
}

/** Starts to count long tasks, animation frames, and changes of the conversation. */
const startMeasuring = () => page.evaluate(() => {
  const seen = (window.seen = { longest: 0, frames: 0, drawn: 0, start: performance.now(), deltas: [] });
  new MutationObserver(() => (seen.drawn += 1)).observe(document.querySelector("ps-conversation"), { childList: true, characterData: true, subtree: true });
  new PerformanceObserver((list) => list.getEntries().forEach(({ duration }) => (seen.longest = Math.max(seen.longest, duration)))).observe({ type: "longtask", buffered: true });
  let last = performance.now();
  const tick = (now) => {
    seen.frames += 1;
    seen.deltas.push(now - last);
    last = now;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
});

test("a run of 10,000 activities opens, and only rows near the viewport are in the document", limit, async (context) => {
  const facts = [{ type: "run.started" }];
  for (let at = 0; at < 5000; at += 1) {
    facts.push({ type: "text.final", messageId: `m${at}`, payload: { role: at % 2 ? "assistant" : "user", text: `Message ${at}` } });
    facts.push({ type: "tool.started", toolCallId: `c${at}`, payload: { toolName: "step" } }, { type: "tool.result", toolCallId: `c${at}`, payload: {} });
  }
  for (let at = 0; at < facts.length; at += 3000) await stage.publish("long", facts.slice(at, at + 3000));
  page = await stage.blank();
  await page.addInitScript(() => {
    window.longest = 0;
    new PerformanceObserver((list) => list.getEntries().forEach(({ duration }) => (window.longest = Math.max(window.longest, duration)))).observe({ type: "longtask", buffered: true });
  });
  const startedAt = Date.now();
  await stage.look({ run: "long" }, page);
  await until(page, () => [...document.querySelectorAll(".speech .body")].at(-1)?.textContent === "Message 4999");
  const [opened, elements, longest] = [Date.now() - startedAt, await page.locator("#stage *").count(), await page.evaluate(() => window.longest)];
  context.diagnostic(`10,000 activities: opened after ${opened} ms, the longest task took ${Math.round(longest)} ms, ${elements} elements`);
  assert.ok(elements < ELEMENTS_MAX, `${elements} elements`);
  // The beginning is reachable.
  await scrollTo(page, "start", "Message 0");
  assert.ok((await page.locator("#stage *").count()) < ELEMENTS_MAX);
  assert.deepEqual(page.problems, []);
});

test("500 deltas a second are drawn once per frame, and none is lost", limit, async (context) => {
  page = await stage.look({ run: "fast" });
  await until(page, () => document.getElementById("connection").dataset.kind === "live");
  await stage.publish("fast", [{ type: "run.started" }]);
  await until(page, () => document.querySelector("ps-runtime-status .run"));
  const before = await heapOf();
  await startMeasuring();
  const total = DELTAS * SECONDS;
  // Paragraphs have ends, as in real text.
  const words = Array.from({ length: total }, (_, at) => (at % 40 === 39 ? `${at}.\n\n` : `${at} `));
  let sent = 0;
  const start = Date.now();
  const body = new ReadableStream({
    async pull(controller) {
      if (sent === total) return controller.close();
      const due = Math.min(total, Math.max(sent + 1, Math.floor(((Date.now() - start) / 1000) * DELTAS)));
      const lines = words.slice(sent, due).map((text) => JSON.stringify({ type: "text.delta", messageId: "m", partId: "p", payload: { text } }));
      sent = due;
      controller.enqueue(new TextEncoder().encode(`${lines.join("\n")}\n`));
      await new Promise((resolve) => setTimeout(resolve, 4));
    },
  });
  const answer = await fetch(`${stage.url}/v1/runs/fast/facts`, { method: "POST", headers: { "content-type": "application/x-ndjson" }, body, duplex: "half" });
  assert.equal(answer.status, 200);
  // Paragraphs are elements: the text between them is not in the document.
  const expected = words.join("").replaceAll("\n\n", "").trimEnd();
  await until(page, (length) => document.querySelector(".speech .body")?.textContent.trimEnd().length === length, expected.length);
  const { longest, frames, drawn, took, deltas } = await page.evaluate(() => ({ ...window.seen, took: performance.now() - window.seen.start }));
  deltas.sort((a, b) => a - b);
  const late = deltas.filter((ms) => ms > 1.5 * FRAME_MS).length;
  const mib = (bytes) => (bytes / 1024 / 1024).toFixed(1);
  context.diagnostic(`${total} deltas in ${Math.round(took)} ms: ${Math.round((frames / took) * 1000)} frames a second, ${late} of ${frames} late, 95 % within ${deltas[Math.floor(deltas.length * 0.95)].toFixed(1)} ms, the longest task ${Math.round(longest)} ms, the heap ${mib(before)} MiB before and ${mib(await heapOf())} MiB after`);
  assert.equal((await page.locator(".speech .body").textContent()).trimEnd(), expected);
  assert.ok(drawn > 1 && drawn <= frames + 1, `${drawn} drawings in ${frames} frames`);
  assert.deepEqual(page.problems, []);
});
