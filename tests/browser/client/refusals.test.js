/**
 * What a connection does with a server that misbehaves, or is away: a pretended one says just what a test wants.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Store } from "../../../web-demo/client/index.js";
import { DEADLINE, connect, pretend, refuse, sleep, stream, until } from "./harness.js";

const SWIFT = { retryMs: 4, retryMaxMs: 40 };
const TIMEOUT = { timeout: 2 * DEADLINE };

const snapshot = (sequence, content, more) => ({ frame: "ActivitySnapshot", runId: "r", sequence, activityType: "board", activityId: "b", surface: "custom", opened: 1, content, ...more });
const hydrated = (sequence) => ({ frame: "Hydrated", runId: "r", sequence });
const delta = (sequence, prev, value, path = "/n/-") => ({ frame: "ActivityDelta", runId: "r", sequence, prev, activityType: "board", activityId: "b", patch: [{ op: "add", path, value }] });
const after = (request) => new URL(request.url, "http://x").searchParams.get("after");

test("something missing is noticed, counted, and fetched from the last good cursor", TIMEOUT, async () => {
  const server = await pretend((request, response, n) => {
    if (n === 0) return stream(response, [[snapshot(1, { n: [1] })], [hydrated(1), "e:2"], [delta(2, 1, 2), "e:4"], [delta(4, 3, 4), "e:8"], [delta(5, 4, 5), "e:10"]]);
    stream(response, [[snapshot(4, { n: [1, 2, 3, 4] })], [hydrated(4), "e:8"], [delta(5, 4, 5), "e:10"]]);
  });
  const store = new Store();
  const link = connect({ base: server.base, run: "r", timing: SWIFT }, store);
  const told = [];
  link.subscribe((state) => told.push(`${state.kind} ${state.why}`));
  await until("the picture", () => store.get("r board b")?.content.n.length === 5);
  assert.deepEqual(store.get("r board b").content.n, [1, 2, 3, 4, 5]);
  assert.deepEqual(server.requests.map(after), [null, "e:4"]);
  const { gaps, faults, resumes, cursor, kind } = link.state;
  assert.deepEqual({ gaps, faults, resumes, cursor, kind }, { gaps: 1, faults: 0, resumes: 1, cursor: "e:10", kind: "live" });
  assert.ok(told.includes("away something is missing before 4: going back to where nothing was"), told.join("\n"));
});

test("frames of one envelope share what came before them, and a quiet stretch is no gap", TIMEOUT, async () => {
  const other = (frame) => ({ ...frame, activityId: "c" });
  const server = await pretend((request, response) =>
    stream(response, [[snapshot(1, { n: [] })], [other(snapshot(1, { n: [] }))], [hydrated(7), "e:14"], [delta(9, 7, "a")], [other(delta(9, 7, "b")), "e:18"], [delta(12, 9, "c"), "e:24"]]));
  const store = new Store();
  const link = connect({ base: server.base, run: "r", timing: SWIFT }, store);
  await until("the last", () => link.state.sequence === 12);
  assert.deepEqual([store.get("r board b").content.n, store.get("r board c").content.n, link.state.gaps], [["a", "c"], ["b"], 0]);
});

test("a change that does not apply brings a snapshot in its place, and nothing else is lost", TIMEOUT, async () => {
  const server = await pretend((request, response, n) => {
    if (n === 0) return stream(response, [[{ ...snapshot(1, { kept: true }), activityId: "c" }], [snapshot(1, { n: [1] })], [hydrated(1), "e:2"], [delta(2, 1, 2, "/wrong/-"), "e:4"]]);
    stream(response, [[snapshot(2, { n: [1, 2] })], [hydrated(2), "e:4"]]);
  });
  const store = new Store();
  const link = connect({ base: server.base, run: "r", timing: SWIFT }, store);
  const told = [];
  link.subscribe((state) => told.push(state.why));
  await until("the snapshot", () => store.get("r board b")?.content.n?.length === 2);
  assert.deepEqual(server.requests.map(after), [null, "e:2"]);
  assert.deepEqual([link.state.faults, link.state.gaps, store.get("r board c").content], [1, 0, { kept: true }]);
  assert.ok(told.includes('a change did not apply (operation 0 of the patch: there is no "wrong"): a snapshot is asked for'), told.join("\n"));
});

test("a reset forgets, and what follows counts anew", TIMEOUT, async () => {
  const server = await pretend((request, response) =>
    stream(response, [[snapshot(9, { n: [] })], [hydrated(9), "e:18"], [{ frame: "Reset", runId: "r", sequence: 0, reason: "epoch" }, "f:0"], [snapshot(1, { n: ["new"] })], [hydrated(1), "f:2"], [delta(2, 1, "more"), "f:4"]]));
  const store = new Store();
  const link = connect({ base: server.base, run: "r", timing: SWIFT }, store);
  await until("the new life", () => link.state.cursor === "f:4");
  assert.deepEqual([store.get("r board b").content.n, link.state.gaps], [["new", "more"], 0]);
});

test("204 stops it for good", TIMEOUT, async () => {
  const server = await pretend((request, response) => response.writeHead(204).end());
  const link = connect({ base: server.base, run: "r", timing: SWIFT, after: "e:9" }, new Store());
  await until("the end", () => link.state.kind === "ended");
  await sleep(100);
  assert.deepEqual([server.requests.length, link.state.why, link.state.status], [1, "there is no more to come", undefined]);
});

test("what will be granted later is asked for again, not before the server wants it; what will not is not", TIMEOUT, async () => {
  const times = [];
  const server = await pretend((request, response, n) => {
    times.push(performance.now());
    if (n === 0) return refuse(response, 503, "busy", { "retry-after": "1" });
    if (n === 1) return refuse(response, 429, "too_many_streams");
    if (n === 2) return response.writeHead(200, { "content-type": "text/html" }).end("<p>Sign in to the hotel's network");
    if (n === 3) return response.writeHead(502).end("<p>Bad gateway");
    refuse(response, 400, "bad_cursor");
  });
  const link = connect({ base: server.base, run: "r", timing: SWIFT }, new Store());
  const whys = new Set();
  link.subscribe((state) => state.kind === "away" && whys.add(state.why));
  await until("the refusal", () => link.state.kind === "refused");
  await sleep(100);
  assert.equal(server.requests.length, 5);
  assert.ok(times[1] - times[0] >= 990, String(times[1] - times[0]));
  assert.deepEqual([...whys], ["no: busy", "no: too_many_streams", "the answer is no stream of events", "the server answers 502 Bad Gateway"]);
  assert.deepEqual([link.state.why, link.state.problem.code, link.state.problem.status], ["no: bad_cursor", "bad_cursor", 400]);
});

test("waits grow twofold up to the longest, and no two clients wait the same", TIMEOUT, async () => {
  const random = Math.random;
  const waits = [];
  const { setTimeout: later } = globalThis;
  globalThis.setTimeout = (work, ms, ...rest) => (waits.push(ms), later(work, Math.min(ms, 1), ...rest));
  try {
    for (const [chance, factor] of [[0, 0.5], [0.999999, 1]]) {
      Math.random = () => chance;
      waits.length = 0;
      const fetch = async () => { throw new TypeError("nobody answers"); };
      const link = connect({ base: "http://x", run: "r", fetch, timing: { retryMs: 1000, retryMaxMs: 30_000 } }, new Store());
      await until("some attempts", () => waits.filter((ms) => ms >= 400).length >= 7);
      link.close();
      assert.deepEqual(waits.filter((ms) => ms >= 400).slice(0, 7).map(Math.round), [1, 2, 4, 8, 16, 30, 30].map((seconds) => seconds * 1000 * factor));
    }
  } finally {
    [Math.random, globalThis.setTimeout] = [random, later];
  }
});

test("the server's own word on when to come back is kept", TIMEOUT, async () => {
  const times = [];
  const server = await pretend((request, response) => {
    times.push(performance.now());
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(`retry: 1800\ndata: ${JSON.stringify(hydrated(0))}\n\n`);
  });
  const link = connect({ base: server.base, run: "r" }, new Store());
  await until("the second time", () => times.length === 2);
  assert.ok(times[1] - times[0] >= 890, String(times[1] - times[0]));
});

test("a line that says nothing is dead; one with a heartbeat is not, and says how long ago", TIMEOUT, async () => {
  const server = await pretend((request, response, n) => {
    stream(response, [[hydrated(0), "e:0"]]);
    if (n === 0) return;
    const beating = setInterval(() => response.write(":\n"), 100);
    response.on("close", () => clearInterval(beating));
  });
  const link = connect({ base: server.base, run: "r", timing: { ...SWIFT, silenceMs: 2500 } }, new Store());
  const told = [];
  link.subscribe((state) => told.push(state));
  await until("another line", () => server.requests.length === 2);
  assert.ok(told.some((state) => state.kind === "away" && state.why === "nothing was heard for too long"));
  await until("lag", () => told.some((state) => state.kind === "live" && state.lagMs >= 900));
  await sleep(3500);
  assert.equal(server.requests.length, 2);
  assert.ok(link.state.lagMs < 900, String(link.state.lagMs));
});

test("who is never answered asks again", TIMEOUT, async () => {
  const server = await pretend((request, response, n) => n > 0 && stream(response, [[hydrated(0), "e:0"]]));
  const link = connect({ base: server.base, run: "r", timing: { ...SWIFT, openMs: 300 } }, new Store());
  await until("an answer", () => link.state.kind === "live");
  assert.equal(server.requests.length, 2);
});

test("an error in the stream is final or passing, as its status says", TIMEOUT, async () => {
  const error = (status, code) => ({ frame: "Error", runId: "r", sequence: 3, problem: { status, code, detail: `over: ${code}`, title: "", type: "" } });
  const server = await pretend((request, response, n) => stream(response, [[hydrated(3), "e:6"], [n === 0 ? error(503, "stopping") : error(401, "unauthenticated")]]));
  const link = connect({ base: server.base, run: "r", timing: SWIFT }, new Store());
  await until("the refusal", () => link.state.kind === "refused");
  assert.deepEqual([server.requests.map(after), link.state.why, link.state.problem.code], [[null, "e:6"], "over: unauthenticated", "unauthenticated"]);
});

test("what is no frame ends the line, which is taken up where it was good", TIMEOUT, async () => {
  const server = await pretend((request, response, n) => {
    stream(response, [[hydrated(1), "e:2"]]);
    if (n === 0) response.write("data: {\"frame\":\nid: e:4\n\n");
  });
  const link = connect({ base: server.base, run: "r", timing: SWIFT }, new Store());
  await until("another line", () => server.requests.length === 2);
  assert.deepEqual(server.requests.map(after), [null, "e:2"]);
});

test("on a stream of several runs an end is its run's alone", TIMEOUT, async () => {
  const of = (runId, frame) => ({ ...frame, runId });
  const end = { frame: "End", sequence: 1, status: "completed" };
  const server = await pretend((request, response) =>
    stream(response, [[of("a", snapshot(1, {}))], [of("a", hydrated(1))], [of("a", end)], [of("b", snapshot(1, { n: [] }))], [of("b", hydrated(1)), "e:2"], [of("b", delta(2, 1, "on")), "e:4"]]));
  const store = new Store();
  const link = connect({ base: server.base, runs: ["a", "b"], timing: SWIFT }, store);
  await until("the last", () => link.state.cursor === "e:4");
  assert.deepEqual([link.state.kind, store.run("a").ended, store.run("b").ended, store.get("b board b").content.n], ["live", "completed", undefined, ["on"]]);
});

test("whoever is told that it is away may close it, cut it or mend it there and then", TIMEOUT, async () => {
  for (const [what, kinds] of [["close", ["away"]], ["cut", ["away"]], ["mend", ["away", "connecting", "live"]]]) {
    const server = await pretend((request, response, n) => (n === 0 ? refuse(response, 503, "busy") : stream(response, [[hydrated(0), "e:0"]])));
    const link = connect({ base: server.base, run: "r", timing: { retryMs: 20 } }, new Store());
    const told = [];
    link.subscribe(({ kind }) => {
      if (told.at(-1) !== kind) told.push(kind);
      if (kind === "away" && told.length === 1) link[what]();
    });
    await until("what comes of it", () => told.at(-1) === kinds.at(-1));
    await sleep(200);
    assert.deepEqual([told, server.requests.length, link.state.kind], [kinds, kinds.length === 1 ? 1 : 2, kinds.at(-1)], what);
  }
});

/** A WebSocket whose other end is the test: `said` is what the client said, `tell` what it hears. */
function socketOf(answer) {
  const sockets = [];
  class Pretended {
    constructor(url, protocol) {
      Object.assign(this, { url, protocol, said: [] });
      sockets.push(this);
      setTimeout(() => this.onopen?.(), 1);
    }

    send(text) {
      this.said.push(JSON.parse(text));
      answer(this, JSON.parse(text), sockets.length - 1);
    }

    tell(message) {
      setTimeout(() => this.onmessage?.({ data: JSON.stringify(message) }), 1);
    }

    close(code = 1005, reason = "") {
      if (!this.isClosed) setTimeout(() => this.onclose?.({ code, reason }), 1);
      this.isClosed = true;
    }
  }
  return { sockets, WebSocket: Pretended };
}

