/**
 * The conversation and the surfaces around it, against seed 003's validation checklist: tests have its sentences as
 * titles. The tests publish facts by the public API and compare what a person sees.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { axe, limit, text, until, useStage } from "./stage.js";

let stage, page;

useStage((opened) => (stage = opened), () => page);

/** Creates a fact. */
const fact = (type, payload = {}, ids = {}) => ({ type, ...ids, payload });
const textDelta = (words, messageId = "m", partId = "p") => fact("text.delta", { text: words }, { messageId, partId });
const tool = (type, payload, toolCallId = "c", more = {}) => ({ ...fact(type, payload, { toolCallId }), ...more });

/** Opens a run in the workbench, and waits until it is live. */
async function openRun(run, more = {}) {
  page = await stage.look({ run, ...more });
  await until(page, () => ["live", "ended"].includes(document.getElementById("connection").dataset.kind));
  return page;
}

/** The texts of the conversation, part by part. */
const speech = () => page.locator("ps-conversation .speech:not([hidden]) .body").allTextContents();
/** The controls of a run, from the server. */
const controls = async (run) => (await stage.read(`/v1/runs/${run}/controls`)).controls;

const refusal = { how: "nack", reason: "busy" };
const isRefused = () => document.querySelector("ps-action .told").textContent === "The runtime did not accept the answer. You can answer again.";

test("Listener binding occurs before submit.", limit, async () => {
  page = await stage.blank();
  const requests = [];
  page.on("request", (request) => requests.push(`${request.method()} ${new URL(request.url()).pathname}`));
  // The connection is slow: a message must wait for it.
  let open;
  const isOpen = new Promise((resolve) => (open = resolve));
  await page.route("**/v1/sessions/fresh/stream?*", async (route) => (await isOpen, route.continue()));
  await stage.look({ session: "fresh" }, page);
  await page.locator("ps-composer textarea").fill("Hello");
  await page.locator("ps-composer .submit").click();
  await until(page, () => document.querySelector("ps-composer .sent")?.dataset.status === "submitting");
  assert.ok(!requests.includes("POST /v1/sessions/fresh/controls"), "no control is sent before the connection is open");
  open();
  await until(page, () => document.querySelector("ps-composer .sent")?.dataset.status === "queued");
  assert.ok(requests.indexOf("GET /v1/sessions/fresh/stream") < requests.indexOf("POST /v1/sessions/fresh/controls"));
  const control = await stage.claim("default");
  assert.deepEqual([control.control, control.value], ["send", { text: "Hello" }]);
  // The answer arrives over the connection that was opened before.
  await stage.publish("fresh-1", [fact("run.started"), fact("text.final", { role: "user", text: "Hello" }, { messageId: "u" }), fact("text.final", { text: "Hi." }, { messageId: "a" })], { sessionId: "fresh" });
  await until(page, () => [...document.querySelectorAll("ps-conversation .speech .body")].map((one) => one.textContent).join("|") === "Hello|Hi.");
  await until(page, () => document.querySelectorAll("ps-composer .sent").length === 0);
});

test("Runtime accepted/routing/preparing status can render before first text.", limit, async () => {
  await openRun("early");
  const status = () => page.locator("ps-runtime-status .run");
  for (const [phase, words] of [["accepted", "Accepted"], ["routing", "Routing"], ["preparing", "Preparing the context"]]) {
    await stage.publish("early", [phase === "accepted" ? { ...fact("run.started"), phase } : { ...fact("run.status", { status: "running" }), phase }]);
    await until(page, (words) => document.querySelector("ps-runtime-status .phase")?.textContent === words, words);
    assert.equal(await status().getAttribute("data-phase"), phase);
    assert.deepEqual(await speech(), [], "no text yet");
  }
});

