/**
 * The frame: the rail, the inbox, the palette, keys, notifications, the size of panes, the first use, a phone.
 */

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Stage, axe, limit, text, until } from "./stage.js";

let stage, page;

const fact = (type, payload, ids) => ({ type, ...ids, payload });
const approval = (actionId, message) => fact("action.required", { kind: "tool_approval", message, risk: "high", toolName: "deploy" }, { actionId });

before(async () => {
  stage = await Stage.open();
}, limit);
after(() => stage?.close());
afterEach(() => page?.close());

/** Starts another server, which is closed after the test. */
async function another(context) {
  const other = await Stage.open();
  context.after(() => other.close());
  return other;
}

/** Waits until the rail lists a session. */
const listed = (id) => page.locator(`#sessions button[data-session="${id}"]`).waitFor();

async function publishSessions() {
  await stage.publish("r-keys", [fact("session.opened", { title: "Rotate the keys" }), fact("run.started", {}, { agentId: "operator" }), approval("ask", "May I deploy?")], { sessionId: "keys" });
  await stage.publish("r-bench", [fact("session.opened", { title: "Nightly benchmark" }), fact("run.started"), fact("run.failed", { error: { message: "no space" } })], { sessionId: "bench" });
  await stage.publish("r-index", [fact("session.opened", { title: "Search index" }), fact("run.started")], { sessionId: "index" });
}

test("the rail groups, filters and finds sessions", limit, async () => {
  await publishSessions();
  page = await stage.look({ session: "index" });
  await listed("keys");
  assert.deepEqual((await page.locator("#sessions .rail-group span:first-child").allTextContents()), ["Needs you", "Running", "Earlier today"]);
  await until(page, () => document.querySelector('#sessions button[data-session="keys"] .session-line')?.textContent.includes("deploy"));
  const untilShown = (...expected) => until(page, (expected) => [...document.querySelectorAll("#sessions .session .name")].map((one) => one.textContent.trim()).join() === expected, expected.join());
  for (const [filter, shown] of [["Failed", "Nightly benchmark"], ["Needs you", "Rotate the keys"], ["Running", "Search index"]]) {
    await page.locator("#sessions .filter", { hasText: filter }).click();
    await untilShown(shown);
  }
  await page.locator("#sessions .filter", { hasText: "All" }).click();
  await page.locator("#sessions input").fill("benchmark");
  await untilShown("Nightly benchmark");
  await page.locator("#sessions input").fill("nothing at all");
  await page.getByRole("button", { name: "Show all" }).click();
  await listed("keys");
  // The archive is behind a filter.
  await page.locator('#sessions button[data-session="bench"]').hover();
  await page.getByRole("button", { name: "Archive Nightly benchmark" }).click();
  await until(page, () => document.querySelector('#sessions button[data-session="bench"]') === null);
  await page.getByRole("button", { name: "Archived", exact: true }).click();
  await listed("bench");
  await page.locator('#sessions button[data-session="bench"]').hover();
  await page.getByRole("button", { name: "Unarchive Nightly benchmark" }).click();
  assert.deepEqual(page.problems, []);
});

test("the rail says that the server is unreachable, and reads again on request", limit, async () => {
  await publishSessions();
  page = await stage.blank();
  const sockets = [];
  let isReachable = true;
  await page.routeWebSocket(/\/v1\/ws/, (socket) => {
    if (!isReachable) return void socket.close();
    sockets.push(socket);
    socket.connectToServer();
  });
  await stage.look({ session: "index" }, page);
  await listed("keys");
  isReachable = false;
  for (const socket of sockets) await socket.close();
  await page.locator("#sessions .rail-note", { hasText: "The server is unreachable. Check that it runs." }).waitFor();
  assert.ok(await page.locator('#sessions button[data-session="keys"]').isVisible(), "what is known stays");
  isReachable = true;
  await page.locator("#sessions").getByRole("button", { name: "Retry" }).click();
  await until(page, () => document.querySelector("#sessions .rail-note") === null);
});

