/**
 * The requests of real runtimes: what the card shows, and what a click and the keys bring to the agent. A plain yes is
 * the narrowest one; a wider one is in the menu beside it.
 */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { limit, text, until, useStage } from "./stage.js";

let stage, page;
let runs = 0;

useStage((opened) => (stage = opened), () => page);

/**
 * Requests by file: the title, a text of what is decided, and the value of the plain yes. `wider`: the menu's items with
 * their values. `answer`: the answer of a question, and its value. `no`: the value of a rejection with a reason.
 */
const CASES = {
  "acp-command.acp": { title: "Run `rm -r src`?", says: "rm -r src", yes: { optionId: "allow" }, wider: { "Always Allow Bash(rm -r src) and access to /srv/demo/src": { optionId: "allow_always" } } },
  "acp-edit.acp": { title: "Edit src/app.txt?", says: "BETA — café", yes: { optionId: "allow" }, wider: { "Always Allow all Edit": { optionId: "allow_always" } } },
  "acp-options.acp": { title: "touch 1.txt?", says: "touch 1.txt", yes: { optionId: "once" }, wider: { "Always allow": { optionId: "always" } } },
  "acp-form.acp": { title: "Which ticket?", says: "Title" },
  "ai-sdk-approval.ai-sdk": { title: "Delete file a.txt?", says: "a.txt", yes: undefined },
  "claude-command.claude-stream-json": {
    title: "Run `touch one.txt`?", says: "touch one.txt", yes: { optionId: "allow" },
    wider: { "Allow, and use the mode acceptEdits": { optionId: "suggestion-2" }, "Always allow Bash(touch one.txt)": { optionId: "suggestion-0" } },
  },
  "claude-plan.claude-stream-json": { title: "Approve the plan?", says: "Change the title", yes: undefined },
  "claude-question.claude-stream-json": { title: "Which colour?", says: "warm", answer: ["Blue", { "Which colour?": "Blue" }] },
  "langgraph-interrupt.langgraph": { title: "Delete a.txt?", says: "a.txt", answer: ["reject", "reject"] },
  "langgraph-middleware.langgraph": { title: "Send mail to a@example.com?", says: "Hi", yes: { optionId: "approve" } },
  "langgraph-several.langgraph": { title: "Send mail to a@example.com?", says: "Hi", yes: { type: "approve" }, no: { type: "reject", message: "Not now." } },
};

/**
 * What the card has besides: its facts, the answers in their order, and what it says that the source omits. `details`:
 * whether the source's own data is one click away.
 */
const CARDS = {
  "acp-command.acp": { facts: { Tool: "Bash" }, answers: ["Allow", "Allow more", "Reject…", "Ask a question"], omits: "risk, scope, result", details: true },
  "acp-edit.acp": { facts: { Tool: "Edit", replace_all: "false" }, answers: ["Allow", "Allow more", "Reject…", "Ask a question"], omits: "risk, scope, result", details: true },
  "acp-options.acp": { facts: { Tool: "edit" }, answers: ["Allow", "Allow more", "Reject…", "Never", "Ask a question"], omits: "arguments, risk, scope, result", details: true },
  "acp-form.acp": { facts: {}, answers: ["Send answer", "Decline", "Ask a question"], details: true },
  "ai-sdk-approval.ai-sdk": { facts: { Tool: "deleteFile", path: "a.txt" }, answers: ["Approve", "Reject…", "Ask a question"], omits: "risk, scope, result" },
  "claude-command.claude-stream-json": { facts: { Tool: "Bash" }, answers: ["Allow", "Allow more", "Reject…", "Ask a question"], omits: "risk, scope, result", details: true },
  "claude-plan.claude-stream-json": { facts: {}, answers: ["Approve", "Reject…", "Ask a question"], omits: "result", details: true },
  "claude-question.claude-stream-json": { facts: {}, answers: ["Red warm", "Blue cold", "Decline", "Ask a question"], details: true },
  "langgraph-interrupt.langgraph": { facts: { path: "a.txt" }, answers: ["approve", "edit", "reject", "Decline", "Ask a question"], details: true },
  "langgraph-middleware.langgraph": { facts: { Tool: "send_mail", to: "a@example.com", body: "Hi" }, answers: ["Approve", "Reject…", "Ask a question"], omits: "risk, scope, result", details: true },
  "langgraph-several.langgraph": { facts: { Tool: "send_mail", to: "a@example.com", body: "Hi" }, answers: ["Approve", "Reject…", "Ask a question"], omits: "risk, scope, result", details: true },
};

