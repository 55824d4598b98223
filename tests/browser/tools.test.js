/**
 * The tools that look at a run from outside: going through its time, looking behind what is on the screen, and seeing it as others
 * do. In a real browser, before a real server.
 */

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { DEADLINE, Stage, text, until } from "./stage.js";
import { TEAM } from "./fixtures/story.js";

let stage, page;
let runs = 0;

before(async () => (stage = await Stage.open()), { timeout: DEADLINE });
after(() => stage?.close());
afterEach(async () => {
  if (!page) return;
  assert.deepEqual(page.problems, []);
  await page.close();
  page = undefined;
});

async function look(facts = TEAM, { audience = "user" } = {}) {
  const run = `tools-${++runs}`;
  await stage.publish(run, facts);
  page = await stage.show("team.html", { run, audience });
  return run;
}

const travels = () => page.evaluate(() => window.bench.travels);
const slider = () => page.locator("ps-scrubber .slider");
const says = () => text(page.locator("ps-scrubber .says"));
/** What is shown, as REST would say it. */
const shown = () => page.evaluate(() => window.bench.shown().sorted().map(({ activityType, activityId, sequence, content }) => ({ activityType, activityId, sequence, content })));
const byId = (activities) => activities.map(({ activityType, activityId, sequence, content }) => ({ activityType, activityId, sequence, content })).sort((a, b) => (`${a.activityType} ${a.activityId}` < `${b.activityType} ${b.activityId}` ? -1 : 1));
const at = (run, sequence, audience = "user") => stage.read(`/v1/runs/${run}/activities?at=${sequence}&audience=${audience}`).then(({ activities }) => byId(activities));

/* ── time ── */

test("the scrubber shows a run as it was at any event, and then live again", { timeout: 2 * DEADLINE }, async () => {
  const run = await look();
  await until(page, (last) => document.querySelector("ps-scrubber .slider").max === last, String(TEAM.length));
  assert.equal(await says(), `live, event ${TEAM.length}`);
  for (const sequence of [1, 6, 14, 23, TEAM.length]) {
    await slider().fill(String(sequence));
    await until(page, (sequence) => window.bench.at === sequence, sequence);
    assert.deepEqual(byId(await shown()), await at(run, sequence), `at event ${sequence}`);
  }
  await slider().fill("6");
  await until(page, () => document.querySelectorAll("ps-team-roster .card").length === 1);
  // In the past nothing can be asked for.
  assert.equal(await page.locator("ps-team-roster .card-foot").isVisible(), false);
  assert.equal(await page.locator("ps-scrubber").getAttribute("data-mode"), "past");

  // What happens meanwhile changes nothing of what was.
  await stage.publish(run, [{ type: "agent.spawned", agentId: "late", payload: { agentName: "Latecomer" } }]);
  await until(page, (last) => document.querySelector("ps-scrubber .slider").max === last, String(TEAM.length + 1));
  assert.deepEqual(byId(await shown()), await at(run, 6));
  await page.locator("ps-scrubber .live").click();
  await page.locator("ps-team-roster .card", { hasText: "Latecomer" }).waitFor();
  assert.equal((await travels()).at(-1), null);
  assert.equal(await page.locator("ps-team-roster .card-foot").first().isVisible(), true);
});

test("a step goes to the next event that this reader sees, and the keyboard moves the slider", { timeout: DEADLINE }, async () => {
  await look([
    { type: "run.started" },
    { type: "text.delta", messageId: "m", payload: { text: "one " } },
    { type: "diagnostic.changed", payload: { message: "hidden" } },
    { type: "diagnostic.changed", payload: { message: "hidden, too" } },
    { type: "text.delta", messageId: "m", payload: { text: "two" } },
  ]);
  const where = async (button, to) => {
    await page.locator(`ps-scrubber .${button}`).click();
    await until(page, (to) => window.bench.at === to, to);
  };
  await where("back", 2);
  await where("forth", 5);
  await where("back", 2);
  await where("back", 1);
  await where("first", 1);
  await slider().focus();
  await page.keyboard.press("ArrowRight");
  await until(page, () => window.bench.at === 2);
  await until(page, () => /^event 2 of 5, \d\d:\d\d:\d\d\.\d{3}$/.test(document.querySelector("ps-scrubber .slider").getAttribute("aria-valuetext")));
});