test("the inbox decides in place, over all sessions", limit, async () => {
  await stage.publish("r-inbox-1", [fact("session.opened", { title: "First" }), fact("run.started", {}, { agentId: "inbox-1" }), approval("one", "Delete branch main?")], { sessionId: "inbox-1" });
  await stage.publish("r-inbox-2", [fact("session.opened", { title: "Second" }), fact("run.started", {}, { agentId: "inbox-2" }), fact("action.required", { kind: "structured_input", message: "Which currency?", schema: { type: "object", properties: { currency: { enum: ["EUR", "USD"] } } } }, { actionId: "two" })], { sessionId: "inbox-2" });
  page = await stage.look({ session: "inbox-1" });
  await page.locator("#needs-you").click();
  await page.locator(".inbox-row", { hasText: "Second" }).click();
  await page.locator("ps-inbox ps-action", { hasText: "Which currency?" }).waitFor();
  await page.locator(".inbox-row", { hasText: "First" }).click();
  await page.locator("ps-inbox ps-action").getByRole("button", { name: /Approve|Run/ }).first().click();
  const control = await stage.claim("inbox-1", { run: "r-inbox-1" });
  assert.equal(control.control, "approve");
  await stage.publish("r-inbox-1", [fact("action.resolved", { outcome: "approved" }, { actionId: "one" })], { sessionId: "inbox-1" });
  await until(page, () => ![...document.querySelectorAll('.inbox-row .glyph[data-status="waiting"]')].some((one) => one.closest("button").textContent.includes("First")));
  // j and k go through the decisions; Escape goes back to the conversation.
  await page.locator("#title").click();
  await page.keyboard.press("j");
  await until(page, () => document.activeElement?.classList.contains("inbox-row"));
  await page.keyboard.press("Escape");
  await until(page, () => document.getElementById("view-inbox").hidden && !document.getElementById("stage").inert);
  assert.deepEqual(page.problems, []);
});

test("title, icon and notification tell of a new decision", limit, async (context) => {
  const other = await another(context);
  page = await other.blank();
  await page.addInitScript(() => {
    window.told = [];
    window.Notification = class {
      static permission = "default";
      static async requestPermission() {
        return (this.permission = "granted");
      }
      constructor(title, options) {
        window.told.push([title, options.body]);
      }
      close() {}
    };
    Document.prototype.hasFocus = () => false;
  });
  await other.publish("r", [fact("session.opened", { title: "Release" }), fact("run.started")], { sessionId: "release" });
  await other.look({ session: "release", view: "inbox" }, page);
  await page.getByRole("button", { name: "Allow notifications" }).click();
  await until(page, () => document.getElementById("icon").href.startsWith("data:image/png"));
  const icon = await page.locator("#icon").getAttribute("href");
  await other.publish("r", [approval("ask", "Delete branch main?")], { sessionId: "release" });
  await until(page, () => document.title.startsWith("(1) ") && window.told.length === 1);
  assert.equal((await page.evaluate(() => window.told))[0][1], "Release");
  await until(page, (known) => document.getElementById("icon").href !== known, icon);
  await other.publish("r", [fact("action.resolved", { outcome: "approved" }, { actionId: "ask" })], { sessionId: "release" });
  await until(page, () => !document.title.startsWith("(") && document.getElementById("needs-you").hidden);
  assert.deepEqual(page.problems, []);
});

test("the palette jumps to a session, an event and an action", limit, async () => {
  await publishSessions();
  page = await stage.look({ session: "index" });
  await listed("keys");
  await page.keyboard.press("Control+k");
  await page.locator(".palette input").fill("rotate");
  await page.locator(".palette-row", { hasText: "Rotate the keys" }).first().waitFor();
  await page.keyboard.press("Enter");
  await until(page, () => location.hash.includes("session=keys") && document.querySelector(".palette") === null);
  await page.keyboard.press("Control+k");
  await page.locator(".palette input").fill("action.required");
  await page.locator(".palette-row", { hasText: "action.required" }).first().click();
  await until(page, () => document.getElementById("tab-events").getAttribute("aria-selected") === "true");
  await page.keyboard.press("Control+k");
  await page.locator(".palette input").fill("keyboard shortcuts");
  await page.keyboard.press("Enter");
  await page.locator("dialog.keys", { hasText: "Focus Approve" }).waitFor();
  await page.keyboard.press("Escape");
  await until(page, () => document.querySelector("dialog.keys") === null);
  assert.deepEqual(page.problems, []);
});

