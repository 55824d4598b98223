/**
 * What waits for the person: one number everywhere, pushed by the server.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { limit, text, until, useStage } from "./stage.js";

let stage, page;
useStage((opened) => (stage = opened), () => page);

/** A run of a session of its own that asks for a decision. */
const asking = (n) => [
  { type: "run.started", agentId: "coder" },
  { type: "action.required", actionId: `ask-${n}`, payload: { kind: "tool_approval", toolName: "deploy", title: `Deploy number ${n}?`, risk: "high" } },
];

test("among 300 sessions, every count says how many decisions wait, however old", limit, async () => {
  // Every twentieth waits: most of them are older than what the page lists.
  for (let n = 0; n < 300; n += 1) {
    await stage.publish(`run-${n}`, n % 20 === 0 ? asking(n) : [{ type: "run.started" }], { sessionId: `session-${n}` });
  }
  page = await stage.look();
  const shows = (count) => until(page, (expected) => document.querySelector("#needs-you span")?.textContent === String(expected), count);
  await shows(15);
  assert.match(await page.title(), /^\(15\) /);
  assert.equal(await text(page.locator("#sessions .filter", { hasText: "Needs you" }).locator("i")), "15");
  assert.equal(await text(page.locator("#sessions .rail-group", { hasText: "Needs you" }).locator("span").last()), "15");
  await page.locator("#needs-you").click();
  await page.locator(".inbox-row").first().waitFor();
  assert.equal(await page.locator(".inbox-row").count(), 15);
  assert.equal(await text(page.locator(".inbox .filter", { hasText: "Open" }).locator("i")), "15");
  assert.match(await text(page.locator("#hydration")), /^15 decisions in 15 sessions$/);

  // A decision under way leaves every count; one that is withdrawn comes back.
  const decide = await fetch(`${stage.url}/v1/runs/run-0/controls`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ control: "approve", actionId: "ask-0", controlId: "decided" }) });
  assert.equal(decide.status, 202);
  await shows(14);
  assert.match(await page.title(), /^\(14\) /);
  assert.equal(await text(page.locator("#sessions .filter", { hasText: "Needs you" }).locator("i")), "14");
  assert.equal((await fetch(`${stage.url}/v1/controls/decided`, { method: "DELETE" })).status, 204);
  await shows(15);

  // A run without a session counts, too.
  await stage.publish("loose", asking("loose"));
  await shows(16);
  assert.deepEqual(page.problems, []);
});

test("the inbox goes on from a decision that its runtime made alone, and stays at one that a person chose", limit, async () => {
  await stage.publish("alone", asking("alone"), { sessionId: "alone" });
  await stage.publish("chosen", asking("chosen"), { sessionId: "chosen" });
  await stage.publish("newest", asking("newest"), { sessionId: "newest" });
  page = await stage.look({ session: "chosen" });
  await page.locator("ps-conversation ps-action .ask").waitFor();
  await page.locator("#needs-you").click();
  const shows = (title, status) => until(page, ([title, status]) => {
    const card = document.querySelector("ps-inbox ps-action");
    return card?.dataset.status === status && card.querySelector(".card-title").textContent === title;
  }, [title, status]);
  const resolve = (name) => stage.publish(name, [{ type: "action.resolved", actionId: `ask-${name}`, payload: { outcome: "rejected" } }], { sessionId: name });
  await shows("Deploy number newest?", "pending");
  await page.locator(".inbox-row").first().focus();
  assert.equal(await page.locator(".decision-place").count(), 0, "the card of the conversation below is none of the inbox");
  await resolve("newest");
  await shows("Deploy number chosen?", "pending");
  await page.locator(".inbox-row", { hasText: "Deploy number alone?" }).click();
  await shows("Deploy number alone?", "pending");
  await resolve("alone");
  await shows("Deploy number alone?", "resolved");
  assert.deepEqual(page.problems, []);
});

test("an idle page requests no list, and a change reaches it", limit, async () => {
  await stage.publish("quiet", [{ type: "run.started" }], { sessionId: "quiet" });
  page = await stage.blank();
  const lists = [];
  page.on("request", (request) => /\/v1\/(sessions|attention)(\?|$)/.test(request.url()) && lists.push(request.url()));
  await stage.look({ session: "quiet" }, page);
  await page.locator('.session[data-session="quiet"]').waitFor();
  const before = lists.length;
  await stage.publish("quiet", [{ type: "text.final", messageId: "m", payload: { text: "News from afar" } }]);
  await page.locator('.session[data-session="quiet"]', { hasText: "News from afar" }).waitFor();
  assert.equal(lists.length, before, "the change was pushed");
});

