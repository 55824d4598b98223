/**
 * Patches: conformance to RFC 6902, and immutability of the old value.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { PatchError, apply, equal } from "../../../web-demo/client/patch.js";
import { seededRandom } from "./harness.js";

/** Freezes a value deeply, so that a change of shared parts throws. */
function deepFreeze(value) {
  if (typeof value === "object" && value !== null) Object.values(Object.freeze(value)).forEach(deepFreeze);
  return value;
}

/** The examples of RFC 6902, appendix A: document, patch and result; `undefined` if the patch does not apply. */
const EXAMPLES = [
  ["A.1 adding an object member", { tool: "search" }, [{ op: "add", path: "/state", value: "running" }], { state: "running", tool: "search" }],
  ["A.2 adding an array element", { parts: ["one", "three"] }, [{ op: "add", path: "/parts/1", value: "two" }], { parts: ["one", "two", "three"] }],
  ["A.3 removing an object member", { state: "running", tool: "search" }, [{ op: "remove", path: "/state" }], { tool: "search" }],
  ["A.4 removing an array element", { parts: ["one", "two", "three"] }, [{ op: "remove", path: "/parts/1" }], { parts: ["one", "three"] }],
  ["A.5 replacing a value", { state: "running", tool: "search" }, [{ op: "replace", path: "/state", value: "done" }], { state: "done", tool: "search" }],
  ["A.6 moving a value", { from: { it: "this", stays: 1 }, to: { has: 2 } }, [{ op: "move", from: "/from/it", path: "/to/it" }], { from: { stays: 1 }, to: { has: 2, it: "this" } }],
  ["A.7 moving an array element", { do: ["all", "read", "write", "check"] }, [{ op: "move", from: "/do/1", path: "/do/3" }], { do: ["all", "write", "check", "read"] }],
  ["A.8 testing a value, success", { a: "b", list: ["c", 2, "d"] }, [{ op: "test", path: "/a", value: "b" }, { op: "test", path: "/list/1", value: 2 }], { a: "b", list: ["c", 2, "d"] }],
  ["A.9 testing a value, error", { a: "b" }, [{ op: "test", path: "/a", value: "c" }], undefined],
  ["A.10 adding a nested member object", { a: "b" }, [{ op: "add", path: "/child", value: { grandchild: {} } }], { a: "b", child: { grandchild: {} } }],
  ["A.11 ignoring unrecognised elements", { a: "b" }, [{ op: "add", path: "/c", value: "d", xyz: 1 }], { a: "b", c: "d" }],
  ["A.12 adding to a target that is not there", { a: "b" }, [{ op: "add", path: "/c/d", value: "e" }], undefined],
  ["A.13 no operation", { a: "b" }, [{ op: "append", path: "/a", value: "c" }], undefined],
  ["A.14 ~ escape ordering", { "/": 9, "~1": 10 }, [{ op: "test", path: "/~01", value: 10 }], { "/": 9, "~1": 10 }],
  ["A.15 comparing strings and numbers", { "/": 9, "~1": 10 }, [{ op: "test", path: "/~01", value: "10" }], undefined],
  ["A.16 adding an array value", { a: ["b"] }, [{ op: "add", path: "/a/-", value: ["c", "d"] }], { a: ["b", ["c", "d"]] }],
];

for (const [name, before, patch, after] of EXAMPLES) {
  test(`RFC 6902, ${name}`, () => {
    if (after === undefined) assert.throws(() => apply(deepFreeze(before), patch), PatchError);
    else assert.deepEqual(apply(deepFreeze(before), patch), after);
  });
}

test("pointers follow RFC 6901", () => {
  const document = deepFreeze({ foo: ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8 });
  const values = { "/foo": ["bar", "baz"], "/foo/0": "bar", "/": 0, "/a~1b": 1, "/c%d": 2, "/e^f": 3, "/g|h": 4, "/i\\j": 5, '/k"l': 6, "/ ": 7, "/m~0n": 8, "": document };
  for (const [path, value] of Object.entries(values)) assert.equal(apply(document, [{ op: "test", path, value }]), document, path);
});

