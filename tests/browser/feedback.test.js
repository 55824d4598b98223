/**
 * Feedback: the thumbs under an answer, with the keyboard, with words, and after a reload.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, axe, limit } from "./stage.js";

let stage;
before(async () => (stage = await Stage.open()), limit);
after(() => stage?.close());

const fact = (type, payload, ids) => ({ type, ...ids, payload });
const given = async (run) => (await (await fetch(`${stage.url}/v1/runs/${run}/feedback?audience=internal`)).json()).feedback;
const thumb = (page, label) => page.locator("ps-feedback").getByRole("button", { name: label });
const pressed = (page, label) => page.locator(`ps-feedback [aria-label="${label}"][aria-pressed="true"]`);

async function until(what, check) {
  for (const end = Date.now() + 10_000; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 20))) if (await check()) return;
  assert.fail(`${what} did not come`);
}

test("a thumb under an answer is kept by the server, with words, and is there after a reload", limit, async () => {
  const facts = [fact("run.started", {}), fact("text.final", { text: "Which colour?", role: "user" }, { messageId: "u" }), fact("text.final", { text: "Blue." }, { messageId: "m" }), fact("run.finished", {})];
  await stage.publish("rated", facts);
  const page = await stage.look({ run: "rated" });
  const answer = page.locator('.speech[data-role="assistant"]');
  await answer.waitFor();
  assert.equal(await page.locator("ps-feedback button").count(), 0, "nothing is loaded before it is wanted");
  await answer.hover();
  await thumb(page, "Good answer").click();
  await pressed(page, "Good answer").waitFor();
  await until("the fact", async () => (await given("rated"))[0]?.thumb === "up");
  assert.deepEqual((await given("rated")).map(({ messageId, givenBy }) => [messageId, givenBy.via]), [["m", "page"]]);

  // By the keyboard: another thumb asks for words.
  await thumb(page, "Bad answer").focus();
  await page.keyboard.press("Enter");
  const words = page.getByLabel("What was wrong?");
  await words.waitFor();
  await page.keyboard.type("It was green");
  await page.evaluate(await axe());
  const { violations } = await page.evaluate(() => window.axe.run("ps-feedback", { resultTypes: ["violations"] }));
  assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes[0].html]), []);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await until("the words", async () => (await given("rated"))[0]?.text === "It was green");
  await words.waitFor({ state: "detached" });

  await page.reload();
  await pressed(page, "Bad answer").waitFor();
  assert.equal(await page.locator("ps-feedback button").count(), 2, "only the answer has thumbs");
  // The same thumb again withdraws.
  await answer.hover();
  await thumb(page, "Bad answer").click();
  await until("the end of it", async () => (await given("rated")).length === 0);
  assert.deepEqual(page.problems, []);
});
