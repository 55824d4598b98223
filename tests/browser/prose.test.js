/**
 * Text that grows, in a real browser: what Markdown means by its signs is shown, and whatever was said stands there as it was said,
 * in whatever pieces it came.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { DEADLINE, Stage } from "./stage.js";

let stage, page;

before(async () => {
  stage = await Stage.open();
  page = await stage.look();
}, { timeout: DEADLINE });
after(() => stage?.close());

/** What these texts, each of them the whole so far, look like in the end: the text, and the blocks with what stands out in them. */
const shown = (texts) => page.evaluate(async (texts) => {
  const { Prose } = await import("/assets/surfaces/prose.js");
  const root = document.createElement("div");
  const prose = new Prose(root);
  for (const text of texts) prose.set(text);
  const blocks = [...root.querySelectorAll("p")].map((block) => [block.className || "text", ...[...block.children].map((child) => `${child.localName}: ${child.textContent}`)]);
  return { text: root.textContent, html: root.innerHTML, blocks };
}, texts);

const prefixes = (text) => Array.from({ length: text.length }, (_, at) => text.slice(0, at + 1));

const TEXTS = {
  "plain text": "One.\n\nTwo lines\nof it.\n\n\n\nThree.",
  "headings, strong words and code": "# What **it** is\nUse `look` and ``see``, not **that**.\n## More\nEnd",
  "code, with what would mean something elsewhere": "Before:\n```js\n# none\n\nlet **a** = `1`;\n```\nAfter `it`.",
  "code that never ends": "```\nfor\n\never",
  "tildes, and a longer fence": "~~~\n```\n~~~\n````\n```\n````\nend",
  "signs that mean nothing": "2 ** 3 ** 4, a `tick, snake_case, ** no **, #none, `` `",
  "markup": "<b>**<i>x</i>**</b>`<script>`\n```\n</p><p>\n```",
  "nothing but ends of lines": "\n\n\n\n",
};

for (const [name, text] of Object.entries(TEXTS)) {
  test(`whatever the pieces, it is the same text and looks the same: ${name}`, async () => {
    const whole = await shown([text]);
    assert.equal(whole.text, text);
    assert.deepEqual(await shown(prefixes(text)), whole);
    assert.deepEqual(await shown(["something else", text]), whole);
  });
}

test("what stands out is what Markdown means", async () => {
  const { blocks } = await shown([TEXTS["headings, strong words and code"]]);
  assert.deepEqual(blocks, [["heading", "span: # ", "strong: **it**"], ["text", "code: `look`", "code: ``see``", "strong: **that**"], ["heading", "span: ## "], ["text"]]);
  const code = await shown([TEXTS["code, with what would mean something elsewhere"]]);
  assert.deepEqual(code.blocks, [["text"], ["code", "span: ```js\n", "span: ```\n"], ["text", "code: `it`"]]);
  const { blocks: none } = await shown([TEXTS["signs that mean nothing"]]);
  assert.deepEqual(none, [["text"]]);
  const { blocks: markup } = await shown([TEXTS.markup]);
  assert.deepEqual(markup.flat().filter((one) => !/^(text|code|span|strong)/.test(one)), []);
});

test("long text stands in blocks that end where lines do, and code goes on in the next", async () => {
  const line = `${"word ".repeat(15)}\n`;
  const text = `${line.repeat(200)}\n\`\`\`\n${line.repeat(200)}\`\`\`\nThe end.`;
  const whole = await shown([text]);
  assert.equal(whole.text, text);
  assert.ok(whole.blocks.length > 6);
  assert.equal(whole.blocks.filter(([kind]) => kind === "code").length > 2, true);
  assert.deepEqual(whole.blocks.at(-1), ["text"]);
  const pieces = Array.from({ length: Math.ceil(text.length / 97) }, (_, at) => text.slice(0, (at + 1) * 97));
  assert.deepEqual(await shown(pieces), whole);
});

test("chunks are one text, however they are cut; another text takes its place", async () => {
  const whole = await shown(["One `two` three.\n\nFour."]);
  assert.deepEqual(await shown([["One `t"], ["One `two` three.\n", "\nFo"], ["One `two` three.\n", "\nFour."]]), whole);
  assert.deepEqual(await shown([["One ", "`two` three.\n"], "One `two` three.\n\nFour."]), whole, "a snapshot has it in one piece");
  assert.deepEqual(await shown([["One ", "other"], ["One ", "`two` three.\n\nFour."]]), whole);
  assert.deepEqual(await shown([["One `two` three.\n\nFour.", " And more."], ["One `two` three.\n\nFour."]]), whole);
  assert.equal((await shown(["One", undefined])).text, "");
});

test("two million characters are there in a moment, in sections", async () => {
  const text = "It goes on and on.\n\n".repeat(100_000);
  const { text: same, blocks } = await shown([text.slice(0, 1_000_000), text]);
  assert.ok(same === text);
  assert.equal(blocks.length, 100_000);
  const code = `\`\`\`\n${"let it = be;\n".repeat(150_000)}`;
  assert.ok((await shown([code])).text === code);
});

test("what is shown already stays, so that a selection in it does", async () => {
  const kept = await page.evaluate(async () => {
    const { Prose } = await import("/assets/surfaces/prose.js");
    const root = document.createElement("div");
    const prose = new Prose(root);
    prose.set("One `two` three");
    const before = [...root.querySelector("p").childNodes];
    prose.set("One `two` three and **four** and");
    const after = [...root.querySelector("p").childNodes];
    return before.map((node, at) => node === after[at]);
  });
  assert.deepEqual(kept, [true, true, true]);
});
