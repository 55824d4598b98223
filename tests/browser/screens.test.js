/**
 * The screens of the guide's pictures, on the demo: each appears, nothing scrolls sideways, and nothing is cut.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, limit, until } from "./stage.js";

const SIZES = [[1600, 1000], [1280, 800], [390, 844], [360, 740]];

let stage;
before(async () => void (stage = await Stage.demo("--speed", "40", "--unattended")), limit);
after(() => stage?.close());

/** The screens: their addresses, and what must be visible on them. On a phone one button shows the panels. */
const SCREENS = {
  conversation: { hash: {}, shows: "ps-conversation .speech" },
  artifacts: { hash: { panel: "artifacts" }, shows: "ps-artifacts .artifact-row" },
  events: { hash: { panel: "events" }, shows: "ps-events .rows .event-row" },
  team: { hash: { panel: "team" }, shows: "ps-team-roster" },
};

for (const [name, { hash, shows }] of Object.entries(SCREENS)) {
  test(`the screen ${name} fits every size`, limit, async () => {
    const page = await stage.blank();
    await page.setViewportSize({ width: 1600, height: 1000 });
    await stage.look({ session: "demo-1", ...hash }, page);
    // The story has made its artifact, so that every panel has content.
    await page.locator('[role=tab][data-panel="artifacts"]:visible', { hasText: /[1-9]/ }).waitFor();
    for (const [width, height] of SIZES) {
      await page.setViewportSize({ width, height });
      const isPhone = width < 500;
      // On a phone one button shows the panels, unless they are still shown from the size before.
      while (!(await page.locator(shows).first().isVisible())) {
        if (isPhone && (await page.locator("#open-pane").isVisible())) await page.locator("#open-pane").click();
        await page.waitForTimeout(50);
      }
      // Panes follow a new width in the next frame.
      await until(page, () => document.documentElement.scrollWidth <= innerWidth);
      // A button shows all of its words.
      const cut = await page.locator(`${shows.split(" ")[0]} button:visible`).evaluateAll((all) => all.filter((button) => button.classList.contains("button") && button.scrollWidth > button.clientWidth + 1).map((button) => button.textContent.trim()));
      assert.deepEqual(cut, [], `${name} at ${width} pixels`);
    }
    assert.deepEqual(page.problems, []);
    await page.close();
  });
}

test("the events and artifacts take the whole width, and give it back", limit, async () => {
  const page = await stage.blank();
  await page.setViewportSize({ width: 1600, height: 1000 });
  await stage.look({ session: "demo-1", panel: "events" }, page);
  await page.locator("ps-events .rows .event-row").first().waitFor();
  await page.locator("#expand").click();
  await until(page, () => document.querySelector("ps-events").clientWidth > 1400);
  await page.locator("ps-events .rows .event-row").first().click();
  await until(page, () => document.querySelector("ps-events .event-detail").clientWidth > 300);
  assert.ok(await page.locator("ps-events .rows .event-owner").first().isVisible());
  await page.locator("#tab-artifacts").click();
  await page.locator("ps-artifacts .artifact-side .version-row").first().waitFor();
  await page.locator("#expand").click();
  await until(page, () => document.querySelector("ps-artifacts").clientWidth < 800);
  assert.deepEqual(page.problems, []);
  await page.close();
});
