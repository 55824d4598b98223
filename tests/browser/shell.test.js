/**
 * The shell: address, panels, playback, and access by keyboard and on narrow screens.
 */

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { TEAM } from "./fixtures/story.js";
import { Stage, axe, limit, text, until, visibleTabs } from "./stage.js";

let stage, page;

before(async () => {
  stage = await Stage.open();
  // The team's story, and activities that only a conversation has.
  await stage.publish("story", [
    ...TEAM,
    { type: "context.changed", payload: { budget: { usedTokens: 5200, maxTokens: 200_000 }, refs: ["notes.md"], missing: ["last year's figures"] } },
    { type: "context.compaction.started", payload: { compactionId: "k1", preTokens: 180_000 } },
    { type: "queue.changed", sessionId: "lead", payload: { queuedTurnCount: 1, queueReason: "a turn is running", items: [{ turnId: "t2", text: "and the outlook" }] } },
    { type: "reasoning.delta", messageId: "own", partId: "r", payload: { text: "Who writes it?" } },
    { type: "tool.started", toolCallId: "own-1", payload: { toolName: "broken", input: { a: 1 } } },
    { type: "tool.failed", toolCallId: "own-1", payload: { error: { message: "it is broken" } } },
    { type: "action.required", actionId: "ask-2", payload: { kind: "structured_input", message: "Which currency?", schema: { type: "object", properties: { currency: { enum: ["EUR", "USD"] }, note: { type: "string" } } } } },
  ]);
}, limit);
after(() => stage?.close());
afterEach(() => page?.close());

const finalText = (words, messageId) => ({ type: "text.final", messageId, payload: { text: words } });
/** Opens the workbench with the whole story. */
const openSession = async (more = {}) => {
  page = await stage.look({ session: "lead", ...more });
  await until(page, () => document.getElementById("stage").dataset.hydration === "whole" && document.getElementById("tab-team").dataset.filled === "true");
};

for (const theme of ["light", "dark"]) {
  for (const width of [1440, 360]) {
    test(`axe-core has no serious finding in the workbench (${theme}, ${width} px)`, limit, async () => {
      const rules = await axe();
      await openSession();
      await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
      await page.setViewportSize({ width, height: 900 });
      // On a narrow screen the panels are behind a button.
      if (width < 1100) await page.locator("#open-pane").click();
      const check = async (what) => {
        await page.evaluate(rules);
        const violations = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes.slice(0, 4).map(({ target, any }) => [target.join(" "), any[0]?.message]) })));
        const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
        assert.deepEqual(serious, [], JSON.stringify([what, serious], null, 1));
      };
      for (const tab of await visibleTabs(page)) {
        await tab.click();
        await check(await tab.textContent());
      }
      if (width < 1100) {
        await page.locator("#close-pane").click();
        await page.locator("#open-extras").click();
        await check("the controls of the header");
        await page.getByRole("button", { name: "Playback" }).click();
      }
      await page.getByRole("button", { name: "Ask a question" }).last().click();
      await check("a question, and the playback");
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing exceeds the screen");
    });
  }
}

test("at 360 pixels nothing exceeds the screen, and one button reaches the panels", limit, async () => {
  page = await stage.blank();
  await page.setViewportSize({ width: 360, height: 740 });
  await stage.look({ session: "lead" }, page);
  await until(page, () => document.querySelector("ps-conversation .action"));
  assert.ok(await page.locator("ps-composer textarea").isVisible());
  assert.ok(!(await page.locator("#side").isVisible()));
  await page.locator("#open-pane").click();
  for (const tab of await visibleTabs(page)) {
    await tab.click();
    assert.equal(await tab.getAttribute("aria-selected"), "true");
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360, await tab.textContent());
  }
  assert.ok(await page.evaluate(() => document.getElementById("stage").inert));
  await page.locator("#close-pane").click();
  assert.ok(await page.evaluate(() => !document.getElementById("stage").inert && document.getElementById("side").hidden));
  const box = await page.locator("ps-composer .submit").boundingBox();
  assert.ok(box && box.y + box.height <= 740, "a message can be sent without scrolling");
});

