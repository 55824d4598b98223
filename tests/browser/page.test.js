/**
 * The page in a real browser, served from the files in the built binary.
 */

import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { Stage, limit, text as textOf, until as untilOn } from "./stage.js";

let stage, url, page, problems;

before(async () => {
  stage = await Stage.open();
  // Not the test's proxy: the binary serves its own files.
  url = stage.url;
}, limit);
after(() => stage?.close());

beforeEach(async () => {
  page = await stage.blank();
  problems = page.problems;
});
afterEach(() => page?.close());

const text = (selector) => textOf(page.locator(selector).first());
/** Waits until a predicate holds in the page. */
const until = (predicate, argument) => untilOn(page, predicate, argument);
const waitForState = (kind) => until((kind) => document.getElementById("connection").dataset.kind === kind, kind);
/** Waits for a text: the page updates counts and cursors only ten times a second. */
const waitForText = (id, pattern) => until(([id, pattern]) => new RegExp(pattern).test(document.getElementById(id).textContent), [id, pattern]);

const fact = (type, payload, ids) => ({ type, ...ids, payload });
const textDelta = (words, messageId = "m") => fact("text.delta", { text: words }, { messageId, partId: "p" });

const publish = (run, facts, query) => stage.publish(run, facts, query);
const openRun = (run, audience = "user", at = url) => page.goto(`${at}/#${new URLSearchParams({ run, audience })}`);

