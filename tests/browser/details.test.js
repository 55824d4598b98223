/**
 * Small things of the screens: dates of events, the mark of a pause on a time axis, the arrow to a decision out of view,
 * the columns of the board, and what stands beside what.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { limit, scrollTo, until, useStage } from "./stage.js";

const HOUR_MS = 3_600_000;

let stage, page;

useStage((opened) => (stage = opened), () => page);

const fact = (type, payload, ids = {}) => ({ type, ...ids, payload });
const said = (id, text) => fact("text.final", { role: "assistant", text }, { messageId: id });
const isReady = () => document.getElementById("stage").dataset.hydration === "whole";

test("events of another day show their date, those of today the time to the millisecond", limit, async () => {
  const now = new Date();
  await stage.publish("dated", [fact("run.started"), said("m", "Hello")]);
  const day = [now.getMonth() + 1, now.getDate()].map((one) => String(one).padStart(2, "0")).join("-");
  for (const [days, expected, pattern] of [[0, "", /^\d\d:\d\d:\d\d\.\d{3}$/], [3, day, /^\d\d:\d\d:\d\d$/]]) {
    page = await stage.blank();
    await page.clock.setSystemTime(now.getTime() + days * 24 * HOUR_MS);
    await stage.look({ run: "dated", panel: "events", full: "1" }, page);
    const time = page.locator("ps-events .rows .event-row .event-time").first();
    await time.waitFor();
    const shown = await time.evaluate((one) => ({ day: one.dataset.day, text: one.textContent, title: one.title, around: ["::before", "::after"].map((part) => getComputedStyle(one, part).content).join(" ") }));
    assert.equal(shown.day, expected);
    assert.match(shown.text, pattern);
    assert.ok(shown.title.includes(String(now.getFullYear())), shown.title);
    // The day is on the row, not only in its data.
    assert.equal(shown.around.includes(day), days > 0, shown.around);
    assert.deepEqual(page.problems, []);
    await page.close();
  }
});

test("a time axis marks where it leaves out a pause, and only there", limit, async () => {
  const began = Date.parse("2026-01-01T08:00:00Z");
  const span = (activityType, activityId, from, to, content) => ({ activityType, activityId, surface: "timeline", openedAt: new Date(began + from).toISOString(), updatedAt: new Date(began + to).toISOString(), endedAt: new Date(began + to).toISOString(), content });
  const call = (id, from) => span("tool-call-progress", id, from, from + 3000, { tool_name: "sh", status: "done", state: "output-available" });
  for (const [run, second, count] of [["paused", 8 * HOUR_MS, 1], ["steady", 4500, 0]]) {
    await stage.publish(run, [fact("run.started"), fact("run.finished")]);
    page = await stage.blank();
    await stage.bring(page, run, [span("run", run, 0, second + 4000, { status: "completed" }), call("a", 1000), call("b", second)]);
    await stage.look({ run, panel: "trace", full: "1" }, page);
    await page.locator("ps-trace .trace-row").nth(2).waitFor();
    await page.locator("ps-trace .trace-head .tick").first().waitFor();
    assert.equal(await page.locator("ps-trace .trace-head .axis-break").count(), count, run);
    assert.deepEqual(page.problems, []);
    await page.close();
  }
});

test("the arrow beside Review points to where the decision is", limit, async () => {
  const long = Array.from({ length: 60 }, (_, n) => said(`m${n}`, `Paragraph ${n} of a long conversation.`));
  const asks = fact("action.required", { kind: "tool_approval", title: "Ship it?", toolName: "ship" }, { actionId: "a" });
  await stage.publish("arrow", [fact("run.started"), ...long.slice(0, 30), asks, ...long.slice(30)]);
  page = await stage.look({ run: "arrow" });
  await until(page, isReady);
  const line = page.locator("ps-conversation .review-hint");
  const turn = () => line.locator("svg").evaluate((arrow) => getComputedStyle(arrow).transform);
  await scrollTo(page, "start", "Paragraph 0 of a long conversation.");
  await line.waitFor();
  await until(page, () => document.querySelector(".review-hint")?.hasAttribute("data-up") === false);
  assert.equal(await turn(), "none", "below: the arrow points down");
  await scrollTo(page, "end", "Paragraph 59 of a long conversation.");
  await until(page, () => document.querySelector(".review-hint")?.hasAttribute("data-up"));
  assert.equal(await turn(), "matrix(-1, 0, 0, -1, 0, 0)", "above: the arrow points up");
  await line.click();
  await page.locator("ps-conversation ps-action .ask").waitFor();
  await until(page, () => document.activeElement?.dataset.control === "approve");
  assert.deepEqual(page.problems, []);
});

test("the board gives its room to the columns that have cards, and cuts no title there", limit, async () => {
  const task = (id, title, status) => fact("task.changed", { runtimeEntity: "work_item", title, status }, { taskId: id });
  await stage.publish("board", [fact("run.started"), task("t1", "Collect the figures of the last quarter", "running"), task("t2", "Write the summary for the board meeting", "running"), task("t3", "Outline", "done")]);
  page = await stage.blank();
  await page.setViewportSize({ width: 1600, height: 1000 });
  await stage.look({ run: "board", panel: "work", full: "1" }, page);
  await page.locator("ps-work-board .card-title").nth(2).waitFor();
  const columns = await page.locator("ps-work-board .column").evaluateAll((all) => all.map((one) => ({ name: one.dataset.column, width: one.clientWidth, cards: one.querySelectorAll(".card-title").length })));
  const [filled, empty] = [columns.filter(({ cards }) => cards > 0), columns.filter(({ cards }) => cards === 0)];
  assert.equal(filled.length, 2);
  assert.ok(Math.min(...filled.map(({ width }) => width)) > 1.5 * Math.max(...empty.map(({ width }) => width)), JSON.stringify(columns));
  assert.deepEqual(await page.locator("ps-work-board .card-title").evaluateAll((all) => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)), []);
  assert.deepEqual(page.problems, []);
});

test("the radio buttons of a form stand beside their labels, and the answers of a question are cards", limit, async () => {
  const schema = { type: "object", properties: { audience: { type: "string", title: "Audience", enum: ["everyone", "developers"] } } };
  await stage.publish("radios", [fact("run.started"), fact("action.required", { kind: "structured_input", message: "For whom?", schema }, { actionId: "a" })]);
  page = await stage.look({ run: "radios" });
  await page.locator("ps-action input[type=radio]").first().waitFor();
  const places = await page.locator("ps-action .choices label").evaluateAll((all) => all.map((label) => [label.querySelector("input"), label.querySelector("span")].map((one) => one.getBoundingClientRect()).map(({ left, top, bottom }) => ({ left, middle: (top + bottom) / 2 }))));
  for (const [button, label] of places) {
    assert.ok(Math.abs(button.middle - label.middle) < 4, "on one line");
    assert.ok(label.left > button.left && label.left - button.left < 40, "beside each other");
  }
  assert.deepEqual(page.problems, []);
});

test("the heading of a view is whole beside a long name of a session", limit, async () => {
  const title = "A session with a very long name that takes all of the room that the header has, and more";
  await stage.publish("named", [fact("session.opened", { title }), fact("run.started")], { sessionId: "named" });
  page = await stage.blank();
  await page.setViewportSize({ width: 1280, height: 800 });
  await stage.look({ session: "named", view: "inbox" }, page);
  await page.locator("#back", { hasText: "A session with" }).waitFor();
  await until(page, () => document.getElementById("title").textContent === "Needs you");
  assert.deepEqual(await page.locator("#title").evaluate((one) => [one.scrollWidth > one.clientWidth, document.documentElement.scrollWidth > innerWidth]), [false, false]);
});
