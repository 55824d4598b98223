/** Branches in the page: edit a question, ask for another answer, and go from one way on to the next. */

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { Stage, axe, limit, until } from "./stage.js";

let stage, page;

before(async () => (stage = await Stage.open()), limit);
after(() => stage?.close());
afterEach(() => page?.close());

const said = (role, messageId, words) => ({ type: "text.final", messageId, payload: { role, text: words } });

/** Publishes a turn of the agent `helper`. */
const turn = (session, n) => stage.publish(`${session}-r${n}`, [{ type: "run.started" }, said("user", `u${n}`, `Question ${n}`), said("assistant", `a${n}`, `Answer ${n}`), { type: "run.finished" }], { sessionId: session, agentId: "helper" });

/** Takes the message that waits for the agent, and answers it. Returns the control. */
async function answer(words) {
  const post = async (path, body) => {
    const response = await fetch(`${stage.url}${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body ?? {}) });
    assert.ok(response.ok, await response.clone().text());
    return response.json();
  };
  const { controls: [control] } = await post("/v1/agents/helper/controls/claim?wait=60");
  const run = `${control.sessionId}-${words.replaceAll(" ", "-")}`;
  await stage.publish(run, [{ type: "run.started" }, said("user", `${run}-u`, control.value.text), said("assistant", `${run}-a`, words), { type: "run.finished" }], { sessionId: control.sessionId, agentId: "helper" });
  await post(`/v1/controls/${control.controlId}/ack`, { lease: control.lease });
  return control;
}

const speech = (words) => page.locator("ps-conversation .speech", { hasText: words });
const shows = (...words) => until(page, (expected) => JSON.stringify([...document.querySelectorAll("ps-conversation .speech:not([hidden]) .body")].map((body) => body.textContent.trim())) === expected, JSON.stringify(words));

/** @param {string} session @param {string[]} [can] What the server says that the caller may do. */
async function open(session, can) {
  page = await stage.blank();
  if (can) await page.route("**/v1/me", async (route) => route.fulfill({ json: { ...(await (await route.fetch()).json()), can } }));
  await stage.look({ session }, page);
}

test("an edited question goes on in a branch, and its ways lead from one to the other", limit, async () => {
  for (const n of [1, 2]) await turn("edited", n);
  await open("edited");
  await shows("Question 1", "Answer 1", "Question 2", "Answer 2");
  assert.equal(await page.locator("ps-again .ways").count(), 0);
  await speech("Question 2").hover();
  await speech("Question 2").getByRole("button", { name: "Edit the message" }).click();
  const field = speech("Question 2").locator("textarea");
  assert.equal(await field.inputValue(), "Question 2");
  await field.fill("Question 2, but better");
  await page.evaluate(await axe());
  assert.deepEqual((await page.evaluate(() => window.axe.run("ps-conversation"))).violations.map(({ id }) => id), []);
  await speech("Question 2").getByRole("button", { name: "Send", exact: true }).click();
  const control = await answer("A better answer");
  assert.deepEqual([control.control, control.value.text], ["send", "Question 2, but better"]);
  await shows("Question 1", "Answer 1", "Question 2, but better", "A better answer");
  const ways = page.locator("ps-again .ways");
  await ways.waitFor();
  assert.equal(await ways.locator("span").innerText(), "2 of 2");
  assert.equal(await speech("Question 2, but better").locator(".ways").count(), 1, "at the message where the ways part");
  assert.equal(await page.locator("button.session[data-session=edited]").getAttribute("aria-current"), "true", "the rail has one entry for all ways");
  assert.equal(await page.locator("button.session[data-session^='edited~']").count(), 0);

  await ways.getByRole("button", { name: "The way before" }).click();
  await shows("Question 1", "Answer 1", "Question 2", "Answer 2");
  await until(page, () => document.querySelector("ps-again .ways span")?.textContent === "1 of 2");
  assert.ok(await ways.getByRole("button", { name: "The way before" }).isDisabled());
  await ways.getByRole("button", { name: "The next way" }).click();
  await shows("Question 1", "Answer 1", "Question 2, but better", "A better answer");
  // Existing clients follow, and a click on the entry comes back to where the person was.
  assert.equal((await stage.read("/v1/sessions/edited")).head, control.sessionId);
  await turn("beside", 1);
  await page.locator("button.session[data-session=beside]").click();
  await shows("Question 1", "Answer 1");
  await page.locator("button.session[data-session=edited]").click();
  await shows("Question 1", "Answer 1", "Question 2, but better", "A better answer");
  assert.deepEqual(page.problems, []);
});

test("another answer is one of several, also after a reload and by the keyboard", limit, async () => {
  await turn("again", 1);
  await open("again");
  await shows("Question 1", "Answer 1");
  for (const [n, words] of [[2, "Second try"], [3, "Third try"]]) {
    const newest = page.locator("ps-conversation .speech[data-role=assistant]").last();
    await newest.hover();
    await newest.getByRole("button", { name: "Try again" }).focus();
    await page.keyboard.press("Enter");
    const control = await answer(words);
    assert.equal(control.value.text, "Question 1", "the agent gets the question again");
    await shows("Question 1", words);
    await until(page, (expected) => document.querySelector("ps-again .ways span")?.textContent === expected, `${n} of ${n}`);
  }
  await page.reload();
  await shows("Question 1", "Third try");
  await page.locator("ps-again .ways").getByRole("button", { name: "The way before" }).click();
  await shows("Question 1", "Second try");
  assert.equal(await page.locator("ps-again .ways span").innerText(), "2 of 3");
  assert.equal((await stage.read("/v1/sessions?archived=all")).sessions.filter(({ sessionId }) => sessionId.startsWith("again")).length, 1);
});

test("without the right to control, the ways are there and nothing begins a branch", limit, async () => {
  await turn("looked", 1);
  await fetch(`${stage.url}/v1/sessions/looked/branches`, { method: "POST", body: JSON.stringify({ after: { runId: "looked-r1", sequence: 0 }, sessionId: "looked-2" }) });
  await stage.publish("looked-r2", [said("user", "v", "Asked otherwise"), { type: "run.finished" }], { sessionId: "looked-2" });
  await open("looked", ["read"]);
  await page.locator("ps-again .ways").waitFor();
  await page.locator("body[data-control=false]").waitFor();
  await page.locator("ps-again .ways").getByRole("button", { name: "The next way" }).click();
  await shows("Asked otherwise");
  await speech("Asked otherwise").hover();
  assert.equal(await page.getByRole("button", { name: "Edit the message" }).count(), 0);
  assert.equal((await stage.read("/v1/sessions/looked")).head, "looked", "it stays where others left it");
});
