/**
 * The panel for VS Code of `examples/vscode`, as a page: its extension runs here beside a stand-in for the editor, its webview in
 * a real browser, and the server is the real one.
 */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import Module, { createRequire } from "node:module";
import { symlinkSync, mkdtempSync, mkdirSync, cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { tmpdir } from "node:os";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { limit } from "../deadline.mjs";
import { ack, claim, publish, startServer } from "./harness.mjs";
import { openBrowser } from "./pages.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "proscenium-vscode-"));
const settings = new Map();
const secrets = new Map();
const commands = new Map();
let provider, chosen;

/** What the extension uses of the editor. */
const editor = {
  commands: { registerCommand: (name, run) => (commands.set(name, run), { dispose() {} }) },
  window: {
    registerWebviewViewProvider: (_, given) => ((provider = given), { dispose() {} }),
    showInputBox: async () => "secret",
    showQuickPick: async (items) => items.find(({ description }) => description === chosen),
  },
  workspace: { getConfiguration: () => ({ get: (name) => settings.get(name) ?? "", update: async (name, value) => settings.set(name, value) }) },
};

let server, browser, pages;
before(async () => {
  // The extension as it is installed: with the client beside it.
  cpSync(here("../../examples/vscode"), folder, { recursive: true });
  mkdirSync(join(folder, "node_modules/@proscenium"), { recursive: true });
  symlinkSync(here("../../web-demo/client"), join(folder, "node_modules/@proscenium/client"));
  const load = Module._load;
  Module._load = (name, ...rest) => (name === "vscode" ? editor : load(name, ...rest));
  createRequire(join(folder, "x.js"))("./extension.js").activate({ subscriptions: [], secrets: { get: async (name) => secrets.get(name), store: async (name, value) => secrets.set(name, value) } });
  [server, browser] = await Promise.all([startServer(), openBrowser()]);
  settings.set("url", `${server.url}/`);
}, limit);
after(async () => {
  provider?.dispose();
  pages?.close();
  await Promise.all([server?.stop(), browser?.close()]);
  rmSync(folder, { recursive: true });
});

/** The webview of the extension as a page. */
async function openPanel() {
  const page = await browser.context.newPage();
  page.problems = [];
  page.on("console", (message) => message.type() === "error" && page.problems.push(message.text()));
  page.on("pageerror", (error) => page.problems.push(String(error)));
  let receive;
  const webview = {
    postMessage: (message) => page.evaluate((data) => dispatchEvent(new MessageEvent("message", { data })), message).catch(() => {}),
    onDidReceiveMessage: (listener) => (receive = listener),
  };
  provider.resolveWebviewView({ webview, onDidDispose() {} });
  await page.exposeFunction("toExtension", (message) => receive(message));
  await page.addInitScript(() => (globalThis.acquireVsCodeApi = () => ({ postMessage: (message) => globalThis.toExtension(message) })));
  pages = createServer((_, answer) => answer.setHeader("content-type", "text/html; charset=utf-8").end(webview.html)).listen(0, "127.0.0.1");
  await once(pages, "listening");
  await page.goto(`http://127.0.0.1:${pages.address().port}/page`);
  return page;
}

test("a person follows a session beside the code, decides, answers, and reads why a decision was refused", limit, async () => {
  const at = { run: "r", thread: "s", agent: "helper" };
  const asks = (actionId, payload) => ({ type: "action.required", actionId, payload });
  await publish(server.url, at, [
    { type: "run.started" },
    { type: "text.final", messageId: "m", payload: { role: "assistant", text: "<b>Shall I?</b>" } },
    asks("a", { kind: "tool_approval", toolName: "sh", title: "Delete src?", parameters: { command: "rm -r src" } }),
  ]);
  const page = await openPanel();
  await page.getByRole("status").getByText("s: live").waitFor();
  await page.getByText("<b>Shall I?</b>").waitFor();
  await page.getByText("rm -r src").waitFor();
  await page.getByRole("button", { name: "Approve" }).click();
  const control = await claim(server.url, "helper");
  assert.equal(control.control, "approve");
  await ack(server.url, control);
  await publish(server.url, at, [
    { type: "action.resolved", actionId: "a", payload: { outcome: "approved" } },
    asks("b", { kind: "clarification", title: "Which file?" }),
  ]);
  await page.getByText("approved").waitFor();

  // What a person types stays while the session goes on.
  await page.getByLabel("Which file?").fill("a.t");
  await publish(server.url, at, [{ type: "text.delta", messageId: "n", payload: { text: "I wait." } }]);
  await page.getByLabel("Which file?").pressSequentially("xt");
  assert.equal(await page.getByLabel("Which file?").inputValue(), "a.txt");
  // So does the button that is pressed.
  await page.getByRole("button", { name: "Answer" }).hover();
  await page.mouse.down();
  await publish(server.url, at, [{ type: "text.delta", messageId: "n", payload: { text: " Still." } }]);
  await page.getByText("I wait. Still.").waitFor();
  await page.mouse.up();
  const answer = await claim(server.url, "helper");
  assert.deepEqual([answer.control, answer.value], ["answer", "a.txt"]);

  // Options of a source are its own words. What the server refuses is named on the card, which can still be decided.
  const options = [{ optionId: "once", label: "Just once", kind: "allow_once" }, { optionId: "no", label: "Never", kind: "reject_always" }];
  await publish(server.url, at, [asks("c", { kind: "tool_approval", title: "Push?", options })]);
  await page.getByRole("button", { name: "Never" }).waitFor();
  await provider.receive({ type: "decide", run: "r", actionId: "c", control: "never" });
  assert.match(await page.getByRole("alert").innerText(), /control/);
  await page.getByRole("button", { name: "Just once" }).click();
  const option = await claim(server.url, "helper");
  assert.deepEqual([option.control, option.value.optionId], ["approve", "once"]);

  // Another session, which the workspace remembers.
  await publish(server.url, { run: "q", thread: "t", agent: "helper" }, [{ type: "run.started" }, { type: "text.final", messageId: "m", payload: { role: "assistant", text: "Another session." } }]);
  chosen = "t";
  await commands.get("proscenium.open")();
  await page.getByText("Another session.").waitFor();
  assert.equal(settings.get("session"), "t");
  await commands.get("proscenium.token")();
  assert.equal(secrets.get("proscenium.token"), "secret");
  assert.deepEqual(page.problems, []);
});
