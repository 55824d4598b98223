/**
 * Approvals, from the facts of a source to the control that its worker claims: the control agrees with the button's
 * label, for each source, with and without a schema. The tests publish recordings up to their suspension and then
 * click.
 */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { partOf } from "../part.mjs";
import { limit, text, until, useStage } from "./stage.js";

let stage, page;
let runs = 0;

useStage((opened) => (stage = opened), () => page);

/** Returns the facts of a recording up to the request, which `change` may modify. */
async function upTo(name, isAsking, change = (fact) => fact) {
  const lines = await readFile(new URL(`../recordings/${name}.ndjson`, import.meta.url), "utf8");
  const facts = lines.trim().split("\n").map((line) => JSON.parse(line));
  const at = facts.findIndex(isAsking);
  assert.ok(at >= 0, `${name} has a request`);
  return [...facts.slice(0, at), change(facts[at])];
}

const DECISION = { type: "object", required: ["approved"], properties: { approved: { type: "boolean" } } };
const DETAILS = { type: "object", required: ["city"], properties: { city: { type: "string", title: "City" } } };

/**
 * For each source: the facts that request an approval or an answer, with or without a schema; the arguments of the
 * call; and further facts on the card. `source` defaults to the name.
 */
const SOURCES = {
  agentui: {
    ask: async (schema, isQuestion) => [
      { type: "run.started" },
      { type: "tool.started", toolCallId: "c", payload: { toolName: "delete_branch", input: { branch: "feat/old" } } },
      { type: "action.required", actionId: "a", toolCallId: "c", payload: { kind: isQuestion ? "structured_input" : "tool_approval", message: "Delete it?", toolName: "delete_branch", input: { branch: "feat/old" }, risk: "high", policyScope: "run", ...(schema && { schema }) } },
    ],
    args: { branch: "feat/old" }, tool: "delete_branch", risk: "High risk", scope: "run",
  },
  awaken: {
    ask: (schema, isQuestion) => upTo("awaken/hitl_approve", (fact) => fact.outcome === "suspended", (fact) => {
      const ticket = fact.result.suspension;
      if (schema) ticket.suspension.response_schema = schema;
      else delete ticket.suspension.response_schema;
      if (isQuestion) ticket.resume_mode = "use_decision_as_tool_result";
      return fact;
    }),
    args: { branch: "feat/old" }, tool: "delete_branch", risk: "High risk",
  },
  turnrunner: {
    ask: (schema, isQuestion) => upTo("turn-runner/handwritten-port-gate_approved", (fact) => fact.event === "turnGateOpen", (fact) => {
      if (schema) fact.payload.payload.schema = schema;
      if (isQuestion) fact.payload.reason = "details";
      return fact;
    }),
    args: { env: "prod" }, tool: "deploy", risk: "High risk",
  },
  "ag-ui": {
    ask: (schema, isQuestion) => upTo("ag-ui/scripted-sdk1.0-interrupt_resume", (fact) => fact.outcome?.type === "interrupt", (fact) => {
      const [interrupt] = fact.outcome.interrupts;
      if (schema) interrupt.responseSchema = schema;
      else delete interrupt.responseSchema;
          interrupt.reason = isQuestion ? "input_required" : "tool_approval";
      return fact;
    }),
    args: { branch: "feat/x" }, tool: undefined,
  },
  // The request has neither a call nor a schema, and its outcome is a string.
  "ag-ui by Awaken's encoder": {
    source: "ag-ui",
    ask: (schema, isQuestion) => upTo("ag-ui/awaken-encoder-hitl_approve", (fact) => fact.outcome === "interrupt", (fact) => {
      if (schema) fact.interrupt.responseSchema = schema;
      if (isQuestion) fact.interrupt.reason = "input_required";
      return fact;
    }),
    args: { branch: "feat/old" }, tool: "delete_branch",
  },
};

