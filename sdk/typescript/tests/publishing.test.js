/** After a producer published, the server has everything, once, in order. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { connect, Problem, Producer, QueueFull, Rejected, Run, Store, textOf, Unreachable } from "proscenium-client";
import { seededRandom, startProxy, startServer, waitFor } from "./harness.js";

const server = await startServer();
const PRODUCER = fileURLToPath(new URL("numbered-producer.js", import.meta.url));
const fact = (text) => ({ type: "text.delta", messageId: "m", payload: { text: `${text}` } });
const numbers = (count) => Array.from({ length: count }, (_, number) => `${number}`);
const open = (run, options = {}) => new Run({ base: server.url, run, ...options });

test("a block publishes the start, its facts and the end, and a page shows them", async () => {
  const store = new Store();
  const page = connect({ base: server.url, run: "block" }, store);
  const result = await open("block", { session: "s1", agent: "writer" }).during(async (run) => {
    run.userMessage("Which tide?", "u1");
    const message = run.message("a1");
    message.reasoning("The user wants a table.");
    message.text("High ");
    message.text("water.");
    message.close();
    return 42;
  });
  assert.equal(result, 42);
  const events = await server.events("block");
  assert.deepEqual(events.map(({ type }) => type), ["run.status", "text.final", "run.started", "reasoning.delta", "reasoning.summary", "text.delta", "text.delta", "text.final", "run.finished"]);
  assert.deepEqual([...new Set(events.map(({ sessionId, agentId }) => `${sessionId} ${agentId}`))], ["s1 writer"]);
  await waitFor("the end on the page", () => page.state.kind === "ended");
  page.close();
  const shown = store.sorted(({ activityType }) => activityType === "message").map(({ content }) => textOf(content.parts[0].text));
  assert.deepEqual(shown, ["Which tide?", "High water."]);
});

test("an exception fails the run, and an abort cancels it", async () => {
  await assert.rejects(open("throws").during(() => { throw new RangeError("too far"); }), RangeError);
  await assert.rejects(open("aborts").during(() => AbortSignal.abort().throwIfAborted()), { name: "AbortError" });
  const [run] = await server.activities("throws", "run");
  assert.deepEqual(run.content.error, { code: "RangeError", message: "too far" });
  assert.deepEqual([await server.status("throws"), await server.status("aborts")], ["failed", "cancelled"]);
});

test("a run with an open action waits, and another block continues it", async () => {
  const action = await open("waits").during((run) => run.requireAction("tool_approval", "May I?", { risk: "high" }));
  assert.equal(await server.status("waits"), "waiting");
  await open("waits").continuing().during((run) => run.resolveAction(action, "approved"));
  const [run] = await server.activities("waits", "run");
  assert.deepEqual([run.content.status, run.content.attempt], ["completed", 1]);
  const [{ content }] = await server.activities("waits", "action");
  assert.deepEqual([content.outcome, content.risk], ["approved", "high"]);
});

test("lost answers lose and double nothing", async () => {
  const proxy = await startProxy(server.url);
  proxy.losses = 3;
  const run = open("lossy", { base: proxy.url });
  await run.during(async () => {
    for (const number of numbers(20_000)) {
      await run.drain();
      run.publish(fact(number));
    }
  });
  assert.equal(proxy.losses, 0);
  assert.deepEqual(await server.texts("lossy"), numbers(20_000));
  assert.ok(run.counters.repeated > 0, "the server had facts whose answer was lost");
  assert.equal(run.counters.acknowledged, 20_002);
});

for (const seed of [0, 1]) {
  test(`kills of the producer and of the server lose and double nothing (seed ${seed})`, async () => {
    const own = await startServer();
    const [facts, random] = [12_000, seededRandom(seed)];
    const points = Array.from({ length: 8 }, () => 100 * (1 + random(facts / 100 - 1))).sort((a, b) => a - b);
    const start = () => {
      const child = spawn(process.execPath, [PRODUCER, own.url, "killed", `${facts}`], { stdio: ["ignore", "pipe", "ignore"] });
      return { child, lines: createInterface({ input: child.stdout })[Symbol.asyncIterator](), ended: new Promise((resolve) => child.once("exit", resolve)) };
    };
    let producer = start();
    for (const point of points) {
      // The producer prints the facts in its queue, which the server has not acknowledged yet.
      for (let line = await producer.lines.next(); !line.done && Number(line.value) < point; ) line = await producer.lines.next();
      const victim = ["producer", "server", "both"][random(3)];
      if (victim !== "server") producer.child.kill("SIGKILL");
      if (victim !== "server") await producer.ended;
      if (victim !== "producer") await own.kill();
      if (victim !== "producer") await own.start();
      if (victim !== "server") producer = start();
    }
    assert.equal(await producer.ended, 0);
    assert.deepEqual(await own.texts("killed"), numbers(facts));
    assert.equal((await own.events("killed")).filter(({ type }) => type === "run.started").length, 1);
    assert.equal(await own.status("killed"), "completed");
  });
}

test("a restarted producer ends its predecessor", async () => {
  const old = open("fenced", { producerId: "p" });
  old.publish(fact("old"));
  await old.flush();
  const next = open("fenced", { producerId: "p" }).continuing();
  next.publish(fact("new"));
  await next.close();
  old.publish(fact("late"));
  await assert.rejects(old.flush(), (error) => error instanceof Problem && error.code === "producer_fenced");
  assert.throws(() => old.publish(fact("later")), Problem);
  assert.deepEqual(await server.texts("fenced"), ["old", "new"]);
  assert.deepEqual([old.counters.acknowledged, old.counters.dropped], [2, 2]);
});

test("resume tells how many facts the server has", async () => {
  const first = open("resumed", { producerId: "importer", epoch: 1 });
  assert.equal(await first.resume(), 0);
  first.publish(fact(0), fact(1));
  await first.close();
  const second = open("resumed", { producerId: "importer", epoch: 1 });
  assert.equal(await second.resume(), 2);
  await second.during((run) => run.publish(fact(2)));
  assert.deepEqual(await server.texts("resumed"), ["0", "1", "2"]);
});

test("a rejected fact is named and loses no other", async () => {
  const run = open("rejects");
  const work = run.during(() => run.publish(fact("a"), { payload: { text: "no type" } }, fact("b"), { type: "text.delta", messageId: "\n" }, fact("c")));
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof Rejected);
    assert.deepEqual(error.facts.map(({ number, problem }) => [number, problem.code]), [[2, "no_type"], [4, "bad_member"]]);
    assert.match(error.message, /fact 2 .*"no type".* 1 more facts/);
    return true;
  });
  assert.deepEqual(await server.texts("rejects"), ["a", "b", "c"]);
  assert.equal(await server.status("rejects"), "completed");
  assert.deepEqual([run.counters.published, run.counters.acknowledged, run.counters.rejected], [7, 5, 2]);
});

test("a refused producer throws the server's problem", async () => {
  const work = open("refused").during((run) => run.forward("no-such-source", [{ type: "x" }]));
  await assert.rejects(work, (error) => error instanceof Problem && error.code === "unknown_source" && error.detail.includes("agentui"));
});

test("an unreachable server ends the wait and counts the loss", async () => {
  const run = open("unreachable", { base: "http://127.0.0.1:1", stallTimeoutMs: 200 });
  run.publish(fact("a"));
  await assert.rejects(run.flush(), (error) => error instanceof Unreachable && error.waiting === 2);
  await assert.rejects(run.close(), Unreachable);
  assert.throws(() => run.publish(fact("b")), /closed/);
});

test("a full queue says so, and drain waits for room", async () => {
  const run = open("full");
  assert.throws(() => {
    for (let number = 0; ; number += 1) run.publish(fact(number));
  }, QueueFull);
  await run.drain();
  run.publish(fact("after"));
  await assert.rejects(run.close(), (error) => error instanceof Unreachable && error.lost === 1);
  const texts = await server.texts("full");
  assert.equal(texts.at(-1), "after");
  assert.deepEqual(texts.slice(0, -1), numbers(texts.length - 1));
});

test("without a server nothing happens", async () => {
  const run = open("disabled", { base: undefined });
  assert.equal(await run.resume(), 0);
  await run.during(() => run.tool("search").during((call) => call.reportProgress("running")));
  assert.equal(run.counters.published, 0);
});

test("an address or an id that cannot be is named", () => {
  for (const base of ["127.0.0.1:8787", "ftp://127.0.0.1"]) assert.throws(() => new Producer({ base, run: "r" }), /is not a server's address/);
  for (const [run, why] of [["", /run has 0 bytes/], ["x".repeat(257), /257 bytes/], ["a\nb", /control character/]]) {
    assert.throws(() => new Producer({ base: server.url, run }), why);
  }
  assert.throws(() => new Producer({ base: server.url, run: ".." }), /cannot be part of a URL path/);
});

test("an id may have any printable character", async () => {
  const name = "Grüße / 走 #1?%";
  await open(name, { session: "s & t" }).during(() => {});
  const { runs } = await server.get("/v1/runs", { limit: 1000 });
  assert.equal(runs.find(({ runId }) => runId === name).sessionId, "s & t");
});
