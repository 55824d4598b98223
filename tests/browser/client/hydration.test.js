/**
 * Hydration and controls: late answers are dropped, rejections have a reason, and repeated controls are idempotent.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Hydration, Problem, Stale, Store, submit } from "../../../web-demo/client/index.js";
import { limit } from "../../deadline.mjs";
import { sortByOpened, fetchActivities, startFakeServer, sendProblem, publish, startServer, activitiesOf, waitFor } from "./harness.js";

const LONG_TEXT = "long ".repeat(20_000);

let server;
before(async () => {
  server = await startServer();
  await publish(server.base, "r/1", [
    { type: "run.started", sessionId: "s 1" },
    { type: "text.delta", messageId: "m", payload: { text: "Hello" } },
    { type: "tool.started", toolCallId: "c", payload: { toolName: "search" } },
    { type: "tool.result", toolCallId: "c", audience: "user", payload: { output: LONG_TEXT } },
    { type: "action.required", actionId: "a", payload: { kind: "tool_approval", message: "May I?" } },
    { type: "diagnostic.changed", payload: { message: "hidden" } },
  ]);
}, limit);
after(() => server?.stop());

test("a session is hydrated part by part", limit, async () => {
  const hydration = new Hydration({ base: `${server.base}/` });
  const { sessions } = await hydration.sessions({ limit: 5 });
  assert.deepEqual(sessions.map(({ sessionId, status }) => [sessionId, status]), [["s 1", "waiting"]]);
  const session = await hydration.session("s 1");
  assert.deepEqual([session.runs[0].runId, session.pendingActions[0].activityId, session.truncated], ["r/1", "a", false]);
  const window = await hydration.window("s 1", { messages: 1 });
  assert.deepEqual([window.messages[0].content.parts[0].text, window.nextCursor], [["Hello"], null]);
  const timeline = await hydration.timeline("s 1");
  assert.deepEqual(timeline.items.map((item) => item.activityId), ["c", "a"]);
  assert.deepEqual((await hydration.runs()).runs.map((run) => run.runId), ["r/1"]);
  const run = await hydration.run("r/1");
  assert.deepEqual([run.status, run.counts.pendingActions, run.lastSequence], ["waiting", 1, 6]);
});

test("a run can be read as of any sequence and loaded into a store", limit, async () => {
  const [hydration, store] = [new Hydration({ base: server.base, audience: "internal" }), new Store()];
  for (const at of [2, 3, 6]) {
    const { activities, sequence } = await hydration.activities("r/1", { at });
    assert.equal(sequence, at);
    store.load("r/1", activities, sequence);
  }
  assert.deepEqual(sortByOpened(activitiesOf(store, "r/1")), sortByOpened(await fetchActivities(server.base, "r/1", "internal")));
  const message = store.get("r/1 message m");
  const back = await hydration.activities("r/1", { at: 2, surfaces: ["conversation"] });
  store.load("r/1", back.activities, 2);
  assert.deepEqual([store.size, store.get("r/1 message m")], [1, message]);
});

test("envelopes are read by page, for the requested audience", limit, async () => {
  const hydration = new Hydration({ base: server.base });
  const sequences = async (call) => (await hydration.events("r/1", call)).events.map((event) => event.sequence);
  assert.deepEqual(await sequences({ after: 1, limit: 2 }), [2, 3]);
  assert.deepEqual(await sequences({ before: 5, limit: 2 }), [3, 4]);
  assert.deepEqual(await sequences(), [1, 2, 3, 4, 5]);
  assert.deepEqual(await sequences({ audience: "internal" }), [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(await sequences({ type: ["text.delta", "tool.started"] }), [2, 3]);
  const { nextCursor } = await hydration.events("r/1", { limit: 3 });
  assert.deepEqual(await sequences({ after: nextCursor }), [4, 5]);
});

test("lists and logs of a session are requested with their paths and filters", limit, async () => {
  const server = await startFakeServer((request, response) => {
    const activation = new URL(request.url, "http://x").searchParams.get("activation");
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ activation, sessions: [], activities: [], events: [], nextCursor: null }));
  });
  const hydration = new Hydration({ base: server.base, audience: "dashboard" });
  await hydration.sessions({ status: "waiting", q: "report 1", needsAction: true });
  await hydration.sessionActivities("s 1", { at: "e:4" });
  await hydration.sessionEvents("s 1", { after: 3, limit: 10 });
  const requests = server.requests.map(({ url }) => {
    const { pathname, searchParams } = new URL(url, "http://x");
    searchParams.delete("activation");
    return `${pathname}?${searchParams}`;
  });
  assert.deepEqual(requests, [
    "/v1/sessions?audience=dashboard&status=waiting&q=report+1&needsAction=true",
    "/v1/sessions/s%201/activities?audience=dashboard&at=e%3A4",
    "/v1/sessions/s%201/events?audience=dashboard&after=3&limit=10",
  ]);
});

test("an offloaded body is read whole or by range, and no other path is requested", limit, async () => {
  const hydration = new Hydration({ base: server.base, fetch: (...requests) => (addresses.push(requests[0]), fetch(...requests)) });
  const addresses = [];
  const { events } = await hydration.events("r/1", { type: ["tool.result"] });
  const refs = [].concat(events[0].refs).flatMap((ref) => (ref.href ? [ref] : Object.values(ref)));
  const { href } = refs.find((ref) => ref.href);
  const whole = await hydration.blob(href);
  assert.deepEqual([await whole.blob.text(), whole.size, whole.isWhole], [LONG_TEXT, LONG_TEXT.length, true]);
  const part = await hydration.blob(href, { from: 5, to: 8 });
  assert.deepEqual([await part.blob.text(), part.size, part.isWhole], ["long", LONG_TEXT.length, false]);
  const requests = addresses.length;
  for (const path of ["https://evil.example/v1/blobs/x", "//evil.example/v1/blobs/x", "/v1/blobs/../runs", "/v1/blobs/..", "/v1/runs/r", "/v1/blobs/x?ticket=", "/v1/blobs/a\\..\\b", ""]) {
    await assert.rejects(hydration.blob(path), TypeError, path);
  }
  assert.equal(addresses.length, requests);
});

test("a rejection is an error with code, status and detail", limit, async () => {
  const hydration = new Hydration({ base: server.base });
  const problem = await hydration.run("unknown").catch((error) => error);
  assert.ok(problem instanceof Problem);
  assert.deepEqual([problem.code, problem.status, problem.message], ["no_such_run", 404, problem.detail]);
  assert.equal(problem.document.title.length > 0, true);
  assert.equal((await hydration.events("r/1", { after: "nonsense" }).catch((error) => error)).code, "bad_cursor");
  await assert.rejects(hydration.run(".."), (error) => error instanceof Problem && error.code === "bad_id");
  const proxy = await startFakeServer((request, response) => response.writeHead(502).end("<p>Bad gateway"));
  const proxyProblem = await new Hydration({ base: proxy.base }).runs().catch((error) => error);
  assert.deepEqual([proxyProblem instanceof Problem, proxyProblem.status, proxyProblem.code, proxyProblem.detail], [true, 502, "unknown", "The server answered 502 Bad Gateway"]);
});

test("an answer of an earlier activation is stale", limit, async () => {
  /** Answers that the test releases. This `fetch` ignores the abort signal, as a slow cache may. */
  const waiting = [];
  const slowFetch = (address) => new Promise((resolve) => waiting.push(() => resolve(fetch(address))));
  const hydration = new Hydration({ base: server.base, fetch: slowFetch });
  const first = hydration.activation;
  const calls = [hydration.session("s 1"), hydration.run("r/1"), hydration.run("unknown"), hydration.blob("/v1/blobs/none")].map((call) => call.catch((error) => error));
  const second = hydration.activate();
  assert.notEqual(second, first);
  const now = hydration.run("r/1");
  // The newer call is answered before the older ones.
  await waitFor("all calls", () => waiting.length === 5);
  waiting.at(-1)();
  assert.equal((await now).activation, second);
  for (const answer of waiting.slice(0, -1)) answer();
  for (const result of await Promise.all(calls)) {
    assert.ok(result instanceof Stale, String(result));
    assert.equal(result.activation, first);
  }
});

