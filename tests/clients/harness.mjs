/**
 * What every test of a client needs: the real server, recordings to publish, a line that can be cut, and somebody who hears
 * what libraries complain about.
 *
 * PROSCENIUM_BIN names the binary (default target/debug/proscenium), PROSCENIUM_WORKER the example worker
 * (default target/debug/examples/worker). Nothing here waits for a time to pass; DEADLINE is for what hangs.
 */

import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { unsteady } from "../unsteady.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const BINARY = process.env.PROSCENIUM_BIN ?? here("../../target/debug/proscenium");
const WORKER = process.env.PROSCENIUM_WORKER ?? here("../../target/debug/examples/worker");

/** Everything at all its points, instead of what a gate has time for. */
export const FULL = process.env.PROSCENIUM_CLIENTS === "full";

/** How long a test waits for what must happen, in milliseconds. */
export const DEADLINE = 60_000;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for what must come, and fails by its name. */
export async function soon(what, promise, ms = DEADLINE) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited in vain for ${what}`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Waits until `holds` says so. */
export async function until(what, holds, ms = DEADLINE) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(5)) {
    const told = await holds();
    if (told) return told;
  }
  throw new Error(`waited in vain for ${what}`);
}

/** The real server on a free port, with everything in memory. */
export async function serve(...flags) {
  const child = spawn(BINARY, ["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--log", "warn", ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  return { ...(await started(child, /^listening on (http:\S+)$/)), child };
}

/** The example worker, for an agent of this name. */
export async function work(url, agent, paceMs = 5) {
  const child = spawn(WORKER, ["--url", url, "--agent", agent, "--pace-ms", String(paceMs)], { stdio: ["ignore", "pipe", "inherit"] });
  return { ...(await started(child, /at work for (\S+)$/, "SIGINT")), child };
}

async function started(child, line, signal = "SIGTERM") {
  let url;
  for await (const said of createInterface({ input: child.stdout })) {
    url = said.match(line)?.[1];
    break;
  }
  assert.ok(url, "its first line says where it is");
  child.stdout.resume();
  const ended = new Promise((resolve) => child.once("exit", resolve));
  return { url, stop: () => (child.kill(signal), ended) };
}

/** What a recording's folder is called as a source. */
const SOURCES = { "ag-ui": "ag-ui", awaken: "awaken", "awaken-canonical": "awaken", ethos: "ethos", "turn-runner": "turnrunner" };

/** Every recording that there is: `{ name, source, facts }`. PROSCENIUM_RECORDINGS, a part of a name, narrows it. */
export const RECORDINGS = Object.entries(SOURCES).flatMap(([folder, source]) =>
  readdirSync(here(`../recordings/${folder}`)).sort().map((file) => {
    const text = readFileSync(here(`../recordings/${folder}/${file}`), "utf8");
    const facts = text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
    return { name: `${folder}/${file.replace(/\.ndjson$/, "")}`, source, facts };
  }),
).filter(({ name }) => name.includes(process.env.PROSCENIUM_RECORDINGS ?? ""));

/** A request that has to go well; its JSON. */
export async function ask(url, init) {
  const answer = await fetch(url, init);
  const text = await answer.text();
  assert.ok(answer.ok, `${init?.method ?? "GET"} ${url}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

