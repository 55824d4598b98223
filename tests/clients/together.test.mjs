/**
 * Four clients at once: the agent of a guide, shown by CopilotKit, TanStack AI, `useChat` and the workbench, in a real
 * browser. All join while the run waits, one answers, and all show the same.
 */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { limit } from "../deadline.mjs";
import { startModel } from "../../examples/fake-model.mjs";
import { startGuide } from "./guide.mjs";
import { openBrowser, servePages } from "./pages.mjs";

const PAGES = ["copilotkit", "tanstack-ai", "ai-sdk"];

/** What every page shows in the end: the request, the call, its result, the answer. */
const SHOWN = ["Delete a.txt", "delete_file", "a.txt is gone", "The tool says: a.txt is gone"];

/** The text of a page; that of the workbench without its lists. */
const textOf = (page) => page.locator("ps-conversation, #page").first().innerText();

describe("four clients", () => {
  let model, pages, browser;
  before(async () => {
    [model, pages, browser] = await Promise.all([startModel(), servePages(), openBrowser()]);
  });
  after(() => Promise.all([model?.stop(), pages?.stop(), browser?.close()]));

  for (const [guide, decider] of [["langgraph", "copilotkit"], ["ai-sdk", "ai-sdk"]]) {
    test(`show the agent of the guide ${guide} alike, and its approval, which ${decider} answers`, limit, async (context) => {
      const agent = await startGuide(guide, model, { PROSCENIUM_CORS_ORIGIN: pages.origin });
      context.after(() => agent.stop());
      const open = async (url) => {
        const page = await browser.context.newPage();
        context.after(() => page.close());
        await page.goto(url);
        return page;
      };

      const workbench = await open(`${agent.url}/#session=t1`);
      await workbench.getByPlaceholder("Message support…").fill("Delete a.txt");
      await workbench.keyboard.press("Enter");
      const approve = (page) => page.getByRole("button", { name: "Approve", exact: true });
      await approve(workbench).waitFor();

      const addresses = await Promise.all(PAGES.map((page) => pages.add(page, "support", agent.url)));
      const others = await Promise.all(addresses.map(open));
      const shows = (page, text) => page.getByText(text).first().waitFor();
      for (const page of others) {
        await approve(page).waitFor();
        for (const text of SHOWN.slice(0, 2)) await shows(page, text);
      }

      const answering = others[PAGES.indexOf(decider)];
      await approve(answering).click();
      // The page that answers and the workbench follow the run. The others show it when a person comes back.
      const last = SHOWN.at(-1);
      for (const page of [workbench, answering]) await shows(page, last);
      for (const page of others.filter((page) => page !== answering)) await page.reload();
      for (const page of [workbench, ...others]) {
        await shows(page, last);
        const text = await textOf(page);
        for (const part of SHOWN) assert.ok(text.includes(part), `${page.url()} shows ${part}:\n${text}`);
        assert.equal(text.split(last).length, 2, `${page.url()} shows the answer once:\n${text}`);
        assert.equal(await approve(page).count(), 0, `${page.url()} asks no longer`);
      }
    });
  }
});