test("an answer that comes too late changes nothing", { timeout: DEADLINE }, async () => {
  const run = await look();
  /** The first question is held until the second has been answered. */
  let let_go;
  const held = new Promise((resolve) => (let_go = resolve));
  const asked = [];
  await page.route(/\/activities\?.*at=\d+/, async (route) => {
    const sequence = Number(new URL(route.request().url()).searchParams.get("at"));
    asked.push(sequence);
    if (sequence === 6) await held;
    // The browser gave it up by then, or is told now.
    await route.continue().catch(() => {});
  });
  const given_up = page.waitForEvent("requestfailed", (request) => request.url().includes("at=6"));
  await slider().fill("6");
  await until(page, () => document.querySelector("ps-scrubber").dataset.busy === "true");
  await slider().fill("14");
  await until(page, () => window.bench.at === 14);
  await given_up;
  let_go();
  await slider().fill("20");
  await until(page, () => window.bench.at === 20);
  assert.deepEqual(asked, [6, 14, 20]);
  assert.deepEqual(await travels(), [14, 20]);
  assert.deepEqual(byId(await shown()), await at(run, 20));
});

test("a replay goes by the events' own clocks, shortens long pauses, and ends at the end", { timeout: DEADLINE }, async () => {
  // A day between each and the next: unshortened, even 64 times as fast, this would take hours.
  const facts = Array.from({ length: 8 }, (_, n) => ({ type: "text.delta", messageId: "m", timestamp: `2026-01-0${n + 1}T00:00:00Z`, payload: { text: `day ${n + 1} ` } }));
  const run = await look([{ type: "run.started", timestamp: "2025-12-31T00:00:00Z" }, ...facts]);
  await page.locator("ps-scrubber .speed").selectOption("64");
  await page.locator("ps-scrubber .play").click();
  await until(page, () => document.querySelector("ps-scrubber").dataset.mode === "past" && window.bench.at === 9);
  const seen = await travels();
  assert.equal(seen[0], 1);
  assert.equal(seen.at(-1), 9);
  assert.deepEqual(seen, seen.toSorted((a, b) => a - b));
  assert.deepEqual(byId(await shown()), await at(run, 9));
  assert.equal(await says(), "event 9 of 9, 00:00:00.000");
});

test("a replay can be paused, slowed down, and gone on with", { timeout: DEADLINE }, async () => {
  const facts = Array.from({ length: 40 }, (_, n) => ({ type: "text.delta", messageId: "m", timestamp: new Date(Date.UTC(2026, 0, 1, 0, 0, n)).toISOString(), payload: { text: `${n} ` } }));
  await look([{ type: "run.started", timestamp: "2026-01-01T00:00:00Z" }, ...facts]);
  await page.locator("ps-scrubber .speed").selectOption("16");
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
  assert.ok((await travels()).every((to, n, all) => n === 0 || to >= all[n - 1]), "it never goes back");
});

/* ── behind what is on the screen ── */

const envelopes = () => page.locator("ps-inspector .envelope").evaluateAll((all) => all.map((it) => [Number(it.dataset.sequence), it.querySelector(".card-title").textContent]));
/** Inspects an activity that is there, whatever surface shows it. */
const inspect = async (type, id) => {
  await page.evaluate(async ([type, id]) => {
    const [activity] = window.bench.live.sorted((it) => it.activityType === type && it.activityId === id);
    await document.querySelector("ps-inspector").show(activity);
  }, [type, id]);
};

test("the inspector shows the events that made a thing, and nothing else", { timeout: DEADLINE }, async () => {
  const run = await look(TEAM, { audience: "internal" });
  const made = (wanted) => TEAM.flatMap((fact, at) => (wanted(fact) ? [[at + 1, fact.type]] : []));
  await page.locator("ps-team-roster .card", { hasText: "Researcher" }).locator(".inspect").first().click();
  await until(page, () => document.querySelectorAll("ps-inspector .envelope").length === 1);
  assert.equal(await text(page.locator("ps-inspector h2")), "Teammate: Researcher");
  assert.deepEqual(await envelopes(), made((fact) => fact.agentId === "researcher" && fact.type.startsWith("agent.")));
  const dimensions = await page.locator("ps-inspector .dimensions .chip").evaluateAll((all) => all.map((it) => [it.dataset.dimension, it.lastChild.textContent]));
  assert.deepEqual(dimensions, [["owner", "agent"], ["scope", "agent"], ["phase", "acting"], ["surface", "team roster"], ["audience", "user"], ["persistence", "snapshot"]]);

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
    assert.deepEqual(await envelopes(), made(wanted), `${type} ${id}`);
  }

  // What the raw event says is what the log says.
  await inspect("review", "r1");
  await page.locator("ps-inspector .envelope summary").first().click();
  const raw = JSON.parse(await page.locator("ps-inspector .envelope pre").first().evaluate((pre) => pre.textContent));
  const { events } = await stage.read(`/v1/runs/${run}/events?audience=internal&type=review.requested`);
  assert.deepEqual(raw, events[0]);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.locator("ps-inspector").getByRole("button", { name: /^Copy event/ }).first().click();
  await until(page, () => document.querySelector("ps-inspector .envelope .button").textContent === "Copied");
  assert.deepEqual(JSON.parse(await page.evaluate(() => navigator.clipboard.readText())), events[0]);
});

