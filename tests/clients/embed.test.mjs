/**
 * The elements of `/embed.js` and the packages of the client, the elements and React, on pages of another origin: a plain
 * page, React 19 and Vue 3, in a real browser against the real server.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { limit } from "../deadline.mjs";
import { BINARY, ack, claim, publish, startServer } from "./harness.mjs";
import { openBrowser, servePages } from "./pages.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** A page whose own rules would change everything in it, and whose policy admits no styles of others. */
const plain = (server, body, script = "") => `<!doctype html><html><head><meta charset="utf-8">
<meta http-equiv="content-security-policy" content="default-src 'none'; script-src 'self' 'unsafe-inline' ${server}; connect-src ${server} ${server.replace("http", "ws")}; style-src 'nonce-own'; img-src data:"><link rel="icon" href="data:,">
<style nonce="own">* { color: rgb(255, 0, 0) !important; font: 40px serif !important; } body { line-height: 5; letter-spacing: 9px; text-transform: uppercase; } button { display: none; } .ask { display: none !important; }
ps-decision, ps-inbox { --ps-accent: rgb(1, 2, 3); --ps-surface: rgb(4, 5, 6); } ps-decision::part(title) { font-style: italic; }</style></head>
<body><script>window.events = []; for (const type of ["ps-answered", "ps-resolved", "ps-open", "ps-count", "ps-error"]) document.addEventListener(type, ({ detail, target }) => events.push({ type, on: target.localName, ...detail }));</script>
${body}<script type="module" src="${server}/embed.js"></script>${script && `<script type="module">${script}</script>`}</body></html>`;

