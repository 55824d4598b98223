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
