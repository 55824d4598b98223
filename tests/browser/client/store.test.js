/**
 * The store: the fold of frames into activities.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Store, keyOf, lengthOf, logOf, textFrom, textOf } from "../../../web-demo/client/store.js";

const snapshot = (more) => ({ frame: "ActivitySnapshot", runId: "r", sequence: 1, activityType: "message", activityId: "m", surface: "conversation", opened: 1, content: { parts: [] }, ...more });
const delta = (patch, more) => ({ frame: "ActivityDelta", runId: "r", sequence: 2, prev: 1, activityType: "message", activityId: "m", patch, ...more });
const add = (path, value) => ({ op: "add", path, value });

/** Records the changes of a store, as plain lists. */
function recordChanges(store) {
  const changes = [];
  store.subscribe(({ keys, runs, reset }) => changes.push({ keys: [...keys], runs: [...runs], reset }));
  return changes;
}

test("a snapshot adds an activity, and a delta replaces it by another object", () => {
  const store = new Store();
  const changes = recordChanges(store);
  assert.equal(store.take(snapshot({ agentId: "a", content: { parts: [{ text: ["Hel"] }], kept: {} } })), undefined);
  const before = store.get("r message m");
  assert.deepEqual(before, { runId: "r", activityType: "message", activityId: "m", surface: "conversation", agentId: "a", opened: 1, sequence: 1, content: { parts: [{ text: ["Hel"] }], kept: {} } });
  assert.equal(store.take(delta([add("/parts/0/text/-", "lo")])), undefined);
  const after = store.get("r message m");
  assert.deepEqual([after.sequence, after.opened, after.agentId, textOf(after.content.parts[0].text)], [2, 1, "a", "Hello"]);
  assert.deepEqual(after.content.parts[0].text, ["Hello"]);
  assert.equal(after.content.kept, before.content.kept);
  assert.deepEqual(before.content.parts[0].text, ["Hel"]);
  assert.deepEqual(changes, [{ keys: ["r message m"], runs: [], reset: false }, { keys: ["r message m"], runs: [], reset: false }]);
});

test("snapshots and deltas set the times; a delta may end or reopen an activity", () => {
  const store = new Store();
  const times = () => {
    const { openedAt, updatedAt, endedAt } = store.get("r message m");
    return [openedAt, updatedAt, endedAt];
  };
  const at = (n) => `2026-11-21T10:00:0${n}.000Z`;
  store.take(snapshot({ openedAt: at(1), updatedAt: at(1) }));
  assert.deepEqual(times(), [at(1), at(1), undefined]);
  const before = store.get("r message m");
  const change = (sequence, more) => store.take(delta([add("/n", sequence)], { sequence, at: at(sequence), ...more }));
  change(2);
  assert.deepEqual(times(), [at(1), at(2), undefined]);
  change(3, { ended: true });
  change(4);
  assert.deepEqual(times(), [at(1), at(4), at(3)]);
  change(5, { ended: false });
  assert.deepEqual([times(), "endedAt" in store.get("r message m")], [[at(1), at(5), undefined], false]);
  assert.deepEqual([before.updatedAt, "endedAt" in before], [at(1), false]);
  store.take(snapshot({ sequence: 6, openedAt: at(1), updatedAt: at(6), endedAt: at(6) }));
  assert.deepEqual(times(), [at(1), at(6), at(6)]);
  // The times of the source's clock come beside.
  const source = ({ sourceOpenedAt, sourceEndedAt } = store.get("r message m")) => [sourceOpenedAt, sourceEndedAt];
  assert.deepEqual(source(), [undefined, undefined]);
  change(7, { ended: false, sourceOpenedAt: at(3) });
  change(8, { ended: true, sourceEndedAt: at(4) });
  assert.deepEqual([source(), times()], [[at(3), at(4)], [at(1), at(8), at(8)]]);
  change(9, { ended: false });
  assert.deepEqual(source(), [at(3), undefined]);
  store.take(snapshot({ sequence: 10, openedAt: at(1), updatedAt: at(9), endedAt: at(9), sourceOpenedAt: at(3), sourceEndedAt: at(5) }));
  assert.deepEqual(source(), [at(3), at(5)]);
  // The same activity by REST is no change.
  const changes = recordChanges(store);
  const { runId: _, ...rest } = store.get("r message m");
  store.load("r", [rest], 10);
  assert.deepEqual(changes, [{ keys: [], runs: ["r"], reset: false }]);
});

test("streamed text is joined as on the server; lists of custom activities are not", () => {
  const cases = [
    ["message", { parts: [{ text: ["a"] }] }, "/parts/0/text/-", { parts: [{ text: ["ab"] }] }],
    ["reasoning", { text: ["a"] }, "/text/-", { text: ["ab"] }],
    ["plan", { text: ["a"] }, "/text/-", { text: ["ab"] }],
    ["tool-call-progress", { input_text: ["a"] }, "/input_text/-", { input_text: ["ab"] }],
    ["tool-call-progress", { output_text: ["a"] }, "/output_text/-", { output_text: ["ab"] }],
    ["tool-call-progress", { output: { text: ["a"] } }, "/output/text/-", { output: { text: ["a", "b"] } }],
    ["state", { state: { text: ["a"] } }, "/state/text/-", { state: { text: ["a", "b"] } }],
    ["board", { text: ["a"] }, "/text/-", { text: ["a", "b"] }],
  ];
  for (const [activityType, content, path, expected] of cases) {
    const store = new Store();
    store.take(snapshot({ activityType, content }));
    store.take(delta([add(path, "b")], { activityType }));
    assert.deepEqual(store.get(`r ${activityType} m`).content, expected, `${activityType} ${path}`);
  }
});

