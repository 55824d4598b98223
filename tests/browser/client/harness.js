/**
 * Helpers of the client's tests: the real server, random facts, a proxy that breaks at any byte, and a seeded random
 * generator.
 *
 * PROSCENIUM_BIN names the binary (default target/debug/proscenium). Nothing here waits for a fixed time; DEADLINE only
 * catches a hang.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer as createHttpServer } from "node:http";
import { connect as dial, createServer } from "node:net";
import { createInterface } from "node:readline";
import { afterEach } from "node:test";
import { fileURLToPath } from "node:url";
import { DEADLINE } from "../../deadline.mjs";
import { connect as connectClient } from "../../../web-demo/client/index.js";

export const BINARY = process.env.PROSCENIUM_BIN ?? fileURLToPath(new URL("../../../target/debug/proscenium", import.meta.url));

/** Resources to close after the current test. */
const openResources = new Set();

afterEach(() => {
  for (const resource of openResources) resource.close();
  openResources.clear();
});

/** Opens a connection that is closed after the test. */
export function connect(...options) {
  const connection = connectClient(...options);
  openResources.add(connection);
  return connection;
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `check` returns a truthy value, and returns it. */
export async function waitFor(what, check, ms = DEADLINE) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(5)) {
    const result = await check();
    if (result) return result;
  }
  throw new Error(`timed out waiting for ${what}`);
}

/** A seeded random generator: `random(n)` returns 0 to n - 1. */
export function seededRandom(seed) {
  let state = seed >>> 0;
  return (n) => {
    // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % n;
  };
}

