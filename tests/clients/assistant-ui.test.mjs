/**
 * assistant-ui, unchanged, with `examples/assistant-ui.ts`: the page of its guide in a real browser lists, renames,
 * archives, deletes and opens threads, also after a restart of the server.
 *
 * PROSCENIUM_PICTURES names a directory for the picture of the guide.
 */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { limit } from "../deadline.mjs";
import { ack, claim, publish, requestJson, startServer, waitFor } from "./harness.mjs";
import { openBrowser, picture, servePages } from "./pages.mjs";

const delta = (text) => ({ type: "text.delta", messageId: "a", payload: { text } });
const ENDS = [{ type: "text.final", messageId: "a" }, { type: "run.finished" }];

describe("assistant-ui", () => {
  let pages, browser;
  before(async () => ([pages, browser] = await Promise.all([servePages(), openBrowser()])));
  after(() => Promise.all([pages?.stop(), browser?.close()]));

  /** A server with a store that survives it, and its page. */
  async function start(context) {
    const folder = mkdtempSync(join(tmpdir(), "proscenium-"));
    const flags = ["--data-dir", join(folder, "data"), "--cors-origin", pages.origin];
    const running = { server: await startServer(...flags) };
    const page = await browser.context.newPage();
    context.after(async () => {
      await page.close();
      await running.server.stop();
      rmSync(folder, { recursive: true });
    });
    const open = async () => page.goto(await pages.add("assistant-ui", "worker", running.server.url));
    const restart = async () => {
      await running.server.stop();
      running.server = await startServer(...flags);
      await open();
    };
    return { page, open, restart, url: () => running.server.url };
  }

  /** Answers the next message as the agent does. */
  async function answer(url, text, end = ENDS) {
    const control = await claim(url, "worker");
    await ack(url, control);
    const { runId: run, threadId: thread, messages } = control.value;
    const asked = messages.at(-1);
    const of = { run, thread, agent: "worker" };
    await publish(url, of, [{ type: "run.started" }, { type: "text.final", messageId: asked.id, payload: { role: "user", text: asked.parts[0].text } }, delta(text)]);
    await publish(url, of, end);
    return of;
  }

  const ask = async (page, text) => {
    await page.getByLabel("Message").fill(text);
    await page.getByRole("button", { name: "Send" }).click();
  };
  const item = (page, title) => page.locator("nav > *").filter({ hasText: title }).filter({ has: page.getByRole("button") });
  const sessions = (url, archived = "false") => requestJson(`${url}/v1/sessions?archived=${archived}`).then(({ sessions }) => sessions);

  test("lists, renames, archives, unarchives, deletes and opens threads over a restart of the server", limit, async (context) => {
    const { page, open, restart, url } = await start(context);
    await open();
    await ask(page, "Plan a trip to Rome");
    const { thread } = await answer(url(), "Which week?");
    await page.getByText("Which week?").waitFor();
    // The server has made the title of the first message.
    await page.locator("nav").getByText("Plan a trip to Rome").waitFor();

    await page.getByRole("button", { name: "New thread" }).first().click();
    await ask(page, "Write to Ada");
    await answer(url(), "Done.");
    await page.getByText("Done.").waitFor();
    await page.locator("nav").getByText("Write to Ada").waitFor();

    await item(page, "Plan a trip to Rome").getByRole("button", { name: "Rename" }).click();
    await page.getByLabel("Title").fill("Rome in May");
    await page.getByLabel("Title").press("Enter");
    await waitFor("the new title", async () => (await sessions(url())).some(({ title, titleFrom }) => title === "Rome in May" && titleFrom === "user"));

    await item(page, "Write to Ada").getByRole("button", { name: "Archive", exact: true }).click();
    await waitFor("the archived session", async () => (await sessions(url(), "true")).length === 1);

    await restart();
    await page.getByText("Unarchive").waitFor();
    assert.match(await page.locator("nav").innerText(), /Rome in May[^]*Archived[^]*Write to Ada/);
    await page.locator("nav").getByText("Rome in May").click();
    await page.getByText("Which week?").waitFor();
    await picture(page, "threads-assistant-ui");

    // The opened thread goes on as the same session.
    await ask(page, "The second");
    assert.equal((await answer(url(), "Booked.")).thread, thread);
    await page.getByText("Booked.").waitFor();

    await page.getByRole("button", { name: "Unarchive" }).click();
    await waitFor("the session in the list", async () => (await sessions(url())).length === 2);
    await item(page, "Write to Ada").getByRole("button", { name: "Archive", exact: true }).click();
    await page.getByRole("button", { name: "Delete" }).click();
    await waitFor("its erasure", async () => (await sessions(url(), "all")).length === 1);
    await restart();
    await page.locator("nav").getByText("Rome in May").waitFor();
    assert.equal(await page.getByText("Write to Ada").count(), 0);
  });

  test("gives feedback about an answer: the run has it", limit, async (context) => {
    const { page, open, url } = await start(context);
    await open();
    await ask(page, "Plan a trip to Rome");
    const { run } = await answer(url(), "Which week?");
    await page.getByText("Which week?").waitFor();
    await page.getByLabel("Bad answer").click();
    const given = async () => (await requestJson(`${url()}/v1/runs/${run}/feedback`)).feedback;
    await waitFor("the feedback", async () => (await given()).length === 1);
    assert.deepEqual((await given()).map(({ thumb, own, messageId }) => [thumb, own, messageId]), [["down", true, undefined]]);
  });

  test("opens a thread in the middle of an answer, and follows it to its end", limit, async (context) => {
    const { page, open, restart, url } = await start(context);
    await open();
    await ask(page, "Count");
    const of = await answer(url(), "One ", []);
    await page.getByText("One").waitFor();
    await restart();
    await page.locator("nav").getByText("Count").click();
    await page.getByText("One").waitFor();
    await publish(url(), of, [delta("two")]);
    await page.getByText("One two").waitFor();
    await publish(url(), of, ENDS);
    await page.getByRole("button", { name: "Send" }).waitFor();
    assert.equal(await page.getByText("One").count(), 1, "the text is there once");
  });
});
