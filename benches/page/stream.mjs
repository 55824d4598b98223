#!/usr/bin/env node
/**
 * Streams 500 deltas a second for a minute into one message, with the events beside it, and prints the frames.
 *
 * Run it alone on the machine: `node --experimental-websocket benches/page/stream.mjs`. PROSCENIUM_BIN and CHROMIUM_BIN
 * as for the browser tests; PROSCENIUM_SECONDS is the duration (default 60).
 */

import { Stage, until } from "../../tests/browser/stage.js";
import { TASK_MS, report, start } from "./measure.mjs";

const SECONDS = Number(process.env.PROSCENIUM_SECONDS ?? 60);
const DELTAS = 500;

const stage = await Stage.open();
try {
  for (const panel of ["team", "events"]) await stream(panel);
} finally {
  await stage.close();
}

/** @param {string} panel The panel beside the conversation. */
async function stream(panel) {
  const run = `fast-${panel}`;
  await stage.publish(run, [{ type: "run.started" }]);
  const page = await stage.look({ run, panel });
  await until(page, () => document.querySelector("ps-conversation")?.isConnectedToView);
  await page.waitForTimeout(2000);
  await start(page);
  const total = DELTAS * SECONDS;
  let sent = 0;
  const began = Date.now();
  const body = new ReadableStream({
    async pull(controller) {
      if (sent === total) return controller.close();
      const due = Math.min(total, Math.max(sent + 1, Math.floor(((Date.now() - began) / 1000) * DELTAS)));
      // Paragraphs have ends, as in real text.
      const lines = Array.from({ length: due - sent }, (_, n) => JSON.stringify({ type: "text.delta", messageId: "m", partId: "p", payload: { text: (sent + n) % 40 === 39 ? `${sent + n}.\n\n` : `${sent + n} ` } }));
      sent = due;
      controller.enqueue(new TextEncoder().encode(`${lines.join("\n")}\n`));
      await new Promise((resolve) => setTimeout(resolve, 4));
    },
  });
  await fetch(`${stage.url}/v1/runs/${run}/facts`, { method: "POST", headers: { "content-type": "application/x-ndjson" }, body, duplex: "half" });
  await page.waitForTimeout(500);
  const { longest } = await report(page, `${DELTAS} deltas a second for ${SECONDS} s, panel ${panel}`);
  if (longest > TASK_MS) console.log(`  a task took longer than ${TASK_MS} ms`);
  await page.close();
}
