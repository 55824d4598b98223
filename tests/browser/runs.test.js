/**
 * The runs: one table over all of them, with filter, order, views, figures, selection and comparison.
 */

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { Stage, axe, limit, text, until } from "./stage.js";

/** Elements of the whole table at most, for any number of runs. */
const ELEMENTS_MAX = 1500;

let stage, page;

const fact = (type, payload, ids) => ({ type, ...ids, payload });
const call = (id, name, input, result) => [fact("tool.started", { toolName: name, input }, { toolCallId: id }), fact(result === "failed" ? "tool.failed" : "tool.result", result === "failed" ? { error: { message: "no space left" } } : { output: "done" }, { toolCallId: id })];
const used = (inputTokens, costUsd) => ({ ...fact("metric.changed", { kind: "llm_call", usage: { inputTokens, outputTokens: 10, costUsd } }), audience: "dashboard" });
const ended = (type, payload = {}) => fact(type, payload);

before(async () => {
  stage = await Stage.open();
  const opened = (title, agentId) => [fact("session.opened", { title }), fact("run.started", {}, { agentId })];
  await stage.publish("r-login", [...opened("Fix the login test", "coder"), ...call("a", "read_file", { path: "a.rs" }), ...call("b", "run_tests", {}), used(1200, 0.05), ended("run.finished")], { sessionId: "s-login" });
  await stage.publish("r-index", [...opened("Upgrade the search index", "coder"), ...call("a", "read_file", { path: "b.rs" }), ...call("b", "run_tests", {}, "failed"), used(90_000, 1.5), ended("run.failed", { error: { message: "The runner ran out of disk space" } })], { sessionId: "s-index" });
  await stage.publish("r-deploy", [...opened("Deploy build 280", "deployer"), fact("action.required", { kind: "tool_approval", message: "Deploy build 280?", risk: "high", toolName: "deploy" }, { actionId: "ask" })], { sessionId: "s-deploy" });
  await stage.publish("r-loose", [fact("run.started", { title: "Nightly benchmark" }, { agentId: "bench" })]);
}, limit);
after(() => stage?.close());
afterEach(() => page?.close());

const rows = () => page.locator(".run-row .run-title a");
const row = (title) => page.locator(".run-row", { hasText: title });
const untilShown = (...titles) => until(page, (titles) => [...document.querySelectorAll(".run-row .run-title a")].map((one) => one.textContent.trim()).join() === titles, titles.join());
const address = () => page.evaluate(() => Object.fromEntries(new URLSearchParams(location.hash.slice(1))));

async function openRuns(hash = {}) {
  // Usage is not for users.
  page = await stage.look({ session: "s-login", view: "runs", audience: "dashboard", ...hash });
  await rows().first().waitFor();
}

test("the table lists all runs with status, reason, agent, tokens and cost, the newest first", limit, async () => {
  await openRuns();
  await untilShown("Nightly benchmark", "Deploy build 280", "Upgrade the search index", "Fix the login test");
  const cells = await row("Upgrade the search index").locator("> *").allInnerTexts();
  assert.deepEqual(cells.slice(1, 4).map((one) => one.trim().split("\n").at(-1)), ["Upgrade the search index", "The runner ran out of disk space", "coder"]);
  assert.equal(await row("Upgrade the search index").getAttribute("data-status"), "failed");
  assert.equal(await row("Deploy build 280").getAttribute("data-status"), "waiting");
  assert.match(await text(row("Deploy build 280").locator(".run-why")), /^Run deploy/);
  assert.deepEqual([await text(row("Upgrade the search index").locator(".run-tokens")), await text(row("Upgrade the search index").locator(".run-cost"))], ["90k", "$1.50"]);
  // A screen reader gets a table.
  const grid = page.getByRole("grid", { name: "Runs" });
  assert.equal(await grid.getAttribute("aria-rowcount"), "5");
  assert.deepEqual((await grid.getByRole("columnheader").allInnerTexts()).slice(1).map((one) => one.trim()), ["Run", "Why it stands out", "Agent", "Started", "Duration", "Tokens", "Cost"]);
  assert.equal(await row("Deploy build 280").getAttribute("aria-rowindex"), "3");
  assert.deepEqual(page.problems, []);
});

