/**
 * The tools: scrubber and comparison of audiences, in a real browser with a real server.
 */

import assert from "node:assert/strict";
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
  const run = `tools-${++runs}`;
  await stage.publish(run, facts);
  page = await stage.show("team.html", { run, audience });
  return run;
}

const travels = () => page.evaluate(() => window.bench.travels);
const slider = () => page.locator("ps-scrubber .slider");
const positionText = () => text(page.locator("ps-scrubber .says"));
/** Returns the activities on display, as in a REST answer. */
const shownActivities = () => page.evaluate(() => window.bench.shown().sorted().map(({ activityType, activityId, sequence, content }) => ({ activityType, activityId, sequence, content })));
const byId = (activities) => activities.map(({ activityType, activityId, sequence, content }) => ({ activityType, activityId, sequence, content })).sort((a, b) => (`${a.activityType} ${a.activityId}` < `${b.activityType} ${b.activityId}` ? -1 : 1));
const fetchActivitiesAt = (run, sequence, audience = "user") => stage.read(`/v1/runs/${run}/activities?at=${sequence}&audience=${audience}`).then(({ activities }) => byId(activities));

/* ── time ── */

test("the scrubber shows a run at any event, and then live again", limit, async () => {
  const run = await openRun();
  await until(page, (last) => document.querySelector("ps-scrubber .slider").max === last, String(TEAM.length));
  assert.match(await positionText(), new RegExp(`^\\d+:\\d\\d · event ${TEAM.length}$`));
  assert.equal(await text(page.locator("ps-scrubber .live")), "Live");
  for (const sequence of [1, 6, 14, 23, TEAM.length]) {
    await slider().fill(String(sequence), { force: true });
    await until(page, (sequence) => window.bench.at === sequence, sequence);
    assert.deepEqual(byId(await shownActivities()), await fetchActivitiesAt(run, sequence), `at event ${sequence}`);
  }
  await slider().fill("6", { force: true });
  await until(page, () => document.querySelectorAll("ps-team-roster .card").length === 2);
  // A past moment has no controls.
  await page.locator("ps-team-roster .open-row-line").nth(1).click();
  assert.equal(await page.locator("ps-team-roster .card-foot").nth(1).isVisible(), false);
  assert.equal(await page.locator("ps-scrubber").getAttribute("data-mode"), "past");

  // Later facts do not change a past moment.
  await stage.publish(run, [{ type: "agent.spawned", agentId: "late", payload: { agentName: "Latecomer" } }]);
  await until(page, (last) => document.querySelector("ps-scrubber .slider").max === last, String(TEAM.length + 1));
  assert.deepEqual(byId(await shownActivities()), await fetchActivitiesAt(run, 6));
  await page.locator("ps-scrubber .live").click();
  await page.locator("ps-team-roster .card", { hasText: "Latecomer" }).waitFor();
  assert.equal((await travels()).at(-1), null);
  await page.locator("ps-team-roster .open-row-line").nth(1).click();
  assert.equal(await page.locator("ps-team-roster .card-foot").nth(1).isVisible(), true);
});

test("a step goes to the next visible event, and the keyboard moves the slider", limit, async () => {
  await openRun([
    { type: "run.started" },
    { type: "text.delta", messageId: "m", payload: { text: "one " } },
    { type: "diagnostic.changed", payload: { message: "hidden" } },
    { type: "diagnostic.changed", payload: { message: "hidden, too" } },
    { type: "text.delta", messageId: "m", payload: { text: "two" } },
  ]);
  const stepTo = async (button, to) => {
    await page.locator(`ps-scrubber .${button}`).click();
    await until(page, (to) => window.bench.at === to, to);
  };
  await stepTo("back", 2);
  await stepTo("forth", 5);
  await stepTo("back", 2);
  await stepTo("back", 1);
  await slider().focus();
  await page.keyboard.press("Home");
  await until(page, () => window.bench.at === 1);
  await page.keyboard.press("ArrowRight");
  await until(page, () => window.bench.at === 2);
  await until(page, () => /^\d+:\d\d · event 2$/.test(document.querySelector("ps-scrubber .slider").getAttribute("aria-valuetext")));
});

test("a late answer changes nothing", limit, async () => {
  const run = await openRun();
  /** The first request waits until the second is answered. */
  let release;
  const released = new Promise((resolve) => (release = resolve));
  const requestedSequences = [];
  await page.route(/\/activities\?.*at=\d+/, async (route) => {
    const sequence = Number(new URL(route.request().url()).searchParams.get("at"));
    requestedSequences.push(sequence);
    if (sequence === 6) await released;
    // The browser has aborted the request by then.
    await route.continue().catch(() => {});
  });
  const aborted = page.waitForEvent("requestfailed", (request) => request.url().includes("at=6"));
  const first = page.waitForRequest((request) => request.url().includes("at=6"));
  await slider().fill("6", { force: true });
  await first;
  await slider().fill("14", { force: true });
  await until(page, () => window.bench.at === 14);
  await aborted;
  release();
  await slider().fill("20", { force: true });
  await until(page, () => window.bench.at === 20);
  assert.deepEqual(requestedSequences, [6, 14, 20]);
  assert.deepEqual(await travels(), [14, 20]);
  assert.deepEqual(byId(await shownActivities()), await fetchActivitiesAt(run, 20));
});

