/**
 * What the client's tests need: the real server, something to say, a line that can be cut at any byte, and chance that can be
 * had again.
 *
 * PROSCENIUM_BIN names the binary (default target/debug/proscenium). Nothing here waits for a time to pass; DEADLINE is for
 * what hangs.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer as createHttpServer } from "node:http";
import { connect as dial, createServer } from "node:net";
import { createInterface } from "node:readline";
import { afterEach } from "node:test";
import { fileURLToPath } from "node:url";
import { connect as follow } from "../../../web-demo/client/index.js";

export const BINARY = process.env.PROSCENIUM_BIN ?? fileURLToPath(new URL("../../../target/debug/proscenium", import.meta.url));

/** How long a test waits for what must happen, in milliseconds. */
export const DEADLINE = 30_000;

/** What a test has opened, to be closed after it, however it ends. */
const opened = new Set();

afterEach(() => {
  for (const one of opened) one.close();
  opened.clear();
});

/** A connection that does not outlive its test. */
export function connect(...options) {
  const link = follow(...options);
  opened.add(link);
  return link;
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `holds` gives something, which it then gives. */
export async function until(what, holds, ms = DEADLINE) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(5)) {
    const told = await holds();
    if (told) return told;
  }
  throw new Error(`waited in vain for ${what}`);
}

/** Numbers that look like chance, and are the same for the same seed: `random(n)` is 0 to n - 1. */
export function chance(seed) {
  let state = seed >>> 0;
  return (n) => {
    // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % n;
  };
}