test("terms and words filter, chips show them, and the address has them as steps of the history", limit, async () => {
  await openRuns();
  const field = page.getByRole("searchbox", { name: "Filter runs" });
  await page.keyboard.press("/");
  await until(page, () => document.activeElement?.getAttribute("aria-label") === "Filter runs");
  await field.pressSequentially("agent:coder ");
  await untilShown("Upgrade the search index", "Fix the login test");
  assert.equal((await address()).filter, "agent:coder since:24h");
  await field.pressSequentially("disk");
  await untilShown("Upgrade the search index");
  assert.equal(await page.locator(".run-why mark").innerText(), "disk");
  await page.getByRole("button", { name: "Remove the filter Agent: coder" }).click();
  await until(page, () => !document.querySelector(".runs-field .term"));
  await field.fill("");
  await field.fill("cost:>1");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Remove the filter Cost > 1" }).waitFor();
  await untilShown("Upgrade the search index");
  await page.goBack();
  await page.getByRole("button", { name: "Remove the filter Cost > 1" }).waitFor({ state: "detached" });
  assert.equal(await field.inputValue(), "disk");
  await page.goBack();
  await page.getByRole("button", { name: "Remove the filter Agent: coder" }).click();
  await field.fill("");
  await untilShown("Nightly benchmark", "Deploy build 280", "Upgrade the search index", "Fix the login test");
  // The menus have what the server counted.
  await page.locator(".filter-menu", { hasText: "Agent" }).locator("summary").click();
  await until(page, () => document.querySelectorAll(".filter-values label").length === 3);
  await page.getByRole("button", { name: "Only deployer" }).click();
  await untilShown("Deploy build 280");
  assert.deepEqual(page.problems, []);
});

test("a filter that the server rejects says why, and the rows before it stay", limit, async () => {
  await openRuns();
  await page.getByRole("searchbox", { name: "Filter runs" }).fill("cost:much");
  await page.keyboard.press("Enter");
  await page.locator(".runs-problem", { hasText: "cost" }).waitFor();
  assert.equal(await rows().count(), 4);
});

test("a head sorts, views are a filter and an order, and a saved one stays in this browser", limit, async () => {
  await openRuns();
  await page.getByRole("button", { name: "Cost" }).click();
  await untilShown("Upgrade the search index", "Fix the login test", "Nightly benchmark", "Deploy build 280");
  assert.equal(await page.getByRole("columnheader", { name: "Cost" }).getAttribute("aria-sort"), "descending");
  assert.equal((await address()).sort, "-cost");
  await page.getByRole("button", { name: "Cost" }).click();
  await untilShown("Fix the login test", "Upgrade the search index", "Nightly benchmark", "Deploy build 280");
  await page.locator(".run-views").getByRole("button", { name: "Failed" }).click();
  await untilShown("Upgrade the search index");
  await page.getByRole("button", { name: "Save view" }).click();
  await page.getByLabel("Name of the view").fill("Costly failures");
  await page.keyboard.press("Enter");
  await page.locator(".run-views").getByRole("button", { name: /^All/ }).click();
  await until(page, () => document.querySelectorAll(".run-row").length === 4);
  await page.reload();
  await page.getByRole("button", { name: "Costly failures", exact: true }).click();
  await untilShown("Upgrade the search index");
  assert.deepEqual([(await address()).filter, (await address()).sort], ["status:failed since:24h", "cost"]);
  await page.getByRole("button", { name: "Remove the view Costly failures" }).click();
  await page.getByRole("button", { name: "Costly failures", exact: true }).waitFor({ state: "detached" });
  assert.deepEqual(page.problems, []);
});

