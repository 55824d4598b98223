/**
 * The surfaces of the team, in a real browser with a real server. Tests of seed 003's validation
 * checklist have its sentences as titles.
 */

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { Stage, limit, text, until } from "./stage.js";
import { FAULT, SUMMARY, TEAM } from "./fixtures/story.js";

let stage, page;
let runs = 0;

before(async () => (stage = await Stage.open()), limit);
after(() => stage?.close());
afterEach(async () => {
  if (!page) return;
  assert.deepEqual(page.problems, []);
  await page.close();
  page = undefined;
});

/** Publishes facts to a new run and opens it. */
async function openRun(facts = TEAM, { audience = "user", ...hash } = {}) {
  const run = `team-${++runs}`;
  await stage.publish(run, facts);
  page = await stage.show("team.html", { run, audience, ...hash });
  return run;
}

const bench = (name) => page.evaluate((name) => JSON.parse(JSON.stringify(window.bench[name])), name);
const textContentOf = (selector) => page.locator(selector).evaluate((element) => element.textContent);
/** Returns the labels and values of a card's facts. */
const facts = (card) => card.locator(".facts").first().evaluate((list) => Object.fromEntries([...list.querySelectorAll("dt")].map((name) => [name.textContent, name.nextElementSibling.textContent])));
const card = (surface, title) => page.locator(`${surface} .card`, { has: page.locator(".card-title", { hasText: new RegExp(`^${title}$`) }) });
/** Opens a row. */
const expand = (row) => row.evaluate((root) => root.querySelector(".open-row-line[aria-expanded=false]")?.click());

test("Evidence, replay, review, and citations link to evidence facts.", limit, async () => {
  const run = await openRun();
  const review = card("ps-review-lane", "report");
  assert.deepEqual(await facts(review), { Reviewer: "Checker", Target: "report", Verdict: "changes requested" });
  assert.deepEqual(await review.locator(".fixes li").allInnerTexts(), ["name the currency"]);
  // A reference without an evidence fact is not a link.
  const links = review.locator(".links > *");
  assert.deepEqual(await links.evaluateAll((all) => all.map((it) => [it.localName, it.querySelector(".mono").textContent, it.querySelector(".badge")?.textContent ?? ""])), [["button", "2025.pdf, page 3", ""], ["span", "hearsay", "not found"]]);
  await expand(review);
  await links.first().click();
  assert.deepEqual(await bench("opened"), [{ kind: "evidence", id: "source-1", runId: run }]);
  const detail = page.locator("ps-trace .trace-detail");
  assert.match(await text(detail.locator(".card-title")), /^Evidence: 2025\.pdf, page 3$/);
  assert.equal((await facts(detail)).Id, "source-1");
  assert.equal(await text(detail.locator(".status")), "Verified");
  assert.equal(await text(detail.locator(".links .mono")), "files/2025.pdf");

  await page.locator("ps-trace").getByRole("searchbox").fill("Replay of");
  await until(page, () => document.querySelectorAll("ps-trace .trace-row:not([data-kind=lane])").length === 1);
  await page.locator("ps-trace .trace-row", { hasText: "Replay" }).click();
  assert.match(await text(detail.locator(".card-title")), /Replay of the search$/);
});

test("Multi-agent and background tasks use task/agent/team facts, not assistant prose.", limit, async () => {
  const run = await openRun();
  // The coordinator's text says that everything is completed; the facts do not.
  assert.ok((await textContentOf("ps-conversation")).includes("everybody has completed everything"));
  const statuses = (surface) => page.locator(`${surface} .card`).evaluateAll((cards) => cards.map((it) => [it.querySelector(".card-title").textContent, it.querySelector(".badge").dataset.status]));
  assert.deepEqual(await statuses("ps-team-roster"), [["coordinator", "waiting"], ["Writer", "needs_input"], ["Researcher", "running"], ["Checker", "running"], ["Translator", "working"]]);
  assert.deepEqual(await statuses("ps-background-teammates"), [["Nightly sync", "sleeping"]]);
  assert.deepEqual(await facts(card("ps-background-teammates", "Nightly sync")), { Teammate: "watcher", Schedule: "daily at 02:00", "Last run": "runs/r-last" });
  assert.deepEqual(await statuses("ps-remote-teammates"), [["Translate", "auth_required"], ["Translator", "working"]]);
  assert.equal(await text(page.locator("ps-remote-teammates .needs").first()), "Needs authorization: sign in");

  await stage.publish(run, [{ type: "agent.completed", agentId: "researcher", payload: { status: "completed" } }, { type: "task.changed", taskId: "nightly", payload: { status: "running", wakeReason: "a new file" } }]);
  await until(page, () => document.querySelector('ps-team-roster [data-key$=" agent researcher"] .badge').dataset.status === "completed");
  assert.deepEqual((await statuses("ps-team-roster")).at(-1), ["Researcher", "completed"]);
  await until(page, () => document.querySelector("ps-background-teammates .badge").dataset.status === "running");
  assert.equal((await facts(card("ps-background-teammates", "Nightly sync")))["Wake reason"], "a new file");
});