test("a WebSocket that answers no ping is dead; of one that does, the time there and back is known", TIMEOUT, async () => {
  const { sockets, WebSocket } = socketOf((socket, { op, id }, n) => {
    if (op === "subscribe") socket.tell({ sub: id, cursor: "e:2", ...hydrated(1) });
    if (op === "ping" && n > 0) setTimeout(() => socket.tell({ op: "pong", id }), 40);
  });
  const link = connect({ base: "https://server.example/", run: "r", transport: "websocket", WebSocket, timing: { ...SWIFT, silenceMs: 600, pingMs: 100 } }, new Store());
  const told = [];
  link.subscribe((state) => told.push(state));
  await until("another line", () => sockets.length === 2 && link.state.lagMs !== null);
  assert.ok(told.some((state) => state.kind === "away" && state.why === "nothing was heard for too long"));
  assert.deepEqual([sockets[0].url, sockets[0].protocol], ["wss://server.example/v1/ws", "proscenium.v1"]);
  assert.deepEqual(sockets.map(({ said }) => said.find(({ op }) => op === "subscribe").after), [undefined, "e:2"]);
  assert.ok(link.state.lagMs >= 40 && link.state.lagMs < 600, String(link.state.lagMs));
  await sleep(1500);
  assert.equal(sockets.length, 2);
});

