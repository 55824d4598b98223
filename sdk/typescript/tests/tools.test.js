/** Tools that report their progress, and functions that report their calls. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { currentCall, currentRun, observe, Rejected, Reporter, Run } from "proscenium-client";
import { toJson } from "../dist/json.js";
import { startServer } from "./harness.js";

const server = await startServer();

test("a call reports progress, an activity and its changes", async () => {
  await new Run({ base: server.url, run: "tools" }).during(async () => {
    const reporter = new Reporter({ base: server.url, run: "tools" });
    const call = reporter.call("call-1", "index_docs");
    call.reportProgress("running", "Starting indexing");
    call.reportProgress("running", "Indexed batch 3/10", 0.3, { loaded: 3, total: 10 });
    call.reportActivity("code-generation", { lines: ["fn hello() {}"] });
    call.reportActivityDelta("code-generation", { op: "add", path: "/lines/-", value: "hello();" });
    call.child("call-2", "read_file").reportProgress("done");
    await reporter.close();
    const [progress, child] = (await server.activities("tools", "tool-call-progress", "user")).map(({ content }) => content);
    const { schema, node_id, tool_name, message, progress: fraction, loaded, total } = progress;
    assert.deepEqual([schema, node_id, tool_name, message, fraction, loaded, total], ["tool-call-progress.v1", "call-1", "index_docs", "Indexed batch 3/10", 0.3, 3, 10]);
    assert.equal(child.parent_call_id, "call-1");
    const [activity] = await server.activities("tools", "code-generation", "user");
    assert.deepEqual(activity.content, { lines: ["fn hello() {}", "hello();"] });
  });
});

test("an emitted event is internal and does not decide who sees the call", async () => {
  await new Run({ base: server.url, run: "emits" }).during(async (run) => {
    run.call("hidden", "other").emit("128 documents", 12.5);
    await run.tool("index", undefined, "c").during((call) => {
      call.reportProgress("running");
      call.emit("128 documents", 12.5);
      call.output("line 1\n", "stderr");
    });
  });
  const [shown, all] = [await server.activities("emits", "tool-call-progress", "user"), await server.activities("emits", "tool-call-progress")];
  assert.deepEqual(shown.map(({ content }) => [content.call_id, content.status, content.progress]), [["c", "done", undefined]]);
  assert.equal(all[0].content.progress, 0.125);
});

test("an observed function reports its input, its output and its failure", async () => {
  const [run, recording] = Run.recording();
  const search = observe(async function search(query, limit = 1) {
    currentCall().reportProgress("running", "half", 0.5);
    return Array(limit).fill(query);
  }, { audience: "user" });
  const broken = observe(async () => { await search("inner"); throw new TypeError("no"); }, { name: "broken_tool" });
  await run.during(async () => {
    assert.equal(currentRun(), run);
    assert.deepEqual(await Promise.all([search("a", 2), search("b")]), [["a", "a"], ["b"]]);
    await assert.rejects(broken(), TypeError);
  });
  const tools = recording.facts.filter(({ type }) => type.startsWith("tool."));
  const of = (name) => tools.filter(({ toolCallId }) => toolCallId === tools.find(({ type, payload }) => type === "tool.started" && JSON.stringify(payload.input ?? payload.toolName) === JSON.stringify(name)).toolCallId);
  assert.deepEqual(of(["a", 2]).map(({ type }) => type), ["tool.started", "tool.progress", "tool.result"]);
  assert.deepEqual([of(["a", 2])[2].payload.output, of(["a", 2])[2].audience], [["a", "a"], "user"]);
  assert.deepEqual(of("b")[1].payload.content.tool_name, "search");
  assert.deepEqual(of("broken_tool")[1].payload, { toolName: "broken_tool", error: { code: "TypeError", message: "no" } });
  assert.equal(of("inner")[0].payload.parentToolCallId, of("broken_tool")[0].toolCallId);
});

test("without a run an observed function just runs, and a run can be named", async () => {
  const double = (run) => observe((number) => (currentCall().reportProgress("running"), 2 * number), { name: "double", run });
  assert.equal(await double()(2), 4);
  const [run, recording] = Run.recording();
  assert.equal(await double(run)(3), 6);
  await run.flush();
  assert.deepEqual(recording.facts.map(({ type }) => type), ["run.started", "tool.started", "tool.progress", "tool.result"]);
  assert.throws(() => observe(() => {}), /needs a name/);
});

test("reports never fail a tool, and flush says what was lost", async () => {
  const reporter = new Reporter({ base: server.url, run: "quiet" });
  let deep = [];
  for (let level = 0; level < 80; level += 1) deep = [deep];
  reporter.call("c", "t").reportActivity("deep", deep);
  reporter.call("c", "t").reportActivity("fine", "text");
  await assert.rejects(reporter.flush(), Rejected);
  await reporter.close();
  reporter.call("c", "t").reportProgress("done");
  assert.deepEqual([reporter.counters.acknowledged, reporter.counters.rejected, reporter.counters.dropped], [1, 1, 1]);
});

test("every value has a JSON form", () => {
  const cycle = { name: "cycle", list: [] };
  cycle.list.push(cycle, { cycle });
  const twice = { a: 1 };
  const values = [
    [{ n: 10n, m: new Map([["k", new Set([1])]]), at: new Date(0) }, { n: "10", m: { k: [1] }, at: "1970-01-01T00:00:00.000Z" }],
    [[NaN, Infinity, undefined, () => 1], [null, null, null, null]],
    [new RangeError("far"), { name: "RangeError", message: "far" }],
    [cycle, { name: "cycle", list: ["…", { cycle: "…" }] }],
    [[twice, twice], [twice, twice]],
    [["\ud800", "\\ud800", "😀"], ["\ufffd", "\\ud800", "😀"]],
    [undefined, null],
  ];
  for (const [value, form] of values) assert.deepEqual(JSON.parse(toJson(value)), form);
  assert.match(toJson({ toJSON() { throw new Error("cannot"); } }), /without a JSON form.*cannot/);
});
