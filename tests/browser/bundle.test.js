/**
 * The page as the binary has it: bundled in chunks, while all other tests load its modules one by one.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, limit, until } from "./stage.js";

let stage;

before(async () => {
  stage = await Stage.open();
  await stage.publish("r", [
    { type: "run.started" },
    { type: "text.final", messageId: "m", payload: { role: "assistant", text: "**Hello**\n\n```js\nlet a = 1;\n```" } },
    { type: "agent.changed", agentId: "w", payload: { agentName: "Wanda", status: "running" } },
    { type: "task.changed", taskId: "t", payload: { title: "Write", status: "running" } },
    { type: "artifact.version.created", artifactId: "a", payload: { title: "Notes", version: "1", content: "One.\n" } },
    { type: "artifact.version.created", artifactId: "a", payload: { title: "Notes", version: "2", content: "Two.\n" } },
    { type: "diagnostics.changed", payload: { message: "slow" } },
    { type: "action.required", actionId: "q", payload: { kind: "tool_approval", title: "Publish", toolName: "publish", parameters: { page: 1 }, artifactId: "a" } },
  ], { sessionId: "s" });
}, limit);
after(() => stage?.close());

test("the page of the binary loads each of its parts, and requests each file once", limit, async () => {
  const page = await stage.blank();
  /** @type {string[]} */
  const files = [];
  page.on("request", (request) => request.url().includes("/assets/") && files.push(new URL(request.url()).pathname.split("/").slice(3).join("/")));
  await page.goto(`${stage.url}/#session=s&audience=internal`);
  await until(page, () => document.querySelector("ps-conversation .speech strong") && document.querySelector("ps-action .yes .button") && document.querySelector("ps-conversation [data-token]"));
  assert.deepEqual(files.slice(0, 2).sort(), ["app.js", "page.css"], "the first document names one style sheet and one script");
  for (const panel of ["team", "work", "artifacts", "trace", "events", "diagnostics"]) {
    await page.locator(`#tab-${panel}`).click();
    await until(page, (name) => document.querySelectorAll(`#panel-${name} > :not(:defined)`).length === 0, panel);
  }
  await page.locator("#needs-you").click();
  await page.locator("ps-inbox .inbox-row, ps-inbox article").first().waitFor();
  await page.locator("#needs-you").click();
  await page.locator("#compare").click();
  await page.locator("ps-audiences .audience-row").first().waitFor();
  await page.keyboard.press("Control+k");
  await page.locator("dialog[open] input").waitFor();
  assert.deepEqual(page.problems, []);
  assert.equal(files.length, new Set(files).size, `a file was requested twice: ${files}`);
  assert.ok(files.includes("vendor/prism.js") && files.includes("palette.js"), `${files}`);
  await page.close();
});

test("the page of the binary is usable before it has loaded the parts of its panels", limit, async () => {
  const page = await stage.blank();
  await page.route("**/assets/**/surfaces/team.js", () => {});
  await page.goto(`${stage.url}/#session=s`);
  await page.locator("ps-action .yes .button").click();
  await until(page, () => document.querySelector("ps-action").dataset.submitted === "true");
  assert.deepEqual(page.problems, []);
  await page.close();
});
