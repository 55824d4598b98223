/**
 * The page shows only known facts: correct states, no duplicates, no hidden failures, and every control of seed 003.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { TEAM } from "./fixtures/story.js";
import { BINARY, Stage, limit, scrollTo, text, until, useStage, visibleTabs } from "./stage.js";

let stage, page;

useStage((opened) => (stage = opened), () => page);

const fact = (type, payload = {}, ids = {}) => ({ type, ...ids, payload });
const said = (words, messageId) => fact("text.final", { text: words }, { messageId });

/** Opens a run or session in the workbench, and waits until it is hydrated. */
async function look(hash) {
  page = await stage.look(hash, page && !page.isClosed() ? page : undefined);
  await until(page, () => document.getElementById("stage").dataset.hydration === "whole");
  return page;
}

/** Opens a run with additional activities in its stream. */
async function lookWith(run, facts, activities) {
  await stage.publish(run, facts);
  page = await stage.blank();
  await stage.bring(page, run, activities);
  return look({ run });
}

const runContent = (more) => ({ status: "running", phase: "acting", attempt: 1, ...more });
const ofRun = (run, more) => ({ activityType: "run", activityId: run, surface: "runtime_status", content: runContent(more) });
const facts = (card) => card.locator(".facts").first().evaluate((list) => Object.fromEntries([...list.querySelectorAll("dt")].map((name) => [name.textContent, name.nextElementSibling.textContent])));
const sent = async (path) => (await stage.read(`${path}/controls`)).controls;
/** Collects the bodies of the page's POST requests. */
function posts() {
  const bodies = [];
  page.on("request", (request) => request.method() === "POST" && bodies.push(request.postDataJSON()));
  return bodies;
}

/* ── states ── */

test("a run whose facts arrived at once shows how long its source took", limit, async () => {
  const at = (second, made) => ({ ...made, timestamp: `2026-01-01T00:00:0${second}Z` });
  await stage.publish("imported", [
    at(0, fact("run.started")),
    at(1, fact("tool.started", { toolName: "sh" }, { toolCallId: "c" })),
    at(4, { ...fact("tool.result", { output: "done" }, { toolCallId: "c" }), audience: "user" }),
    at(9, fact("run.finished")),
  ]);
  await look({ run: "imported" });
  assert.equal(await text(page.locator("ps-session-header .elapsed")), "9s");
  assert.equal(await text(page.locator("ps-inline-process .spent")), "3.0s");
});

test("an accepted control does not look like a failure, and a rejected one does", limit, async () => {
  await stage.publish("colours", [fact("run.started", {}, { agentId: "colours" })]);
  await look({ run: "colours" });
  const feedback = page.locator("ps-runtime-status .told");
  await page.evaluate(() => {
    window.heard = {};
    const place = document.querySelector("ps-runtime-status .told");
    new MutationObserver(() => (window.heard[place.textContent] = [getComputedStyle(place).color, getComputedStyle(place.ownerDocument.querySelector(".mode-hint")).color])).observe(place, { childList: true, characterData: true, subtree: true, attributes: true });
  });
  await page.getByRole("button", { name: "Interrupt" }).click();
  await stage.claim("colours", { run: "colours" });
  await until(page, () => window.heard["The runtime accepted it."]);
  const [taken, hint] = await page.evaluate(() => window.heard["The runtime accepted it."]);
  assert.equal(taken, hint, "it has the color of a hint");
  await page.getByRole("button", { name: "Interrupt" }).click();
  await stage.claim("colours", { run: "colours", how: "nack", reason: "busy" });
  await until(page, () => document.querySelector("ps-runtime-status .told").textContent === "The runtime rejected it: busy");
  assert.equal(await feedback.getAttribute("data-state"), "failed");
  assert.notEqual(await feedback.evaluate((place) => getComputedStyle(place).color), taken);
});