test("Active message parts render in event/part order.", limit, async () => {
  await openRun("order");
  await stage.publish("order", [
    fact("run.started"),
    fact("reasoning.summary", { text: "Let me think." }, { messageId: "m", partId: "r" }),
    textDelta("First.", "m", "a"),
    tool("tool.started", { toolName: "search", input: { query: "x" } }),
    tool("tool.result", { output: "found" }, "c", { audience: "user" }),
    textDelta("Second.", "m", "b"),
    fact("action.required", { kind: "tool_approval", message: "May I?" }, { actionId: "ask" }),
  ]);
  await until(page, () => document.querySelector("ps-conversation .action"));
  // A later change of the first part moves nothing.
  await stage.publish("order", [textDelta(" And more.", "m", "a"), textDelta("Third.", "n", "a")]);
  await until(page, () => document.querySelectorAll("ps-conversation .speech").length === 3);
  const rows = await page.locator("ps-conversation .near > *").evaluateAll((all) => all.map((row) => (row.matches(".speech") ? row.querySelector(".body").textContent : row.matches(".action") ? "(action)" : `(${row.querySelector(".words").textContent})`)));
  assert.deepEqual(rows, ["(Thought)", "First. And more.", "(Used search)", "Second.", "(action)", "Third."]);
});

test("Running reasoning and tools remain visible; completed process collapses into summaries.", limit, async () => {
  await openRun("process");
  await stage.publish("process", [fact("run.started"), fact("reasoning.delta", { text: "Two steps." }, { messageId: "m", partId: "r" }), tool("tool.started", { toolName: "search" }), tool("tool.progress", { progress: 0.25, message: "a quarter" }, "c", { audience: "user" })]);
  await until(page, () => document.querySelector("ps-tool progress")?.value === 0.25);
  const process = page.locator("ps-inline-process");
  assert.equal(await process.getAttribute("data-open"), "true");
  assert.equal(await text(process.locator(".thought .body")), "Two steps.");
  assert.ok(await process.locator("ps-tool").isVisible());
  await stage.publish("process", [fact("reasoning.summary", { text: "Two steps." }, { messageId: "m", partId: "r" }), tool("tool.result", {}), fact("text.final", { text: "Done." }, { messageId: "m", partId: "p" })]);
  await until(page, () => document.querySelector("ps-inline-process")?.dataset.open === "false");
  assert.equal(await text(process.locator(".words")), "Thought, used search");
  assert.equal(await process.locator("ps-tool, .thought").count(), 0);
  // The viewer may expand it, and it stays expanded while other activities change.
  await process.locator(".summary").click();
  assert.ok(await process.locator("ps-tool").isVisible());
  await stage.publish("process", [textDelta("More.", "n")]);
  await until(page, () => document.querySelectorAll("ps-conversation .speech").length === 2);
  assert.equal(await process.getAttribute("data-open"), "true");
  assert.deepEqual((await controls("process")), [], "collapsing sends no control");
});

test("Final answer text remains clean and is reconciled without duplication.", limit, async () => {
  await openRun("answer");
  await stage.publish("answer", [fact("run.started"), textDelta("The ans"), textDelta("wer is 4")]);
  await until(page, () => document.querySelector(".speech .body")?.textContent === "The answer is 4");
  const node = await page.locator(".speech").elementHandle();
  await stage.publish("answer", [fact("text.final", { text: "The answer is 42." }, { messageId: "m", partId: "p" }), fact("run.finished")]);
  await until(page, () => document.querySelector("ps-runtime-status .run")?.dataset.status === "completed");
  assert.deepEqual(await speech(), ["The answer is 42."]);
  assert.ok(await node.evaluate((one) => one.isConnected), "it is the same element");
  assert.deepEqual(page.problems, []);
});

