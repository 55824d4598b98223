/**
 * Connectors with the packages of the agents: AG-UI's schema and encoder, the AI SDK's own server, LangGraph's server,
 * and agents by the SDKs of A2A and ACP.
 *
 * The agents of Python packages need `PROSCENIUM_PYTHON`, the directory of an environment's programs
 * (`python/requirements.txt`).
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { RunAgentInputSchema } from "@ag-ui/core/schemas";
import { HttpAgent } from "@ag-ui/client";
import { EventEncoder } from "@ag-ui/encoder";
import { ProxiedCopilotRuntimeAgent } from "@copilotkit/core";
import { AbstractChat, DefaultChatTransport, convertToModelMessages, jsonSchema, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { pipeUIMessageStreamToResponse, stepCountIs, streamText, tool } from "ai";
import { MockLanguageModelV4, simulateReadableStream } from "ai/test";
import { limit } from "../deadline.mjs";
import { fetchActivities, joinChunks, post, startServer, waitFor } from "./harness.mjs";
import { pageOf, turnAfterRestart } from "./helper-page.mjs";

/** LangGraph's server keeps its threads between two runs of the tests. */
const once = randomUUID();

const stops = [];
after(async () => {
  for (const stop of stops.reverse()) await stop();
});

/** Starts an agent's endpoint; returns its address. */
async function startEndpoint(handle) {
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    try {
      await handle(JSON.parse(Buffer.concat(chunks).toString()), response);
    } catch (error) {
      response.statusCode = 500;
      response.end(String(error.stack));
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  stops.push(() => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))));
  return `http://127.0.0.1:${server.address().port}/agent`;
}

/** Starts a server with this agent, and a page of it. */
async function openPage(agent, thread) {
  const server = await startServer("--connect", `helper=${agent}`);
  stops.push(() => server.stop());
  return { server, ...pageOf(server, thread) };
}

/** The run of a thread with this status. */
const runWith = (server, thread, status) =>
  waitFor(`a run that is ${status}`, async () => {
    const { runs } = await (await fetch(`${server.url}/v1/sessions/${thread}`)).json();
    return runs?.find((run) => run.status === status);
  });

const contentOf = async (server, run, type) => {
  const { activities } = await (await fetch(`${server.url}/v1/runs/${run}/activities?audience=dashboard`)).json();
  return activities.find(({ activityType }) => activityType === type)?.content;
};
const actionOf = (server, run) => contentOf(server, run, "action");
const attemptOf = async (server, run) => (await contentOf(server, run, "run")).attempt;

/** Whether the log has a fact of the agent, after the acceptance and the user's message. */
const hasBegun = async (server, run) => (await (await fetch(`${server.url}/v1/runs/${run}`)).json()).lastSequence > 2;

/** Interrupts a run. */
const interruptRun = (server, { runId }) => post(`${server.url}/v1/runs/${runId}/controls`, { control: "interrupt" });

/** Tests that a stop closes the connection to an agent, which counts its closed requests. */
function testStop(name, startAgent, countClosed) {
  test("a stop reaches the agent", limit, async () => {
    const { server, say } = await openPage(`${name}:${await startAgent()}`, `${name}-stop`);
    const turn = say("Work").catch(() => {});
    await interruptRun(server, await runWith(server, `${name}-stop`, "running"));
    await runWith(server, `${name}-stop`, "cancelled");
    await waitFor("the end of the request at the agent", () => countClosed() === 1);
    await turn;
  });
}

/** Tests that users see a failure of the agent itself, which ends the run. */
function testFailure(name, agentOf) {
  test("a failure of the agent ends the run as failed", limit, async () => {
    const thread = `${name}-failure-${once}`;
    const { server, page, say } = await openPage(await agentOf(), thread);
    let message;
    page.subscribe({ onRunErrorEvent: ({ event }) => void (message = event.message) });
    await say("Fail").catch(() => {});
    const run = await runWith(server, thread, "failed");
    assert.ok(message, "the page shows an error");
    assert.ok((await contentOf(server, run.runId, "run")).error, "the run has the error");
  });
}