/** Publishes a request, opens its run, and returns its card. */
async function asks(source, facts, hash = {}) {
  const run = `approval-${++runs}`;
  const agent = `agent-${run}`;
  await stage.publish(run, facts, { source, agentId: agent });
  page = await stage.look({ run, ...hash });
  const card = page.locator("ps-action");
  await card.waitFor();
  // Wait until the layout is stable, so that a click hits its target.
  await until(page, () => document.getElementById("stage").dataset.hydration === "whole" && document.getElementById("connection").dataset.kind === "live");
  return { run, agent, card };
}

/** The typed arguments on a card. */
const argumentsOf = (card, label = "Arguments") => card.getByRole("group", { name: label, exact: true }).locator(".arg").evaluateAll((all) => Object.fromEntries(all.map((one) => {
  const value = one.querySelector(".arg-value");
  return [one.querySelector(".arg-name").textContent, value.dataset.type === "string" ? value.textContent : JSON.parse(value.textContent)];
})));

/** Clicks a button, and returns the control that the worker claims. A rejection first asks for a reason. */
async function claimed({ run, agent, card }, name, { exact = true, reason } = {}) {
  // What builds a form loads with the first one.
  await card.locator(".outcomes button").first().waitFor();
  const opener = card.locator("[data-opens]");
  if ((await opener.count()) > 0 && (await text(opener)).startsWith(`${name}…`)) {
    await opener.click();
    if (reason) await card.getByLabel("Reason (optional)").fill(reason);
  }
  const button = card.getByRole("button", { name, exact });
  const says = await button.getAttribute("data-control");
  await button.click();
  await until(page, () => /^(Answered by you\.|Not )/.test(document.querySelector("ps-action .told").textContent));
  assert.match(await text(card.locator(".told")), /^Answered by you\./);
  const control = await stage.claim(agent, { run });
  assert.equal(control.control, says, "the button names its control");
  return { control: control.control, value: control.value };
}

for (const [name, { source = name, ask, args }] of partOf(Object.entries(SOURCES), 2)) {
  test(`${name}: Approve approves and Reject rejects, without a schema`, limit, async () => {
    const facts = await ask(undefined, false);
    assert.deepEqual(await claimed(await asks(source, facts), "Approve"), { control: "approve", value: undefined });
    await page.close();
    assert.deepEqual(await claimed(await asks(source, facts), "Reject"), { control: "reject", value: undefined });
  });

  test(`${name}: Approve sends approved: true and Reject approved: false, with a schema that contains the decision`, limit, async () => {
    for (const schema of [DECISION, { type: "object", properties: { approved: { type: "boolean", default: false }, reason: { type: "string", title: "Reason" } } }]) {
      const facts = await ask(schema, false);
      const first = await asks(source, facts);
      assert.equal(await first.card.locator('input[type="checkbox"]').count(), 0, "the form does not repeat the decision of the buttons");
      assert.deepEqual(await claimed(first, "Approve"), { control: "approve", value: { approved: true } });
      await page.close();
      const second = await asks(source, facts);
      const hasReason = schema !== DECISION;
      if (hasReason) await second.card.getByLabel("Reason").fill("too risky");
      assert.deepEqual(await claimed(second, "Reject"), { control: "reject", value: { approved: false, ...(hasReason && { reason: "too risky" }) } });
      await page.close();
    }
  });

  test(`${name}: edited arguments are claimed as an edit`, limit, async () => {
    for (const schema of [undefined, DECISION]) {
      const asked = await asks(source, await ask(schema, false));
      await asked.card.locator(".edit summary").click();
      const field = asked.card.locator(".edit textarea");
      assert.deepEqual(JSON.parse(await field.inputValue()), args);
      await field.fill('{"changed": true}');
      assert.deepEqual(await claimed(asked, "Edit arguments"), { control: "edit", value: { changed: true } });
      await page.close();
    }
  });

  test(`${name}: an answer is claimed unchanged, with and without a schema`, limit, async () => {
    const plain = await asks(source, await ask(undefined, true));
    await plain.card.locator("textarea").fill("Bern");
    assert.deepEqual(await claimed(plain, "Send answer"), { control: "answer", value: "Bern" });
    await page.close();
    const asked = await asks(source, await ask(DETAILS, true));
    await asked.card.getByLabel("City").fill("Bern");
    assert.deepEqual(await claimed(asked, "Send answer"), { control: "answer", value: { city: "Bern" } });
    await page.close();
    // If the schema contains the decision, no untouched checkbox may decide.
    const yes = await asks(source, await ask(DECISION, true));
    assert.deepEqual(await claimed(yes, "Approve"), { control: "answer", value: { approved: true } });
    await page.close();
    const no = await asks(source, await ask(DECISION, true));
    assert.deepEqual(await claimed(no, "Reject"), { control: "reject", value: { approved: false } });
  });

  test(`${name}: the card shows tool, arguments, risk, scope and requester, or that they are not stated`, limit, async () => {
    const { card, agent } = await asks(source, await ask(DECISION, false));
    const { tool, risk, scope } = SOURCES[name];
    const facts = await card.locator(".facts").evaluate((list) => Object.fromEntries([...list.querySelectorAll("dt")].map((term) => [term.textContent, term.nextElementSibling.textContent])));
    if (tool) assert.equal(facts.Tool, tool);
    else assert.ok(facts.Tool, "the name of the call");
    assert.deepEqual(await argumentsOf(card), args);
    if (risk) assert.equal(await text(card.locator(".risk")), risk);
    assert.equal(facts.Scope, scope);
    const omitted = [!risk && "risk", !scope && "scope", "result"].filter(Boolean);
    assert.equal(await text(card.locator(".unstated")), `Not stated: ${omitted.join(", ")}.`);
    assert.match(await text(card.locator(".requester")), new RegExp(`^(${agent}|.+) asks|^Requester: not stated$`));
    assert.equal(await text(card.locator(".badge").first()), "Needs approval");
    // A call that waits for a person does not look like a running one.
    const call = page.locator("ps-tool").first();
    assert.equal(await text(call.locator(".badge")), "waiting for approval");
    assert.equal(await call.locator("progress").isVisible(), false);
    assert.match(await text(page.locator("ps-inline-process .words").last()), /^Waiting for approval: /);
    await page.locator("#tab-trace").click();
    await until(page, () => /waiting for approval/i.test(document.querySelector("ps-trace").textContent));
  });
}