test("Tool input/progress/output/error state does not enter final answer text.", limit, async () => {
  await openRun("tools", { audience: "internal" });
  await stage.publish("tools", [
    fact("run.started"), textDelta("Reading."),
    tool("tool.started", { toolName: "fetch", input: { url: "SECRETINPUT" } }), tool("tool.progress", { loaded: 3, total: 10, message: "PROGRESSWORDS" }), tool("tool.output.delta", { text: "OUTPUTWORDS" }),
    tool("tool.started", { toolName: "broken" }, "d"), tool("tool.failed", { error: { code: "E7", message: "ERRORWORDS" } }, "d"),
    tool("tool.started", { toolName: "web" }, "e"), tool("tool.result", { output: "o", untrusted: true, truncated: 4100, durationMs: 5200, costUsd: 0.25 }, "e"),
  ]);
  await until(page, () => document.querySelectorAll("ps-tool").length === 3 && document.querySelectorAll("ps-tool")[2].dataset.status === "output-available");
  const [fetching, broken, web] = [0, 1, 2].map((at) => page.locator("ps-tool").nth(at));
  assert.equal(await text(fetching.locator(".given")), "url: SECRETINPUT");
  assert.equal(await fetching.locator("progress").evaluate((bar) => bar.value), 0.3);
  assert.equal(await text(fetching.locator(".message")), "PROGRESSWORDS");
  assert.match(await text(fetching.locator(".spent")), /^3 of 10 · /);
  assert.equal(await text(fetching.locator(".output")), "OUTPUTWORDS");
  assert.equal(await text(broken.locator(".error")), "ERRORWORDS (E7)");
  assert.equal(await text(web.locator(".spent")), "5.2s · $0.25");
  assert.deepEqual(await web.locator(".notes li").allTextContents(), ["Untrusted output: data from outside, not an instruction.", "Truncated by the source: 4,100 characters are missing."]);
  await stage.publish("tools", [fact("text.final", { text: "Done reading." }, { messageId: "m2", partId: "p" })]);
  await until(page, () => document.querySelectorAll(".speech").length === 2);
  assert.deepEqual(await speech(), ["Reading.", "Done reading."]);
});

test("Human-in-the-loop actions use stable ids and controlled write APIs.", limit, async () => {
  await openRun("asks");
  const schema = {
    type: "object", required: ["name", "size"],
    properties: {
      name: { type: "string", title: "Name" }, size: { enum: ["small", "large"], title: "Size" }, copies: { type: "integer", minimum: 1, maximum: 3, title: "Copies" },
      urgent: { type: "boolean", title: "Urgent" }, to: { type: "object", title: "To", properties: { city: { type: "string", title: "City" } } },
    },
  };
  await stage.publish("asks", [fact("run.started"), fact("action.required", { kind: "structured_input", message: "What should I order?", schema }, { actionId: "order-1" })]);
  const card = page.locator('ps-action[data-key$="order-1"]');
  await card.getByText("What should I order?").waitFor();
  const requests = [];
  page.on("request", (request) => request.method() === "POST" && requests.push(new URL(request.url()).pathname));
  await card.getByRole("button", { name: "Send answer" }).click();
  assert.equal(await text(card.locator(".told")), "Name is required.");
  assert.deepEqual(requests, [], "an answer that violates the schema is not sent");
  await card.getByLabel("Name").fill("paper");
  await card.getByLabel("large").check();
  await card.getByLabel("Copies (optional)").fill("2");
  await card.getByLabel("Urgent").check();
  await card.getByLabel("City (optional)").fill("Bern");
  const element = await card.elementHandle();
  await card.getByRole("button", { name: "Send answer" }).click();
  // The answer is submitted, and nothing is decided.
  await until(page, () => document.querySelector("ps-action .told").textContent.startsWith("Answered by you."));
  assert.equal(await card.getAttribute("data-status"), "pending");
  assert.ok(await card.getByRole("button", { name: "Send answer" }).isDisabled());
  assert.deepEqual(requests, ["/v1/runs/asks/controls"]);
  const control = await stage.claim("default", { run: "asks" });
  assert.deepEqual([control.control, control.actionId, control.value], ["answer", "order-1", { name: "paper", size: "large", copies: 2, urgent: true, to: { city: "Bern" } }]);
  assert.equal(await card.getAttribute("data-status"), "pending");
  await stage.publish("asks", [fact("action.resolved", { outcome: "answered" }, { actionId: "order-1" })]);
  await until(page, () => document.querySelector("ps-action").dataset.status === "resolved");
  assert.ok(await element.evaluate((one) => one.isConnected), "the card is the same element");
  assert.equal(await card.getByRole("button", { name: "Send answer" }).count(), 0);
});

