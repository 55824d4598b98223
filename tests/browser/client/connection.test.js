/**
 * Connections to the real server: whenever a client joins, and wherever a connection breaks, store and server agree.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Store, textOf } from "../../../web-demo/client/index.js";
import { limit } from "../../deadline.mjs";
import { BINARY, randomFact, startFlakyProxy, seededRandom, connect, sortByOpened, fetchActivities, publish, startServer, activitiesOf, sleep, waitFor, waitForSameActivities } from "./harness.js";

const TRANSPORTS = ["sse", "websocket"];
/** Short delays, for fast tests. */
const FAST_RETRY = { retryMs: 4, retryMaxMs: 40 };

let server;
before(async () => (server = await startServer()), limit);
after(() => server?.stop());

/** Publishes random facts of a run in small batches, and then its end. */
async function publishStory(run, seed, count, { base = server.base, end = "run.finished", query = "" } = {}) {
  const random = seededRandom(seed);
  await publish(base, run, [{ type: "run.started" }], { query });
  for (let published = 0; published < count; ) {
    const facts = Array.from({ length: 1 + random(5) }, () => randomFact(random));
    await publish(base, run, facts);
    published += facts.length;
  }
  if (end) await publish(base, run, [{ type: end }]);
}

/** Records the states of a connection. */
function recordStates(connection) {
  const states = [];
  connection.subscribe((state) => states.push(state));
  return states;
}

