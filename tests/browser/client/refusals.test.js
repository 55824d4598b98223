/**
 * Connections to a server that misbehaves or is unreachable, by a fake server.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Store } from "../../../web-demo/client/index.js";
import { limit } from "../../deadline.mjs";
import { connect, startFakeServer, sendProblem, sleep, writeFrames, waitFor } from "./harness.js";

const FAST_RETRY = { retryMs: 4, retryMaxMs: 40 };

const snapshot = (sequence, content, more) => ({ frame: "ActivitySnapshot", runId: "r", sequence, activityType: "board", activityId: "b", surface: "custom", opened: 1, content, ...more });
const hydrated = (sequence) => ({ frame: "Hydrated", runId: "r", sequence });
const delta = (sequence, prev, value, path = "/n/-") => ({ frame: "ActivityDelta", runId: "r", sequence, prev, activityType: "board", activityId: "b", patch: [{ op: "add", path, value }] });
const after = (request) => new URL(request.url, "http://x").searchParams.get("after");

test("missing frames are detected, counted, and fetched from the last good cursor", limit, async () => {
  const server = await startFakeServer((request, response, n) => {
    if (n === 0) return writeFrames(response, [[snapshot(1, { n: [1] })], [hydrated(1), "e:2"], [delta(2, 1, 2), "e:4"], [delta(4, 3, 4), "e:8"], [delta(5, 4, 5), "e:10"]]);
    writeFrames(response, [[snapshot(4, { n: [1, 2, 3, 4] })], [hydrated(4), "e:8"], [delta(5, 4, 5), "e:10"]]);
  });
  const store = new Store();
  const connection = connect({ base: server.base, run: "r", timing: FAST_RETRY }, store);
  const states = [];
  connection.subscribe((state) => states.push(`${state.kind} ${state.why}`));
  await waitFor("the activities", () => store.get("r board b")?.content.n.length === 5);
  assert.deepEqual(store.get("r board b").content.n, [1, 2, 3, 4, 5]);
  assert.deepEqual(server.requests.map(after), [null, "e:4"]);
  const { gaps, faults, resumes, cursor, kind } = connection.state;
  assert.deepEqual({ gaps, faults, resumes, cursor, kind }, { gaps: 1, faults: 0, resumes: 1, cursor: "e:10", kind: "live" });
  assert.ok(states.includes("away Frames before 4 are missing. Resuming at the last good cursor."), states.join("\n"));
});

test("a gap that is there again after a resume is what the server has", limit, async () => {
  const server = await startFakeServer((request, response, n) => {
    if (n === 0) return writeFrames(response, [[snapshot(1, { n: [1] })], [hydrated(1), "e:2"], [delta(2, 1, 2), "e:4"], [delta(7, 5, 7), "e:14"]]);
    writeFrames(response, [[delta(7, 5, 7), "e:14"], [delta(8, 7, 8), "e:16"]]);
  });
  const store = new Store();
  const connection = connect({ base: server.base, run: "r", timing: FAST_RETRY }, store);
  await waitFor("the last frame", () => connection.state.sequence === 8);
  assert.deepEqual(store.get("r board b").content.n, [1, 2, 7, 8]);
  assert.deepEqual(server.requests.map(after), [null, "e:4"]);
  assert.equal(connection.state.gaps, 1);
});

test("frames of one envelope share their `prev`, and skipped envelopes are no gap", limit, async () => {
  const otherActivity = (frame) => ({ ...frame, activityId: "c" });
  const server = await startFakeServer((request, response) =>
    writeFrames(response, [[snapshot(1, { n: [] })], [otherActivity(snapshot(1, { n: [] }))], [hydrated(7), "e:14"], [delta(9, 7, "a")], [otherActivity(delta(9, 7, "b")), "e:18"], [delta(12, 9, "c"), "e:24"]]));
  const store = new Store();
  const connection = connect({ base: server.base, run: "r", timing: FAST_RETRY }, store);
  await waitFor("the last frame", () => connection.state.sequence === 12);
  assert.deepEqual([store.get("r board b").content.n, store.get("r board c").content.n, connection.state.gaps], [["a", "c"], ["b"], 0]);
});

test("after a change that does not apply, a snapshot replaces the activity and others stay", limit, async () => {
  const server = await startFakeServer((request, response, n) => {
    if (n === 0) return writeFrames(response, [[{ ...snapshot(1, { kept: true }), activityId: "c" }], [snapshot(1, { n: [1] })], [hydrated(1), "e:2"], [delta(2, 1, 2, "/wrong/-"), "e:4"]]);
    writeFrames(response, [[snapshot(2, { n: [1, 2] })], [hydrated(2), "e:4"]]);
  });
  const store = new Store();
  const connection = connect({ base: server.base, run: "r", timing: FAST_RETRY }, store);
  const states = [];
  connection.subscribe((state) => states.push(state.why));
  await waitFor("the snapshot", () => store.get("r board b")?.content.n?.length === 2);
  assert.deepEqual(server.requests.map(after), [null, "e:2"]);
  assert.deepEqual([connection.state.faults, connection.state.gaps, store.get("r board c").content], [1, 0, { kept: true }]);
  assert.ok(states.includes('A change did not apply (operation 0 of the patch: member "wrong" does not exist). Requesting a snapshot.'), states.join("\n"));
});

test("a reset removes the activities, and the following frames are complete", limit, async () => {
  const server = await startFakeServer((request, response) =>
    writeFrames(response, [[snapshot(9, { n: [] })], [hydrated(9), "e:18"], [{ frame: "Reset", runId: "r", sequence: 0, reason: "epoch" }, "f:0"], [snapshot(1, { n: ["new"] })], [hydrated(1), "f:2"], [delta(2, 1, "more"), "f:4"]]));
  const store = new Store();
  const connection = connect({ base: server.base, run: "r", timing: FAST_RETRY }, store);
  await waitFor("the new epoch", () => connection.state.cursor === "f:4");
  assert.deepEqual([store.get("r board b").content.n, connection.state.gaps], [["new", "more"], 0]);
});

test("status 204 ends the connection for good", limit, async () => {
  const server = await startFakeServer((request, response) => response.writeHead(204).end());
  const connection = connect({ base: server.base, run: "r", timing: FAST_RETRY, after: "e:9" }, new Store());
  await waitFor("the end", () => connection.state.kind === "ended");
  await sleep(100);
  assert.deepEqual([server.requests.length, connection.state.why, connection.state.status], [1, "The stream has ended.", undefined]);
});

test("transient errors are retried after the server's delay; final ones are not", limit, async () => {
  const times = [];
  const server = await startFakeServer((request, response, n) => {
    times.push(performance.now());
    if (n === 0) return sendProblem(response, 503, "busy", { "retry-after": "1" });
    if (n === 1) return sendProblem(response, 429, "too_many_streams");
    if (n === 2) return response.writeHead(200, { "content-type": "text/html" }).end("<p>Sign in to the hotel's network");
    if (n === 3) return response.writeHead(502).end("<p>Bad gateway");
    sendProblem(response, 400, "bad_cursor");
  });
  const connection = connect({ base: server.base, run: "r", timing: FAST_RETRY }, new Store());
  const reasons = new Set();
  connection.subscribe((state) => state.kind === "away" && reasons.add(state.why));
  await waitFor("the rejection", () => connection.state.kind === "refused");
  await sleep(100);
  assert.equal(server.requests.length, 5);
  assert.ok(times[1] - times[0] >= 990, String(times[1] - times[0]));
  assert.deepEqual([...reasons], ["no: busy", "no: too_many_streams", "The response is not an event stream.", "The server answered 502 Bad Gateway"]);
  assert.deepEqual([connection.state.why, connection.state.problem.code, connection.state.problem.status], ["no: bad_cursor", "bad_cursor", 400]);
});

test("delays double up to the maximum, and half of each is random", limit, async () => {
  const random = Math.random;
  const waits = [];
  const { setTimeout: realSetTimeout } = globalThis;
  globalThis.setTimeout = (callback, ms, ...rest) => (waits.push(ms), realSetTimeout(callback, Math.min(ms, 1), ...rest));
  try {
    for (const [seededRandom, factor] of [[0, 0.5], [0.999999, 1]]) {
      Math.random = () => seededRandom;
      waits.length = 0;
      const fetch = async () => { throw new TypeError("no answer"); };
      const connection = connect({ base: "http://x", run: "r", fetch, timing: { retryMs: 1000, retryMaxMs: 30_000 } }, new Store());
      await waitFor("some attempts", () => waits.filter((ms) => ms >= 400).length >= 7);
      connection.close();
      assert.deepEqual(waits.filter((ms) => ms >= 400).slice(0, 7).map(Math.round), [1, 2, 4, 8, 16, 30, 30].map((seconds) => seconds * 1000 * factor));
    }
  } finally {
    [Math.random, globalThis.setTimeout] = [random, realSetTimeout];
  }
});

test("the client keeps the server's reconnection delay", limit, async () => {
  const times = [];
  const server = await startFakeServer((request, response) => {
    times.push(performance.now());
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(`retry: 1800\ndata: ${JSON.stringify(hydrated(0))}\n\n`);
  });
  const connection = connect({ base: server.base, run: "r" }, new Store());
  await waitFor("the second request", () => times.length === 2);
  assert.ok(times[1] - times[0] >= 890, String(times[1] - times[0]));
});

test("a silent connection is dead; one with heartbeats is not, and reports its lag", limit, async () => {
  let beats = 0;
  const server = await startFakeServer((request, response, n) => {
    writeFrames(response, [[hydrated(0), "e:0"]]);
    if (n === 0) return;
    const beating = setInterval(() => response.write(":\n", () => (beats += 1)), 100);
    response.on("close", () => clearInterval(beating));
  });
  const connection = connect({ base: server.base, run: "r", timing: { ...FAST_RETRY, silenceMs: 2500 } }, new Store());
  const states = [];
  connection.subscribe((state) => states.push(state));
  await waitFor("another connection", () => server.requests.length === 2);
  assert.ok(states.some((state) => state.kind === "away" && state.why === "The server has been silent for too long."));
  await waitFor("lag", () => states.some((state) => state.kind === "live" && state.lagMs >= 900));
  await waitFor("more heartbeats than the silence has", () => beats >= 35);
  assert.equal(server.requests.length, 2);
  await waitFor("the end of the lag", () => connection.state.lagMs < 900);
});

test("a client without an answer retries", limit, async () => {
  const server = await startFakeServer((request, response, n) => n > 0 && writeFrames(response, [[hydrated(0), "e:0"]]));
  const connection = connect({ base: server.base, run: "r", timing: { ...FAST_RETRY, openMs: 300 } }, new Store());
  await waitFor("an answer", () => connection.state.kind === "live");
  assert.ok(server.requests.length >= 2);
});

test("an error frame is final or transient, by its status", limit, async () => {
  const error = (status, code) => ({ frame: "Error", runId: "r", sequence: 3, problem: { status, code, detail: `over: ${code}`, title: "", type: "" } });
  const server = await startFakeServer((request, response, n) => writeFrames(response, [[hydrated(3), "e:6"], [n === 0 ? error(503, "stopping") : error(401, "unauthenticated")]]));
  const connection = connect({ base: server.base, run: "r", timing: FAST_RETRY }, new Store());
  await waitFor("the rejection", () => connection.state.kind === "refused");
  assert.deepEqual([server.requests.map(after), connection.state.why, connection.state.problem.code], [[null, "e:6"], "over: unauthenticated", "unauthenticated"]);
});

test("after malformed data the client resumes at the last good cursor", limit, async () => {
  const server = await startFakeServer((request, response, n) => {
    writeFrames(response, [[hydrated(1), "e:2"]]);
    if (n === 0) response.write("data: {\"frame\":\nid: e:4\n\n");
  });
  const connection = connect({ base: server.base, run: "r", timing: FAST_RETRY }, new Store());
  await waitFor("another connection", () => server.requests.length === 2);
  assert.deepEqual(server.requests.map(after), [null, "e:2"]);
});

test("on a stream of several runs, `End` ends only its run", limit, async () => {
  const forRun = (runId, frame) => ({ ...frame, runId });
  const end = { frame: "End", sequence: 1, status: "completed" };
  const server = await startFakeServer((request, response) =>
    writeFrames(response, [[forRun("a", snapshot(1, {}))], [forRun("a", hydrated(1))], [forRun("a", end)], [forRun("b", snapshot(1, { n: [] }))], [forRun("b", hydrated(1)), "e:2"], [forRun("b", delta(2, 1, "on")), "e:4"]]));
  const store = new Store();
  const connection = connect({ base: server.base, runs: ["a", "b"], timing: FAST_RETRY }, store);
  await waitFor("the last frame", () => connection.state.cursor === "e:4");
  assert.deepEqual([connection.state.kind, store.run("a").ended, store.run("b").ended, store.get("b board b").content.n], ["live", "completed", undefined, ["on"]]);
});

test("a listener may call `close`, `cut` or `mend` at once", limit, async () => {
  for (const [method, kinds] of [["close", ["away"]], ["cut", ["away"]], ["mend", ["away", "connecting", "live"]]]) {
    const server = await startFakeServer((request, response, n) => (n === 0 ? sendProblem(response, 503, "busy") : writeFrames(response, [[hydrated(0), "e:0"]])));
    const connection = connect({ base: server.base, run: "r", timing: { retryMs: 20 } }, new Store());
    const states = [];
    connection.subscribe(({ kind }) => {
      if (states.at(-1) !== kind) states.push(kind);
      if (kind === "away" && states.length === 1) connection[method]();
    });
    await waitFor("the final state", () => states.at(-1) === kinds.at(-1));
    await sleep(200);
    assert.deepEqual([states, server.requests.length, connection.state.kind], [kinds, kinds.length === 1 ? 1 : 2, kinds.at(-1)], method);
  }
});

/** A fake WebSocket: `sent` has the client's messages, `receive` delivers one to it. */
function fakeWebSocket(answer) {
  const sockets = [];
  class FakeSocket {
    constructor(url, protocol) {
      Object.assign(this, { url, protocol, sent: [] });
      sockets.push(this);
      setTimeout(() => this.onopen?.(), 1);
    }

    send(text) {
      this.sent.push(JSON.parse(text));
      answer(this, JSON.parse(text), sockets.length - 1);
    }

    receive(message) {
      setTimeout(() => this.onmessage?.({ data: JSON.stringify(message) }), 1);
    }

    close(code = 1005, reason = "") {
      if (!this.isClosed) setTimeout(() => this.onclose?.({ code, reason }), 1);
      this.isClosed = true;
    }
  }
  return { sockets, WebSocket: FakeSocket };
}