describe("ag-ui", () => {
  const inputs = [];
  let closed = 0;
  const startAgent = () =>
    startEndpoint((body, response) => {
      const input = RunAgentInputSchema.parse(body);
      inputs.push(input);
      const encoder = new EventEncoder();
      response.writeHead(200, { "content-type": encoder.getContentType() });
      const send = (event) => response.write(encoder.encodeSSE(event));
      const { threadId, runId, messages, resume } = input;
      send({ type: "RUN_STARTED", threadId, runId });
      const last = messages.at(-1);
      if (last.content === "Work") {
        send({ type: "TEXT_MESSAGE_START", messageId: "working", role: "assistant" });
        send({ type: "TEXT_MESSAGE_CONTENT", messageId: "working", delta: "Working" });
        return response.on("close", () => (closed += 1));
      }
      if (last.content === "Fail") {
        send({ type: "RUN_ERROR", message: "It broke", code: "broken" });
      } else if (last.content === "Delete a.txt" && !resume) {
        send({ type: "TOOL_CALL_START", toolCallId: "call-1", toolCallName: "delete" });
        send({ type: "TOOL_CALL_ARGS", toolCallId: "call-1", delta: '{"path":"a.txt"}' });
        send({ type: "TOOL_CALL_END", toolCallId: "call-1" });
        const interrupts = [{ id: "ask-1", reason: "tool_call", toolCallId: "call-1", message: "May I?" }];
        send({ type: "RUN_FINISHED", threadId, runId, outcome: { type: "interrupt", interrupts } });
      } else {
        const said = resume ? `approved: ${resume[0].payload.approved}` : `I have ${messages.length} messages.`;
        if (resume) send({ type: "TOOL_CALL_RESULT", messageId: "result-1", toolCallId: "call-1", content: said });
        send({ type: "TEXT_MESSAGE_START", messageId: `answer-${inputs.length}`, role: "assistant" });
        send({ type: "TEXT_MESSAGE_CONTENT", messageId: `answer-${inputs.length}`, delta: said });
        send({ type: "TEXT_MESSAGE_END", messageId: `answer-${inputs.length}` });
        send({ type: "RUN_FINISHED", threadId, runId });
      }
      response.end();
    });

  test("two turns have the log's conversation, in the form of the published schema", limit, async () => {
    const { say, texts } = await openPage(`ag-ui:${await startAgent()}`, "turns");
    await say("Hello");
    await say("Again");
    assert.deepEqual(texts(), ["I have 1 messages.", "I have 3 messages."]);
    assert.deepEqual(inputs.at(-1).messages.map(({ role }) => role), ["user", "assistant", "user"]);
  });

  for (const approved of [true, false]) {
    test(`an interrupt is ${approved ? "approved" : "rejected"} on the page`, limit, async () => {
      const thread = `approval-${approved}`;
      const { server, page, say, texts } = await openPage(`ag-ui:${await startAgent()}`, thread);
      await say("Delete a.txt");
      const [interrupt] = page.pendingInterrupts;
      await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved } }] });
      assert.deepEqual(texts(), [`approved: ${approved}`]);
      const run = await runWith(server, thread, "completed");
      assert.equal((await actionOf(server, run.runId)).outcome, approved ? "approved" : "rejected");
      assert.equal(await attemptOf(server, run.runId), 1);
    });
  }

  testStop("ag-ui", startAgent, () => closed);
  testFailure("ag-ui", async () => `ag-ui:${await startAgent()}`);
});

