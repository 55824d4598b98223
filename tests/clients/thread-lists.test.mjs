/**
 * The pages with a list of threads, of the guides for `useChat` and for TanStack AI, in a real browser: each lists the
 * threads of its agent, opens one, and writes in it, also after a restart of the server.
 *
 * PROSCENIUM_PICTURES names a directory for the pictures of the guides.
 */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { limit } from "../deadline.mjs";
import { ack, claim, publish, requestJson, startServer } from "./harness.mjs";
import { openBrowser, picture, servePages } from "./pages.mjs";

/** The last text that a client sent, in the words of its protocol. */
const lastText = ({ messages }) => messages.at(-1).parts?.[0].text ?? messages.at(-1).parts?.[0].content ?? messages.at(-1).content;

describe("a list of threads", () => {
  let pages, browser;
  before(async () => ([pages, browser] = await Promise.all([servePages(), openBrowser()])));
  after(() => Promise.all([pages?.stop(), browser?.close()]));

  for (const guide of ["ai-sdk", "tanstack-ai"]) {
    test(`is beside the history in ${guide}, and survives a restart of the server`, limit, async (context) => {
      const folder = mkdtempSync(join(tmpdir(), "proscenium-"));
      const flags = ["--data-dir", join(folder, "data"), "--cors-origin", pages.origin];
      let server = await startServer(...flags);
      const page = await browser.context.newPage();
      context.after(async () => {
        await page.close();
        await server.stop();
        rmSync(folder, { recursive: true });
      });
      const turn = (thread, agent, asks, says) => publish(server.url, { run: `run-${thread}`, thread, agent }, [
        { type: "run.started" }, { type: "text.final", messageId: `u-${thread}`, payload: { role: "user", text: asks } },
        { type: "text.final", messageId: `a-${thread}`, payload: { text: says } }, { type: "run.finished" },
      ]);
      await turn("rome", "worker", "Plan a trip to Rome", "Which week?");
      await turn("other", "clerk", "Of another agent", "Yes.");
      await turn("hidden", "worker", "Archived", "Yes.");
      await turn("ada", "worker", "Write to Ada", "Done.");
      const change = (thread, body) => requestJson(`${server.url}/v1/sessions/${thread}`, { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
      await change("hidden", { archived: true });
      await change("ada", { title: "A letter to Ada" });
      await server.stop();
      server = await startServer(...flags);

      await page.goto(await pages.add(guide, "worker", server.url, { heading: "Threads" }));
      const listed = page.locator("nav button");
      const has = async (titles) => {
        await page.locator("nav").getByText(titles[0]).waitFor();
        assert.deepEqual((await listed.allInnerTexts()).slice(1), titles);
      };
      await has(["A letter to Ada", "Plan a trip to Rome"]);
      await page.locator("nav").getByText("Rome").click();
      await page.getByText("Which week?").waitFor();
      assert.equal(await page.getByText("Done.").count(), 0);
      await picture(page, `threads-${guide}`);

      // The thread goes on, and is then the first of the list.
      await page.getByLabel("Message").fill("The second");
      await page.getByLabel("Message").press("Enter");
      const control = await claim(server.url, "worker");
      await ack(server.url, control);
      const { runId: run, threadId: thread } = control.value;
      assert.deepEqual([thread, lastText(control.value)], ["rome", "The second"]);
      await publish(server.url, { run, thread, agent: "worker" }, [{ type: "run.started" }, { type: "text.final", messageId: "booked", payload: { text: "Booked." } }, { type: "run.finished" }]);
      await page.getByText("Booked.").waitFor();
      await listed.nth(1).and(page.getByText("Plan a trip to Rome")).waitFor();
      await has(["Plan a trip to Rome", "A letter to Ada"]);
    });
  }
});