test("the composer says what a message does to a pending decision, and supersedes only on request", limit, async () => {
  const asks = fact("action.required", { kind: "tool_approval", toolName: "rm" }, { actionId: "over" });
  await stage.publish("over", [fact("run.started", {}, { agentId: "over" }), asks], { sessionId: "over-s" });
  await look({ session: "over-s" });
  const composer = page.locator("ps-composer");
  await until(page, () => document.querySelector("ps-composer").dataset.mode === "queue");
  await until(page, () => document.querySelector("ps-composer .mode-hint").textContent === "The agent reads it after your decision.");
  await composer.getByLabel("Send", { exact: false }).and(composer.locator("input")).check({ force: true });
  await until(page, () => document.querySelector("ps-composer .mode-hint").textContent.startsWith("Replaces the pending decision"));
  await composer.locator("textarea").fill("Never mind");
  await composer.locator("textarea").press("Enter");
  await until(page, () => document.querySelector("ps-composer .sent")?.dataset.status === "queued");
  await page.locator("ps-action", { hasText: "Superseded" }).waitFor();
});

test("a queued message appears once, before and after its acknowledgement", limit, async () => {
  await stage.publish("once", [fact("run.started", {}, { agentId: "once" })], { sessionId: "once-s" });
  await look({ session: "once-s" });
  const composer = page.locator("ps-composer");
  await until(page, () => document.querySelector("ps-composer").dataset.mode === "queue");
  await composer.locator("textarea").fill("then the outlook");
  await composer.locator("textarea").press("Enter");
  await until(page, () => document.querySelector("ps-composer .sent")?.dataset.status === "queued");
  // The runtime lists it before it acknowledges the control.
  await stage.publish("once", [fact("queue.changed", { queuedTurnCount: 1, items: [{ turnId: "t2", text: "then the outlook" }] })], { sessionId: "once-s" });
  await until(page, () => document.querySelector("ps-composer .queued"));
  const shown = () => composer.evaluate((all) => [...all.querySelectorAll(".queued, .sent")].filter((one) => one.checkVisibility() && one.textContent.includes("then the outlook")).length);
  assert.equal(await shown(), 1);
});

test("an idle teammate has no Stop once its run has ended, and its team does not look active", limit, async () => {
  const story = [fact("run.started"), fact("team.changed", { teamId: "t", teamPhase: "active" }), fact("agent.spawned", { agentName: "Rui", status: "idle" }, { agentId: "rui" })];
  await stage.publish("idle", story);
  await look({ run: "idle" });
  await page.locator("ps-team-roster .open-row-line").click();
  const stop = page.locator('ps-team-roster .card [data-does="stop"]');
  await stop.waitFor();
  await stage.publish("idle", [fact("run.finished")]);
  await until(page, () => document.querySelector('ps-team-roster .card [data-does="stop"]').hidden);
  assert.equal(await page.locator("ps-team-roster").getByRole("button", { name: "Close", exact: true }).isVisible(), true);
  assert.equal(await page.locator("ps-team-roster .team-head .phase").getAttribute("data-state"), "stale");
});

test("a stale activity does not look like a running one", limit, async () => {
  await lookWith("stale", [fact("run.started")], [
    { activityType: "agent", activityId: "rui", surface: "team_roster", content: { status: "running", stale: true } },
    { activityType: "task", activityId: "t", surface: "task_capsule", content: { status: "running", stale: true, progress: 0.5 } },
    { activityType: "task", activityId: "w", surface: "work_board", content: { status: "running", stale: true } },
  ]);
  for (const badge of ["ps-team-roster .card .badge", "ps-task-capsule .badge", "ps-work-board .card .badge"]) {
    if (badge.startsWith("ps-work-board")) await page.locator("#tab-work").click();
    await page.locator(badge).first().waitFor({ state: "attached" });
    assert.equal(await page.locator(badge).first().getAttribute("data-state"), "stale", badge);
  }
  assert.equal(await page.locator("ps-task-capsule progress").isVisible(), false);
});