test("a key pressed as soon as the page has loaded counts, over a slow network too", limit, async () => {
  await publishSessions();
  page = await stage.blank();
  await page.route(/\/keys\b/, async (route) => {
    await sleep(300);
    await route.continue();
  });
  await stage.look({ session: "index" }, page);
  await page.keyboard.press("Control+k");
  await page.locator(".palette input").waitFor();
  assert.deepEqual(page.problems, []);
});

test("keys reach the inbox, the trace and the events, and hide rail and pane", limit, async () => {
  await publishSessions();
  page = await stage.look({ session: "keys" });
  await listed("keys");
  await page.locator("#title").click();
  // The focus goes along.
  for (const [keys, isThere] of [["gi", () => document.activeElement?.closest("#view-inbox")], ["ge", () => document.activeElement?.closest("#panel-events") && document.getElementById("view-inbox").hidden], ["gt", () => document.activeElement?.closest("#panel-trace")]]) {
    for (const key of keys) await page.keyboard.press(key);
    await until(page, isThere);
  }
  await page.keyboard.press("]");
  await until(page, () => document.getElementById("side").hidden);
  await page.keyboard.press("]");
  await page.keyboard.press("[");
  await until(page, () => !document.getElementById("side").hidden && !document.getElementById("rail").checkVisibility());
  await page.keyboard.press("[");
  await page.keyboard.press("j");
  await until(page, () => document.activeElement?.classList.contains("session"));
});

test("Escape goes back to where a person was before a key took them elsewhere", limit, async () => {
  await publishSessions();
  page = await stage.look({ session: "keys" });
  await listed("keys");
  const hasFocus = (selector) => until(page, (selector) => document.activeElement?.matches(selector), selector);
  await page.locator('#sessions button[data-session="index"]').focus();
  for (const [keys, place] of [["c", "#composer-text"], ["/", "#sessions input"], ["gr", ".run-row"], ["gi", ".inbox-row, .inbox button"], ["gt", "ps-trace .rows"], ["ge", "ps-events .rows"]]) {
    for (const key of keys) await page.keyboard.press(key);
    await hasFocus(place);
    await page.keyboard.press("Escape");
    await hasFocus('[data-session="index"]');
  }
  assert.equal(await page.locator(".view:visible").count(), 0);
  assert.deepEqual(page.problems, []);
});

test("the composer is at most 12 stops of the Tab key away, with any number of sessions", limit, async () => {
  const many = Array.from({ length: 120 }, (_, at) => stage.publish(`r-tab-${at}`, [fact("session.opened", { title: `Session ${at}` }), fact("run.started"), fact("text.final", { text: "Hello" }, { messageId: "m" }), fact("run.finished")], { sessionId: `tab-${at}` }));
  await Promise.all(many);
  page = await stage.look({ session: "tab-7" });
  await until(page, () => document.querySelectorAll("#sessions button.session").length > 90);
  await page.locator(".speech").waitFor();
  let stops = 0;
  do {
    await page.keyboard.press("Tab");
    stops += 1;
  } while (stops < 40 && !(await page.evaluate(() => document.activeElement?.id === "composer-text")));
  assert.ok(stops <= 12, `${stops} stops`);
  // Arrow keys reach what has no stop of its own.
  await page.locator("#sessions button.session").first().focus();
  await page.keyboard.press("ArrowRight");
  await until(page, () => document.activeElement?.getAttribute("aria-label")?.startsWith("Archive"));
  await page.locator("ps-conversation .scroller").focus();
  await page.keyboard.press("ArrowRight");
  await until(page, () => document.activeElement?.closest(".scroller")?.contains(document.activeElement) && document.activeElement.matches("button"));
});

