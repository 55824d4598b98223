/**
 * Generated interfaces with published packages in a browser: CopilotKit's own renderers of A2UI surfaces and MCP Apps, and
 * A2UI's messages in parts of `useChat`, after a reload.
 *
 * The MCP App is a plain document that speaks the extension's JSON-RPC. What it asks for goes through the server to its agent.
 */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { limit } from "../deadline.mjs";
import { publish, startAgUiAgent, startServer } from "./harness.mjs";
import { openBrowser, servePages } from "./pages.mjs";

const CATALOG = "https://a2ui.org/specification/v0_9/basic_catalog.json";
const surface = (messages) => ({ type: "ACTIVITY_SNAPSHOT", messageId: "a2ui-surface-c", activityType: "a2ui-surface", content: { a2ui_operations: messages }, replace: true });
const FACTS = [
  { type: "RUN_STARTED", threadId: "t", runId: "r" },
  surface([
    { version: "v0.9", createSurface: { surfaceId: "s", catalogId: CATALOG } },
    { version: "v0.9", updateComponents: { surfaceId: "s", components: [
      { id: "root", component: "Column", children: ["fixed", "bound"] },
      { id: "fixed", component: "Text", text: "Flight to Oslo" },
      { id: "bound", component: "Text", text: { path: "/seat" } }] } },
    { version: "v0.9", updateDataModel: { surfaceId: "s", path: "/", value: { seat: "Seat 3A" } } },
  ]),
  surface([{ version: "v0.9", updateDataModel: { surfaceId: "s", path: "/seat", value: "Seat 4C" } }]),
  { type: "RUN_FINISHED", threadId: "t", runId: "r" },
];

const APP_FACTS = [
  { type: "RUN_STARTED", threadId: "t", runId: "r" },
  { type: "ACTIVITY_SNAPSHOT", messageId: "app", activityType: "mcp-apps", replace: true,
    content: { resourceUri: "ui://flights/seats", serverHash: "h1", toolInput: { flight: "DY 1303" }, result: { content: [{ type: "text", text: "Seats 3A and 4C are free." }] } } },
  { type: "RUN_FINISHED", threadId: "t", runId: "r" },
];

/** Shows what the tool was given and what it gave, and books a seat by another tool. */
const APP = `<!doctype html><p id="input"></p><p id="result"></p><button>Book 4C</button><p id="booked"></p>
<script>
  const show = (id, text) => (document.getElementById(id).textContent = text);
  const waiting = new Map();
  const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const request = (method, params) => new Promise((resolve) => {
    const id = waiting.size + 1;
    waiting.set(id, resolve);
    send({ id, method, params });
  });
  addEventListener("message", ({ data }) => {
    if (data.result) waiting.get(data.id)?.(data.result);
    if (data.method === "ui/notifications/tool-input") show("input", "Flight " + data.params.arguments.flight);
    if (data.method === "ui/notifications/tool-result") show("result", data.params.content[0].text);
  });
  document.querySelector("button").onclick = async () => {
    const { content } = await request("tools/call", { name: "book", arguments: { seat: "4C" } });
    show("booked", content[0].text);
  };
  request("ui/initialize", { appInfo: { name: "seats", version: "1" }, appCapabilities: {}, protocolVersion: "2026-01-26" })
    .then(() => send({ method: "ui/notifications/initialized", params: {} }));
</script>`;

