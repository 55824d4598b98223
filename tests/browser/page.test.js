/**
 * The page in a real browser, against the built binary: what a visitor sees, from the files that are in it.
 */

import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { DEADLINE, Stage, text as textOf, until as untilOn } from "./stage.js";

let stage, url, page, problems;

before(async () => {
  stage = await Stage.open();
  // Not the stage's front: these are the files in the binary.
  url = stage.url;
}, { timeout: DEADLINE });
after(() => stage?.close());

beforeEach(async () => {
  page = await stage.blank();
  problems = page.problems;
});
afterEach(() => page?.close());

const text = (selector) => textOf(page.locator(selector).first());
/** Waits until `holds`, a function in the page, does. */
const until = (holds, argument) => untilOn(page, holds, argument);
const isKind = (kind) => until((kind) => document.getElementById("connection").dataset.kind === kind, kind);
/** The page tells counts and cursors ten times a second, but what was said at once: they are waited for. */
const stands = (id, pattern) => until(([id, pattern]) => new RegExp(pattern).test(document.getElementById(id).textContent), [id, pattern]);

const fact = (type, payload, ids) => ({ type, ...ids, payload });
const said = (words, messageId = "m") => fact("text.delta", { text: words }, { messageId, partId: "p" });

const publish = (run, facts, query) => stage.publish(run, facts, query);
const look = (run, audience = "user", at = url) => page.goto(`${at}/#${new URLSearchParams({ run, audience })}`);

/** A line to the server that can be cut: what a proxy, a tunnel or a train does. */
async function phoneLine(port) {
  const open = new Set();
  const resumed = [];
  const exchange = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const end of [near, far]) {
      open.add(end);
      end.on("close", () => (near.destroy(), far.destroy(), open.delete(end)));
      end.on("error", () => {});
    }
    // Whoever comes back says where it was: in a header, if the browser does it, else in the query.
    near.on("data", (bytes) => void (/last-event-id: \S|[?&]after=[0-9a-f]{16}/i.test(String(bytes)) && resumed.push(String(bytes))));
    near.pipe(far).pipe(near);
  });
  await new Promise((resolve) => exchange.listen(0, "127.0.0.1", resolve));
  const cut = () => open.forEach((end) => end.destroy());
  return { port: exchange.address().port, resumed, cut, close: () => (cut(), exchange.close()) };
}

test("the newest that goes on opens by itself and streams", { timeout: 2 * DEADLINE }, async () => {
  await publish("old", [fact("run.started"), said("Old."), fact("run.finished")], { sessionId: "old-session" });
  await publish("new", [fact("run.started"), said("New ")], { sessionId: "new-session" });
  await page.goto(url);
  await until(() => document.querySelector(".speech .body")?.textContent === "New ");
  assert.equal(await page.locator("#sessions button[aria-current]").getAttribute("data-session"), "new-session");
  await publish("new", [said("words"), fact("run.finished")]);
  await until(() => document.querySelector(".speech .body")?.textContent === "New words");
  assert.equal(await text("#gaps"), "none");
  await stands("cursor", "^[0-9a-f]{16}:\\d+");
  await until(() => location.hash.includes("session=new-session"));
  assert.deepEqual(problems, []);
});

test("a tool's progress moves to its end, and the text below it grows", { timeout: 2 * DEADLINE }, async () => {
  await look("progress");
  await publish("progress", [fact("run.started"), fact("tool.started", { toolName: "index" }, { toolCallId: "c" })]);
  for (const progress of [0.5, 1]) {
    await publish("progress", [{ ...fact("tool.progress", { progress }, { toolCallId: "c" }), audience: "user" }]);
    await until((progress) => document.querySelector(".tool progress")?.value === progress, progress);
  }
  await publish("progress", [{ ...fact("tool.result", { output: "ok" }, { toolCallId: "c" }), audience: "user" }]);
  await until(() => document.querySelector(".tool .badge")?.textContent === "done");
  await publish("progress", [said("Indexed "), said("10 batches."), fact("run.finished")]);
  await until(() => [...document.querySelectorAll(".speech .body")].at(-1)?.textContent === "Indexed 10 batches.");
  await until(() => document.getElementById("connection").textContent === "Ended: completed");
  assert.equal(await text("ps-runtime-status .badge"), "completed");
  assert.deepEqual(problems, []);
});

test("who looks decides what there is to see", { timeout: 2 * DEADLINE }, async () => {
  const diagnostic = (audience) => ({ ...fact("text.final", { text: `for ${audience}` }, { messageId: audience }), audience });
  await publish("audiences", [fact("run.started"), diagnostic("user"), diagnostic("dashboard"), diagnostic("internal")]);
  await look("audiences");
  for (const [audience, seen] of [["user", 1], ["dashboard", 2], ["internal", 3]]) {
    await page.getByLabel(audience, { exact: true }).check({ force: true });
    await until((seen) => document.querySelectorAll(".speech").length === seen, seen);
    assert.equal(await text("#gaps"), "none");
    await until((audience) => location.hash.includes(`audience=${audience}`), audience);
  }
  assert.deepEqual(problems, []);
});

