/**
 * `WorkflowChatTransport` of `@ai-sdk/workflow`, unchanged: it counts the chunks of an answer, and when the answer breaks,
 * it asks for the rest by their number. Wherever it is cut, the chat gets each text once.
 */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { WorkflowChatTransport } from "@ai-sdk/workflow/client";
import { DEADLINE, limit } from "../deadline.mjs";
import { chats } from "./ai-sdk.mjs";
import { ack, claim, collectComplaints, fetchActivities, publish, requestJson, startCuttableProxy, startServer, startWorker, textsInOrder, waitFor } from "./harness.mjs";
import { openBrowser, servePages } from "./pages.mjs";

const { createChat } = chats.find(({ version }) => version === 7);

/** A run with text, reasoning, a call, a repaired text and a metric. */
const FACTS = [
  { type: "run.started" },
  { type: "reasoning.delta", messageId: "a", partId: "t", payload: { text: "Let me " } },
  { type: "reasoning.delta", messageId: "a", partId: "t", payload: { text: "look." } },
  { type: "text.delta", messageId: "a", partId: "p", payload: { text: "One " } },
  { type: "text.delta", messageId: "a", partId: "p", payload: { text: "moment." } },
  { type: "tool.started", toolCallId: "c", payload: { toolName: "ls", input: { path: "." } } },
  { type: "tool.progress", toolCallId: "c", audience: "user", payload: { message: "half" } },
  { type: "tool.result", toolCallId: "c", audience: "user", payload: { output: "a.txt" } },
  { type: "text.delta", messageId: "b", partId: "p", payload: { text: "Only " } },
  { type: "text.delta", messageId: "b", partId: "p", payload: { text: "a.txt." } },
  { type: "text.final", messageId: "b", partId: "p", payload: { text: "Just a.txt." } },
  { type: "run.finished" },
];

/** Cuts a response after this many chunks, once its reader has them, as a network does. */
function cutAfter({ body, status, headers }, chunks) {
  const [reader, decoder] = [body.getReader(), new TextDecoder()];
  let [seen, rest] = [0, ""];
  const pull = async (controller) => {
    while (!rest.includes("\n\n")) {
      if (seen === chunks) return void controller.error(new TypeError("network error"));
      const { done, value } = await reader.read();
      if (done) return void controller.close();
      rest += decoder.decode(value, { stream: true });
    }
    if (seen === chunks) return void controller.error(new TypeError("network error"));
    const end = rest.indexOf("\n\n") + 2;
    controller.enqueue(new TextEncoder().encode(rest.slice(0, end)));
    [seen, rest] = [seen + 1, rest.slice(end)];
  };
  return new Response(new ReadableStream({ pull, cancel: () => reader.cancel() }, { highWaterMark: 0 }), { status, headers });
}

/** A chat whose first answer is cut after `cut` chunks; `requests` are those that it sends. */
function open(url, id, cut = Infinity, options = {}) {
  const [requests, answers] = [[], []];
  const transport = new WorkflowChatTransport({
    api: `${url}/ai-sdk/helper`,
    // The version belongs to every request, and the transport appends its own query.
    async fetch(input, init) {
      const address = new URL(input);
      address.searchParams.set("version", "7");
      requests.push(`${init.method ?? "GET"} ${address.pathname.split("/").slice(3).join("/")}${address.search}`);
      const response = await fetch(address, init);
      answers.push(response.status);
      return init.method === "POST" ? cutAfter(response, cut) : response;
    },
    prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({ body: { id, messages, trigger, messageId }, headers: { "content-type": "application/json" } }),
    ...options,
  });
  return { chat: createChat({ id, messages: [], transport, onError() {} }), requests, answers };
}

