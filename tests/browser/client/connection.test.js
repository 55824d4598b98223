/**
 * Connections to the real server: whenever somebody joins, and wherever the line breaks, the picture is the server's.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Store, textOf } from "../../../web-demo/client/index.js";
import { BINARY, DEADLINE, anyFact, breakingLine, chance, connect, ordered, picture, say, serve, shown, sleep, until, untilSame } from "./harness.js";

const TRANSPORTS = ["sse", "websocket"];
/** So that a test need not wait for what a person would not notice. */
const SWIFT = { retryMs: 4, retryMaxMs: 40 };
const TIMEOUT = { timeout: 3 * DEADLINE };

let server;
before(async () => (server = await serve()), TIMEOUT);
after(() => server?.stop());

/** Says so many facts of a run, a few at a time, and then its end. */
async function story(run, seed, count, { base = server.base, end = "run.finished", query = "" } = {}) {
  const random = chance(seed);
  await say(base, run, [{ type: "run.started" }], { query });
  for (let said = 0; said < count; ) {
    const facts = Array.from({ length: 1 + random(5) }, () => anyFact(random));
    await say(base, run, facts);
    said += facts.length;
  }
  if (end) await say(base, run, [{ type: end }]);
}

/** What a connection was told of itself. */
function states(link) {
  const told = [];
  link.subscribe((state) => told.push(state));
  return told;
}

