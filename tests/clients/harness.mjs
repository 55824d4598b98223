/**
 * Helpers of the client tests: the real server, the recordings, a proxy that can cut connections, and a collector of
 * the warnings of libraries.
 *
 * PROSCENIUM_BIN names the binary (default target/debug/proscenium), PROSCENIUM_WORKER the example worker (default
 * target/debug/examples/worker), PROSCENIUM_REPORTER the example of the library for tools. Nothing here waits for a fixed
 * time; DEADLINE only catches a hang.
 */

import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { execFile, spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import { json } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { DEADLINE } from "../deadline.mjs";
import { jitterStream } from "../jitter.mjs";
import { partOf } from "../part.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

export const BINARY = process.env.PROSCENIUM_BIN ?? here("../../target/debug/proscenium");
const WORKER = process.env.PROSCENIUM_WORKER ?? here("../../target/debug/examples/worker");
const REPORTER = process.env.PROSCENIUM_REPORTER ?? here("../../target/debug/examples/report_progress");

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for a promise, and fails with the name after the deadline. */
export async function within(what, promise, ms = DEADLINE) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`timed out waiting for ${what}`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Waits until `check` returns a truthy value, and returns it. */
export async function waitFor(what, check, ms = DEADLINE) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(5)) {
    const result = await check();
    if (result) return result;
  }
  throw new Error(`timed out waiting for ${what}`);
}

/** Starts the real server on a free port, with a store in memory unless a flag names a directory. */
export async function startServer(...flags) {
  const store = flags.includes("--data-dir") ? [] : ["--store", "memory"];
  const child = spawn(BINARY, ["serve", "--listen", "127.0.0.1:0", "--log", "warn", ...store, ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  return { ...(await readAddress(child, /^listening on (http:\S+)$/)), child };
}

/** Starts an AG-UI agent. `answer`: the events of a run for its input, between its beginning and its end, or with an end of their own. */
export async function startAgUiAgent(answer) {
  const server = createHttpServer(async (request, response) => {
    const input = await json(request);
    const [{ threadId, runId }, events] = [input, answer(input)];
    const end = events.at(-1)?.type === "RUN_FINISHED" ? [] : [{ type: "RUN_FINISHED" }];
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const event of [{ type: "RUN_STARTED" }, ...events, ...end]) response.write(`data: ${JSON.stringify({ threadId, runId, ...event })}\n\n`);
    response.end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `http://127.0.0.1:${server.address().port}/agent`, stop: () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))) };
}

/** Runs the example of the library for authors of tools, to its end. */
export const runReporter = (url) => promisify(execFile)(REPORTER, { env: { ...process.env, PROSCENIUM_URL: url } });

/** Asserts that `proscenium check` has nothing to say about a run. */
export async function assertClean(url, run) {
  const { code, stdout } = await promisify(execFile)(BINARY, ["check", run, "--url", url, "--strict"]).catch((error) => error);
  assert.equal(code, undefined, stdout);
}

/** Starts the example worker for an agent. */
export async function startWorker(url, agent, paceMs = 5) {
  const child = spawn(WORKER, ["--url", url, "--agent", agent, "--pace-ms", String(paceMs)], { stdio: ["ignore", "pipe", "inherit"] });
  return { ...(await readAddress(child, /at work for (\S+)$/, "SIGINT")), child };
}

async function readAddress(child, pattern, signal = "SIGTERM") {
  let url;
  for await (const line of createInterface({ input: child.stdout })) {
    url = line.match(pattern)?.[1];
    break;
  }
  assert.ok(url, "the first line names the address");
  child.stdout.resume();
  const ended = new Promise((resolve) => child.once("exit", resolve));
  return { url, stop: () => (child.kill(signal), ended) };
}

