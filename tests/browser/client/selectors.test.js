/**
 * Selectors: parts of a store that stay the same object until they change.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { isMessage, isPendingAction, runOf, select } from "../../../web-demo/client/selectors.js";
import { Store } from "../../../web-demo/client/store.js";

const snapshot = (activityType, activityId, content, sequence = 1) => ({ frame: "ActivitySnapshot", runId: "r", sequence, activityType, activityId, surface: "x", opened: sequence, content });

/** A store with a message and a pending action, and a selection of pending actions with the calls of its listener. */
function start() {
  const store = new Store();
  store.take(snapshot("message", "m", { parts: [] }));
  store.take(snapshot("action", "a", { kind: "tool_approval", status: "pending" }, 2));
  const waiting = select(store, isPendingAction);
  const calls = [];
  return { store, waiting, calls, unsubscribe: waiting.subscribe(() => calls.push(waiting.get().map(({ activityId }) => activityId))) };
}

test("a selection stays the same object until one of its activities changes", () => {
  const { store, waiting, calls } = start();
  const before = waiting.get();
  assert.deepEqual(before.map(({ activityId }) => activityId), ["a"]);
  store.take(snapshot("message", "m", { parts: [{ text: ["more"] }] }, 3));
  assert.equal(waiting.get(), before);
  store.take(snapshot("action", "b", { kind: "tool_approval", status: "pending" }, 4));
  assert.notEqual(waiting.get(), before);
  assert.deepEqual(calls, [["a", "b"]]);
});

test("an activity that no longer matches, or that is removed, leaves the selection", () => {
  const { store, waiting, calls } = start();
  store.take(snapshot("action", "a", { kind: "tool_approval", status: "resolved" }, 3));
  assert.deepEqual(calls, [[]]);
  store.take(snapshot("action", "b", { kind: "tool_approval", status: "pending" }, 4));
  store.clear();
  assert.deepEqual([calls.length, calls.at(-1), waiting.get()], [3, [], []]);
});

test("without listeners a selection reads the store at each call, and does not hold on to it", () => {
  const { store, waiting, calls, unsubscribe } = start();
  unsubscribe();
  store.take(snapshot("action", "b", { kind: "tool_approval", status: "pending" }, 3));
  assert.deepEqual(calls, []);
  const now = waiting.get();
  assert.deepEqual(now.map(({ activityId }) => activityId), ["a", "b"]);
  assert.equal(waiting.get(), now);
});

test("messages and the run itself have selectors", () => {
  const { store } = start();
  store.take(snapshot("run", "r", { status: "waiting" }, 3));
  assert.deepEqual(select(store, isMessage).get().map(({ activityId }) => activityId), ["m"]);
  assert.equal(select(store).get().length, 3);
  assert.deepEqual([runOf(store, "r").content.status, runOf(store, "other")], ["waiting", undefined]);
});