/** Starts a proxy that can cut its connections, as a tunnel or a train does. */
async function startCuttableProxy(port) {
  const open = new Set();
  const resumed = [];
  const server = createServer((client) => {
    const upstream = connect(port, "127.0.0.1");
    for (const end of [client, upstream]) {
      open.add(end);
      end.on("close", () => (client.destroy(), upstream.destroy(), open.delete(end)));
      end.on("error", () => {});
    }
    // A resumed stream has its cursor in a header, if the browser reconnects, else in the query.
    client.on("data", (bytes) => void (/last-event-id: \S|[?&]after=[0-9a-f]{16}/i.test(String(bytes)) && resumed.push(String(bytes))));
    client.pipe(upstream).pipe(client);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = () => open.forEach((end) => end.destroy());
  return { port: server.address().port, resumed, cut, close: () => (cut(), server.close()) };
}

test("the page opens the newest live session and streams it", limit, async () => {
  await publish("old", [fact("run.started"), textDelta("Old."), fact("run.finished")], { sessionId: "old-session" });
  await publish("new", [fact("run.started"), textDelta("New ")], { sessionId: "new-session" });
  await page.goto(url);
  await until(() => document.querySelector(".speech .body")?.textContent === "New ");
  assert.equal(await page.locator("#sessions button[aria-current]").getAttribute("data-session"), "new-session");
  await publish("new", [textDelta("words"), fact("run.finished")]);
  await until(() => document.querySelector(".speech .body")?.textContent === "New words");
  assert.equal(await text("#gaps"), "none");
  await waitForText("cursor", "^[0-9a-f]{16}:\\d+");
  await until(() => location.hash.includes("session=new-session"));
  assert.deepEqual(problems, []);
});

test("a tool's progress reaches its end, and the text below grows", limit, async () => {
  await openRun("progress");
  await publish("progress", [fact("run.started"), fact("tool.started", { toolName: "index" }, { toolCallId: "c" })]);
  for (const progress of [0.5, 1]) {
    await publish("progress", [{ ...fact("tool.progress", { progress }, { toolCallId: "c" }), audience: "user" }]);
    await until((progress) => document.querySelector(".tool progress")?.value === progress, progress);
  }
  await publish("progress", [{ ...fact("tool.result", { output: "ok" }, { toolCallId: "c" }), audience: "user" }]);
  await until(() => document.querySelector(".tool .badge")?.textContent === "done");
  await publish("progress", [textDelta("Indexed "), textDelta("10 batches."), fact("run.finished")]);
  await until(() => [...document.querySelectorAll(".speech .body")].at(-1)?.textContent === "Indexed 10 batches.");
  await until(() => document.getElementById("connection").textContent === "Ended: completed");
  assert.equal(await text("ps-runtime-status .phase"), "Completed");
  assert.deepEqual(problems, []);
});

test("the audience determines what the page shows", limit, async () => {
  const diagnostic = (audience) => ({ ...fact("text.final", { text: `for ${audience}` }, { messageId: audience }), audience });
  await publish("audiences", [fact("run.started"), diagnostic("user"), diagnostic("dashboard"), diagnostic("internal")]);
  await openRun("audiences");
  for (const [audience, seen] of [["user", 1], ["dashboard", 2], ["internal", 3]]) {
    // Not `check` of the input: it reads the state at once, while the page may still draw the previous route.
    await page.locator("#audience label", { has: page.locator(`[value="${audience}"]`) }).click();
    await until((seen) => document.querySelectorAll(".speech").length === seen, seen);
    assert.equal(await text("#gaps"), "none");
    await until((audience) => location.hash.includes(`audience=${audience}`), audience);
  }
  assert.deepEqual(problems, []);
});

test("a cut connection resumes without a gap", limit, async (context) => {
  const proxy = await startCuttableProxy(Number(new URL(url).port));
  context.after(() => proxy.close());
  await openRun("cut", "internal", `http://127.0.0.1:${proxy.port}`);
  await publish("cut", [fact("run.started"), textDelta("0 ")]);
  await until(() => document.querySelector(".speech .body")?.textContent === "0 ");
  proxy.cut();
  let words = "0 ";
  for (let at = 1; at <= 20; at += 1) {
    await publish("cut", [textDelta(`${at} `)]);
    words += `${at} `;
    if (at === 10) proxy.cut();
  }
  await until((words) => document.querySelector(".speech .body")?.textContent === words, words);
  await publish("cut", [fact("run.finished")]);
  await waitForState("ended");
  assert.ok(proxy.resumed.length > 0, "it resumed with its cursor");
  assert.equal(await text("#gaps"), "none");
  await waitForText("resumes", "^[1-9]");
});

test("a gap is detected, counted and filled", limit, async () => {
  const snapshot = (sequence, words, more) => ({ frame: "ActivitySnapshot", runId: "r", sequence, activityType: "message", activityId: "m", surface: "conversation", opened: 1, content: { role: "assistant", status: "streaming", parts: [{ partId: "p", kind: "assistant_text", opened: 1, status: "streaming", text: [words] }] }, ...more });
  const delta = (sequence, prev, words) => ({ frame: "ActivityDelta", runId: "r", sequence, prev, activityType: "message", activityId: "m", patch: [{ op: "add", path: "/parts/0/text/-", value: words }] });
  const end = { frame: "End", runId: "r", sequence: 6, status: "completed" };
  const first = [snapshot(1, "one "), { frame: "Hydrated", runId: "r", sequence: 1 }, delta(5, 4, "five")];
  const second = [snapshot(5, "one two five"), { frame: "Hydrated", runId: "r", sequence: 5 }, end];
  const body = (frames) => frames.map((frame) => `data: ${JSON.stringify(frame)}\nid: 0000000000000001:${frame.sequence * 2}\n\n`).join("");
  let requestCount = 0;
  await page.route("**/stream?*", (route) => route.fulfill({ contentType: "text/event-stream", body: body((requestCount += 1) === 1 ? first : second) }));
  await openRun("r");
  await waitForState("ended");
  await waitForText("gaps", "^1$");
  assert.equal(await page.locator(".speech .body").textContent(), "one two five");
});

test("the text of a run is never markup", limit, async () => {
  const words = "<img src=x onerror=alert(1)><script>alert(2)</script>";
  await publish("hostile", [
    fact("session.opened", { title: words }), fact("run.started", {}, { agentId: words }), textDelta(words), fact("reasoning.delta", { text: words }, { messageId: "m", partId: "r" }),
    fact("tool.started", { toolName: words, input: { [words]: words } }, { toolCallId: "c" }), { ...fact("tool.progress", { message: words, progress: 0.5 }, { toolCallId: "c" }), audience: "user" },
    fact("action.required", { kind: words, message: words, risk: words, options: [words], safeInput: words }, { actionId: "a", agentId: words }),
    fact("context.changed", { refs: [words], missing: [words] }), fact("task.changed", { title: words, status: words }, { taskId: "t" }), fact("queue.changed", { items: [words], queueReason: words }),
    fact("agent.handoff", { handoffId: "h", from: words, to: words, reason: words }), fact("context.compaction.started", { compactionId: "k", summary: words }), fact("run.status", { status: words, message: words }),
    fact("artifact.created", { title: words, kind: words, preview: words }, { artifactId: "x" }),
  ], { sessionId: "hostile-session" });
  // High enough for all rows: rows far from the viewport are not in the document.
  await page.setViewportSize({ width: 1280, height: 3000 });
  await page.goto(`${url}/#session=hostile-session`);
  await until((words) => document.querySelector(".speech .body")?.textContent === words && document.querySelector(".action .message")?.textContent === words && document.querySelector(".tool .name")?.textContent === words, words);
  const tabs = await page.locator("#panels [role=tab]:visible").all();
  assert.ok(tabs.length > 3, "hostile names reach each panel");
  for (const tab of tabs) await tab.click();
  assert.equal(await page.locator("body img, body script, [onerror]").count(), 0);
  assert.equal(await text("#title"), words);
  assert.deepEqual(problems, []);
});

test("a reload shows the same run completely", limit, async () => {
  await publish("again", [fact("run.started"), textDelta("All of "), textDelta("it."), fact("tool.started", { toolName: "t" }, { toolCallId: "c" }), fact("run.finished")]);
  await openRun("again", "internal");
  await waitForState("ended");
  // Ages go on, so they are left out.
  const shown = () => page.evaluate(() => [...document.querySelectorAll(".near :is(.name, .body, .words)")].map((one) => one.innerText).join("\n"));
  const expected = await shown();
  await page.reload();
  await waitForState("ended");
  await until((expected) => [...document.querySelectorAll(".near :is(.name, .body, .words)")].map((one) => one.innerText).join("\n") === expected, expected);
  assert.equal(await text("#title"), "again");
  assert.ok(expected.includes("All of it."));
  assert.equal(await text("#gaps"), "none");
  assert.deepEqual(problems, []);
});