test("the figures count the runs of the range of time", limit, async () => {
  await openRuns({ filter: "agent:coder since:24h" });
  const figures = page.locator(".runs-figures li");
  await until(page, () => document.querySelector(".runs-figures b")?.textContent === "4");
  assert.deepEqual((await figures.allInnerTexts()).map((one) => one.split("\n").map((line) => line.trim()).filter(Boolean).join(" ")).filter((_, at) => [0, 1, 4, 5].includes(at)), ["4 runs", "1 · 25 % failed", "91.2k tokens", "$1.55 cost"]);
  assert.match(await figures.nth(2).innerText(), /^1\s+needs you, oldest/);
  assert.ok((await figures.first().locator("rect").count()) > 1, "a figure has its course");
});

test("the keyboard goes there, moves, selects, opens, and comes back", limit, async () => {
  page = await stage.look({ session: "s-login" });
  await page.locator('#sessions button[data-session="s-login"]').waitFor();
  await page.locator("#tab-work").focus();
  for (const key of "gr") await page.keyboard.press(key);
  await until(page, () => document.activeElement?.matches(".run-row") && document.activeElement.textContent.includes("Nightly benchmark"));
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("k");
  await page.keyboard.press("End");
  await until(page, () => document.activeElement?.textContent.includes("Fix the login test"));
  assert.equal(await page.locator('.run-row[tabindex="0"]').count(), 1, "the table is one stop");
  await page.keyboard.press("x");
  await page.getByText("2 selected").waitFor();
  assert.deepEqual(await page.locator('.run-row[aria-selected="true"] .run-title a').allTextContents(), ["Deploy build 280", "Fix the login test"]);
  // Escape takes the selection back, and then goes back itself.
  await page.keyboard.press("Escape");
  await page.getByText("2 selected").waitFor({ state: "detached" });
  await page.keyboard.press("Enter");
  await until(page, () => location.hash.includes("run=r-login") && document.querySelector('.view[data-view="runs"]').hidden);
  await page.goBack();
  await until(page, () => !document.querySelector('.view[data-view="runs"]').hidden);
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await until(page, () => document.activeElement?.matches(".run-row"));
  await page.keyboard.press("Escape");
  await until(page, () => document.querySelector('.view[data-view="runs"]').hidden && document.activeElement !== document.body);
  assert.deepEqual(page.problems, []);
});

test("two runs are compared on one axis, with the steps that differ", limit, async () => {
  await openRuns();
  await row("Fix the login test").locator("input").click();
  assert.equal(await page.getByRole("button", { name: "Compare", exact: true }).isDisabled(), true);
  await row("Upgrade the search index").locator("input").click();
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.locator(".pair-row").first().waitFor();
  assert.equal((await address()).pair, "r-login,r-index");
  assert.deepEqual((await page.locator(".pair-row .title").allTextContents()).sort(), ["read_file", "run_tests"]);
  assert.equal(await text(page.locator(".pair-row", { hasText: "run_tests" }).locator(".pair-difference")), "failed in B");
  assert.equal(await page.locator(".pair-row").first().locator("rect").count(), 2, "a bar for each run");
  await page.reload();
  await page.locator(".pair-row", { hasText: "run_tests" }).waitFor();
  await page.goBack();
  await rows().first().waitFor();
  assert.deepEqual(page.problems, []);
});

test("selected runs are retried, archived and exported", limit, async () => {
  await openRuns();
  await row("Upgrade the search index").locator("input").click();
  await page.getByRole("button", { name: "Retry", exact: true }).click();
  const control = await stage.claim("coder", { run: "r-index" });
  assert.equal(control.control, "retry");
  await page.locator(".toast", { hasText: "Asked to retry 1 run." }).waitFor();
  await row("Fix the login test").locator("input").click();
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export", exact: true }).click();
  const chunks = [];
  for await (const chunk of await (await download).createReadStream()) chunks.push(chunk);
  const events = Buffer.concat(chunks).toString().trim().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual([...new Set(events.map(({ runId }) => runId))].sort(), ["r-index", "r-login"]);
  await page.getByRole("button", { name: "Archive", exact: true }).click();
  await page.locator(".toast", { hasText: "Archived 2 sessions." }).waitFor();
  assert.deepEqual((await stage.read("/v1/sessions?archived=true")).sessions.map(({ sessionId }) => sessionId).sort(), ["s-index", "s-login"]);
  for (const id of ["s-index", "s-login"]) await fetch(`${stage.url}/v1/sessions/${id}`, { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify({ archived: false }) });
  assert.deepEqual(page.problems, []);
});