test("Team topology is visible when the runtime exposes coordinator, worker, handoff, board, background, review, or remote-agent facts.", limit, async () => {
  await openRun();
  assert.equal(await text(page.locator("ps-team-roster .topology")), "coordinator team");
  assert.equal(await text(page.locator("ps-team-roster .budget .hint")), "2 active, at most 3 at once, 1 queued");
  const edges = await page.locator("ps-delegation-graph .edge-group").evaluateAll((all) => all.map((it) => `${it.dataset.from} ${it.dataset.edge} ${it.dataset.to}`).sort());
  assert.deepEqual(edges, ["coordinator delegates researcher", "coordinator delegates translator", "coordinator delegates writer", "researcher delegates checker", "researcher hands over writer", "writer waits researcher"]);
  assert.deepEqual(await page.locator("ps-delegation-graph .graph-list li").allTextContents(), [
    "coordinator, coordinator: waiting.",
    "Researcher, researcher: running; delegated by coordinator: Find the figures; handed off to Writer: the figures are there.",
    "Writer, writer: needs input; delegated by coordinator: Write the draft; waits for Find the figures (running).",
    "Checker, verifier: running; delegated by Researcher: ".replace(/: $/, "."),
    "Translator: working; delegated by coordinator.",
  ]);
  assert.equal(await text(page.locator("ps-handoff-lane .owner")), "Current owner: Writer");
  assert.deepEqual(await facts(card("ps-handoff-lane", "Researcher → Writer")), { Reason: "the figures are there", "Resumes at": "draft", Memory: "team", Context: "figures only", Accepted: "2026-01-01T00:01:00Z" });
  for (const surface of ["team-roster", "delegation-graph", "work-board", "handoff-lane", "worker-notifications", "review-lane", "background-teammates", "remote-teammates", "team-policy"]) {
    assert.ok(await page.locator(`ps-${surface}`).isVisible(), `${surface} is visible`);
  }
});