test("a WebSocket's close is final or passing, as its code says; its token comes first", TIMEOUT, async () => {
  const closes = [[1001, "the server is stopping; come back with your cursors"], [1013, ""], [1006, ""], [4401, "the token is over"], [1009, ""]];
  const { sockets, WebSocket } = socketOf((socket, { op }, n) => {
    if (op === "auth") socket.tell({ op: "authenticated" });
    if (op === "subscribe") socket.close(...closes[n]);
  });
  const link = connect({ base: "http://x", run: "r", transport: "websocket", WebSocket, token: () => "mine", timing: SWIFT }, new Store());
  const whys = [];
  link.subscribe((state) => state.kind === "away" && whys.push(state.why));
  await until("the refusal", () => link.state.kind === "refused");
  assert.deepEqual(whys, ["the server is stopping; come back with your cursors", "the connection was cut off", "the connection was cut off", "the token is over"]);
  assert.deepEqual([link.state.why, sockets.length], ["what was sent is too large", 5]);
  assert.deepEqual(sockets[0].said.map(({ op }) => op), ["auth", "subscribe", "ping"]);
});

test("of several subscriptions one that is refused does not stop the others", TIMEOUT, async () => {
  const { WebSocket } = socketOf((socket, { op, id }) => {
    if (op !== "subscribe") return;
    if (id === "theirs") socket.tell({ op: "error", id, status: 403, code: "forbidden", detail: "not yours" });
    else socket.tell({ sub: id, cursor: "e:2", ...hydrated(1), runId: id });
  });
  const store = new Store();
  const link = connect({ base: "http://x", runs: ["theirs", "mine"], transport: "websocket", WebSocket, timing: SWIFT }, store);
  await until("both", () => link.state.refused && store.run("mine"));
  const { kind, why, refused, cursors } = link.state;
  assert.deepEqual([kind, why, refused.theirs.code, Object.keys(refused), cursors], ["live", "not yours", "forbidden", ["theirs"], { mine: "e:2" }]);
});

