/**
 * The SSE parser, for any division into chunks.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../../../web-demo/client/sse-fetch.js";

/** Parses chunks in sequence. */
function parseChunks(...chunks) {
  const retries = [];
  const parser = new SseParser((ms) => retries.push(ms));
  return { events: chunks.flatMap((chunk) => parser.push(chunk)), retries };
}

const STREAM = [
  ":\n",
  "retry: 1500\ndata: {\"a\":1}\nid: e:1\n\n",
  ": a comment\n:\n",
  "data: {\"a\":2}\n\n",
  "data:one\r\ndata: two\r\rdata\n",
  "id: e:2\nevent: ignored\nnonsense: 1\nretry: soon\n\n",
  "id: alone\n\n",
  "data: größer 🦊\n\n",
  "data: unfinished\nid: e:9\n",
].join("");

const EVENTS = [
  { data: '{"a":1}', id: "e:1" },
  { data: '{"a":2}', id: undefined },
  { data: "one\ntwo", id: undefined },
  { data: "", id: "e:2" },
  { data: "größer 🦊", id: undefined },
];

test("events, comments and retries are parsed; an unfinished event is ignored", () => {
  assert.deepEqual(parseChunks(STREAM), { events: EVENTS, retries: [1500] });
});

test("the result is the same for any split in two, and for single characters", () => {
  for (let at = 0; at <= STREAM.length; at += 1) assert.deepEqual(parseChunks(STREAM.slice(0, at), STREAM.slice(at)), { events: EVENTS, retries: [1500] }, `split at ${at}`);
  assert.deepEqual(parseChunks(...STREAM), { events: EVENTS, retries: [1500] });
});

test("lines end in LF, CR or CRLF, even if CR and LF are in different chunks", () => {
  for (const end of ["\n", "\r", "\r\n"]) {
    const text = `data: a${end}data: b${end}id: 1${end}${end}data: c${end}${end}x${end}`;
    assert.deepEqual(parseChunks(...text).events, [{ data: "a\nb", id: "1" }, { data: "c", id: undefined }], JSON.stringify(end));
  }
});

test("a byte order mark is ignored at the start of the stream only", () => {
  assert.deepEqual(parseChunks("\uFEFFdata: a\n\n\uFEFFdata: b\n\n").events, [{ data: "a", id: undefined }]);
});

test("an id with a null character is ignored", () => {
  assert.deepEqual(parseChunks("data: a\nid: 1\0\n\n").events, [{ data: "a", id: undefined }]);
});

test("an event of megabytes in small chunks is parsed in linear time", () => {
  const text = `data: ${"x".repeat(8_000_000)}\n\n`;
  const chunks = Array.from({ length: Math.ceil(text.length / 1000) }, (_, n) => text.slice(n * 1000, (n + 1) * 1000));
  assert.equal(parseChunks(...chunks).events[0].data.length, 8_000_000);
});