/** The facts of a card, and the arguments among them, by name. */
const factsOf = (card) => card.evaluate((one) => {
  const named = (names) => [...names].map((name) => [name.textContent.trim(), name.nextElementSibling.textContent.trim()]);
  const rows = [...one.querySelectorAll(".ask > .facts > dt")].filter((name) => !["Arguments", "Details"].includes(name.textContent.trim()));
  return Object.fromEntries([...named(rows), ...named(one.querySelectorAll('.ask > .facts [aria-label="Arguments"] .arg-name'))]);
});

/** The answers of a card, without their keys. */
const answersOf = (card) => card.locator(".outcomes button:visible").evaluateAll((all) => all.map((button) => button.getAttribute("aria-label") ?? [...button.childNodes].filter(({ nodeName }) => nodeName !== "KBD" && nodeName !== "#comment").map(({ textContent }) => textContent.trim()).filter(Boolean).join(" ").replace(" …", "…")));

const isReady = () => document.getElementById("stage").dataset.hydration === "whole" && document.getElementById("connection").dataset.kind === "live";

/** Publishes a request, opens its run on a screen of this size, and returns its card. */
async function asks(name, viewport = { width: 1280, height: 900 }) {
  const run = `decision-${++runs}`;
  const agent = `agent-${run}`;
  const lines = await readFile(new URL(`../cases/decisions/${name}.ndjson`, import.meta.url), "utf8");
  await stage.publish(run, lines.trim().split("\n").map((line) => JSON.parse(line)), { source: name.split(".").at(-1), agentId: agent });
  page = await stage.blank();
  await page.setViewportSize(viewport);
  await stage.look({ run }, page);
  const card = page.locator("ps-conversation ps-action");
  await card.locator(".ask").waitFor();
  await until(page, isReady);
  return { run, agent, card };
}

const claimedValue = async ({ run, agent }) => {
  const { control, value } = await stage.claim(agent, { run });
  return { control, value };
};

