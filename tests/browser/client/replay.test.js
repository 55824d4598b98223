/**
 * Replay: at every moment its store equals what the server folds for that moment, for a session and for a run.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Hydration, Problem, Replay, keyOf } from "../../../web-demo/client/index.js";
import { limit } from "../../deadline.mjs";
import { publish, startServer } from "./harness.js";


let server;
before(async () => {
  server = await startServer();
}, limit);
after(() => server?.stop());

const said = (text, messageId, more = {}) => ({ type: "text.final", messageId, payload: { text }, ...more });
const summaries = (activities) => activities.map((one) => [keyOf(one), one.sequence, JSON.stringify(one.content)]).sort();

/** Publishes two runs of a session in turns, a fact of its own log, and a run of a child session. */
async function publishSession(session) {
  await publish(server.base, `${session}-a`, [{ type: "run.started", sessionId: session }, said("one", "m1")]);
  await publish(server.base, `${session}-b`, [{ type: "run.started", sessionId: session }, { type: "diagnostic.changed", payload: { message: "hidden" } }]);
  await publish(server.base, `${session}-a`, [said("two", "m2")]);
  await publish(server.base, `${session}-child-run`, [{ type: "run.started", sessionId: `${session}-child`, parentSessionId: session }, said("from the child", "c1")]);
  await publish(server.base, `${session}-b`, [said("three", "m3")]);
}

test("a session is replayed over all its runs in commit order", limit, async () => {
  await publishSession("whole");
  const hydration = new Hydration({ base: server.base });
  const replay = new Replay(hydration, { session: "whole" });
  await replay.load();
  assert.deepEqual(replay.moments.map(({ runId, sequence }) => [runId, sequence]), [["whole-a", 1], ["whole-a", 2], ["whole-b", 1], ["whole-a", 3], ["whole-b", 3]]);
  // An event after a hidden one of its log counts both.
  assert.deepEqual(replay.moments.map(({ at }) => at), [1, 2, 3, 4, 6]);
  const { cursors } = await hydration.sessionEvents("whole");
  for (const index of [4, 0, 2, 3, 1]) {
    assert.equal(await replay.goTo(index), true);
    assert.equal(replay.index, index);
    const { activities } = await hydration.sessionActivities("whole", { at: cursors[index] });
    const expected = activities.map((one) => (one.runId ? one : { ...one, runId: "", sessionId: "whole" }));
    assert.deepEqual(summaries(replay.store.sorted()), summaries(expected), `at moment ${index}`);
  }
  assert.equal(replay.store.run("whole-b"), undefined, "the run did not exist yet");
  assert.deepEqual([replay.indexAt(0), replay.indexAt(3), replay.indexAt(5), replay.indexAt(99)], [-1, 2, 3, 4]);
  assert.equal(replay.indexAtTime(replay.moments[2].time - 1) < 2, true);
});

test("a replay with children merges their moments, and requests only what a step changes", limit, async () => {
  await publishSession("family");
  const paths = [];
  const hydration = new Hydration({ base: server.base, fetch: (url, options) => (paths.push(new URL(url).pathname), fetch(url, options)) });
  const replay = new Replay(hydration, { session: "family" });
  await replay.load();
  assert.equal(replay.moments.length, 5);
  replay.include(["family-child", "family-child"]);
  await replay.load();
  assert.deepEqual(replay.moments.map(({ runId }) => runId).filter((run) => run === "family-child-run").length, 2);
  assert.ok(replay.moments.every(({ time }, at, all) => at === 0 || time >= all[at - 1].time));
  const last = replay.moments.length - 1;
  await replay.goTo(last);
  assert.deepEqual(replay.store.runs().map(({ runId, sequence }) => [runId, sequence]).sort(), [["family-a", 3], ["family-b", 3], ["family-child-run", 2]]);
  paths.length = 0;
  await replay.goTo(last - 1);
  assert.equal(paths.length, 1, paths.join(" "));
  await publish(server.base, "family-b", [said("later", "m4")]);
  await replay.load();
  assert.equal(replay.moments.at(-1).sequence, 4);
  assert.equal(replay.index, last - 1, "later moments do not move the current one");
});

test("a replay of a run goes by its sequences", limit, async () => {
  await publishSession("single");
  const hydration = new Hydration({ base: server.base });
  const replay = new Replay(hydration, { run: "single-b" });
  await replay.load();
  assert.deepEqual(replay.moments.map(({ at }) => at), [1, 3]);
  await replay.goTo(1);
  assert.deepEqual(replay.store.runs(), [{ runId: "single-b", sequence: 3, isHydrated: true }]);
  const { activities } = await hydration.activities("single-b", { at: 3 });
  assert.deepEqual(summaries(replay.store.sorted()), summaries(activities.map((one) => ({ ...one, runId: "single-b" }))));
});

test("a later request replaces an earlier one, and an unknown session has no moments", limit, async () => {
  await publishSession("late");
  const replay = new Replay(new Hydration({ base: server.base }), { session: "late" });
  await replay.load();
  const [first, second] = await Promise.all([replay.goTo(0), replay.goTo(3)]);
  assert.deepEqual([first, second, replay.index], [false, true, 3]);
  await assert.rejects(() => replay.goTo(99), RangeError);

  const unknown = new Replay(new Hydration({ base: server.base }), { session: "nowhere" });
  await unknown.load();
  assert.equal(unknown.moments.length, 0);
  assert.throws(() => new Replay(new Hydration(), {}), TypeError);
  const refused = new Replay(new Hydration({ base: server.base, fetch: async () => Response.json({ status: 403, code: "forbidden", detail: "No." }, { status: 403 }) }), { run: "x" });
  await assert.rejects(() => refused.load(), Problem);
});

test("playback shortens long pauses and follows the producers' clocks", limit, async () => {
  await publish(server.base, "clock", [
    { type: "run.started", timestamp: "2026-01-01T00:00:00Z" },
    said("soon", "m1", { timestamp: "2026-01-01T00:00:01Z" }),
    said("a day later", "m2", { timestamp: "2026-01-02T00:00:00Z" }),
  ]);
  const replay = new Replay(new Hydration({ base: server.base }), { run: "clock" });
  await replay.load();
  assert.deepEqual(replay.moments.map(({ elapsed }) => elapsed), [0, 1000, 3000]);
  assert.deepEqual([replay.indexAtElapsed(0), replay.indexAtElapsed(999), replay.indexAtElapsed(2999), replay.indexAtElapsed(3000)], [0, 0, 1, 2]);
});