test("a run that begins is announced, and what changes does so in its row", limit, async () => {
  await openRuns();
  await stage.publish("r-late", [fact("run.started", { title: "A late one" }, { agentId: "late" })]);
  await page.getByRole("button", { name: "1 new run" }).click();
  await row("A late one").waitFor();
  await stage.publish("r-late", [fact("run.failed", { error: { message: "too late" } })]);
  await until(page, () => [...document.querySelectorAll('.run-row[data-status="failed"] .run-why')].some((one) => one.textContent === "too late"));
  assert.deepEqual(page.problems, []);
});

test("only the rows near the viewport are in the document, and the last of a hundred thousand can be reached", limit, async (context) => {
  page = await stage.blank();
  // The store would take minutes for as many. The answers have the form of the server's.
  const COUNT = 100_000;
  const runOf = (at) => ({ runId: `many-${at}`, status: "completed", phase: "completed", attempt: 1, epoch: "1", lastSequence: 9, counts: { events: 9, pendingActions: 0 }, title: `Run ${at}`, startedAt: new Date(Date.UTC(2026, 0, 1) - at * 60_000).toISOString(), durationMs: 1000 + at });
  const starts = [];
  await page.route(/\/v1\/runs\?.*sort=/, (route) => {
    const query = new URL(route.request().url()).searchParams;
    const [from, size] = [Number(query.get("cursor") ?? query.get("offset") ?? 0), Number(query.get("limit"))];
    starts.push(from);
    const to = Math.min(COUNT, from + size);
    return route.fulfill({ json: { runs: Array.from({ length: to - from }, (_, at) => runOf(from + at)), nextCursor: to < COUNT ? String(to) : null, total: COUNT, facets: { status: { completed: COUNT }, agent: {}, source: {}, owner: {} }, activation: query.get("activation") } });
  });
  await stage.look({ session: "s-login", view: "runs" }, page);
  await rows().first().waitFor();
  assert.equal(await page.getByRole("grid", { name: "Runs" }).getAttribute("aria-rowcount"), String(COUNT + 1));
  const frames = await page.evaluate(async () => {
    const list = document.querySelector(".runs-table .rows");
    const times = [];
    let last = performance.now();
    for (let at = 0; at < 120; at += 1) {
      list.scrollTop += 700;
      await new Promise(requestAnimationFrame);
      times.push(performance.now() - last);
      last = performance.now();
    }
    return times.sort((a, b) => a - b);
  });
  context.diagnostic(`scrolling 100,000 runs: half of the frames within ${frames[60].toFixed(1)} ms, 95 % within ${frames[114].toFixed(1)} ms`);
  // Row 50,000 is read without those before it, and so is what a person scrolls to from there.
  starts.length = 0;
  await page.evaluate(() => (document.querySelector(".runs-table .rows").scrollTop = 50_000 * 36));
  await row("Run 50005").waitFor();
  await page.evaluate(() => (document.querySelector(".runs-table .rows").scrollTop = 49_500 * 36));
  await row("Run 49500").waitFor();
  assert.ok(starts.length <= 4 && starts.every((from) => from > 49_000), `pages from ${starts}`);
  starts.length = 0;
  await page.evaluate(() => (document.querySelector(".runs-table .rows").scrollTop = 0));
  await page.locator(".run-row").first().focus();
  await page.keyboard.press("End");
  await row("Run 99999").waitFor();
  const elements = await page.locator("ps-runs *").count();
  assert.ok(elements < ELEMENTS_MAX, `${elements} elements`);
  await until(page, () => document.activeElement?.textContent.includes("Run 99999"));
  assert.ok(starts.length <= 2 && starts.every((from) => from > 99_000), `pages from ${starts}`);
});

const headings = () => page.locator('.run-row[data-status="head"]');
const untilGrouped = (...rows) => until(page, (rows) => [...document.querySelectorAll(".run-row")].map((one) => (one.querySelector(".run-title a, b")?.textContent.trim() ?? "…")).join() === rows, rows.join());