/** A run that asks with an edit of many lines. */
const tallEdit = (lines) => [
  { type: "run.started", agentId: "coder" },
  { type: "text.final", messageId: "m", payload: { text: "I will rewrite the file." } },
  { type: "action.required", actionId: "tall", payload: { kind: "tool_approval", toolName: "edit", title: "Rewrite main.rs?", risk: "high", subject: { kind: "edit", path: "src/main.rs" }, input: {} } },
].concat(lines ? [] : []);

test("a tall decision opens at its head, whose buttons stay in view", limit, async () => {
  const facts = tallEdit(true);
  facts[2].payload.message = Array.from({ length: 80 }, (_, n) => `Line ${n} of a long explanation.`).join("\n");
  await stage.publish("tall", facts, { sessionId: "tall" });
  page = await stage.look({ session: "tall" });
  await page.locator(".ask").waitFor();
  const inView = (selector) => until(page, (of) => {
    const part = document.querySelector(of)?.getBoundingClientRect();
    const view = document.querySelector("ps-conversation .scroller").getBoundingClientRect();
    return part && part.top >= view.top - 1 && part.bottom <= view.bottom + 1;
  }, selector);
  await inView(".ask .card-title");
  await inView(".ask .risk");
  await inView(".ask .yes .button");
  // The person scrolls, and the page does not scroll back.
  await page.locator("ps-conversation .scroller").hover();
  await page.mouse.wheel(0, 300);
  await until(page, () => document.querySelector(".ask").getBoundingClientRect().top < document.querySelector("ps-conversation .scroller").getBoundingClientRect().top - 100);
  await stage.publish("tall", [{ type: "run.status", payload: { message: "Still waiting" } }]);
  await page.locator("ps-run-line", { hasText: "coder" }).waitFor();
  assert.ok(await page.evaluate(() => document.querySelector(".ask").getBoundingClientRect().top < document.querySelector("ps-conversation .scroller").getBoundingClientRect().top - 100));
  await inView(".ask .card-title");
  await inView(".ask .yes .button");
});

test("a completed run whose call waits for its client is at rest", limit, async () => {
  await stage.publish("resting", [
    { type: "RUN_STARTED", threadId: "resting", runId: "resting" },
    { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "pick_color" }, { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "{}" }, { type: "TOOL_CALL_END", toolCallId: "c" },
    { type: "RUN_FINISHED", threadId: "resting", runId: "resting" },
  ], { source: "ag-ui", sessionId: "resting" });
  const { activities } = await stage.read("/v1/runs/resting/activities");
  assert.equal(activities.find(({ activityType }) => activityType === "run").content.status, "completed");
  assert.equal(activities.find(({ activityType }) => activityType === "tool-call-progress").content.status, "pending");
  page = await stage.look({ session: "resting", panel: "trace" });
  await page.locator("ps-inline-process", { hasText: "Waiting for the client" }).waitFor();
  assert.equal(await page.locator('ps-conversation [data-status="running"]').count(), 0);
  assert.equal(await page.locator("ps-conversation progress").count(), 0);
  await page.locator("ps-trace", { hasText: "pick_color" }).waitFor();
  assert.ok(!(await page.locator("ps-trace").innerText()).includes("running"));
});

test("the browser goes back by session and view, and each session keeps its draft, form and place", limit, async () => {
  const long = Array.from({ length: 60 }, (_, n) => ({ type: "text.final", messageId: `m${n}`, payload: { text: `Paragraph ${n} of a long conversation.` } }));
  await stage.publish("first", [{ type: "run.started" }, ...long, { type: "run.finished" }], { sessionId: "first" });
  await stage.publish("second", [{ type: "run.started" }, { type: "action.required", actionId: "form", payload: { kind: "structured_input", message: "Where to?", schema: { type: "object", properties: { city: { type: "string" } } } } }], { sessionId: "second" });
  const session = (id) => page.locator(`#sessions button[data-session="${id}"]`);
  const opened = (id) => until(page, (of) => document.querySelector('#sessions [aria-current="true"]')?.dataset.session === of, id);
  page = await stage.look({ session: "second" });
  await page.locator("ps-action input").fill("Par");
  await session("first").click();
  await opened("first");
  await page.locator("ps-composer textarea").fill("A half-written word");
  await page.locator(".speech", { hasText: "Paragraph 59" }).waitFor();
  await page.locator("ps-conversation .scroller").hover();
  await page.mouse.wheel(0, -900);
  await page.locator("ps-conversation .to-end").waitFor({ state: "visible" });
  const topRow = () => page.evaluate(() => {
    const { top } = document.querySelector("ps-conversation .scroller").getBoundingClientRect();
    return [...document.querySelectorAll("ps-conversation .speech")].find((row) => row.getBoundingClientRect().bottom > top)?.dataset.key;
  });
  const before = await topRow();
  await page.goBack();
  await opened("second");
  await until(page, () => document.querySelector("ps-action input")?.value === "Par");
  assert.equal(await page.locator("ps-composer textarea").inputValue(), "");
  await page.goForward();
  await opened("first");
  assert.equal(await page.locator("ps-composer textarea").inputValue(), "A half-written word");
  await until(page, (key) => {
    const { top } = document.querySelector("ps-conversation .scroller").getBoundingClientRect();
    return [...document.querySelectorAll("ps-conversation .speech")].find((row) => row.getBoundingClientRect().bottom > top)?.dataset.key === key;
  }, before);
  // A view is a step, too.
  await page.keyboard.press("Escape");
  await page.locator("#needs-you").click();
  await until(page, () => document.body.dataset.view === "inbox");
  await page.goBack();
  await until(page, () => document.body.dataset.view === "conversation");
  await opened("first");
});