for (const transport of TRANSPORTS) {
  test(`${transport}: joining in the middle comes to the same picture, for every audience`, TIMEOUT, async () => {
    const run = `join-${transport}`;
    const links = [];
    const telling = story(run, 1, 150);
    for (const audience of ["user", "dashboard", "internal", "user", "internal"]) {
      const store = new Store();
      links.push({ audience, store, link: connect({ base: server.base, run, audience, transport }, store) });
      await sleep(20);
    }
    await telling;
    for (const { audience, store, link } of links) {
      await until("the end", () => link.state.kind === "ended");
      const { gaps, faults, status, resumes } = link.state;
      assert.deepEqual({ gaps, faults, status, resumes }, { gaps: 0, faults: 0, status: "completed", resumes: 0 });
      assert.deepEqual(ordered(shown(store, run)), ordered(await picture(server.base, run, audience)));
      assert.ok(store.size > 5);
      assert.deepEqual([store.run(run).isHydrated, store.run(run).ended], [true, "completed"]);
    }
  });

  for (const seed of [1, 2, 3, 4]) {
    test(`${transport}: a line that breaks inside frames loses nothing and repeats nothing (${seed})`, TIMEOUT, async () => {
      const random = chance(seed);
      const run = `cut-${transport}-${seed}`;
      // Long enough for a handshake, short enough to break within almost every answer.
      const line = await breakingLine(server.port, () => 300 + random(2500));
      const store = new Store();
      const link = connect({ base: line.base, run, audience: "internal", transport, timing: SWIFT }, store);
      const told = states(link);
      await story(run, 100 + seed, 300, { end: "" });
      // What joins may be longer than the line holds; it is not, once it has held long enough.
      line.cut();
      await until("some breaks", () => line.cuts > 3);
      await story(run, 200 + seed, 60);
      const holds = await breakingLine(server.port, () => Infinity);
      link.cut();
      const rest = connect({ base: holds.base, run, audience: "internal", transport, timing: SWIFT, after: link.state.cursor }, store);
      await until("the end", () => rest.state.kind === "ended");
      assert.deepEqual(ordered(shown(store, run)), ordered(await picture(server.base, run, "internal")));
      assert.deepEqual([link.state.gaps, link.state.faults, rest.state.gaps, rest.state.faults], [0, 0, 0, 0]);
      assert.ok(told.some((state) => state.kind === "away"));
    });
  }

  test(`${transport}: several runs on one line that breaks`, TIMEOUT, async () => {
    const random = chance(7);
    let breaks = 4;
    const runs = ["a", "b", "c"].map((name) => `several-${transport}-${name}`);
    const line = await breakingLine(server.port, () => (breaks-- > 0 ? 800 + random(2000) : Infinity));
    const store = new Store();
    const link = connect({ base: line.base, runs, audience: "internal", transport, timing: SWIFT }, store);
    await Promise.all(runs.map((run, n) => story(run, 300 + n, 100, { end: n === 0 ? "run.failed" : "" })));
    for (const run of runs) await untilSame(store, server.base, run, "internal");
    assert.deepEqual([line.cuts, link.state.gaps, link.state.faults], [4, 0, 0]);
    assert.deepEqual(new Set(store.sorted().map((activity) => activity.runId)), new Set(runs));
    if (transport === "websocket") assert.deepEqual(Object.keys(link.state.cursors).sort(), runs);
  });

  test(`${transport}: a session, its own log, its children, and runs that come later`, TIMEOUT, async () => {
    const session = `lead-${transport}`;
    const store = new Store();
    const link = connect({ base: server.base, session, children: true, transport, audience: "internal", timing: SWIFT }, store);
    await until("the line", () => link.state.kind === "live");
    await say(server.base, session, [{ type: "session.opened", payload: { title: "Lead" } }], { of: "sessions" });
    await story(`${session}-1`, 11, 40, { query: `?sessionId=${session}` });
    link.cut();
    await story(`${session}-2`, 12, 40, { query: `?sessionId=child-of-${session}&parentSessionId=${session}`, end: "" });
    link.mend();
    for (const run of [1, 2]) await untilSame(store, server.base, `${session}-${run}`, "internal");
    assert.equal(store.get(`@${session} session ${session}`).content.title, "Lead");
    assert.deepEqual(store.runs().map((run) => run.runId || `@${run.sessionId}`), [`@${session}`, `${session}-1`, `${session}-2`]);
    assert.deepEqual([link.state.kind, link.state.gaps, link.state.resumes], ["live", 0, 1]);
    link.close();
  });

  test(`${transport}: what happens while it is cut off is there when it is mended, and it says so`, TIMEOUT, async () => {
    const run = `mend-${transport}`;
    await say(server.base, run, [{ type: "run.started" }, { type: "text.delta", messageId: "m", payload: { text: "one " } }]);
    const store = new Store();
    const link = connect({ base: server.base, run, transport }, store);
    const told = states(link);
    const text = () => textOf(store.get(`${run} message m`)?.content.parts[0].text);
    await until("the beginning", () => text() === "one ");
    link.cut();
    assert.deepEqual([link.state.kind, link.state.why, link.state.lagMs], ["away", "cut", null]);
    const cursor = link.state.cursor;
    await say(server.base, run, [{ type: "text.delta", messageId: "m", payload: { text: "two " } }]);
    await sleep(50);
    assert.equal(text(), "one ");
    const untouched = store.get(`${run} run ${run}`);
    link.mend();
    await until("what was missed", () => text() === "one two ");
    await say(server.base, run, [{ type: "text.delta", messageId: "m", payload: { text: "three" } }]);
    await until("what came then", () => text() === "one two three");
    assert.equal(store.get(`${run} run ${run}`), untouched, "what did not change was not sent again");
    assert.deepEqual([link.state.resumes, link.state.gaps, link.state.kind], [1, 0, "live"]);
    assert.notEqual(link.state.cursor, cursor);
    const kinds = told.map((state) => state.kind).filter((kind, at, all) => kind !== all[at - 1]);
    assert.deepEqual(kinds, ["live", "away", "connecting", "live"]);
    link.close();
  });

  test(`${transport}: it may listen before anything is said, and comes to an end with the run`, TIMEOUT, async () => {
    const run = `early-${transport}`;
    const store = new Store();
    const link = connect({ base: server.base, run, transport }, store);
    await until("that there is nothing", () => store.run(run)?.isHydrated);
    assert.deepEqual([store.size, link.state.kind, link.state.cursor], [0, "live", ""]);
    await story(run, 21, 20, { end: "run.failed" });
    await until("the end", () => link.state.kind === "ended");
    assert.deepEqual([link.state.status, link.state.why], ["failed", "failed"]);
    // Whoever has seen the end is told that there is no more; nothing is asked for again.
    const again = connect({ base: server.base, run, transport, after: link.state.cursor }, new Store());
    await until("the end again", () => again.state.kind === "ended");
    // Over SSE that is a status, over a WebSocket the end itself, after the news that there is none.
    assert.equal(again.state.frames, transport === "sse" ? 0 : 2);
    again.mend();
    assert.equal(again.state.kind, "ended");
  });

  test(`${transport}: a run that is erased and written anew is forgotten, and no other`, TIMEOUT, async () => {
    const runs = [`anew-${transport}`, `other-${transport}`];
    for (const run of runs) await say(server.base, run, [{ type: "run.started" }, { type: "text.delta", messageId: "old", payload: { text: "old" } }]);
    const store = new Store();
    const link = connect({ base: server.base, runs, transport, timing: SWIFT }, store);
    await until("both", () => runs.every((run) => store.get(`${run} message old`)));
    assert.equal((await fetch(`${server.base}/v1/runs/${runs[0]}`, { method: "DELETE" })).status < 300, true);
    await say(server.base, runs[0], [{ type: "run.started" }, { type: "text.delta", messageId: "new", payload: { text: "new" } }]);
    await until("the new one", () => store.get(`${runs[0]} message new`));
    for (const run of runs) await untilSame(store, server.base, run, "user");
    assert.equal(store.get(`${runs[0]} message old`), undefined);
    assert.equal(store.get(`${runs[1]} message old`).content.parts[0].text[0], "old");
    link.close();
  });

  test(`${transport}: every envelope comes once and in order, over a line that breaks`, TIMEOUT, async () => {
    const random = chance(9);
    const run = `events-${transport}`;
    const line = await breakingLine(server.port, () => 600 + random(4000));
    const link = connect({ base: line.base, run, audience: "internal", frames: "events", transport, timing: SWIFT });
    const events = [];
    link.listen((frame, cursor) => frame.frame === "Event" && events.push({ sequence: frame.event.sequence, cursor }));
    await story(run, 31, 200);
    await until("the end", () => link.state.kind === "ended");
    const { lastSequence } = await (await fetch(`${server.base}/v1/runs/${run}`)).json();
    assert.deepEqual(events.map((event) => event.sequence), Array.from({ length: lastSequence }, (_, n) => n + 1));
    assert.ok(events.every((event) => /^[0-9a-f]+:\d+$/.test(event.cursor)));
    assert.ok(line.cuts > 3 && link.state.resumes > 2 && link.state.gaps === 0, JSON.stringify(link.state));
  });

  test(`${transport}: told delta by delta from the start it comes to the same`, TIMEOUT, async () => {
    const run = `replay-${transport}`;
    await story(run, 41, 120);
    const [store, deltas] = [new Store(), []];
    const link = connect({ base: server.base, run, audience: "internal", replay: true, transport }, store);
    link.listen((frame) => deltas.push(frame.frame));
    await until("the end", () => link.state.kind === "ended");
    assert.deepEqual(ordered(shown(store, run)), ordered(await picture(server.base, run, "internal")));
    assert.ok(deltas.filter((kind) => kind === "ActivityDelta").length > 30);
    assert.deepEqual([link.state.gaps, link.state.faults], [0, 0]);
  });

  test(`${transport}: only some surfaces, without a gap`, TIMEOUT, async () => {
    const run = `surfaces-${transport}`;
    const store = new Store();
    const link = connect({ base: server.base, run, surfaces: ["conversation", "hitl"], transport }, store);
    await story(run, 51, 120);
    await until("the end", () => link.state.kind === "ended");
    const whole = await picture(server.base, run, "user");
    assert.deepEqual(ordered(shown(store, run)), ordered(whole.filter(({ surface }) => surface === "conversation" || surface === "hitl")));
    assert.deepEqual([link.state.gaps, store.size > 1, store.size < whole.length], [0, true, true]);
  });

  test(`${transport}: nothing is told and nothing changes once it is closed`, TIMEOUT, async () => {
    const run = `close-${transport}`;
    await say(server.base, run, [{ type: "run.started" }]);
    const store = new Store();
    const link = connect({ base: server.base, run, transport }, store);
    await until("the line", () => store.size > 0);
    const told = [];
    link.subscribe(() => told.push("state"));
    link.listen(() => told.push("frame"));
    store.subscribe(() => told.push("store"));
    const saying = say(server.base, run, Array.from({ length: 50 }, () => ({ type: "text.delta", messageId: "m", payload: { text: "x" } })));
    link.close();
    link.mend();
    link.cut();
    link.close();
    await saying;
    await sleep(200);
    assert.deepEqual(told, []);
    assert.deepEqual([link.state.kind, link.state.why], ["away", "closed"]);
  });
}