export const post = (url, body) => ask(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

/** Publishes facts of a run; those of a session that is named `thread`. */
export async function publish(url, { run, thread, agent, source = "agentui" }, facts) {
  if (facts.length === 0) return undefined;
  const query = new URLSearchParams({ source, ...(thread && { sessionId: thread }), ...(agent && { agentId: agent }) });
  return post(`${url}/v1/runs/${encodeURIComponent(run)}/facts?${query}`, facts);
}

/** Takes the next thing that is asked of an agent, as a worker does; it has to be one. */
export async function claim(url, agent) {
  const { controls } = await ask(`${url}/v1/agents/${agent}/controls/claim?wait=30`, { method: "POST" });
  assert.equal(controls.length, 1, "one control");
  return controls[0];
}

/** Says that a control was taken. */
export const ack = (url, { controlId, lease }) => post(`${url}/v1/controls/${controlId}/ack`, { lease });

/** What there is to see of a run: the native picture, which everything else is held against. */
export const activities = async (url, run) => (await ask(`${url}/v1/runs/${encodeURIComponent(run)}/activities`)).activities;

/** Chunks of streamed text, as one. */
export const joined = (text) => (Array.isArray(text) ? text.join("") : (text ?? ""));

/**
 * A line to the server that can be cut: what a proxy, a tunnel or a train does. Reconnection times that the server asks for are
 * shortened on the way, as long as they are: tests have no time to jitter. With PROSCENIUM_JITTER_MS (tests/unsteady.mjs) all of it is late by chance.
 */
export async function phoneLine(url) {
  const port = Number(new URL(url).port);
  const open = new Set();
  // `cutInside`: what comes next is cut in its middle. `isOver`: the last answer in pieces has come to its end, whether or not its reader has got there.
  const line = { requests: [], bytes: 0, cut: () => open.forEach((end) => end.destroy()), cutInside: false, isOver: false };
  const exchange = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const [end, other] of [[near, far], [far, near]]) {
      open.add(end);
      // What came before an end that was meant is still on its way.
      end.on("close", () => (open.delete(end), end.readableEnded || other.destroy()));
      end.on("error", () => {});
    }
    const [asked, told] = [near.pipe(unsteady()), far.pipe(unsteady())];
    asked.on("data", (bytes) => {
      for (const [head] of String(bytes).matchAll(/^(?:GET|POST) [^\0]*?\r\n\r\n/gm)) line.requests.push(head);
      far.write(bytes);
    });
    asked.on("end", () => far.end());
    told.on("end", () => near.end());
    told.on("data", (bytes) => {
      bytes = Buffer.from(bytes.toString("latin1").replace(/retry: \d{4}\n/, "retry: 0010\n"), "latin1");
      line.bytes += bytes.length;
      line.isOver = bytes.subarray(-5).equals(Buffer.from("0\r\n\r\n"));
      if (line.cutInside && bytes.includes("data: ")) {
        line.cutInside = line.isOver = false;
        // Nothing comes after the half.
        told.removeAllListeners("data").resume();
        near.write(bytes.subarray(0, bytes.length / 2), () => line.cut());
        return;
      }
      near.write(bytes);
    });
  });
  await new Promise((resolve) => exchange.listen(0, "127.0.0.1", resolve));
  line.url = `http://127.0.0.1:${exchange.address().port}`;
  line.close = () => (line.cut(), new Promise((resolve) => exchange.close(resolve)));
  /** Until nothing has come for a moment. */
  line.quiet = async () => {
    for (let known = -1; known !== line.bytes; await sleep(25)) known = line.bytes;
  };
  return line;
}

const hearing = new AsyncLocalStorage();
for (const how of ["warn", "error"]) {
  const say = console[how].bind(console);
  console[how] = (...words) => {
    const heard = hearing.getStore();
    if (heard) heard.push(`console.${how}: ${words.map((word) => (word instanceof Error ? word.stack : typeof word === "string" ? word : JSON.stringify(word))).join(" ")}`);
    else say(...words);
  };
}

/** Does something, and gives what libraries complained about meanwhile. */
export async function heard(does) {
  const complaints = [];
  await hearing.run(complaints, does);
  return complaints;
}

/** Does `does` with every one, several at a time. */
export async function each(list, atOnce, does) {
  const left = list.map((item, at) => [item, at]);
  const results = [];
  await Promise.all(Array.from({ length: atOnce }, async () => {
    for (let next = left.shift(); next; next = left.shift()) results[next[1]] = await does(...next);
  }));
  return results;
}

/** Numbers from 1 to `below`, at most `count`, evenly. */
export function points(below, count) {
  const all = Array.from({ length: count }, (_, n) => Math.round(((n + 1) * below) / (count + 1)));
  return [...new Set(all)].filter((point) => point > 0 && point < below);
}

/**
 * The streams of one screen, byte for byte, whatever library reads them.
 *
 * `fetch` is what the library is given. `through(does)` does something with it, and fails if the last stream that came of it broke
 * or stopped without an event that `isTerminal`: libraries take that for an end.
 */
export class Streams {
  list = [];

  /** `idsFirst`: where ids stand; `farewell`: what comes after the last event; `mayStop`: whether an end says nothing. */
  constructor({ isTerminal, idsFirst = false, farewell = "", mayStop = false }) {
    Object.assign(this, { isTerminal, idsFirst, farewell, mayStop });
    this.opened = new Promise((resolve) => (this.answered = resolve));
  }

