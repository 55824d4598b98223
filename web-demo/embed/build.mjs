/**
 * Builds the package `@proscenium/elements` into `dist`: the script of the elements with its lazy chunks, the licences of
 * the modules in it, and the types that no script states. `tsc` adds the types of the scripts.
 */

import { build } from "esbuild";
import { cp, rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("../", import.meta.url));

await rm(`${folder}dist`, { recursive: true, force: true });
// The text of a style sheet is a string, which must be small before it is one.
const sheets = {
  name: "sheets",
  setup: ({ onLoad }) => onLoad({ filter: /\.css$/ }, async ({ path }) => {
    const { outputFiles: [{ text }] } = await build({ entryPoints: [path], minify: true, write: false });
    return { contents: text, loader: "text" };
  }),
};
await build({ entryPoints: [`${folder}embed.js`], bundle: true, splitting: true, format: "esm", minify: true, target: "es2022", outdir: `${folder}dist`, chunkNames: "chunks/[name]-[hash]", plugins: [sheets], logLevel: "warning" });
for (const [from, to] of [["embed/index.d.ts", "embed/index.d.ts"], ["vendor/LICENCES.txt", "LICENCES.txt"]]) await cp(`${folder}${from}`, `${folder}dist/${to}`);