test("the keyboard moves through the delegation graph and opens transcripts", limit, async () => {
  const run = await openRun();
  const at = () => page.evaluate(() => document.activeElement?.dataset?.node);
  await page.locator('ps-delegation-graph .node[tabindex="0"]').focus();
  const visited = [await at()];
  for (const key of ["ArrowRight", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft", "ArrowLeft", "End"]) {
    await page.keyboard.press(key);
    visited.push(await at());
  }
  assert.deepEqual(visited, ["coordinator", "researcher", "writer", "researcher", "checker", "researcher", "coordinator", "translator"]);
  assert.equal(await page.locator('ps-delegation-graph .node[tabindex="0"]').count(), 1);
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  assert.deepEqual(await bench("opened"), [{ kind: "teammate", id: "researcher", runId: run }]);
});

test("Worker notifications are distinguishable from real user messages and coordinator final text.", limit, async () => {
  // One report has the role of the user, as some transports send it.
  await openRun([...TEAM, { type: "worker.notification", agentId: "checker", messageId: "m9", payload: { workerNotificationId: "n2", role: "user", text: "Please look at page 3." } }]);
  const lane = page.locator("ps-worker-notifications");
  assert.deepEqual(await lane.locator(".card").evaluateAll((cards) => cards.map((it) => [it.dataset.kind, it.querySelector(".card-title").textContent, it.querySelector(".label").textContent, it.querySelector(".card-body").textContent])), [
    ["worker-notification", "Checker", "worker report", "Please look at page 3."],
    ["worker-notification", "Researcher", "worker report", SUMMARY],
  ]);
  const conversation = await textContentOf("ps-conversation");
  assert.ok(conversation.includes("Write the quarterly report."));
  for (const words of [SUMMARY, "Please look at page 3."]) assert.ok(!conversation.includes(words), words);
  assert.deepEqual(await facts(lane.locator(".card").last()), { Task: "research", Duration: "5.2 s", Tools: "1", Usage: "input tokens 900" });
});

test("Parent/child session/thread/task ids survive hydration, replay, evidence export, and transcript zoom.", limit, async () => {
  const run = await openRun();
  const lineage = { Session: "child", Thread: "t-child", "Parent session": "lead", "Parent thread": "main", Task: "research" };
  const transcriptFacts = async () => {
    await page.evaluate(() => document.querySelector("ps-teammate-transcript").open("researcher"));
    return facts(page.locator("ps-teammate-transcript > .facts").locator("xpath=.."));
  };
  // Hydration and transcript.
  assert.deepEqual(await transcriptFacts(), lineage);
  assert.deepEqual(await page.locator("ps-teammate-transcript .entry .text").allInnerTexts(), ["I look through the archive.", "year 2,025", "May the researcher open the archive?"]);
  assert.equal((await facts(card("ps-team-roster", "Researcher")))["Spawned by"], "session lead, thread main");
  assert.equal((await facts(card("ps-team-roster", "Checker")))["Spawned by"], "session child, thread t-child");
  assert.equal(await page.locator('ps-delegation-graph [data-edge="delegates"][data-to="checker"]').getAttribute("data-from"), "researcher");

  // Replay: the moment after the agents were spawned.
  await page.locator("ps-scrubber .slider").fill("9", { force: true });
  await until(page, () => window.bench.at === 9);
  assert.deepEqual(await transcriptFacts(), lineage);
  assert.equal((await facts(card("ps-team-roster", "Checker")))["Spawned by"], "session child, thread t-child");

  // Export: the same ids.
  const exported = (await (await fetch(`${stage.url}/v1/runs/${run}/export`)).text()).trim().split("\n").map((line) => JSON.parse(line));
  const spawned = exported.find((line) => (line.event ?? line).type === "agent.spawned" && (line.event ?? line).agentId === "checker");
  const { sessionId, taskId, parentSessionId, parentThreadId } = spawned.event ?? spawned;
  assert.deepEqual({ sessionId, taskId, parentSessionId, parentThreadId }, { sessionId: "grandchild", taskId: "check", parentSessionId: "child", parentThreadId: "t-child" });

  // The transcript's own session is loaded on demand.
  await page.locator("ps-scrubber .live").click();
  await stage.publish("child-run", [{ type: "run.started", sessionId: "child", agentId: "researcher" }, { type: "text.final", messageId: "own", agentId: "researcher", payload: { text: "From my own session." } }]);
  await transcriptFacts();
  await page.getByRole("button", { name: "Load session" }).click();
  await until(page, () => document.querySelector("ps-teammate-transcript .entry .text")?.textContent === "From my own session.");
});

test("Delegated approvals identify the teammate/subagent that requested the action.", limit, async () => {
  await openRun();
  const requests = page.locator('ps-conversation [data-key$=" action ask-1"]').first();
  await requests.waitFor();
  assert.match(await requests.innerText(), /Researcher/);
  assert.equal(await text(card("ps-team-policy", "Researcher").locator(".badge")), "1 pending");
  assert.equal(await text(card("ps-team-policy", "coordinator").locator(".badge")), "no decision yet");
  assert.deepEqual(await facts(card("ps-team-policy", "Researcher")), { Mode: "plan", Sandbox: "unknown", "Max cost usd": "2" });
});

test("Diagnostics and metrics stay outside normal conversation text.", limit, async () => {
  await openRun();
  const rows = (nth) => page.locator("ps-diagnostics table").nth(nth).locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.cells].slice(0, -1).map((cell) => cell.textContent)));
  const [[sequence, severity, kind, says]] = await rows(0);
  assert.deepEqual([severity, kind, says], ["warning", "slow archive", FAULT]);
  assert.equal(Number(sequence), TEAM.findIndex((fact) => fact.type === "diagnostic.changed") + 1);
  assert.deepEqual((await rows(1)).map((row) => row.slice(1)), [["first token", "coordinator", "1.8 s", "", ""]]);
  const conversation = await textContentOf("ps-conversation");
  assert.ok(!conversation.includes(FAULT) && !conversation.includes("first token"));
});