describe("a surface in a page", () => {
  let pages, browser;
  before(async () => {
    [pages, browser] = await Promise.all([servePages(), openBrowser()]);
  });
  after(() => Promise.all([pages?.stop(), browser?.close()]));

  const shows = async (context, code) => {
    const server = await startServer("--cors-origin", pages.origin);
    context.after(() => server.stop());
    await publish(server.url, { run: "r", thread: "t", agent: "guide", source: "ag-ui" }, FACTS);
    const page = await browser.context.newPage();
    context.after(() => page.close());
    await page.goto(await pages.addCode(context.name.replaceAll(/\W+/g, "-"), code(server.url)));
    for (const _ of ["first", "reloaded"]) {
      await page.getByText("Flight to Oslo").waitFor();
      await page.getByText("Seat 4C").waitFor();
      assert.equal(await page.getByText("Seat 3A").count(), 0, "the state, and not the history");
      await page.reload();
    }
  };

  test("is drawn by CopilotKit's own renderer, also after a reload", limit, (context) => shows(context, (url) => `
    import { CopilotKit, CopilotChat } from "@copilotkit/react-core/v2";
    import { basicCatalog } from "@copilotkit/a2ui-renderer";
    const Page = () => (
      <CopilotKit runtimeUrl="${url}/copilotkit" a2ui={{ catalog: basicCatalog }}>
        <CopilotChat agentId="guide" threadId="t" />
      </CopilotKit>
    );
  `));

  test("is drawn by A2UI's renderer from parts of useChat, also after a reload", limit, (context) => shows(context, (url) => `
    import { useEffect } from "react";
    import { useChat } from "@ai-sdk/react";
    import { DefaultChatTransport } from "ai";
    import { A2UIProvider, A2UIRenderer, basicCatalog, initializeDefaultCatalog, useA2UIActions } from "@copilotkit/a2ui-renderer";
    initializeDefaultCatalog();
    const Messages = ({ data }) => {
      const { processMessages, getSurface } = useA2UIActions();
      useEffect(() => processMessages(getSurface(data.surfaceId) ? data.a2ui_operations.slice(1) : data.a2ui_operations), [JSON.stringify(data)]);
      return <A2UIRenderer surfaceId={data.surfaceId} />;
    };
    const Page = () => {
      const { messages, setMessages } = useChat({ id: "t", transport: new DefaultChatTransport({ api: "${url}/ai-sdk/guide" }) });
      useEffect(() => void fetch("${url}/ai-sdk/guide/t?version=7").then((answer) => answer.json()).then((chat) => setMessages(chat.messages)), []);
      const parts = messages.flatMap((message) => message.parts).filter((part) => part.type === "data-a2ui-surface");
      return parts.map((part) => <A2UIProvider key={part.id} catalog={basicCatalog}><Messages data={part.data} /></A2UIProvider>);
    };
  `));

  test("is an MCP App in CopilotKit's own renderer, which reads it and calls its tools through the server, also after a reload", limit, async (context) => {
    const asked = [];
    const agent = await startAgUiAgent(({ forwardedProps: { __proxiedMCPRequest: wanted } }) => {
      asked.push(wanted);
      const result = wanted.method === "resources/read"
        ? { contents: [{ uri: wanted.params.uri, mimeType: "text/html;profile=mcp-app", text: APP }] }
        : { content: [{ type: "text", text: `Seat ${wanted.params.arguments.seat} is yours.` }] };
      return [{ type: "RUN_FINISHED", result }];
    });
    context.after(() => agent.stop());
    const server = await startServer("--cors-origin", pages.origin, "--connect", `guide=ag-ui:${agent.url}`);
    context.after(() => server.stop());
    await publish(server.url, { run: "r", thread: "t", agent: "guide", source: "ag-ui" }, APP_FACTS);
    const page = await browser.context.newPage();
    context.after(() => page.close());
    await page.goto(await pages.addCode("mcp-app", `
      import { CopilotKit, CopilotChat } from "@copilotkit/react-core/v2";
      const Page = () => <CopilotKit runtimeUrl="${server.url}/copilotkit"><CopilotChat agentId="guide" threadId="t" /></CopilotKit>;
    `));
    for (const _ of ["first", "reloaded"]) {
      const app = page.frameLocator("[data-testid=mcp-app-iframe]").frameLocator("iframe");
      await app.getByText("Flight DY 1303").waitFor();
      await app.getByText("Seats 3A and 4C are free.").waitFor();
      await app.getByRole("button").click();
      await app.getByText("Seat 4C is yours.").waitFor();
      await page.reload();
    }
    const [read, call] = asked;
    assert.deepEqual(read, { serverHash: "h1", method: "resources/read", params: { uri: "ui://flights/seats" } });
    assert.deepEqual(call, { serverHash: "h1", method: "tools/call", params: { name: "book", arguments: { seat: "4C" } } });
  });
});