test("arrow keys move through the tabs, and the skip link leads to the conversation", limit, async () => {
  await openSession();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await until(page, () => document.activeElement?.id === "stage");
  await page.locator("#tab-team").focus();
  await page.keyboard.press("ArrowRight");
  await until(page, () => document.activeElement?.id === "tab-work" && !document.getElementById("panel-work").hidden && document.getElementById("panel-team").hidden);
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  await until(page, () => document.activeElement === [...document.querySelectorAll("#panels [role=tab]")].findLast((tab) => !tab.hidden));
});

test("the address names session, audience and panel, and restores them", limit, async () => {
  await openSession({ audience: "internal", panel: "trace" });
  assert.equal(await page.locator("#panel-trace").isVisible(), true);
  assert.equal(await page.locator('#audience input[value="internal"]').isChecked(), true);
  await page.locator("#tab-artifacts").click();
  await until(page, () => location.hash === "#session=lead&audience=internal&panel=artifacts");
  await page.evaluate(() => (location.hash = "#run=story&audience=user"));
  await until(page, () => document.getElementById("title").textContent !== "" && location.hash.startsWith("#run=story") && document.querySelector('#audience input[value="user"]').checked);
});

test("all surfaces show a past moment, say so, and have no controls until live", limit, async () => {
  await stage.publish("past", [{ type: "run.started" }, finalText("One.", "a"), { type: "action.required", actionId: "ask", payload: { kind: "tool_approval", message: "May I?" } }, finalText("Two.", "b")]);
  page = await stage.look({ run: "past", at: "3" });
  await until(page, () => document.getElementById("past").textContent.startsWith("State at event 3") && document.querySelector("ps-action"));
  assert.equal(await page.locator("ps-scrubber .slider").inputValue(), "3", "the scrubber is at the same event");
  assert.deepEqual(await page.locator(".speech .body").allTextContents(), ["One."]);
  assert.equal(await page.locator("ps-action button[data-control]").count(), 0);
  assert.equal(await text(page.locator("ps-action .told")), "You are viewing a past state. Go back to live to answer.");
  assert.ok(await page.locator("ps-composer textarea").isDisabled());
  await page.getByRole("button", { name: "Back to live", exact: true }).click();
  await until(page, () => document.querySelectorAll(".speech").length === 2 && document.querySelector("ps-action button[data-control=approve]"));
  assert.ok(await page.locator("#past").isHidden());
  // The scrubber reaches past moments, too. Live facts continue meanwhile.
  await page.locator("ps-scrubber .slider").press("Home");
  await until(page, () => document.getElementById("stage").dataset.past === "true" && document.querySelectorAll(".speech").length === 0);
  await stage.publish("past", [finalText("Three.", "c")]);
  await page.locator("ps-scrubber .live").click();
  await until(page, () => [...document.querySelectorAll(".speech .body")].map((one) => one.textContent).join(" ") === "One. Two. Three.");
  assert.deepEqual(page.problems, []);
});

test("the inspect button of an activity shows its envelopes", limit, async () => {
  await openSession();
  await page.locator("ps-conversation .action .inspect").first().click();
  await page.locator("ps-events .rows", { hasText: "action.required" }).waitFor();
  assert.equal(await page.locator("#tab-events").getAttribute("aria-selected"), "true");
});

test("the comparison shows each audience side by side", limit, async () => {
  await openSession();
  await page.getByRole("button", { name: "Compare audiences" }).click();
  await page.locator("ps-audiences", { hasText: "internal" }).waitFor();
  assert.equal(await page.locator("#compare").getAttribute("aria-pressed"), "true");
  await page.getByRole("button", { name: "Compare audiences" }).click();
  await until(page, () => document.getElementById("beside").hidden && !document.getElementById("stage").inert);
});