test("awaken: the recording's suspension sends the button's decision", limit, async () => {
  const facts = await upTo("awaken/hitl_approve", (fact) => fact.event_type === "run_finish");
  assert.deepEqual(await claimed(await asks("awaken", facts), "Approve"), { control: "approve", value: { approved: true } });
});

test("ag-ui: the recording's interrupt sends the button's decision", limit, async () => {
  const facts = await upTo("ag-ui/scripted-sdk1.0-interrupt_resume", (fact) => fact.outcome?.type === "interrupt");
  for (const [name, approved] of [["Approve", true], ["Reject", false]]) {
    const { value } = await claimed(await asks("ag-ui", facts), name);
    assert.deepEqual(value, { approved });
    await page.close();
  }
});

test("ethos: a credential that needs a sign-in cannot be entered, and can be declined", limit, async () => {
  const facts = await upTo("ethos/hitl_credential_required", (fact) => fact.type === "done");
  const asked = await asks("ethos", facts);
  assert.equal(await text(asked.card.locator(".card-title")), "Connect Linear");
  await asked.card.getByText("needs a sign-in (OAuth)").waitFor();
  assert.equal(await text(asked.card.locator(".facts")), "Credential\noauth\nReferences\ns3");
  assert.equal(await asked.card.getByRole("group", { name: "Details from the source" }).count(), 0, "nothing appears twice");
  assert.equal(await asked.card.locator("input").count(), 0);
  assert.deepEqual(await claimed(asked, "Decline"), { control: "reject", value: undefined });
});

test("ethos: a credential in plain text is sent, and not on the page afterwards", limit, async () => {
  const facts = await upTo("ethos/hitl_credential_required", (fact) => fact.type === "done");
  facts.find((fact) => fact.type === "credential_required").kind = "api_key";
  const asked = await asks("ethos", facts);
  assert.equal(await text(asked.card.locator(".facts")), "Credential\napi key\nReferences\ns3");
  await asked.card.locator('input[type="password"]').fill("not-a-real-key-77");
  const button = asked.card.getByRole("button", { name: "Send answer" });
  await button.click();
  await until(page, () => document.querySelector("ps-action .told").textContent.startsWith("Answered by you."));
  assert.equal((await stage.claim(asked.agent, { run: asked.run })).control, "answer");
});