test("a run shows that it is blocked or retrying, and why", limit, async () => {
  for (const [detail, state] of [["blocked", "idle"], ["retrying", "running"]]) {
    await lookWith(`detail-${detail}`, [fact("run.started")], [ofRun(`detail-${detail}`, { detail, message: "The quota is used up." })]);
    assert.equal((await text(page.locator("ps-runtime-status .phase").first())).toLowerCase(), detail);
    assert.equal(await page.locator("ps-runtime-status .state").first().getAttribute("data-status"), state);
    assert.match(await text(page.locator("ps-runtime-status .more")), /The quota is used up\./);
    await page.close();
  }
  await lookWith("detail-other", [fact("run.started")], [ofRun("detail-other", { detail: "warming_up" })]);
  assert.equal(await text(page.locator("ps-runtime-status .phase")), "Warming up");
  await page.close();
  await lookWith("waits", [fact("run.started")], [ofRun("waits", { status: "waiting", phase: "waiting", message: "For the build." })]);
  assert.deepEqual(await page.locator("ps-runtime-status .note").allTextContents(), ["For the build."]);
  await page.close();
  await lookWith("waits-silently", [fact("run.started")], [ofRun("waits-silently", { status: "waiting", phase: "waiting" })]);
  assert.deepEqual(await page.locator("ps-runtime-status .note").allTextContents(), ["Waiting. The source gave no reason."]);
  await page.close();
  await lookWith("unknown", [fact("run.started")], [ofRun("unknown", { status: "unknown", phase: "unknown" })]);
  assert.deepEqual(await page.locator("ps-runtime-status .note").allTextContents(), ["Status unknown."]);
});

test("a failed hidden step is reported without its name", limit, async () => {
  for (const [hiddenFailures, words] of [[1, "A hidden step failed."], [3, "3 hidden steps failed."]]) {
    await lookWith(`hidden-${hiddenFailures}`, [fact("run.started")], [{ activityType: "diagnostics", activityId: "diagnostics", surface: "diagnostics", content: { hiddenFailures } }]);
    await until(page, () => document.querySelector("ps-runtime-status .note"));
    assert.deepEqual(await page.locator("ps-runtime-status .note").allTextContents(), [words]);
    await page.locator("#tab-diagnostics").click();
    assert.equal(await text(page.locator("ps-diagnostics .hidden-failures")), words);
    await page.close();
  }
});

/* ── all sent data is on the page ── */

test("each card shows the topology of its fact", limit, async () => {
  await lookWith("topology", [fact("run.started")], [
    { activityType: "agent", activityId: "rui", surface: "team_roster", content: { status: "running", topology: "parallel_workers" } },
    { activityType: "task", activityId: "w", surface: "work_board", content: { status: "running", topology: "human_agent_board" } },
    { activityType: "handoff", activityId: "h", surface: "handoff_lane", content: { status: "accepted", from: "rui", to: "ana", topology: "specialist_handoff" } },
    { activityType: "review", activityId: "r", surface: "review_lane", content: { status: "requested", topology: "review_team" } },
  ]);
  for (const [surface, words] of [["team-roster", "parallel workers"], ["work-board", "human agent board"], ["handoff-lane", "specialist handoff"], ["review-lane", "review team"]]) {
    if (["work-board", "review-lane"].includes(surface)) await page.locator("#tab-work").click();
    await page.locator(`ps-${surface} .card`).first().waitFor({ state: "attached" });
    assert.equal((await facts(page.locator(`ps-${surface} .card`).first())).Topology, words, surface);
    await page.locator("#tab-team").click();
  }
});

test("the conversation shows a dry run's plan call by call, and the steps of any plan", limit, async () => {
  const lines = await readFile(new URL("../recordings/ethos/dry_run_summary_after_done.ndjson", import.meta.url), "utf8");
  await stage.publish("dry", lines.trim().split("\n").map((line) => JSON.parse(line)), { source: "ethos" });
  await look({ run: "dry" });
  await page.locator("ps-inline-process .summary").last().waitFor();
  await page.evaluate(() => document.querySelectorAll('ps-inline-process[data-open="false"] > .process-line .summary').forEach((one) => one.click()));
  await until(page, () => document.querySelectorAll('ps-thought[data-kind="plan"] .step').length === 2);
  assert.deepEqual(await page.locator("ps-thought .step > code").allTextContents(), ["bash", "web_search"]);
  await page.close();
  await stage.publish("steps", [fact("run.started"), fact("plan.final", { text: "", steps: [{ title: "Read", status: "completed" }, "Write"] }, { messageId: "m", partId: "p" })]);
  await look({ run: "steps" });
  await until(page, () => document.querySelectorAll("ps-thought .step").length === 2);
  assert.deepEqual(await page.locator("ps-thought .step").allTextContents(), ["Read completed", "Write"]);
});

