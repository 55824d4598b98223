/**
 * The packages of npm: each is built and packed from a copy of its folder alone, installed into an empty project, and
 * type-checked there. Node 20 and 22, and React 19 and Vue 3 in a real browser, use them against the real server.
 */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { limit } from "../deadline.mjs";
import { ack, claim, publish, startServer } from "./harness.mjs";
import { openBrowser, servePages } from "./pages.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const { dependencies } = JSON.parse(readFileSync(here("package.json"), "utf8"));
/** What each package must have, beside a README and the licences, and what its archive may have. */
const PACKAGES = {
  "proscenium-client": { files: ["dist/index.js", "dist/index.d.ts", "dist/client/index.js"], allowed: /^dist\// },
  "@proscenium/client": { files: ["index.js", "selectors.js", "dist/index.d.ts"], allowed: /^(dist\/.*\.d\.ts|[\w-]+\.js)$/ },
  "@proscenium/elements": { files: ["dist/embed.js", "dist/embed/index.d.ts", "dist/LICENCES.txt"], allowed: /^dist\// },
  "@proscenium/react": { files: ["dist/index.js", "dist/index.d.ts"], allowed: /^dist\// },
};
const NODES = ["node-20", "node-22"];
const NPM = ["--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];

const run = async (cwd, command, ...args) => {
  const { stdout } = await promisify(execFile)(command, args, { cwd, maxBuffer: 1 << 26 }).catch((error) => assert.fail(`${command} ${args.join(" ")}: ${error.stdout}${error.stderr}`));
  return stdout;
};

const CONSUMER = `
import { Store, connect, isPendingAction, select, submit, type Activity, type Of, type ActionContent } from "@proscenium/client";
import { Run, worker } from "proscenium-client";
import { setStrings, DecisionElement } from "@proscenium/elements";
import { Conversation, Decision, Inbox, ProsceniumProvider, Trace, useActions, useRun, useSession, useSessions } from "@proscenium/react";

const store = new Store();
connect({ base: "https://agents.example", run: "r", token: async () => "t" }, store);
const waiting = select(store, isPendingAction);
const first: Of<ActionContent> | undefined = waiting.get()[0];
export const kind: string | undefined = first?.content.kind;
export const all: Activity[] = store.sorted();
export const sent = () => submit({}, { run: "r", control: "approve", actionId: "a" }).then(({ controlId }) => controlId.length);

const report = new Run({ base: "https://agents.example", run: "r", session: "s", agent: "a" });
export const reported: Promise<unknown> = report.during((run) => run.userMessage("Hello"));
// @ts-expect-error A control has a name.
worker({ base: "https://agents.example", agent: 1 });

setStrings({ Approve: "Genehmigen", "waiting {time}": "wartet seit {time}" });
// @ts-expect-error No element has this text.
setStrings({ Aprove: "Genehmigen" });
export const element: DecisionElement = document.createElement("ps-decision");
element.token = async () => "t";
element.addEventListener("ps-answered", ({ detail }) => detail.controlId.length);
document.querySelector("ps-inbox")?.addEventListener("ps-error", ({ detail }) => detail.code.length);

function Page() {
  const { actions, answer } = useActions();
  const { run, messages } = useRun("r");
  const status: string | undefined = run?.content.status;
  return <p title={status}>{messages.length + useSession("s").activities.length + useSessions().sessions.length}{actions.map((one) => <button key={one.actionId} onClick={() => answer(one, "approve")}>{one.title}</button>)}</p>;
}
// @ts-expect-error A decision has an action.
export const bad = <Decision run="r" />;
export const page = <ProsceniumProvider server="https://agents.example" token={() => "t"}><Page /><Inbox onOpen={({ detail }) => detail.kind} /><Decision run="r" action="a" onAnswered={({ detail }) => detail.control} /><Conversation session="s" readOnly /><Trace run="r" /></ProsceniumProvider>;
`;

const NODE = `
import { Run } from "proscenium-client";
import { Store, connect, textOf } from "@proscenium/client";

const [server, name] = process.argv.slice(2);
await new Run({ base: server, run: name, session: "session-" + name, agent: "agent" }).during((run) => {
  const message = run.message();
  message.text("From " + name + ".");
  message.close();
});
const store = new Store();
const connection = connect({ base: server, run: name }, store);
const message = () => store.sorted().find(({ content }) => content.role === "assistant")?.content;
const text = () => message()?.parts.map((part) => textOf(part.text)).join("");
while (!text()?.endsWith(".")) await new Promise((resolve) => setTimeout(resolve, 5));
console.log(process.version, text());
connection.close();
`;

const REACT = (server) => `
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Decision, ProsceniumProvider, useActions, useRun, useSessions } from "@proscenium/react";

function Page() {
  const { actions, answer } = useActions();
  const { run } = useRun("run-hook");
  const { sessions } = useSessions();
  return <main>
    <p id="status">{run?.content.status}</p><p id="sessions">{sessions.length}</p>
    <ul>{actions.map((one) => <li key={one.runId + one.actionId}>{one.title}<button onClick={() => answer(one, "approve")}>Yes to {one.title}</button></li>)}</ul>
    <Decision run="run-card" action="a" style={{ "--ps-accent": "rgb(1, 2, 3)" }} onAnswered={({ detail }) => (window.answered = detail)} onResolved={({ detail }) => (window.resolved = detail)} />
  </main>;
}
createRoot(document.getElementById("page")).render(<StrictMode><ProsceniumProvider server="${server}"><Page /></ProsceniumProvider></StrictMode>);
`;

const VUE = (server) => `
import { createApp, h, ref } from "vue";
import "@proscenium/elements";

const count = ref(-1);
createApp({ render: () => h("main", [
  h("p", { id: "count" }, count.value),
  h("ps-inbox", { server: "${server}", token: async () => undefined, style: "--ps-accent: rgb(1, 2, 3)", "onPs-count": ({ detail }) => (count.value = detail.count), "onPs-answered": ({ detail }) => (window.answered = detail) }),
]) }).mount("#page");
`;

describe("the packages for pages", () => {
  const folder = mkdtempSync(join(tmpdir(), "proscenium-packages-"));
  const project = join(folder, "project");
  const archives = [];
  let pages, browser, server;

  before(async () => {
    archives.push(...(await run(folder, here("../../scripts/packages"), "--dist", folder, "npm")).trim().split("\n"));
    mkdirSync(project);
    writeFileSync(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }));
    const others = ["react", "react-dom", "@types/react", "vue", "typescript", "ai"].map((name) => `${name}@${dependencies[name]}`);
    await run(project, "npm", "install", ...NPM, ...archives, ...others);
    [pages, browser] = await Promise.all([servePages(), openBrowser()]);
    server = await startServer("--embed-origin", pages.origin);
  }, limit);
  after(async () => {
    await Promise.all([pages?.stop(), browser?.close(), server?.stop()]);
    rmSync(folder, { recursive: true });
  });

  async function open(context, name, code) {
    const { outputFiles: files } = await build({ stdin: { contents: code, resolveDir: project, loader: "tsx" }, bundle: true, splitting: true, write: false, format: "esm", platform: "browser", jsx: "automatic", outdir: "/", entryNames: "page", chunkNames: "[name]-[hash]", define: { "process.env.NODE_ENV": '"development"', __VUE_OPTIONS_API__: "true", __VUE_PROD_DEVTOOLS__: "false", __VUE_PROD_HYDRATION_MISMATCH_DETAILS__: "false" }, logLevel: "error" });
    const scripts = Object.fromEntries(files.map(({ path, text }) => [path.slice(1), text]));
    const page = await browser.context.newPage();
    page.problems = [];
    page.on("console", (message) => message.type() === "error" && page.problems.push(message.text()));
    page.on("pageerror", (error) => page.problems.push(String(error)));
    context.after(() => page.close());
    await page.goto(pages.addFiles(name, { ...scripts, "": `<!doctype html><link rel="icon" href="data:,"><div id="page"></div><script type="module" src="page.js"></script>` }));
    return page;
  }

  const ask = async (name) => {
    const at = { run: `run-${name}`, thread: `session-${name}`, agent: `agent-${name}` };
    await publish(server.url, at, [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { kind: "tool_approval", toolName: "sh", parameters: { command: "rm -r src" }, title: `Delete ${name}?` } }]);
    return at;
  };

  const decide = async (at) => {
    const control = await claim(server.url, at.agent);
    await ack(server.url, control);
    await publish(server.url, at, [{ type: "action.resolved", actionId: "a", payload: { outcome: "approved" } }]);
    return control.control;
  };

  test("an empty project that installs them type-checks, without skipping their declarations", limit, async () => {
    writeFileSync(join(project, "consumer.tsx"), CONSUMER);
    const options = { strict: true, noEmit: true, target: "es2024", module: "esnext", moduleResolution: "bundler", jsx: "react-jsx", lib: ["es2024", "dom", "dom.iterable"], types: [] };
    writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions: options, include: ["consumer.tsx"] }));
    await run(project, "node_modules/.bin/tsc", "--project", ".");
  });

  test("the archives have what they name, their licences, and no more", limit, () => {
    for (const [name, { files: expected, allowed }] of Object.entries(PACKAGES)) {
      const root = join(project, "node_modules", name);
      const all = readdirSync(root, { recursive: true, withFileTypes: true }).filter((one) => one.isFile());
      const files = all.map(({ parentPath, name: file }) => relative(root, join(parentPath, file)));
      const always = ["package.json", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];
      for (const file of [...expected, ...always]) assert.ok(files.includes(file), `${file} in ${name}: ${files}`);
      const others = files.filter((file) => !always.includes(file) && (!allowed.test(file) || /node_modules|\.test\./.test(file)));
      assert.deepEqual(others, [], name);
      const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
      assert.equal(manifest.license, "MIT OR Apache-2.0");
      assert.ok(manifest.description && manifest.engines.node && manifest.keywords.length, name);
      for (const file of Object.values(manifest.exports["."])) assert.ok(existsSync(join(root, file)), `${file} of ${name}`);
    }
  });

  for (const name of NODES) {
    const node = here(`node/node_modules/${name}/bin/node`);
    test(`${name} reports a run and reads it, by both packages`, { ...limit, skip: process.platform !== "linux" || process.arch !== "x64" }, async () => {
      writeFileSync(join(project, "use.mjs"), NODE);
      assert.match(await run(project, node, "use.mjs", server.url, name), new RegExp(`^v${name.slice(5)}\\.\\S+ From ${name}\\.\n$`));
    });
  }

  test("React 19 decides by a hook and by a component", limit, async (context) => {
    const [hook, card] = [await ask("hook"), await ask("card")];
    const page = await open(context, "react", REACT(server.url));
    await page.locator("#status", { hasText: "waiting" }).waitFor();
    // Those of the tests before, too.
    const { sessions } = await (await fetch(`${server.url}/v1/sessions`)).json();
    await page.locator("#sessions", { hasText: String(sessions.length) }).waitFor();
    await page.getByRole("button", { name: "Yes to Delete hook?" }).click();
    assert.equal(await decide(hook), "approve");
    await page.getByRole("button", { name: "Yes to Delete hook?" }).waitFor({ state: "detached" });

    const decision = page.locator("ps-decision");
    const approve = decision.getByRole("button", { name: "Approve" });
    assert.equal(await approve.evaluate((button) => getComputedStyle(button).backgroundColor), "rgb(1, 2, 3)");
    await approve.click();
    assert.equal((await (await page.waitForFunction(() => window.answered)).jsonValue()).control, "approve");
    assert.equal(await decide(card), "approve");
    await decision.getByText("Approved").waitFor();
    assert.equal((await (await page.waitForFunction(() => window.resolved)).jsonValue()).outcome, "approved");
    assert.deepEqual(page.problems, []);
  });

  test("Vue 3 shows the inbox, and a person approves by keyboard", limit, async (context) => {
    const at = await ask("vue");
    const page = await open(context, "vue", VUE(server.url));
    const inbox = page.locator("ps-inbox");
    await inbox.locator(".card-title", { hasText: "Delete vue?" }).waitFor();
    await page.locator("#count", { hasText: "1" }).waitFor();
    await inbox.locator(".inbox-row").focus();
    await page.keyboard.press("y");
    const approve = inbox.getByRole("button", { name: "Approve", exact: false }).and(inbox.locator("[data-control=approve]"));
    assert.equal(await approve.evaluate((button) => getComputedStyle(button).backgroundColor), "rgb(1, 2, 3)");
    assert.equal(await approve.evaluate((button) => button === button.getRootNode().activeElement), true);
    await page.keyboard.press("Enter");
    assert.equal((await (await page.waitForFunction(() => window.answered)).jsonValue()).runId, at.run);
    assert.equal(await decide(at), "approve");
    await page.locator("#count", { hasText: "0" }).waitFor();
    await inbox.locator("ps-action").getByText("Approved").waitFor();
    assert.deepEqual(page.problems, []);
  });
});