describe("ai-sdk", () => {
  const prompts = [];
  let aborted = 0;
  /** The AI SDK's own server; only the model is fake. */
  const startAgent = () =>
    startEndpoint(async ({ messages }, response) => {
      const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
      const say = (text) => [{ type: "text-start", id: "0" }, { type: "text-delta", id: "0", delta: text }, { type: "text-end", id: "0" }];
      const model = new MockLanguageModelV4({
        doStream: async ({ prompt, abortSignal }) => {
          prompts.push(prompt);
          const last = prompt.at(-1);
          if (last.role === "user" && last.content[0].text === "Fail") throw new Error("It broke.");
          if (last.role === "user" && last.content[0].text === "Work") {
            abortSignal.addEventListener("abort", () => (aborted += 1));
            const begins = [{ type: "stream-start", warnings: [] }, { type: "text-start", id: "0" }, { type: "text-delta", id: "0", delta: "Working" }];
            return { stream: new ReadableStream({ start: (controller) => begins.forEach((chunk) => controller.enqueue(chunk)) }) };
          }
          const asks = last.role === "user" && last.content[0].text === "Delete a.txt";
          const result = last.role === "tool" ? last.content.find(({ type }) => type === "tool-result") : undefined;
          const said = result ? `result: ${JSON.stringify(result.output)}` : `I have ${prompt.length} messages.`;
          const chunks = asks ? [{ type: "tool-call", toolCallId: "call-1", toolName: "delete", input: '{"path":"a.txt"}' }] : say(said);
          const finishReason = { unified: asks ? "tool-calls" : "stop", raw: undefined };
          return { stream: simulateReadableStream({ chunks: [{ type: "stream-start", warnings: [] }, ...chunks, { type: "finish", finishReason, usage }] }) };
        },
      });
      const tools = {
        delete: tool({
          inputSchema: jsonSchema({ type: "object", properties: { path: { type: "string" } } }),
          needsApproval: true,
          execute: async ({ path }) => `${path} is gone`,
        }),
      };
      const disconnected = new AbortController();
      response.on("close", () => response.writableFinished || disconnected.abort());
      const result = streamText({
        model, tools, stopWhen: stepCountIs(3), messages: await convertToModelMessages(messages, { tools }), abortSignal: disconnected.signal,
        // The backend accepts an approval only with the signature of its own request.
        experimental_toolApprovalSecret: "only the backend knows it", onError: () => {},
      });
      pipeUIMessageStreamToResponse({ response, stream: result.toUIMessageStream({ originalMessages: messages }) });
    });

  test("two turns have the log's conversation", limit, async () => {
    const { say, texts } = await openPage(`ai-sdk:${await startAgent()}`, "chat");
    await say("Hello");
    await say("Again");
    assert.deepEqual(texts(), ["I have 1 messages.", "I have 3 messages."]);
    assert.deepEqual(prompts.at(-1).map(({ role }) => role), ["user", "assistant", "user"]);
  });

  test("a turn after a restart of the server has the log's conversation", limit, async () => {
    assert.equal(await turnAfterRestart("chat-restart", "--connect", `helper=ai-sdk:${await startAgent()}`), "I have 3 messages.");
  });

  for (const approved of [true, false]) {
    test(`a tool's approval is ${approved ? "granted" : "denied"} on the page`, limit, async () => {
      const thread = `chat-${approved}`;
      const { server, page, say, texts } = await openPage(`ai-sdk:${await startAgent()}`, thread);
      await say("Delete a.txt");
      const [interrupt] = page.pendingInterrupts;
      await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved } }] });
      const run = await runWith(server, thread, "completed");
      assert.equal((await actionOf(server, run.runId)).outcome, approved ? "approved" : "rejected");
      assert.equal(await attemptOf(server, run.runId), 1);
      assert.match(texts().at(-1), approved ? /a\.txt is gone/ : /denied/);
    });
  }

  testStop("ai-sdk", startAgent, () => aborted);
  testFailure("ai-sdk", async () => `ai-sdk:${await startAgent()}`);
});

const python = process.env.PROSCENIUM_PYTHON;
const inPython = fileURLToPath(new URL("python/", import.meta.url));

/** Starts a program of the Python environment, and stops it with its children after the tests. */
function startProgram(name, ...args) {
  const child = spawn(`${python}/${name}`, args, { cwd: inPython, stdio: ["ignore", "pipe", "ignore"], detached: true });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  stops.push(() => (process.kill(-child.pid), ended));
  return child;
}