test("the sizes of rail and pane are remembered, by pointer and by keyboard", limit, async () => {
  await publishSessions();
  page = await stage.look({ session: "keys" });
  await page.setViewportSize({ width: 1600, height: 900 });
  const width = (selector) => page.locator(selector).evaluate((one) => Math.round(one.getBoundingClientRect().width));
  assert.deepEqual([await width("#rail"), await width("#side")], [280, 440]);
  await page.locator("#rail-splitter").focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await width("#rail"), 296);
  assert.equal(await page.locator("#rail-splitter").getAttribute("aria-valuenow"), "296");
  const box = await page.locator("#pane-splitter").boundingBox();
  await page.mouse.move(box.x + box.width / 2, 400);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2 - 100, 400, { steps: 4 });
  await page.mouse.up();
  assert.equal(await width("#side"), 540);
  await page.reload();
  await until(page, () => Math.round(document.getElementById("side").getBoundingClientRect().width) === 540 && Math.round(document.getElementById("rail").getBoundingClientRect().width) === 296);
  await page.locator("#pane-splitter").focus();
  await page.keyboard.press("Enter");
  assert.equal(await width("#side"), 440);
  await page.evaluate(() => localStorage.clear());
});

test("an empty server says what it is, and opens the first session by itself", limit, async (context) => {
  const other = await another(context);
  page = await other.look();
  await page.locator("ps-first-use", { hasText: "Listening for the first event" }).waitFor();
  assert.equal(await text(page.locator("#title")), "No sessions yet");
  assert.ok((await page.locator("ps-first-use").textContent()).includes("/v1/runs/r1/facts?sessionId=hello"));
  await page.getByRole("button", { name: "Python" }).click();
  await page.locator("ps-first-use", { hasText: "urllib.request" }).waitFor();
  // The command of the page, without curl.
  await other.publish("r1", [fact("run.started"), fact("text.delta", { text: "Hello from my agent" }, { messageId: "m1" }), fact("run.finished")], { sessionId: "hello" });
  await page.locator(".speech", { hasText: "Hello from my agent" }).waitFor();
  await until(page, () => document.getElementById("view-first-use").hidden && location.hash.includes("session=hello"));
  assert.deepEqual(page.problems, []);
});

test("a new session writes to the agent that waits for messages, and offers a choice between several", limit, async (context) => {
  const other = await another(context);
  const release = new AbortController();
  context.after(() => release.abort());
  const claim = (agent) => fetch(`${other.url}/v1/agents/${agent}/controls/claim?wait=60`, { method: "POST", signal: release.signal }).then((answer) => answer.json(), () => undefined);
  const present = async (agent) => {
    while (!(await other.read("/copilotkit/info")).agents[agent]?.present) await new Promise((resolve) => setTimeout(resolve, 10));
  };
  const first = claim("support");
  await present("support");
  page = await other.look();
  await page.getByRole("button", { name: "Start a session" }).click();
  await page.getByPlaceholder("Message support…").fill("Hello");
  await page.keyboard.press("Enter");
  assert.deepEqual((await first).controls.map(({ control, agentId, value }) => [control, agentId, value]), [["send", "support", { text: "Hello" }]]);

  const second = claim("clerk");
  void claim("support");
  await present("clerk");
  await present("support");
  await page.locator("#new-session").click();
  await page.getByLabel("Agent", { exact: true }).selectOption("support");
  await page.getByPlaceholder("Message support…").waitFor();
  await page.getByLabel("Agent", { exact: true }).selectOption("clerk");
  await page.getByPlaceholder("Message clerk…").fill("Hello");
  await page.keyboard.press("Enter");
  assert.equal((await second).controls[0].agentId, "clerk");
  assert.deepEqual(page.problems, []);
});

test("a panel in full width turns the rail into a strip, and the address keeps it", limit, async () => {
  await publishSessions();
  page = await stage.look({ session: "keys", panel: "events" });
  await page.setViewportSize({ width: 1600, height: 900 });
  await page.locator("#expand").click();
  await until(page, () => location.hash.includes("full=1") && document.getElementById("rail").getBoundingClientRect().width === 52);
  assert.equal(await text(page.locator("#title")), "Events");
  await page.reload();
  await until(page, () => "full" in document.body.dataset);
  await page.locator("#back").click();
  await until(page, () => !("full" in document.body.dataset) && document.getElementById("title").textContent === "Rotate the keys");
});