test("playback follows the events' clocks, shortens long pauses, and stops at the end", limit, async () => {
  // A day between two events: without shortening, 64× speed would still take hours.
  const facts = Array.from({ length: 8 }, (_, n) => ({ type: "text.delta", messageId: "m", timestamp: `2026-01-0${n + 1}T00:00:00Z`, payload: { text: `day ${n + 1} ` } }));
  const run = await openRun([{ type: "run.started", timestamp: "2025-12-31T00:00:00Z" }, ...facts]);
  await page.locator("ps-scrubber .speed").selectOption("64");
  await page.locator("ps-scrubber .play").click();
  await until(page, () => document.querySelector("ps-scrubber").dataset.mode === "past" && window.bench.at === 9);
  const visited = await travels();
  assert.equal(visited[0], 1);
  assert.equal(visited.at(-1), 9);
  assert.deepEqual(visited, visited.toSorted((a, b) => a - b));
  assert.deepEqual(byId(await shownActivities()), await fetchActivitiesAt(run, 9));
  assert.match(await positionText(), /^\d+:\d\d · event 9$/);
});

test("playback can be paused, slowed down and continued", limit, async () => {
  const facts = Array.from({ length: 40 }, (_, n) => ({ type: "text.delta", messageId: "m", timestamp: new Date(Date.UTC(2026, 0, 1, 0, 0, n)).toISOString(), payload: { text: `${n} ` } }));
  await openRun([{ type: "run.started", timestamp: "2026-01-01T00:00:00Z" }, ...facts]);
  await page.locator("ps-scrubber .speed").selectOption("1");
  await page.locator("ps-scrubber .play").click();
  await until(page, () => window.bench.at > 3);
  await page.locator("ps-scrubber .play").click();
  await until(page, () => document.querySelector("ps-scrubber").dataset.mode === "past" && document.querySelector("ps-scrubber").dataset.busy === "false");
  const paused = await page.evaluate(() => window.bench.at);
  assert.ok(paused < 41, `paused at ${paused}`);
  await page.locator("ps-scrubber .speed").selectOption("0.25");
  await page.locator("ps-scrubber .play").click();
  await page.locator("ps-scrubber .speed").selectOption("64");
  await until(page, () => window.bench.at === 41);
  assert.ok((await travels()).every((to, n, all) => n === 0 || to >= all[n - 1]), "playback never goes back");
});

/* ── comparison of audiences ── */

test("the comparison shows a run for each audience and marks withheld activities", limit, async () => {
  const run = await openRun([
    { type: "run.started" },
    { type: "text.delta", messageId: "all", partId: "p", payload: { text: "for all" } },
    { type: "text.delta", messageId: "ops", audience: "dashboard", payload: { text: "for the dashboard" } },
    { type: "text.delta", messageId: "own", partId: "p", audience: "internal", payload: { text: "internal only" } },
    { type: "tool.started", toolCallId: "c", payload: { toolName: "search" } },
    { type: "tool.result", toolCallId: "c", payload: { output: "hits" } },
  ]);
  await page.evaluate(() => window.bench.compare());
  const heads = () => page.locator("ps-audiences .audience-head").evaluateAll((all) => all.map((it) => [it.dataset.audience, it.dataset.missing]));
  await until(page, () => [...document.querySelectorAll("ps-audiences .audience-head")].every((it) => /^\d+$/.test(it.dataset.missing ?? "")));
  assert.deepEqual(await heads(), [["user", "2"], ["dashboard", "1"], ["internal", "0"]]);
  const row = (id) => page.locator(`ps-audiences .audience-row[data-key$=" ${id}"] .cell`).evaluateAll((cells) => cells.map((cell) => [cell.dataset.shown, cell.querySelector(".text").textContent, cell.querySelector(".withheld").textContent]));
  assert.deepEqual(await row("all"), [["whole", "for all", ""], ["whole", "for all", ""], ["whole", "for all", ""]]);
  assert.deepEqual(await row("ops"), [["withheld", "", "withheld from user"], ["whole", "for the dashboard", ""], ["whole", "for the dashboard", ""]]);
  assert.deepEqual(await row("own"), [["withheld", "", "withheld from user"], ["withheld", "", "withheld from dashboard"], ["whole", "internal only", ""]]);
  assert.deepEqual(await row("c"), [["edge", "", "without output"], ["edge", "", "without output"], ["whole", "hits", ""]]);

  // All three columns are live.
  await stage.publish(run, [{ type: "text.delta", messageId: "all", partId: "p", payload: { text: ", still" } }, { type: "text.delta", messageId: "own", partId: "p", audience: "internal", payload: { text: ", still" } }]);
  await until(page, () => [...document.querySelectorAll('ps-audiences [data-key$=" all"] .text')].every((it) => it.textContent === "for all, still"));
  await until(page, () => document.querySelector('ps-audiences [data-key$=" own"] [data-audience="internal"] .text').textContent === "internal only, still");
  for (const [n, audience] of ["user", "dashboard", "internal"].entries()) {
    const actual = await page.evaluate((n) => document.querySelector("ps-audiences").stores[n].store.sorted().map(({ activityType, activityId, sequence, content }) => ({ activityType, activityId, sequence, content })), n);
    const joinTexts = (activities) => JSON.parse(JSON.stringify(byId(activities)), (name, value) => (name === "text" && Array.isArray(value) ? value.join("") : value));
    const { activities } = await stage.read(`/v1/runs/${run}/activities?audience=${audience}`);
    assert.deepEqual(joinTexts(actual), joinTexts(activities), audience);
  }

  // The columns scroll together, in one scroll container.
  const scrollers = await page.evaluate(() => [...document.querySelectorAll("ps-audiences *")].filter((it) => ["auto", "scroll"].includes(getComputedStyle(it).overflowY)).map((it) => it.className));
  assert.deepEqual(scrollers, ["audience-scroll"]);
});