test("every kind of action has its controls", limit, async () => {
  const kinds = {
    tool_approval: ["approve", "reject", "edit"], plan_decision: ["approve", "reject", "edit"], teammate_plan_decision: ["approve", "reject", "edit"], structured_input: ["answer", "reject"], clarification: ["answer", "reject"],
    permission_grant: ["approve", "reject"], delegated_permission: ["approve", "reject"], credential_request: ["answer", "reject"], artifact_review: ["approve", "reject", "edit"], of_some_product: ["approve", "reject"],
  };
  await stage.publish("kinds", [fact("run.started"), ...Object.keys(kinds).map((kind) => fact("action.required", { kind, message: `About ${kind}`, ...(kind === "tool_approval" ? { input: { a: 1 } } : {}) }, { actionId: kind }))]);
  page = await stage.blank();
  await page.setViewportSize({ width: 1280, height: 4000 });
  await stage.look({ run: "kinds" }, page);
  await until(page, (many) => document.querySelectorAll("ps-action").length === many, Object.keys(kinds).length);
  for (const [kind, wanted] of Object.entries(kinds)) {
    const card = page.locator(`ps-action[data-kind="${kind}"]`);
    assert.deepEqual((await card.locator("button[data-control], button[data-opens]").evaluateAll((all) => all.map((one) => one.dataset.control ?? one.dataset.opens))).sort(), [...wanted].sort(), kind);
  }
  const credential = page.locator('ps-action[data-kind="credential_request"]');
  await credential.locator('input[type="password"]').fill("hunter2-not-a-word");
  await credential.getByRole("button", { name: "Send answer" }).click();
  await until(page, () => document.querySelector('ps-action[data-kind="credential_request"] .told').textContent.startsWith("Answered by you."));
  await stage.publish("kinds", [fact("action.resolved", { outcome: "answered" }, { actionId: "credential_request" })]);
  await until(page, () => document.querySelector('ps-action[data-kind="credential_request"]').dataset.status === "resolved");
  assert.ok(!(await page.locator("body").innerHTML()).includes("hunter2"), "the secret is not on the page");
  // A plan is sent back with the requested changes.
  const plan = page.locator('ps-action[data-kind="plan_decision"]');
  await plan.locator("summary").click();
  await plan.locator("textarea").fill("Shorter, please.");
  await plan.getByRole("button", { name: "Request changes" }).click();
  await until(page, () => document.querySelector('ps-action[data-kind="plan_decision"] .told').textContent.startsWith("Answered by you."));
  const sentControls = (await controls("kinds")).map(({ control, actionId }) => `${control} ${actionId}`);
  assert.ok(sentControls.includes("edit plan_decision") && sentControls.includes("answer credential_request"), String(sentControls));
  // The server resolves an action whose time has passed, and the card takes no answer any more.
  await stage.publish("kinds", [fact("action.required", { kind: "tool_approval", message: "Late", expiresAt: "2026-01-01T00:00:00Z" }, { actionId: "late" })]);
  await until(page, () => document.querySelector('ps-action[data-key$="late"]')?.dataset.status === "resolved");
  const late = page.locator('ps-action[data-key$="late"] button[data-control=approve]');
  assert.ok(!(await late.isVisible()) || (await late.isDisabled()));
});

test("Queue and steer are visually and semantically distinct.", limit, async () => {
  await stage.publish("turns", [fact("run.started"), fact("queue.changed", { queuedTurnCount: 1, queueReason: "a turn is running", items: [{ turnId: "t2", text: "and the outlook" }] })], { sessionId: "turns-s" });
  page = await stage.look({ session: "turns-s" });
  await page.locator("ps-composer .queued").waitFor();
  assert.equal(await text(page.locator("ps-composer .queued")), "and the outlook");
  const composer = page.locator("ps-composer");
  const styles = {};
  const sendMessage = async (mode, words) => {
    await composer.getByLabel(mode, { exact: false }).and(composer.locator("input")).check({ force: true });
    styles[mode] = await composer.locator(".submit").evaluate((button) => [button.textContent, getComputedStyle(button).backgroundColor, getComputedStyle(button).borderTopStyle, button.closest(".box").querySelector(".mode-hint").textContent]);
    await composer.locator("textarea").fill(words);
    await composer.locator("textarea").press("Enter");
    await until(page, (words) => [...document.querySelectorAll("ps-composer .sent")].some((one) => one.textContent.includes(words) && one.dataset.status === "queued"), words);
  };
  await sendMessage("Queue", "then the outlook");
  await sendMessage("Steer", "only for Europe");
  const steered = await controls("turns");
  assert.deepEqual(steered.map(({ control }) => control), ["steer"]);
  const queued = (await stage.read("/v1/sessions/turns-s/controls")).controls;
  assert.deepEqual(queued.map(({ control }) => control), ["queue"]);
  for (const at of [0, 1, 3]) assert.notEqual(styles.Queue[at], styles.Steer[at]);
  assert.deepEqual(await composer.locator(".sent").evaluateAll((all) => all.map((one) => one.dataset.mode)), ["queue", "steer"]);
  // An interrupt is a third control.
  await page.locator("ps-runtime-status").getByRole("button", { name: "Interrupt" }).click();
  await until(page, () => document.querySelector("ps-runtime-status .told").textContent.startsWith("Submitted."));
  assert.deepEqual((await controls("turns")).map(({ control }) => control).sort(), ["interrupt", "steer"]);
});

