/**
 * A one-line description of any activity: label, title, status and text.
 */

import { joinText, humanize, displayedStatus, stateOf, toText } from "./base.js";
import { formatValue } from "./facts.js";

/** @typedef {import("./base.js").Activity} Activity */

/** The maximum length of the text, in characters. */
const TEXT_CHARS_MAX = 600;

/** Labels of the activity types. A custom type is its own label. @type {Record<string, string>} */
const LABELS = {
  run: "Run", message: "Message", reasoning: "Reasoning", plan: "Plan", "tool-call-progress": "Tool", action: "Approval", queue: "Queue",
  task: "Task", agent: "Teammate", team: "Team", handoff: "Hand-off", "worker-notification": "Worker", review: "Review", artifact: "Artifact",
  evidence: "Evidence", context: "Context", compaction: "Compaction", permission: "Policy", state: "State", session: "Session",
  diagnostics: "Diagnostics", metrics: "Metrics",
};

/**
 * @typedef {{ label: string, title: string, status: string, state: import("./base.js").State, text: string }} Description `state`: the visual state of the status.
 * @param {Activity} activity
 * @returns {Description}
 */
export function describe(activity) {
  const { activityType: type, content } = activity;
  const description = Object.hasOwn(DESCRIBERS, type) ? DESCRIBERS[type](content) : { title: "", text: formatValue(content) };
  // The content of a `state` activity is the application's, not a status.
  const status = displayedStatus(content) ?? (type === "state" ? undefined : content.state);
  return {
    label: Object.hasOwn(LABELS, type) ? LABELS[type] : humanize(type),
    title: description.title || activity.activityId,
    status: toText(status),
    state: type === "artifact" ? artifactState(status) : stateOf(status),
    text: description.text.slice(0, TEXT_CHARS_MAX),
  };
}

/** @type {Record<string, (content: Record<string, any>) => { title: string, text: string }>} */
const DESCRIBERS = {
  message: (it) => ({ title: [toText(it.agentId), humanize(it.role)].filter(Boolean).join(" · "), text: (it.parts ?? []).map((/** @type {any} */ part) => joinText(part.text)).join("\n") }),
  reasoning: (it) => ({ title: "Reasoning", text: joinText(it.text) }),
  plan: (it) => ({ title: "Plan", text: joinText(it.text) }),
  "tool-call-progress": (it) => ({ title: toText(it.tool_name), text: toText(it.error?.message) || formatValue(it.output) || toText(it.message) || formatValue(it.input) }),
  action: (it) => ({ title: humanize(it.kind), text: formatValue(it.message) }),
  task: (it) => ({ title: formatValue(it.title), text: formatValue(it.summary ?? it.error?.message ?? it.blocker) }),
  agent: (it) => ({ title: formatValue(it.agentName), text: formatValue(it.summary ?? it.role) }),
  team: (it) => ({ title: formatValue(it.teamName), text: humanize(it.topology) }),
  handoff: (it) => ({ title: `${formatValue(it.from) || "unknown"} → ${formatValue(it.to) || "unknown"}`, text: formatValue(it.reason) }),
  "worker-notification": (it) => ({ title: formatValue(it.agentName ?? it.agentId) || "unknown worker", text: formatValue(it.summary) || joinText(it.text) }),
  review: (it) => ({ title: formatValue(it.target), text: formatValue(it.summary) || formatValue(it.requestedFixes) }),
  artifact: (it) => ({ title: formatValue(it.title ?? it.name), text: formatValue(it.preview ?? it.summary) }),
  evidence: (it) => ({ title: formatValue(it.title ?? it.name), text: formatValue(it.summary ?? it.preview ?? it.kind) }),
  compaction: (it) => ({ title: "Compaction", text: toText(it.summary) || toText(it.reason) }),
  run: (it) => ({ title: "Run", text: toText(it.error?.message) || humanize(it.phase) }),
  session: (it) => ({ title: formatValue(it.title), text: formatValue(it.preview) }),
  diagnostics: (it) => ({ title: "Diagnostics", text: formatValue(it.entries?.at?.(-1)?.message) }),
  metrics: (it) => ({ title: "Metrics", text: formatValue(it.entries?.at?.(-1)) }),
};

/** Statuses of artifacts after a successful step. */
const OK_ARTIFACT_STATUSES = ["created", "updated", "preview_ready", "version_created", "diff_ready", "exported", "changed"];

/**
 * Returns the visual state of an artifact's status.
 * @param {unknown} status
 * @returns {import("./base.js").State}
 */
export function artifactState(status) {
  if (status === "exporting") return "running";
  return OK_ARTIFACT_STATUSES.includes(toText(status)) ? "ok" : stateOf(status);
}
