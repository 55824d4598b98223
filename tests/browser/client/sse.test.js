/**
 * Server-sent events, however they are cut into pieces.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../../../web-demo/client/sse.js";

/** What comes of these pieces, one after the other. */
function parsed(...pieces) {
  const retries = [];
  const parser = new SseParser((ms) => retries.push(ms));
  return { events: pieces.flatMap((piece) => parser.push(piece)), retries };
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

test("events, comments and retries are read; what is not finished is none", () => {
  assert.deepEqual(parsed(STREAM), { events: EVENTS, retries: [1500] });
});

test("it means the same wherever it is cut in two, or into single characters", () => {
  for (let at = 0; at <= STREAM.length; at += 1) assert.deepEqual(parsed(STREAM.slice(0, at), STREAM.slice(at)), { events: EVENTS, retries: [1500] }, `cut at ${at}`);
  assert.deepEqual(parsed(...STREAM), { events: EVENTS, retries: [1500] });
});

test("lines may end in LF, CR or both, also where the two come apart", () => {
  for (const end of ["\n", "\r", "\r\n"]) {
    const text = `data: a${end}data: b${end}id: 1${end}${end}data: c${end}${end}x${end}`;
    assert.deepEqual(parsed(...text).events, [{ data: "a\nb", id: "1" }, { data: "c", id: undefined }], JSON.stringify(end));
  }
});

test("a mark of byte order is no part of the first line, and is one later", () => {
  assert.deepEqual(parsed("\uFEFFdata: a\n\n\uFEFFdata: b\n\n").events, [{ data: "a", id: undefined }]);
});

test("an id with a null is none", () => {
  assert.deepEqual(parsed("data: a\nid: 1\0\n\n").events, [{ data: "a", id: undefined }]);
});

test("an event of megabytes in small pieces is read at once", () => {
  const text = `data: ${"x".repeat(8_000_000)}\n\n`;
  const pieces = Array.from({ length: Math.ceil(text.length / 1000) }, (_, n) => text.slice(n * 1000, (n + 1) * 1000));
  assert.equal(parsed(...pieces).events[0].data.length, 8_000_000);
});
