/**
 * CopilotKit's threads with its published packages: the store of `@copilotkit/core` over both transports, and the hook
 * of `@copilotkit/react-core` in the page of the guide, in a browser and from another origin.
 */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { EventSchemas } from "@ag-ui/core/schemas";
import { CopilotKitCore, ɵcreateThreadStore } from "@copilotkit/core";
import { limit } from "../deadline.mjs";
import { publish, requestJson, startServer, startWorker, waitFor } from "./harness.mjs";
import { openBrowser, servePages } from "./pages.mjs";

const AGENT = "guide";

/** Publishes a turn of the agent: a question, a tool call, an answer, and the end. */
const turn = (url, thread, run, question) =>
  publish(url, { run, thread, agent: AGENT }, [
    { type: "run.started" },
    { type: "text.final", messageId: `${run}-q`, payload: { role: "user", text: question } },
    { type: "tool.started", toolCallId: `${run}-c`, audience: "user", payload: { toolName: "look", input: { at: "it" } } },
    { type: "tool.result", toolCallId: `${run}-c`, audience: "user", payload: { output: "seen" } },
    { type: "state.snapshot", audience: "user", payload: { state: { asked: question } } },
    { type: "text.final", messageId: `${run}-a`, payload: { text: `Answer to: ${question}` } },
    { type: "run.finished" },
  ]);

const nameOf = (transport) => ({ rest: "addresses of their own", single: "one endpoint" })[transport];

describe("the thread store", () => {
  // CopilotKit asks for the runtime's description in browsers only.
  before(() => (globalThis.window = globalThis));
  after(() => delete globalThis.window);

  for (const runtimeTransport of ["rest", "single"]) {
    test(`lists and changes threads beside ${nameOf(runtimeTransport)}, over a restart`, limit, async (context) => {
      const directory = mkdtempSync(join(tmpdir(), "proscenium-"));
      let server = await startServer("--data-dir", join(directory, "data"));
      context.after(async () => (await server.stop(), rmSync(directory, { recursive: true })));
      for (const n of [1, 2, 3]) await turn(server.url, `t${n}`, `r${n}`, `Question ${n}`);
      await publish(server.url, { run: "r9", thread: "other", agent: "another" }, [{ type: "run.started" }]);

      /** What `useThreads` does: it asks the core for the runtime, and gives its address to a store. */
      const open = async (options = {}) => {
        const core = new CopilotKitCore({ runtimeUrl: `${server.url}/copilotkit`, runtimeTransport });
        await waitFor("the runtime's description", () => core.runtimeConnectionStatus === "connected");
        assert.equal(core.runtimeTransport, runtimeTransport);
        assert.deepEqual(core.threadEndpoints, { list: true, inspect: true, mutations: true, realtimeMetadata: false });
        assert.equal(core.intelligence, undefined);
        const store = ɵcreateThreadStore({ fetch: core.ɵruntimeFetch, onError: (error) => store.errors.push(error.message) });
        store.errors = [];
        store.start();
        context.after(() => store.stop());
        store.setContext({ runtimeUrl: core.runtimeUrl, headers: core.headers, wsUrl: core.intelligence?.wsUrl, agentId: AGENT, ...options });
        await loaded(store);
        return store;
      };
      const loaded = (store) => waitFor("the list", () => !store.getState().isLoading && !store.getState().isFetchingNextPage);
      const shown = (store) => store.getState().threads.map(({ id, name, archived }) => [id, name, archived]);
      const refresh = async (store) => {
        store.refetchThreads();
        await loaded(store);
        return shown(store);
      };

      const store = await open();
      assert.deepEqual(shown(store), [["t3", "Question 3", false], ["t2", "Question 2", false], ["t1", "Question 1", false]]);
      for (const thread of store.getState().threads) {
        assert.deepEqual([thread.agentId, thread.organizationId, thread.createdById], [AGENT, "default", "anonymous"]);
        for (const time of [thread.createdAt, thread.updatedAt, thread.lastRunAt]) assert.equal(new Date(time).toISOString(), time);
      }
      const pages = await open({ limit: 2 });
      assert.equal(shown(pages).length, 2);
      assert.ok(pages.getState().nextCursor);
      pages.fetchNextPage();
      await waitFor("the next page", () => shown(pages).length === 3);
      assert.equal(pages.getState().nextCursor, null);

      await store.renameThread("t1", "Renamed");
      await store.archiveThread("t2");
      await store.deleteThread("t3");
      const afterwards = [["t1", "Renamed", false]];
      assert.deepEqual(shown(store), afterwards, "as the store shows it before the server answers");
      assert.deepEqual(await refresh(store), afterwards, "and as the server has it");
      const all = await open({ includeArchived: true });
      assert.deepEqual(shown(all), [["t2", "Question 2", true], ["t1", "Renamed", false]]);

      await assert.rejects(store.renameThread("t1", "x".repeat(200)), /Request failed: 422/);
      await assert.rejects(store.deleteThread("t3"), /Request failed: 410/);
      assert.deepEqual(store.errors, ["Request failed: 422", "Request failed: 410"]);
      assert.deepEqual(await refresh(store), afterwards);

      await server.stop();
      server = await startServer("--data-dir", join(directory, "data"));
      const again = await open({ includeArchived: true });
      assert.deepEqual(shown(again), shown(all));
      await again.unarchiveThread("t2");
      await turn(server.url, "t1", "r4", "Question 4");
      assert.deepEqual(await refresh(again), [["t1", "Renamed", false], ["t2", "Question 2", false]], "the newest activity comes first");
    });
  }
});