test("the output of each channel has its name", limit, async () => {
  await lookWith("channels", [fact("run.started")], [{ activityType: "tool-call-progress", activityId: "c", surface: "tool_ui", content: { tool_name: "build", status: "running", state: "running", output_text: ["compiled"], output_channels: { stderr: ["warn", "ing"] } } }]);
  await page.locator("ps-tool").waitFor();
  assert.equal(await text(page.locator("ps-tool .output")), "compiled");
  assert.equal(await page.locator('ps-tool [data-channel="stderr"]').evaluate((root) => [...root.children].map((one) => one.textContent).join(": ")), "stderr: warning");
});

test("comments, images, file changes, attachments and references are shown", limit, async () => {
  const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const part = (partId, more) => ({ partId, opened: 2, status: "complete", text: [""], ...more });
  await lookWith("rich", [fact("run.started")], [
    { activityType: "message", activityId: "m", content: { role: "user", status: "complete", parts: [
      part("i", { kind: "image", mediaType: "image/png", data: pixel, name: "a pixel" }),
      part("o", { kind: "image", url: "https://elsewhere.example/a.png" }),
      part("f", { kind: "file_change", path: "src/a.rs", change: "modified", diff: "@@ -1 +1 @@\n-old\n+new" }),
      part("t", { kind: "user_text", text: ["See these."], refs: [{ rel: "ticket", href: "T-1" }] }),
    ], attachments: [{ name: "notes.md", mediaType: "text/markdown" }] } },
    { activityType: "task", activityId: "w", surface: "work_board", content: { status: "open", title: "Board item", comments: [{ author: "Ana", text: "Please hurry." }, "Noted."] } },
  ]);
  await page.locator("ps-part img").waitFor();
  // Diffs load when they are needed.
  await page.locator("ps-part .diff-line").nth(1).waitFor();
  assert.deepEqual(await page.locator("ps-part img").evaluateAll((all) => all.map((image) => [image.alt, image.naturalWidth])), [["a pixel", 1]]);
  assert.equal(await page.locator("ps-part", { hasText: "https://elsewhere.example/a.png" }).locator("img").count(), 0, "the page requests nothing from other servers");
  assert.deepEqual(await page.locator("ps-part .diff-line").evaluateAll((all) => all.map((line) => line.dataset.kind)), ["delete", "add"]);
  assert.match(await page.locator("ps-part", { hasText: "src/a.rs" }).innerText(), /modified/);
  assert.match(await page.locator("ps-part", { hasText: "See these." }).innerText(), /T-1[\s\S]*notes\.md/);
  await page.locator("#tab-work").click();
  await page.locator("ps-work-board .open-row-line").first().click();
  await page.locator("ps-work-board .comment p").first().waitFor();
  assert.deepEqual(await page.locator("ps-work-board .comment p").allTextContents(), ["Please hurry.", "Noted."]);
  assert.deepEqual(page.problems, []);
});

test("an image in the output of a tool is an image", limit, async () => {
  const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  await lookWith("shot", [fact("run.started")], [{ activityType: "tool-call-progress", activityId: "c", surface: "tool_ui", content: { tool_name: "screenshot", status: "completed", state: "output-available", output: { content: [{ type: "text", text: "Here it is." }, { type: "image", mimeType: "image/png", data: pixel }] } } }]);
  await page.locator("ps-inline-process").first().waitFor();
  await page.evaluate(() => document.querySelectorAll('ps-inline-process[data-open="false"] .summary').forEach((one) => one.click()));
  await page.locator("ps-tool .summary").first().click();
  await page.locator("ps-tool img").waitFor();
  assert.deepEqual(await page.locator("ps-tool img").evaluateAll((all) => all.map(({ naturalWidth }) => naturalWidth)), [1]);
  assert.deepEqual(page.problems, []);
});

