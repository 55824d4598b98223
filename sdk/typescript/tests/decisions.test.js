/** What waits for people, what they decided, and share links. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Problem, Run, attention, decisions, links, makeLink, revokeLink, worker } from "proscenium-client";
import { startServer } from "./harness.js";

const server = await startServer();
const at = { base: server.url };

async function all(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

test("a pending action is listed until it is decided, and then in the record", async () => {
  await new Run({ ...at, run: "asked", session: "s-asked", agent: "asker" }).during(async (run) => {
    const action = run.requireAction("tool_approval", "Deploy?");
    await run.flush();
    const [item, ...others] = await all(attention(at, { agent: "asker" }));
    assert.deepEqual([item.actionId, item.title, item.runId, item.control, item.quorum, item.escalated, others.length], [action, "Deploy?", "asked", undefined, undefined, undefined, 0]);
    assert.deepEqual(await all(attention(at, { agent: "another" })), []);

    await server.post("/v1/runs/asked/controls", { control: "approve", actionId: action });
    assert.equal((await all(attention(at, { agent: "asker" })))[0].control, "submitted");
    const { value: control } = await worker({ ...at, agent: "asker" }).next();
    assert.equal(control.claimed.decidedBy.via, "rest");
    run.resolveAction(action, "approved");
    await run.flush();
    await control.ack();
    assert.deepEqual(await all(attention(at, { agent: "asker" })), []);
    for (const target of [{ run: "asked" }, { session: "s-asked" }]) {
      const [decision] = await all(decisions(at, target));
      assert.deepEqual([decision.actionId, decision.outcome, decision.control, decision.decidedBy.via], [action, "approved", "approve", "rest"]);
      assert.ok(decision.waitedMs >= 0);
    }
  });
});

test("a list is read page by page", async () => {
  await new Run({ ...at, run: "many", agent: "many" }).during(async (run) => {
    const asked = Array.from({ length: 60 }, (_, n) => run.requireAction("tool_approval", `${n}?`));
    await run.flush();
    assert.deepEqual((await all(attention(at, { agent: "many" }))).map(({ actionId }) => actionId), asked);
  });
});

test("a link opens its run until it is revoked", async () => {
  await server.post("/v1/runs/shared/facts", [{ type: "run.started" }]);
  const made = await makeLink(at, { run: "shared", until: new Date(Date.now() + 3_600_000) });
  const secret = { secret: made.url.split("#link=")[1] };
  assert.equal((await server.post("/v1/links/exchange", secret)).runId, "shared");
  const listed = (await all(links(at))).find(({ id }) => id === made.id);
  assert.deepEqual([listed.runId, listed.can, listed.uses], ["shared", ["read"], 1]);
  await revokeLink(at, made.id);
  await assert.rejects(server.post("/v1/links/exchange", secret), /404/);
  await assert.rejects(revokeLink(at, made.id), (error) => error instanceof Problem && error.code === "no_such_link");
});
