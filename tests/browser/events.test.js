/**
 * The events: provenance of an item, filters, the detail of an event, permalinks, export, and the live log.
 */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, afterEach, before, test } from "node:test";
import { Stage, limit, text, until } from "./stage.js";
import { TEAM } from "./fixtures/story.js";

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

async function openRun(facts = TEAM, { audience = "user" } = {}) {
  const run = `events-${++runs}`;
  await stage.publish(run, facts);
  page = await stage.show("team.html", { run, audience });
  return run;
}

/** The rows in the document, in order. */
const rows = () => page.locator("ps-events .rows .event-row").evaluateAll((all) => all.map((it) => [Number(it.dataset.sequence), it.querySelector(".event-type").textContent]).sort(([a], [b]) => a - b));
const row = (sequence) => page.locator(`ps-events .rows .event-row[data-sequence="${sequence}"]`);
const count = () => text(page.locator("ps-events .events-count"));
const untilCount = (expected) => until(page, (expected) => document.querySelector("ps-events .events-count")?.textContent.trim().startsWith(expected), expected);
/** Shows the events of any activity of the store. */
const inspect = (type, id) => page.evaluate(async ([type, id]) => {
  const [activity] = window.bench.live.sorted((it) => it.activityType === type && it.activityId === id);
  await document.querySelector("ps-events").show(activity);
}, [type, id]);

/* ── the events of an item ── */

test("an item's events are exactly those that made it", limit, async () => {
  const run = await openRun(TEAM, { audience: "internal" });
  const expectedEvents = (wanted) => TEAM.flatMap((fact, at) => (wanted(fact) ? [[at + 1, fact.type]] : []));
  await page.locator("ps-team-roster .card", { hasText: "Researcher" }).locator(".inspect").first().click();
  await until(page, () => document.querySelectorAll("ps-events .rows .event-row").length === 1);
  assert.equal(await text(page.locator("ps-events .events-item strong")), "Teammate: Researcher");
  assert.deepEqual(await rows(), expectedEvents((fact) => fact.agentId === "researcher" && fact.type.startsWith("agent.")));
  assert.match(await text(page.locator("ps-events .event-detail .facts")), /Opened by\s+event 6/);

  const cases = [
    ["message", "researcher/m1", (fact) => fact.messageId === "m1"],
    ["message", "answer", (fact) => fact.messageId === "answer"],
    ["tool-call-progress", "call-1", (fact) => fact.toolCallId === "call-1"],
    ["action", "ask-1", (fact) => fact.actionId === "ask-1"],
    ["task", "w2", (fact) => fact.taskId === "w2"],
    ["task", "remote-9", (fact) => fact.payload?.remoteTaskId === "remote-9" && fact.type === "task.changed"],
    ["team", "delivery", (fact) => fact.type === "team.changed"],
    ["handoff", "to-writer", (fact) => fact.type === "agent.handoff"],
    ["worker-notification", "n1", (fact) => fact.type === "worker.notification"],
    ["review", "r1", (fact) => fact.type.startsWith("review.")],
    ["artifact", "report", (fact) => fact.artifactId === "report"],
    ["evidence", "source-1", (fact) => fact.evidenceId === "source-1"],
    ["diagnostics", "diagnostics", (fact) => fact.type === "diagnostic.changed"],
    ["metrics", "metrics", (fact) => fact.type === "metric.changed"],
  ];
  for (const [type, id, wanted] of cases) {
    await inspect(type, id);
    await untilCount(String(expectedEvents(wanted).length));
    assert.deepEqual(await rows(), expectedEvents(wanted), `${type} ${id}`);
  }

  // The event on display equals that of the log.
  await inspect("review", "r1");
  await page.locator("ps-events .rows .event-row").first().click();
  const shown = JSON.parse(await page.locator("ps-events .event-detail pre").evaluate((pre) => pre.textContent));
  const { events } = await stage.read(`/v1/runs/${run}/events?audience=internal&type=review.requested`);
  assert.deepEqual(shown, events[0]);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const copy = async (name) => {
    await page.locator("ps-events").getByRole("button", { name, exact: true }).click();
    await until(page, () => /^Copied/.test(document.querySelector("ps-events .event-feedback").textContent.trim()));
    return page.evaluate(() => navigator.clipboard.readText());
  };
  assert.deepEqual(JSON.parse(await copy("Copy as JSON")), events[0]);
  assert.match(await copy("Copy as curl"), new RegExp(`^curl .*/v1/runs/${run}/events\\?after=${events[0].sequence - 1}&before=${events[0].sequence + 1}&audience=internal'$`));

  // All classification members and ids are in the detail.
  await page.locator("#event-tab-refs").click();
  const members = await page.locator("ps-events .event-panel [data-member]").evaluateAll((all) => all.map((it) => [it.dataset.member, it.textContent]));
  const { type, owner, scope, phase, surface, audience, persistence, ...rest } = events[0];
  assert.ok(type && rest.runId === run);
  assert.deepEqual(members.slice(0, 6), [["owner", owner], ["scope", scope], ["phase", phase], ["surface", surface.replaceAll("_", " ")], ["audience", audience], ["persistence", persistence.replaceAll("_", " ")]]);
  assert.ok(members.some(([member, value]) => member === "runId" && value === run));

  // And back to all events.
  await page.locator("ps-events").getByRole("button", { name: "Show all events" }).click();
  await untilCount(`${TEAM.length} events`);
});