/** An agent that asks which file to delete, and works until it is stopped. */
function describeAgentWithQuestion(name, startAgent, turns, further = () => {}) {
  // Each test has a server and a thread of its own, and LangGraph's server begins runs with a delay.
  describe(name, { concurrency: 4, skip: python ? false : "PROSCENIUM_PYTHON is not set" }, () => {
    let agent;
    before(async () => (agent = await startAgent()), limit);
    further(() => agent);

    test("two turns are one conversation", limit, async () => {
      const { say, texts } = await openPage(agent, `${name}-turns-${once}`);
      await say("Hello");
      await say("Again");
      assert.deepEqual(texts(), turns);
    });

    test("a turn after a restart of the server continues the conversation", limit, async () => {
      assert.equal(await turnAfterRestart(`${name}-later-${once}`, "--connect", `helper=${agent}`), turns[1]);
    });

    test("a question is answered on the page", limit, async () => {
      const { server, page, say, texts } = await openPage(agent, `${name}-question-${once}`);
      await say("Delete");
      const [interrupt] = page.pendingInterrupts;
      assert.equal(interrupt.message, "Which file?");
      await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: "a.txt" }] });
      const run = await runWith(server, `${name}-question-${once}`, "completed");
      assert.equal(texts().at(-1), "answer: a.txt");
      assert.equal((await actionOf(server, run.runId)).outcome, "answered");
      assert.equal(await attemptOf(server, run.runId), 1);
    });

    test("a stop reaches the agent", limit, async () => {
      const { server, say } = await openPage(agent, `${name}-stop-${once}`);
      const turn = say("Work").catch(() => {});
      const run = await waitFor("a run at work", async () => {
        const { runs } = await (await fetch(`${server.url}/v1/sessions/${name}-stop-${once}`)).json();
        const [run] = runs ?? [];
        return run && (await hasBegun(server, run.runId)) && run;
      });
      await interruptRun(server, run);
      await runWith(server, `${name}-stop-${once}`, "cancelled");
      await turn;
    });

    testFailure(name, () => agent);

    test("a run goes on at the agent while this server restarts", limit, async () => {
      const folder = mkdtempSync(join(tmpdir(), "proscenium-"));
      stops.push(() => rmSync(folder, { recursive: true }));
      const [thread, run] = [`${name}-restart-${once}`, `${name}-restart-${once}`];
      const start = () => startServer("--data-dir", join(folder, "data"), "--connect", `helper=${agent}`);
      const first = await start();
      const messages = [{ id: "u", role: "user", content: `Wait ${join(folder, "go")}` }];
      await post(`${first.url}/v1/sessions/${thread}/controls`, { control: "send", agentId: "helper", value: { runId: run, messages } });
      await waitFor("the agent's first fact in the log", () => hasBegun(first, run));
      first.child.kill("SIGKILL");
      await first.stop();
      const second = await start();
      stops.push(() => second.stop());
      writeFileSync(join(folder, "go"), "");
      await runWith(second, thread, "completed");
      const { activities } = await (await fetch(`${second.url}/v1/runs/${run}/activities`)).json();
      const said = activities.filter(({ activityType, content }) => activityType === "message" && content.role === "assistant");
      assert.deepEqual(said.map(({ content }) => content.parts.map(({ text }) => text.join("")).join("")), ["I waited."]);
      assert.equal(await attemptOf(second, run), 1);
    });
  });
}

async function startLangGraph() {
  // The server of LangGraph prints no port that it chose itself.
  const free = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => free.once("listening", resolve));
  const { port } = free.address();
  await new Promise((resolve) => free.close(resolve));
  // It keeps the runs of an earlier process and begins them again. One that waits would hold up all others.
  rmSync(join(inPython, ".langgraph_api"), { recursive: true, force: true });
  const child = startProgram("langgraph", "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", String(port));
  // It stops when nothing reads its log.
  child.stdout.resume();
  await waitFor("the server of LangGraph", async () => (await fetch(`http://127.0.0.1:${port}/ok`).catch(() => {}))?.ok);
  return `langgraph:http://127.0.0.1:${port}`;
}

async function startA2a() {
  const child = startProgram("python", "a2a_agent.py");
  for await (const line of createInterface({ input: child.stdout })) return `a2a:${line.replace("listening on ", "")}/agent`;
}

