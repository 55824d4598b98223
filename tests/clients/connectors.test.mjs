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
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { HttpAgent } from "@ag-ui/client";
import { RunAgentInputSchema } from "@ag-ui/core/schemas";
import { EventEncoder } from "@ag-ui/encoder";
import { convertToModelMessages, pipeUIMessageStreamToResponse, stepCountIs, streamText, tool, jsonSchema } from "ai";
import { MockLanguageModelV4, simulateReadableStream } from "ai/test";
import { startServer, waitFor } from "./harness.mjs";

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
  const page = new HttpAgent({ url: `${server.url}/ag-ui/helper`, threadId: thread });
  const say = async (text) => {
    page.addMessage({ id: `user-${page.messages.length}`, role: "user", content: text });
    return page.runAgent();
  };
  const texts = () => page.messages.filter(({ role, content }) => role === "assistant" && content).map(({ content }) => content);
  return { server, page, say, texts };
}

/** The run of a thread with this status. */
const runWith = (server, thread, status) =>
  waitFor(`a run that is ${status}`, async () => {
    const { runs } = await (await fetch(`${server.url}/v1/sessions/${thread}`)).json();
    return runs?.find((run) => run.status === status);
  });

const actionOf = async (server, run) => {
  const { activities } = await (await fetch(`${server.url}/v1/runs/${run}/activities`)).json();
  return activities.find(({ activityType }) => activityType === "action").content;
};

describe("ag-ui", () => {
  const inputs = [];
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
      if (last.content === "Delete a.txt" && !resume) {
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

  test("two turns have the log's conversation, in the form of the published schema", { timeout: 60_000 }, async () => {
    const { say, texts } = await openPage(`ag-ui:${await startAgent()}`, "turns");
    await say("Hello");
    await say("Again");
    assert.deepEqual(texts(), ["I have 1 messages.", "I have 3 messages."]);
    assert.deepEqual(inputs.at(-1).messages.map(({ role }) => role), ["user", "assistant", "user"]);
  });

  for (const approved of [true, false]) {
    test(`an interrupt is ${approved ? "approved" : "rejected"} on the page`, { timeout: 60_000 }, async () => {
      const thread = `approval-${approved}`;
      const { server, page, say, texts } = await openPage(`ag-ui:${await startAgent()}`, thread);
      await say("Delete a.txt");
      const [interrupt] = page.pendingInterrupts;
      await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved } }] });
      assert.deepEqual(texts(), [`approved: ${approved}`]);
      const run = await runWith(server, thread, "completed");
      assert.equal((await actionOf(server, run.runId)).outcome, approved ? "approved" : "rejected");
    });
  }
});

describe("ai-sdk", () => {
  const prompts = [];
  /** The AI SDK's own server; only the model is fake. */
  const startAgent = () =>
    startEndpoint(async ({ messages }, response) => {
      const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
      const say = (text) => [{ type: "text-start", id: "0" }, { type: "text-delta", id: "0", delta: text }, { type: "text-end", id: "0" }];
      const model = new MockLanguageModelV4({
        doStream: async ({ prompt }) => {
          prompts.push(prompt);
          const last = prompt.at(-1);
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
      const result = streamText({ model, tools, stopWhen: stepCountIs(3), messages: await convertToModelMessages(messages, { tools }) });
      pipeUIMessageStreamToResponse({ response, stream: result.toUIMessageStream({ originalMessages: messages }) });
    });

  test("two turns have the log's conversation", { timeout: 60_000 }, async () => {
    const { say, texts } = await openPage(`ai-sdk:${await startAgent()}`, "chat");
    await say("Hello");
    await say("Again");
    assert.deepEqual(texts(), ["I have 1 messages.", "I have 3 messages."]);
    assert.deepEqual(prompts.at(-1).map(({ role }) => role), ["user", "assistant", "user"]);
  });

  for (const approved of [true, false]) {
    test(`a tool's approval is ${approved ? "granted" : "denied"} on the page`, { timeout: 60_000 }, async () => {
      const thread = `chat-${approved}`;
      const { server, page, say, texts } = await openPage(`ai-sdk:${await startAgent()}`, thread);
      await say("Delete a.txt");
      const [interrupt] = page.pendingInterrupts;
      await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved } }] });
      const run = await runWith(server, thread, "completed");
      assert.equal((await actionOf(server, run.runId)).outcome, approved ? "approved" : "rejected");
      assert.match(texts().at(-1), approved ? /a\.txt is gone/ : /denied/);
    });
  }
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

/** LangGraph's server keeps its threads between two runs of the tests. */
const once = randomUUID();

