/**
 * Which envelopes made an activity: by their class, and by the ids that both carry. What the server's fold does in Rust is not
 * done again here; this only finds what to show.
 */

/** @typedef {import("../client/types.js").Activity} Activity */
/** @typedef {import("../client/types.js").Envelope} Envelope */

/** @typedef {{ types: string[], concerns: (activity: Activity, event: Envelope) => boolean }} Rule */

/**
 * @param {Envelope} event
 * @param {string[]} names
 */
const said = (event, names) => names.map((name) => event.payload?.[name] ?? /** @type {any} */ (event)[name]).find((value) => value !== undefined);

/**
 * @param {string[]} names The members that may name it; where none does, its sequence is its name.
 * @returns {Rule["concerns"]}
 */
const byName = (...names) => (activity, event) => String(said(event, names) ?? event.sequence) === activity.activityId;

/** A message of a teammate is named `agentId/messageId`. @param {Activity} activity @param {Envelope} event */
const ofMessage = ({ activityId }, event) =>
  (event.messageId !== undefined && (activityId === event.messageId || activityId === `${event.agentId}/${event.messageId}`)) ||
  (Array.isArray(event.payload?.messages) && event.payload.messages.some((/** @type {any} */ it) => it?.messageId === activityId || `${it?.agentId ?? event.agentId}/${it?.messageId}` === activityId));

/** @param {Activity} activity @param {Envelope} event */
const ofThought = ({ content }, event) =>
  event.messageId !== undefined && [event.messageId, `${event.agentId}/${event.messageId}`].includes(content.messageId) && (content.partId === undefined || event.partId === undefined || event.partId === content.partId);

/** @type {Record<string, Rule>} */
const RULES = {
  run: { types: ["run.started", "run.status", "run.finished", "run.failed"], concerns: () => true },
  message: { types: ["text.delta", "text.final", "messages.snapshot"], concerns: ofMessage },
  reasoning: { types: ["reasoning.delta", "reasoning.summary"], concerns: ofThought },
  plan: { types: ["plan.delta", "plan.final"], concerns: ofThought },
  "tool-call-progress": {
    types: ["tool.started", "tool.args", "tool.progress", "tool.output.delta", "tool.result", "tool.failed", "action.required", "action.resolved"],
    concerns: ({ activityId }, event) => event.toolCallId === activityId && event.payload?.activityType === undefined,
  },
  action: { types: ["action.required", "action.resolved", "control.changed"], concerns: ({ activityId }, event) => event.actionId === activityId },
  queue: { types: ["queue.changed"], concerns: () => true },
  task: { types: ["task.changed"], concerns: ({ activityId }, event) => String(event.taskId ?? said(event, ["workItemId", "remoteTaskId"])) === activityId },
  agent: { types: ["agent.spawned", "agent.changed", "agent.completed", "metric.changed"], concerns: ({ activityId }, event) => event.agentId === activityId },
  team: { types: ["team.changed"], concerns: byName("teamId", "teamName") },
  handoff: { types: ["agent.handoff"], concerns: byName("handoffId") },
  "worker-notification": { types: ["worker.notification"], concerns: byName("workerNotificationId") },
  review: { types: ["review.requested", "review.completed"], concerns: byName("reviewId") },
  artifact: {
    types: ["artifact.created", "artifact.updated", "artifact.preview.ready", "artifact.version.created", "artifact.diff.ready", "artifact.export.started", "artifact.export.completed", "artifact.failed", "artifact.deleted", "artifact.changed"],
    concerns: ({ activityId }, event) => event.artifactId === activityId,
  },
  evidence: { types: ["evidence.changed"], concerns: ({ activityId }, event) => event.evidenceId === activityId },
  context: { types: ["context.changed"], concerns: ({ activityId }, event) => (said(event, ["contextId"]) ?? "context") === activityId },
  compaction: { types: ["context.compaction.started", "context.compaction.completed"], concerns: ({ activityId }, event) => (said(event, ["compactionId", "id"]) ?? "compaction") === activityId },
  permission: { types: ["permission.changed"], concerns: ({ activityId }, event) => [said(event, ["permissionId", "policyId"]), event.agentId, "permission"].includes(activityId) },
  state: { types: ["state.snapshot", "state.delta"], concerns: (_, event) => event.payload?.activityType === undefined },
  session: { types: ["session.opened", "session.hydrated", "session.updated", "session.closed"], concerns: () => true },
  diagnostics: { types: [], concerns: (_, event) => event.type.startsWith("diagnostic.") },
  metrics: { types: [], concerns: (_, event) => event.type.startsWith("metric.") },
};

/** A source's own kind of activity: it is told as progress of a call, or as a state of its own. @type {Rule} */
const CUSTOM = {
  types: ["tool.progress", "state.snapshot", "state.delta"],
  concerns: ({ activityType, activityId }, event) =>
    event.payload?.activityType === activityType && [event.toolCallId, event.messageId, event.payload?.messageId, event.payload?.activityId, said(event, ["nodeId", "node_id"])].some((id) => id === undefined || id === activityId),
};

/** @param {Activity} activity */
const ruleOf = ({ activityType }) => (Object.hasOwn(RULES, activityType) ? RULES[activityType] : CUSTOM);

/**
 * The classes of which its envelopes are; any, if it is empty.
 * @param {Activity} activity
 */
export const typesOf = (activity) => ruleOf(activity).types;

/**
 * Whether this envelope is one of those that made it.
 * @param {Activity} activity
 * @param {Envelope} event
 */
export const isMadeBy = (activity, event) => ruleOf(activity).concerns(activity, event);