test("a credential with a schema has a password field", limit, async () => {
  const { card } = await asks("agentui", [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { kind: "credential_request", message: "Key?", schema: { type: "object", required: ["key"], properties: { key: { type: "string", title: "Key" } } } } }]);
  assert.equal(await card.getByLabel("Key", { exact: true }).getAttribute("type"), "password");
});

test("ethos: an approval without a gate has no button", limit, async () => {
  const facts = await upTo("ethos/approval_announced_not_gated", (fact) => fact.type === "tool_approval_required");
  const run = `approval-${++runs}`;
  await stage.publish(run, facts, { source: "ethos" });
  page = await stage.look({ run });
  await until(page, () => document.querySelector(".speech .body")?.textContent.startsWith("Deploying"));
  assert.equal(await page.locator("ps-action").count(), 0);
  assert.equal(await page.getByRole("button", { name: "Approve" }).count(), 0);
});

test("ethos: its gate approves, rejects and accepts edits", limit, async () => {
  const facts = [
    { type: "run_start", provider: "scripted", model: "m", source: "global", traceId: "t" },
    { type: "tool.approval_required", request: { approvalId: "ap", toolCallId: "c", toolName: "deploy", args: { env: "prod" }, reason: "production" } },
  ];
  for (const [name, control] of [["Approve", "approve"], ["Reject", "reject"]]) {
    assert.deepEqual(await claimed(await asks("ethos", facts), name), { control, value: undefined });
    await page.close();
  }
  const edited = await asks("ethos", facts);
  await edited.card.locator(".edit summary").click();
  await edited.card.locator(".edit textarea").fill('{"env": "test"}');
  assert.deepEqual(await claimed(edited, "Edit arguments"), { control: "edit", value: { env: "test" } });
});

/* ── combinations of schema, options and button ── */

const approval = (payload) => [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { kind: "tool_approval", message: "May I?", ...payload } }];

test("a decision as text, negated or nested, follows the button", limit, async () => {
  for (const [schema, approve, reject] of [
    [{ type: "object", properties: { decision: { enum: ["approve", "reject"] } } }, { decision: "approve" }, { decision: "reject" }],
    [{ type: "object", properties: { rejected: { type: "boolean" } } }, { rejected: false }, { rejected: true }],
    [{ type: "object", properties: { answer: { type: "object", properties: { isApproved: { type: "boolean" } } } } }, { answer: { isApproved: true } }, { answer: { isApproved: false } }],
    [{ type: "boolean" }, true, false],
    [{ enum: ["yes", "no"] }, "yes", "no"],
  ]) {
    assert.deepEqual(await claimed(await asks("agentui", approval({ schema })), "Approve"), { control: "approve", value: approve });
    await page.close();
    assert.deepEqual(await claimed(await asks("agentui", approval({ responseSchema: schema, schema })), "Reject"), { control: "reject", value: reject });
    await page.close();
  }
});

test("a member that permits more than the decision has a field, and no button fills it in", limit, async () => {
  const schema = { type: "object", properties: { approved: { type: "boolean" }, allowNetwork: { type: "boolean", title: "Allow the network" } } };
  const asked = await asks("agentui", approval({ schema }));
  await asked.card.getByLabel("Allow the network").waitFor();
  assert.deepEqual(await claimed(asked, "Approve"), { control: "approve", value: { approved: true, allowNetwork: false } });
});

test("an answer that contradicts its button is not sent", limit, async () => {
  const schema = { oneOf: [DECISION, { type: "null" }], type: "object" };
  const { card } = await asks("agentui", approval({ schema }));
  await card.locator("textarea").first().fill('{"approved": false}');
  await card.getByRole("button", { name: "Approve", exact: true }).click();
  await until(page, () => document.querySelector("ps-action .told").textContent.startsWith("Not sent: the answer contradicts “Approve”."));
  assert.deepEqual((await stage.read(`/v1/runs/approval-${runs}/controls`)).controls, []);
});

