/** The TypeScript of the guides compiles against the published clients. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { limit } from "../deadline.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const GUIDES = ["ag-ui", "ai-sdk", "assistant-ui", "copilotkit", "tanstack-ai"];

const OPTIONS = { strict: true, noEmit: true, skipLibCheck: true, target: "es2024", module: "esnext", moduleResolution: "bundler", jsx: "react-jsx", lib: ["es2024", "dom", "dom.iterable"], types: [] };

/** What a bundler's types say of a style sheet. */
const STYLES = 'declare module "*.css";';

test("the examples of the guides for clients compile", limit, (context) => {
  // Within this package, so that its dependencies are found.
  mkdirSync(here("node_modules/.cache"), { recursive: true });
  const directory = mkdtempSync(here("node_modules/.cache/guides-"));
  context.after(() => rmSync(directory, { recursive: true }));
  for (const guide of GUIDES) {
    const text = readFileSync(here(`../../docs/src/guides/${guide}.md`), "utf8");
    const blocks = [...text.matchAll(/^```tsx?\n(.*?)^```$/gms)].map(([, block]) => block);
    assert.ok(blocks.length > 0, `${guide}.md has an example in TypeScript`);
    for (const [at, block] of blocks.entries()) writeFileSync(`${directory}/${guide}-${at}.page.tsx`, block);
  }
  // What a guide tells to copy.
  copyFileSync(here("../../examples/assistant-ui.ts"), `${directory}/assistant-ui.ts`);
  writeFileSync(`${directory}/styles.d.ts`, STYLES);
  writeFileSync(`${directory}/tsconfig.json`, JSON.stringify({ compilerOptions: OPTIONS, include: ["*"] }));
  const { status, stdout } = spawnSync(here("node_modules/.bin/tsc"), ["--project", directory], { encoding: "utf8" });
  assert.equal(status, 0, stdout);
});