test("an invalid operation throws with its index, and nothing is applied", () => {
  const before = deepFreeze({ list: [1, 2], text: "words", object: { a: 1 }, nothing: null });
  const validOperation = { op: "add", path: "/new", value: 1 };
  const invalidOperations = [
    { op: "add", path: "/list/3", value: 0 },
    { op: "add", path: "/list/01", value: 0 },
    { op: "add", path: "/list/-1", value: 0 },
    { op: "add", path: "/list/1e0", value: 0 },
    { op: "add", path: "/list/", value: 0 },
    { op: "add", path: "/text/0", value: 0 },
    { op: "add", path: "/nothing/a", value: 0 },
    { op: "add", path: "list", value: 0 },
    { op: "add", path: "/~2", value: 0 },
    { op: "add", path: "/~", value: 0 },
    { op: "add", value: 0 },
    { op: "add", path: "/a" },
    { op: "replace", path: "/list/-", value: 0 },
    { op: "replace", path: "/list/2", value: 0 },
    { op: "replace", path: "/absent", value: 0 },
    { op: "replace", path: "/toString", value: 0 },
    { op: "replace", path: "/list/length", value: 0 },
    { op: "remove", path: "/absent" },
    { op: "remove", path: "/list/-" },
    { op: "remove", path: "" },
    { op: "remove", path: "/__proto__" },
    { op: "test", path: "/absent", value: null },
    { op: "test", path: "/object", value: { a: 1, b: 2 } },
    { op: "test", path: "/list", value: [2, 1] },
    { op: "copy", path: "/a" },
    { op: "copy", from: "/absent", path: "/a" },
    { op: "move", from: "/object", path: "/object/a" },
    { op: "move", from: "/absent", path: "/absent" },
    { path: "/a", value: 0 },
  ];
  for (const operation of invalidOperations) {
    assert.throws(() => apply(before, [validOperation, operation, validOperation]), (error) => error instanceof PatchError && error.index === 1, JSON.stringify(operation));
  }
  assert.deepEqual(before, { list: [1, 2], text: "words", object: { a: 1 }, nothing: null });
});

test("parts outside of a patch stay the same object", () => {
  const before = deepFreeze({ parts: [{ text: ["a"] }, { text: ["b"], more: {} }], other: { deep: [] } });
  const after = apply(before, [{ op: "add", path: "/parts/1/text/-", value: "c" }, { op: "replace", path: "/parts/1/more", value: 1 }]);
  assert.equal(after.other, before.other);
  assert.equal(after.parts[0], before.parts[0]);
  assert.notEqual(after.parts[1], before.parts[1]);
  assert.deepEqual(before.parts[1], { text: ["b"], more: {} });
  assert.equal(apply(before, []), before);
  assert.equal(apply(before, [{ op: "test", path: "/other/deep", value: [] }]), before);
});

test("a copied value changes independently of its source, even in the same patch", () => {
  const patch = [
    { op: "add", path: "/a/x", value: 1 },
    { op: "copy", from: "/a", path: "/b" },
    { op: "add", path: "/b/y", value: 2 },
    { op: "add", path: "/a/z", value: 3 },
  ];
  assert.deepEqual(apply(deepFreeze({ a: {} }), patch), { a: { x: 1, z: 3 }, b: { x: 1, y: 2 } });
  const value = deepFreeze({ n: [] });
  assert.deepEqual(apply({}, [{ op: "add", path: "/a", value }, { op: "add", path: "/b", value }, { op: "add", path: "/a/n/-", value: 1 }]), { a: { n: [1] }, b: { n: [] } });
});

test("members with special names are ordinary members", () => {
  const after = apply({}, [{ op: "add", path: "/__proto__", value: { evil: true } }, { op: "add", path: "/constructor", value: {} }, { op: "add", path: "/__proto__/more", value: 1 }]);
  assert.equal(Object.getPrototypeOf(after), Object.prototype);
  assert.equal({}.evil, undefined);
  assert.deepEqual(Object.keys(after), ["__proto__", "constructor"]);
  assert.equal(JSON.stringify(after), '{"__proto__":{"evil":true,"more":1},"constructor":{}}');
  assert.equal(JSON.stringify(apply(after, [{ op: "remove", path: "/__proto__" }])), '{"constructor":{}}');
});

test("streamed text grows in its last chunk, and other lists do not", () => {
  const isText = (pointer) => /^\/parts\/\d+\/text$/.test(pointer);
  let content = deepFreeze({ parts: [{ text: ["a", "b"] }, { text: [] }], text: ["x"] });
  const add = (path, value) => deepFreeze(content = apply(content, [{ op: "add", path, value }], isText));
  add("/parts/0/text/-", "c");
  add("/parts/0/text/-", "d");
  add("/parts/1/text/-", "e");
  add("/text/-", "y");
  add("/parts/1/text/-", 7);
  add("/parts/1/text/-", "f");
  add("/parts/1/text/-", "g");
  assert.deepEqual(content, { parts: [{ text: ["a", "bcd"] }, { text: ["e", 7, "fg"] }], text: ["x", "y"] });
});

test("an append to a long text costs its own length, and the list of chunks stays short", () => {
  // 200,000 chunks of 50 characters: copying the text each time would copy a terabyte.
  const isText = (pointer) => pointer === "/text";
  const chunk = "x".repeat(50);
  let content = { text: ["y".repeat(1_000_000)] };
  for (let n = 0; n < 200_000; n += 1) content = apply(content, [{ op: "add", path: "/text/-", value: chunk }], isText);
  assert.equal(content.text.join("").length, 11_000_000);
  // 328 appends give 16,400 units, which exceeds the maximum of a chunk.
  assert.equal(content.text.length, 1 + Math.ceil(200_000 / 328));
});