test("a full output is loaded on demand, by chunk", limit, async () => {
  const output = "0123456789".repeat(60_000);
  await stage.publish("large", [{ type: "run.started" }, { type: "tool.started", toolCallId: "c", payload: { toolName: "dump" } }, { type: "tool.result", toolCallId: "c", audience: "user", payload: { output: output } }]);
  page = await stage.look({ run: "large" });
  // The process line opens to its steps, and the step to its output.
  await until(page, () => {
    document.querySelector('ps-inline-process .summary[aria-expanded="false"]')?.click();
    return document.querySelector("ps-tool .detail") !== null;
  });
  await page.getByRole("button", { name: "Show full output" }).click();
  await until(page, () => document.getElementById("detail-told").textContent === "262,144 of 600,000 bytes");
  await page.getByRole("button", { name: "Show more" }).click();
  await page.getByRole("button", { name: "Show more" }).click();
  await until(page, () => document.getElementById("detail-told").textContent === "600,000 of 600,000 bytes");
  assert.equal(await page.locator("#detail-text").textContent(), output);
  await page.keyboard.press("Escape");
  await until(page, () => !document.getElementById("detail").open);
  assert.deepEqual(page.problems, []);
});

test("the theme follows the system until the viewer chooses", limit, async () => {
  await openSession();
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMedia({ colorScheme: "light" });
  const light = await ground();
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await ground();
  assert.notEqual(light, dark);
  await page.locator("#theme").click();
  assert.equal(await ground(), light);
  assert.equal(await page.locator("#theme").getAttribute("aria-label"), "Theme: light");
  await page.evaluate(() => localStorage.clear());
});

test("the dock belongs to the open session: one without a run has nothing to play, and nothing of the one before", limit, async () => {
  await stage.publish("dock-run", [{ type: "run.started" }, { type: "text.final", messageId: "m", payload: { text: "Of the first session." } }], { sessionId: "dock-first" });
  await stage.publish("session:dock-second", [{ type: "session.opened", payload: { title: "Second" } }]);
  page = await stage.look({ session: "dock-first" });
  await until(page, () => Number(document.querySelector("ps-scrubber .slider")?.max) >= 2);
  await page.locator("ps-scrubber .back").click();
  await until(page, () => document.querySelector("ps-scrubber").dataset.mode === "past");
  await page.evaluate(() => (location.hash = "#session=dock-second"));
  await until(page, () => document.title.includes("Second") && document.getElementById("stage").dataset.hydration === "whole");
  assert.equal(await page.locator("ps-scrubber").isVisible(), false);
  assert.equal(await page.locator("#past").isVisible(), false, "no moment of the other session is on display");
  await page.keyboard.press(",");
  await page.keyboard.press(".");
  assert.doesNotMatch(await page.locator("ps-conversation").innerText(), /first session/);
  assert.doesNotMatch(page.url(), /at=/);
  // Its first run brings the dock back, with its own events.
  await stage.publish("dock-own", [{ type: "run.started" }], { sessionId: "dock-second" });
  await until(page, () => document.querySelector("ps-scrubber").checkVisibility() && Number(document.querySelector("ps-scrubber .slider").max) >= 1);
  assert.equal(await page.locator("ps-scrubber").getAttribute("data-mode"), "live");
  assert.deepEqual(page.problems, []);
});

test("a session whose stream is refused shows no dock of the one before", limit, async () => {
  await stage.publish("refused-run", [{ type: "run.started" }], { sessionId: "refused-first" });
  page = await stage.look({ session: "refused-first" });
  await until(page, () => document.querySelector("ps-scrubber")?.checkVisibility());
  const refusal = { status: 403, contentType: "application/problem+json", body: JSON.stringify({ type: "about:blank", title: "Forbidden", status: 403, code: "forbidden", detail: "The token does not cover this session." }) };
  await page.route("**/v1/sessions/refused-second**", (route) => route.fulfill(refusal));
  await page.evaluate(() => (location.hash = "#session=refused-second"));
  await until(page, () => document.getElementById("connection").dataset.kind === "refused");
  assert.equal(await page.locator("ps-scrubber").isVisible(), false);
  await page.keyboard.press(",");
  assert.doesNotMatch(page.url(), /at=/);
});

test("a panel in full width stays when the window becomes narrow, and when it becomes wide again", limit, async () => {
  await openSession();
  await page.setViewportSize({ width: 1400, height: 900 });
  await page.locator("#expand").click();
  for (const width of [820, 390, 1400]) {
    await page.setViewportSize({ width, height: 900 });
    await until(page, () => document.getElementById("side").checkVisibility() && document.querySelector('[role="tabpanel"]:not([hidden])')?.getBoundingClientRect().width > innerWidth / 2);
  }
  assert.deepEqual(page.problems, []);
});