test("an item's events include the run's end that closed it, and say what is withheld", limit, async () => {
  await openRun([
    { type: "run.started" },
    { type: "tool.started", toolCallId: "done", payload: { toolName: "search" } },
    { type: "tool.result", toolCallId: "done", payload: { output: "internal only" } },
    { type: "tool.started", toolCallId: "left", payload: { toolName: "wait" } },
    { type: "run.finished" },
  ]);
  await inspect("tool-call-progress", "left");
  await untilCount("2");
  assert.deepEqual(await rows(), [[4, "tool.started"], [5, "run.finished"]]);
  await inspect("tool-call-progress", "done");
  await untilCount("2");
  assert.deepEqual(await rows(), [[2, "tool.started"], [3, "tool.result"]]);
  assert.match(await text(row(3).locator(".event-summary")), /rest withheld$/);
  assert.ok(!(await page.locator("ps-events").evaluate((it) => it.textContent)).includes("internal only"));
});

test("at a past moment only earlier events are shown", limit, async () => {
  await openRun();
  const versions = TEAM.flatMap((fact, at) => (fact.artifactId === "report" ? [[at + 1, fact.type]] : []));
  await untilCount(`${TEAM.length} events`);
  await page.locator("ps-scrubber .slider").fill(String(versions[1][0]));
  await until(page, (at) => window.bench.at === at, versions[1][0]);
  await untilCount(`${versions[1][0]} of ${TEAM.length} events`);
  await page.locator("ps-artifacts .artifact-row").click();
  await page.locator("ps-artifacts .inspect").first().click();
  await untilCount("2 events");
  assert.deepEqual(await rows(), versions.slice(0, 2));
  await page.locator("ps-scrubber .live").click();
  await until(page, () => window.bench.at === null);
  await untilCount(`${TEAM.length} events`);
});

test("the events of a long activity are complete and in order", limit, async () => {
  const words = Array.from({ length: 700 }, (_, n) => ({ type: "text.delta", messageId: n % 2 ? "odd" : "even", payload: { text: `${n} ` } }));
  await openRun([{ type: "run.started" }, ...words]);
  await inspect("message", "odd");
  await untilCount("350 events");
  // The page scrolls by itself: each round trip to it costs more than what it measures.
  const shown = await page.locator("ps-events .rows").evaluate(async (list) => {
    const shown = new Map();
    for (let top = 0; top < list.scrollHeight; top += list.clientHeight) {
      list.scrollTop = top;
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      for (const row of list.querySelectorAll(".event-row")) shown.set(Number(row.getAttribute("aria-posinset")), Number(row.dataset.sequence));
    }
    return [...shown];
  });
  assert.deepEqual(shown.sort(([a], [b]) => a - b).map(([, sequence]) => sequence), words.flatMap((_, n) => (n % 2 ? [n + 2] : [])));
});

/* ── filters ── */