/** An agent that asks which file to delete, and works until it is stopped. */
function describeAgentWithQuestion(name, startAgent, turns) {
  describe(name, { skip: python ? false : "PROSCENIUM_PYTHON is not set" }, () => {
    let agent;
    before(async () => (agent = await startAgent()), { timeout: 120_000 });

    test("two turns are one conversation", { timeout: 60_000 }, async () => {
      const { say, texts } = await openPage(agent, `${name}-turns-${once}`);
      await say("Hello");
      await say("Again");
      assert.deepEqual(texts(), turns);
    });

    test("a question is answered on the page", { timeout: 60_000 }, async () => {
      const { server, page, say, texts } = await openPage(agent, `${name}-question-${once}`);
      await say("Delete");
      const [interrupt] = page.pendingInterrupts;
      assert.equal(interrupt.message, "Which file?");
      await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: "a.txt" }] });
      const run = await runWith(server, `${name}-question-${once}`, "completed");
      assert.equal(texts().at(-1), "answer: a.txt");
      assert.equal((await actionOf(server, run.runId)).outcome, "answered");
    });

    test("a stop reaches the agent", { timeout: 60_000 }, async () => {
      const { server, say } = await openPage(agent, `${name}-stop-${once}`);
      const turn = say("Work").catch(() => {});
      const run = await waitFor("a run at work", async () => {
        const { runs } = await (await fetch(`${server.url}/v1/sessions/${name}-stop-${once}`)).json();
        const [run] = runs ?? [];
        const memory = run && (await (await fetch(`${server.url}/v1/runs/${run.runId}/activities?audience=internal`)).json());
        return memory?.activities.some(({ content }) => content.langgraphRun ?? content.a2aTask) && run;
      });
      await fetch(`${server.url}/v1/runs/${run.runId}/controls`, { method: "POST", headers: { "content-type": "application/json" }, body: '{"control":"interrupt"}' });
      await runWith(server, `${name}-stop-${once}`, "cancelled");
      await turn;
    });
  });
}

async function startLangGraph() {
  // The server of LangGraph prints no port that it chose itself.
  const free = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => free.once("listening", resolve));
  const { port } = free.address();
  await new Promise((resolve) => free.close(resolve));
  startProgram("langgraph", "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", String(port));
  await waitFor("the server of LangGraph", async () => (await fetch(`http://127.0.0.1:${port}/ok`).catch(() => {}))?.ok);
  return `langgraph:http://127.0.0.1:${port}`;
}

async function startA2a() {
  const child = startProgram("python", "a2a_agent.py");
  for await (const line of createInterface({ input: child.stdout })) return `a2a:${line.replace("listening on ", "")}/agent`;
}

describeAgentWithQuestion("langgraph", startLangGraph, ["I have 1 messages.", "I have 3 messages."]);
describeAgentWithQuestion("a2a", startA2a, ["Turn 1: Hello", "Turn 2: Again"]);

describe("acp", () => {
  const agent = `acp:${process.execPath} ${fileURLToPath(new URL("acp-agent.mjs", import.meta.url))}`;

  test("a process keeps the session over two turns", { timeout: 60_000 }, async () => {
    const { say, texts } = await openPage(agent, "acp");
    await say("Hello");
    await say("Again");
    assert.deepEqual(texts(), ["Turn 1: Hello", "Turn 2: Again"]);
  });

  for (const approved of [true, false]) {
    test(`a permission is ${approved ? "granted" : "refused"} on the page`, { timeout: 60_000 }, async () => {
      const thread = `acp-${approved}`;
      const { server, page, say, texts } = await openPage(agent, thread);
      await say("Delete a.txt");
      const [interrupt] = page.pendingInterrupts;
      await page.runAgent({ resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved } }] });
      assert.equal(texts().at(-1), approved ? "chosen: go" : "chosen: stay");
      const run = await runWith(server, thread, "completed");
      assert.equal((await actionOf(server, run.runId)).outcome, approved ? "approved" : "rejected");
    });
  }

  test("a stop reaches the agent, which ends the turn itself", { timeout: 60_000 }, async () => {
    const { server, say } = await openPage(agent, "acp-stop");
    const turn = say("Work").catch(() => {});
    const run = await runWith(server, "acp-stop", "running");
    await fetch(`${server.url}/v1/runs/${run.runId}/controls`, { method: "POST", headers: { "content-type": "application/json" }, body: '{"control":"interrupt"}' });
    await runWith(server, "acp-stop", "cancelled");
    await turn;
  });
});