for (const [name, { title, says, yes, no, wider, answer }] of Object.entries(CASES)) {
  const isQuestion = answer !== undefined || name === "acp-form.acp";

  test(`${name}: the card says what is decided, whole and in view`, limit, async () => {
    const { card } = await asks(name);
    assert.equal(await text(card.locator(".card-title")), title);
    await card.getByText(says).first().waitFor();
    await until(page, () => !document.querySelector("ps-action .request-diffs [role=status]"));
    const isInView = await card.evaluate((one) => {
      one.querySelector(".ask").scrollIntoView({ block: "nearest" });
      const { top, bottom } = one.querySelector(".ask").getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight;
    });
    assert.ok(isInView, "title, subject and buttons fit on the screen together");
    assert.deepEqual(page.problems, []);
  });

  test(`${name}: the card has what the source states, and names in one line what it omits`, limit, async () => {
    const { card, agent } = await asks(name);
    const { facts, answers, omits, details = false } = CARDS[name];
    await card.locator(".outcomes button").first().waitFor();
    assert.deepEqual(await factsOf(card), facts);
    assert.deepEqual(await answersOf(card), answers);
    assert.deepEqual(await card.locator(".unstated").allInnerTexts(), omits === undefined ? [] : [`Not stated: ${omits}.`]);
    assert.equal(await text(card.locator(".requester")), `${agent} asks`);
    assert.ok(!(await text(card)).includes("{"), "no JSON before a click");
    assert.equal(await card.locator(".raw > summary").count(), details ? 1 : 0, "the source's own data is one click away");
    if (details) {
      await card.locator(".raw > summary").click();
      await card.getByRole("group", { name: "Details from the source" }).waitFor();
    }
  });

  if (!isQuestion) {
    test(`${name}: a click on the first button and the keys y, Enter send the narrowest yes`, limit, async () => {
      const clicked = await asks(name);
      await clicked.card.locator(".yes [data-control]").first().click();
      await clicked.card.locator("[role=status]", { hasText: `Answered by you. Waiting for ${clicked.agent}.` }).waitFor();
      const { total } = await stage.read("/v1/attention?limit=1");
      await until(page, (total) => Number(document.getElementById("needs-you").textContent.match(/\d+/)?.[0] ?? 0) === total, total);
      assert.deepEqual(await claimedValue(clicked), { control: "approve", value: yes });
      await page.close();
      const typed = await asks(name);
      await page.keyboard.press("y");
      assert.equal(await page.evaluate(() => document.activeElement.dataset.control), "approve");
      await page.keyboard.press("Enter");
      assert.deepEqual(await claimedValue(typed), { control: "approve", value: yes });
    });
  }

  test(`${name}: on a phone title and answers are in view together, and a tap sends the narrowest answer`, limit, async () => {
    const asked = await asks(name, { width: 390, height: 844 });
    const buttons = asked.card.locator(".yes button[data-control]");
    await buttons.first().waitFor();
    await until(page, () => {
      const view = document.querySelector("ps-conversation .scroller").getBoundingClientRect();
      const isInView = ({ top, bottom }) => top >= view.top - 1 && bottom <= view.bottom + 1;
      return [".ask .card-title", ".ask .yes button[data-control]"].every((part) => isInView(document.querySelector(part).getBoundingClientRect()));
    });
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
    for (const button of await buttons.all()) assert.ok((await button.boundingBox()).height >= 44, "large enough for a thumb");
    if (name === "acp-form.acp") await asked.card.getByLabel("Title").fill("It breaks");
    await (answer ? buttons.filter({ hasText: answer[0] }) : buttons.first()).click();
    const { control, value } = await claimedValue(asked);
    if (name === "acp-form.acp") assert.deepEqual([control, value.title], ["answer", "It breaks"]);
    else assert.deepEqual([control, value], answer ? ["answer", answer[1]] : ["approve", yes]);
  });

  if (no) {
    test(`${name}: a rejection sends its reason where the source expects it`, limit, async () => {
      const asked = await asks(name);
      await page.keyboard.press("n");
      await page.keyboard.press("Enter");
      await asked.card.getByLabel("Reason (optional)").fill(no.message);
      await asked.card.locator('.reason [data-control="reject"]').click();
      assert.deepEqual(await claimedValue(asked), { control: "reject", value: no });
    });
  }

  for (const [label, value] of Object.entries(wider ?? {})) {
    test(`${name}: the menu sends “${label}”`, limit, async () => {
      const asked = await asks(name);
      await asked.card.getByRole("button", { name: "Allow more" }).click();
      await asked.card.getByRole("menuitem", { name: label }).click();
      assert.deepEqual(await claimedValue(asked), { control: "approve", value });
    });
  }

  if (answer) {
    test(`${name}: each answer is a button that sends it`, limit, async () => {
      const asked = await asks(name);
      await asked.card.getByRole("group", { name: "Your answer" }).getByRole("button", { name: answer[0] }).click();
      assert.deepEqual(await claimedValue(asked), { control: "answer", value: answer[1] });
    });
  }
}

/** Publishes a native request, and returns its card. */
async function asksNative(payload) {
  const run = `decision-${++runs}`;
  const agent = `agent-${run}`;
  await stage.publish(run, [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { kind: "tool_approval", ...payload } }], { agentId: agent });
  page = await stage.look({ run });
  const card = page.locator("ps-conversation ps-action");
  await card.locator(".ask").waitFor();
  await until(page, isReady);
  return { run, agent, card };
}

test("where no option allows once, neither a button nor a key sends a yes", limit, async () => {
  const options = [{ optionId: "s", label: "Allow once", kind: "allow_always" }, { optionId: "w", label: "Yes", kind: "allow_session" }];
  const asked = await asksNative({ toolName: "rm", options });
  assert.deepEqual(await asked.card.locator(".yes [data-control]").count(), 0);
  await page.keyboard.press("y");
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-haspopup")), "menu", "the key leads to the menu");
  await page.keyboard.press("Enter");
  assert.deepEqual(await asked.card.getByRole("menuitem").evaluateAll((items) => items.map((item) => item.dataset.width)), ["session", "always"], "from narrow to wide, whatever the labels say");
  await asked.card.getByRole("menuitem", { name: "Allow once" }).click();
  assert.deepEqual(await claimedValue(asked), { control: "approve", value: { optionId: "s" } });
});