test("a rejection sends its reason", limit, async () => {
  assert.deepEqual(await claimed(await asks("agentui", approval({})), "Reject", { reason: "Too risky." }), { control: "reject", value: { reason: "Too risky." } });
  await page.close();
  assert.deepEqual(await claimed(await asks("agentui", approval({ schema: DECISION })), "Reject", { reason: "Too risky." }), { control: "reject", value: { approved: false, reason: "Too risky." } });
});

test("y and n focus the buttons, and Enter confirms", limit, async () => {
  const asked = await asks("agentui", approval({}));
  await page.keyboard.press("n");
  assert.equal(await page.evaluate(() => document.activeElement.dataset.opens), "reject");
  await page.keyboard.press("y");
  assert.equal(await page.evaluate(() => document.activeElement.dataset.control), "approve");
  await page.keyboard.press("Enter");
  assert.equal((await stage.claim(asked.agent, { run: asked.run })).control, "approve");
});

test("a free-text answer is written and sent by keys alone", limit, async () => {
  const asked = await asks("agentui", [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { kind: "clarification", message: "Which colour?" } }]);
  await asked.card.locator("textarea, input").first().waitFor();
  await page.keyboard.press("y");
  assert.match(await page.evaluate(() => document.activeElement.localName), /^(textarea|input)$/, "the key leads to the field");
  await page.keyboard.type("y and n are letters here");
  await page.keyboard.press("Control+Enter");
  assert.deepEqual(await stage.claim(asked.agent, { run: asked.run }).then(({ control, value }) => ({ control, value })), { control: "answer", value: "y and n are letters here" });
  assert.deepEqual(page.problems, []);
});

test("of two approvals at once, one is marked, j and k go on, and the keys answer the marked one", limit, async () => {
  const ask = (actionId) => ({ type: "action.required", actionId, payload: { kind: "tool_approval", toolName: "deploy", title: `Deploy ${actionId}?` } });
  const asked = await asks("agentui", [{ type: "run.started" }, ask("one")]);
  await stage.publish(asked.run, [ask("two")], { agentId: asked.agent });
  const marks = () => page.locator("ps-conversation ps-action").evaluateAll((cards) => cards.map((card) => [card.querySelector(".decision-place")?.textContent.trim() ?? "", card.ariaCurrent === "true", card.querySelector(".yes kbd")?.checkVisibility() ?? false]));
  const untilMarked = (...wanted) => until(page, (wanted) => JSON.stringify([...document.querySelectorAll("ps-conversation ps-action")].map((card) => card.ariaCurrent === "true")) === wanted, JSON.stringify(wanted));
  await untilMarked(false, true);
  assert.deepEqual(await marks(), [["1 of 2", false, false], ["2 of 2", true, true]], "only the marked one shows the keys");
  await page.keyboard.press("y");
  assert.equal(await page.evaluate(() => document.activeElement.closest("ps-action").querySelector(".card-title").textContent), "Deploy two?");
  await page.keyboard.press("k");
  await untilMarked(true, false);
  assert.equal(await page.evaluate(() => document.activeElement.closest("ps-action").querySelector(".card-title").textContent), "Deploy one?");
  await page.keyboard.press("j");
  await untilMarked(false, true);
  await page.keyboard.press("j");
  await untilMarked(true, false);
  await page.keyboard.press("y");
  await page.keyboard.press("Enter");
  const first = await stage.claim(asked.agent, { run: asked.run });
  assert.deepEqual([first.control, first.actionId], ["approve", "one"]);
  await stage.publish(asked.run, [{ type: "action.resolved", actionId: "one", payload: { outcome: "approved" } }], { agentId: asked.agent });
  await until(page, () => document.querySelectorAll('ps-action[data-status="pending"]').length === 1 && document.querySelector("ps-action .decision-place") === null, undefined);
  await page.keyboard.press("n");
  await page.keyboard.press("Enter");
  await page.keyboard.type("Not today.");
  await page.keyboard.press("Control+Enter");
  const second = await stage.claim(asked.agent, { run: asked.run });
  assert.deepEqual([second.control, second.actionId, second.value], ["reject", "two", { reason: "Not today." }]);
  assert.deepEqual(page.problems, []);
});