test("a WebSocket without a pong is dead; with pongs the round-trip time is known", limit, async () => {
  let pongs = 0;
  const { sockets, WebSocket } = fakeWebSocket((socket, { op, id }, n) => {
    if (op === "subscribe") socket.receive({ sub: id, cursor: "e:2", ...hydrated(1) });
    if (op === "ping" && n > 0) setTimeout(() => (pongs += 1, socket.receive({ op: "pong", id })), 40);
  });
  const connection = connect({ base: "https://server.example/", run: "r", transport: "websocket", WebSocket, timing: { ...FAST_RETRY, silenceMs: 2500, pingMs: 100 } }, new Store());
  const states = [];
  connection.subscribe((state) => states.push(state));
  await waitFor("another connection", () => sockets.length === 2 && connection.state.lagMs !== null);
  assert.ok(states.some((state) => state.kind === "away" && state.why === "The server has been silent for too long."));
  assert.deepEqual([sockets[0].url, sockets[0].protocol], ["wss://server.example/v1/ws", "proscenium.v1"]);
  assert.deepEqual(sockets.map(({ sent }) => sent.find(({ op }) => op === "subscribe").after), [undefined, "e:2"]);
  assert.ok(connection.state.lagMs >= 40 && connection.state.lagMs < 2500, String(connection.state.lagMs));
  await waitFor("more pongs than the silence has", () => pongs >= 30);
  assert.equal(sockets.length, 2);
});