test("a menu groups the runs, each group has its number, and closes", limit, async () => {
  await openRuns({ filter: "agent:coder,bench,deployer since:24h" });
  await page.getByRole("button", { name: "Group: none" }).click();
  const menu = page.getByRole("menu", { name: "Group the runs by" });
  await menu.waitFor();
  assert.deepEqual(await menu.getByRole("menuitemradio").evaluateAll((items) => items.map((item) => `${item.textContent.trim()} ${item.ariaChecked}`)), ["None true", "Status false", "Agent false", "Source false", "Owner false"]);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await untilGrouped("coder", "Upgrade the search index", "Fix the login test", "bench", "Nightly benchmark", "deployer", "Deploy build 280");
  assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), "Group: agent", "the focus is where it was");
  assert.equal((await address()).group, "agent");
  assert.match(await text(headings().first()), /^coder\s+2\s+runs$/);
  // By the keyboard: the heading is a row.
  await headings().first().focus();
  await page.keyboard.press("Enter");
  await untilGrouped("coder", "bench", "Nightly benchmark", "deployer", "Deploy build 280");
  assert.equal(await headings().first().locator("button").getAttribute("aria-expanded"), "false");
  await page.keyboard.press("ArrowRight");
  await untilGrouped("coder", "Upgrade the search index", "Fix the login test", "bench", "Nightly benchmark", "deployer", "Deploy build 280");
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByText("1 selected").waitFor();
  await page.keyboard.press("Escape");
  // A filter and an order hold within the groups.
  await page.getByRole("button", { name: "Cost" }).click();
  await page.getByRole("searchbox", { name: "Filter runs" }).fill("-agent:bench");
  await page.keyboard.press("Enter");
  await untilGrouped("coder", "Upgrade the search index", "Fix the login test", "deployer", "Deploy build 280");
  await page.getByRole("button", { name: "Group: agent" }).click();
  await page.getByRole("menuitemradio", { name: "Status" }).click();
  await untilGrouped("Needs you", "Deploy build 280", "Failed", "Upgrade the search index", "Completed", "Fix the login test");
  await page.reload();
  await untilGrouped("Needs you", "Deploy build 280", "Failed", "Upgrade the search index", "Completed", "Fix the login test");
  await page.goBack();
  await untilGrouped("coder", "Upgrade the search index", "Fix the login test", "deployer", "Deploy build 280");
  assert.deepEqual(page.problems, []);
});

test("runs in groups by owner have a group of those without one, and the filter a menu of owners", limit, async () => {
  const publish = (run, owner) => stage.publish(run, [fact("run.started", { title: `Of ${owner}` }, { agentId: "tenant" })], owner === "none" ? {} : { owner, sessionId: `s-of-${owner}` });
  const menu = () => page.locator(".filter-menu summary", { hasText: "Owner" });
  await publish("r-of-none", "none");
  await openRuns({ filter: "agent:tenant" });
  assert.equal(await menu().count(), 0, "no run of the filter has an owner");
  for (const [run, owner] of [["r-of-acme-1", "acme"], ["r-of-acme-2", "acme"], ["r-of-blue", "blue"]]) await publish(run, owner);
  await openRuns({ filter: "agent:tenant", group: "owner" });
  await untilGrouped("acme", "Of acme", "Of acme", "blue", "Of blue", "No owner", "Of none");
  await menu().click();
  await page.getByRole("button", { name: "Only blue" }).click();
  await page.keyboard.press("Escape");
  await untilGrouped("blue", "Of blue");
  assert.deepEqual([(await address()).group, (await address()).filter], ["owner", "agent:tenant owner:blue"]);
  assert.deepEqual(page.problems, []);
});

test("a run that belongs into another group keeps its place until a person asks for it", limit, async () => {
  await stage.publish("r-moves", [fact("run.started", { title: "It moves" }, { agentId: "mover" })]);
  await openRuns({ filter: "agent:mover", group: "status" });
  await untilGrouped("Accepted", "It moves");
  await stage.publish("r-moves", [fact("run.failed", { error: { message: "too late" } })]);
  await page.locator('.run-row[data-status="failed"]').waitFor();
  await untilGrouped("Accepted", "It moves");
  await page.getByRole("button", { name: "1 run new or in another group" }).click();
  await untilGrouped("Failed", "It moves");
  assert.deepEqual(page.problems, []);
});