test("a cut connection comes back where it was, without a gap", { timeout: 4 * DEADLINE }, async (story) => {
  const line = await phoneLine(Number(new URL(url).port));
  story.after(() => line.close());
  await look("cut", "internal", `http://127.0.0.1:${line.port}`);
  await publish("cut", [fact("run.started"), said("0 ")]);
  await until(() => document.querySelector(".speech .body")?.textContent === "0 ");
  line.cut();
  let words = "0 ";
  for (let at = 1; at <= 20; at += 1) {
    await publish("cut", [said(`${at} `)]);
    words += `${at} `;
    if (at === 10) line.cut();
  }
  await until((words) => document.querySelector(".speech .body")?.textContent === words, words);
  await publish("cut", [fact("run.finished")]);
  await isKind("ended");
  assert.ok(line.resumed.length > 0, "it came back with its cursor");
  assert.equal(await text("#gaps"), "none");
  await stands("resumes", "^[1-9]");
});

test("a gap is noticed, said, and filled", { timeout: 2 * DEADLINE }, async () => {
  const snapshot = (sequence, words, more) => ({ frame: "ActivitySnapshot", runId: "r", sequence, activityType: "message", activityId: "m", surface: "conversation", opened: 1, content: { role: "assistant", status: "streaming", parts: [{ partId: "p", kind: "assistant_text", opened: 1, status: "streaming", text: [words] }] }, ...more });
  const delta = (sequence, prev, words) => ({ frame: "ActivityDelta", runId: "r", sequence, prev, activityType: "message", activityId: "m", patch: [{ op: "add", path: "/parts/0/text/-", value: words }] });
  const end = { frame: "End", runId: "r", sequence: 6, status: "completed" };
  const first = [snapshot(1, "one "), { frame: "Hydrated", runId: "r", sequence: 1 }, delta(5, 4, "five")];
  const second = [snapshot(5, "one two five"), { frame: "Hydrated", runId: "r", sequence: 5 }, end];
  const body = (frames) => frames.map((frame) => `data: ${JSON.stringify(frame)}\nid: 0000000000000001:${frame.sequence * 2}\n\n`).join("");
  let asked = 0;
  await page.route("**/stream?*", (route) => route.fulfill({ contentType: "text/event-stream", body: body((asked += 1) === 1 ? first : second) }));
  await look("r");
  await isKind("ended");
  await stands("gaps", "^1$");
  assert.equal(await page.locator(".speech .body").textContent(), "one two five");
});

test("what a run says is text, whatever it looks like", { timeout: 2 * DEADLINE }, async () => {
  const words = "<img src=x onerror=alert(1)><script>alert(2)</script>";
  await publish("hostile", [
    fact("session.opened", { title: words }), fact("run.started", {}, { agentId: words }), said(words), fact("reasoning.delta", { text: words }, { messageId: "m", partId: "r" }),
    fact("tool.started", { toolName: words, input: { [words]: words } }, { toolCallId: "c" }), { ...fact("tool.progress", { message: words, progress: 0.5 }, { toolCallId: "c" }), audience: "user" },
    fact("action.required", { kind: words, message: words, risk: words, options: [words], safeInput: words }, { actionId: "a", agentId: words }),
    fact("context.changed", { refs: [words], missing: [words] }), fact("task.changed", { title: words, status: words }, { taskId: "t" }), fact("queue.changed", { items: [words], queueReason: words }),
    fact("agent.handoff", { handoffId: "h", from: words, to: words, reason: words }), fact("context.compaction.started", { compactionId: "k", summary: words }), fact("run.status", { status: words, message: words }),
    fact("artifact.created", { title: words, kind: words, preview: words }, { artifactId: "x" }),
  ], { sessionId: "hostile-session" });
  // High enough for all of it: what is far from the viewport is not in the document.
  await page.setViewportSize({ width: 1280, height: 3000 });
  await page.goto(`${url}/#session=hostile-session`);
  await until((words) => document.querySelector(".speech .body")?.textContent === words && document.querySelector(".action .message")?.textContent === words && document.querySelector(".tool .name")?.textContent === words, words);
  for (const tab of await page.locator("#panels [role=tab]:visible").all()) await tab.click();
  assert.equal(await page.locator("body img, body script, [onerror]").count(), 0);
  assert.equal(await text("#title"), words);
  assert.deepEqual(problems, []);
});

test("a reload shows the same run again, whole", { timeout: 2 * DEADLINE }, async () => {
  await publish("again", [fact("run.started"), said("All of "), said("it."), fact("tool.started", { toolName: "t" }, { toolCallId: "c" }), fact("run.finished")]);
  await look("again", "internal");
  await isKind("ended");
  const whole = await page.locator(".near").innerText();
  await page.reload();
  await isKind("ended");
  await until((whole) => document.querySelector(".near").innerText === whole, whole);
  assert.equal(await text("#title"), "again");
  assert.ok(whole.includes("All of it."));
  assert.equal(await text("#gaps"), "none");
  assert.deepEqual(problems, []);
});
