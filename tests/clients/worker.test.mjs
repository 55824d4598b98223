/** The example worker with each client: approvals that wait, across refreshes and tabs. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { limit } from "../deadline.mjs";
import { agUis } from "./ag-ui.mjs";
import { ai } from "./ai-sdk.mjs";
import { ack, assertClean, fetchActivities, claim, collectComplaints, startCuttableProxy, publish, runReporter, startServer, within, textsInOrder, waitFor, startWorker } from "./harness.mjs";
import { chosen, difference } from "./matrix.mjs";
import { eventSource, fetchEvents } from "./native.mjs";
import { tanstack } from "./tanstack.mjs";

const CLIENTS = chosen([eventSource, fetchEvents, ...agUis, tanstack, ...ai]);

let server, worker, proxy;
let threads = 0;

before(async () => {
  server = await startServer();
  worker = await startWorker(server.url, "worker");
  proxy = await startCuttableProxy(server.url);
});
after(async () => {
  await proxy.close();
  await worker.stop();
  await server.stop();
});

/** A conversation with an agent, and the pages that show it. */
function openConversation(client, agent) {
  const name = `${(threads += 1)}`;
  const where = { url: proxy.url, agent, thread: `thread-${name}`, run: `run-${name}`, user: `user-${name}` };
  const pages = [];
  return {
    where,
    /** Opens a page that begins or joins the run. It follows the run in the background. */
    async open(how) {
      const page = await client.open(where);
      pages.push(page);
      page.done = page[how]();
      page.done.then(() => (page.hasEnded = true), (error) => (page.failure = error));
      if (how === "begin") await page.send?.();
      return page;
    },
    /** Reloads the page. */
    async reload(page) {
      page.close?.();
      return this.open("join");
    },
    async close() {
      for (const page of pages) {
        page.close?.();
        const problems = page.streams.findProblems();
        assert.equal(problems.length, 0, problems.join("\n"));
        if (page.failure) throw page.failure;
      }
    },
  };
}

const plain = (value) => JSON.parse(JSON.stringify(value));

const pendingIn = (page) => waitFor("a pending decision", () => page.failure ?? (page.pending().length > 0 && page.pending())).then((pending) => {
  if (pending instanceof Error) throw pending;
  return pending;
});

test("the example of the reporter is a whole run", limit, async () => {
  await runReporter(server.url);
  await assertClean(server.url, "index-docs");
});

for (const client of CLIENTS) {
  /** Waits until the page has read its stream: some clients accept no decision before. */
  const waitUntilRead = async (page) => client.endsWithRun || within("the end of the page's stream", page.done);

  describe(client.name, () => {
    for (const [isApproved, last] of [[true, "a.txt is gone. That was all."], [false, "Then a.txt stays."]]) {
      test(`an approval survives a refresh, and the run ${isApproved ? "continues" : "ends"} after the answer`, limit, async () => {
        const complaints = await collectComplaints(async () => {
          const conversation = openConversation(client, "worker");
          const first = await conversation.open("begin");
          const [action] = await pendingIn(first);
          const second = await conversation.reload(first);
          assert.deepEqual(await pendingIn(second), [action], "the refreshed page shows the approval");
          assert.ok(second.visibleTexts().includes("Let me look around."), JSON.stringify(second.visibleTexts()));
          if (!client.endsWithRun) assert.equal(difference(plain(second.content()), plain(first.content())), undefined, "the refreshed page shows the same content");
          await waitUntilRead(second);
          await within("the decision", second.decide(isApproved, action));
          await waitFor("the end", () => second.visibleTexts().includes(last));
          const [run] = (await (await fetch(`${server.url}/v1/sessions/${conversation.where.thread}`)).json()).runs;
          await waitFor("the run's end", async () => (await (await fetch(`${server.url}/v1/runs/${run.runId}`)).json()).status === "completed");
          await assertClean(server.url, run.runId);
          assert.deepEqual(second.pending(), []);
          assert.deepEqual(second.visibleTexts(), (client.nativeTexts ?? textsInOrder)(await fetchActivities(server.url, run.runId)));
          const third = await conversation.reload(second);
          await waitFor("the complete conversation", () => third.visibleTexts().includes(last));
          assert.deepEqual(third.visibleTexts(), second.visibleTexts());
          await conversation.close();
        });
        assert.deepEqual(complaints, []);
      });
    }

    test("an approval in one tab is resolved in another only after the runtime confirms it", limit, async () => {
      const complaints = await collectComplaints(async () => {
        const agent = `held-${threads}`;
        const conversation = openConversation(client, agent);
        const here = await conversation.open("begin");
        const send = await claim(server.url, agent);
        const at = { run: send.value.runId, thread: conversation.where.thread, agent, user: conversation.where.user };
        await publish(server.url, at, [
          { type: "run.started" },
          { type: "text.final", messageId: at.user, payload: { role: "user", text: "Go on." } },
          { type: "tool.args", toolCallId: "call", payload: { toolName: "delete", input: { path: "a.txt" } } },
          { type: "action.required", actionId: "ask", toolCallId: "call", payload: { kind: "tool_approval", message: "May I?" } },
        ]);
        await ack(server.url, send);
        const [action] = await pendingIn(here);
        const there = await conversation.open("join");
        await pendingIn(there);
        await waitUntilRead(there);
        const decided = there.decide(true, action);
        const approve = await claim(server.url, agent);
        assert.deepEqual([approve.control, approve.actionId], ["approve", "ask"]);
        // The runtime has claimed the control and not yet reported a result: every tab shows it as pending.
        const third = await conversation.open("join");
        const [asked] = (await fetchActivities(server.url, at.run)).filter(({ activityType }) => activityType === "action");
        assert.deepEqual([asked.content.status, asked.content.control], ["pending", "submitted"]);
        for (const page of [here, there, third]) assert.ok(!page.visibleTexts().includes("It is gone."));
        await publish(server.url, at, [
          { type: "action.resolved", actionId: "ask", payload: { outcome: "approved" } },
          { type: "tool.result", toolCallId: "call", audience: "user", payload: { output: "deleted" } },
          { type: "text.final", messageId: "last", payload: { text: "It is gone." } },
          { type: "run.finished" },
        ]);
        await ack(server.url, approve);
        await within("the decision", decided);
        await waitFor("the end in the tab that decided", () => there.visibleTexts().includes("It is gone."));
        const again = client.endsWithRun ? here : await conversation.reload(here);
        await waitFor("the end in the other tab", () => again.visibleTexts().includes("It is gone."));
        const last = client.endsWithRun || !third.hasEnded ? third : await conversation.reload(third);
        await waitFor("the end in the tab that joined meanwhile", () => last.visibleTexts().includes("It is gone."));
        assert.deepEqual([there, again, last].map((page) => page.pending()), [[], [], []]);
        await conversation.close();
      });
      assert.deepEqual(complaints, []);
    });
  });
}
