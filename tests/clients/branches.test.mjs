/**
 * `useChat` in a browser, unchanged: a person asks again, edits the question, loads the page again, and goes back to the
 * first branch.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { limit } from "../deadline.mjs";
import { requestJson, startAgUiAgent, startServer } from "./harness.mjs";
import { openBrowser, servePages } from "./pages.mjs";

const CHAT = "trip";

const page = (url) => `
  import { use } from "react";
  import { useChat } from "@ai-sdk/react";
  import { DefaultChatTransport } from "ai";

  const api = "${url}/ai-sdk/guide";
  const history = fetch(api + "/${CHAT}?version=7").then((response) => response.json());

  const Page = () => {
    const transport = new DefaultChatTransport({ api: api + "?version=7" });
    const { messages, sendMessage, regenerate } = useChat({ id: "${CHAT}", messages: use(history).messages, transport });
    const question = messages.findLast(({ role }) => role === "user");
    return (
      <main>
        <ol>{messages.map(({ id, role, parts }) => <li key={id}>{role}: {parts.map(({ text }) => text)}</li>)}</ol>
        <button onClick={() => sendMessage({ text: "Where to go in May?" })}>Ask</button>
        <button onClick={() => regenerate()}>Ask again</button>
        <button onClick={() => sendMessage({ text: "Where to go in June?", messageId: question.id })}>Edit</button>
      </main>
    );
  };
`;

let pages, browser;
before(async () => {
  [pages, browser] = await Promise.all([servePages(), openBrowser()]);
});
after(() => Promise.all([pages?.stop(), browser?.close()]));

test("useChat asks again, edits a question, and goes back to the first branch", limit, async (context) => {
  const [asked, answers] = [[], ["To Rome.", "To Lisbon.", "To Oslo."]];
  const agent = await startAgUiAgent(({ messages }) => {
    const delta = answers[asked.push(messages.map(({ content }) => content)) - 1];
    const messageId = `answer-${asked.length}`;
    return [
      { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
      { type: "TEXT_MESSAGE_CONTENT", messageId, delta },
      { type: "TEXT_MESSAGE_END", messageId },
    ];
  });
  context.after(() => agent.stop());
  const server = await startServer("--cors-origin", pages.origin, "--connect", `guide=ag-ui:${agent.url}`);
  context.after(() => server.stop());
  const tab = await browser.context.newPage();
  context.after(() => tab.close());
  await tab.goto(await pages.addCode("branches", page(server.url)));

  const press = (button) => tab.getByRole("button", { name: button, exact: true }).click();
  /** Waits until the chat has these messages and no others, and the same after a reload. */
  const shows = async (...lines) => {
    for (const when of ["at once", "after a reload"]) {
      await tab.getByText(lines.at(-1), { exact: true }).waitFor();
      assert.deepEqual(await tab.getByRole("listitem").allTextContents(), lines, when);
      await tab.reload();
    }
  };

  await press("Ask");
  const first = ["user: Where to go in May?", "assistant: To Rome."];
  await shows(...first);
  await press("Ask again");
  await shows("user: Where to go in May?", "assistant: To Lisbon.");
  await press("Edit");
  await shows("user: Where to go in June?", "assistant: To Oslo.");

  assert.deepEqual(asked, [["Where to go in May?"], ["Where to go in May?"], ["Where to go in June?"]], "no branch has another's answer");
  const session = `${server.url}/v1/sessions/${CHAT}`;
  const { branches, head } = await requestJson(session);
  assert.equal(branches.length, 2, "the first answer is no branch");
  assert.equal(head, branches[1].sessionId);
  const choose = (branch) => requestJson(session, { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify({ head: branch }) });
  await choose(null);
  await tab.reload();
  await shows(...first);
  await choose(branches[0].sessionId);
  await tab.reload();
  await shows("user: Where to go in May?", "assistant: To Lisbon.");
});