test("Context and compaction are surfaced as facts or boundaries, not hidden text mutations.", limit, async () => {
  await openRun("context");
  await stage.publish("context", [
    fact("run.started"), fact("context.changed", { budget: { usedTokens: 180_000, maxTokens: 200_000 }, refs: ["notes.md"], missing: ["last year's figures"] }),
    fact("text.final", { text: "Before." }, { messageId: "a" }), fact("context.compaction.started", { compactionId: "k", preTokens: 180_000 }),
    fact("context.compaction.completed", { compactionId: "k", postTokens: 21_000 }), fact("text.final", { text: "After." }, { messageId: "b" }),
  ]);
  await until(page, () => document.querySelectorAll(".speech").length === 2);
  const rows = await page.locator("ps-conversation .near > *").evaluateAll((all) => all.map((row) => row.querySelector(".body, .words").textContent));
  assert.deepEqual(rows, ["Before.", "Context compacted · 180k → 21k tokens", "After."]);
  const context = page.locator("ps-runtime-status .context");
  assert.equal((await text(context.locator("summary"))).replaceAll(/\s+/g, " "), "Context 90 % 1 missing");
  assert.equal(await context.locator("progress").getAttribute("data-state"), "warning");
  await context.locator("summary").click();
  assert.equal(await text(context.locator(".budget")), "180,000 of 200,000 tokens");
  assert.deepEqual(await context.locator(".refs li").allTextContents(), ["notes.md"]);
  assert.deepEqual(await context.locator(".missing li").allTextContents(), ["last year's figures"]);
  await page.keyboard.press("Escape");
  await context.locator(".popover").waitFor({ state: "hidden" });
});

test("Missing facts render honest fallback states.", limit, async () => {
  await openRun("honest");
  await stage.publish("honest", [
    fact("run.status"), tool("tool.started", {}), tool("tool.result", { output: "only for some" }),
    fact("action.required", {}, { actionId: "what" }), fact("context.changed", { note: "x" }), fact("agent.handoff", { handoffId: "h" }), fact("task.changed", {}, { taskId: "t" }), fact("queue.changed", {}),
  ], { sessionId: "honest-s" });
  await until(page, () => document.querySelector("ps-task-capsule .capsule"));
  await page.locator("ps-inline-process .summary").click({ trial: true });
  await page.evaluate(() => document.querySelectorAll('ps-inline-process[data-open="false"] .summary').forEach((one) => one.click()));
  assert.equal(await text(page.locator("ps-tool .name")), "Unnamed tool");
  assert.deepEqual(await page.locator("ps-tool .notes li").allTextContents(), ["Result withheld: the selected audience may not see it."]);
  assert.equal(await text(page.locator("ps-action .facts")), "Kind\nunknown");
  assert.equal(await page.locator("ps-runtime-status .budget").textContent(), "budget unknown");
  assert.equal(await text(page.locator('.mark[data-type="handoff"] .words')), "Handed off from unknown to unknown");
  assert.equal(await text(page.locator(".capsule .badge")), "unknown");
  assert.equal(await text(page.locator("ps-composer .queue .badge")), "unknown number queued");
  // An action without an outcome, and a failure of which nothing is known: Retry says enough.
  await stage.publish("honest", [fact("run.failed", { error: { code: "gone", message: "the connection broke" } })]);
  await until(page, () => document.querySelector("ps-runtime-status .run").dataset.status === "failed");
  assert.deepEqual(await page.locator("ps-runtime-status .note").allTextContents(), ["the connection broke (gone)"]);
  assert.equal(await text(page.locator("ps-action .told")), "The run ended before a decision.");
  assert.deepEqual(page.problems, []);
});