test("a text can be read as a whole or from an offset, regardless of its chunks", () => {
  const words = "größer 🦊 words that go on";
  for (const chunks of [[words], [...words], ["", words.slice(0, 9), "", words.slice(9)], words]) {
    assert.deepEqual([textOf(chunks), lengthOf(chunks)], [words, words.length]);
    for (let from = 0; from <= words.length + 1; from += 1) assert.equal(textFrom(chunks, from), words.slice(from), JSON.stringify([chunks, from]));
  }
  for (const value of [[], undefined, null, {}, 7]) assert.deepEqual([textOf(value), textFrom(value, 0), lengthOf(value)], ["", "", 0]);
});

test("a change that does not apply returns a fault and changes nothing", () => {
  const store = new Store();
  store.take(snapshot());
  const [before, changes] = [store.get("r message m"), recordChanges(store)];
  assert.deepEqual(store.take(delta([add("/a", 1), { op: "remove", path: "/b" }])), { key: "r message m", sequence: 2, why: 'operation 1 of the patch: member "b" does not exist' });
  assert.deepEqual(store.take(delta([add("", 1)])), { key: "r message m", sequence: 2, why: "the changed content is not an object" });
  assert.deepEqual(store.take(delta([add("/a", 1)], { activityId: "x" })), { key: "r message x", sequence: 2, why: "the activity does not exist in this store" });
  assert.equal(store.get("r message m"), before);
  assert.deepEqual([store.size, changes, store.run("r").sequence], [1, [], 1]);
  assert.equal(store.take(snapshot({ sequence: 3, content: { parts: [1] } })), undefined);
  assert.deepEqual(store.get("r message m").content, { parts: [1] });
});

test("a change that a snapshot contains is not applied again", () => {
  const store = new Store();
  store.take(snapshot({ sequence: 5, content: { n: [1] } }));
  for (const sequence of [4, 5]) assert.equal(store.take(delta([add("/n/-", 2)], { sequence })), undefined);
  assert.deepEqual(store.get("r message m").content, { n: [1] });
  store.take(delta([add("/n/-", 2)], { sequence: 6 }));
  assert.deepEqual(store.get("r message m").content, { n: [1, 2] });
});

test("activities are sorted by run, `opened` and key, regardless of their arrival", () => {
  const store = new Store();
  const addSnapshot = (runId, activityId, opened) => store.take(snapshot({ runId, activityId, opened }));
  addSnapshot("z", "a", 3);
  addSnapshot("z", "c", 1);
  addSnapshot("z", "b", 1);
  addSnapshot("a", "x", 2);
  const ids = () => store.sorted().map(({ runId, activityId }) => `${runId}/${activityId}`);
  assert.deepEqual(ids(), ["z/b", "z/c", "z/a", "a/x"]);
  addSnapshot("z", "d", 9);
  assert.deepEqual(ids(), ["z/b", "z/c", "z/a", "z/d", "a/x"]);
  // A changed `opened` moves an activity.
  addSnapshot("z", "b", 4);
  assert.deepEqual(ids(), ["z/c", "z/a", "z/b", "z/d", "a/x"]);
  assert.deepEqual(store.sorted((activity) => activity.opened > 3).map((activity) => activity.activityId), ["b", "d"]);
});

test("a reset removes the activities of its run only", () => {
  const store = new Store();
  store.take(snapshot());
  store.take(snapshot({ activityId: "n", opened: 2 }));
  store.take(snapshot({ runId: "other" }));
  store.take({ frame: "Hydrated", runId: "r", sequence: 2 });
  const changes = recordChanges(store);
  store.take({ frame: "Reset", runId: "r", sequence: 0, reason: "epoch" });
  assert.deepEqual(store.sorted().map((activity) => activity.runId), ["other"]);
  assert.deepEqual(changes, [{ keys: ["r message m", "r message n"], runs: ["r"], reset: true }]);
  assert.deepEqual([store.run("r").isHydrated, store.run("r").sequence], [false, 0]);
  store.take(snapshot({ sequence: 1 }));
  assert.equal(store.size, 2);
});

