/**
 * The pages of the guides for CopilotKit, TanStack AI and `useChat`, bundled with the published packages, and a browser
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

/** The `tsx` block of a guide, for this agent and server. */
function pageOf(guide, agent, url) {
  const text = readFileSync(here(`../../docs/src/guides/${guide}.md`), "utf8");
  const blocks = [...text.matchAll(/^```tsx\n(.*?)^```$/gms)].map(([, block]) => block);
  assert.equal(blocks.length, 1, `${guide}.md has one page`);
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

/** Serves the pages of guides. Their origin is known before the address of the server that they use. */
export async function servePages() {
  const bundles = new Map();
  const server = createServer((request, response) => {
    const [, name, file] = request.url.split("/");
    const bundle = bundles.get(name);
    if (!bundle) return void response.writeHead(404).end();
    const content = bundle[file];
    response.writeHead(200, { "content-type": file === "page.js" ? "text/javascript" : file === "page.css" ? "text/css" : "text/html; charset=utf-8" });
    response.end(content ?? `<!doctype html><link rel="stylesheet" href="page.css"><div id="page"></div><script type="module" src="page.js"></script>`);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${server.address().port}`;
  /** Bundles the page of a guide, and returns its address. */
  const add = async (guide, agent, url) => {
    const { outputFiles } = await build({
      stdin: { contents: pageOf(guide, agent, url) + ENTRY, resolveDir: here("."), loader: "tsx" }, bundle: true, write: false, format: "esm", platform: "browser", jsx: "automatic",
      outfile: "page.js", define: { "process.env.NODE_ENV": '"production"' }, loader: { ".woff": "empty", ".woff2": "empty", ".ttf": "empty" }, logLevel: "error",
    });
    const text = (end) => outputFiles.find(({ path }) => path.endsWith(end))?.text ?? "";
    bundles.set(guide, { "page.js": text(".js"), "page.css": text(".css") });
    return `${origin}/${guide}/`;
  };
  return { origin, add, stop: () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))) };
}