test("a late answer does not replace the current session", limit, async () => {
  const answers = {};
  const fakeFetch = (address) => new Promise((resolve) => (answers[new URL(address).pathname] = (body) => resolve(Response.json(body))));
  const hydration = new Hydration({ base: "http://x", fetch: fakeFetch });
  let displayed = "";
  const openSession = async (session) => {
    const activation = hydration.activate();
    try {
      const { title } = await hydration.session(session);
      displayed = title;
    } catch (error) {
      if (!(error instanceof Stale)) throw error;
    }
    return activation;
  };
  const [first, second] = [openSession("one"), openSession("two")];
  await waitFor("both requests", () => Object.keys(answers).length === 2);
  answers["/v1/sessions/two"]({ title: "two", activation: hydration.activation });
  await second;
  answers["/v1/sessions/one"]({ title: "one", activation: "1-1" });
  await first;
  assert.equal(displayed, "two");
  // An answer of another activation is rejected, too.
  const mixedUp = hydration.session("three");
  await waitFor("the third request", () => answers["/v1/sessions/three"]);
  answers["/v1/sessions/three"]({ title: "?", activation: "other" });
  await assert.rejects(mixedUp, Stale);
});

test("a new activation aborts pending requests", limit, async () => {
  let isAborted = false;
  const silent = await startFakeServer((request, response) => response.on("close", () => (isAborted = true)));
  const hydration = new Hydration({ base: silent.base });
  const call = hydration.sessions();
  await waitFor("the request", () => silent.requests.length === 1);
  hydration.activate();
  await assert.rejects(call, Stale);
  await waitFor("the abort", () => isAborted);
  const [abort, reason] = [new AbortController(), new Error("mine")];
  const second = hydration.sessions({ signal: abort.signal });
  abort.abort(reason);
  await assert.rejects(second, reason);
  await assert.rejects(hydration.sessions({ signal: abort.signal }), reason);
  assert.ok(silent.requests.length <= 2);
});