test("the state of a run: hydrated, ended, and reopened", () => {
  const store = new Store();
  assert.equal(store.run("r"), undefined);
  store.take(snapshot());
  assert.deepEqual(store.run("r"), { runId: "r", sequence: 1, isHydrated: false });
  store.take({ frame: "Hydrated", runId: "r", sequence: 1 });
  assert.equal(store.run("r").isHydrated, true);
  const changes = recordChanges(store);
  store.take({ frame: "End", runId: "r", sequence: 4, status: "failed" });
  assert.equal(store.run("r").ended, "failed");
  // A snapshot without `prev` only catches up; a live one reopens the run.
  store.take(snapshot({ sequence: 3 }));
  assert.equal(store.run("r").ended, "failed");
  store.take(snapshot({ sequence: 5, prev: 4 }));
  assert.equal(store.run("r").ended, undefined);
  assert.deepEqual(changes.map(({ runs }) => runs), [["r"], [], ["r"]]);
});

test("a batch notifies once, and a failing listener does not stop the others", async () => {
  const store = new Store();
  const failures = [];
  const [listeners] = [process.listeners("uncaughtException")];
  process.removeAllListeners("uncaughtException");
  process.once("uncaughtException", (error) => failures.push(error.message));
  store.subscribe(() => { throw new Error("mine"); });
  const changes = recordChanges(store);
  store.batch(() => {
    store.take(snapshot());
    store.batch(() => store.take(snapshot({ activityId: "n" })));
    store.take({ frame: "Hydrated", runId: "r", sequence: 1 });
    assert.deepEqual(changes, []);
  });
  assert.deepEqual(changes, [{ keys: ["r message m", "r message n"], runs: ["r"], reset: false }]);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(failures, ["mine"]);
  listeners.forEach((listener) => process.on("uncaughtException", listener));
});

test("an unsubscribed listener is not called, even if it is removed during a notification", () => {
  const store = new Store();
  const changes = [];
  const listener = (name) => () => changes.push(name);
  const unsubscribers = [];
  store.subscribe(() => { changes.push("first"); unsubscribers[0](); });
  unsubscribers.push(store.subscribe(listener("second")));
  const same = listener("twice");
  const unsubscribe = store.subscribe(same);
  store.subscribe(same);
  store.take(snapshot());
  unsubscribe();
  store.take(snapshot());
  assert.deepEqual(changes, ["first", "twice", "twice", "first", "twice"]);
});

test("`load` replaces a run; an equal activity stays the same object", () => {
  const store = new Store();
  store.take(snapshot({ content: { parts: [{ text: ["Hel"] }] } }));
  store.take(delta([add("/parts/0/text/-", "lo")]));
  store.take(snapshot({ activityId: "gone" }));
  store.take(snapshot({ runId: "other" }));
  const [same, changes] = [store.get("r message m"), recordChanges(store)];
  const loaded = ({ frame, runId, prev, ...rest }) => rest;
  store.load("r", [loaded(snapshot({ sequence: 2, content: { parts: [{ text: ["Hello"] }] } })), loaded(snapshot({ activityId: "new", opened: 7 }))], 7);
  assert.equal(store.get("r message m"), same);
  assert.deepEqual(store.sorted().map(keyOf), ["r message m", "r message new", "other message m"]);
  assert.deepEqual(changes, [{ keys: ["r message new", "r message gone"], runs: ["r"], reset: true }]);
  assert.deepEqual(store.run("r"), { runId: "r", sequence: 7, isHydrated: true });
  store.forget("r");
  assert.deepEqual([store.size, store.run("r")], [1, undefined]);
  store.clear();
  assert.deepEqual([store.size, store.runs()], [0, []]);
});

test("keys are unique for any ids and types", () => {
  const of = (runId, activityType, activityId, sessionId) => ({ runId, activityType, activityId, sessionId });
  const all = [
    of("r", "message", "m"), of("r message", "m", "x"), of("r", "message m", "x"), of("r", "message", "m x"), of("r%20message", "m", "x"),
    of("@s", "message", "m"), of("", "message", "m", "s"), of("%40s", "message", "m"), of("s", "message", "m"),
  ];
  assert.equal(new Set(all.map(keyOf)).size, all.length);
  assert.equal(keyOf(of("run-1/a:b", "tool-call-progress", "call 1")), "run-1/a:b tool-call-progress call 1");
  assert.equal(logOf({ sessionId: "s" }), "@s");
  const store = new Store();
  for (const { sessionId, ...activity } of all) store.take(snapshot({ ...activity, runId: activity.runId || undefined, ...(sessionId && { sessionId }) }));
  assert.equal(store.size, all.length);
  assert.deepEqual(store.get("@s message m"), { runId: "", sessionId: "s", activityType: "message", activityId: "m", surface: "conversation", opened: 1, sequence: 1, content: { parts: [] } });
});

test("ten thousand changing activities are found and sorted in time", () => {
  const store = new Store();
  store.batch(() => {
    for (let n = 0; n < 10_000; n += 1) store.take(snapshot({ activityId: `m${n}`, opened: n + 1, content: { parts: [{ text: ["a"] }] } }));
  });
  for (let n = 0; n < 500; n += 1) {
    store.take(delta([add("/parts/0/text/-", "b")], { activityId: `m${n * 20}`, sequence: n + 2 }));
    store.sorted();
  }
  assert.equal(store.sorted().length, 10_000);
  assert.equal(store.get("r message m9980").content.parts[0].text[0], "ab");
});
