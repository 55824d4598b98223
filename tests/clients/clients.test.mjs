/** The frontends that exist, unchanged, against the real server. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { agUis } from "./ag-ui.mjs";
import { ai } from "./ai-sdk.mjs";
import { RECORDINGS, serve } from "./harness.mjs";
import { play, table } from "./matrix.mjs";
import { eventSource, fetchEvents } from "./native.mjs";
import { tanstack } from "./tanstack.mjs";

const CLIENTS = [eventSource, fetchEvents, ...agUis, tanstack, ...ai].filter(({ name }) => name.includes(process.env.PROSCENIUM_CLIENT ?? ""));

/** Failures that are told in words. */
const SHOWN = 20;

let server;
const rows = [];

before(async () => (server = await serve()));
after(async () => {
  await server.stop();
  console.log(`\n${RECORDINGS.length} recordings, and what is wrong with how each client shows them:\n\n${table(rows)}\n`);
});

for (const client of CLIENTS) {
  test(`${client.name} shows every recording alike, streamed whole, joined on the way, cut and come back`, async () => {
    const row = await play(server.url, client);
    rows.push(row);
    const brief = row.failures.slice(0, SHOWN).map((failure) => failure.slice(0, 2000)).join("\n");
    assert.equal(row.failures.length, 0, `${row.failures.length} are wrong:\n${brief}`);
  });
}
