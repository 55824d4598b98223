/**
 * `@durable-streams/client`, unchanged, against the read side of Durable Streams: it catches up, polls and follows, and
 * resumes at every offset that it was given.
 *
 * TanStack AI's `durableStream` is in a package of its own that no registry has; it reads by the same requests.
 */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { DurableStream, FetchError, stream } from "@durable-streams/client";
import { publish, requestJson, startServer, within } from "./harness.mjs";

const text = (n, audience = "user") => ({ type: "text.delta", messageId: "m", audience, payload: { text: `${n} ` } });

/** A run of one commit for each fact, which goes on. */
async function writeRun(url, run, count = 5) {
  await publish(url, { run, thread: "s" }, [{ type: "run.started" }]);
  for (let n = 0; n < count; n += 1) await publish(url, { run }, [text(n), text(n, "internal")]);
}

const eventsOf = async (url, run) => (await requestJson(`${url}/v1/runs/${run}/events`)).events;

/** Reads a stream to its end, batch by batch. */
async function follow(options, onBatch = () => {}) {
  const items = [];
  const offsets = [];
  const read = await stream({ ...options, warnOnHttp: false });
  let wasLast;
  const last = new Promise((resolve) => (wasLast = resolve));
  const unsubscribe = read.subscribeJson(async (batch) => {
    for (const item of batch.items) items.push(item);
    if (batch.items.length) offsets.push({ count: items.length, offset: batch.offset });
    await onBatch({ items, batch });
    if (batch.streamClosed) wasLast();
  });
  // `closed` does not wait for the subscriber.
  await within("the end of the stream", last);
  unsubscribe();
  return { items, offsets, isClosed: read.streamClosed };
}

describe("the client of Durable Streams", () => {
  let server;
  before(async () => (server = await startServer()));
  after(() => server?.stop());

  test("catches up with a run and a session", async () => {
    await writeRun(server.url, "caught");
    for (const path of ["runs/caught", "sessions/s"]) {
      const read = await stream({ url: `${server.url}/v1/${path}/durable`, offset: "-1", live: false, warnOnHttp: false });
      const items = await read.json();
      assert.deepEqual(items.filter((item) => item.runId === "caught"), await eventsOf(server.url, "caught"));
      assert.equal(read.upToDate, true);
      assert.equal(read.streamClosed, false);
    }
    const handle = new DurableStream({ url: `${server.url}/v1/runs/caught/durable`, warnOnHttp: false });
    const head = await handle.head();
    assert.equal(head.exists, true);
    assert.match(head.offset, /^[0-9a-f]{16}_[0-9]{20}$/);
  });

  for (const live of ["long-poll", "sse"]) {
    test(`follows a run by ${live} to its end, and resumes at every offset`, async () => {
      const run = `live-${live}`;
      const url = `${server.url}/v1/runs/${run}/durable`;
      await writeRun(server.url, run, 1);
      let next = 1;
      // Each fact is published once its reader has the one before.
      const whole = await follow({ url, offset: "-1", live }, async ({ batch }) => {
        if (next > 6 || (batch.items.length === 0 && !batch.upToDate)) return;
        const facts = next < 6 ? [text(next), text(next, "internal")] : [{ type: "run.finished" }];
        next += 1;
        await publish(server.url, { run }, facts);
      });
      const events = await eventsOf(server.url, run);
      assert.deepEqual(whole.items, events);
      assert.equal(whole.isClosed, true);
      assert.ok(whole.offsets.length >= 5, JSON.stringify(whole.offsets));
      for (const { count, offset } of whole.offsets) {
        const rest = await follow({ url, offset, live });
        assert.deepEqual(rest.items, events.slice(count), `from ${offset}`);
        assert.equal(rest.isClosed, true);
      }
    });
  }

  for (const [format, last] of [["ag-ui", "RUN_FINISHED"], ["ai-sdk", "finish"]]) {
    test(`follows the events of ${format}, and resumes at every offset`, async () => {
      const run = `format-${format}`;
      const url = `${server.url}/v1/runs/${run}/durable?format=${format}`;
      await writeRun(server.url, run, 1);
      let next = 1;
      const whole = await follow({ url, offset: "-1", live: "long-poll" }, async ({ batch }) => {
        if (next > 4 || (batch.items.length === 0 && !batch.upToDate)) return;
        const facts = next < 4 ? [text(next), text(next, "internal")] : [{ type: "run.finished" }];
        next += 1;
        await publish(server.url, { run }, facts);
      });
      assert.equal(whole.items.at(-1).type, last);
      assert.equal(whole.isClosed, true);
      assert.ok(whole.offsets.length >= 3, JSON.stringify(whole.offsets));
      for (const { count, offset } of whole.offsets) {
        const rest = await follow({ url, offset, live: "long-poll" });
        assert.deepEqual(rest.items, whole.items.slice(count), `from ${offset}`);
      }
    });
  }

  test("gets 410 for an offset of another epoch, and 400 for another text", async () => {
    await writeRun(server.url, "gone");
    const read = (offset) => stream({ url: `${server.url}/v1/runs/gone/durable`, offset, live: false, warnOnHttp: false });
    const { offset } = await read("-1");
    await fetch(`${server.url}/v1/runs/gone`, { method: "DELETE" });
    await writeRun(server.url, "gone");
    await assert.rejects(read(offset), (error) => error instanceof FetchError && error.status === 410);
    await assert.rejects(read("7"), (error) => error instanceof FetchError && error.status === 400);
    assert.equal((await (await read("-1")).json()).length, 6);
  });
});