for (const transport of TRANSPORTS) {
  test(`${transport}: a client that joins in the middle gets the same activities, for every audience`, limit, async () => {
    const run = `join-${transport}`;
    const clients = [];
    const publishing = publishStory(run, 1, 150);
    for (const audience of ["user", "dashboard", "internal", "user", "internal"]) {
      const store = new Store();
      clients.push({ audience, store, connection: connect({ base: server.base, run, audience, transport }, store) });
      await sleep(20);
    }
    await publishing;
    for (const { audience, store, connection } of clients) {
      await waitFor("the end", () => connection.state.kind === "ended");
      const { gaps, faults, status, resumes } = connection.state;
      assert.deepEqual({ gaps, faults, status, resumes }, { gaps: 0, faults: 0, status: "completed", resumes: 0 });
      assert.deepEqual(sortByOpened(activitiesOf(store, run)), sortByOpened(await fetchActivities(server.base, run, audience)));
      assert.ok(store.size > 5);
      assert.deepEqual([store.run(run).isHydrated, store.run(run).ended], [true, "completed"]);
    }
  });

  for (const seed of [1, 2, 3, 4]) {
    test(`${transport}: a connection that breaks inside frames loses and repeats nothing (${seed})`, limit, async () => {
      const random = seededRandom(seed);
      const run = `cut-${transport}-${seed}`;
      // Long enough for a handshake, short enough to break within almost every answer.
      const proxy = await startFlakyProxy(server.port, () => 300 + random(2500));
      const store = new Store();
      const connection = connect({ base: proxy.base, run, audience: "internal", transport, timing: FAST_RETRY }, store);
      const states = recordStates(connection);
      await publishStory(run, 100 + seed, 300, { end: "" });
      // The snapshots may exceed the budget of a connection, so break this one explicitly.
      proxy.cut();
      await waitFor("some breaks", () => proxy.cuts > 3);
      await publishStory(run, 200 + seed, 60);
      const stableProxy = await startFlakyProxy(server.port, () => Infinity);
      connection.cut();
      const rest = connect({ base: stableProxy.base, run, audience: "internal", transport, timing: FAST_RETRY, after: connection.state.cursor }, store);
      await waitFor("the end", () => rest.state.kind === "ended");
      assert.deepEqual(sortByOpened(activitiesOf(store, run)), sortByOpened(await fetchActivities(server.base, run, "internal")));
      assert.deepEqual([connection.state.gaps, connection.state.faults, rest.state.gaps, rest.state.faults], [0, 0, 0, 0]);
      assert.ok(states.some((state) => state.kind === "away"));
    });
  }

  test(`${transport}: several runs on one connection that breaks`, limit, async () => {
    const random = seededRandom(7);
    let breaks = 4;
    const runs = ["a", "b", "c"].map((name) => `several-${transport}-${name}`);
    const proxy = await startFlakyProxy(server.port, () => (breaks-- > 0 ? 800 + random(2000) : Infinity));
    const store = new Store();
    const connection = connect({ base: proxy.base, runs, audience: "internal", transport, timing: FAST_RETRY }, store);
    await Promise.all(runs.map((run, n) => publishStory(run, 300 + n, 100, { end: n === 0 ? "run.failed" : "" })));
    for (const run of runs) await waitForSameActivities(store, server.base, run, "internal");
    assert.deepEqual([proxy.cuts, connection.state.gaps, connection.state.faults], [4, 0, 0]);
    assert.deepEqual(new Set(store.sorted().map((activity) => activity.runId)), new Set(runs));
    if (transport === "websocket") assert.deepEqual(Object.keys(connection.state.cursors).sort(), runs);
  });

  test(`${transport}: a session delivers its own log, its children and later runs`, limit, async () => {
    const session = `lead-${transport}`;
    const store = new Store();
    const connection = connect({ base: server.base, session, children: true, transport, audience: "internal", timing: FAST_RETRY }, store);
    await waitFor("the connection", () => connection.state.kind === "live");
    await publish(server.base, session, [{ type: "session.opened", payload: { title: "Lead" } }], { of: "sessions" });
    await publishStory(`${session}-1`, 11, 40, { query: `?sessionId=${session}` });
    connection.cut();
    await publishStory(`${session}-2`, 12, 40, { query: `?sessionId=child-of-${session}&parentSessionId=${session}`, end: "" });
    connection.mend();
    for (const run of [1, 2]) await waitForSameActivities(store, server.base, `${session}-${run}`, "internal");
    assert.equal(store.get(`@${session} session ${session}`).content.title, "Lead");
    assert.deepEqual(store.runs().map((run) => run.runId || `@${run.sessionId}`), [`@${session}`, `${session}-1`, `${session}-2`]);
    assert.deepEqual([connection.state.kind, connection.state.gaps, connection.state.resumes], ["live", 0, 1]);
    connection.close();
  });

  test(`${transport}: after cut and mend the client gets the missed changes and counts a resume`, limit, async () => {
    const run = `mend-${transport}`;
    await publish(server.base, run, [{ type: "run.started" }, { type: "text.delta", messageId: "m", payload: { text: "one " } }]);
    const store = new Store();
    const connection = connect({ base: server.base, run, transport }, store);
    const states = recordStates(connection);
    const text = () => textOf(store.get(`${run} message m`)?.content.parts[0].text);
    await waitFor("the first text", () => text() === "one ");
    connection.cut();
    assert.deepEqual([connection.state.kind, connection.state.why, connection.state.lagMs], ["away", "The page disconnected.", null]);
    const cursor = connection.state.cursor;
    await publish(server.base, run, [{ type: "text.delta", messageId: "m", payload: { text: "two " } }]);
    await sleep(50);
    assert.equal(text(), "one ");
    const untouched = store.get(`${run} run ${run}`);
    connection.mend();
    await waitFor("the missed text", () => text() === "one two ");
    await publish(server.base, run, [{ type: "text.delta", messageId: "m", payload: { text: "three" } }]);
    await waitFor("the later text", () => text() === "one two three");
    assert.equal(store.get(`${run} run ${run}`), untouched, "the server does not send unchanged activities again");
    assert.deepEqual([connection.state.resumes, connection.state.gaps, connection.state.kind], [1, 0, "live"]);
    assert.notEqual(connection.state.cursor, cursor);
    const kinds = states.map((state) => state.kind).filter((kind, at, all) => kind !== all[at - 1]);
    assert.deepEqual(kinds, ["live", "away", "connecting", "live"]);
    connection.close();
  });

  test(`${transport}: a client may connect before the first fact, and ends with the run`, limit, async () => {
    const run = `early-${transport}`;
    const store = new Store();
    const connection = connect({ base: server.base, run, transport }, store);
    await waitFor("hydration", () => store.run(run)?.isHydrated);
    assert.deepEqual([store.size, connection.state.kind, connection.state.cursor], [0, "live", ""]);
    await publishStory(run, 21, 20, { end: "run.failed" });
    await waitFor("the end", () => connection.state.kind === "ended");
    assert.deepEqual([connection.state.status, connection.state.why], ["failed", "failed"]);
    // After the end, a client with the last cursor learns that nothing follows.
    const again = connect({ base: server.base, run, transport, after: connection.state.cursor }, new Store());
    await waitFor("the end again", () => again.state.kind === "ended");
    // Over SSE that is status 204; over a WebSocket the frames `Hydrated` and `End`.
    assert.equal(again.state.frames, transport === "sse" ? 0 : 2);
    again.mend();
    assert.equal(again.state.kind, "ended");
  });

  test(`${transport}: when a run is erased and begun again, the store removes its activities only`, limit, async () => {
    const runs = [`anew-${transport}`, `other-${transport}`];
    for (const run of runs) await publish(server.base, run, [{ type: "run.started" }, { type: "text.delta", messageId: "old", payload: { text: "old" } }]);
    const store = new Store();
    const connection = connect({ base: server.base, runs, transport, timing: FAST_RETRY }, store);
    await waitFor("both messages", () => runs.every((run) => store.get(`${run} message old`)));
    assert.equal((await fetch(`${server.base}/v1/runs/${runs[0]}`, { method: "DELETE" })).status < 300, true);
    if (transport === "websocket") {
      // Each run has a subscription of its own, which ends with its run. The others go on.
      await waitFor("the refusal", () => connection.state.refused?.[runs[0]]?.code === "erased");
      assert.deepEqual([store.get(`${runs[0]} message old`), store.get(`${runs[1]} message old`) !== undefined], [undefined, true]);
    } else await waitFor("the end of the one stream", () => connection.state.kind === "refused" && connection.state.problem?.code === "erased");
    await publish(server.base, runs[0], [{ type: "run.started" }, { type: "text.delta", messageId: "new", payload: { text: "new" } }]);
    connection.mend();
    await waitFor("the new message", () => store.get(`${runs[0]} message new`));
    for (const run of runs) await waitForSameActivities(store, server.base, run, "user");
    assert.equal(store.get(`${runs[0]} message old`), undefined);
    assert.equal(store.get(`${runs[1]} message old`).content.parts[0].text[0], "old");
    connection.close();
  });

  test(`${transport}: every envelope arrives once and in order on a connection that breaks`, limit, async () => {
    const random = seededRandom(9);
    const run = `events-${transport}`;
    const proxy = await startFlakyProxy(server.port, () => 600 + random(4000));
    const connection = connect({ base: proxy.base, run, audience: "internal", frames: "events", transport, timing: FAST_RETRY });
    const events = [];
    connection.listen((frame, cursor) => frame.frame === "Event" && events.push({ sequence: frame.event.sequence, cursor }));
    await publishStory(run, 31, 200);
    await waitFor("the end", () => connection.state.kind === "ended");
    const { lastSequence } = await (await fetch(`${server.base}/v1/runs/${run}`)).json();
    assert.deepEqual(events.map((event) => event.sequence), Array.from({ length: lastSequence }, (_, n) => n + 1));
    assert.ok(events.every((event) => /^[0-9a-f]+:\d+$/.test(event.cursor)));
    assert.ok(proxy.cuts > 3 && connection.state.resumes > 2 && connection.state.gaps === 0, JSON.stringify(connection.state));
  });

  test(`${transport}: a replay of all deltas gives the same activities`, limit, async () => {
    const run = `replay-${transport}`;
    await publishStory(run, 41, 120);
    const [store, deltas] = [new Store(), []];
    const connection = connect({ base: server.base, run, audience: "internal", replay: true, transport }, store);
    connection.listen((frame) => deltas.push(frame.frame));
    await waitFor("the end", () => connection.state.kind === "ended");
    assert.deepEqual(sortByOpened(activitiesOf(store, run)), sortByOpened(await fetchActivities(server.base, run, "internal")));
    assert.ok(deltas.filter((kind) => kind === "ActivityDelta").length > 30);
    assert.deepEqual([connection.state.gaps, connection.state.faults], [0, 0]);
  });

  test(`${transport}: a filter by surface causes no gaps`, limit, async () => {
    const run = `surfaces-${transport}`;
    const store = new Store();
    const connection = connect({ base: server.base, run, surfaces: ["conversation", "hitl"], transport }, store);
    await publishStory(run, 51, 120);
    await waitFor("the end", () => connection.state.kind === "ended");
    const all = await fetchActivities(server.base, run, "user");
    assert.deepEqual(sortByOpened(activitiesOf(store, run)), sortByOpened(all.filter(({ surface }) => surface === "conversation" || surface === "hitl")));
    assert.deepEqual([connection.state.gaps, store.size > 1, store.size < all.length], [0, true, true]);
  });

  test(`${transport}: after close no listener is called and the store does not change`, limit, async () => {
    const run = `close-${transport}`;
    await publish(server.base, run, [{ type: "run.started" }]);
    const store = new Store();
    const connection = connect({ base: server.base, run, transport }, store);
    await waitFor("the connection", () => store.size > 0);
    const states = [];
    connection.subscribe(() => states.push("state"));
    connection.listen(() => states.push("frame"));
    store.subscribe(() => states.push("store"));
    const publishing = publish(server.base, run, Array.from({ length: 50 }, () => ({ type: "text.delta", messageId: "m", payload: { text: "x" } })));
    connection.close();
    connection.mend();
    connection.cut();
    connection.close();
    await publishing;
    await sleep(200);
    assert.deepEqual(states, []);
    assert.deepEqual([connection.state.kind, connection.state.why], ["away", "The page closed the connection."]);
  });
}

