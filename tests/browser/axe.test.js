/**
 * axe-core on the team's surfaces and the tools, filled with data and expanded: light and dark, wide and narrow.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, axe, limit, until } from "./stage.js";
import { TEAM } from "./fixtures/story.js";

let stage, source;

before(async () => {
  stage = await Stage.open();
  source = await axe();
  await stage.publish("accessible", TEAM);
  // Withheld, failed, deleted and stale activities, so that all colors of states appear.
  await stage.publish("accessible", [
    { type: "text.delta", messageId: "own", audience: "internal", payload: { text: "internal only" } },
    { type: "artifact.failed", artifactId: "broken", payload: { title: "Broken", error: { message: "the disk is full" } } },
    { type: "artifact.deleted", artifactId: "gone", payload: { title: "Gone" } },
    { type: "agent.completed", agentId: "lost", phase: "failed", payload: { agentName: "Lost", error: { message: "it was killed" } } },
    { type: "task.changed", taskId: "odd", payload: { runtimeEntity: "work_item", title: "Odd", status: "dreaming" } },
  ]);
}, limit);
after(() => stage?.close());

for (const theme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    test(`axe finds nothing serious in ${theme}, ${width} pixels wide`, limit, async () => {
      const page = await stage.show("team.html", { run: "accessible", audience: "internal", theme, without: "conversation" });
      await page.setViewportSize({ width, height: 900 });
      await page.evaluate(() => {
        window.bench.compare();
        document.querySelector("ps-teammate-transcript").open("researcher");
      });
      await page.locator("ps-delegation-graph").getByRole("button", { name: "List", exact: true }).click();
      await page.locator("ps-artifacts .artifact-row", { hasText: "Report" }).click();
      await page.locator("ps-artifacts .mode-diff").click();
      await page.locator("ps-trace .longest button").first().click();
      await page.locator("ps-diagnostics .inspect").first().click();
      await page.locator("ps-events .rows .event-row").last().click();
      await until(page, () => document.querySelectorAll("ps-audiences .audience-row").length > 10 && document.querySelector("ps-artifacts .diff-line") !== null && document.querySelector("ps-events .event-detail pre") !== null);
      // Only scroll containers may scroll sideways, not the page.
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "the page scrolls sideways");
      await page.evaluate(source);
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      const serious = violations.filter((it) => ["serious", "critical"].includes(it.impact)).map((it) => `${it.id}: ${it.help}\n${it.nodes.slice(0, 6).map((node) => `  ${node.target.join(" ")}\n    ${node.failureSummary?.replaceAll("\n", "\n    ")}`).join("\n")}`);
      assert.deepEqual(serious, []);
      assert.deepEqual(page.problems, []);
      await page.close();
    });
  }
}