/** The real server on a free port, with everything in memory. */
export async function serve(...flags) {
  const child = spawn(BINARY, ["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--log", "warn", ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  let base;
  for await (const line of createInterface({ input: child.stdout })) {
    base = line.match(/^listening on (http:\S+)$/)?.[1];
    break;
  }
  assert.ok(base, "its first line says where it is");
  child.stdout.resume();
  return { base, port: Number(new URL(base).port), stop: () => (child.kill("SIGTERM"), ended) };
}

/** Says facts of a run, and waits until they are kept. */
export async function say(base, run, facts, { query = "", headers = {}, of = "runs" } = {}) {
  const answer = await fetch(`${base}/v1/${of}/${encodeURIComponent(run)}/facts${query}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(facts),
  });
  const told = await answer.json();
  assert.equal(answer.status, 200, JSON.stringify(told));
  return told;
}

/** What the server says there is to see of a run. */
export async function picture(base, run, audience, headers = {}) {
  const answer = await fetch(`${base}/v1/runs/${encodeURIComponent(run)}/activities?audience=${audience}`, { headers });
  assert.equal(answer.status, 200);
  return (await answer.json()).activities;
}

/** The same of a store, in the same words: text that came in chunks is one, as the server has it. */
export function shown(store, run) {
  return store.sorted((activity) => activity.runId === run).map(({ runId, ...activity }) => ({ ...activity, content: joined(activity) }));
}

const TEXTS = ["text", "input_text", "output_text"];

function joined({ activityType, content }) {
  const whole = (of) => Object.fromEntries(Object.entries(of).map(([name, value]) => [name, TEXTS.includes(name) && value.length > 0 ? [value.join("")] : value]));
  if (activityType === "message") return { ...content, parts: content.parts.map(whole) };
  return ["reasoning", "plan", "tool-call-progress"].includes(activityType) ? whole(content) : content;
}

/** A list in an order that does not depend on who sorted it. */
export function ordered(activities) {
  return activities.slice().sort((a, b) => a.opened - b.opened || (`${a.activityType} ${a.activityId}` < `${b.activityType} ${b.activityId}` ? -1 : 1));
}

/** Waits until a store shows just what the server says. */
export async function untilSame(store, base, run, audience) {
  let told = [[], []];
  const same = async () => {
    told = [ordered(shown(store, run)), ordered(await picture(base, run, audience))];
    try {
      assert.deepEqual(...told);
      return true;
    } catch {
      return false;
    }
  };
  try {
    await until("the picture", same, 20_000);
  } catch {
    assert.deepEqual(...told);
  }
}

/**
 * A line to the server that breaks: each connection carries as many bytes of the server's as `budget` gives for it (`Infinity`
 * for a line that holds), and is then destroyed, wherever in a frame that is.
 */
export async function breakingLine(port, budget) {
  const open = new Set();
  const line = { cuts: 0, connections: 0, asked: "" };
  const exchange = createServer((near) => {
    line.connections += 1;
    const far = dial(port, "127.0.0.1");
    let left = budget();
    for (const end of [near, far]) {
      open.add(end);
      end.on("close", () => (near.destroy(), far.destroy(), open.delete(end)));
      end.on("error", () => {});
    }
    near.on("data", (bytes) => (line.asked += bytes.toString("latin1"), far.write(bytes)));
    far.on("data", (bytes) => {
      near.write(bytes.subarray(0, left));
      left -= bytes.length;
      if (left > 0) return;
      line.cuts += 1;
      // What was written comes first, then the break.
      near.end(() => near.destroy());
      far.destroy();
    });
  });
  await new Promise((resolve) => exchange.listen(0, "127.0.0.1", resolve));
  const cut = () => open.forEach((end) => end.destroy());
  Object.assign(line, { base: `http://127.0.0.1:${exchange.address().port}`, cut, close: () => (cut(), exchange.close()) });
  opened.add(line);
  return line;
}

/**
 * A server that says what a test wants: `answer(request, response, n)` for the n-th request, from 0. `frames` writes them as
 * SSE.
 */
export async function pretend(answer) {
  const requests = [];
  const server = createHttpServer((request, response) => {
    requests.push({ url: request.url, headers: request.headers });
    answer(request, response, requests.length - 1);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const pretended = { base: `http://127.0.0.1:${server.address().port}`, requests, close: () => (server.closeAllConnections(), server.close()) };
  opened.add(pretended);
  return pretended;
}

/** Begins a stream, and says these frames: `[frame, cursor]`. */
export function stream(response, frames) {
  if (!response.headersSent) response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(":\n");
  for (const [frame, cursor] of frames) response.write(`data: ${JSON.stringify(frame)}\n${cursor ? `id: ${cursor}\n` : ""}\n`);
}

/** Says no, as the server does. */
export function refuse(response, status, code, headers = {}) {
  response.writeHead(status, { "content-type": "application/problem+json", ...headers });
  response.end(JSON.stringify({ type: "about:blank", title: code, status, code, detail: `no: ${code}` }));
}

/** A fact that somebody may say next; of everything that is folded in a way of its own. */
export function anyFact(random) {
  const pick = (list) => list[random(list.length)];
  const words = pick(["a", "the ", "größer", "🦊", "line\n", "data: x\n\n", "]}", "\\", " ", "x".repeat(random(400) + 1)]);
  const message = { messageId: `m${random(3)}`, partId: `p${random(2)}` };
  const call = { toolCallId: `c${random(4)}` };
  const task = { taskId: `t${random(3)}` };
  const custom = { activityType: "board", messageId: "board", audience: "user" };
  return pick([
    () => ({ type: "text.delta", ...message, payload: { text: words } }),
    () => ({ type: "text.delta", ...message, payload: { text: words } }),
    () => ({ type: "text.delta", ...message, payload: { text: words } }),
    () => ({ type: "text.final", messageId: `m${random(3)}`, partId: `q${random(50)}`, payload: { text: words } }),
    () => ({ type: "reasoning.delta", messageId: "think", partId: `r${random(2)}`, payload: { text: words } }),
    () => ({ type: "plan.delta", messageId: "plan", partId: "p", payload: { text: words } }),
    () => ({ type: "tool.started", ...call, payload: { toolName: words, input: { a: random(9) } } }),
    () => ({ type: "tool.args", ...call, payload: { inputText: words } }),
    () => ({ type: "tool.progress", ...call, audience: "user", payload: { progress: random(100) / 100, message: words } }),
    () => ({ type: "tool.output.delta", ...call, payload: { text: words } }),
    () => ({ type: "tool.progress", ...custom, payload: { activityType: "board", content: { cells: [random(9)], text: ["a"] } } }),
    () => ({ type: "action.required", actionId: `a${random(50)}`, payload: { kind: "clarification", message: words } }),
    () => ({ type: "action.resolved", actionId: `a${random(50)}`, payload: { outcome: "answered" } }),
    () => ({ type: "task.changed", ...task, payload: { status: pick(["running", "failed", "blocked"]), title: words, progress: random(10) / 10 } }),
    () => ({ type: "agent.changed", agentId: `agent${random(2)}`, payload: { runtimeStatus: pick(["running", "idle"]), agentName: words } }),
    () => ({ type: "state.snapshot", payload: { state: { n: random(9), text: ["a", "b"] } } }),
    () => ({ type: "state.delta", payload: { patch: [{ op: "add", path: "/text", value: [words, "b"] }, { op: "add", path: "/text/-", value: "c" }] } }),
    () => ({ type: "diagnostic.changed", payload: { message: words } }),
  ])();
}