test("a message that no agent is there to read says so, survives a reload, and can be withdrawn", limit, async () => {
  await stage.publish("unheard", [{ type: "run.started", agentId: "absent" }, { type: "run.finished" }], { sessionId: "unheard" });
  page = await stage.look({ session: "unheard" });
  await page.locator("ps-composer textarea").fill("Is anybody there?");
  await page.locator("ps-composer textarea").press("Enter");
  const note = page.locator("ps-composer .sent", { hasText: "Is anybody there?" });
  await note.locator(".unheard", { hasText: "No agent is connected." }).waitFor();
  assert.match(await text(note.locator("code")), /^proscenium serve --connect 'absent=/);
  await page.reload();
  await note.locator(".unheard").waitFor();
  await note.getByRole("button", { name: "Withdraw" }).click();
  await note.waitFor({ state: "detached" });
  const { controls } = await stage.read("/v1/sessions/unheard/controls");
  assert.ok(controls.every(({ status }) => status !== "queued"), JSON.stringify(controls));
});

test("a decision names the page as its face, and a text has its own direction", limit, async () => {
  await stage.publish("spoken", [{ type: "run.started", agentId: "coder" }, { type: "text.final", messageId: "m", payload: { text: "שלום, world\n\nHello" } }, { type: "action.required", actionId: "a", payload: { kind: "tool_approval", title: "מחק?" } }], { sessionId: "spoken" });
  page = await stage.look({ session: "spoken" });
  await page.locator(".speech .body p").first().waitFor();
  // The first letter of a right-to-left paragraph is at its right, and of a left-to-right one at its left.
  const sides = await page.locator(".speech .body p").evaluateAll((blocks) => blocks.map((block) => {
    const range = document.createRange();
    range.setStart(block.firstChild, 0);
    range.setEnd(block.firstChild, 1);
    const [letter, box] = [range.getBoundingClientRect(), block.getBoundingClientRect()];
    return letter.left - box.left > box.right - letter.right ? "right" : "left";
  }));
  assert.deepEqual(sides, ["right", "left"]);
  assert.equal(await page.locator(".ask .card-title").evaluate((title) => getComputedStyle(title).direction), "rtl");
  await page.locator(".ask").getByRole("button", { name: "Approve" }).click();
  await page.locator("ps-action .told", { hasText: "Answered by you." }).waitFor();
  const { controls } = await stage.read("/v1/runs/spoken/controls");
  assert.equal(controls[0].decidedBy.via, "page");
});

test("a form and an editor show the hidden characters of their texts", limit, async () => {
  const schema = { type: "object", properties: { ["ci\u202ety"]: { type: "string", title: "Ci\u202ety", description: "Where\u200b to" } } };
  await stage.publish("hidden-texts", [{ type: "run.started", agentId: "co\u202eder" }, { type: "action.required", actionId: "form", payload: { kind: "structured_input", message: "Where to?", schema } }, { type: "action.required", actionId: "edit", payload: { kind: "tool_approval", toolName: "sh", parameters: { command: "echo \u202esafe" }, title: "Run?" } }], { sessionId: "hidden-texts" });
  page = await stage.look({ session: "hidden-texts" });
  const form = page.locator("ps-action", { hasText: "Where to?" });
  await form.locator(".field").waitFor();
  assert.match(await form.locator(".field").innerText(), /Ci⟨U\+202E⟩ty[^]*Where⟨U\+200B⟩ to/);
  const editor = page.locator("ps-action .edit textarea");
  await page.locator("ps-action .edit summary").click();
  assert.match(await editor.inputValue(), /"echo \\u202esafe"/);
  assert.doesNotMatch(await page.locator("ps-conversation").innerText(), /[\u202e\u200b]/);
});
