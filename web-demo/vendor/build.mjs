/**
 * Writes the modules of other projects that the page imports, as one file each, and their licences.
 *
 * Run `npm run vendor` after a change of their versions in package.json. With `--check` it writes nothing, and fails if
 * a file differs. A browser imports the files of this folder as they are; the bundle of the page contains them.
 */

import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const require = createRequire(import.meta.url);
const folder = fileURLToPath(new URL(".", import.meta.url));

/** The languages that the page highlights; a language comes after those that it extends. */
const LANGUAGES = ["markup", "css", "clike", "javascript", "typescript", "bash", "diff", "go", "json", "python", "rust", "sql", "toml", "yaml"];

/** Each module's source, the packages that it contains, and its types where they are not those of the source. */
const MODULES = {
  lit: {
    packages: ["lit-html"],
    source: `export { html, svg, render, nothing } from "lit-html";
export { repeat } from "lit-html/directives/repeat.js";
export { classMap } from "lit-html/directives/class-map.js";
export { ifDefined } from "lit-html/directives/if-defined.js";
export { live } from "lit-html/directives/live.js";
export { ref } from "lit-html/directives/ref.js";`,
  },
  marked: { packages: ["marked"], source: `export { Lexer } from "marked";` },
  prism: {
    packages: ["prismjs"],
    // "manual" keeps Prism from highlighting the document by itself.
    source: `import Prism from "prismjs/components/prism-core.js";
${LANGUAGES.map((name) => `import "prismjs/components/prism-${name}.js";`).join("\n")}
export default Prism;`,
    types: `import Prism from "prismjs";\nexport default Prism;`,
    banner: "globalThis.Prism={manual:true,disableWorkerMessageHandler:true};",
  },
  diff: { packages: ["diff"], source: `export { diffArrays, diffLines, diffWordsWithSpace } from "diff";` },
};

const isCheck = process.argv.includes("--check");
const differing = [];

async function put(name, text) {
  const current = await readFile(`${folder}${name}`, "utf8").catch(() => "");
  if (current === text) return;
  if (isCheck) differing.push(name);
  else await writeFile(`${folder}${name}`, text);
}

const licences = [];
for (const [name, { packages, source, types = source, banner }] of Object.entries(MODULES)) {
  const titles = packages.map((one) => `${one} ${require(`../node_modules/${one}/package.json`).version}`);
  const { outputFiles } = await build({
    stdin: { contents: source, resolveDir: folder }, bundle: true, format: "esm", minify: true, write: false, legalComments: "none", target: "es2022",
    banner: { js: `/* ${titles.join(", ")}: see LICENCES.txt. Made by build.mjs. */${banner ?? ""}` },
  });
  await put(`${name}.js`, outputFiles[0].text);
  await put(`${name}.d.ts`, `${types}\n`);
  for (const [at, one] of packages.entries()) licences.push(`${titles[at]}\n\n${(await licenceOf(one)).trim()}\n`);
}
await put("LICENCES.txt", licences.join(`\n${"=".repeat(80)}\n\n`));

/** Returns the text of a package's licence. */
async function licenceOf(name) {
  for (const file of ["LICENSE", "LICENSE.md", "license"]) {
    const text = await readFile(fileURLToPath(new URL(`../node_modules/${name}/${file}`, import.meta.url)), "utf8").catch(() => undefined);
    if (text) return text;
  }
  throw new Error(`${name} has no licence file`);
}

if (differing.length > 0) {
  console.error(`web-demo/vendor is out of date: ${differing.join(", ")}. Run npm run vendor.`);
  process.exit(1);
}