test("an id of any letters is asked for by its name", TIMEOUT, async () => {
  for (const [n, run] of ["a/b?c#d&e=f", "ä ö+%20", "..x", "a,b"].entries()) {
    await say(server.base, run, [{ type: "run.started" }]);
    for (const options of [{ run }, { run, transport: "websocket" }, { runs: [run, `x${n}`], transport: "websocket" }]) {
      const store = new Store();
      const link = connect({ base: server.base, ...options }, store);
      await until(run, () => store.size === 1);
      assert.equal(store.sorted()[0].runId, run);
      link.close();
    }
  }
  assert.throws(() => connect({ base: server.base, runs: ["a,b"] }), /separated by commas/);
  // No address can name this one: it would lead to the stream of several runs.
  const link = connect({ base: server.base, run: ".." });
  await until("the refusal", () => link.state.kind === "refused");
  assert.equal(link.state.why, '".." cannot stand in an address');
});

test("what cannot be followed is refused at once", () => {
  for (const options of [{}, { run: "a", session: "b" }, { run: "a", runs: ["b"] }]) assert.throws(() => connect({ base: "http://x", ...options }), /one of run, session and runs/);
  for (const runs of [[], Array.from({ length: 257 }, (_, n) => `r${n}`)]) assert.throws(() => connect({ base: "http://x", runs }), RangeError);
});