test("Old sessions hydrate progressively and safely ignore stale results.", limit, async () => {
  const story = (name) => [fact("session.opened", { title: `Title of ${name}` }), fact("run.started"), fact("text.final", { text: `Words of ${name}` }, { messageId: "m" }), tool("tool.started", { toolName: `tool_${name}` })];
  await stage.publish("run-one", story("one"), { sessionId: "one" });
  await stage.publish("run-two", story("two"), { sessionId: "two" });
  page = await stage.blank();
  // Streams are blocked, so the page shows hydrated data only. The test delays each answer of the first session.
  await page.route("**/stream?*", () => {});
  const held = new Map();
  await page.route(/\/v1\/sessions\/one(\/|\?)/, async (route) => {
    const { pathname } = new URL(route.request().url());
    await new Promise((resolve) => held.set(pathname, resolve));
    await route.continue().catch(() => {});
  });
  await stage.look({ session: "one" }, page);
  const release = async (path) => {
    while (!held.has(path)) await new Promise((resolve) => setTimeout(resolve, 20));
    held.get(path)();
  };
  const step = (name) => until(page, (name) => document.getElementById("stage").dataset.hydration === name, name);
  // Summary and title come first, before any message.
  await release("/v1/sessions/one");
  await step("shell");
  assert.equal(await text(page.locator("#title")), "Title of one");
  assert.deepEqual(await speech(), []);
  // Recent messages and status follow. Process details come last, and are delayed here.
  await release("/v1/sessions/one/window");
  await step("status");
  await until(page, () => document.querySelector(".speech .body")?.textContent === "Words of one");
  assert.equal(await page.locator("ps-tool").count(), 0);
  // The viewer opens the second session: late answers for the first change nothing.
  await page.locator('#sessions button[data-session="two"]').click();
  await until(page, () => document.querySelector(".speech .body")?.textContent === "Words of two");
  await release("/v1/sessions/one/timeline");
  await step("whole");
  assert.deepEqual(await speech(), ["Words of two"]);
  assert.equal(await text(page.locator("#title")), "Title of two");
  await until(page, () => document.querySelector("ps-tool .name")?.textContent === "tool_two" || document.querySelector("ps-inline-process .words")?.textContent.includes("tool_two"));
  assert.ok(!(await page.locator("#stage").textContent()).includes("tool_one"));
  assert.deepEqual(page.problems, []);
});

test("Diagnostics and metrics stay outside normal conversation text.", limit, async () => {
  await openRun("quiet", { audience: "internal" });
  await stage.publish("quiet", [fact("run.started"), textDelta("An answer."), fact("diagnostic.changed", { kind: "slow_archive", message: "DIAGNOSTIC", severity: "warning" }), fact("metric.changed", { model: "METRIC", durationMs: 1800 }), fact("text.final", { text: "An answer." }, { messageId: "m", partId: "p" })]);
  await until(page, () => document.querySelector("#tab-diagnostics").dataset.filled === "true");
  await page.locator("#tab-diagnostics").click();
  await page.locator("ps-diagnostics", { hasText: "DIAGNOSTIC" }).waitFor();
  assert.deepEqual(await speech(), ["An answer."]);
  for (const words of ["DIAGNOSTIC", "METRIC"]) assert.ok(!(await page.locator("#stage").textContent()).includes(words), words);
});

/* ── stories ── */