test("tabs say how much is unread, what is stale and how many decisions are pending, here and below", limit, async () => {
  page = await stage.blank();
  const session = (sessionId, more) => ({ sessionId, status: "running", counts: { runs: 1, unanswered: 0 }, lastActivity: "2026-01-01T00:00:00Z", ...more });
  const sessions = [
    session("numbers", { unread: 3, counts: { runs: 1, pendingActions: 3, pendingActionsBelow: 2, unanswered: 3 } }),
    session("flag", { unread: true, stale: true, counts: { runs: 1, unanswered: 1 } }),
    session("quiet", { unread: false }),
  ];
  await page.routeWebSocket(/\/v1\/ws/, (socket) => socket.onMessage((message) => {
    if (JSON.parse(message).op !== "subscribe") return;
    for (const entry of sessions) socket.send(JSON.stringify({ sub: "only", frame: "List", list: "sessions", op: "put", key: entry.sessionId, entry }));
    socket.send(JSON.stringify({ sub: "only", frame: "Hydrated" }));
  }));
  await stage.look({ session: "another" }, page);
  const marks = async (id) => page.locator(`#sessions button[data-session="${id}"] .marks > *`).allTextContents();
  await until(page, () => document.querySelectorAll("#sessions button[data-session]").length === 3);
  assert.deepEqual(await marks("numbers"), ["Needs you", "3 decisions pending", "2 in child sessions", "3 unread"]);
  assert.deepEqual(await marks("flag"), ["stale", "1 decision pending", "Unread"]);
  assert.match(await text(page.locator('#sessions button[data-session="flag"] .session-line')), /^Last seen \d+d ago$/);
  assert.deepEqual(await marks("quiet"), ["Running"]);
});

/* ── no duplicates, no losses ── */

test("a step is never expanded in the conversation and the timeline at the same time", limit, async () => {
  await stage.publish("twice", [
    fact("run.started"), fact("tool.started", { toolName: "search", input: { q: "x" } }, { toolCallId: "c" }),
    { ...fact("tool.result", { output: "found" }, { toolCallId: "c" }), audience: "user" }, said("Done.", "m"),
  ]);
  await look({ run: "twice", panel: "trace" });
  const detail = page.locator("ps-trace .trace-detail");
  const both = () => page.evaluate(() => document.querySelector('ps-inline-process[data-open="true"] ps-tool') !== null && (document.querySelector("ps-trace .trace-detail .members")?.checkVisibility() ?? false));
  // Collapsed in the conversation, it is expanded in the timeline.
  await page.locator("ps-trace .trace-row[data-kind=lane]").click();
  await page.locator("ps-trace .trace-row[data-kind=tool]").click();
  await detail.locator(".members").waitFor();
  assert.equal(await both(), false);
  // Expanded in the conversation, it is collapsed in the timeline.
  await page.locator("ps-inline-process > .process-line .summary").click();
  await page.locator("ps-tool").waitFor();
  assert.equal(await both(), false);
  await detail.getByText("Expanded in the conversation.").waitFor();
  await page.locator("ps-inline-process > .process-line .summary").click();
  await detail.locator(".members").waitFor();
  assert.equal(await both(), false);
});

test("older history is loaded on demand", limit, async () => {
  await stage.publish("long-1", [fact("run.started"), ...Array.from({ length: 40 }, (_, at) => said(`old ${at}`, `o${at}`)), fact("run.finished")], { sessionId: "long" });
  await stage.publish("long-2", [fact("run.started"), ...Array.from({ length: 40 }, (_, at) => said(`new ${at}`, `n${at}`))], { sessionId: "long" });
  page = await stage.blank();
  // Streams are blocked: the page then looks as with a server whose streams begin with recent runs only.
  await page.route("**/stream?*", () => {});
  await look({ session: "long" });
  const keys = () => page.evaluate(() => document.querySelector("ps-conversation").view.store.sorted(({ activityType }) => activityType === "message").map(({ content }) => content.parts[0].text.join("")));
  assert.equal((await keys()).length, 50);
  await page.getByRole("button", { name: "Load earlier" }).first().click();
  await until(page, () => document.querySelector("ps-conversation .earlier-note").textContent === "This is the start of the conversation.");
  assert.equal((await keys()).length, 80);
  assert.equal(await page.locator("ps-conversation .earlier").isVisible(), false);
  await scrollTo(page, "start", "old 0");
  await page.close();
  // After complete streams the button for older history is hidden.
  await look({ session: "long" });
  await until(page, () => document.querySelector("ps-conversation").view.store.runs().filter(({ runId, isHydrated }) => runId && isHydrated).length === 2);
  await until(page, () => !document.querySelector("ps-conversation .earlier").checkVisibility());
});

/* ── controls ── */