/* ── where the server asks who is there ── */

async function guarded(work) {
  const dir = await mkdtemp(join(tmpdir(), "proscenium-client-"));
  const key = join(dir, "key");
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"], { stdio: "ignore" });
  const asking = await serve("--auth-key", key);
  const token = (...rights) => execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", ...rights], { encoding: "utf8" }).trim();
  try {
    const headers = { authorization: `Bearer ${token("--can", "publish")}` };
    await work({ base: asking.base, port: asking.port, token, tell: (run, facts) => say(asking.base, run, facts, { headers }) });
  } finally {
    await asking.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

test("a token opens the line, stands in no address, and a newer one takes its place when it is over", TIMEOUT, () =>
  guarded(async ({ port, token, tell }) => {
    for (const transport of TRANSPORTS) {
      const run = `token-${transport}`;
      await tell(run, [{ type: "run.started" }]);
      const line = await breakingLine(port, () => Infinity);
      const given = [token("--can", "read", "--ttl", "2s"), token("--can", "read", "--ttl", "1h")];
      let asked = 0;
      const store = new Store();
      const link = connect({ base: line.base, run, transport, timing: SWIFT, token: async () => given[Math.min(asked++, 1)] }, store);
      await until("the picture", () => store.size === 1);
      await until("the newer token", () => link.state.resumes === 1 && link.state.kind === "live");
      assert.equal(asked, 2);
      await tell(run, [{ type: "text.delta", messageId: "m", payload: { text: "still here" } }]);
      await until("what came then", () => store.get(`${run} message m`));
      for (const address of line.asked.matchAll(/^(?:GET|POST) (\S+)/gm)) assert.ok(!given.some((text) => address[1].includes(text)), address[1]);
      link.close();
      line.close();
    }
  }));

test("who is not let in is told so by the problem, and does not ask for ever", TIMEOUT, () =>
  guarded(async ({ base, token, tell }) => {
    await tell("r", [{ type: "run.started" }]);
    for (const transport of TRANSPORTS) {
      const line = { base, run: "r", transport, timing: SWIFT };
      let asked = 0;
      const cases = [
        [{}, 401, "unauthenticated"],
        [{ token: () => (asked++, "nonsense") }, 401, "unauthenticated"],
        [{ token: () => token("--can", "read"), audience: "internal" }, 403, "forbidden"],
      ];
      for (const [options, status, code] of cases) {
        const link = connect({ ...line, ...options }, new Store());
        await until(`${transport} ${code}`, () => link.state.kind === "refused");
        assert.deepEqual([link.state.problem.status, link.state.problem.code], [status, code], transport);
        assert.ok(link.state.why.length > 10);
        link.close();
      }
      assert.equal(asked, 2, "a newer token is asked for once");
    }
  }));

test("whoever mends what was refused is let in with a better token", TIMEOUT, () =>
  guarded(async ({ base, token, tell }) => {
    await tell("r", [{ type: "run.started" }]);
    let given;
    const store = new Store();
    const link = connect({ base, run: "r", timing: SWIFT, token: () => given }, store);
    await until("the refusal", () => link.state.kind === "refused");
    given = token("--can", "read");
    link.mend();
    await until("the picture", () => store.size === 1);
    assert.deepEqual([link.state.kind, link.state.problem], ["live", undefined]);
    link.close();
  }));

test("a token that cannot be had is said, and asked for again", TIMEOUT, async () => {
  let asked = 0;
  await say(server.base, "late-token", [{ type: "run.started" }]);
  const store = new Store();
  const token = () => {
    asked += 1;
    if (asked < 3) throw new Error("the vault is closed");
    return "";
  };
  const link = connect({ base: server.base, run: "late-token", timing: SWIFT, token }, store);
  const told = states(link);
  await until("the picture", () => store.size === 1);
  assert.ok(told.some((state) => state.kind === "away" && state.why === "the vault is closed"));
  link.close();
});