test("the inspector shows what closed a thing that nobody closed, and what is withheld", { timeout: DEADLINE }, async () => {
  await look([
    { type: "run.started" },
    { type: "tool.started", toolCallId: "done", payload: { toolName: "search" } },
    { type: "tool.result", toolCallId: "done", payload: { output: "for inside alone" } },
    { type: "tool.started", toolCallId: "left", payload: { toolName: "wait" } },
    { type: "run.finished" },
  ]);
  await inspect("tool-call-progress", "left");
  assert.deepEqual(await envelopes(), [[4, "tool.started"], [5, "run.finished"]]);
  await inspect("tool-call-progress", "done");
  assert.deepEqual(await envelopes(), [[2, "tool.started"], [3, "tool.result"]]);
  assert.equal(await page.locator("ps-inspector .dimensions .badge").innerText(), "the rest is withheld from this audience");
  assert.ok(!(await page.locator("ps-inspector").evaluate((it) => it.textContent)).includes("for inside alone"));
});

test("in the past, the inspector shows what had made a thing by then", { timeout: DEADLINE }, async () => {
  await look();
  const versions = TEAM.flatMap((fact, at) => (fact.artifactId === "report" ? [[at + 1, fact.type]] : []));
  await slider().fill(String(versions[1][0]));
  await until(page, (at) => window.bench.at === at, versions[1][0]);
  await page.locator("ps-artifacts .sheet .inspect").click();
  await until(page, () => document.querySelectorAll("ps-inspector .envelope").length === 2);
  assert.deepEqual(await envelopes(), versions.slice(0, 2));
  await page.locator("ps-scrubber .live").click();
  await until(page, () => document.querySelectorAll("ps-artifacts .versions li").length === 2);
  await page.locator("ps-artifacts .sheet .inspect").click();
  await until(page, (all) => document.querySelectorAll("ps-inspector .envelope").length === all, versions.length);
  assert.deepEqual(await envelopes(), versions);
});

test("the events of a long thing come by pages, oldest first", { timeout: DEADLINE }, async () => {
  const words = Array.from({ length: 700 }, (_, n) => ({ type: "text.delta", messageId: n % 2 ? "odd" : "even", payload: { text: `${n} ` } }));
  await look([{ type: "run.started" }, ...words]);
  await inspect("message", "odd");
  const odd = words.flatMap((_, n) => (n % 2 ? [[n + 2, "text.delta"]] : []));
  assert.deepEqual(await envelopes(), odd.slice(0, 50));
  const more = page.locator("ps-inspector > .button");
  for (let pages = 0; await more.isVisible() && pages < 20; pages += 1) {
    const before = (await envelopes()).length;
    await more.click();
    await until(page, (before) => document.querySelectorAll("ps-inspector .envelope").length > before || document.querySelector("ps-inspector > .button").hidden, before);
  }
  assert.deepEqual(await envelopes(), odd);
});

/* ── as others see it ── */