test("Missing facts render honest fallback states.", limit, async () => {
  await openRun([
    { type: "run.started" },
    { type: "team.changed", payload: { teamId: "bare" } },
    { type: "agent.changed", agentId: "unnamed", payload: {} },
    { type: "agent.handoff", payload: { handoffId: "h" } },
    { type: "task.changed", payload: { workItemId: "w" } },
    { type: "task.changed", taskId: "job", payload: { runtimeEntity: "automation_job" } },
    { type: "task.changed", payload: { remoteTaskId: "far" } },
    { type: "review.requested", payload: { reviewId: "r" } },
    { type: "worker.notification", payload: { workerNotificationId: "n" } },
    { type: "artifact.changed", artifactId: "a", payload: {} },
    { type: "permission.changed", payload: {} },
  ]);
  assert.equal(await text(page.locator("ps-team-roster .topology")), "topology unknown");
  assert.equal(await text(page.locator("ps-team-roster .card .badge").first()), "unknown");
  assert.deepEqual(await facts(page.locator("ps-handoff-lane .card")), { Reason: "unknown", "Resumes at": "unknown", Memory: "unknown", Context: "unknown", Accepted: "not yet" });
  assert.equal(await text(page.locator("ps-handoff-lane .card-title")), "unknown → unknown");
  assert.equal(await text(page.locator('ps-work-board [data-column="other"] .card-title')), "w");
  assert.deepEqual(await facts(page.locator("ps-work-board .card")), { Assignee: "unassigned" });
  assert.deepEqual(await facts(page.locator("ps-background-teammates .card")), { Teammate: "unknown", Schedule: "unknown", "Last run": "none" });
  assert.deepEqual(await facts(page.locator("ps-remote-teammates .card")), { "Remote task": "far", Capability: "unknown" });
  assert.deepEqual(await facts(page.locator("ps-review-lane .card")), { Reviewer: "unknown", Target: "unknown", Verdict: "none yet, requested" });
  assert.equal(await text(page.locator("ps-worker-notifications .card-title")), "unknown worker");
  await page.locator("ps-artifacts .artifact-row").click();
  await until(page, () => document.querySelector("ps-artifacts .artifact-body .caption").textContent === "Unavailable: the source sent no facts with the latest body.");
  await page.evaluate(() => document.querySelector("ps-teammate-transcript").open("unnamed"));
  assert.equal(await text(page.locator("ps-teammate-transcript .note")), "Transcript unavailable: the source gave no session.");
});

test("assigning a work item submits a control, and the card moves when the runtime reports it", limit, async () => {
  const run = await openRun();
  const item = card("ps-work-board", "Name the currency");
  assert.deepEqual(await facts(item), { Assignee: "unassigned", "Depends on": "Collect the figures (running), access (unknown)" });
  await expand(item);
  await item.locator("select").selectOption({ label: "Writer" });
  await item.getByRole("button", { name: "Assign", exact: true }).click();
  await item.getByText("Submitted. The runtime has not confirmed it yet.").waitFor();
  assert.deepEqual(await bench("controls"), [{ control: "assign", run, taskId: "w2", value: { assignee: "writer" } }]);
  const { controls } = await stage.read(`/v1/runs/${run}/controls`);
  assert.deepEqual(controls.map(({ control, status, taskId }) => ({ control, status, taskId })), [{ control: "assign", status: "queued", taskId: "w2" }]);
  assert.equal((await facts(item)).Assignee, "unassigned");
  assert.equal(await page.locator('ps-work-board [data-column="open"] .card').count(), 1);

  await stage.publish(run, [{ type: "task.changed", taskId: "w2", payload: { status: "claimed", assignee: "writer" } }]);
  await page.locator('ps-work-board [data-column="claimed"] .card').waitFor();
  assert.equal((await facts(item)).Assignee, "Writer");
});