test("characters that hide or reorder others are visible in all that is decided on", limit, async () => {
  const trick = "echo \u202esafe yletelpmoc\u200b";
  const { card } = await asksNative({ toolName: "Bash", input: { command: trick, note: "a\u2066b" }, message: "c\u00add", options: [{ optionId: "o", kind: "allow_once", label: "Al\u200blow" }] });
  const shown = await card.innerText();
  for (const part of ["echo ⟨U+202E⟩safe yletelpmoc⟨U+200B⟩", "a⟨U+2066⟩b", "c⟨U+00AD⟩d", "Al⟨U+200B⟩low", "Run `echo ⟨U+202E⟩safe"]) assert.ok(shown.includes(part), `${part} in ${shown}`);
  assert.ok(!/[\u202e\u200b\u2066\u00ad]/.test(shown), "none of them acts");
});

test("an emoji stays one, and a hidden character beside it does not", limit, async () => {
  page = await stage.look({});
  const revealed = await page.evaluate(async () => {
    const { reveal } = await import("/assets/ui/reveal.js");
    return ["👩‍💻 ❤️", "a\ufe0fb", "x\u200dy", "tab\tline\nend\r", "\u{e0041}"].map(reveal);
  });
  assert.deepEqual(revealed, ["👩‍💻 ❤️", "a⟨U+FE0F⟩b", "x⟨U+200D⟩y", "tab\tline\nend⟨U+000D⟩", "⟨U+E0041⟩"]);
});

test("a number that no double holds is decided on, edited and sent with all its digits", limit, async () => {
  const wei = "123456789012345678901234567890";
  const lines = [
    '{"type":"run.started"}',
    `{"type":"tool.started","toolCallId":"c","payload":{"toolName":"transfer","input":{"wei":${wei}}}}`,
    `{"type":"action.required","actionId":"a","toolCallId":"c","payload":{"kind":"tool_approval","toolName":"transfer","input":{"wei":${wei}}}}`,
  ];
  const headers = { "content-type": "application/x-ndjson" };
  await fetch(`${stage.url}/v1/runs/digits/facts?agentId=payer`, { method: "POST", headers, body: lines.join("\n") });
  page = await stage.look({ run: "digits" });
  const card = page.locator("ps-conversation ps-action");
  await card.locator(".ask").waitFor();
  await until(page, isReady);
  await card.getByText(wei).first().waitFor();
  await card.locator(".edit summary").click();
  const field = card.locator(".edit textarea");
  await field.fill((await field.inputValue()).replace(wei, `${wei}1`));
  await card.getByRole("button", { name: "Edit arguments" }).click();
  const claimed = await fetch(`${stage.url}/v1/agents/payer/controls/claim?wait=30`, { method: "POST" });
  assert.ok((await claimed.text()).includes(`"wei":${wei}1}`));
});

test("the buttons of an edit stay where they are when its diff comes", limit, async () => {
  const lines = (await readFile(new URL("../cases/decisions/acp-edit.acp.ndjson", import.meta.url), "utf8")).trim().split("\n").map((line) => JSON.parse(line));
  const text = (mark) => Array.from({ length: 30 }, (_, n) => `${n % 3 === 0 ? mark : "same"} line ${n}`).join("\n");
  const enlarge = (value) => {
    if (value === null || typeof value !== "object") return;
    if (typeof value.oldText === "string") [value.oldText, value.newText] = [text("old"), text("new")];
    Object.values(value).forEach(enlarge);
  };
  lines.forEach(enlarge);
  await stage.publish("tall-edit", lines, { source: "acp", agentId: "tall-edit" });
  page = await stage.blank();
  let release = () => {};
  const released = new Promise((resolve) => (release = resolve));
  await page.route("**/ui/diff.js", async (route) => (await released, route.continue()));
  await stage.look({ run: "tall-edit" }, page);
  await page.locator(".subject-note", { hasText: "Loading the diff" }).waitFor();
  const height = () => page.locator(".request-diffs").evaluate((diffs) => diffs.getBoundingClientRect().height);
  const before = await height();
  release();
  await page.locator(".request-diffs .diff-lines").first().waitFor();
  assert.ok(Math.abs((await height()) - before) < 40, `${before} and then ${await height()} pixels`);
});