test("a menu chooses the columns, and a saved view keeps them with the group", limit, async () => {
  await openRuns();
  const columns = async () => (await page.getByRole("grid", { name: "Runs" }).getByRole("columnheader").allInnerTexts()).slice(1).map((one) => one.trim());
  await page.getByRole("button", { name: "Columns" }).click();
  const box = (name) => page.getByRole("menuitemcheckbox", { name, exact: true });
  await box("Agent").click();
  await box("Status").click();
  assert.deepEqual([await box("Agent").getAttribute("aria-checked"), await box("Status").getAttribute("aria-checked")], ["false", "true"], "the menu stays open");
  await box("Tokens").click();
  await page.keyboard.press("Escape");
  assert.deepEqual(await columns(), ["Run", "Why it stands out", "Status", "Started", "Duration", "Cost"]);
  assert.equal(await text(row("Upgrade the search index").locator(".run-status")), "Failed");
  assert.equal(await page.getByRole("grid", { name: "Runs" }).getAttribute("aria-colcount"), "7");
  await page.getByRole("button", { name: "Group: none" }).click();
  await page.getByRole("menuitemradio", { name: "Agent" }).click();
  await headings().first().waitFor();
  await page.getByRole("button", { name: "Save view" }).click();
  await page.getByLabel("Name of the view").fill("Mine");
  await page.keyboard.press("Enter");
  await stage.look({ session: "s-login", view: "runs", audience: "dashboard" }, page);
  await page.reload();
  await rows().first().waitFor();
  assert.deepEqual(await columns(), ["Run", "Why it stands out", "Agent", "Started", "Duration", "Tokens", "Cost"]);
  await page.getByRole("button", { name: "Mine", exact: true }).click();
  await headings().first().waitFor();
  assert.deepEqual(await columns(), ["Run", "Why it stands out", "Status", "Started", "Duration", "Cost"]);
  assert.deepEqual([(await address()).group, (await address()).columns], ["agent", "why,status,started,duration,cost"]);
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByRole("menuitem", { name: "The usual columns" }).click();
  assert.deepEqual(await columns(), ["Run", "Why it stands out", "Agent", "Started", "Duration", "Tokens", "Cost"]);
  assert.deepEqual(page.problems, []);
});

for (const theme of ["light", "dark"]) {
  for (const [width, height] of [[1600, 1000], [1280, 800], [390, 844], [844, 390]]) {
    test(`the table and the comparison fit ${width} × ${height}, and axe finds nothing serious (${theme})`, limit, async () => {
      page = await stage.blank();
      await page.setViewportSize({ width, height });
      await page.emulateMedia({ colorScheme: theme });
      await stage.look({ session: "s-login", view: "runs", filter: "agent:coder since:24h" }, page);
      await rows().first().waitFor();
      await row("Fix the login test").locator("input").click();
      await row("Upgrade the search index").locator("input").click();
      await until(page, () => document.documentElement.scrollWidth <= innerWidth);
      for (const part of [".run-why", ".run-started time"]) assert.ok(await row("Upgrade the search index").locator(part).isVisible(), `${part} is on every size`);
      await page.evaluate(await axe());
      const findSerious = async () => (await page.evaluate(() => window.axe.run("ps-runs", { resultTypes: ["violations"] }))).violations.filter(({ impact }) => ["serious", "critical"].includes(impact)).map(({ id, nodes }) => [id, nodes[0].html]);
      assert.deepEqual(await findSerious(), []);
      await page.getByRole("button", { name: "Compare", exact: true }).click();
      await page.locator(".pair-row").first().waitFor();
      await until(page, () => document.documentElement.scrollWidth <= innerWidth);
      assert.deepEqual(await findSerious(), []);
      assert.deepEqual(page.problems, []);
    });
  }
}