describe("elements on a page of another origin", () => {
  let pages, browser, server;
  before(async () => {
    [pages, browser] = await Promise.all([servePages(), openBrowser()]);
    server = await startServer("--embed-origin", pages.origin);
  }, limit);
  after(() => Promise.all([pages?.stop(), browser?.close(), server?.stop()]));

  /** A run that waits for a decision about a command, of an agent of its own. */
  async function ask(name, payload = {}, url = server.url) {
    const run = { run: `run-${name}`, thread: `session-${name}`, agent: `agent-${name}` };
    const { command = `rm -r ${name}` } = payload;
    await publish(url, run, [
      { type: "run.started" },
      { type: "action.required", actionId: "a", payload: { kind: "tool_approval", toolName: "sh", parameters: { command }, title: `Delete ${name}?`, ...payload } },
    ]);
    return run;
  }

  /** Takes the decision as the agent does, and reports its result. */
  async function decide({ agent, ...run }) {
    const control = await claim(server.url, agent);
    await ack(server.url, control);
    await publish(server.url, { ...run, agent }, [{ type: "action.resolved", actionId: "a", payload: { outcome: control.control === "approve" ? "approved" : "rejected" } }]);
    return control;
  }

  async function open(context, address) {
    const page = await browser.context.newPage();
    page.problems = [];
    page.on("console", (message) => message.type() === "error" && page.problems.push(message.text()));
    page.on("pageerror", (error) => page.problems.push(String(error)));
    context.after(() => page.close());
    await page.goto(address);
    return page;
  }

  const eventsOf = (page, type) => page.evaluate((wanted) => window.events.filter((event) => event.type === wanted), type);
  const eventOf = async (page, type) => (await page.waitForFunction((wanted) => window.events.find((event) => event.type === wanted), type)).jsonValue();

  test("a decision is approved by click, shows its outcome, and has the page's colors and none of its rules", limit, async (context) => {
    const run = await ask("plain", { command: "echo \u202esafe" });
    const page = await open(context, pages.addFiles("plain", { "": plain(server.url, `<ps-decision run="${run.run}" action="a"></ps-decision>`) }));
    const card = page.locator("ps-decision");
    await card.getByText("Delete plain?").waitFor();
    assert.match(await card.locator(".request-command").innerText(), /echo ⟨U\+202E⟩safe/);

    const style = (selector, name) => card.locator(selector).first().evaluate((node, of) => getComputedStyle(node)[of], name);
    const approve = card.getByRole("button", { name: "Approve" });
    assert.equal(await style('[data-control="approve"]', "backgroundColor"), "rgb(1, 2, 3)");
    assert.equal(await style(".ask", "backgroundColor"), "rgb(4, 5, 6)");
    assert.deepEqual([await style(".card-title", "fontSize"), await style(".card-title", "textTransform"), await style(".card-title", "letterSpacing"), await style(".card-title", "fontStyle")], ["16px", "none", "-0.16px", "italic"]);
    assert.notEqual(await style(".card-title", "color"), "rgb(255, 0, 0)");

    // Their size is limited by `a_decision_on_a_page_of_others_loads_at_most_40_kb` in tests/it/edge.rs.
    const scripts = await page.evaluate(() => performance.getEntriesByType("resource").map(({ name }) => new URL(name).pathname).filter((path) => path.endsWith(".js")));
    assert.deepEqual(scripts.map((path) => path.replace(/^\/assets\/[0-9a-f]+/, "")).sort(), ["/embed.js", "/embed/embed.js", "/embed/surfaces/decision-record.js"]);

    await approve.click();
    const answered = await eventOf(page, "ps-answered");
    assert.deepEqual([answered.runId, answered.actionId, answered.control], [run.run, "a", "approve"]);
    const control = await decide(run);
    assert.equal(control.controlId, answered.controlId);
    await card.getByText("Approved").waitFor();
    assert.equal((await eventOf(page, "ps-resolved")).outcome, "approved");
    assert.equal(await card.locator("[data-control]").count(), 0);
    assert.deepEqual(page.problems, []);
  });

  test("a decision is approved by keyboard alone, and its keys do nothing elsewhere on the page", limit, async (context) => {
    const run = await ask("keys");
    const page = await open(context, pages.addFiles("keys", { "": plain(server.url, `<input id="before"><ps-decision run="${run.run}" action="a"></ps-decision>`) }));
    await page.locator("ps-decision .ask").waitFor();
    const focused = () => page.evaluate(() => document.activeElement.shadowRoot?.activeElement?.dataset.control ?? document.activeElement.id);
    await page.locator("#before").focus();
    await page.keyboard.press("y");
    assert.equal(await focused(), "before");
    await page.keyboard.press("Tab");
    await page.keyboard.press("y");
    assert.equal(await focused(), "approve");
    await page.keyboard.press("Enter");
    assert.equal((await decide(run)).control, "approve");
    await page.locator("ps-decision").getByText("Approved").waitFor();
  });

  test("the inbox lists what waits, decides in place, and reports what a person opens", limit, async (context) => {
    const own = await startServer("--embed-origin", pages.origin);
    context.after(own.stop);
    const [first, second] = [await ask("first", {}, own.url), await ask("second", {}, own.url)];
    const page = await open(context, pages.addFiles("inbox", { "": plain(own.url, "<ps-inbox></ps-inbox>") }));
    const inbox = page.locator("ps-inbox");
    await inbox.locator(".inbox-row").nth(1).waitFor();
    assert.equal((await eventsOf(page, "ps-count")).at(-1).count, 2);
    await inbox.locator(".inbox-row", { hasText: "Delete first?" }).click();
    await inbox.locator("ps-action .card-title", { hasText: "Delete first?" }).waitFor();
    await inbox.getByRole("button", { name: "Open session" }).click();
    assert.deepEqual((({ kind, id }) => ({ kind, id }))(await eventOf(page, "ps-open")), { kind: "session", id: first.thread });
    await inbox.getByRole("button", { name: "Approve" }).click();
    assert.deepEqual((({ runId, actionId }) => ({ runId, actionId }))(await eventOf(page, "ps-answered")), { runId: first.run, actionId: "a" });
    await page.waitForFunction(() => window.events.findLast(({ type }) => type === "ps-count").count === 1);
    assert.equal(await inbox.locator(".inbox-row", { hasText: "Delete second?" }).count(), 1);
    assert.equal(second.run, "run-second");
  });

  test("a page replaces texts", limit, async (context) => {
    const run = await ask("texts");
    const script = `import { setStrings } from "${server.url}/embed.js"; setStrings({ Approve: "Genehmigen", "waiting {time}": "wartet seit {time}", "Needs approval": "Braucht Zustimmung" });`;
    const page = await open(context, pages.addFiles("texts", { "": plain(server.url, `<ps-decision run="${run.run}" action="a"></ps-decision>`, script) }));
    await page.locator("ps-decision").getByRole("button", { name: "Genehmigen" }).waitFor();
    await page.locator("ps-decision").getByText("Braucht Zustimmung").waitFor();
  });

  test("a page replaces the texts of a conversation and a trace", limit, async (context) => {
    const run = await ask("words");
    await publish(server.url, run, [{ type: "text.final", messageId: "m", payload: { role: "user", text: "Hello" } }, { type: "tool.started", toolCallId: "c", payload: { toolName: "search" } }]);
    const german = { Send: "Senden", Queue: "Einreihen", "Message {name}…": "Nachricht an {name}…", "the agent": "den Agenten", You: "Sie", "Filter by name, tool, text": "Nach Name, Werkzeug, Text filtern", Duration: "Dauer", Thinking: "Denken" };
    const script = `import { setStrings } from "${server.url}/embed.js"; setStrings(${JSON.stringify(german)});`;
    const body = `<ps-conversation session="${run.thread}"></ps-conversation><ps-trace run="${run.run}"></ps-trace>`;
    const page = await open(context, pages.addFiles("words", { "": plain(server.url, body, script).replace("ps-decision, ps-inbox {", "ps-conversation, ps-trace { height: 420px; display: block } ps-decision {") }));
    const [conversation, trace] = [page.locator("ps-conversation"), page.locator("ps-trace")];
    await conversation.getByPlaceholder("Nachricht an den Agenten…").waitFor();
    await conversation.getByText("Sie", { exact: true }).first().waitFor();
    for (const word of ["Senden", "Einreihen"]) await conversation.locator(".modes", { hasText: word }).waitFor();
    await trace.getByPlaceholder("Nach Name, Werkzeug, Text filtern").waitFor();
    await trace.locator(".trace-legend", { hasText: "Denken" }).waitFor();
    assert.deepEqual(page.problems, []);
  });

  test("what a page has in the slot “empty” stands where there is nothing, and gives way to what comes", limit, async (context) => {
    const own = await startServer("--embed-origin", pages.origin);
    context.after(own.stop);
    await publish(own.url, { run: "r-calm", thread: "s-calm", agent: "calm" }, [{ type: "run.started" }]);
    const body = `<ps-inbox><p slot="empty">All done.</p></ps-inbox><ps-conversation session="s-calm"><p slot="empty">Ask away.</p></ps-conversation>
      <ps-decision run="r-calm" action="a"><p slot="empty">Nothing to decide.</p></ps-decision>`;
    const page = await open(context, pages.addFiles("empty", { "": plain(own.url, body).replace("ps-decision, ps-inbox {", "ps-conversation { height: 420px; display: block } ps-decision, ps-inbox {") }));
    for (const words of ["All done.", "Ask away.", "Nothing to decide."]) await page.getByText(words).waitFor();
    assert.equal(await page.locator("ps-inbox .inbox-empty").isVisible(), false);
    assert.equal(await page.locator("ps-conversation textarea").isVisible(), true, "a message begins the conversation");
    await publish(own.url, { run: "r-calm", thread: "s-calm", agent: "calm" }, [
      { type: "text.final", messageId: "m", payload: { text: "Hello" } },
      { type: "action.required", actionId: "a", payload: { kind: "tool_approval", title: "Ship it?", toolName: "ship" } },
    ]);
    await page.locator("ps-inbox .inbox-row").waitFor();
    await page.locator("ps-conversation .speech", { hasText: "Hello" }).waitFor();
    await page.locator("ps-decision .card-title", { hasText: "Ship it?" }).waitFor();
    for (const words of ["All done.", "Ask away.", "Nothing to decide."]) await page.getByText(words).waitFor({ state: "hidden" });
    assert.deepEqual(page.problems, []);
  });

  for (const colorScheme of ["light", "dark"]) {
    test(`axe finds nothing serious in the elements (${colorScheme})`, limit, async (context) => {
      const own = await startServer("--embed-origin", pages.origin);
      context.after(own.stop);
      const run = await ask("axe", {}, own.url);
      await publish(own.url, run, [{ type: "text.final", messageId: "m", payload: { text: "Reading **all** of it" } }, { type: "tool.started", toolCallId: "c", payload: { toolName: "search" } }]);
      const body = `<main><h1>Elements</h1><ps-inbox></ps-inbox><ps-decision run="${run.run}" action="a"></ps-decision><ps-conversation session="${run.thread}"></ps-conversation><ps-trace run="${run.run}"></ps-trace></main>`;
      const style = "ps-conversation, ps-trace { display: block; height: 420px } ps-inbox { height: 480px } :root { color-scheme: light dark; } body { background: Canvas; }";
      const html = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Elements</title><link rel="icon" href="data:,"><style>${style}</style></head><body>${body}<script type="module" src="${own.url}/embed.js"></script></body></html>`;
      const page = await open(context, pages.addFiles(`axe-${colorScheme}`, { "": html }));
      await page.emulateMedia({ colorScheme });
      for (const shown of ["ps-inbox .inbox-row", "ps-inbox .ask", "ps-decision .ask", "ps-conversation .speech", "ps-trace .trace-row"]) await page.locator(shown).first().waitFor();
      await page.evaluate(await readFile(here("../../web-demo/node_modules/axe-core/axe.min.js"), "utf8"));
      const { violations } = await page.evaluate(() => window.axe.run("main", { resultTypes: ["violations"] }));
      assert.deepEqual(violations.filter(({ impact }) => ["serious", "critical"].includes(impact)).map(({ id, nodes }) => [id, nodes.map(({ target }) => target.flat().join(" "))]), []);
    });
  }

  test("a page of an origin that the server does not admit gets nothing", limit, async (context) => {
    const other = await startServer("--embed-origin", "https://app.example");
    context.after(other.stop);
    await ask("foreign", {}, other.url);
    const page = await open(context, pages.addFiles("foreign", { "": plain(other.url, `<ps-decision run="run-foreign" action="a"></ps-decision>`) }));
    await page.waitForFunction(() => performance.getEntriesByType("resource").some(({ name }) => name.endsWith("/embed.js")));
    assert.equal(await page.evaluate(() => customElements.get("ps-decision")), undefined);
    // The script of an admitted server says why the other one does not answer.
    const apart = await open(context, pages.addFiles("apart", { "": plain(server.url, `<ps-decision server="${other.url}" run="run-foreign" action="a"></ps-decision>`).replace("connect-src", `connect-src ${other.url}`) }));
    const error = await eventOf(apart, "ps-error");
    assert.equal(error.code, "unreachable");
    await apart.locator("ps-decision").getByText(`The server does not answer, or does not admit pages of ${pages.origin}.`).waitFor();
  });

  test("only an admitted page shows the workbench in a frame", limit, async (context) => {
    const other = await startServer("--embed-origin", "https://app.example");
    context.after(other.stop);
    const framed = (url) => ({ "": `<!doctype html><link rel="icon" href="data:,"><iframe src="${url}/" width="900" height="600"></iframe>` });
    const page = await open(context, pages.addFiles("framed", framed(server.url)));
    await page.frameLocator("iframe").locator("#stage").waitFor();
    const refused = await open(context, pages.addFiles("refused", framed(other.url)));
    assert.equal(await refused.frameLocator("iframe").locator("#stage").count(), 0);
    assert.ok(refused.problems.some((text) => text.includes("frame-ancestors")), refused.problems.join());
  });

  test("an expired token says so, and another one goes on", limit, async (context) => {
    const folder = mkdtempSync(join(tmpdir(), "proscenium-embed-"));
    context.after(() => rmSync(folder, { recursive: true }));
    const key = join(folder, "key");
    const token = (...rights) => execFileSync(BINARY, ["token", "--key", key, "--sessions", "*", ...rights], { encoding: "utf8" }).trim();
    execFileSync(BINARY, ["token", "--key", key, "--generate", "--sessions", "*", "--can", "read"]);
    const guarded = await startServer("--embed-origin", pages.origin, "--auth-key", key);
    context.after(guarded.stop);
    const facts = [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { kind: "tool_approval", title: "Ship it?" } }];
    const published = await fetch(`${guarded.url}/v1/runs/r/facts`, { method: "POST", headers: { "content-type": "application/json", authorization: `Bearer ${token("--can", "publish")}` }, body: JSON.stringify(facts) });
    assert.equal(published.status, 200);
    const body = `<ps-decision run="r" action="a" token="${token("--can", "read", "--ttl", "1s")}"></ps-decision>`;
    const page = await open(context, pages.addFiles("expired", { "": plain(guarded.url, body) }));
    // The browser may lose a first connection, which is `unreachable`, and is tried again.
    const found = await page.waitForFunction(() => window.events.find(({ type, code }) => type === "ps-error" && code !== "unreachable"));
    const error = await found.jsonValue();
    assert.deepEqual([error.code, error.status, error.reason], ["unauthenticated", 401, "expired"], page.problems.join());
    await page.locator("ps-decision").getByText("Your access has expired. Sign in again.").waitFor();
    // As a property, a function that may take its time.
    await page.evaluate((text) => (document.querySelector("ps-decision").token = async () => text), token("--can", "read"));
    await page.locator("ps-decision .card-title", { hasText: "Ship it?" }).waitFor();
    await page.locator("ps-decision").getByText("Your access has expired").waitFor({ state: "hidden" });
  });

  test("a conversation streams, takes a message, and has its decision; a trace has the steps", limit, async (context) => {
    const run = await ask("talk");
    await publish(server.url, run, [{ type: "text.delta", messageId: "m", payload: { text: "Reading **all** of it" } }, { type: "tool.started", toolCallId: "c", payload: { toolName: "search" } }]);
    const style = "height: 420px; display: block";
    const body = `<ps-conversation session="${run.thread}"></ps-conversation><ps-trace run="${run.run}"></ps-trace>`;
    const page = await open(context, pages.addFiles("talk", { "": plain(server.url, body).replace("ps-decision, ps-inbox {", `ps-conversation, ps-trace { ${style} } ps-conversation, ps-trace {`) }));
    const conversation = page.locator("ps-conversation");
    await conversation.locator(".speech strong", { hasText: "all" }).waitFor();
    await publish(server.url, run, [{ type: "text.delta", messageId: "m", payload: { text: ", and more" } }]);
    await conversation.locator(".speech", { hasText: "and more" }).waitFor();
    assert.equal(await conversation.locator(".speech .body").first().evaluate((node) => getComputedStyle(node).fontSize), "14.5px");
    await conversation.getByRole("button", { name: "Approve" }).click();
    assert.equal((await eventOf(page, "ps-answered")).runId, run.run);
    await decide(run);
    await conversation.getByText("Approved").first().waitFor();
    await conversation.locator("textarea").fill("Go on");
    await conversation.getByRole("button", { name: /Send|Queue/ }).first().click();
    const { value } = await claim(server.url, run.agent);
    assert.match(JSON.stringify(value), /Go on/);
    await page.locator("ps-trace").getByText("search").first().waitFor();
    assert.notEqual(await page.locator("ps-trace rect.bar").first().evaluate((bar) => getComputedStyle(bar).fill), "rgb(0, 0, 0)");
    assert.deepEqual(page.problems, []);
  });

  test("what is missing is said: an attribute, or the decision", limit, async (context) => {
    await ask("missing");
    const page = await open(context, pages.addFiles("missing", { "": plain(server.url, `<ps-decision id="a" run="run-missing"></ps-decision><ps-decision id="b" run="run-missing" action="none"></ps-decision>`) }));
    await page.locator("#a").getByText("This element needs its attributes “run” and “action”.").waitFor();
    await page.locator("#b").getByText("There is no such decision, or the token does not permit it.").waitFor();
    assert.equal((await eventOf(page, "ps-error")).code, "incomplete");
  });
});
