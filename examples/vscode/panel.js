/** The webview of the panel. It draws what the extension sends, as text, and says which button was pressed. */

const vscode = acquireVsCodeApi();
const state = document.getElementById("state");
const session = document.getElementById("session");
const refused = new Map();
let shown = [];

const element = (name, members, ...children) => {
  const made = Object.assign(document.createElement(name), members);
  made.append(...children);
  return made;
};
const textOf = (chunks) => (Array.isArray(chunks) ? chunks.join("") : (chunks ?? ""));

/** The control that an option is, by what it does. */
const EFFECTS = { reject: "reject", answer: "answer" };

function message({ content }) {
  const text = content.parts.map(({ text }) => textOf(text)).join("\n");
  return element("article", { className: content.role }, element("h2", { textContent: content.role === "user" ? "You" : "Agent" }), element("p", { textContent: text }));
}

/** A decision: the options of its source, else yes and no; a question takes a text. */
function action({ runId, activityId, content }) {
  const title = content.title ?? content.message ?? content.toolName ?? "The agent asks for a decision.";
  const card = element("article", { className: "action" }, element("h2", { textContent: title }));
  if (content.parameters) card.append(element("pre", { textContent: JSON.stringify(content.parameters, null, 2), tabIndex: 0 }));
  if (content.status !== "pending" || content.control) {
    card.append(element("p", { textContent: content.outcome ?? (content.status === "pending" ? "Sent." : content.status) }));
    return card;
  }
  const send = (control, value) => {
    refused.delete(activityId);
    card.querySelectorAll("button, input").forEach((one) => (one.disabled = true));
    vscode.postMessage({ type: "decide", run: runId, actionId: activityId, control, value });
  };
  const button = (label, ...decision) => element("button", { textContent: label, onclick: () => send(...decision) });
  if (["clarification", "structured_input", "credential_request"].includes(content.kind)) {
    const field = element("input", { ariaLabel: title, type: content.kind === "credential_request" ? "password" : "text" });
    card.append(field, element("button", { textContent: "Answer", onclick: () => send("answer", field.value) }));
  } else {
    const named = (content.options ?? []).map(({ optionId, label, name, effect }) => button(label ?? name ?? optionId, EFFECTS[effect] ?? "approve", { optionId }));
    card.append(...(named.length ? named : [button("Approve", "approve"), button("Reject", "reject")]));
  }
  if (refused.has(activityId)) card.append(element("p", { className: "refused", role: "alert", textContent: refused.get(activityId) }));
  return card;
}

const cards = { message, action, run: ({ content }) => element("p", { className: "run", textContent: `Run: ${content.status}` }) };
const drawn = new Map();

/** Draws what changed. All else stays in its place: a person may be typing in it, or pressing its button. */
function draw() {
  const keys = shown.map(({ activityType, runId, activityId }) => JSON.stringify([activityType, runId, activityId]));
  for (const [key, { card }] of drawn) if (!keys.includes(key)) (card.remove(), drawn.delete(key));
  shown.forEach((activity, n) => {
    const about = JSON.stringify([activity.content, refused.get(activity.activityId)]);
    let known = drawn.get(keys[n]);
    if (known?.about !== about) {
      known?.card.remove();
      known = { about, card: cards[activity.activityType](activity) };
      drawn.set(keys[n], known);
    }
    if (session.children[n] !== known.card) session.insertBefore(known.card, session.children[n] ?? null);
  });
}

addEventListener("message", ({ data }) => {
  if (data.type === "state") state.textContent = data.text;
  if (data.type === "activities") shown = data.activities;
  if (data.type === "refused") refused.set(data.actionId, data.why);
  draw();
});
vscode.postMessage({ type: "ready" });