test("the options of a source are buttons that send what they say", limit, async () => {
  const options = [
    { optionId: "o1", label: "Allow once", kind: "allow_once" },
    { optionId: "o2", label: "Always allow", kind: "allow_always" },
    { optionId: "o3", label: "Reject", kind: "reject_once" },
  ];
  // The button is the narrowest yes, and the card says what it results in. A wider yes is in the menu.
  const described = options.map((option) => ({ ...option, description: `Result of ${option.label}.` }));
  for (const [name, control, value] of [["Allow once", "approve", { optionId: "o1" }], ["Always allow", "approve", { optionId: "o2" }], ["Reject", "reject", { optionId: "o3" }]]) {
    const asked = await asks("agentui", approval({ options: described }));
    assert.deepEqual(await asked.card.locator("button[data-control], button[data-opens]").evaluateAll((all) => all.map((one) => one.textContent)), ["Allow onceY", "Reject…N"]);
    assert.equal(await text(asked.card.locator(".no-text")), "Result of Reject.");
    if (name === "Always allow") {
      await asked.card.getByRole("button", { name: "Allow more" }).click();
      const item = asked.card.getByRole("menuitem", { name: "Always allow" });
      assert.match(await text(item), /Result of Always allow\.$/);
      await item.click();
      const sent = await stage.claim(asked.agent, { run: asked.run });
      assert.deepEqual([sent.control, sent.value], [control, value]);
    } else {
      if (control === "approve") assert.equal(await text(asked.card.locator(".yes-text")), `Result of ${name}.`);
      assert.deepEqual(await claimed(asked, name), { control, value });
    }
    await page.close();
  }
  const silent = await asks("agentui", approval({ options }));
  assert.match(await text(silent.card.locator(".unstated")), /result\.$/);
  await page.close();
  // With a schema, the option is sent together with the decision.
  assert.deepEqual(await claimed(await asks("agentui", approval({ options, schema: DECISION })), "Reject"), { control: "reject", value: { optionId: "o3", approved: false } });
});

/* ── the subject of a decision ── */

test("a review shows the artifact with its version and diff", limit, async () => {
  const run = `approval-${++runs}`;
  await stage.publish(run, [
    { type: "run.started" },
    { type: "artifact.created", artifactId: "report", payload: { title: "Report", kind: "document" } },
    { type: "artifact.version.created", artifactId: "report", payload: { version: 2 } },
    { type: "artifact.diff.ready", artifactId: "report", payload: { diff: "@@ -1 +1 @@\n-Revenue grew.\n+Revenue grew to 5 M EUR." } },
  ]);
  page = await stage.blank();
  // The server may not store these members of the protocol yet, so the test adds them to the stream.
  await withMembers(run, "a", { kind: "artifact_review", message: "Good?", artifactId: "report", versionId: 2, evidenceId: "none", refs: [{ rel: "ticket", href: "T-1" }] });
  await stage.look({ run }, page);
  const card = page.locator("ps-action");
  await until(page, () => document.querySelectorAll("ps-action .diff-line").length === 2);
  assert.deepEqual(await card.locator(".diff-line").evaluateAll((all) => all.map((one) => one.dataset.kind)), ["delete", "add"]);
  await until(page, () => document.querySelector("ps-action .diff-line mark"));
  assert.equal(await text(card.locator(".artifact-name")), "Report");
  assert.match(await text(card.locator(".subject-version")), /^version (1 → )?2$/);
  // d hides and shows the diff, and two columns show the same lines.
  await page.keyboard.press("d");
  assert.equal(await card.locator(".diff-line").count(), 0);
  await card.getByRole("button", { name: "Side by side" }).click();
  assert.deepEqual(await card.locator(".diff-line code").allTextContents(), ["Revenue grew.", "Revenue grew to 5 M EUR."]);
  assert.match(await text(card.locator(".facts")), /Evidence\nnone \(not found\)\nReferences\nT-1/);
  await card.getByRole("button", { name: "Open artifact" }).click();
  assert.equal(await page.locator("#tab-artifacts").getAttribute("aria-selected"), "true");
});