/** The clients that ask for the removal of a file, and decide about it: each `ask` is another tab of one thread. */
const CARD_CLIENTS = {
  "the page's controls": (server, thread) => async (text) => {
    const page = new HttpAgent({ url: `${server.url}/ag-ui/helper`, threadId: thread });
    page.addMessage({ id: randomUUID(), role: "user", content: text });
    await page.runAgent();
    const { runs } = await (await fetch(`${server.url}/v1/sessions/${thread}`)).json();
    const [{ id: actionId }] = page.pendingInterrupts;
    const { runId } = runs.find(({ status }) => status === "waiting");
    return (isApproved) => post(`${server.url}/v1/runs/${runId}/controls`, { control: isApproved ? "approve" : "reject", actionId });
  },
  "AG-UI": (server, thread) => agUiCard(() => new HttpAgent({ url: `${server.url}/ag-ui/helper`, threadId: thread })),
  CopilotKit: (server, thread) =>
    agUiCard(() => new ProxiedCopilotRuntimeAgent({ runtimeUrl: `${server.url}/copilotkit`, agentId: "helper", threadId: thread })),
  "the AI SDK": (server, thread) => async (text) => {
    const transport = new DefaultChatTransport({ api: `${server.url}/ai-sdk/helper?version=7` });
    const sendAutomaticallyWhen = lastAssistantMessageIsCompleteWithApprovalResponses;
    const chat = new Chat({ id: thread, transport, sendAutomaticallyWhen, onError() {} });
    await chat.sendMessage({ text });
    const { approval } = chat.messages.flatMap(({ parts }) => parts).find(({ state }) => state === "approval-requested");
    return (approved) => chat.addToolApprovalResponse({ id: approval.id, approved });
  },
};

/** The chat of the AI SDK without React. */
class Chat extends AbstractChat {
  constructor(init) {
    const state = {
      status: "ready", error: undefined, messages: [],
      pushMessage: (message) => (state.messages = [...state.messages, message]),
      popMessage: () => (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (at, message) => (state.messages = state.messages.with(at, message)),
      snapshot: structuredClone,
    };
    super({ ...init, state });
  }
}

const agUiCard = (open) => async (text) => {
  const page = open();
  page.addMessage({ id: randomUUID(), role: "user", content: text });
  await page.runAgent();
  const [{ id }] = page.pendingInterrupts;
  return (approved) => page.runAgent({ resume: [{ interruptId: id, status: "resolved", payload: { approved } }] });
};

/** The results of all calls of a thread. */
const resultsOf = async (server, thread) => {
  const { runs } = await (await fetch(`${server.url}/v1/sessions/${thread}`)).json();
  const shown = await Promise.all(runs.map(async ({ runId }) => (await (await fetch(`${server.url}/v1/runs/${runId}/activities?audience=internal`)).json()).activities));
  return shown.flat().filter(({ activityType, content }) => activityType === "tool-call-progress" && content.output).map(({ content }) => content.output);
};

describeAgentWithQuestion("langgraph", startLangGraph, ["I have 1 messages.", "I have 3 messages."], (agent) => {
  test("a tool of the agent and its result are on the page", limit, async () => {
    const { page, say, texts } = await openPage(agent(), `langgraph-tool-${once}`);
    await say("Look");
    assert.deepEqual(page.messages.flatMap(({ toolCalls }) => toolCalls ?? []).map((call) => call.function), [{ name: "look", arguments: '{"path":"a.txt"}' }]);
    assert.deepEqual(page.messages.filter(({ role }) => role === "tool").map(({ content }) => content), ["a.txt is there"]);
    assert.deepEqual(texts(), ["result: a.txt is there"]);
  });

  test("a branch has a copy of the thread at its point, or the conversation", limit, async () => {
    const thread = `langgraph-branches-${randomUUID()}`;
    const { server, say } = await openPage(agent(), thread);
    await say("Look");
    await say("Again");
    const { runs } = await (await fetch(`${server.url}/v1/sessions/${thread}`)).json();
    const ofRuns = await Promise.all(runs.map(({ runId }) => fetchActivities(server.url, runId)));
    const first = ofRuns.find((activities) => activities.some(({ content }) => content.parts?.[0]?.text?.[0] === "Look"));
    const messages = first.filter(({ activityType }) => activityType === "message");
    // The graph counts the question, the call, its result and the answer.
    for (const [message, fork, count] of [[messages.at(-1), "state", 5], [messages[0], "transcript", 2]]) {
      const made = await post(`${server.url}/v1/sessions/${thread}/branches`, { after: { messageId: message.activityId } });
      assert.equal(made.fork, fork);
      for (const [n, text] of ["One", "Two"].entries()) {
        const run = randomUUID();
        const message = { id: randomUUID(), role: "user", content: text };
        await post(`${server.url}/v1/sessions/${made.sessionId}/controls`, { control: "send", agentId: "helper", value: { runId: run, messages: [message] } });
        await waitFor("the end of the run", async () => (await (await fetch(`${server.url}/v1/runs/${run}`)).json()).status === "completed");
        const answer = (await fetchActivities(server.url, run)).find(({ activityType, content }) => activityType === "message" && content.role === "assistant");
        assert.equal(joinChunks(answer.content.parts[0].text), `I have ${count + 2 * n} messages.`);
      }
    }
  });

  for (const [client, open] of Object.entries(CARD_CLIENTS)) {
    for (const decided of [[0, 1], [1, 0]]) {
      test(`of two cards, what runs is what was shown: ${client}, card ${decided[0] + 1} first`, limit, async () => {
        const thread = `langgraph-cards-${randomUUID()}`;
        const { server } = await openPage(agent(), thread);
        const ask = open(server, thread);
        const cards = [await ask("Remove one.txt"), await ask("Remove two.txt")];
        await runWith(server, thread, "interrupted");
        // The first card is superseded: its answer does nothing, however the client learns that.
        for (const card of decided) await Promise.resolve(cards[card](true)).catch(() => {});
        await runWith(server, thread, "completed");
        assert.deepEqual(await resultsOf(server, thread), ["removed two.txt"]);
      });
    }
  }

  for (const approved of [true, false]) {
    test(`a tool's approval is ${approved ? "granted" : "denied"} on the page`, limit, async () => {
      const thread = `langgraph-${approved}-${once}`;
      const { server, page, say, texts } = await openPage(agent(), thread);
      await say("Delete a.txt");
      const [interrupt] = page.pendingInterrupts;
      await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved } }] });
      const run = await runWith(server, thread, "completed");
      assert.equal(texts().at(-1), `decision: ${approved ? "approve" : "reject"}`);
      assert.equal((await actionOf(server, run.runId)).outcome, approved ? "approved" : "rejected");
      assert.equal(await attemptOf(server, run.runId), 1);
    });
  }
});
describeAgentWithQuestion("a2a", startA2a, ["Turn 1: Hello", "Turn 2: Again"]);