test("a control for an activity of a session's own log targets the session", limit, async () => {
  const session = `board-${++runs}`;
  await stage.publish(`session:${session}`, [
    { type: "agent.spawned", agentId: "writer", payload: { agentName: "Writer" } },
    { type: "task.changed", taskId: "w", payload: { runtimeEntity: "work_item", title: "Name the currency", status: "open" } },
  ]);
  // Only the session's log names this teammate, which works in a run of the session.
  await stage.publish(`${session}-run`, [{ type: "run.started", sessionId: session }, { type: "worker.notification", agentId: "writer", payload: { workerNotificationId: "n", summary: "Done." } }]);
  page = await stage.show("team.html", { session });
  const item = card("ps-work-board", "Name the currency");
  await expand(item);
  await item.locator("select").selectOption({ label: "Writer" });
  await item.getByRole("button", { name: "Assign", exact: true }).click();
  await item.getByText("Submitted. The runtime has not confirmed it yet.").waitFor();
  assert.deepEqual(await bench("controls"), [{ control: "assign", session, taskId: "w", value: { assignee: "writer" } }]);
  await card("ps-worker-notifications", "Writer").waitFor();
  await item.locator(".inspect").click();
  await page.locator("ps-events .events-notice", { hasText: /This activity belongs to a session's own log/ }).waitFor();
});

test("the board has a column per status, blocker texts, and links only to existing activities", limit, async () => {
  const run = await openRun();
  const columns = await page.locator("ps-work-board .column").evaluateAll((all) => all.map((it) => [it.dataset.column, [...it.querySelectorAll(".card-title")].map((title) => title.textContent)]));
  assert.deepEqual(columns, [["open", ["Name the currency"]], ["claimed", []], ["running", ["Collect the figures"]], ["blocked", ["Layout"]], ["reviewing", []], ["done", ["Outline"]]]);
  assert.equal(await text(card("ps-work-board", "Layout").locator(".blocker")), "Blocked: the template");
  const figures = card("ps-work-board", "Collect the figures");
  assert.equal(await text(figures.locator(".priority")), "high");
  assert.equal(await figures.locator("progress").evaluate((bar) => bar.value), 0.4);
  await expand(figures);
  await figures.locator(".links button", { hasText: "Report" }).click();
  assert.deepEqual(await bench("opened"), [{ kind: "artifact", id: "report", runId: run }]);
  assert.equal(await text(figures.locator(".links > span .badge")), "not found");
});

test("a control's feedback shows a rejection with its reason, and then an acceptance", limit, async () => {
  const run = await openRun();
  const researcher = card("ps-team-roster", "Researcher");
  await expand(researcher);
  const stop = researcher.getByRole("button", { name: "Stop" });
  await researcher.locator(".told").evaluate((element) => {
    window.heard = [];
    new MutationObserver(() => window.heard.push(element.textContent)).observe(element, { childList: true, characterData: true, subtree: true });
  });
  const waitForFeedback = (words) => until(page, (words) => window.heard.includes(words), words);
  await stop.click();
  await waitForFeedback("Submitted. The runtime has not confirmed it yet.");
  await stage.claim("researcher", { run, how: "nack", reason: "not now" });
  await waitForFeedback("The runtime rejected it: not now");
  await stop.click();
  await stage.claim("researcher", { run });
  await waitForFeedback("The runtime accepted it.");
  // The feedback disappears; facts follow.
  await until(page, () => window.heard.at(-1) === "");
  assert.equal(await researcher.locator(".badge").first().getAttribute("data-status"), "running");
});

test("a control for a teammate targets this teammate only", limit, async () => {
  const run = await openRun();
  for (const name of ["Writer", "Researcher"]) await expand(card("ps-team-roster", name));
  await card("ps-team-roster", "Writer").getByRole("button", { name: "Open transcript" }).click();
  const transcript = page.locator("ps-teammate-transcript");
  assert.equal(await text(transcript.locator(".card-title")), "Writer");
  await transcript.getByLabel("Message to this teammate").fill("Use euros.");
  await transcript.getByRole("button", { name: "Send" }).click();
  await transcript.getByText("Submitted. The runtime has not confirmed it yet.").waitFor();
  await card("ps-team-roster", "Researcher").getByRole("button", { name: "Stop" }).click();
  await until(page, () => window.bench.controls.length === 2);
  assert.deepEqual(await bench("controls"), [
    { control: "continue_agent", run, agentId: "writer", value: { text: "Use euros." } },
    { control: "stop", run, agentId: "researcher" },
  ]);
  assert.equal(await card("ps-team-roster", "Researcher").locator(".badge").first().getAttribute("data-status"), "running");
});

test("a transcript is bounded and shows more on request", limit, async () => {
  const messages = Array.from({ length: 100 }, (_, n) => ({ type: "text.final", messageId: `m-${n}`, agentId: "talker", payload: { text: `word ${n}` } }));
  await openRun([{ type: "run.started" }, { type: "agent.spawned", agentId: "talker", payload: {} }, ...messages]);
  await page.evaluate(() => document.querySelector("ps-teammate-transcript").open("talker"));
  const entries = page.locator("ps-teammate-transcript .entry .text");
  assert.equal(await entries.count(), 40);
  assert.equal(await text(entries.first()), "word 60");
  await page.getByRole("button", { name: "Show 40 earlier" }).click();
  assert.equal(await entries.count(), 80);
  assert.equal(await text(entries.first()), "word 20");
});

test("a long trace draws only rows near the viewport, and loads older steps by page", limit, async () => {
  const calls = (from, to) => Array.from({ length: to - from }, (_, n) => ({ type: "tool.started", toolCallId: `c-${from + n}`, payload: { toolName: `tool ${from + n}` } }));
  const session = `many-${++runs}`;
  await stage.publish(`${session}-old`, [{ type: "run.started", sessionId: session }, ...calls(0, 300), { type: "run.finished" }]);
  const run = `${session}-new`;
  await stage.publish(run, [{ type: "run.started", sessionId: session }]);
  for (let from = 0; from < 10_000; from += 2000) await stage.publish(run, calls(from, from + 2000));
  page = await stage.show("team.html", { run, without: "conversation,delegation-graph" });
  const rows = page.locator("ps-trace .trace-row");
  await until(page, () => document.querySelector("ps-trace .count").textContent === "10000");
  assert.ok(await rows.count() < 60, `${await rows.count()} rows`);
  await page.locator("ps-trace .rows").evaluate((list) => (list.scrollTop = list.scrollHeight / 2));
  await until(page, () => [...document.querySelectorAll("ps-trace .title")].some((title) => title.textContent === "tool 5000"));
  assert.ok(await rows.count() < 60);

  const read = page.locator("ps-trace .earlier");
  // The newest pages contain the run that the page already has: one click reads on to other steps.
  await read.click();
  await until(page, () => Number(document.querySelector("ps-trace .count").textContent) > 10_000);
  while (await read.isVisible()) {
    await read.click();
    await until(page, () => !document.querySelector("ps-trace .earlier")?.disabled);
  }
  assert.equal(await page.locator("ps-trace .count").textContent(), "10300");
});

test("the trace shows lanes with bars, filters them and goes to the conversation by the keyboard", limit, async () => {
  const run = await openRun();
  const trace = page.locator("ps-trace");
  const lane = (name) => trace.locator(".trace-row[data-kind=lane]", { has: page.locator(".title", { hasText: new RegExp(`^${name}$`) }) });
  await lane("Researcher").waitFor();
  assert.ok(await lane("Researcher").locator("rect[data-kind=waiting]").count() > 0, "an open decision is a hatched bar");
  for (const isOpen of ["true", "false", "true"]) {
    assert.equal(await lane("Researcher").getAttribute("aria-expanded"), isOpen);
    if (isOpen === "true") assert.ok(await trace.locator(".title", { hasText: "open_archive" }).isVisible());
    await lane("Researcher").click();
  }
  await lane("Researcher").click();
  const list = trace.getByRole("tree");
  for (const key of ["j", "j"]) await list.press(key);
  assert.equal(await text(trace.locator('.trace-row[aria-selected="true"] .title')), "open_archive");
  assert.match(await text(trace.locator(".trace-detail .status")), /^Waiting for/);
  const revealed = page.evaluate(() => new Promise((resolve) => document.addEventListener("reveal", ({ detail }) => resolve(detail), { once: true })));
  await list.press("j");
  assert.equal(await text(trace.locator('.trace-row[aria-selected="true"] .title')), "Waiting for approval");
  await list.press("Enter");
  assert.equal(await revealed, `${run} action ask-1`);
  await trace.getByRole("button", { name: "Tool", exact: true }).click();
  await until(page, () => [...document.querySelectorAll("ps-trace .trace-row:not([data-kind=lane])")].map((row) => row.querySelector(".title").textContent).join() === "open_archive");
  await trace.getByRole("button", { name: "Zoom in" }).click();
  assert.equal(await trace.getByRole("button", { name: "Fit" }).isEnabled(), true);
  await trace.getByRole("button", { name: "Fit" }).click();
  assert.equal(await trace.getByRole("button", { name: "Fit" }).isEnabled(), false);
});

test("the text of teammates is never markup", limit, async () => {
  const hostileText = "<img src=x onerror=alert(1)><svg onload=alert(2)>";
  await openRun([
    { type: "run.started", agentId: hostileText },
    { type: "agent.spawned", agentId: "a", payload: { agentName: hostileText, role: hostileText, color: "url(javascript:alert(3))", policy: { [hostileText]: hostileText } } },
    { type: "team.changed", payload: { teamId: "t", teamName: hostileText, topology: hostileText } },
    { type: "task.changed", payload: { workItemId: "w", title: hostileText, status: hostileText, blocker: hostileText, assignee: hostileText } },
    { type: "agent.handoff", payload: { handoffId: "h", from: hostileText, to: "a", reason: hostileText } },
    { type: "worker.notification", payload: { workerNotificationId: "n", summary: hostileText } },
    { type: "review.requested", payload: { reviewId: "r", reviewer: hostileText, target: hostileText, evidenceRefs: [hostileText] } },
    { type: "artifact.created", artifactId: "x", refs: [{ rel: hostileText, href: "javascript:alert(4)" }], payload: { title: hostileText, preview: hostileText, body: hostileText } },
    { type: "evidence.changed", evidenceId: "e", payload: { title: hostileText, kind: hostileText } },
    { type: "diagnostic.changed", audience: "user", payload: { message: hostileText, severity: hostileText } },
  ]);
  await page.locator("ps-artifacts .artifact-row").click();
  await until(page, (hostileText) => document.querySelector("ps-artifacts .body")?.textContent === hostileText, hostileText);
  assert.equal(await page.locator("main img, main [onerror], main [onload], main a").count(), 0);
  assert.equal(await text(card("ps-team-roster", hostileText.replace(/[()[\]]/g, "\\$&")).locator(".card-title").first()), hostileText);
});

test("a team of 40 is filtered by words and has an order", limit, async () => {
  const status = (at) => (at % 4 === 0 ? "completed" : "running");
  const agents = Array.from({ length: 40 }, (_, at) => ({ type: "agent.spawned", agentId: `mate-${at}`, payload: { agentName: `Mate ${at}`, role: at % 2 ? "writer" : "reviewer" } }));
  const done = agents.filter((_, at) => status(at) === "completed").map(({ agentId }) => ({ type: "agent.completed", agentId, payload: {} }));
  await stage.publish("forty", [{ type: "run.started" }, ...agents, ...done]);
  page = await stage.show("team.html", { run: "forty" });
  const roster = page.locator("ps-team-roster");
  await roster.getByLabel("Filter teammates").fill("writer 3");
  // 3, 13, 23, 31, 33, 35, 37 and 39.
  await until(page, () => document.querySelectorAll("ps-team-roster .cards > li").length === 8);
  assert.match(await roster.locator(".count").first().innerText(), /^8 of 40$/);
  await roster.getByLabel("Filter teammates").fill("no such name");
  await roster.getByText("No teammate matches.").waitFor();
  await roster.getByLabel("Filter teammates").fill("");
  await roster.getByLabel("Order of teammates").selectOption("By name");
  const names = () => roster.locator(".cards .card-title").allTextContents();
  await until(page, () => document.querySelectorAll("ps-team-roster .cards > li").length === 40);
  assert.deepEqual((await names()).slice(0, 3), ["Mate 0", "Mate 1", "Mate 2"]);
  assert.deepEqual(page.problems, []);
});