test("a task is delegated, waited for, retried and merged from the team's panel", limit, async () => {
  await stage.publish("crew", [
    fact("run.started", {}, { agentId: "lead" }),
    fact("team.changed", { teamId: "crew", teamName: "Crew" }, { topology: "parallel_workers" }),
    fact("agent.spawned", { agentName: "Ana", teamName: "Crew", status: "running" }, { agentId: "ana" }),
    fact("agent.completed", { agentName: "Rui", teamName: "Crew", status: "completed" }, { agentId: "rui" }),
    { ...fact("agent.completed", { agentName: "Kim", teamName: "Crew", status: "failed", error: { message: "no" } }, { agentId: "kim" }), phase: "failed" },
  ]);
  await look({ run: "crew" });
  const bodies = posts();
  const roster = page.locator("ps-team-roster");
  await roster.locator(".delegate summary").click();
  await roster.getByRole("textbox", { name: "Task" }).fill("Check the figures");
  await roster.getByRole("combobox", { name: "Teammate" }).selectOption({ label: "Ana" });
  await roster.getByRole("button", { name: "Delegate", exact: true }).click();
  const lines = await roster.locator(".open-row-line").all();
  assert.ok(lines.length > 0, "each teammate has a line");
  for (const line of lines) await line.click();
  await roster.getByRole("button", { name: "Wait", exact: true }).click();
  await roster.locator('.cards [data-does="retry"]').locator("visible=true").click();
  await roster.getByRole("button", { name: "Merge results" }).click();
  await roster.getByRole("button", { name: "Retry failed workers" }).click();
  const wanted = [["delegate", "ana"], ["wait", "ana"], ["retry", "kim"], ["continue_agent", "lead"], ["retry", "kim"]].map(String).sort();
  let all = [];
  while (all.length < wanted.length) {
    all = await sent("/v1/runs/crew");
    await page.waitForTimeout(50);
  }
  assert.deepEqual(all.map(({ control, agentId }) => String([control, agentId])).sort(), wanted);
  assert.deepEqual(bodies.find(({ control }) => control === "delegate").value, { text: "Check the figures" });
  assert.deepEqual(bodies.find(({ control }) => control === "continue_agent").value.agentIds, ["rui"]);
});

test("an artifact is edited and evidence is exported by controls", limit, async () => {
  await stage.publish("made", TEAM);
  await look({ run: "made", panel: "artifacts" });
  const bodies = posts();
  await page.locator("ps-artifacts .artifact-row").first().click();
  await page.locator("ps-artifacts .edit summary").click();
  await page.getByRole("button", { name: "Start from the latest body" }).click();
  await until(page, () => document.querySelector("ps-artifacts .edit textarea").value.startsWith("Revenue grew to 5 M EUR."));
  await page.locator("ps-artifacts .edit textarea").fill("Revenue fell.");
  await page.getByRole("button", { name: "Send edit" }).click();
  await page.locator("ps-artifacts .told", { hasText: "Submitted." }).waitFor();
  await page.locator("#tab-trace").click();
  await page.locator("ps-trace").getByRole("searchbox").fill("2025.pdf");
  await page.locator("ps-trace .trace-row[data-kind=other]").click();
  await page.locator("ps-trace .trace-detail").getByRole("button", { name: "Export" }).click();
  await page.locator("ps-trace .trace-detail .told", { hasText: "Submitted." }).waitFor();
  const all = await sent("/v1/runs/made");
  assert.deepEqual(all.map(({ control, artifactId, evidenceId }) => [control, artifactId ?? evidenceId]).sort(), [["edit", "report"], ["export", "source-1"]]);
  assert.deepEqual(bodies.find(({ control }) => control === "edit").value, { body: "Revenue fell.", baseVersion: 2 });
});