test("the close of a WebSocket is final or transient, by its code; the token is sent first", limit, async () => {
  const closeCodes = [[1001, "the server is stopping; come back with your cursors"], [1013, ""], [1006, ""], [4401, "the token is over"], [1009, ""]];
  const { sockets, WebSocket } = fakeWebSocket((socket, { op }, n) => {
    if (op === "auth") socket.receive({ op: "authenticated" });
    if (op === "subscribe") socket.close(...closeCodes[n]);
  });
  const connection = connect({ base: "http://x", run: "r", transport: "websocket", WebSocket, token: () => "mine", timing: FAST_RETRY }, new Store());
  const reasons = [];
  connection.subscribe((state) => state.kind === "away" && reasons.push(state.why));
  await waitFor("the rejection", () => connection.state.kind === "refused");
  assert.deepEqual(reasons, ["the server is stopping; come back with your cursors", "The connection was interrupted.", "The connection was interrupted.", "the token is over"]);
  assert.deepEqual([connection.state.why, sockets.length], ["A message of the client is too large.", 5]);
  assert.deepEqual(sockets[0].sent.map(({ op }) => op), ["auth", "subscribe", "ping"]);
});

test("a rejected subscription does not stop the others", limit, async () => {
  const { WebSocket } = fakeWebSocket((socket, { op, id }) => {
    if (op !== "subscribe") return;
    if (id === "theirs") socket.receive({ op: "error", id, status: 403, code: "forbidden", detail: "not yours" });
    else socket.receive({ sub: id, cursor: "e:2", ...hydrated(1), runId: id });
  });
  const store = new Store();
  const connection = connect({ base: "http://x", runs: ["theirs", "mine"], transport: "websocket", WebSocket, timing: FAST_RETRY }, store);
  await waitFor("both subscriptions", () => connection.state.refused && store.run("mine"));
  const { kind, why, refused, cursors } = connection.state;
  assert.deepEqual([kind, why, refused.theirs.code, Object.keys(refused), cursors], ["live", "not yours", "forbidden", ["theirs"], { mine: "e:2" }]);
});

