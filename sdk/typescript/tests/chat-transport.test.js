/** The AI SDK's chat over connections that break. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { AbstractChat } from "ai";
import { Problem, ProsceniumChatTransport, worker } from "proscenium-client";
import { limit, startProxy, startServer, waitFor } from "./harness.js";

const server = await startServer();

/** `useChat` without React. */
class Chat extends AbstractChat {
  constructor({ messages = [], ...init }) {
    const state = {
      status: "ready", error: undefined, messages,
      pushMessage: (message) => (state.messages = [...state.messages, message]),
      popMessage: () => (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (at, message) => (state.messages = state.messages.with(at, message)),
      snapshot: structuredClone,
    };
    super({ ...init, state });
  }
}

const textOf = ({ messages }) => messages.at(-1).parts.filter(({ type }) => type === "text").map(({ text }) => text).join("");
const take = async (agent) => (await worker({ base: server.url, agent }).next()).value;
const words = Array.from({ length: 200 }, (_, at) => `word ${at}, `);

test("an answer continues where its connection broke, each time", limit, async () => {
  const proxy = await startProxy(server.url);
  // Each connection ends inside an event.
  proxy.cutAfter = 4_001;
  const chat = new Chat({ id: "cut", transport: new ProsceniumChatTransport({ base: proxy.url, agent: "cut" }) });
  const done = chat.sendMessage({ text: "Say much." });
  const control = await take("cut");
  await control.accept(async (run) => {
    run.userMessage(control.text, control.messageId);
    const message = run.message();
    for (const word of words) {
      message.text(word);
      // Each word is an event of its own.
      await run.flush();
    }
    message.close();
  });
  await done;
  assert.equal(chat.status, "ready", String(chat.error));
  assert.equal(textOf(chat), words.join(""));
  assert.ok(proxy.connections > 3, `${proxy.connections} connections`);
});

test("a page that reloads gets the whole message, and null when no run is active", limit, async () => {
  const transport = new ProsceniumChatTransport({ base: server.url, agent: "reload" });
  const first = new Chat({ id: "reload", transport });
  void first.sendMessage({ text: "Begin." });
  const control = await take("reload");
  await control.accept(async (run) => {
    run.userMessage(control.text, control.messageId);
    const message = run.message();
    message.text("One ");
    await waitFor("the first page", () => first.messages.length === 2 && textOf(first) === "One ");
    await first.stop();
    const second = new Chat({ id: "reload", messages: (await transport.history("reload")).messages, transport });
    const resumed = second.resumeStream();
    message.text("two.");
    message.close();
    run.finish();
    await resumed;
    assert.equal(textOf(second), "One two.");
  });
  assert.equal(await transport.reconnectToStream({ chatId: "reload" }), null);
  const { messages, activeRun } = await transport.history("reload");
  assert.deepEqual([messages.map(({ role }) => role), activeRun], [["user", "assistant"], null]);
});

test("stop asks the agent to end the run", limit, async () => {
  const transport = new ProsceniumChatTransport({ base: server.url, agent: "stops" });
  const chat = new Chat({ id: "stops", transport });
  const done = chat.sendMessage({ text: "Begin." });
  const controls = worker({ base: server.url, agent: "stops" });
  const { value: control } = await controls.next();
  await control.accept(async (run) => {
    await transport.stop("stops");
    const { value: interrupt } = await controls.next();
    assert.equal(interrupt.control, "interrupt");
    run.finish(undefined, "cancelled");
    await run.flush();
    await interrupt.ack();
  });
  await done;
  assert.equal(chat.status, "ready");
});

test("a refusal of the server reaches the chat as its problem", limit, async () => {
  const transport = new ProsceniumChatTransport({ base: server.url, agent: "x".repeat(300) });
  await assert.rejects(transport.history("chat"), (error) => error instanceof Problem && error.code === "bad_id");
  const chat = new Chat({ id: "refused", transport, onError() {} });
  await chat.sendMessage({ text: "Hello." });
  assert.deepEqual([chat.status, chat.error.code], ["error", "bad_id"]);
});

test("an abort ends the stream and its connection", limit, async () => {
  const transport = new ProsceniumChatTransport({ base: server.url, agent: "aborts" });
  const abort = new AbortController();
  const message = { id: "u1", role: "user", parts: [{ type: "text", text: "Begin." }] };
  const opening = transport.sendMessages({ chatId: "aborts", trigger: "submit-message", messages: [message], abortSignal: abort.signal });
  const control = await take("aborts");
  await control.accept(async (run) => {
    run.userMessage(control.text, control.messageId);
    const reader = (await opening).getReader();
    assert.equal((await reader.read()).value.type, "start");
    abort.abort();
    await assert.rejects(async () => {
      for (let read = await reader.read(); !read.done; ) read = await reader.read();
    }, { name: "AbortError" });
  });
});