  fetch = async (input, init) => {
    const response = await fetch(input, init);
    const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
    if (isStream || response.status === 204) this.answered();
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
    const body = tolerant(response.body.pipeThrough(through));
    return new Response(body, { status: response.status, headers: response.headers });
  };

  async through(does) {
    const before = this.list.length;
    await does();
    const last = this.list.at(-1);
    if (this.list.length > before && !this.isOver(last)) throw new Error(`the stream broke after ${JSON.stringify(last.text.slice(-300))}`);
  }

  isOver(stream) {
    const last = eventsOf(stream).at(-1);
    // Whoever was told of an error may hear no further.
    return last ? this.isTerminal(last) : stream.ended;
  }

  /** The last envelope that any of them has told of, by the cursors: a cursor's number is twice an envelope's, or one more; its fraction is of the next. */
  toldUpTo() {
    const numbers = this.list.flatMap(({ text }) => [...text.matchAll(/^id: [0-9a-f]+:(\d+)(?:\.\d+)?$/gm)].map(([, number]) => Number(number)));
    return Math.floor(Math.max(0, ...numbers) / 2);
  }

  /** What is wrong with the bytes: each of these breaks somebody's client. */
  wrong() {
    return this.list.flatMap((stream) => this.#wrongIn(stream).map((what) => `${stream.url}: ${what}`));
  }

  #wrongIn({ headers, text, ended }) {
    const wrong = [];
    if (text.includes("\r")) wrong.push("there is a carriage return");
    const whole = text.slice(0, text.lastIndexOf("\n\n") + 2).replace(/data: \[DONE\]\n\n$/, "");
    for (const frame of whole.split("\n\n").slice(0, -1)) {
      // A heartbeat is a line of its own, and never a frame: some clients take one without data for an empty message.
      const names = frame.split("\n").filter((line) => line !== ":").map((line) => line.slice(0, line.indexOf(":")));
      if (names.filter((name) => name === "data").length !== 1) wrong.push(`a frame of ${names.join(", ") || "nothing"}`);
      if (names.includes("event")) wrong.push("a frame with a name");
      const [data, id] = [names.indexOf("data"), names.indexOf("id")];
      if (id >= 0 && id < data !== this.idsFirst) wrong.push(`an id ${this.idsFirst ? "after" : "before"} its data`);
    }
    const cache = headers.get("cache-control") ?? "";
    if (!cache.includes("no-cache") || !cache.includes("no-transform")) wrong.push(`cache-control: ${cache}`);
    if (headers.get("x-accel-buffering") !== "no") wrong.push("no x-accel-buffering: no");
    if (headers.has("content-encoding")) wrong.push("it is encoded");
    const last = eventsOf({ text }).at(-1);
    if (ended && last && !this.mayStop && !this.isTerminal(last)) wrong.push(`it ended cleanly after ${JSON.stringify(last).slice(0, 200)}`);
    if (ended && !text.endsWith(this.farewell)) wrong.push(`it ended without ${JSON.stringify(this.farewell)}`);
    return wrong;
  }
}

/** HttpAgent cancels what broke already, and leaves the rejection of that to nobody: here it would end the test. */
function tolerant(body) {
  const getReader = body.getReader.bind(body);
  body.getReader = (...how) => {
    const reader = getReader(...how);
    const cancel = reader.cancel.bind(reader);
    reader.cancel = (why) => cancel(why).catch(() => {});
    return reader;
  };
  return body;
}

/** The events of a stream that came whole. */
export const eventsOf = ({ text }) =>
  text.split("\n\n").slice(0, -1).flatMap((frame) => frame.split("\n")).filter((line) => line.startsWith("data: {")).map((line) => JSON.parse(line.slice(6)));

/** All that is said in a run, by its native activities, in the order in which each part appeared; by these roles. */
export function spoken(shown, roles = ["user", "assistant"]) {
  const said = shown.flatMap(({ activityType, opened, content }) => {
    if (activityType === "message" && roles.includes(content.role)) return content.parts.map((part) => [part.opened, joined(part.text)]);
    return activityType === "reasoning" ? [[opened, joined(content.text)]] : [];
  });
  return said.sort(([a], [b]) => a - b).map(([, text]) => text).filter(Boolean);
}