test("a silence that EventSource cannot explain is listened to with fetch", TIMEOUT, async () => {
  const server = await pretend((request, response) => stream(response, [[hydrated(1), "e:4"]]));
  const sources = [];
  class Pretended {
    readyState = 1;

    constructor(url) {
      sources.push(url);
      setTimeout(() => this.onopen(), 1);
      setTimeout(() => this.onmessage({ data: JSON.stringify(hydrated(1)), lastEventId: "e:2" }), 2);
    }

    close() {}
  }
  const link = connect({ base: server.base, run: "r", EventSource: Pretended, timing: { ...SWIFT, silenceMs: 1500 } }, new Store());
  await until("the first", () => link.state.cursor === "e:2");
  assert.equal(link.state.reader, "eventsource");
  await until("the other", () => link.state.cursor === "e:4");
  assert.deepEqual([link.state.reader, sources.length, server.requests.map(after)], ["fetch", 1, ["e:2"]]);
});

test("a line that comes up again is not waited for", TIMEOUT, async () => {
  // What browsers say when the network is back; Node has no such event by itself.
  const target = new EventTarget();
  const own = { add: globalThis.addEventListener, remove: globalThis.removeEventListener };
  globalThis.addEventListener = target.addEventListener.bind(target);
  globalThis.removeEventListener = target.removeEventListener.bind(target);
  try {
    const server = await pretend((request, response, n) => (n === 0 ? refuse(response, 503, "busy") : stream(response, [[hydrated(0), "e:0"]])));
    const link = connect({ base: server.base, run: "r", timing: { retryMs: 3_600_000, retryMaxMs: 3_600_000 } }, new Store());
    await until("being away", () => link.state.kind === "away");
    target.dispatchEvent(new Event("online"));
    await until("being back", () => link.state.kind === "live");
    link.cut();
    target.dispatchEvent(new Event("online"));
    assert.equal(link.state.kind, "away");
    link.close();
    server.close();
  } finally {
    globalThis.addEventListener = own.add;
    globalThis.removeEventListener = own.remove;
  }
});
