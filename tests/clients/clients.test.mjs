/** Published client libraries, unchanged, against the real server. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { agUis } from "./ag-ui.mjs";
import { ai } from "./ai-sdk.mjs";
import { RECORDINGS, startServer } from "./harness.mjs";
import { runAll, table } from "./matrix.mjs";
import { eventSource, fetchEvents } from "./native.mjs";
import { tanstack } from "./tanstack.mjs";

const CLIENTS = [eventSource, fetchEvents, ...agUis, tanstack, ...ai].filter(({ name }) => name.includes(process.env.PROSCENIUM_CLIENT ?? ""));

/** The maximum number of failures in a message. */
const SHOWN_FAILURES = 20;

let server;
const rows = [];

before(async () => (server = await startServer()));
after(async () => {
  await server.stop();
  console.log(`\n${RECORDINGS.length} recordings; scenarios and failures by client:\n\n${table(rows)}\n`);
});

for (const client of CLIENTS) {
  test(`${client.name} shows every recording alike: streamed whole, joined in the middle, cut and resumed`, async () => {
    const row = await runAll(server.url, client);
    rows.push(row);
    const summary = row.failures.slice(0, SHOWN_FAILURES).map((failure) => failure.slice(0, 2000)).join("\n");
    assert.equal(row.failures.length, 0, `${row.failures.length} failures:\n${summary}`);
  });
}
