/**
 * How many facts a second one producer sends: `PROSCENIUM_BIN=…/proscenium node bench/throughput.js [facts]`.
 *
 * It starts a server with a store on disk, publishes tokens to one run, and stops the clock when all of them are
 * durable.
 */

import { Run } from "proscenium-client";
import { startServer } from "../tests/harness.js";

const facts = Number(process.argv[2] ?? 200_000);
const server = await startServer();
const begun = performance.now();
const run = new Run({ base: server.url, run: "throughput", session: "bench" });
await run.during(async () => {
  const message = run.message();
  for (let number = 0; number < facts; number += 1) {
    await run.drain();
    message.text(`token ${number} `);
  }
  message.close();
});
const seconds = (performance.now() - begun) / 1000;
console.log(`${run.counters.acknowledged} facts in ${seconds.toFixed(2)} s: ${Math.round(facts / seconds)} facts/s, all durable`);
