/** The example worker, as each client meets it: an approval that truly waits, across refreshes and tabs. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { agUis } from "./ag-ui.mjs";
import { ai } from "./ai-sdk.mjs";
import { ack, activities, claim, heard, phoneLine, publish, serve, soon, spoken, until, work } from "./harness.mjs";
import { difference } from "./matrix.mjs";
import { eventSource, fetchEvents } from "./native.mjs";
import { tanstack } from "./tanstack.mjs";

const CLIENTS = [eventSource, fetchEvents, ...agUis, tanstack, ...ai].filter(({ name }) => name.includes(process.env.PROSCENIUM_CLIENT ?? ""));

let server, worker, line;
let threads = 0;

before(async () => {
  server = await serve();
  worker = await work(server.url, "worker");
  line = await phoneLine(server.url);
});
after(async () => {
  await line.close();
  await worker.stop();
  await server.stop();
});

/** A conversation with an agent, and the pages that show it. */
function conversation(client, agent) {
  const name = `${(threads += 1)}`;
  const where = { url: line.url, agent, thread: `thread-${name}`, run: `run-${name}`, user: `user-${name}` };
  const pages = [];
  return {
    where,
    /** Opens a page, and lets it begin, or join. What it watches goes on by itself. */
    async open(how) {
      const page = await client.open(where);
      pages.push(page);
      page.over = page[how]();
      page.over.then(() => (page.isOver = true), (error) => (page.broke = error));
      if (how === "begin") await page.send?.();
      return page;
    },
    /** Looks again, as somebody does who reloads the page. */
    async reload(page) {
      page.close?.();
      return this.open("join");
    },
    async close() {
      for (const page of pages) {
        page.close?.();
        const wrong = page.streams.wrong();
        assert.equal(wrong.length, 0, wrong.join("\n"));
        if (page.broke) throw page.broke;
      }
    },
  };
}

const plain = (value) => JSON.parse(JSON.stringify(value));

const pendingIn = (page) => until("something to decide", () => page.broke ?? (page.pending().length > 0 && page.pending())).then((found) => {
  if (found instanceof Error) throw found;
  return found;
});

for (const client of CLIENTS) {
  /** Pages take no decision while they still look what goes on: not faster than anybody clicks. */
  const rests = async (page) => client.endsOnlyWithTheRun || soon("the page to have looked", page.over);

  describe(client.name, () => {
    for (const [yes, last] of [[true, "a.txt is gone. That was all."], [false, "Then a.txt stays."]]) {
      test(`an approval waits across a refresh, and ${yes ? "goes on" : "ends"} as the user says`, { timeout: 120_000 }, async () => {
        const complaints = await heard(async () => {
          const talk = conversation(client, "worker");
          const first = await talk.open("begin");
          const [action] = await pendingIn(first);
          const second = await talk.reload(first);
          assert.deepEqual(await pendingIn(second), [action], "the approval is there again");
          assert.ok(second.said().includes("Let me look around."), JSON.stringify(second.said()));
          if (!client.endsOnlyWithTheRun) assert.equal(difference(plain(second.picture()), plain(first.picture())), undefined, "a refresh shows the same");
          await rests(second);
          await soon("the decision to be taken", second.decide(yes, action));
          await until("the end", () => second.said().includes(last));
          const [run] = (await (await fetch(`${server.url}/v1/sessions/${talk.where.thread}`)).json()).runs;
          await until("the run's end", async () => (await (await fetch(`${server.url}/v1/runs/${run.runId}`)).json()).status === "completed");
          assert.deepEqual(second.pending(), []);
          assert.deepEqual(second.said(), (client.nativeTexts ?? spoken)(await activities(server.url, run.runId)));
          const third = await talk.reload(second);
          await until("the whole conversation", () => third.said().includes(last));
          assert.deepEqual(third.said(), second.said());
          await talk.close();
        });
        assert.deepEqual(complaints, []);
      });
    }

    test("an approval given in one tab is resolved in another only when the runtime says so", { timeout: 120_000 }, async () => {
      const complaints = await heard(async () => {
        const agent = `held-${threads}`;
        const talk = conversation(client, agent);
        const here = await talk.open("begin");
        const send = await claim(server.url, agent);
        const at = { run: send.value.runId, thread: talk.where.thread, agent, user: talk.where.user };
        await publish(server.url, at, [
          { type: "run.started" },
          { type: "text.final", messageId: at.user, payload: { role: "user", text: "Go on." } },
          { type: "tool.args", toolCallId: "call", payload: { toolName: "delete", input: { path: "a.txt" } } },
          { type: "action.required", actionId: "ask", toolCallId: "call", payload: { kind: "tool_approval", message: "May I?" } },
        ]);
        await ack(server.url, send);
        const [action] = await pendingIn(here);
        const there = await talk.open("join");
        await pendingIn(there);
        await rests(there);
        const decided = there.decide(true, action);
        const approve = await claim(server.url, agent);
        assert.deepEqual([approve.control, approve.actionId], ["approve", "ask"]);
        // It was said, and taken; nothing has come of it yet, whoever looks.
        const third = await talk.open("join");
        const [asked] = (await activities(server.url, at.run)).filter(({ activityType }) => activityType === "action");
        assert.deepEqual([asked.content.status, asked.content.control], ["pending", "submitted"]);
        for (const page of [here, there, third]) assert.ok(!page.said().includes("It is gone."));
        await publish(server.url, at, [
          { type: "action.resolved", actionId: "ask", payload: { outcome: "approved" } },
          { type: "tool.result", toolCallId: "call", audience: "user", payload: { output: "deleted" } },
          { type: "text.final", messageId: "last", payload: { text: "It is gone." } },
          { type: "run.finished" },
        ]);
        await ack(server.url, approve);
        await soon("the decision to be taken", decided);
        await until("the end in the tab that decided", () => there.said().includes("It is gone."));
        const again = client.endsOnlyWithTheRun ? here : await talk.reload(here);
        await until("the end in the other tab", () => again.said().includes("It is gone."));
        const last = client.endsOnlyWithTheRun || !third.isOver ? third : await talk.reload(third);
        await until("the end in the tab that came meanwhile", () => last.said().includes("It is gone."));
        assert.deepEqual([there, again, last].map((page) => page.pending()), [[], [], []]);
        await talk.close();
      });
      assert.deepEqual(complaints, []);
    });
  });
}