test("the comparison and the scrubber cover all runs of a session in commit order", limit, async () => {
  const session = `whole-${++runs}`;
  const said = (text, messageId, more = {}) => ({ type: "text.final", messageId, payload: { text }, ...more });
  await stage.publish(`${session}-1`, [{ type: "run.started", sessionId: session }, said("first", "m1")]);
  await stage.publish(`${session}-2`, [{ type: "run.started", sessionId: session }, said("second", "m2"), said("secret", "m3", { audience: "internal" })]);
  await stage.publish(`${session}-1`, [said("third", "m4")]);
  page = await stage.look({ session });
  const shown = () => page.evaluate(() => document.querySelector("ps-conversation").view.store.sorted(({ activityType }) => activityType === "message").map(({ activityId }) => activityId).sort().join());
  await until(page, () => Number(document.querySelector("ps-scrubber .slider")?.max) >= 5);
  for (const [at, messages] of [[2, "m1"], [4, "m1,m2"], [5, "m1,m2,m4"]]) {
    await slider().fill(String(at), { force: true });
    await until(page, (at) => document.querySelector("ps-conversation").view.at === at, at);
    assert.equal(await shown(), messages, `at event ${at}`);
  }
  await page.keyboard.press("l");
  await until(page, () => document.querySelector("ps-conversation").view.isLive);

  await page.locator("#compare").click();
  await until(page, () => [...document.querySelectorAll("ps-audiences .audience-head")].map((it) => it.dataset.missing).join() === "1,1,0");
  const order = await page.locator("ps-audiences .audience-row").evaluateAll((all) => all.map((row) => row.dataset.key).filter((key) => key.includes(" message ")).map((key) => key.split(" ").at(-1)));
  assert.deepEqual(order, ["m1", "m2", "m3", "m4"]);
});

/* ── in the workbench ── */

test("the workbench connects surfaces and tools", limit, async () => {
  const run = `tools-${++runs}`;
  await stage.publish(run, [...TEAM, { type: "text.delta", messageId: "own", audience: "internal", payload: { text: "internal only" } }]);
  page = await stage.browser.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  await page.goto(`${stage.front.url}/assets/index.html#${new URLSearchParams({ run, audience: "user" })}`);
  // The tab of every filled panel is marked before it is opened.
  await until(page, () => ["team", "work", "artifacts", "diagnostics"].every((name) => document.getElementById(`tab-${name}`).dataset.filled === "true"));

  // From a review to its evidence.
  await page.locator("#tab-work").click();
  await page.locator("ps-review-lane .open-row-line").first().click();
  await page.locator("ps-review-lane .links button").first().click();
  await until(page, () => document.querySelector("ps-trace .trace-detail .card-title")?.textContent === "Evidence: 2025.pdf, page 3" && !document.getElementById("panel-trace").hidden);
  // From the evidence to its events.
  await page.locator("ps-trace .trace-detail").getByRole("button", { name: "Show events" }).click();
  await until(page, () => document.querySelector("ps-events .rows .event-type")?.textContent === "evidence.changed" && !document.getElementById("panel-events").hidden);
  // To a past moment and back.
  await page.locator("#tab-team").click();
  await page.locator("ps-scrubber .slider").fill("6", { force: true });
  await until(page, () => document.querySelectorAll("ps-team-roster .card").length === 2);
  await page.locator("ps-scrubber .live").click();
  await until(page, () => document.querySelectorAll("ps-team-roster .card").length === 5);
  // Compare audiences.
  await page.locator("#compare").click();
  await until(page, () => document.querySelector("ps-audiences .audience-head")?.dataset.missing === "1");
  assert.ok(await page.locator("ps-audiences .audience-scroll").isVisible());
  await page.locator("#compare").click();
  await page.locator("ps-audiences .audience-scroll").waitFor({ state: "detached" });
});
