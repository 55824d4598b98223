/**
 * The diff view in a real browser: lines with their numbers, word marks, folds and two columns, of texts and of patches.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { limit, until, useStage } from "./stage.js";

let stage, page;

useStage((opened) => (stage = opened), () => page);

/** Shows a diff, and waits for `lines` lines. The arguments are those of the exported function. */
async function show(name, args, lines) {
  page = await stage.look();
  await page.evaluate(async ([name, args]) => {
    const [diff, { render }] = await Promise.all([import("/assets/ui/diff.js"), import("/assets/vendor/lit.js")]);
    const root = Object.assign(document.createElement("div"), { id: "diff" });
    // Parts of the page that load later look for their places.
    for (const part of document.body.children) part.style.display = "none";
    document.body.append(root);
    window.draw = (...args) => render(diff[name](...args), root);
    window.draw(...args);
  }, [name, args]);
  await until(page, (lines) => document.querySelectorAll("#diff .diff-line").length === lines, lines);
}

/** The lines: kind, numbers and text, with marked words in brackets. */
const linesOf = () => page.locator("#diff .diff-line").evaluateAll((all) => all.map((line) => {
  const [before, after] = [...line.querySelectorAll(".diff-number")].map((one) => one.textContent);
  const text = [...line.querySelector("code").childNodes].map((node) => (node.localName === "mark" ? `[${node.textContent}]` : node.nodeType === 3 ? node.data : "")).join("");
  return [line.dataset.kind, before, after, text];
}));
const marked = () => until(page, () => document.querySelector("#diff mark"));

test("changed words are marked, also where a line becomes two", async () => {
  await show("diffView", ["# A\nThe app starts much faster.\n", "# A\nThe app starts in 1.9 s\nand much faster.\n"], 4);
  await marked();
  assert.deepEqual(await linesOf(), [
    ["same", "1", "1", "# A"],
    ["delete", "2", "", "The app starts much faster."],
    ["add", "", "2", "The app starts [in 1.9 s]"],
    ["add", "", "3", "[and ]much faster."],
  ]);
});

test("different texts have no marks, and equal texts say so", async () => {
  await show("diffView", ["alpha beta gamma\n", "12345 67890 !?\n"], 2);
  assert.equal(await page.locator("#diff mark").count(), 0);
  await page.evaluate(() => window.draw("same\n", "same\n"));
  await until(page, () => document.querySelectorAll("#diff .diff-line").length === 1);
});

test("unchanged lines are folded, and a fold opens", async () => {
  const lines = Array.from({ length: 40 }, (_, at) => `line ${at + 1}`);
  const changed = lines.with(19, "line twenty");
  await show("diffView", [lines.join("\n"), changed.join("\n"), { context: 2 }], 6);
  const folds = page.locator("#diff button.diff-fold");
  assert.deepEqual(await folds.allTextContents(), ["Show 17 unchanged lines", "Show 18 unchanged lines"]);
  await folds.first().click();
  await until(page, () => document.querySelectorAll("#diff .diff-line").length === 23);
  // The same texts again keep the open fold; other texts close it.
  await page.evaluate(([before, after]) => window.draw(before, after, { context: 2 }), [lines.join("\n"), changed.join("\n")]);
  assert.equal(await page.locator("#diff .diff-line").count(), 23);
});

test("two columns show replaced lines beside each other", async () => {
  await show("diffView", ["a\nb\nc\n", "a\nB\nB2\nc\n", { mode: "split" }], 4);
  const cells = await page.locator("#diff .diff-line").evaluateAll((all) => all.map((line) => [...line.querySelectorAll("code")].map((code) => [code.dataset.kind, code.textContent])));
  assert.deepEqual(cells, [[["same", "a"], ["same", "a"]], [["delete", "b"], ["add", "B"]], [["none", ""], ["add", "B2"]], [["same", "c"], ["same", "c"]]]);
});

test("a patch shows its files, hunks and gaps, and a text without hunks its lines", async () => {
  const patch = "diff --git a/x.md b/x.md\n--- a/x.md\n+++ b/x.md\n@@ -3,3 +3,3 @@ head\n one\n-two words\n+two word\n three\n@@ -20 +20 @@\n--- list\n+++ list\n";
  await show("patchView", [patch], 6);
  await marked();
  assert.deepEqual(await page.locator("#diff .diff-file").allTextContents(), ["x.md"]);
  assert.deepEqual(await page.locator("#diff .diff-fold").allTextContents(), ["2 unchanged lines", "14 unchanged lines"]);
  assert.deepEqual((await linesOf()).map(([kind, before, after, text]) => [kind, before, after, text.replaceAll(/[[\]]/g, "")]), [
    ["same", "3", "3", "one"], ["delete", "4", "", "two words"], ["add", "", "4", "two word"], ["same", "5", "5", "three"], ["delete", "20", "", "-- list"], ["add", "", "20", "++ list"],
  ]);
  await page.evaluate(() => window.draw("-old\n+new\n same"));
  await until(page, () => document.querySelectorAll("#diff .diff-line").length === 3);
  assert.deepEqual((await linesOf()).map(([kind, before, after]) => [kind, before, after]), [["delete", "", ""], ["add", "", ""], ["same", "", ""]]);
});

test("a text of a run is never markup", async () => {
  await show("diffView", ["<b>x</b>\n", "<img src=x onerror=alert(1)>\n"], 2);
  assert.equal(await page.locator("#diff :is(b, img)").count(), 0);
  assert.deepEqual(page.problems, []);
});

test("a diff of 2,400 lines shows its first lines at once, and only lines near the viewport are in the document", async (context) => {
  const lines = Array.from({ length: 1200 }, (_, at) => `line ${at} of the old text`);
  const patch = ["--- a/long.txt", "+++ b/long.txt", "@@ -1,1200 +1,1200 @@", ...lines.flatMap((line) => [`-${line}`, `+${line.replace("old", "new")}`])].join("\n");
  page = await stage.look();
  const opened = await page.evaluate(async (patch) => {
    const [diff, { render }] = await Promise.all([import("/assets/ui/diff.js"), import("/assets/vendor/lit.js"), import("/assets/styles.js").then(({ loadStyle }) => loadStyle("ui/diff.css"))]);
    for (const part of document.body.children) part.style.display = "none";
    const root = Object.assign(document.createElement("div"), { id: "diff" });
    document.body.append(root);
    const before = performance.now();
    render(diff.patchView(patch), root);
    root.getBoundingClientRect();
    return { ms: performance.now() - before, lines: root.querySelectorAll(".diff-line").length };
  }, patch);
  assert.ok(opened.lines > 0, "the first lines are there before anything is loaded");
  await marked();
  const count = () => page.locator("#diff *").count();
  const first = await count();
  context.diagnostic(`2,400 lines: the first ${opened.lines} after ${Math.round(opened.ms)} ms, ${first} elements`);
  assert.ok(first < 3000, `${first} elements`);
  // The end is reachable, and what was left behind is gone.
  await until(page, () => {
    const scroller = document.querySelector("#diff .diff-lines");
    scroller.scrollTop = scroller.scrollHeight;
    return scroller.textContent.includes("line 1199 of the new text");
  });
  await until(page, () => document.querySelectorAll("#diff *").length < 3000 && !document.querySelector("#diff").textContent.includes("line 0 of"));
  assert.deepEqual(page.problems, []);
});