test("a phone shows conversation, decisions and composer first, the rest behind a button", limit, async () => {
  await publishSessions();
  page = await stage.blank();
  await page.setViewportSize({ width: 390, height: 844 });
  await stage.look({ session: "keys" }, page);
  await page.locator("ps-action").waitFor();
  assert.ok(await page.locator("ps-composer textarea").isVisible());
  assert.ok(!(await page.locator("#rail").isVisible()) && !(await page.locator("#audience").isVisible()) && !(await page.locator("#side").isVisible()));
  await page.locator("#open-extras").click();
  assert.ok(await page.locator("#audience").isVisible());
  await page.keyboard.press("Escape");
  await page.locator("#open-rail").click();
  await page.locator('#sessions button[data-session="bench"]').click();
  await until(page, () => document.getElementById("title").textContent === "Nightly benchmark" && document.body.dataset.rail === "closed");
  await page.locator("#needs-you").click();
  await page.locator(".inbox-row").first().click();
  await page.locator("ps-inbox ps-action").waitFor();
  assert.ok(!(await page.locator(".inbox-list").isVisible()));
  await page.getByRole("button", { name: "All decisions" }).click();
  assert.ok(await page.locator(".inbox-list").isVisible());
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
});

/** Checks that the page has no serious finding of axe-core, and fits its width. */
async function check(rules, name) {
  await page.evaluate(rules);
  const violations = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes.slice(0, 4).map(({ target, any }) => [target.join(" "), any[0]?.message]) })));
  assert.deepEqual(violations.filter(({ impact }) => impact === "serious" || impact === "critical"), [], name);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `${name} scrolls sideways`);
}

for (const theme of ["light", "dark"]) {
  for (const width of [1440, 360]) {
    test(`axe-core has no serious finding in inbox, palette, keys and first use (${theme}, ${width} px)`, limit, async (context) => {
      const rules = await axe();
      await publishSessions();
      page = await stage.look({ session: "keys", view: "inbox" });
      await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
      await page.setViewportSize({ width, height: 900 });
      await page.locator(".inbox-row").first().waitFor();
      await check(rules, "inbox");
      await page.locator(".inbox-row").first().click();
      await check(rules, "decision");
      await page.keyboard.press("Control+k");
      await page.locator(".palette-row").first().waitFor();
      await check(rules, "palette");
      await page.keyboard.press("Escape");
      await page.locator("#title").click();
      await page.keyboard.press("?");
      await page.locator("dialog.keys").waitFor();
      await check(rules, "keys");
      await page.close();
      const other = await another(context);
      page = await other.look();
      await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
      await page.setViewportSize({ width, height: 900 });
      await page.locator("ps-first-use .first-use-waiting").waitFor();
      await check(rules, "first use");
    });
  }
}

for (const theme of ["light", "dark"]) {
  test(`the documentation is readable, fits a phone, and shows where a link leads (${theme})`, limit, async () => {
    page = await stage.blank();
    await page.emulateMedia({ colorScheme: theme });
    await page.setViewportSize({ width: 360, height: 800 });
    await page.goto(`${stage.front.url}/docs/guides/approvals`);
    await page.locator('nav a[aria-current="page"]').waitFor();
    await check(await axe(), "a page of the documentation");
    await page.goto(`${stage.front.url}/docs/reference/problems#no_such_run`);
    await page.locator("code:target", { hasText: "no_such_run" }).waitFor();
    await page.locator("nav").getByRole("link", { name: "Get started" }).click();
    await page.getByRole("heading", { level: 1, name: "Get started" }).waitFor();
  });
}

test("the palette finds events of all runs of the session", limit, async () => {
  await stage.publish("first-run", [fact("run.started"), fact("text.final", { role: "assistant", text: "quartz" }, { messageId: "m" })], { sessionId: "two-runs" });
  await stage.publish("second-run", [fact("run.started"), fact("text.final", { role: "assistant", text: "granite" }, { messageId: "m" })], { sessionId: "two-runs" });
  page = await stage.look({ session: "two-runs" });
  for (const [words, run] of [["quartz", "first-run"], ["granite", "second-run"]]) {
    await page.keyboard.press("Control+k");
    await page.locator(".palette input").fill(words);
    await page.locator(".palette-row", { hasText: `event 2 of ${run}` }).click();
    await page.locator("ps-events .event-detail", { hasText: words }).waitFor();
  }
  assert.deepEqual(page.problems, []);
});