test("a message can have files that are picked, pasted or dropped, and too large ones are rejected before sending", limit, async () => {
  await stage.publish("files", [fact("run.started", {}, { agentId: "files" }), fact("run.finished")], { sessionId: "files-s" });
  await look({ session: "files-s" });
  const composer = page.locator("ps-composer");
  const pick = composer.locator('input[type="file"]');
  await pick.setInputFiles({ name: "big.bin", mimeType: "application/octet-stream", buffer: Buffer.alloc(10 * 1024 * 1024 + 1) });
  await until(page, () => document.querySelector("ps-composer .told").textContent.startsWith("big.bin has 10,485,761 bytes. A file can have 10,485,760."));
  await pick.setInputFiles({ name: "none.txt", mimeType: "text/plain", buffer: Buffer.alloc(0) });
  await until(page, () => document.querySelector("ps-composer .told").textContent.startsWith("none.txt is empty."));
  assert.equal(await composer.locator(".files li").count(), 0);
  await pick.setInputFiles({ name: "notes.md", mimeType: "text/markdown", buffer: Buffer.from("# Notes") });
  for (const [kind, selector, name] of [["paste", "textarea", "pasted.png"], ["drop", ".box", "dropped.png"]]) {
    await composer.locator(selector).evaluate((at, [kind, name]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(300_000)], name, { type: "image/png" }));
      at.dispatchEvent(kind === "paste" ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }) : new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }, [kind, name]);
  }
  assert.deepEqual(await composer.locator(".files li span").allTextContents(), ["notes.md · 7 B", "pasted.png · 300.0 kB", "dropped.png · 300.0 kB"]);
  await composer.getByRole("button", { name: "Remove dropped.png" }).click();
  await composer.locator("textarea").fill("See the notes.");
  await composer.locator("textarea").press("Enter");
  const { value } = await stage.claim("files");
  assert.deepEqual(value.attachments.map(({ name, mediaType, bytes }) => [name, mediaType, bytes]), [["notes.md", "text/markdown", 7], ["pasted.png", "image/png", 300_000]]);
  assert.equal(await (await fetch(`${stage.url}${value.attachments[0].href}`)).text(), "# Notes");
  assert.equal(await composer.locator(".files li").count(), 0);
});

/* ── the shell ── */

test("no tab makes the page scroll", limit, async () => {
  await stage.publish("tall", [fact("run.started"), ...TEAM.slice(2), ...Array.from({ length: 60 }, (_, at) => fact("agent.spawned", { agentName: `Worker ${at}` }, { agentId: `w${at}` }))]);
  await look({ run: "tall" });
  for (const tab of await visibleTabs(page)) {
    await tab.click();
    assert.deepEqual(await page.evaluate(() => [document.scrollingElement.scrollHeight <= innerHeight, document.scrollingElement.scrollWidth <= innerWidth]), [true, true], await tab.textContent());
  }
});

