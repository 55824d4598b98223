/**
 * Rules that match envelopes to an activity, by event type and by shared ids. They only select envelopes for display;
 * the server's fold in Rust is not repeated here.
 */

/** @typedef {import("../client/types.js").Activity} Activity */
/** @typedef {import("../client/types.js").Envelope} Envelope */

/** @typedef {{ types: string[], matches: (activity: Activity, event: Envelope) => boolean }} Rule */

/**
 * @param {Envelope} event
 * @param {string[]} names
 */
const memberOf = (event, names) => names.map((name) => event.payload?.[name] ?? /** @type {any} */ (event)[name]).find((value) => value !== undefined);

/**
 * @param {string[]} names Members that may contain the id. Without them the sequence is the id.
 * @returns {Rule["matches"]}
 */
const byMember = (...names) => (activity, event) => String(memberOf(event, names) ?? event.sequence) === activity.activityId;

/** A teammate's message has the id `agentId/messageId`. @param {Activity} activity @param {Envelope} event */
const matchesMessage = ({ activityId }, event) =>
  (event.messageId !== undefined && (activityId === event.messageId || activityId === `${event.agentId}/${event.messageId}`)) ||
  (Array.isArray(event.payload?.messages) && event.payload.messages.some((/** @type {any} */ it) => it?.messageId === activityId || `${it?.agentId ?? event.agentId}/${it?.messageId}` === activityId));

/** @param {Activity} activity @param {Envelope} event */
const matchesThought = ({ content }, event) =>
  event.messageId !== undefined && [event.messageId, `${event.agentId}/${event.messageId}`].includes(content.messageId) && (content.partId === undefined || event.partId === undefined || event.partId === content.partId);

/** @type {Record<string, Rule>} */
const RULES = {
  run: { types: ["run.started", "run.status", "run.finished", "run.failed"], matches: () => true },
  message: { types: ["text.delta", "text.final", "messages.snapshot"], matches: matchesMessage },
  reasoning: { types: ["reasoning.delta", "reasoning.summary"], matches: matchesThought },
  plan: { types: ["plan.delta", "plan.final"], matches: matchesThought },
  "tool-call-progress": {
    types: ["tool.started", "tool.args", "tool.progress", "tool.output.delta", "tool.result", "tool.failed", "action.required", "action.resolved"],
    matches: ({ activityId }, event) => event.toolCallId === activityId && event.payload?.activityType === undefined,
  },
  action: { types: ["action.required", "action.resolved", "control.changed"], matches: ({ activityId }, event) => event.actionId === activityId },
  queue: { types: ["queue.changed"], matches: () => true },
  task: { types: ["task.changed"], matches: ({ activityId }, event) => String(event.taskId ?? memberOf(event, ["workItemId", "remoteTaskId"])) === activityId },
  agent: { types: ["agent.spawned", "agent.changed", "agent.completed", "metric.changed"], matches: ({ activityId }, event) => event.agentId === activityId },
  team: { types: ["team.changed"], matches: byMember("teamId", "teamName") },
  handoff: { types: ["agent.handoff"], matches: byMember("handoffId") },
  "worker-notification": { types: ["worker.notification"], matches: byMember("workerNotificationId") },
  review: { types: ["review.requested", "review.completed"], matches: byMember("reviewId") },
  artifact: {
    types: ["artifact.created", "artifact.updated", "artifact.preview.ready", "artifact.version.created", "artifact.diff.ready", "artifact.export.started", "artifact.export.completed", "artifact.failed", "artifact.deleted", "artifact.changed"],
    matches: ({ activityId }, event) => event.artifactId === activityId,
  },
  evidence: { types: ["evidence.changed"], matches: ({ activityId }, event) => event.evidenceId === activityId },
  context: { types: ["context.changed"], matches: ({ activityId }, event) => (memberOf(event, ["contextId"]) ?? "context") === activityId },
  compaction: { types: ["context.compaction.started", "context.compaction.completed"], matches: ({ activityId }, event) => (memberOf(event, ["compactionId", "id"]) ?? "compaction") === activityId },
  permission: { types: ["permission.changed"], matches: ({ activityId }, event) => [memberOf(event, ["permissionId", "policyId"]), event.agentId, "permission"].includes(activityId) },
  state: { types: ["state.snapshot", "state.delta"], matches: (_, event) => event.payload?.activityType === undefined },
  session: { types: ["session.opened", "session.hydrated", "session.updated", "session.closed"], matches: () => true },
  diagnostics: { types: [], matches: (_, event) => event.type.startsWith("diagnostic.") },
  metrics: { types: [], matches: (_, event) => event.type.startsWith("metric.") },
};

/** The rule for custom activities: progress of a call, or a state of their own. @type {Rule} */
const CUSTOM_RULE = {
  types: ["tool.progress", "state.snapshot", "state.delta"],
  matches: ({ activityType, activityId }, event) =>
    event.payload?.activityType === activityType && [event.toolCallId, event.messageId, event.payload?.messageId, event.payload?.activityId, memberOf(event, ["nodeId", "node_id"])].some((id) => id === undefined || id === activityId),
};

/** @param {Activity} activity */
const ruleOf = ({ activityType }) => (Object.hasOwn(RULES, activityType) ? RULES[activityType] : CUSTOM_RULE);

/**
 * Returns the event types of an activity's envelopes; empty for any type.
 * @param {Activity} activity
 */
export const typesOf = (activity) => ruleOf(activity).types;

/**
 * Whether this envelope belongs to the activity.
 * @param {Activity} activity
 * @param {Envelope} event
 */
export const isMadeBy = (activity, event) => ruleOf(activity).matches(activity, event);