test("an approval names its requester and is decided by its runtime only", limit, async () => {
  await openRun("approval");
  await stage.publish("approval", [
    fact("run.started", {}, { agentId: "lead" }), fact("agent.spawned", { agentName: "Rui", role: "researcher" }, { agentId: "rui" }), tool("tool.started", { toolName: "deploy" }),
    fact("action.required", { kind: "delegated_permission", message: "May I deploy?", risk: "high", options: ["once", "always"], safeInput: { env: "prod" }, policyScope: "run" }, { actionId: "ask", toolCallId: "c", agentId: "rui" }),
  ]);
  const card = page.locator("ps-action");
  await card.getByText("May I deploy?").waitFor();
  assert.equal(await text(card.locator(".requester")), "Rui (researcher) asks");
  assert.equal(await text(card.locator(".facts")), "Tool\ndeploy\nArguments\nenv\nprod\nScope\nrun");
  assert.equal(await text(card.locator(".risk")), "High risk");
  await until(page, () => document.querySelector("#sessions .marks")?.textContent.includes("1 decision pending"));
  await card.getByLabel("once").check();
  await card.getByRole("button", { name: "Approve" }).click();
  await until(page, () => document.querySelector("ps-action .badge").textContent === "Answer submitted");
  // After a rejection by the runtime the action waits again.
  const control = await stage.claim("rui", refusal);
  assert.deepEqual([control.control, control.actionId, control.value], ["approve", "ask", "once"]);
  await until(page, isRefused);
  await card.getByRole("button", { name: "Approve" }).click();
  assert.equal((await stage.claim("rui")).control, "approve");
  assert.equal(await card.getAttribute("data-status"), "pending");
  await stage.publish("approval", [fact("action.resolved", { outcome: "approved" }, { actionId: "ask" })]);
  await until(page, () => document.querySelector("ps-action").dataset.status === "resolved");
  assert.equal(await text(card.locator(".badge")), "Approved");
  assert.deepEqual(page.problems, []);
});

test("an answer that the runtime rejects before the page has the server's response can be sent again", limit, async () => {
  await openRun("hasty");
  await stage.publish("hasty", [fact("run.started", {}, { agentId: "hasty" }), fact("action.required", { kind: "tool_approval", message: "May I?" }, { actionId: "ask" })]);
  const card = page.locator("ps-action");
  // The server's response is slower than the stream, and outdated when it arrives.
  let release;
  const released = new Promise((resolve) => (release = resolve));
  stage.holds = ({ method, url }) => (method === "POST" && url.startsWith("/v1/runs/hasty/controls") ? released : undefined);
  await card.getByRole("button", { name: "Approve" }).click();
  await until(page, () => document.querySelector("ps-action .told").textContent === "Submitting your answer…");
  await stage.claim("hasty", refusal);
  await stage.publish("hasty", [textDelta("After it.")]);
  await until(page, () => document.querySelector(".speech .body")?.textContent === "After it.");
  release();
  await until(page, isRefused);
  // The stream is interrupted, REST is not: when the stream resumes, the rejection is in the past.
  await page.route("**/stream?*", (route) => route.abort());
  stage.front.server.closeAllConnections();
  await until(page, () => document.getElementById("connection").dataset.kind === "away");
  await card.getByRole("button", { name: "Approve" }).click();
  await until(page, () => document.querySelector("ps-action .told").textContent.startsWith("Answered by you."));
  await stage.claim("hasty", refusal);
  await page.unroute("**/stream?*");
  await until(page, isRefused);
  await card.getByRole("button", { name: "Approve" }).click();
  assert.equal((await stage.claim("hasty")).control, "approve");
  await stage.publish("hasty", [fact("action.resolved", { outcome: "approved" }, { actionId: "ask" })]);
  await until(page, () => document.querySelector("ps-action").dataset.status === "resolved");
  // Another wording is another question without an answer.
  await stage.publish("hasty", [fact("action.required", { kind: "tool_approval", message: "And that?" }, { actionId: "ask" })]);
  await card.getByText("And that?").waitFor();
  await until(page, () => document.querySelector("ps-action .badge").textContent === "Needs approval" && document.querySelector("ps-action .told").hidden);
  // The browser logs the interrupted stream; that is not an error of the page.
  assert.deepEqual(page.problems.filter((problem) => !problem.includes("net::ERR_")), []);
});