test("each request has the current token in a header and nowhere else", limit, async () => {
  const echo = await startFakeServer((request, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ activation: new URL(request.url, "http://x").searchParams.get("activation") }));
  });
  let requests = 0;
  const hydration = new Hydration({ base: echo.base, token: async () => `token-${(requests += 1)}` });
  await hydration.sessions();
  await hydration.run("r");
  assert.deepEqual(echo.requests.map((request) => request.headers.authorization), ["Bearer token-1", "Bearer token-2"]);
  assert.ok(echo.requests.every((request) => !request.url.includes("token-")));
});

test("a control with one id is recorded once, and rejected with a status", limit, async () => {
  const queued = await submit(server, { run: "r/1", control: "approve", actionId: "a", controlId: "mine" });
  assert.deepEqual(queued, { controlId: "mine", status: "queued" });
  assert.deepEqual(await submit(server, { run: "r/1", control: "approve", actionId: "a", controlId: "mine" }), queued);
  const generated = await submit(server, { session: "s 1", control: "send", value: "more" });
  assert.match(generated.controlId, /^control-[0-9a-f]{32}$/);
  const { controls } = await new Hydration({ base: server.base }).controls("r/1");
  assert.deepEqual(controls.map(({ controlId, control, status }) => [controlId, control, status]), [["mine", "approve", "queued"]]);
  const statusOf = async (control) => (await submit(server, control).catch((error) => error)).status;
  assert.equal(await statusOf({ run: "r/1", control: "approve", actionId: "unknown" }), 409);
  assert.equal(await statusOf({ run: "r/1", control: "open_detail" }), 422);
  await assert.rejects(submit(server, { control: "send" }), TypeError);
  await assert.rejects(submit(server, { run: "r", session: "s", control: "send" }), TypeError);
});

test("a control is retried with the same id on transient errors only", limit, async () => {
  const ids = [];
  const flaky = await startFakeServer((request, response, n) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      ids.push(JSON.parse(body).controlId);
      if (n === 0) return response.destroy();
      if (n === 1) return sendProblem(response, 503, "busy");
      if (n === 2) return response.writeHead(202, { "content-type": "application/json" }).end(JSON.stringify({ controlId: ids[0], status: "queued" }));
      sendProblem(response, n < 6 ? 503 : 409, "no");
    });
  });
  assert.equal((await submit(flaky, { run: "r", control: "stop" })).controlId, ids[0]);
  assert.deepEqual([ids.length, new Set(ids).size], [3, 1]);
  await assert.rejects(submit(flaky, { run: "r", control: "stop" }), (error) => error.status === 503);
  assert.deepEqual([ids.length, new Set(ids).size], [6, 2]);
  await assert.rejects(submit(flaky, { run: "r", control: "stop" }), (error) => error.status === 409);
  assert.equal(ids.length, 7);
});