test("after a silence that EventSource cannot explain the client reads with fetch", limit, async () => {
  const server = await startFakeServer((request, response) => writeFrames(response, [[hydrated(1), "e:4"]]));
  const sources = [];
  class FakeSocket {
    readyState = 1;

    constructor(url) {
      sources.push(url);
      setTimeout(() => this.onopen(), 1);
      setTimeout(() => this.onmessage({ data: JSON.stringify(hydrated(1)), lastEventId: "e:2" }), 2);
    }

    close() {}
  }
  const connection = connect({ base: server.base, run: "r", EventSource: FakeSocket, timing: { ...FAST_RETRY, silenceMs: 1500 } }, new Store());
  await waitFor("the first reader", () => connection.state.cursor === "e:2");
  assert.equal(connection.state.reader, "eventsource");
  await waitFor("the second reader", () => connection.state.cursor === "e:4");
  assert.deepEqual([connection.state.reader, sources.length, server.requests.map(after)], ["fetch", 1, ["e:2"]]);
});

test("the event `online` ends the wait for a retry", limit, async () => {
  // Browsers fire this event when the network is back; Node has none.
  const target = new EventTarget();
  const original = { add: globalThis.addEventListener, remove: globalThis.removeEventListener };
  globalThis.addEventListener = target.addEventListener.bind(target);
  globalThis.removeEventListener = target.removeEventListener.bind(target);
  try {
    const server = await startFakeServer((request, response, n) => (n === 0 ? sendProblem(response, 503, "busy") : writeFrames(response, [[hydrated(0), "e:0"]])));
    const connection = connect({ base: server.base, run: "r", timing: { retryMs: 3_600_000, retryMaxMs: 3_600_000 } }, new Store());
    await waitFor("the state away", () => connection.state.kind === "away");
    target.dispatchEvent(new Event("online"));
    await waitFor("the state live", () => connection.state.kind === "live");
    connection.cut();
    target.dispatchEvent(new Event("online"));
    assert.equal(connection.state.kind, "away");
    connection.close();
    server.close();
  } finally {
    globalThis.addEventListener = original.add;
    globalThis.removeEventListener = original.remove;
  }
});
