/**
 * Growing Markdown in a real browser: the result is the same for any division into chunks, drawn nodes stay, and a text
 * never becomes markup.
 */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, limit, until } from "./stage.js";

let stage, page;

before(async () => {
  stage = await Stage.open();
  page = await stage.look();
}, limit);
after(() => stage?.close());

/** Renders a growing text. Returns the final text, and its blocks as markup without the heads of code. */
const render = (texts) => page.evaluate(async (texts) => {
  const { Prose } = await import("/assets/surfaces/prose.js");
  const root = document.createElement("div");
  document.body.append(root);
  const prose = new Prose(root);
  for (const text of texts) prose.set(text);
  const code = [...root.querySelectorAll("ps-code")].map((block) => [block.querySelector(".code-head span").textContent, block.querySelector("code").textContent]);
  // Highlighting is asynchronous; the code and its language say what is highlighted.
  for (const block of root.querySelectorAll("ps-code")) block.replaceChildren();
  const blocks = [...root.children].flatMap((section) => [...section.children]).map((block) => block.outerHTML.replaceAll(/<!--.*?-->/g, ""));
  root.remove();
  return { text: root.textContent, blocks, code, sections: root.childElementCount };
}, texts);

const prefixes = (text) => Array.from({ length: text.length }, (_, at) => text.slice(0, at + 1));

const TEXTS = {
  "plain text": "One.\n\nTwo lines\nof it.\n\n\n\nThree.",
  "headings, strong words and code": "# What **it** is\nUse `look` and ``see``, not **that**.\n## More\nEnd",
  "lists of all kinds": "Before:\n- one\n- two\n  1. inner\n  2. more\n\n- loose\n\n3. three\n4. four\n\n- [x] done\n- [ ] open\nlazy\n\nAfter.",
  "a list that a late item joins": "1. one\n\n2. two\n\n10. ten\n\nEnd.",
  "a table": "Text\n\n| a | b |\n| --- | ---: |\n| 1 | **2** |\n| `x` | y |\n\nAfter.",
  "quotes and a rule": "> one\n> two\n\n---\n\n> three\n\nEnd",
  "a setext heading": "Title\n=====\n\nText\n---\n",
  "code with Markdown signs": "Before:\n```js\n# none\n\nlet **a** = `1`;\n```\nAfter `it`.",
  "unclosed code": "```\nfor\n\never",
  "indented code": "Text\n\n    one\n\n    two\n\nEnd",
  "tildes, and a longer fence": "~~~\n```\n~~~\n````\n```\n````\nend",
  "code in a list": "- a\n  ```sh\n  ls\n  ```\n- b\n",
  "signs without meaning": "2 ** 3 ** 4, a `tick, snake_case, ** no **, #none, `` `",
  "markup": "<b>**<i>x</i>**</b>`<script>`\n```\n</p><p>\n```",
  "a block of HTML": "<div onclick=alert(1)>\n<img src=x onerror=alert(2)>\n</div>\n\nEnd",
  "links": "[a](https://example.org \"t\") http://b.example <mailto:c@d.example> [bad](javascript:alert(1)) [rel](/x) ![i](https://x.example/i.png)",
  "line ends only": "\n\n\n\n",
};

for (const [name, text] of Object.entries(TEXTS)) {
  test(`the result does not depend on the chunks: ${name}`, async () => {
    const expected = await render([text]);
    assert.deepEqual(await render(prefixes(text)), expected);
    assert.deepEqual(await render(["something else", text]), expected);
    assert.deepEqual(await render([...prefixes(text.replaceAll("\n", "\r\n"))]), expected, "line ends of Windows");
  });
}

test("Markdown becomes the elements that people know", async () => {
  const { blocks } = await render([TEXTS["headings, strong words and code"]]);
  assert.deepEqual(blocks, ['<h3 data-depth="1">What <strong>it</strong> is</h3>', "<p>Use <code>look</code> and <code>see</code>, not <strong>that</strong>.</p>", '<h4 data-depth="2">More</h4>', "<p>End</p>"]);
  const { blocks: [before, list, ordered, tasks] } = await render([TEXTS["lists of all kinds"]]);
  assert.equal(before, "<p>Before:</p>");
  assert.match(list, /^<ul><li>.*one.*<ol><li>inner<\/li><li>more<\/li><\/ol>.*loose.*<\/ul>$/);
  assert.match(ordered, /^<ol start="3"><li>three<\/li><li>four<\/li><\/ol>$/);
  assert.match(tasks, /^<ul class="tasks"><li><input type="checkbox" disabled="" aria-label="done" checked="">done<\/li><li><input type="checkbox" disabled="" aria-label="open">open\nlazy<\/li><\/ul>$/);
  const { blocks: [, table] } = await render([TEXTS["a table"]]);
  assert.match(table, /<thead><tr><th>a<\/th><th data-align="right">b<\/th><\/tr><\/thead><tbody><tr><td>1<\/td><td data-align="right"><strong>2<\/strong><\/td><\/tr>/);
  const code = await render([TEXTS["code with Markdown signs"]]);
  assert.deepEqual(code.code, [["JavaScript", "# none\n\nlet **a** = `1`;"]]);
  assert.equal(code.blocks.length, 3);
});