/** Starts the real server on a free port, with a store in memory. */
export async function startServer(...flags) {
  const child = spawn(BINARY, ["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--log", "warn", ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  let base;
  for await (const proxy of createInterface({ input: child.stdout })) {
    base = proxy.match(/^listening on (http:\S+)$/)?.[1];
    break;
  }
  assert.ok(base, "the first line names the address");
  child.stdout.resume();
  return { base, port: Number(new URL(base).port), stop: () => (child.kill("SIGTERM"), ended) };
}

/** Publishes facts of a run or session, and waits until the server has stored them. */
export async function publish(base, run, facts, { query = "", headers = {}, of = "runs" } = {}) {
  const answer = await fetch(`${base}/v1/${of}/${encodeURIComponent(run)}/facts${query}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(facts),
  });
  const result = await answer.json();
  assert.equal(answer.status, 200, JSON.stringify(result));
  return result;
}

/** Reads the activities of a run from the server. */
export async function fetchActivities(base, run, audience, headers = {}) {
  const answer = await fetch(`${base}/v1/runs/${encodeURIComponent(run)}/activities?audience=${audience}`, { headers });
  assert.equal(answer.status, 200);
  return (await answer.json()).activities;
}

/** Returns the activities of a run in a store, with joined text chunks as in the server's answer. */
export function activitiesOf(store, run) {
  return store.sorted((activity) => activity.runId === run).map(({ runId, ...activity }) => ({ ...activity, content: joinChunks(activity) }));
}

const STREAMED_MEMBERS = ["text", "input_text", "output_text"];

function joinChunks({ activityType, content }) {
  const whole = (of) => Object.fromEntries(Object.entries(of).map(([name, value]) => [name, STREAMED_MEMBERS.includes(name) && value.length > 0 ? [value.join("")] : value]));
  if (activityType === "message") return { ...content, parts: content.parts.map(whole) };
  return ["reasoning", "plan", "tool-call-progress"].includes(activityType) ? whole(content) : content;
}

/** Sorts activities by `opened`, then by type and id. */
export function sortByOpened(activities) {
  return activities.slice().sort((a, b) => a.opened - b.opened || (`${a.activityType} ${a.activityId}` < `${b.activityType} ${b.activityId}` ? -1 : 1));
}

/** Waits until a store and the server have the same activities of a run. */
export async function waitForSameActivities(store, base, run, audience) {
  let result = [[], []];
  const same = async () => {
    result = [sortByOpened(activitiesOf(store, run)), sortByOpened(await fetchActivities(base, run, audience))];
    try {
      assert.deepEqual(...result);
      return true;
    } catch {
      return false;
    }
  };
  try {
    await waitFor("equal activities", same);
  } catch {
    assert.deepEqual(...result);
  }
}

/**
 * Starts a proxy that breaks connections: each passes as many bytes of the server as `budget` returns for it
 * (`Infinity`: it never breaks), and is then destroyed, even inside a frame.
 */
export async function startFlakyProxy(port, budget) {
  const open = new Set();
  const proxy = { cuts: 0, connections: 0, received: "" };
  const server = createServer((client) => {
    proxy.connections += 1;
    const upstream = dial(port, "127.0.0.1");
    let left = budget();
    for (const end of [client, upstream]) {
      open.add(end);
      end.on("close", () => (client.destroy(), upstream.destroy(), open.delete(end)));
      end.on("error", () => {});
    }
    client.on("data", (bytes) => (proxy.received += bytes.toString("latin1"), upstream.write(bytes)));
    upstream.on("data", (bytes) => {
      client.write(bytes.subarray(0, left));
      left -= bytes.length;
      if (left > 0) return;
      proxy.cuts += 1;
      // Flush the written bytes, then break.
      client.end(() => client.destroy());
      upstream.destroy();
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = () => open.forEach((end) => end.destroy());
  Object.assign(proxy, { base: `http://127.0.0.1:${server.address().port}`, cut, close: () => (cut(), server.close()) });
  openResources.add(proxy);
  return proxy;
}

/**
 * Starts a fake server: `answer(request, response, n)` handles the n-th request, from 0.
 */
export async function startFakeServer(answer) {
  const requests = [];
  const server = createHttpServer((request, response) => {
    requests.push({ url: request.url, headers: request.headers });
    answer(request, response, requests.length - 1);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const fake = { base: `http://127.0.0.1:${server.address().port}`, requests, close: () => (server.closeAllConnections(), server.close()) };
  openResources.add(fake);
  return fake;
}

/** Begins an SSE stream if needed, and writes frames to it: `[frame, cursor]`. */
export function writeFrames(response, frames) {
  if (!response.headersSent) response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(":\n");
  for (const [frame, cursor] of frames) response.write(`data: ${JSON.stringify(frame)}\n${cursor ? `id: ${cursor}\n` : ""}\n`);
}

/** Answers with a problem document, as the server does. */
export function sendProblem(response, status, code, headers = {}) {
  response.writeHead(status, { "content-type": "application/problem+json", ...headers });
  response.end(JSON.stringify({ type: "about:blank", title: code, status, code, detail: `no: ${code}` }));
}

/** Returns a random fact. The kinds cover every fold of the server. */
export function randomFact(random) {
  const pick = (list) => list[random(list.length)];
  const text = pick(["a", "the ", "größer", "🦊", "line\n", "data: x\n\n", "]}", "\\", " ", "x".repeat(random(400) + 1)]);
  const message = { messageId: `m${random(3)}`, partId: `p${random(2)}` };
  const call = { toolCallId: `c${random(4)}` };
  const task = { taskId: `t${random(3)}` };
  const custom = { activityType: "board", messageId: "board", audience: "user" };
  return pick([
    () => ({ type: "text.delta", ...message, payload: { text } }),
    () => ({ type: "text.delta", ...message, payload: { text } }),
    () => ({ type: "text.delta", ...message, payload: { text } }),
    () => ({ type: "text.final", messageId: `m${random(3)}`, partId: `q${random(50)}`, payload: { text } }),
    () => ({ type: "reasoning.delta", messageId: "think", partId: `r${random(2)}`, payload: { text } }),
    () => ({ type: "plan.delta", messageId: "plan", partId: "p", payload: { text } }),
    () => ({ type: "tool.started", ...call, payload: { toolName: text, input: { a: random(9) } } }),
    () => ({ type: "tool.args", ...call, payload: { inputText: text } }),
    () => ({ type: "tool.progress", ...call, audience: "user", payload: { progress: random(100) / 100, message: text } }),
    () => ({ type: "tool.output.delta", ...call, payload: { text } }),
    () => ({ type: "tool.progress", ...custom, payload: { activityType: "board", content: { cells: [random(9)], text: ["a"] } } }),
    () => ({ type: "action.required", actionId: `a${random(50)}`, payload: { kind: "clarification", message: text } }),
    () => ({ type: "action.resolved", actionId: `a${random(50)}`, payload: { outcome: "answered" } }),
    () => ({ type: "task.changed", ...task, payload: { status: pick(["running", "failed", "blocked"]), title: text, progress: random(10) / 10 } }),
    () => ({ type: "agent.changed", agentId: `agent${random(2)}`, payload: { runtimeStatus: pick(["running", "idle"]), agentName: text } }),
    () => ({ type: "state.snapshot", payload: { state: { n: random(9), text: ["a", "b"] } } }),
    () => ({ type: "state.delta", payload: { patch: [{ op: "add", path: "/text", value: [text, "b"] }, { op: "add", path: "/text/-", value: "c" }] } }),
    () => ({ type: "diagnostic.changed", payload: { message: text } }),
  ])();
}
