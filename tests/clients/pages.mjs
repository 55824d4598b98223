/**
 * The pages of the guides for CopilotKit, TanStack AI, assistant-ui and `useChat`, bundled with the published packages, and a browser
 * for them and for the workbench.
 *
 * CHROMIUM_BIN names the browser (default /usr/bin/chromium). It reaches no other machine.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { chromium } from "playwright-core";
import { DEADLINE } from "../deadline.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const BROWSER = process.env.CHROMIUM_BIN ?? "/usr/bin/chromium";
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"];

/** Shows the default export of the code before. */
const ENTRY = `
import { Suspense } from "react";
import { createRoot } from "react-dom/client";
createRoot(document.getElementById("page")).render(<Suspense><Page /></Suspense>);
`;

/** A file that a guide tells to copy is in `examples`. */
const EXAMPLES = {
  name: "examples",
  setup: ({ onResolve }) => onResolve({ filter: /^\.\/assistant-ui$/ }, () => ({ path: here("../../examples/assistant-ui.ts") })),
};

/** The page below this heading of a guide, for this agent and server. */
function pageOf(guide, heading, agent, url) {
  const text = readFileSync(here(`../../docs/src/guides/${guide}.md`), "utf8");
  const section = text.split(/^## /m).find((section) => section.startsWith(`${heading}\n`)) ?? "";
  const blocks = [...section.matchAll(/^```[jt]sx\n(.*?)^```$/gms)].map(([, block]) => block);
  assert.equal(blocks.length, 1, `${guide}.md has one page below ${heading}`);
  return blocks[0].replaceAll("worker", agent).replaceAll("http://127.0.0.1:8787", url);
}

/** Opens a browser. */
export async function openBrowser() {
  const profile = await mkdtemp(join(tmpdir(), "proscenium-pages-"));
  const context = await chromium.launchPersistentContext(profile, { executablePath: BROWSER, args: FLAGS, viewport: { width: 1280, height: 900 } });
  context.setDefaultTimeout(DEADLINE);
  const close = async () => {
    await context.close();
    await rm(profile, { recursive: true, force: true });
  };
  return { context, close };
}

/** Takes a picture of a guide, if PROSCENIUM_PICTURES names its directory. */
export async function picture(page, name) {
  const directory = process.env.PROSCENIUM_PICTURES;
  if (!directory) return;
  await page.setViewportSize({ width: 960, height: 420 });
  await page.addStyleTag({ content: PICTURE_STYLE });
  await page.screenshot({ path: join(directory, `${name}.png`), animations: "disabled", caret: "hide" });
}

/** The pages of the guides have no style. */
const PICTURE_STYLE = `
  body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: #1c1c22; background: #fff; }
  :has(> nav) { display: grid; grid-template-columns: 400px 1fr; min-height: 100vh; }
  nav { padding: 16px; background: #f5f5f8; display: flex; flex-direction: column; gap: 8px; }
  nav > div { display: flex; gap: 6px; align-items: center; }
  nav > button { text-align: left; }
  nav > div > :first-child:nth-last-child(3) { flex: 1; text-align: left; overflow: hidden; white-space: nowrap; text-overflow: ellipsis; }
  h2 { font-size: 13px; margin: 12px 0 0; color: #666; }
  button { font: inherit; padding: 2px 8px; border: 1px solid #ccc; border-radius: 6px; background: #fff; }
  nav + * { padding: 16px 24px; }
  input, textarea { font: inherit; padding: 4px 8px; border: 1px solid #ccc; border-radius: 6px; }
`;

/** Serves the pages of guides. Their origin is known before the address of the server that they use. */
export async function servePages() {
  const bundles = new Map();
  const server = createServer((request, response) => {
    const [, name, file] = request.url.split("/");
    const bundle = bundles.get(name);
    if (!bundle) return void response.writeHead(404).end();
    const content = bundle[file];
    response.writeHead(200, { "content-type": file.endsWith(".js") ? "text/javascript" : file === "page.css" ? "text/css" : "text/html; charset=utf-8" });
    response.end(content ?? `<!doctype html><link rel="stylesheet" href="page.css"><div id="page"></div><script type="module" src="page.js"></script>`);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${server.address().port}`;
  /** Bundles a page, the default export of this code, and returns its address. */
  const addCode = async (name, code) => {
    const { outputFiles } = await build({
      plugins: [EXAMPLES], nodePaths: [here("node_modules")],
      stdin: { contents: code + ENTRY, resolveDir: here("."), loader: "tsx" }, bundle: true, write: false, format: "esm", platform: "browser", jsx: "automatic",
      outfile: "page.js", define: { "process.env.NODE_ENV": '"production"' }, loader: { ".woff": "empty", ".woff2": "empty", ".ttf": "empty" }, logLevel: "error",
    });
    const text = (end) => outputFiles.find(({ path }) => path.endsWith(end))?.text ?? "";
    bundles.set(name, { "page.js": text(".js"), "page.css": text(".css") });
    return `${origin}/${name}/`;
  };
  /** Bundles the page below a heading of a guide, and returns its address, which is the same for each bundle of it. */
  const add = (guide, agent, url, { heading = "Try it", change = (page) => page } = {}) =>
    addCode(`${guide}-${heading.replaceAll(" ", "-")}`, change(pageOf(guide, heading, agent, url)));
  /** Serves files as they are; the one without a name is the page. Returns its address. */
  const addFiles = (name, files) => {
    bundles.set(name, files);
    return `${origin}/${name}/`;
  };
  return { origin, add, addCode, addFiles, stop: () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))) };
}
