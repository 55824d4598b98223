/**
 * Growing text in a real browser: Markdown is styled, and the text stays unchanged for any division into chunks.
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

/** Renders a growing text. Returns the final text, and its blocks with their styled spans. */
const render = (texts) => page.evaluate(async (texts) => {
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
  "code with Markdown signs": "Before:\n```js\n# none\n\nlet **a** = `1`;\n```\nAfter `it`.",
  "unclosed code": "```\nfor\n\never",
  "tildes, and a longer fence": "~~~\n```\n~~~\n````\n```\n````\nend",
  "signs without meaning": "2 ** 3 ** 4, a `tick, snake_case, ** no **, #none, `` `",
  "markup": "<b>**<i>x</i>**</b>`<script>`\n```\n</p><p>\n```",
  "line ends only": "\n\n\n\n",
};

for (const [name, text] of Object.entries(TEXTS)) {
  test(`text and style do not depend on the chunks: ${name}`, async () => {
    const expected = await render([text]);
    assert.equal(expected.text, text);
    assert.deepEqual(await render(prefixes(text)), expected);
    assert.deepEqual(await render(["something else", text]), expected);
  });
}

test("styles follow Markdown", async () => {
  const { blocks } = await render([TEXTS["headings, strong words and code"]]);
  assert.deepEqual(blocks, [["heading", "span: # ", "strong: **it**"], ["text", "code: `look`", "code: ``see``", "strong: **that**"], ["heading", "span: ## "], ["text"]]);
  const code = await render([TEXTS["code with Markdown signs"]]);
  assert.deepEqual(code.blocks, [["text"], ["code", "span: ```js\n", "span: ```\n"], ["text", "code: `it`"]]);
  const { blocks: none } = await render([TEXTS["signs without meaning"]]);
  assert.deepEqual(none, [["text"]]);
  const { blocks: markup } = await render([TEXTS.markup]);
  assert.deepEqual(markup.flat().filter((one) => !/^(text|code|span|strong)/.test(one)), []);
});

test("long text is split into blocks at line ends, and code continues in the next block", async () => {
  const line = `${"word ".repeat(15)}\n`;
  const text = `${line.repeat(200)}\n\`\`\`\n${line.repeat(200)}\`\`\`\nThe end.`;
  const expected = await render([text]);
  assert.equal(expected.text, text);
  assert.ok(expected.blocks.length > 6);
  assert.equal(expected.blocks.filter(([kind]) => kind === "code").length > 2, true);
  assert.deepEqual(expected.blocks.at(-1), ["text"]);
  const growingTexts = Array.from({ length: Math.ceil(text.length / 97) }, (_, at) => text.slice(0, (at + 1) * 97));
  assert.deepEqual(await render(growingTexts), expected);
});

test("chunks are one text for any division; another text replaces it", async () => {
  const expected = await render(["One `two` three.\n\nFour."]);
  assert.deepEqual(await render([["One `t"], ["One `two` three.\n", "\nFo"], ["One `two` three.\n", "\nFour."]]), expected);
  assert.deepEqual(await render([["One ", "`two` three.\n"], "One `two` three.\n\nFour."]), expected, "a snapshot has the text in one chunk");
  assert.deepEqual(await render([["One ", "other"], ["One ", "`two` three.\n\nFour."]]), expected);
  assert.deepEqual(await render([["One `two` three.\n\nFour.", " And more."], ["One `two` three.\n\nFour."]]), expected);
  assert.equal((await render(["One", undefined])).text, "");
});

test("two million characters render quickly, in sections", async () => {
  const text = "It goes on and on.\n\n".repeat(100_000);
  const { text: same, blocks } = await render([text.slice(0, 1_000_000), text]);
  assert.ok(same === text);
  assert.equal(blocks.length, 100_000);
  const code = `\`\`\`\n${"let it = be;\n".repeat(150_000)}`;
  assert.ok((await render([code])).text === code);
});

test("drawn nodes stay, and with them a selection", async () => {
  const isKept = await page.evaluate(async () => {
    const { Prose } = await import("/assets/surfaces/prose.js");
    const root = document.createElement("div");
    const prose = new Prose(root);
    prose.set("One `two` three");
    const before = [...root.querySelector("p").childNodes];
    prose.set("One `two` three and **four** and");
    const after = [...root.querySelector("p").childNodes];
    return before.map((node, at) => node === after[at]);
  });
  assert.deepEqual(isKept, [true, true, true]);
});
