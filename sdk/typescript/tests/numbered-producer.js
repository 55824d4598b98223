/** Publishes the same facts at every start, for a test that kills it: URL, run, number of facts. */

import { writeSync } from "node:fs";
import { Run } from "proscenium-client";

const [base, run, facts] = process.argv.slice(2);
const producer = new Run({ base, run, producerId: "numbered", epoch: 1 });
const first = await producer.resume();
await producer.during(async () => {
  for (let number = first; number < Number(facts); number += 1) {
    producer.publish({ type: "text.delta", messageId: "m", payload: { text: `${number}` } });
    if (number % 100 === 0) writeSync(1, `${number}\n`);
    // Kills thus find everything from all of it acknowledged to nothing.
    if (number % 500 === 0) await producer.flush();
  }
});