test("a plan decision shows the steps of its plan, the latest plan of the run, or a note", limit, async () => {
  const run = `approval-${++runs}`;
  await stage.publish(run, [{ type: "run.started" }]);
  page = await stage.blank();
  await withMembers(run, "a", { kind: "plan_decision", plan: { summary: "Two steps.", steps: [{ title: "Read", status: "completed" }, { title: "Write", status: "pending" }] } });
  await stage.look({ run }, page);
  await until(page, () => document.querySelectorAll("ps-action .steps-list .step").length === 2);
  assert.deepEqual(await page.locator("ps-action .step").evaluateAll((all) => all.map((one) => [...one.children].map((part) => part.textContent))), [["Read", "completed"], ["Write"]]);
  assert.match(await page.locator("ps-action .plan").innerText(), /Two steps\./);
  await page.close();
  const { card } = await asks("agentui", [{ type: "run.started" }, { type: "plan.final", messageId: "m", partId: "p", payload: { text: "Read, then write." } }, { type: "action.required", actionId: "a", payload: { kind: "plan_decision" } }]);
  assert.match(await card.innerText(), /Read, then write\.[\s\S]*latest plan of the run/);
  await page.close();
  const none = await asks("agentui", [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { kind: "plan_decision" } }]);
  assert.match(await none.card.innerText(), /The source did not state the plan\./);
});

test("the card shows title, parameters, scope and the source's payload", limit, async () => {
  const run = `approval-${++runs}`;
  await stage.publish(run, [{ type: "run.started" }]);
  page = await stage.blank();
  await withMembers(run, "a", { kind: "tool_approval", title: "Delete the branch?", toolName: "delete_branch", parameters: { branch: "feat/old" }, risk: "high", scope: "repository", agentId: "rui", payload: { ticket: 7 }, responseSchema: DECISION });
  await stage.look({ run }, page);
  const card = page.locator("ps-action");
  await card.waitFor();
  assert.equal(await text(card.locator(".card-title")), "Delete the branch?");
  assert.equal(await text(card.locator(".facts")), "Tool\ndelete_branch\nArguments\nbranch\nfeat/old\nScope\nrepository\nDetails\nticket\n7");
  assert.deepEqual(await argumentsOf(card), { branch: "feat/old" });
  assert.deepEqual(await argumentsOf(card, "Details from the source"), { ticket: 7 });
  assert.equal(await text(card.locator(".requester")), "rui asks");
  assert.equal(await card.locator("input").count(), 0);
});

test("facts that the source omitted are named in one line", limit, async () => {
  const run = `approval-${++runs}`;
  await stage.publish(run, [{ type: "run.started" }, { type: "action.required", actionId: "a", payload: { kind: "tool_approval" } }]);
  page = await stage.look({ run });
  const card = page.locator("ps-action");
  await card.waitFor();
  assert.equal(await text(card.locator(".unstated")), "Not stated: tool, arguments, risk, scope, result.");
  assert.equal(await card.locator(".facts").count(), 0);
  assert.equal(await text(card.locator(".requester")), "Requester: not stated");
});

test("arguments with redacted secrets cannot be edited", limit, async () => {
  const { card } = await asks("agentui", approval({ toolName: "call", input: { key: "sk-live-abcdef0123456789abcdef", to: "x" } }));
  assert.match((await argumentsOf(card)).key, /\[redacted\]/);
  assert.equal(await card.locator('[data-control="edit"]').count(), 0);
});

/** Adds a pending action with these members to a run's stream (section 10 of the protocol). */
const withMembers = (run, activityId, { agentId, ...content }) =>
  stage.bring(page, run, [{ activityType: "action", activityId, surface: "hitl", ...(agentId && { agentId }), content: { status: "pending", ...(agentId && { agentId }), ...content } }]);

/* ── questions ── */