test("ids with special characters are encoded in paths", limit, async () => {
  for (const [n, run] of ["a/b?c#d&e=f", "ä ö+%20", "..x", "a,b"].entries()) {
    await publish(server.base, run, [{ type: "run.started" }]);
    for (const options of [{ run }, { run, transport: "websocket" }, { runs: [run, `x${n}`], transport: "websocket" }]) {
      const store = new Store();
      const connection = connect({ base: server.base, ...options }, store);
      await waitFor(run, () => store.size === 1);
      assert.equal(store.sorted()[0].runId, run);
      connection.close();
    }
  }
  assert.throws(() => connect({ base: server.base, runs: ["a,b"] }), /cannot contain a comma/);
  // No path can name this id: a URL parser resolves it to the stream of several runs.
  const connection = connect({ base: server.base, run: ".." });
  await waitFor("the rejection", () => connection.state.kind === "refused");
  assert.equal(connection.state.why, '".." cannot be part of a URL path. Use another id.');
});

test("invalid options throw at once", () => {
  for (const options of [{}, { run: "a", session: "b" }, { run: "a", runs: ["b"] }]) assert.throws(() => connect({ base: "http://x", ...options }), /exactly one of run, session, runs and lists/);
  for (const runs of [[], Array.from({ length: 257 }, (_, n) => `r${n}`)]) assert.throws(() => connect({ base: "http://x", runs }), RangeError);
});