/* ── recordings ── */

/** Chooses a file by a button that opens the browser's file dialog. */
async function choose(button, name, lines) {
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), button.click()]);
  await chooser.setFiles({ name, mimeType: "application/x-ndjson", buffer: Buffer.from(lines.join("\n")) });
}

test("an empty server opens a recording, and a second time adds nothing", limit, async () => {
  const empty = await Stage.open();
  try {
    page = await empty.look();
    const lines = [
      { type: "run.started", eventId: "e1", sequence: 1, receivedAt: "2026-01-01T00:00:00Z", sessionId: "recorded", runId: "take" },
      { type: "text.final", eventId: "e2", sequence: 2, receivedAt: "2026-01-01T00:00:01Z", sessionId: "recorded", runId: "take", messageId: "m", payload: { role: "assistant", text: "From a file." } },
    ].map((envelope) => JSON.stringify(envelope));
    const link = page.getByRole("button", { name: "Open a recording" });
    await choose(link, "take.ndjson", [lines[0], "{\"type\":"]);
    await page.locator(".toast", { hasText: "take.ndjson was not opened. Line 2 is not JSON" }).waitFor();
    await choose(link, "take.ndjson", [lines[0], "", "{\"payload\":{}}"]);
    await page.locator(".toast", { hasText: "Line 3 has no \"type\"" }).waitFor();
    assert.equal((await empty.read("/v1/runs")).runs.length, 0, "nothing of an invalid file is sent");
    await choose(link, "take.ndjson", lines);
    await page.locator(".speech", { hasText: "From a file." }).waitFor();
    await until(page, () => location.hash.includes("session=recorded"));
    await page.keyboard.press("Control+k");
    await page.locator(".palette input").fill("recording");
    await choose(page.locator(".palette-row", { hasText: "Open a recording" }), "again.ndjson", lines);
    await until(page, () => document.querySelector(".palette") === null && document.querySelector(".speech") !== null);
    assert.equal((await empty.read("/v1/runs/take/events")).events.length, 2);
    assert.deepEqual(page.problems, []);
  } finally {
    await page.close();
    await empty.close();
  }
});

test("a line that the server rejects is named by its number in the file", limit, async () => {
  page = await stage.look({ session: "index" });
  const facts = [{ type: "run.started", runId: "bad-take" }, {}, { type: "", runId: "bad-take" }];
  await page.keyboard.press("Control+k");
  await page.locator(".palette input").fill("recording");
  await choose(page.locator(".palette-row", { hasText: "Open a recording" }), "bad.ndjson", facts.map((one) => ("type" in one ? JSON.stringify(one) : "")));
  await page.locator(".toast", { hasText: "bad.ndjson was not opened. Line 3: the fact has no" }).waitFor();
});

test("a phone plays the session behind one button", limit, async () => {
  await stage.publish("played", [fact("run.started"), fact("text.final", { text: "One." }, { messageId: "a" }), fact("text.final", { text: "Two." }, { messageId: "b" })], { sessionId: "playable" });
  page = await stage.blank();
  await page.setViewportSize({ width: 390, height: 844 });
  await stage.look({ session: "playable" }, page);
  await page.locator(".speech", { hasText: "Two." }).waitFor();
  const dock = page.locator("#dock");
  assert.equal(await dock.isVisible(), false);
  await page.locator("#open-extras").click();
  await page.getByRole("button", { name: "Playback" }).click();
  await dock.getByRole("button", { name: "Previous event" }).click();
  await until(page, () => document.getElementById("stage").dataset.past === "true");
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing exceeds the screen");
  await dock.getByRole("button", { name: "Go live" }).click();
  await until(page, () => document.getElementById("stage").dataset.past === "false");
  assert.deepEqual(page.problems, []);
});