test("`equal` compares JSON values deeply", () => {
  assert.ok(equal({ a: 1, b: [{}, null] }, { b: [{}, null], a: 1 }));
  for (const [a, b] of [[{}, []], [[], {}], [null, {}], [{ a: 1 }, { b: 1 }], [{ a: undefined }, {}], [[1], [1, 2]], ["1", 1], [{ toString: 1 }, { a: 1 }], [0, false]]) {
    assert.ok(!equal(a, b), JSON.stringify([a, b]));
  }
});

/* ── against a reference implementation ── */

/** The reference: JSON Patch on a deep copy, written from the RFC only. Throws if the patch does not apply. */
function applyReference(document, patch) {
  let root = structuredClone(document);
  const tokensOf = (pointer) => (pointer === "" ? [] : pointer.slice(1).split("/").map((step) => step.replace(/~1/g, "/").replace(/~0/g, "~")));
  const child = (at, step) => {
    if (at === null || typeof at !== "object") throw new Error("no container");
    if (Array.isArray(at) && !(/^(0|[1-9][0-9]*)$/.test(step) && Number(step) < at.length)) throw new Error("no element");
    if (!Array.isArray(at) && !Object.keys(at).includes(step)) throw new Error("no member");
    return at[step];
  };
  const get = (pointer) => tokensOf(pointer).reduce(child, root);
  const into = (pointer) => [tokensOf(pointer).slice(0, -1).reduce(child, root), tokensOf(pointer).at(-1)];
  const remove = (pointer) => {
    const removed = get(pointer);
    if (pointer === "") throw new Error("the root");
    const [at, step] = into(pointer);
    if (Array.isArray(at)) at.splice(Number(step), 1);
    else delete at[step];
    return removed;
  };
  const add = (pointer, value) => {
    if (pointer === "") return void (root = value);
    const [at, step] = into(pointer);
    if (at === null || typeof at !== "object") throw new Error("no container");
    if (!Array.isArray(at)) return void (at[step] = value);
    if (step === "-") return void at.push(value);
    if (!/^(0|[1-9][0-9]*)$/.test(step) || Number(step) > at.length) throw new Error("no index");
    at.splice(Number(step), 0, value);
  };
  const same = (a, b) => { try { assert.deepStrictEqual(a, b); return true; } catch { return false; } };
  for (const { op, path, from, value } of structuredClone(patch)) {
    if (op === "add") add(path, value);
    if (op === "remove") remove(path);
    if (op === "replace") (get(path), path === "" ? (root = value) : (([at, step]) => (at[step] = value))(into(path)));
    if (op === "test" && !same(get(path), value)) throw new Error("another value");
    if (op === "copy") add(path, structuredClone(get(from)));
    if (op === "move") {
      if (path.startsWith(`${from}/`)) throw new Error("into itself");
      if (path === from) get(from);
      else add(path, remove(from));
    }
  }
  return root;
}

function randomValue(random, depth = 0) {
  const kind = random(depth > 2 ? 4 : 7);
  if (kind === 0) return random(5);
  if (kind === 1) return ["", "a", "b/~"][random(3)];
  if (kind === 2) return [null, true, false][random(3)];
  if (kind === 3) return 1.5;
  if (kind < 6) return Object.fromEntries(Array.from({ length: random(4) }, () => [["a", "b", "c/~d", "", "0"][random(5)], randomValue(random, depth + 1)]));
  return Array.from({ length: random(4) }, () => randomValue(random, depth + 1));
}

/** Returns a random pointer that usually exists in the document. */
function randomPointer(random, document) {
  let [pointer, at] = ["", document];
  while (typeof at === "object" && at !== null && random(4) > 0) {
    const tokensOf = [...Object.keys(at), ...(random(3) === 0 ? [Array.isArray(at) ? "-" : "new", "9", "01"] : [])];
    if (tokensOf.length === 0) break;
    const step = tokensOf[random(tokensOf.length)];
    pointer += `/${step.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    at = Object.hasOwn(at, step) ? at[step] : undefined;
  }
  return pointer;
}

test("random patches give the result of the reference, or fail where it fails", () => {
  const random = seededRandom(6902);
  const outcomes = { applied: 0, refused: 0 };
  for (let n = 0; n < 20_000; n += 1) {
    const before = deepFreeze(randomValue(random));
    const patch = deepFreeze(Array.from({ length: 1 + random(4) }, () => ({
      op: ["add", "add", "add", "replace", "remove", "copy", "move", "test"][random(8)],
      path: randomPointer(random, before),
      from: randomPointer(random, before),
      value: randomValue(random),
    })));
    const message = JSON.stringify({ before, patch });
    let expected;
    try {
      expected = { after: applyReference(before, patch) };
    } catch {
      expected = undefined;
    }
    if (expected) assert.deepEqual(apply(before, patch), expected.after, message);
    else assert.throws(() => apply(before, patch), PatchError, message);
    outcomes[expected ? "applied" : "refused"] += 1;
  }
  assert.ok(outcomes.applied > 5000 && outcomes.refused > 2000, JSON.stringify(outcomes));
});
