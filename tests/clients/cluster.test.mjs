/** Published clients on a follower of a cluster, and through a leader that is killed. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Cluster } from "../cluster.mjs";
import { limit } from "../deadline.mjs";
import { agUis } from "./ag-ui.mjs";
import { ai } from "./ai-sdk.mjs";
import { BINARY, RECORDINGS, ack, claim, post, publish, waitFor, within } from "./harness.mjs";
import { runAll } from "./matrix.mjs";
import { eventSource } from "./native.mjs";

/** Two recordings of each source: this is about the nodes, and the others are about the clients. */
const PART = RECORDINGS.filter(({ source }, at) => RECORDINGS.slice(0, at).filter((earlier) => earlier.source === source).length < 2);
const CLIENTS = [eventSource, ...agUis.filter(({ name }) => !name.includes("0.0.59")), ai.at(-1)];

let cluster;

before(async () => (cluster = await Cluster.start(BINARY, 3)));
after(() => cluster?.stop());

for (const client of CLIENTS) {
  test(`${client.name} shows recordings on a follower as on a single server`, limit, async () => {
    const [leader, follower] = [await cluster.leader(), await cluster.follower()];
    const { failures } = await runAll(leader.url, client, { page: follower.url, recordings: PART });
    assert.equal(failures.length, 0, failures.slice(0, 5).join("\n"));
  });
}

test("An AG-UI page on a follower goes on with one reconnect when the leader is killed", limit, async () => {
  const [leader, follower] = [await cluster.leader(), await cluster.follower()];
  const [run, thread, agent] = ["run-k", "thread-k", "agent-k"];
  const page = agUis[0].open({ url: follower.url, agent, thread, run, user: "user-k" });
  const begun = page.begin().then(() => "ended", () => "broke");
  const asked = await claim(follower.url, agent);
  await ack(follower.url, asked);
  const where = { run: asked.value.runId, thread, agent };
  const delta = (text) => ({ type: "text.delta", messageId: "m", partId: "p", payload: { text } });
  await publish(follower.url, where, [{ type: "run.started" }, delta("before ")]);
  await waitFor("the first text", () => page.texts().join("|").includes("before "));
  await leader.kill();
  assert.equal(await within("the end of the broken stream", begun), "broke");
  const resumed = page.resume();
  // A request that finds no leader stores nothing.
  await waitFor("a leader", () => post(`${follower.url}/v1/runs/${where.run}/facts`, [delta("after"), { type: "run.finished" }]).then(() => true, (error) => assert.match(error.message, /no_leader/)));
  await within("the end of the run", resumed);
  assert.deepEqual(page.texts(), ["Go on.", "before after"]);
});
