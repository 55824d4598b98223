/** A worker takes the controls of its agent. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Problem, worker } from "proscenium-client";
import { startProxy, startServer } from "./harness.js";

const server = await startServer();
const next = async (controls) => (await controls.next()).value;
const send = (session, agentId, value = "x", on = server) => on.post(`/v1/sessions/${session}/controls`, { control: "send", agentId, value });
const statusOf = async (session) => (await server.get(`/v1/sessions/${session}/controls`)).controls[0].status;

test("a worker runs a turn, asks, and continues after the decision", async () => {
  const controls = worker({ base: server.url, agent: "clerk" });
  await send("s-clerk", "clerk", "Delete a.txt");
  const turn = await next(controls);
  assert.deepEqual([turn.control, turn.text, turn.claimed.sessionId, turn.claimed.attempt], ["send", "Delete a.txt", "s-clerk", 1]);
  const action = await turn.accept(async (run) => {
    assert.equal(await statusOf("s-clerk"), "acked");
    run.userMessage(turn.text, turn.messageId);
    return run.requireAction("tool_approval", "May I?");
  }, "turn-1");
  assert.equal(await server.status("turn-1"), "waiting");

  await server.post("/v1/runs/turn-1/controls", { control: "approve", actionId: action });
  const approve = await next(controls);
  assert.deepEqual([approve.control, approve.claimed.runId, approve.claimed.actionId], ["approve", "turn-1", action]);
  await approve.run().during(async (run) => {
    run.resolveAction(action, "approved");
    await run.flush();
    await approve.ack();
  });
  const [run] = await server.activities("turn-1", "run");
  assert.deepEqual([run.content.status, run.content.attempt], ["completed", 1]);
});

test("the words of a message are found in every form", async () => {
  const controls = worker({ base: server.url, agent: "reader" });
  const earlier = { role: "user", id: "u0", content: "before" };
  const forms = ["hello", { text: "hello" }, { messages: [earlier, { role: "user", id: "u1", content: "hello" }] }, { messages: [earlier, { role: "user", id: "u1", parts: [{ type: "text", text: "hel" }, { type: "file" }, { type: "text", text: "lo" }] }, { role: "assistant" }] }];
  for (const value of forms) {
    await send("s-reader", "reader", value);
    const control = await next(controls);
    assert.deepEqual([control.text, control.messageId], ["hello", value.messages === undefined ? undefined : "u1"]);
    await control.ack();
  }
});

test("a refused control says why, and a requeued one comes again", async () => {
  const controls = worker({ base: server.url, agent: "picky" });
  await send("s-picky", "picky");
  const control = await next(controls);
  await control.nack("not now", { requeue: true });
  const again = await next(controls);
  assert.deepEqual([again.claimed.controlId, again.claimed.attempt], [control.claimed.controlId, 2]);
  await assert.rejects(control.ack(), (error) => error instanceof Problem && error.code === "lease_lost");
  await again.nack("never");
  assert.equal(await statusOf("s-picky"), "nacked");
});

test("a worker waits while the server is away", async () => {
  const own = await startServer();
  const controls = worker({ base: own.url, agent: "patient" });
  await send("s", "patient", "1", own);
  await (await next(controls)).ack();
  await own.kill();
  const waits = next(controls);
  await own.start();
  await send("s", "patient", "2", own);
  assert.equal((await waits).value, "2");
});

test("a lost answer to an acknowledgement is repeated", async () => {
  const proxy = await startProxy(server.url);
  await send("s-lossy", "lossy");
  const control = await next(worker({ base: proxy.url, agent: "lossy" }));
  proxy.losses = 1;
  await control.ack();
  assert.equal(await statusOf("s-lossy"), "acked");
});

test("a worker ends by its signal, and a refused one throws", async () => {
  const abort = new AbortController();
  const controls = worker({ base: server.url, agent: "ends", signal: abort.signal });
  const waits = controls.next();
  abort.abort();
  assert.deepEqual(await waits, { done: true, value: undefined });
  await assert.rejects(next(worker({ base: server.url, agent: "a", leaseSeconds: 0 })), (error) => error instanceof Problem && error.code === "bad_query");
});