test("the field filters by words and by terms, and menus by value", limit, async () => {
  await openRun(TEAM, { audience: "internal" });
  const all = TEAM.length;
  await untilCount(`${all} events`);
  const { events } = await stage.read(`/v1/runs/events-${runs}/events?audience=internal`);
  const expect = async (filter, wanted) => {
    await page.locator("ps-events input[type=search]").fill(filter);
    const found = events.filter(wanted).length;
    assert.ok(found < all, filter);
    await untilCount(`${found} of ${all} events`);
  };
  await expect("type:artifact.*", ({ type }) => type.startsWith("artifact."));
  await expect("type:artifact.* type:review.* agent:writer", ({ type, agentId }) => /^(artifact|review)\./.test(type) && agentId === "writer");
  await expect("-type:task.changed -owner:agent", ({ type, owner }) => type !== "task.changed" && owner !== "agent");
  await expect("ARCHIVE", (event) => /archive/i.test(JSON.stringify(event)));
  await expect('"slow_archive"', (event) => JSON.stringify(event).includes("slow_archive"));
  await page.locator("ps-events input[type=search]").fill("");
  await untilCount(`${all} events`);

  // A menu hides one value, or shows only one; a chip removes the filter.
  const menu = page.locator("ps-events .filter-menu", { hasText: "Type" });
  await menu.locator("summary").click();
  await menu.getByRole("checkbox", { name: /^task.changed/ }).uncheck();
  const tasks = events.filter(({ type }) => type === "task.changed").length;
  await untilCount(`${all - tasks} of ${all} events`);
  await page.locator("ps-events .term", { hasText: "Type: not task.changed" }).click();
  await untilCount(`${all} events`);
  await menu.locator("summary").click();
  await menu.getByRole("button", { name: "Only task.changed" }).click();
  await untilCount(`${tasks} of ${all} events`);
  await page.keyboard.press("Escape");
  assert.equal(await menu.getAttribute("open"), null);
});

test("the compact form joins consecutive events of one item", limit, async () => {
  const words = (messageId, length) => Array.from({ length }, (_, n) => ({ type: "text.delta", messageId, payload: { text: `${n} ` } }));
  const run = await openRun([{ type: "run.started" }, ...words("a", 5), ...words("b", 3)]);
  await untilCount("9 events");
  await page.locator("ps-events").getByRole("button", { name: "Compact" }).click();
  await until(page, () => document.querySelectorAll("ps-events .rows .event-row").length === 3);
  assert.deepEqual(await rows(), [[1, "run.started"], [2, "text.delta ×5"], [7, "text.delta ×3"]]);
  // A line grows with its events.
  await stage.publish(run, words("b", 4));
  await until(page, () => [...document.querySelectorAll("ps-events .rows .event-type")].some((it) => it.textContent === "text.delta ×7") && document.querySelectorAll("ps-events .rows .event-row").length === 3);
  assert.equal(await row(7).locator(".event-sequence").innerText(), "7–13");
});

/* ── one event ── */

test("keys move through the events, and the detail says what an event changed", limit, async () => {
  await openRun([
    { type: "run.started" },
    { type: "task.changed", taskId: "w", payload: { runtimeEntity: "work_item", title: "Layout", status: "running" } },
    { type: "task.changed", taskId: "w", payload: { status: "done" } },
    { type: "metric.changed", audience: "internal", payload: { name: "tokens" } },
  ]);
  await untilCount("3 events");
  const list = page.locator("ps-events .rows");
  await list.focus();
  const selected = () => page.locator('ps-events .rows [aria-selected="true"]').evaluateAll((all) => all.map((it) => Number(it.dataset.sequence)));
  await page.keyboard.press("j");
  assert.deepEqual(await selected(), [1]);
  await page.keyboard.press("j");
  assert.deepEqual(await selected(), [2]);
  assert.equal(await list.getAttribute("aria-activedescendant"), await row(2).getAttribute("id"));
  const changes = () => page.locator("ps-events .event-changes li").allInnerTexts();
  await page.locator("ps-events .event-changes li").first().waitFor();
  assert.match((await changes()).join("\n"), /opened\s+Task Layout/);
  await page.keyboard.press("j");
  await page.locator("ps-events .event-member", { hasText: "running → done" }).waitFor();
  await page.keyboard.press("k");
  assert.deepEqual(await selected(), [2]);
  await page.keyboard.press("Enter");
  await until(page, () => document.activeElement?.className === "event-panel");
  await page.keyboard.press("Escape");
  assert.deepEqual(await selected(), []);
  assert.equal(await page.locator("ps-events .event-detail").isVisible(), false);
  // `/` leads to the filter.
  await page.keyboard.press("/");
  await until(page, () => document.activeElement?.matches("ps-events input"));
});