/* ── lists ── */

for (const transport of TRANSPORTS) {
  test(`${transport}: lists are followed through broken connections`, limit, async () => {
    const proxy = await startFlakyProxy(Number(new URL(server.base).port), () => 1500);
    const waiting = new Map();
    const connection = connect({ base: proxy.base, lists: { attention: true, agentId: `asker-${transport}` }, transport, timing: FAST_RETRY });
    connection.listen((frame) => {
      if (frame.frame === "Reset") waiting.clear();
      else if (frame.op === "put") waiting.set(frame.key, frame.entry);
      else if (frame.op === "remove") waiting.delete(frame.key);
    });
    const run = `lists-${transport}`;
    for (let n = 0; n < 6; n += 1) {
      await publish(server.base, run, [{ type: "run.started", agentId: `asker-${transport}` }, { type: "action.required", actionId: `a${n}`, payload: { kind: "tool_approval", title: `Number ${n}?` } }]);
      await waitFor("the decision", () => waiting.get(`run/${run}/a${n}`)?.title === `Number ${n}?`);
    }
    await publish(server.base, run, [{ type: "run.finished" }]);
    await waitFor("the end of all", () => waiting.size === 0);
    assert.ok(connection.state.resumes > 0, "the connection broke");
    connection.close();
    proxy.close();
  });
}

