/**
 * The guides "X in five minutes", executed against the published packages and the model of `examples/`, which needs no
 * key, and followed in the workbench: the agent answers, asks, and continues after the answer. The page shows the lines
 * that the guide shows, in their order.
 */

import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { limit } from "../deadline.mjs";
import { startGuide, startModel } from "./guide.mjs";
import { requestJson, waitFor } from "./harness.mjs";
import { openBrowser } from "./pages.mjs";

const APPROVAL = { ask: "Delete a.txt", decide: (page) => page.getByRole("button", { name: "Approve", exact: true }).click(), deletes: false };

/**
 * The agents of each guide, the message after which the last one asks, and how the reader answers. `deletes`: the agent
 * really deletes the file, and does not only say so.
 */
const GUIDES = {
  langgraph: { agents: ["support"], ...APPROVAL },
  "ai-sdk": { agents: ["support"], ...APPROVAL },
  "ag-ui": { agents: ["support"], ...APPROVAL },
  openai: { agents: ["support", "clerk"], ...APPROVAL },
  a2a: { agents: ["support"], ask: "Delete a file", decide: answerQuestion, deletes: false },
  acp: { agents: ["coder"], ...APPROVAL, decide: (page) => page.getByRole("button", { name: "Yes, proceed", exact: true }).click(), deletes: true },
  "claude-code": { agents: ["coder"], ...APPROVAL, decide: (page) => page.getByRole("button", { name: "Allow", exact: true }).click(), deletes: true },
};

async function answerQuestion(page) {
  await page.locator("ps-action").getByRole("textbox").first().fill("a.txt");
  await page.locator("ps-action").getByRole("button", { name: "Answer" }).click();
}

/** Starts a session with an agent. */
async function startSession(page, url, agent) {
  await page.goto(url);
  const isFirst = (await requestJson(`${url}/v1/sessions`)).sessions.length === 0;
  await (isFirst ? page.getByRole("button", { name: "Start a session" }) : page.locator("#new-session")).click();
  await page.getByPlaceholder(/^Message (?!the agent)/).waitFor();
  const choice = page.getByLabel("Agent", { exact: true });
  if (await choice.count()) await choice.selectOption(agent);
  await page.getByPlaceholder(`Message ${agent}…`).waitFor();
}

async function say(page, text) {
  await page.locator("#composer-text").fill(text);
  await page.keyboard.press("Enter");
}

/** Does in the workbench what the guide says. */
async function follow(page, { url, shown }, { agents, ask, decide }) {
  const conversation = page.locator("ps-conversation");
  for (const agent of agents) await waitFor(`the agent ${agent}`, async () => (await requestJson(`${url}/copilotkit/info`)).agents[agent]?.present);
  for (const agent of agents) {
    await startSession(page, url, agent);
    await say(page, "Hello");
    await conversation.getByText(/Hello!/).first().waitFor();
  }
  await say(page, ask);
  await decide(page);
  const inOrder = new RegExp(shown.map((line) => line.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("[^]*"));
  await waitFor("the shown lines", async () => inOrder.test(await conversation.innerText()));
  const session = new URLSearchParams(new URL(page.url()).hash.slice(1)).get("session");
  await waitFor("the end of the runs", async () => (await requestJson(`${url}/v1/sessions/${session}`)).runs.every(({ status }) => status === "completed"));
}

describe("the guide", { concurrency: 2 }, () => {
  let model, browser;
  before(async () => {
    [model, browser] = await Promise.all([startModel(), openBrowser()]);
  });
  after(() => Promise.all([model?.stop(), browser?.close()]));

  for (const [name, steps] of Object.entries(GUIDES)) {
    test(`${name} leads from its commands to an answered question`, limit, async (context) => {
      const guide = await startGuide(name, model);
      context.after(() => guide.stop());
      const file = join(guide.directory, "a.txt");
      writeFileSync(file, "");
      const page = await browser.context.newPage();
      context.after(() => page.close());
      try {
        await follow(page, guide, steps);
        assert.equal(existsSync(file), !steps.deletes, "the agent works in the server's directory");
      } catch (error) {
        throw new Error(`${error.message}\nThe page shows:\n${await page.locator("ps-conversation").innerText()}\nThe programs say:\n${guide.output()}`, { cause: error });
      }
      await guide.runLater();
    });
  }
});