test("an address opens an event, and an event of a session's own log shows its changes", limit, async () => {
  const session = `events-session-${++runs}`;
  await stage.publish(`session:${session}`, [{ type: "session.opened", payload: { title: "Before" } }, { type: "session.updated", payload: { title: "After" } }]);
  await stage.publish(`${session}-a`, [{ type: "run.started", sessionId: session }, { type: "text.final", sessionId: session, messageId: "m", payload: { text: "first run" } }]);
  await stage.publish(`${session}-b`, [{ type: "run.started", sessionId: session }, { type: "text.final", sessionId: session, messageId: "m", payload: { text: "second run" } }]);
  page = await stage.look({ session, panel: "events", event: `${session}-a:2` });
  await page.locator("ps-events .event-detail", { hasText: "first run" }).waitFor();
  // All logs of the session, in commit order.
  await untilCount("6 events");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.locator("ps-events .rows .event-row", { hasText: "second run" }).click();
  await page.getByRole("button", { name: "Copy a link to this event" }).click();
  await page.locator("ps-events .event-feedback", { hasText: "Copied the link" }).waitFor();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(new URLSearchParams(new URL(link).hash.slice(1)).get("event"), `${session}-b:2`);
  await page.locator("ps-events .rows .event-row", { hasText: "After" }).click();
  await page.locator("ps-events .event-member", { hasText: "Before → After" }).waitFor();
});

test("new events arrive live, wait during a pause, and the filtered ones are exported", limit, async () => {
  const run = await openRun([{ type: "run.started" }]);
  await untilCount("1 event");
  await stage.publish(run, [{ type: "text.delta", messageId: "m", payload: { text: "one" } }]);
  await untilCount("2 events");
  await page.locator("ps-events").getByRole("button", { name: "Pause" }).click();
  await stage.publish(run, [{ type: "text.delta", messageId: "m", payload: { text: "two" } }]);
  await page.locator("ps-events .events-foot", { hasText: "Paused · 1 new" }).waitFor();
  assert.equal((await rows()).length, 2);
  await page.locator("ps-events").getByRole("button", { name: "Resume" }).click();
  await untilCount("3 events");
  await page.locator("ps-events input[type=search]").fill("type:text.*");
  await untilCount("2 of 3 events");
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator("ps-events").getByRole("button", { name: "Export" }).click()]);
  assert.equal(download.suggestedFilename(), `${run}-events.ndjson`);
  const lines = (await readFile(await download.path(), "utf8")).trim().split("\n").map((line) => JSON.parse(line));
  const { events } = await stage.read(`/v1/runs/${run}/events`);
  assert.deepEqual(lines, events.slice(1));
});

test("a failed request is reported, and Retry loads the events", limit, async () => {
  const run = `events-${++runs}`;
  await stage.publish(run, [{ type: "run.started" }]);
  page = await stage.blank();
  let isBroken = true;
  await page.route(/\/v1\/runs\/[^/]+\/events\?/, (route) => (isBroken ? route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ status: 503, code: "overloaded", detail: "The server is overloaded." }) }) : route.continue()));
  await stage.look({ run, panel: "events" }, page);
  await page.locator("ps-events .events-problem", { hasText: "The server is overloaded." }).waitFor();
  isBroken = false;
  await page.locator("ps-events").getByRole("button", { name: "Retry" }).click();
  await untilCount("1 event");
  // The console reports the failed request.
  page.problems.length = 0;
});

test("a viewer leaves the end of a growing list by the wheel, and it stays where they read", limit, async () => {
  const words = (from, length) => Array.from({ length }, (_, n) => ({ type: "text.delta", messageId: "m", payload: { text: `${from + n} ` } }));
  const run = await openRun([{ type: "run.started" }, ...words(0, 200)]);
  await untilCount("201 events");
  const distance = () => page.locator("ps-events .rows").evaluate((list) => Math.round(list.scrollHeight - list.scrollTop - list.clientHeight));
  await until(page, () => document.querySelector('ps-events .event-row[data-sequence="201"]'));
  await stage.publish(run, words(200, 50));
  await untilCount("251 events");
  await until(page, () => document.querySelector('ps-events .event-row[data-sequence="251"]'));
  assert.ok((await distance()) <= 1);
  await page.locator("ps-events .rows").hover();
  await page.mouse.wheel(0, -800);
  await until(page, () => {
    const list = document.querySelector("ps-events .rows");
    return list.scrollHeight - list.scrollTop - list.clientHeight > 700;
  });
  const before = await distance();
  await stage.publish(run, words(250, 50));
  await untilCount("301 events");
  assert.equal(await distance(), before + 50 * 26);
  await page.locator("ps-events .rows").evaluate((list) => (list.scrollTop = list.scrollHeight));
  await stage.publish(run, words(300, 10));
  await until(page, () => document.querySelector('ps-events .event-row[data-sequence="311"]'));
});
