/**
 * The page of an empty server: what it is, how to connect an agent, to send a first event, and to connect a client.
 */

import { glyph } from "../ui/glyphs.js";
import { CodeBlock } from "../ui/code.js";
import { html, render } from "../vendor/lit.js";
import { define } from "./base.js";

/** @typedef {{ name: string, language: string, code: (origin: string) => string }} Snippet */

const CONNECT = `proscenium serve --connect 'support=ag-ui:http://127.0.0.1:8000/agent'`;

/** @param {string} origin */
const CURL = (origin) => `curl '${origin}/v1/runs/r1/facts?sessionId=hello' --json '[
  {"type":"run.started"},
  {"type":"text.delta","messageId":"m1","payload":{"text":"Hello from my agent"}},
  {"type":"run.finished"}]'`;

/** One per client; docs/src/guides has each in full. @type {Snippet[]} */
const SNIPPETS = [
  { name: "AG-UI", language: "ts", code: (origin) => `import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({
  url: "${origin}/ag-ui/support",
  threadId: "hello",
});
await agent.runAgent();` },
  { name: "CopilotKit", language: "tsx", code: (origin) => `import { CopilotChat, CopilotKitProvider } from "@copilotkit/react-core/v2";

export default function Page() {
  return (
    <CopilotKitProvider runtimeUrl="${origin}/copilotkit">
      <CopilotChat agentId="support" threadId="hello" />
    </CopilotKitProvider>
  );
}` },
  { name: "AI SDK", language: "tsx", code: (origin) => `import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";

const { messages, sendMessage } = useChat({
  id: "hello", resume: true,
  transport: new DefaultChatTransport({ api: "${origin}/ai-sdk/support?version=7" }),
});` },
  { name: "TanStack AI", language: "ts", code: (origin) => `import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";

const connection = fetchServerSentEvents("${origin}/ag-ui/support");
const client = new ChatClient({ connection, threadId: "hello", persistence: true });
client.attach();
await client.sendMessage({ content: "Look around." });` },
  { name: "Python", language: "python", code: (origin) => `import json, urllib.request

facts = [
    {"type": "run.started"},
    {"type": "text.delta", "messageId": "m1", "payload": {"text": "Hello from Python"}},
    {"type": "run.finished"},
]
url = "${origin}/v1/runs/r1/facts?sessionId=hello"
headers = {"content-type": "application/json"}
urllib.request.urlopen(urllib.request.Request(url, json.dumps(facts).encode(), headers))` },
];

export class FirstUse extends HTMLElement {
  #selected = 0;
  #connect = new CodeBlock();
  #curl = new CodeBlock();
  #snippet = new CodeBlock();

  connectedCallback() {
    this.classList.add("first-use");
    this.#draw();
  }

  #draw() {
    const { origin, host } = location;
    render(html`
      <div class="first-use-column">
        <h2>Watch and steer agent runs while they happen.</h2>
        <p class="first-use-lead">Proscenium keeps every event of a run in one log and shows it as conversation, work and time. You approve, answer and steer from here.</p>
        <section class="first-use-step"><span class="first-use-number" aria-hidden="true">1</span>
          <div class="first-use-head"><h3>Connect your agent, and write to it</h3><button type="button" class="button" @click=${() => this.dispatchEvent(new CustomEvent("create", { bubbles: true }))}>Start a session</button></div>${this.#connect}</section>
        <section class="first-use-step"><span class="first-use-number" aria-hidden="true">2</span>
          <div class="first-use-head"><h3>Or report a first event</h3></div>${this.#curl}</section>
        <section class="first-use-step"><span class="first-use-number" aria-hidden="true">3</span>
          <div class="first-use-head"><h3>Or connect a page of your own</h3>
            <div class="segments" role="group" aria-label="Client">${SNIPPETS.map(({ name }, at) => html`<button type="button" aria-pressed=${at === this.#selected} @click=${() => {
              this.#selected = at;
              this.#draw();
            }}>${name}</button>`)}</div></div>${this.#snippet}</section>
        <div class="first-use-waiting" role="status">${glyph("running")}<p class="grow"><b>Listening for the first event</b><br><span class="hint">This page opens the session when it arrives.</span></p><span class="mono hint">${host}</span></div>
        <p class="first-use-links"><span>Play the demo: <code>proscenium demo</code></span><button type="button" class="link" title="A file of proscenium export, or of facts: one JSON object per line" @click=${() => this.dispatchEvent(new CustomEvent("recording", { bubbles: true }))}>Open a recording</button><a class="link" href="/docs/" target="_blank">Documentation</a><button type="button" class="first-use-keys" @click=${() => this.dispatchEvent(new CustomEvent("keys", { bubbles: true }))}><kbd>?</kbd> keys</button></p>
      </div>`, this);
    this.#connect.show({ language: "sh", text: CONNECT, isComplete: true });
    this.#curl.show({ language: "sh", text: CURL(origin), isComplete: true });
    this.#snippet.show({ language: SNIPPETS[this.#selected].language, text: SNIPPETS[this.#selected].code(origin), isComplete: true });
  }
}

define("ps-first-use", FirstUse);