test("the queue button has enough contrast under the pointer", limit, async () => {
  await stage.publish("contrast", [fact("run.started")]);
  for (const colorScheme of ["light", "dark"]) {
    await look({ run: "contrast" });
    await page.emulateMedia({ colorScheme });
    await until(page, () => document.querySelector("ps-composer").dataset.mode === "queue");
    await page.locator("ps-composer .submit").hover();
    const ratio = await page.locator("ps-composer .submit").evaluate((button) => {
      const { color, backgroundColor } = getComputedStyle(button);
      const canvas = new OffscreenCanvas(1, 1).getContext("2d");
      const luminance = (paint) => {
        canvas.fillStyle = paint;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((one) => (one / 255 <= 0.03928 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const [one, other] = [luminance(backgroundColor), luminance(color)].sort((a, b) => b - a);
      return (one + 0.05) / (other + 0.05);
    });
    assert.ok(ratio >= 4.5, `${colorScheme}: ${ratio}`);
    await page.close();
  }
});

test("the headers of the diagnostics tables stay on one line", limit, async () => {
  await stage.publish("headers", [fact("run.started"), { ...fact("diagnostic.changed", { kind: "slow_archive_that_has_a_very_long_name", message: "x".repeat(200), severity: "warning" }), audience: "user" }, { ...fact("metric.changed", { name: "first token", model: "large", durationMs: 1800, usage: { inputTokens: 9_000_000, outputTokens: 100 } }, { agentId: "coordinator-of-everything" }), audience: "user" }]);
  await look({ run: "headers", panel: "diagnostics" });
  await page.locator("ps-diagnostics th").first().waitFor();
  const heights = await page.locator("ps-diagnostics th").evaluateAll((all) => all.filter((one) => one.checkVisibility()).map((head) => {
    const range = document.createRange();
    range.selectNodeContents(head);
    return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size;
  }));
  assert.ok(heights.length >= 8);
  assert.deepEqual([...new Set(heights)], [1], "each header is one line");
});

test("an unknown id is reported, and its connection does not look live", limit, async () => {
  for (const [hash, words] of [[{ session: "nope" }, "The session “nope” does not exist on this server"], [{ run: "nope-run" }, "The run “nope-run” does not exist on this server"]]) {
    await look(hash);
    await until(page, (words) => document.querySelector("ps-conversation .empty").textContent.startsWith(words), words);
    await until(page, () => document.getElementById("connection").dataset.kind === "live");
    assert.equal(await page.locator(".connection .dot").getAttribute("data-kind"), "connecting");
    assert.match(await text(page.locator("#connection")), /^Listening: no such (session|run)$/);
    await page.close();
  }
  // When the run begins later, the connection looks live.
  await look({ run: "later" });
  await until(page, () => document.getElementById("connection").textContent.startsWith("Listening"));
  await stage.publish("later", [fact("run.started"), said("Here.", "m")]);
  await until(page, () => document.querySelector(".speech .body")?.textContent === "Here." && document.getElementById("connection").textContent === "Connected");
});

test("nothing is sent while the page is disconnected", limit, async () => {
  await stage.publish("severed", [fact("run.started", {}, { agentId: "severed" }), fact("action.required", { kind: "tool_approval", message: "May I?" }, { actionId: "a" })]);
  await look({ run: "severed" });
  const posted = [];
  page.on("request", (request) => request.method() === "POST" && posted.push(request.url()));
  await page.locator(".connection").click();
  await page.getByRole("button", { name: "Simulate disconnect" }).click();
  await until(page, () => document.getElementById("connection").dataset.kind === "away");
  await page.locator("ps-action").getByRole("button", { name: "Approve" }).click();
  await until(page, () => document.querySelector("ps-action .told").textContent.startsWith("Not submitted: This page is disconnected."));
  await page.locator("ps-composer textarea").fill("Hello");
  await page.locator("ps-composer textarea").press("Enter");
  await until(page, () => document.querySelector("ps-composer .told").textContent.startsWith("Not sent: This page is disconnected."));
  assert.equal(await page.locator("ps-composer textarea").inputValue(), "Hello");
  assert.deepEqual(posted, []);
  await page.locator(".connection").click();
  await page.getByRole("button", { name: "Reconnect" }).click();
  await until(page, () => document.getElementById("connection").dataset.kind === "live");
  await page.locator("ps-action").getByRole("button", { name: "Approve" }).click();
  await until(page, () => document.querySelector("ps-action .told").textContent.startsWith("Answered by you."));
  assert.equal((await stage.claim("severed")).control, "approve");
});

test("the page asks for a token that the server requires, and reports a rejected one", limit, async () => {
  const dir = await mkdtemp(join(tmpdir(), "proscenium-honest-"));
  const key = join(dir, "key");
  execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"]);
  const asking = await Stage.open("--auth-key", key);
  try {
    const token = execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", "--can", "read"], { encoding: "utf8" }).trim();
    const visitor = await asking.look();
    await until(visitor, () => document.getElementById("token-note").textContent === "This server requires a token. Paste one to see its sessions.");
    assert.ok(!(await visitor.locator("#sessions").innerText()).includes("Sessions appear here"));
    assert.equal(await text(visitor.locator("#title")), "Token required");
    await visitor.locator("#token input").fill("not-a-token");
    await visitor.locator("#token button").click();
    await until(visitor, () => document.getElementById("token-note").textContent.startsWith("The server rejected this token."));
    assert.equal(await visitor.locator("#token-note").getAttribute("data-state"), "failed");
    await visitor.locator("#token input").fill(token);
    await visitor.locator("#token button").click();
    await until(visitor, () => document.getElementById("token-note").hidden && document.getElementById("sessions").textContent.includes("Sessions appear here"));
  } finally {
    await asking.close();
    await rm(dir, { recursive: true, force: true });
  }
});

test("no button wraps inside a word on a phone", limit, async () => {
  await stage.publish("phone", [fact("run.started")]);
  page = await stage.blank();
  await page.setViewportSize({ width: 360, height: 740 });
  await look({ run: "phone" });
  await until(page, () => document.querySelector("ps-composer").dataset.mode === "queue");
  const broken = await page.locator("ps-composer .mode, ps-composer .button").evaluateAll((all) => all.filter((one) => one.checkVisibility()).filter((one) => {
    const range = document.createRange();
    range.selectNodeContents(one.querySelector("span:last-child") ?? one);
    return new Set([...range.getClientRects()].filter(({ width }) => width > 1).map(({ top }) => Math.round(top / 8))).size > 1;
  }).map((one) => one.textContent));
  assert.deepEqual(broken, []);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
});