/* ── authentication ── */

async function withAuthServer(work) {
  const dir = await mkdtemp(join(tmpdir(), "proscenium-client-"));
  const key = join(dir, "key");
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"], { stdio: "ignore" });
  const server = await startServer("--auth-key", key);
  const token = (...rights) => execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", ...rights], { encoding: "utf8" }).trim();
  try {
    const headers = { authorization: `Bearer ${token("--can", "publish")}` };
    await work({ base: server.base, port: server.port, token, publishFacts: (run, facts) => publish(server.base, run, facts, { headers }) });
  } finally {
    await server.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

test("a token authenticates the connection, appears in no address, and is replaced after it expires", limit, () =>
  withAuthServer(async ({ port, token, publishFacts }) => {
    for (const transport of TRANSPORTS) {
      const run = `token-${transport}`;
      await publishFacts(run, [{ type: "run.started" }]);
      const proxy = await startFlakyProxy(port, () => Infinity);
      const tokens = [token("--can", "read", "--ttl", "2s"), token("--can", "read", "--ttl", "1h")];
      let calls = 0;
      const store = new Store();
      const connection = connect({ base: proxy.base, run, transport, timing: FAST_RETRY, token: async () => tokens[Math.min(calls++, 1)] }, store);
      await waitFor("the activities", () => store.size === 1);
      await waitFor("the newer token", () => connection.state.resumes === 1 && connection.state.kind === "live");
      assert.equal(calls, 2);
      await publishFacts(run, [{ type: "text.delta", messageId: "m", payload: { text: "still here" } }]);
      await waitFor("the later text", () => store.get(`${run} message m`));
      for (const address of proxy.received.matchAll(/^(?:GET|POST) (\S+)/gm)) assert.ok(!tokens.some((text) => address[1].includes(text)), address[1]);
      connection.close();
      proxy.close();
    }
  }));

test("a rejected client gets the problem and stops retrying", limit, () =>
  withAuthServer(async ({ base, token, publishFacts }) => {
    await publishFacts("r", [{ type: "run.started" }]);
    for (const transport of TRANSPORTS) {
      const proxy = { base, run: "r", transport, timing: FAST_RETRY };
      let calls = 0;
      const cases = [
        [{}, 401, "unauthenticated"],
        [{ token: () => (calls++, "nonsense") }, 401, "unauthenticated"],
        [{ token: () => token("--can", "read"), audience: "internal" }, 403, "forbidden"],
      ];
      for (const [options, status, code] of cases) {
        const connection = connect({ ...proxy, ...options }, new Store());
        await waitFor(`${transport} ${code}`, () => connection.state.kind === "refused");
        assert.deepEqual([connection.state.problem.status, connection.state.problem.code], [status, code], transport);
        assert.ok(connection.state.why.length > 10);
        connection.close();
      }
      assert.equal(calls, 2, "the client requests a newer token once");
    }
  }));

test("`mend` after a rejection connects with a better token", limit, () =>
  withAuthServer(async ({ base, token, publishFacts }) => {
    await publishFacts("r", [{ type: "run.started" }]);
    let tokens;
    const store = new Store();
    const connection = connect({ base, run: "r", timing: FAST_RETRY, token: () => tokens }, store);
    await waitFor("the rejection", () => connection.state.kind === "refused");
    tokens = token("--can", "read");
    connection.mend();
    await waitFor("the activities", () => store.size === 1);
    assert.deepEqual([connection.state.kind, connection.state.problem], ["live", undefined]);
    connection.close();
  }));

test("an error of the token callback is reported, and the client retries", limit, async () => {
  let calls = 0;
  await publish(server.base, "late-token", [{ type: "run.started" }]);
  const store = new Store();
  const token = () => {
    calls += 1;
    if (calls < 3) throw new Error("the vault is closed");
    return "";
  };
  const connection = connect({ base: server.base, run: "late-token", timing: FAST_RETRY, token }, store);
  const states = recordStates(connection);
  await waitFor("the activities", () => store.size === 1);
  assert.ok(states.some((state) => state.kind === "away" && state.why === "the vault is closed"));
  connection.close();
});