test("a run as user, dashboard and internal side by side, and what is withheld says so", { timeout: DEADLINE }, async () => {
  const run = await look([
    { type: "run.started" },
    { type: "text.delta", messageId: "all", partId: "p", payload: { text: "for everybody" } },
    { type: "text.delta", messageId: "ops", audience: "dashboard", payload: { text: "for the dashboard" } },
    { type: "text.delta", messageId: "own", partId: "p", audience: "internal", payload: { text: "for inside alone" } },
    { type: "tool.started", toolCallId: "c", payload: { toolName: "search" } },
    { type: "tool.result", toolCallId: "c", payload: { output: "hits" } },
  ]);
  await page.evaluate(() => window.bench.compare());
  const heads = () => page.locator("ps-audiences .audience-head").evaluateAll((all) => all.map((it) => [it.dataset.audience, it.dataset.missing]));
  await until(page, () => [...document.querySelectorAll("ps-audiences .audience-head")].every((it) => /^\d+$/.test(it.dataset.missing ?? "")));
  assert.deepEqual(await heads(), [["user", "2"], ["dashboard", "1"], ["internal", "0"]]);
  const row = (id) => page.locator(`ps-audiences .audience-row[data-key$=" ${id}"] .cell`).evaluateAll((cells) => cells.map((cell) => [cell.dataset.shown, cell.querySelector(".text").textContent, cell.querySelector(".withheld").textContent]));
  assert.deepEqual(await row("all"), [["whole", "for everybody", ""], ["whole", "for everybody", ""], ["whole", "for everybody", ""]]);
  assert.deepEqual(await row("ops"), [["withheld", "", "withheld from user"], ["whole", "for the dashboard", ""], ["whole", "for the dashboard", ""]]);
  assert.deepEqual(await row("own"), [["withheld", "", "withheld from user"], ["withheld", "", "withheld from dashboard"], ["whole", "for inside alone", ""]]);
  assert.deepEqual(await row("c"), [["edge", "", "without output"], ["edge", "", "without output"], ["whole", "hits", ""]]);

  // All three are live.
  await stage.publish(run, [{ type: "text.delta", messageId: "all", partId: "p", payload: { text: ", still" } }, { type: "text.delta", messageId: "own", partId: "p", audience: "internal", payload: { text: ", still" } }]);
  await until(page, () => [...document.querySelectorAll('ps-audiences [data-key$=" all"] .text')].every((it) => it.textContent === "for everybody, still"));
  await until(page, () => document.querySelector('ps-audiences [data-key$=" own"] [data-audience="internal"] .text').textContent === "for inside alone, still");
  for (const [n, audience] of ["user", "dashboard", "internal"].entries()) {
    const has = await page.evaluate((n) => document.querySelector("ps-audiences").stores[n].store.sorted().map(({ activityType, activityId, sequence, content }) => ({ activityType, activityId, sequence, content })), n);
    const joined = (activities) => JSON.parse(JSON.stringify(byId(activities)), (name, value) => (name === "text" && Array.isArray(value) ? value.join("") : value));
    const { activities } = await stage.read(`/v1/runs/${run}/activities?audience=${audience}`);
    assert.deepEqual(joined(has), joined(activities), audience);
  }

  // They scroll together, because only one thing scrolls.
  const scrollers = await page.evaluate(() => [...document.querySelectorAll("ps-audiences *")].filter((it) => ["auto", "scroll"].includes(getComputedStyle(it).overflowY)).map((it) => it.className));
  assert.deepEqual(scrollers, ["audience-scroll"]);
});

/* ── in the workbench itself ── */

test("the workbench brings surfaces and tools together", { timeout: 2 * DEADLINE }, async () => {
  const run = `tools-${++runs}`;
  await stage.publish(run, [...TEAM, { type: "text.delta", messageId: "own", audience: "internal", payload: { text: "for inside alone" } }]);
  page = await stage.browser.newPage();
  page.setDefaultTimeout(DEADLINE / 2);
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  await page.goto(`${stage.front.url}/assets/index.html#${new URLSearchParams({ run, audience: "user" })}`);
  // Every panel with something in it says so, before anybody opens it.
  await until(page, () => ["team", "work", "artifacts", "timeline", "diagnostics"].every((name) => document.getElementById(`tab-${name}`).dataset.filled === "true"));

  // A link from a review to its evidence.
  await page.locator("#tab-work").click();
  await page.locator("ps-review-lane .links button").first().click();
  await until(page, () => document.querySelector("ps-timeline .sheet .card-title")?.textContent === "Evidence: 2025.pdf, page 3" && !document.getElementById("panel-timeline").hidden);
  // From the thing to its events.
  await page.locator("ps-timeline .line-row", { hasText: "2025.pdf" }).locator(".inspect").click();
  await until(page, () => document.querySelector("ps-inspector .envelope .card-title")?.textContent === "evidence.changed" && !document.getElementById("panel-events").hidden);
  // Into its past, and back.
  await page.locator("#tab-team").click();
  await page.locator("ps-scrubber .slider").fill("6");
  await until(page, () => document.querySelectorAll("ps-team-roster .card").length === 1);
  await page.locator("ps-scrubber .live").click();
  await until(page, () => document.querySelectorAll("ps-team-roster .card").length === 4);
  // As others see it.
  await page.locator("#compare").click();
  await until(page, () => document.querySelector("ps-audiences .audience-head")?.dataset.missing === "1");
  assert.ok(await page.locator("ps-audiences .audience-scroll").isVisible());
  await page.locator("#compare").click();
  await page.locator("ps-audiences .audience-scroll").waitFor({ state: "detached" });
});
