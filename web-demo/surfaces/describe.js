/**
 * Any activity in a line: what it is, what it is called, how it stands, and what it says. For lists of all kinds of them.
 */

import { joined, spoken, standing, stateOf, words } from "./base.js";
import { phrase } from "./lane.js";

/** @typedef {import("./base.js").Activity} Activity */

/** Characters of what it says. */
const TEXT_CHARS_MAX = 600;

/** What the types are called. Any other is a source's own. @type {Record<string, string>} */
const LABELS = {
  run: "Run", message: "Message", reasoning: "Reasoning", plan: "Plan", "tool-call-progress": "Tool", action: "Approval", queue: "Queue",
  task: "Task", agent: "Teammate", team: "Team", handoff: "Hand-off", "worker-notification": "Worker", review: "Review", artifact: "Artifact",
  evidence: "Evidence", context: "Context", compaction: "Compaction", permission: "Policy", state: "State", session: "Session",
  diagnostics: "Diagnostics", metrics: "Metrics",
};

/**
 * @typedef {{ label: string, title: string, status: string, state: import("./base.js").State, text: string }} Description `state`: as which the status looks.
 * @param {Activity} activity
 * @returns {Description}
 */
export function describe(activity) {
  const { activityType: type, content } = activity;
  const said = Object.hasOwn(SAYS, type) ? SAYS[type](content) : { title: "", text: phrase(content) };
  // The application's state is no status.
  const status = standing(content) ?? (type === "state" ? undefined : content.state);
  return {
    label: Object.hasOwn(LABELS, type) ? LABELS[type] : spoken(type),
    title: said.title || activity.activityId,
    status: words(status),
    state: type === "artifact" ? artifactState(status) : stateOf(status),
    text: said.text.slice(0, TEXT_CHARS_MAX),
  };
}

/** @type {Record<string, (content: Record<string, any>) => { title: string, text: string }>} */
const SAYS = {
  message: (it) => ({ title: [words(it.agentId), spoken(it.role)].filter(Boolean).join(" · "), text: (it.parts ?? []).map((/** @type {any} */ part) => joined(part.text)).join("\n") }),
  reasoning: (it) => ({ title: "Reasoning", text: joined(it.text) }),
  plan: (it) => ({ title: "Plan", text: joined(it.text) }),
  "tool-call-progress": (it) => ({ title: words(it.tool_name), text: words(it.error?.message) || phrase(it.output) || words(it.message) || phrase(it.input) }),
  action: (it) => ({ title: spoken(it.kind), text: phrase(it.message) }),
  task: (it) => ({ title: phrase(it.title), text: phrase(it.summary ?? it.error?.message ?? it.blocker) }),
  agent: (it) => ({ title: phrase(it.agentName), text: phrase(it.summary ?? it.role) }),
  team: (it) => ({ title: phrase(it.teamName), text: spoken(it.topology) }),
  handoff: (it) => ({ title: `${phrase(it.from) || "unknown"} → ${phrase(it.to) || "unknown"}`, text: phrase(it.reason) }),
  "worker-notification": (it) => ({ title: phrase(it.agentName ?? it.agentId) || "unknown worker", text: phrase(it.summary) || joined(it.text) }),
  review: (it) => ({ title: phrase(it.target), text: phrase(it.summary) || phrase(it.requestedFixes) }),
  artifact: (it) => ({ title: phrase(it.title ?? it.name), text: phrase(it.preview ?? it.summary) }),
  evidence: (it) => ({ title: phrase(it.title ?? it.name), text: phrase(it.summary ?? it.preview ?? it.kind) }),
  compaction: (it) => ({ title: "Compaction", text: phrase({ ...it, status: undefined, compactionId: undefined }) }),
  run: (it) => ({ title: "Run", text: words(it.error?.message) || spoken(it.phase) }),
  session: (it) => ({ title: phrase(it.title), text: phrase(it.preview) }),
  diagnostics: (it) => ({ title: "Diagnostics", text: phrase(it.entries?.at?.(-1)?.message) }),
  metrics: (it) => ({ title: "Metrics", text: phrase(it.entries?.at?.(-1)) }),
};

/** What an artifact is after a step of its life that went well. */
const MADE = ["created", "updated", "preview_ready", "version_created", "diff_ready", "exported", "changed"];

/**
 * As which state an artifact's status looks.
 * @param {unknown} status
 * @returns {import("./base.js").State}
 */
export function artifactState(status) {
  if (status === "exporting") return "running";
  return MADE.includes(words(status)) ? "ok" : stateOf(status);
}