/** Opens a run that asks for an approval, and returns its card. */
async function openQuestion(more) {
  const run = `question-${++runs}`;
  await stage.publish(run, [
    { type: "run.started" },
    ...(more.agentId ? [{ type: "agent.changed", agentId: more.agentId, payload: { agentName: "Pia", status: "running" } }] : []),
    { type: "action.required", actionId: "a", ...more, payload: { kind: "tool_approval", title: "Publish", toolName: "publish", parameters: {} } },
  ]);
  page = await stage.look({ run });
  const card = page.locator("ps-conversation ps-action");
  await card.getByRole("button", { name: "Ask a question" }).click();
  return { run, card };
}

test("a question goes to the agent that asks, and leaves the decision open", limit, async () => {
  const agent = `pia-${++runs}`;
  const { run, card } = await openQuestion({ agentId: agent });
  await card.getByLabel("Question for Pia").fill("Which version?");
  await card.getByRole("button", { name: "Send question" }).click();
  const control = await stage.claim(agent, { run });
  assert.equal(control.control, "continue_agent");
  assert.deepEqual(control.value, { text: "Which version?", actionId: "a" });
  await card.locator(".asked", { hasText: "accepted" }).waitFor();
  assert.ok(await card.locator(".yes .button").first().isEnabled(), "the decision is still open");
  assert.deepEqual(page.problems, []);
});

test("without a named agent, a question steers the run, and a refusal is shown with its reason", limit, async () => {
  const { run, card } = await openQuestion({});
  await until(page, () => document.activeElement.matches("textarea"));
  await page.keyboard.type("Which version?");
  await page.keyboard.press("Control+Enter");
  const control = await stage.claim("default", { run, how: "nack", reason: "this runtime takes no messages" });
  assert.equal(control.control, "steer");
  await card.locator('.asked[data-state="failed"]', { hasText: "this runtime takes no messages" }).waitFor();
  assert.equal(await card.getAttribute("data-submitted"), "false");
  assert.deepEqual(page.problems, []);
});

test("a decision at a past moment offers no question", limit, async () => {
  const run = `question-${++runs}`;
  await stage.publish(run, [{ type: "run.started" }, { type: "action.required", actionId: "a", agentId: "w", payload: { kind: "tool_approval", title: "Publish" } }, { type: "text.final", messageId: "m", payload: { text: "Later." } }]);
  page = await stage.look({ run, at: 2 });
  await page.locator("ps-conversation ps-action .ask").waitFor();
  await until(page, () => document.getElementById("stage").dataset.past === "true");
  assert.equal(await page.getByRole("button", { name: "Ask a question" }).count(), 0);
});

const offered = (kind, label) => ({ optionId: label.toLowerCase(), label, kind });

test("an option means what its kind says, and one that needs words blocks no approval", limit, async () => {
  for (const [options, buttons, chosen] of [
    [[offered("allow_once", "Yes, proceed"), offered("allow_always", "Yes, and don't ask again"), offered("reject_once", "No, and tell me why")], ["Yes, proceed", "No, and tell me why"], "yes, proceed"],
    [[offered("allow_once", "Approve"), offered("reject_once", "Reject"), offered("answer", "Respond")], ["Approve", "Reject"], "approve"],
    [[offered("reject_once", "Always allow"), offered("allow_once", "Never")], ["Never", "Always allow"], "never"],
  ]) {
    const run = `offered-${++runs}`;
    await stage.publish(run, [{ type: "run.started" }, { type: "action.required", actionId: "a", agentId: "offers", payload: { kind: "tool_approval", title: "Delete", options } }]);
    page = await stage.look({ run });
    const card = page.locator("ps-conversation ps-action");
    const labelOf = async (key) => (await card.locator("button", { has: page.locator(`kbd:text-is("${key}")`) }).innerText()).split("\n")[0].replace("…", "");
    assert.deepEqual([await labelOf("Y"), await labelOf("N")], buttons);
    await card.getByRole("button", { name: buttons[0], exact: true }).click();
    const control = await stage.claim("offers", { run });
    assert.deepEqual([control.control, control.value.optionId], ["approve", chosen]);
    await page.close();
  }
});