describe("acp", () => {
  const agent = `acp:${process.execPath} ${fileURLToPath(new URL("acp-agent.mjs", import.meta.url))}`;

  test("a process keeps the session over two turns", limit, async () => {
    const { say, texts } = await openPage(agent, "acp");
    await say("Hello");
    await say("Again");
    assert.deepEqual(texts(), ["Turn 1: Hello", "Turn 2: Again"]);
  });

  for (const approved of [true, false]) {
    test(`a permission is ${approved ? "granted" : "refused"} on the page`, limit, async () => {
      const thread = `acp-${approved}`;
      const { server, page, say, texts } = await openPage(agent, thread);
      await say("Delete a.txt");
      const [interrupt] = page.pendingInterrupts;
      await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved } }] });
      assert.equal(texts().at(-1), approved ? "chosen: go" : "chosen: stay");
      const run = await runWith(server, thread, "completed");
      assert.equal((await actionOf(server, run.runId)).outcome, approved ? "approved" : "rejected");
      assert.equal(await attemptOf(server, run.runId), 1);
    });
  }

  test("a stop reaches the agent, which ends the turn itself", limit, async () => {
    const { server, say } = await openPage(agent, "acp-stop");
    const turn = say("Work").catch(() => {});
    const run = await runWith(server, "acp-stop", "running");
    await interruptRun(server, run);
    await runWith(server, "acp-stop", "cancelled");
    await turn;
  });

  test("a form is filled in on the page", limit, async () => {
    const { server, page, say, texts } = await openPage(agent, "acp-form");
    await say("Ask");
    const [interrupt] = page.pendingInterrupts;
    assert.equal(interrupt.message, "Which file?");
    await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { path: "a.txt" } }] });
    assert.equal(texts().at(-1), 'accept: {"path":"a.txt"}');
    const run = await runWith(server, "acp-form", "completed");
    assert.equal((await actionOf(server, run.runId)).outcome, "answered");
  });

  testFailure("acp", () => agent);
});