const ANSWER = "# Done\n\n- [x] one [link](https://example.org)\n- two `code`\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n\n```rust\nfn main() {}\n```\n\n> quoted";

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    test(`axe finds nothing serious in the conversation in ${colorScheme}, ${width} pixels wide`, limit, async () => {
      const run = `axe-${colorScheme}-${width}`;
      await stage.publish(run, [
        fact("run.started", {}, { agentId: "lead" }), fact("context.changed", { budget: { usedTokens: 180, maxTokens: 200 }, missing: ["figures"] }), fact("text.final", { role: "user", text: "Please **ship** it." }, { messageId: "u" }),
        fact("reasoning.summary", { text: "Let me think." }, { messageId: "m", partId: "r" }), fact("plan.final", { text: "", steps: [{ title: "Read", status: "completed" }, "Write"] }, { messageId: "m", partId: "q" }),
        tool("tool.started", { toolName: "broken" }, "d"), tool("tool.failed", { error: { code: "E7", message: "it broke" } }, "d"), fact("text.final", { text: ANSWER }, { messageId: "m", partId: "p" }),
        fact("action.required", { kind: "tool_approval", message: "Decided", toolName: "old" }, { actionId: "old" }), fact("action.resolved", { outcome: "rejected" }, { actionId: "old" }),
        fact("context.compaction.started", { compactionId: "k", preTokens: 180_000 }), tool("tool.started", { toolName: "deploy", input: { env: "prod" } }), { ...tool("tool.progress", { loaded: 3, total: 10 }), audience: "user" },
        fact("artifact.created", { title: "Report" }, { artifactId: "report" }), fact("artifact.version.created", { version: 2 }, { artifactId: "report" }), fact("artifact.diff.ready", { diff: "@@ -1 +1 @@\n-Revenue grew.\n+Revenue grew to 5 M EUR." }, { artifactId: "report" }),
        fact("action.required", { kind: "artifact_review", message: "Good?", artifactId: "report", versionId: 2, risk: "high", schema: { type: "object", properties: { approved: { type: "boolean" }, note: { type: "string", title: "Note" }, size: { enum: ["small", "large"], title: "Size" } } } }, { actionId: "ask" }),
        fact("queue.changed", { queuedTurnCount: 1, items: [{ turnId: "t2", text: "and the outlook" }] }), fact("task.changed", { title: "Check the links", status: "auth_required" }, { taskId: "t" }),
      ]);
      page = await stage.blank();
      await page.setViewportSize({ width, height: 2000 });
      await page.emulateMedia({ colorScheme });
      await stage.look({ run }, page);
      await until(page, () => document.querySelector("ps-action .diff-line mark") || document.querySelector("ps-action .subject-note"));
      await until(page, () => document.querySelector('[data-token="keyword"]'));
      await page.evaluate(() => document.querySelectorAll('ps-inline-process[data-open="false"] > .process-line .summary, ps-action[data-status="resolved"] .summary').forEach((one) => one.click()));
      await page.locator("ps-runtime-status .context summary").click();
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "the page scrolls sideways");
      await page.evaluate(await axe());
      const { violations } = await page.evaluate(() => window.axe.run(document.getElementById("stage"), { resultTypes: ["violations"] }));
      const serious = violations.filter((it) => ["serious", "critical"].includes(it.impact)).map((it) => `${it.id}: ${it.help}\n${it.nodes.slice(0, 6).map((node) => `  ${node.target.join(" ")}\n    ${node.failureSummary?.replaceAll("\n", "\n    ")}`).join("\n")}`);
      assert.deepEqual(serious, []);
      assert.deepEqual(page.problems, []);
    });
  }
}

for (const transport of ["sse", "websocket"]) {
  test(`after a disconnect and a reconnect nothing is lost or repeated (${transport})`, limit, async () => {
    const run = `cut-${transport}`;
    await openRun(run);
    await page.locator(".connection").click();
    await page.locator("#transport").selectOption(transport);
    await until(page, () => document.getElementById("connection").dataset.kind === "live");
    await stage.publish(run, [fact("run.started"), textDelta("one ")]);
    await until(page, () => document.querySelector(".speech .body")?.textContent === "one ");
    await page.getByRole("button", { name: "Simulate disconnect" }).click();
    await until(page, () => document.getElementById("connection").dataset.kind === "away");
    await stage.publish(run, [textDelta("two "), textDelta("three "), tool("tool.started", { toolName: "late" })]);
    assert.deepEqual(await speech(), ["one "]);
    await page.getByRole("button", { name: "Reconnect" }).click();
    await until(page, () => document.querySelector(".speech .body")?.textContent === "one two three ");
    await stage.publish(run, [textDelta("four")]);
    await until(page, () => document.querySelector(".speech .body")?.textContent === "one two three four");
    assert.equal(await page.locator("ps-tool").count(), 1);
    assert.equal(await text(page.locator("#gaps")), "none");
    assert.equal(await text(page.locator("#resumes")), "1");
    assert.deepEqual(page.problems, []);
  });
}