describe("WorkflowChatTransport", () => {
  let server;
  before(async () => (server = await startServer()));
  after(() => server?.stop());

  /** Runs the facts in a chat, one after the other. */
  async function answer(id, facts = FACTS) {
    const control = await claim(server.url, "helper");
    await ack(server.url, control);
    for (const fact of facts) await publish(server.url, { run: control.value.runId, thread: id, agent: "helper" }, [fact]);
    return control.value.runId;
  }

  test("gets each text once, cut after any chunk", limit, async () => {
    const whole = open(server.url, "whole");
    const [run] = await Promise.all([answer("whole"), whole.chat.sendMessage({ text: "List" })]);
    const expected = whole.chat.messages.at(-1).parts;
    assert.deepEqual(whole.requests, ["POST ?version=7"]);
    assert.deepEqual(expected.filter(({ type }) => type === "text").map(({ text }) => text), ["One moment.", "Just a.txt."]);
    const loaded = await requestJson(`${server.url}/ai-sdk/helper/whole?version=7`);
    // The library sets members that it has no value for.
    assert.deepEqual(JSON.parse(JSON.stringify(expected)), loaded.messages.at(-1).parts);
    assert.equal(loaded.messages.at(-1).id, run);
    for (let cut = 0; ; cut += 1) {
      const { chat, requests } = open(server.url, `cut-${cut}`, cut);
      const complaints = await collectComplaints(() => Promise.all([answer(`cut-${cut}`), chat.sendMessage({ text: "List" })]));
      if (requests.length === 1) break;
      assert.equal(chat.status, "ready", `cut after ${cut}: ${chat.error}`);
      const { parts, id: message, metadata } = chat.messages.at(-1);
      assert.deepEqual(parts, expected, `cut after ${cut} chunks`);
      assert.equal(metadata.runId, message);
      assert.deepEqual(requests.slice(1), [`GET ${message}~7~user/stream?startIndex=${cut}&version=7`]);
      assert.ok(complaints.every((complaint) => complaint.includes("network error")), complaints.join("\n"));
      assert.ok(cut < 100, "the whole answer has fewer chunks");
    }
  });

  test("follows a run that another page began, from its start and from its end, and leaves a chat at rest alone", limit, async () => {
    const { chat: asking } = open(server.url, "shared");
    const sent = asking.sendMessage({ text: "List" });
    const control = await claim(server.url, "helper");
    await ack(server.url, control);
    const of = { run: control.value.runId, thread: "shared", agent: "helper" };
    await publish(server.url, of, FACTS.slice(0, 5));
    const [{ chat: all }, { chat: last, answers }] = [open(server.url, "shared"), open(server.url, "shared", Infinity, { initialStartIndex: -1 })];
    const following = all.resumeStream();
    // Its stream begins within a part, which it says, and drops.
    const complaints = collectComplaints(() => last.resumeStream());
    await waitFor("the stream from the end", () => answers.length === 1);
    const texts = ({ messages }) => (messages.at(-1)?.parts ?? []).filter(({ type }) => type === "text").map(({ text }) => text);
    await waitFor("the text", () => texts(all)[0] === "One moment.");
    await publish(server.url, of, FACTS.slice(5));
    await Promise.all([sent, following]);
    assert.match((await complaints).join(), /Dropping orphan UI chunk/);
    assert.deepEqual(all.messages.at(-1).parts, asking.messages.at(-1).parts);
    assert.equal(texts(last).at(-1), "Just a.txt.");

    const rests = open(server.url, "shared");
    await rests.chat.resumeStream();
    assert.deepEqual([rests.chat.status, rests.chat.error, rests.chat.messages], ["ready", undefined, []]);
  });

  test("ends with a run that was cancelled", limit, async () => {
    const { chat, requests } = open(server.url, "cancelled");
    await Promise.all([answer("cancelled", [...FACTS.slice(0, 5), { type: "run.finished", payload: { status: "cancelled" } }]), chat.sendMessage({ text: "List" })]);
    assert.deepEqual([chat.status, chat.error], ["ready", undefined]);
    assert.deepEqual(chat.messages.at(-1).parts.filter(({ type }) => type === "text").map(({ text }) => text), ["One moment."]);
    assert.equal(requests.length, 2);
  });
});

describe("useChat with WorkflowChatTransport", () => {
  test("shows an answer that is cut twice, once", limit, async (context) => {
    const [pages, browser] = await Promise.all([servePages(), openBrowser()]);
    const server = await startServer("--cors-origin", pages.origin);
    const worker = await startWorker(server.url, "worker", 40);
    const proxy = await startCuttableProxy(server.url);
    context.after(() => Promise.all([browser.close(), pages.stop(), worker.stop(), proxy.close()]).then(() => server.stop()));
    const code = `
      import { useChat } from "@ai-sdk/react";
      import { WorkflowChatTransport } from "@ai-sdk/workflow/client";
      const transport = new WorkflowChatTransport({
        api: ${JSON.stringify(`${proxy.url}/ai-sdk/worker`)},
        fetch: (url, init) => fetch(url + (url.includes("?") ? "&" : "?") + "version=7", init),
        prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({ body: { id, messages, trigger, messageId }, headers: { "content-type": "application/json" } }),
      });
      export default function Page() {
        const { messages, sendMessage, status } = useChat({ id: "t1", transport });
        return <main data-status={status}>
          {messages.filter(({ role }) => role === "assistant").flatMap(({ parts }) => parts.map((part, at) => part.type === "text" && <p key={at}>{part.text}</p>))}
          <button onClick={() => sendMessage({ text: "Which files are here?" })}>Ask</button>
        </main>;
      }`;
    const page = await browser.context.newPage();
    await page.goto(await pages.addCode("workflow", code));
    await page.getByRole("button", { name: "Ask" }).click();
    for (let cuts = 1; cuts <= 2; cuts += 1) {
      const before = await page.locator("p").allInnerTexts();
      await waitFor("more text", async () => (await page.locator("p").allInnerTexts()).join("").length > before.join("").length, DEADLINE);
      const length = proxy.requests.length;
      proxy.cut();
      await waitFor("a request for the rest", () => proxy.requests.slice(length).some((head) => /^GET \S*startIndex=[1-9]/.test(head)));
    }
    await page.locator('main[data-status="ready"]').waitFor();
    const { messages } = await requestJson(`${server.url}/ai-sdk/worker/t1?version=7`);
    const activities = await fetchActivities(server.url, messages.at(-1).id);
    const shown = messages.at(-1).parts.filter(({ type }) => type === "text").map(({ text }) => text);
    assert.deepEqual(await page.locator("p").allInnerTexts(), shown);
    assert.ok(textsInOrder(activities, ["assistant"]).includes(shown.at(-1)));
  });
});