/** The source of each folder of recordings. */
const SOURCES = {
  "ag-ui": "ag-ui", awaken: "awaken", "awaken-canonical": "awaken", ethos: "ethos", "turn-runner": "turnrunner",
  "ai-sdk": "ai-sdk", "openai-responses": "openai-responses", acp: "acp", "claude-stream-json": "claude-stream-json", a2a: "a2a", langgraph: "langgraph",
};

/** All recordings: `{ name, source, facts }`. PROSCENIUM_RECORDINGS filters them by a part of the name. */
export const RECORDINGS = Object.entries(SOURCES).flatMap(([folder, source]) =>
  readdirSync(here(`../recordings/${folder}`)).sort().map((file) => {
    const text = readFileSync(here(`../recordings/${folder}/${file}`), "utf8");
    const facts = text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
    return { name: `${folder}/${file.replace(/\.ndjson$/, "")}`, source, facts };
  }),
).filter(({ name }) => name.includes(process.env.PROSCENIUM_RECORDINGS ?? ""));

/** An eighth of the recordings, another one for each shift, or those that PROSCENIUM_RECORDINGS names. */
export const partOfRecordings = (shift) => (process.env.PROSCENIUM_RECORDINGS ? RECORDINGS : partOf(RECORDINGS, 8, shift));