test("links lead to http, https and mailto only, and no image of another address is requested", async () => {
  const { blocks: [links] } = await render([TEXTS.links]);
  const targets = [...links.matchAll(/<a href="([^"]*)" target="_blank" rel="noopener noreferrer"/g)].map(([, href]) => href);
  assert.deepEqual(targets, ["https://example.org", "http://b.example", "mailto:c@d.example", "https://x.example/i.png"]);
  assert.match(links, /\[bad\]\(javascript:alert\(1\)\) \[rel\]\(\/x\)/);
  assert.doesNotMatch(links, /<img/);
});

test("HTML in a text is text", async () => {
  for (const name of ["markup", "a block of HTML"]) {
    const { blocks } = await render([TEXTS[name]]);
    assert.deepEqual(blocks.flatMap((block) => [...block.matchAll(/<([a-z0-9-]+)/g)].map(([, tag]) => tag)).filter((tag) => !["p", "strong", "code", "ps-code"].includes(tag)), []);
  }
  const { text } = await render(["<img src=x onerror=alert(1)><script>alert(2)</script>"]);
  assert.equal(text, "<img src=x onerror=alert(1)><script>alert(2)</script>");
  assert.equal(await page.locator("[onerror], [onclick]").count(), 0);
});

test("a text without blank lines is split, and code continues in the next segment", async () => {
  const line = `${"word ".repeat(15)}\n`;
  const text = `${line.repeat(200)}\n\`\`\`\n${line.repeat(200)}\`\`\`\nThe end.`;
  const expected = await render([text]);
  assert.equal(expected.code[0][1], line.repeat(200).slice(0, -1));
  assert.equal(expected.blocks.at(-1), "<p>The end.</p>");
  assert.ok(expected.blocks.length > 3);
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
  const { blocks, sections } = await render([text.slice(0, 1_000_000), text]);
  assert.equal(blocks.length, 100_000);
  assert.ok(sections > 3000);
  const lines = "let it = be;\n".repeat(150_000);
  assert.ok((await render([`\`\`\`\n${lines}`])).code[0][1] === lines);
});

test("drawn nodes stay, and with them a selection", async () => {
  const kept = await page.evaluate(async () => {
    const { Prose } = await import("/assets/surfaces/prose.js");
    const root = document.createElement("div");
    document.body.append(root);
    const prose = new Prose(root);
    prose.set("First.\n\nOne `two` three");
    const [first, last] = root.querySelectorAll("p");
    const before = [first, ...last.childNodes];
    getSelection().setBaseAndExtent(last.lastChild, 1, last.lastChild, 6);
    prose.set("First.\n\nOne `two` three and **four** and");
    const selected = getSelection().toString();
    const paragraphs = root.querySelectorAll("p");
    const after = [paragraphs[0], ...paragraphs[1].childNodes];
    root.remove();
    return { nodes: before.map((node, at) => node === after[at]), selected };
  });
  assert.deepEqual(kept, { nodes: [true, true, true, true], selected: "three" });
});

test("complete code is highlighted, and copied by its button", async () => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.evaluate(async () => {
    const { Prose } = await import("/assets/surfaces/prose.js");
    const root = Object.assign(document.createElement("div"), { id: "code-test" });
    document.body.prepend(root);
    new Prose(root).set("```rust\nfn main() {}\n```\n");
  });
  await until(page, () => document.querySelector('#code-test [data-token="keyword"]')?.textContent === "fn");
  await page.locator("#code-test .copy").dispatchEvent("click");
  await until(page, () => document.querySelector("#code-test .copy").textContent.includes("Copied"));
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "fn main() {}");
  assert.equal(await page.locator("#code-test code").textContent(), "fn main() {}");
  assert.deepEqual(page.problems, []);
});