test("a thread's messages and events are those that CopilotKit's inspector and AG-UI's schemas take", limit, async (context) => {
  const server = await startServer();
  context.after(() => server.stop());
  await turn(server.url, "t", "r", "Where?");
  const read = async (what) => (await requestJson(`${server.url}/copilotkit/threads/t/${what}`))[what];
  assert.deepEqual(await read("messages"), [
    { id: "r-q", role: "user", content: "Where?" },
    { id: "r-c", role: "assistant", toolCalls: [{ id: "r-c", name: "look", args: '{"at":"it"}' }] },
    { id: "result:r-c", role: "tool", content: "seen", toolCallId: "r-c" },
    { id: "r-a", role: "assistant", content: "Answer to: Where?" },
  ]);
  assert.deepEqual(await read("state"), { asked: "Where?" });
  const events = await read("events");
  for (const event of events) EventSchemas.parse(event);
  assert.deepEqual([events[0].type, events.at(-1).type], ["RUN_STARTED", "RUN_FINISHED"]);
  const refused = await fetch(`${server.url}/copilotkit/threads/subscribe`, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
  assert.equal(refused.status, 422);
});

describe("the hook", () => {
  let pages, browser;
  before(async () => {
    [pages, browser] = await Promise.all([servePages(), openBrowser()]);
  });
  after(() => Promise.all([pages?.stop(), browser?.close()]));

  for (const transport of ["rest", "single"]) {
    test(`lists, renames, archives, deletes and opens threads in a page of another origin, beside ${nameOf(transport)}, over a restart`, limit, async (context) => {
      const directory = mkdtempSync(join(tmpdir(), "proscenium-"));
      const start = () => startServer("--data-dir", join(directory, "data"), "--cors-origin", pages.origin);
      const end = async ({ server, worker }) => (await worker.stop(), await server.stop());
      const run = async () => {
        const server = await start();
        return { server, worker: await startWorker(server.url, AGENT) };
      };
      let running = await run();
      context.after(async () => (await end(running), rmSync(directory, { recursive: true })));
      for (const n of [1, 2, 3]) await turn(running.server.url, `t${n}`, `r${n}`, `Question ${n}`);

      const setting = transport === "single" ? " useSingleEndpoint" : " useSingleEndpoint={false}";
      const change = (page) => page.replace("<CopilotKitProvider", `<CopilotKitProvider${setting}`);
      const add = () => pages.add("copilotkit", AGENT, running.server.url, { heading: "Threads", change });
      const page = await browser.context.newPage();
      context.after(() => page.close());
      const requests = new Set();
      page.on("request", (request) => request.url().startsWith(running.server.url) && requests.add(new URL(request.url()).pathname));
      await page.goto(await add());
      const rows = page.getByRole("listitem");
      const row = (name) => rows.filter({ has: page.getByRole("button", { name, exact: true }) });
      const names = () => rows.evaluateAll((items) => items.map((item) => item.querySelector("button").textContent));
      const has = (expected) => waitFor(`the threads ${expected}`, async () => JSON.stringify(await names()) === JSON.stringify(expected));
      const press = (name, button) => row(name).getByRole("button", { name: button, exact: true }).click();
      await has(["Question 3", "Question 2", "Question 1"]);
      await page.getByText("Answer to: Question 1").waitFor();

      page.once("dialog", (dialog) => dialog.accept("Renamed"));
      await press("Question 2", "Rename");
      await press("Question 3", "Delete");
      await press("Question 1", "Archive");
      await row("Question 1").getByRole("button", { name: "Restore" }).waitFor();
      await has(["Renamed", "Question 1"]);
      await press("Renamed", "Renamed");
      await page.getByText("Answer to: Question 2").waitFor();
      const stored = async () => (await requestJson(`${running.server.url}/copilotkit/threads?agentId=${AGENT}&includeArchived=true`)).threads.map(({ id, name, archived }) => [id, name, archived]);
      await waitFor("the stored threads", async () => JSON.stringify(await stored()) === JSON.stringify([["t2", "Renamed", false], ["t1", "Question 1", true]]));

      await end(running);
      running = await run();
      await page.goto(await add());
      await has(["Renamed", "Question 1"]);
      await press("Question 1", "Restore");
      await row("Question 1").getByRole("button", { name: "Archive" }).waitFor();
      await press("Renamed", "Renamed");
      await page.getByText("Answer to: Question 2").waitFor();

      // A new thread is in the list once its run has ended or waits.
      await page.getByRole("button", { name: "+ New thread" }).click();
      await page.getByRole("textbox").fill("A fresh question");
      await page.getByRole("textbox").press("Enter");
      await has(["A fresh question", "Renamed", "Question 1"]);
      assert.equal((await stored()).length, 3);
      if (transport === "single") assert.deepEqual([...requests], ["/copilotkit"]);
      else for (const path of ["/copilotkit/info", "/copilotkit/threads", "/copilotkit/threads/t3"]) assert.ok(requests.has(path), path);
    });
  }
});