/** Sends a request that must succeed, and returns its JSON. */
export async function requestJson(url, init) {
  const response = await fetch(url, init);
  const text = await response.text();
  assert.ok(response.ok, `${init?.method ?? "GET"} ${url}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

export const post = (url, body) => requestJson(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

/** Publishes facts of a run; `thread` is the id of its session. */
export async function publish(url, { run, thread, agent, source = "agentui" }, facts) {
  if (facts.length === 0) return undefined;
  const query = new URLSearchParams({ source, ...(thread && { sessionId: thread }), ...(agent && { agentId: agent }) });
  return post(`${url}/v1/runs/${encodeURIComponent(run)}/facts?${query}`, facts);
}

/** Claims the next control of an agent, as a worker does. Exactly one must be pending. */
export async function claim(url, agent) {
  const { controls } = await requestJson(`${url}/v1/agents/${agent}/controls/claim?wait=30`, { method: "POST" });
  assert.equal(controls.length, 1, "one control");
  return controls[0];
}

/** Acknowledges a control. */
export const ack = (url, { controlId, lease }) => post(`${url}/v1/controls/${controlId}/ack`, { lease });

/** Reads the native activities of a run, with which every client's content is compared. */
export const fetchActivities = async (url, run) => (await requestJson(`${url}/v1/runs/${encodeURIComponent(run)}/activities`)).activities;

/** Joins chunks of streamed text. */
export const joinChunks = (text) => (Array.isArray(text) ? text.join("") : (text ?? ""));

/**
 * Starts a proxy that can cut its connections, as a tunnel or a train does. It shortens the server's reconnection
 * delays without changing their length in bytes. With PROSCENIUM_JITTER_MS (tests/jitter.mjs) it delays everything by
 * a random time.
 */
export async function startCuttableProxy(url) {
  const port = Number(new URL(url).port);
  const open = new Set();
  // `cutInside`: cut inside the next data. `hasEnded`: the last chunked response is complete, although its reader may
  // be behind.
  const proxy = { requests: [], bytes: 0, cut: () => open.forEach((end) => end.destroy()), cutInside: false, hasEnded: false };
  const server = createServer((client) => {
    const upstream = connect(port, "127.0.0.1");
    for (const [end, other] of [[client, upstream], [upstream, client]]) {
      open.add(end);
      // After a regular end, earlier bytes may still be in transit.
      end.on("close", () => (open.delete(end), end.readableEnded || other.destroy()));
      end.on("error", () => {});
    }
    const [toServer, toClient] = [client.pipe(jitterStream()), upstream.pipe(jitterStream())];
    toServer.on("data", (bytes) => {
      for (const [head] of String(bytes).matchAll(/^(?:GET|POST) [^\0]*?\r\n\r\n/gm)) proxy.requests.push(head);
      upstream.write(bytes);
    });
    toServer.on("end", () => upstream.end());
    toClient.on("end", () => client.end());
    toClient.on("data", (bytes) => {
      bytes = Buffer.from(bytes.toString("latin1").replace(/retry: \d{4}\n/, "retry: 0010\n"), "latin1");
      proxy.bytes += bytes.length;
      proxy.hasEnded = bytes.subarray(-5).equals(Buffer.from("0\r\n\r\n"));
      if (proxy.cutInside && bytes.includes("data: ")) {
        proxy.cutInside = proxy.hasEnded = false;
        // Drop everything after the first half.
        toClient.removeAllListeners("data").resume();
        client.write(bytes.subarray(0, bytes.length / 2), () => proxy.cut());
        return;
      }
      client.write(bytes);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  proxy.url = `http://127.0.0.1:${server.address().port}`;
  proxy.close = () => (proxy.cut(), new Promise((resolve) => server.close(resolve)));
  /** Waits until no bytes arrive for a moment. */
  proxy.quiet = async () => {
    for (let previous = -1; previous !== proxy.bytes; await sleep(25)) previous = proxy.bytes;
  };
  return proxy;
}

const complaintStorage = new AsyncLocalStorage();
for (const level of ["warn", "error"]) {
  const original = console[level].bind(console);
  console[level] = (...args) => {
    const complaints = complaintStorage.getStore();
    if (complaints) complaints.push(`console.${level}: ${args.map((word) => (word instanceof Error ? word.stack : typeof word === "string" ? word : JSON.stringify(word))).join(" ")}`);
    else original(...args);
  };
}

/** Runs an action, and returns the warnings that libraries printed meanwhile. */
export async function collectComplaints(action) {
  const complaints = [];
  await complaintStorage.run(complaints, action);
  return complaints;
}

/** Runs an action for every item, `atOnce` at a time. */
export async function mapConcurrently(items, atOnce, action) {
  const queue = items.map((item, at) => [item, at]);
  const results = [];
  await Promise.all(Array.from({ length: atOnce }, async () => {
    for (let next = queue.shift(); next; next = queue.shift()) results[next[1]] = await action(...next);
  }));
  return results;
}

/** Returns at most `count` evenly spaced numbers between 0 and `below`, both exclusive. */
export function spacedPoints(below, count) {
  const values = Array.from({ length: count }, (_, n) => Math.round(((n + 1) * below) / (count + 1)));
  return [...new Set(values)].filter((point) => point > 0 && point < below);
}

/**
 * Records the streams of one page, byte for byte, independent of the library that reads them.
 *
 * The library uses `fetch`. `track(action)` runs an action, and fails if its last stream broke or stopped without an
 * event for which `isTerminal` holds: libraries take that for a regular end.
 */
export class Streams {
  list = [];

  /**
   * `idsFirst`: ids precede data; `trailer`: the bytes after the last event; `mayEndSilently`: a stream may end
   * anywhere.
   */
  constructor({ isTerminal, idsFirst = false, trailer = "", mayEndSilently = false }) {
    Object.assign(this, { isTerminal, idsFirst, trailer, mayEndSilently });
    this.opened = new Promise((resolve) => (this.markOpened = resolve));
  }

  fetch = async (input, init) => {
    const response = await fetch(input, init);
    const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
    if (isStream || response.status === 204) this.markOpened();
    if (!isStream) return response;
    const stream = { url: String(input), headers: response.headers, text: "", ended: false };
    this.list.push(stream);
    const decoder = new TextDecoder();
    const through = new TransformStream({
      transform(bytes, on) {
        stream.text += decoder.decode(bytes, { stream: true });
        on.enqueue(bytes);
      },
      flush: () => void (stream.ended = true),
    });
    const body = ignoreCancelErrors(response.body.pipeThrough(through));
    return new Response(body, { status: response.status, headers: response.headers });
  };

  async track(action) {
    const before = this.list.length;
    await action();
    const last = this.list.at(-1);
    if (this.list.length > before && !this.hasEnded(last)) throw new Error(`the stream broke after ${JSON.stringify(last.text.slice(-300))}`);
  }

  hasEnded(stream) {
    const last = eventsOf(stream).at(-1);
    // After an error event a library may stop reading.
    return last ? this.isTerminal(last) : stream.ended;
  }

  /**
   * The sequence of the last envelope in any stream, by the cursors. A cursor's number is twice the sequence, or one
   * more; a fraction counts within the next envelope.
   */
  lastSequence() {
    const numbers = this.list.flatMap(({ text }) => [...text.matchAll(/^id: [0-9a-f]+:(\d+)(?:\.\d+)?$/gm)].map(([, number]) => Number(number)));
    return Math.floor(Math.max(0, ...numbers) / 2);
  }

  /** Returns the problems of the bytes. Each of these breaks a client. */
  findProblems() {
    return this.list.flatMap((stream) => this.#problemsIn(stream).map((problem) => `${stream.url}: ${problem}`));
  }

  #problemsIn({ headers, text, ended }) {
    const problems = [];
    if (text.includes("\r")) problems.push("it contains a carriage return");
    const whole = text.slice(0, text.lastIndexOf("\n\n") + 2).replace(/data: \[DONE\]\n\n$/, "");
    for (const frame of whole.split("\n\n").slice(0, -1)) {
      // A heartbeat is a comment line, not a frame: some clients take a frame without data for an empty message.
      const names = frame.split("\n").filter((line) => line !== ":").map((line) => line.slice(0, line.indexOf(":")));
      if (names.filter((name) => name === "data").length !== 1) problems.push(`a frame of ${names.join(", ") || "nothing"}`);
      if (names.includes("event")) problems.push("a frame with a name");
      const [data, id] = [names.indexOf("data"), names.indexOf("id")];
      if (id >= 0 && id < data !== this.idsFirst) problems.push(`an id ${this.idsFirst ? "after" : "before"} its data`);
    }
    const cache = headers.get("cache-control") ?? "";
    if (!cache.includes("no-cache") || !cache.includes("no-transform")) problems.push(`cache-control: ${cache}`);
    if (headers.get("x-accel-buffering") !== "no") problems.push("no x-accel-buffering: no");
    if (headers.has("content-encoding")) problems.push("it is encoded");
    const last = eventsOf({ text }).at(-1);
    if (ended && last && !this.mayEndSilently && !this.isTerminal(last)) problems.push(`it ended cleanly after ${JSON.stringify(last).slice(0, 200)}`);
    if (ended && !text.endsWith(this.trailer)) problems.push(`it ended without ${JSON.stringify(this.trailer)}`);
    return problems;
  }
}

/** HttpAgent cancels a broken reader and does not handle the rejection, which would end the test process. */
function ignoreCancelErrors(body) {
  const getReader = body.getReader.bind(body);
  body.getReader = (...args) => {
    const reader = getReader(...args);
    const cancel = reader.cancel.bind(reader);
    reader.cancel = (why) => cancel(why).catch(() => {});
    return reader;
  };
  return body;
}

/** Returns the complete events of a stream. */
export const eventsOf = ({ text }) =>
  text.split("\n\n").slice(0, -1).flatMap((frame) => frame.split("\n")).filter((line) => line.startsWith("data: {")).map((line) => JSON.parse(line.slice(6)));

/** Returns all texts of a run from its native activities, by the time at which each part appeared. */
export function textsInOrder(activities, roles = ["user", "assistant"]) {
  const parts = activities.flatMap(({ activityType, opened, content }) => {
    if (activityType === "message" && roles.includes(content.role)) return content.parts.map((part) => [part.opened, joinChunks(part.text)]);
    return activityType === "reasoning" ? [[opened, joinChunks(content.text)]] : [];
  });
  return parts.sort(([a], [b]) => a - b).map(([, text]) => text).filter(Boolean);
}
