//! The content of each activity type as JSON Schema 2020-12, for `schema/activities/`.
//!
//! The schemas state what a reader may rely on: the members that always exist, and the closed sets of our own values.
//! Further members are allowed, and a source's members keep the source's names. Tests compare the schemas with the
//! folds; the server does not validate with them at run time.

use super::tool_call;
use crate::model::schema::{DIALECT, open, sequence};
use crate::model::{ActionKind, PartKind, Phase, Topology};
use crate::source::ledger::Status;
use serde_json::{Map, Value, json};

/// Every document: the activity type, and the schema of its content.
#[must_use]
pub fn documents() -> Vec<(&'static str, Value)> {
    vec![
        ("action", action()),
        ("agent", agent()),
        ("artifact", artifact()),
        ("compaction", compaction()),
        ("context", context()),
        ("custom", custom()),
        ("diagnostics", diagnostics()),
        ("evidence", evidence()),
        ("handoff", handoff()),
        ("message", message()),
        ("metrics", entries("metrics", "Costs and durations of calls: the newest 50 entries.", &[])),
        ("permission", permission()),
        ("plan", thought("plan", "A plan of the model, beside its messages.")),
        ("queue", queue()),
        ("reasoning", thought("reasoning", "The model's reasoning, beside its messages.")),
        ("review", review()),
        ("run", run()),
        ("session", session()),
        ("state", state()),
        ("task", task()),
        ("team", team()),
        ("tool-call-progress", tool()),
        ("worker-notification", notification()),
    ]
}

/// Builds the schema of a content; the required members come first.
fn content(kind: &str, purpose: &str, always: Value, sometimes: Value) -> Value {
    let (Value::Object(mut properties), Value::Object(sometimes)) = (always, sometimes) else {
        unreachable!("both arguments are object literals in this file")
    };
    let required: Vec<String> = properties.keys().cloned().collect();
    properties.extend(sometimes);
    json!({
        "$schema": DIALECT,
        "$id": format!("urn:proscenium:schema:activity:{kind}"),
        "title": format!("Content of the activity type {kind}"),
        "description": purpose,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": true,
    })
}

/// A closed set of our own values.
fn closed(names: &[&str], purpose: &str) -> Value {
    json!({ "description": purpose, "enum": names })
}

fn said(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "string" })
}

/// A value of any type, from the source.
fn anything(purpose: &str) -> Value {
    json!({ "description": purpose })
}

fn flag(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "boolean" })
}

fn list(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "array" })
}

fn count(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "number" })
}

fn object(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "object" })
}

fn text(purpose: &str) -> Value {
    json!({
        "description": format!("{purpose} A list of chunks to concatenate: snapshots contain one chunk, deltas append further ones."),
        "type": "array",
        "items": { "type": "string" },
    })
}

fn withheld() -> Value {
    json!({ "description": "The activity ended, and this reader's audience may not see the rest of its end.", "const": true })
}

fn clipped() -> Value {
    flag("The text reached its limit of 4 MiB; the rest is only in the log.")
}

fn topology() -> Value {
    open(Topology::NAMES, "How the work is organised; unknown if no fact states it.")
}

fn stale() -> Value {
    json!({ "description": "The activity was open when its run ended, and no later fact is about it.", "const": true })
}

fn run() -> Value {
    use Status::{Accepted, Cancelled, Completed, Failed, Interrupted, Running, Unknown, Waiting};
    let statuses = [Accepted, Running, Waiting, Completed, Failed, Cancelled, Interrupted, Unknown].map(Status::as_str);
    content(
        "run",
        "The state of the run. A run's log has exactly one.",
        json!({
            "status": closed(&statuses, "The status of the run, from the facts that this reader may see."),
            "phase": open(Phase::NAMES, "The run's current phase."),
            "attempt": json!({ "description": "The number of the attempt: 1 after the first start, plus 1 for each start after an end; 0 before any start.", "type": "integer", "minimum": 0 }),
        }),
        json!({
            "message": anything("The runtime's latest message about the run's status."),
            "detail": said("The runtime's own word for the status, if it is not a phase: blocked, retrying, or a source-specific word."),
            "topology": topology(),
            "stale": flag("The server has received nothing from the run for longer than --stale-after (60 s by default)."),
            "synthetic": flag("The server ended the run, because its runtime was gone."),
            "withheld": withheld(),
            "error": anything("The error of a failed run, from its source: { code?, message }."),
            "retryable": anything("Whether the run's owner would accept another attempt, from its source."),
            "result": anything("The run's result, from the fact that ended it."),
            "usage": object("The usage of the run's model calls, each member summed over the calls."),
            "notices": list("Progress that belongs to no single call, and warnings with their severity: the newest 20."),
            "sessionId": said("The session of the run."),
            "threadId": said("The thread of the run."),
            "agentId": said("The run's own agent. Messages of any other agent are a teammate's."),
            "parentRunId": said("The run that started this one."),
            "activitiesOmitted": flag("The view reached its limit of 20000 activities; the log contains further ones."),
        }),
    )
}

fn message() -> Value {
    let part = json!({
        "type": "object",
        "properties": {
            "partId": said("The id of the part, unique within the message."),
            "kind": open(PartKind::NAMES, "The kind of the part; image, file or a source's own name for a kind that the seed does not name."),
            "opened": sequence("The sequence of the envelope that opened the part. Clients interleave parts and calls by it.", 1),
            "status": closed(&["streaming", "complete", "interrupted"], "Whether the part may still grow (streaming)."),
            "text": text("The text of the part."),
            "refs": anything("The part's references."),
            "withheld": withheld(),
            "clipped": clipped(),
        },
        "required": ["partId", "kind", "opened", "status", "text"],
        "additionalProperties": true,
    });
    content(
        "message",
        "A message, in parts.",
        json!({
            "role": said("The role of the author: assistant, user and so on."),
            "status": closed(&["streaming", "complete", "interrupted"], "Whether the message may still grow (streaming)."),
            "parts": json!({ "description": "The parts, in the order in which they appeared, at most 4096. No part is ever removed; a retracted one is empty and interrupted.", "type": "array", "items": part }),
        }),
        json!({ "agentId": said("The agent that wrote the message."), "attachments": anything("The message's attachments: references, never bodies."), "refs": anything("The references of the whole message."), "withheld": withheld(), "clipped": flag("The message reached its limit of 4096 parts; the log contains further ones.") }),
    )
}

fn thought(kind: &str, purpose: &str) -> Value {
    content(
        kind,
        purpose,
        json!({
            "status": closed(&["streaming", "complete", "interrupted"], "Whether the text may still grow (streaming)."),
            "text": text("The text."),
            "messageId": said("The activity id of the message that it accompanies."),
        }),
        json!({ "partId": said("The id of its part in that message."), "withheld": withheld(), "clipped": clipped() }),
    )
}

fn tool() -> Value {
    content(
        "tool-call-progress",
        "A tool call: seed 002's tool-call-progress.v1 with its own names, and the lifecycle of seed 003 beside it.",
        json!({
            "schema": json!({ "const": "tool-call-progress.v1" }),
            "node_id": said("The call's node in the tree of calls."),
            "call_id": said("The id of the call."),
            "tool_name": said("The name of the tool; empty if unknown."),
            "status": closed(tool_call::STATUSES, "The status as the tool reports it; pending while the call waits for a decision (action_id)."),
        }),
        json!({
            "state": closed(tool_call::STATES, "The call's position in its lifecycle; absent before its first event."),
            "progress": json!({ "description": "The last reported progress, as a fraction.", "type": "number", "minimum": 0, "maximum": 1 }),
            "loaded": count("The amount that is done, in the tool's own unit."),
            "total": count("The total amount, in the unit of loaded."),
            "message": said("The tool's latest message about its progress."),
            "reported": sequence("The sequence of the envelope with the tool's first report.", 1),
            "parent_node_id": said("The parent node in the tree of calls."),
            "parent_call_id": said("The call that made this one."),
            "input": anything("The arguments, parsed."),
            "input_text": text("The arguments while they stream; removed once they are parsed."),
            "output": anything("The call's result."),
            "output_text": text("The streamed output: the standard output, and output without a channel."),
            "output_channels": json!({ "description": "The streamed output of other channels by name, each a list of chunks like output_text. Together at most 4 MiB.", "type": "object", "additionalProperties": { "type": "array", "items": { "type": "string" } }, "maxProperties": tool_call::CHANNELS_MAX }),
            "unannounced": flag("No fact announced the call's start here: only progress reports mention it."),
            "output_ref": anything("The location of the whole output."),
            "structured": anything("The result in a form for programs."),
            "error": json!({ "description": "The error of a failed call.", "type": "object" }),
            "never_started": anything("Whether the call was given up before it ran."),
            "duration_ms": count("The duration of the call, in milliseconds."),
            "cost_usd": count("The cost of the call, in US dollars."),
            "truncated": anything("The number of characters that the source cut from the result."),
            "untrusted": anything("Whether the source marks the result as untrusted."),
            "withheld": withheld(),
            "clipped": clipped(),
            "action_id": said("The action that asks for a decision about the call."),
            "synthetic": flag("The server closed the call, because it received nothing more from the run."),
            "awaits": said("The party that has to supply the result, even after the run's end; removed once the result arrives."),
        }),
    )
}

fn custom() -> Value {
    content(
        "custom",
        "An activity that a source names. The content is the source's, unchanged and never joined. A bare text becomes { text: [ … ] }, and any other value that is not an object becomes { value: … }. If the type and id equal those of our own activity, the type gets the prefix `custom:`.",
        json!({}),
        json!({}),
    )
}

fn action() -> Value {
    content(
        "action",
        "A request that waits for a decision. It is pending until its owner resolves it or the run ends.",
        json!({
            "kind": open(ActionKind::NAMES, "The kind of request; unknown if no fact states it."),
            "status": closed(&["pending", "resolved", "interrupted"], "Whether the request still waits. A reader's answer alone does not resolve it."),
        }),
        json!({
            "outcome": open(&["approved", "rejected", "answered", "cancelled", "expired"], "The decision."),
            "value": anything("The answer."),
            "title": anything("The request in one line."),
            "message": anything("The text of the request."),
            "description": anything("A longer description of the request."),
            "schema": anything("The schema of the expected answer: the same as responseSchema."),
            "responseSchema": anything("The schema of the expected answer."),
            "options": anything("The choices: { optionId, label, kind } if the source offers any."),
            "risk": anything("The risk of the action."),
            "scope": anything("The scope of the approval."),
            "toolName": anything("The tool that needs approval; the call's tool if the source names only the call."),
            "parameters": anything("The tool's arguments; the call's arguments if the source names only the call."),
            "payload": anything("Further members of the request, with the source's own names."),
            "plan": anything("The plan that needs approval."),
            "artifactId": said("The artifact under review."),
            "versionId": anything("The version of the artifact."),
            "evidenceId": said("The evidence under review."),
            "refs": anything("The references of the request."),
            "input": anything("The arguments that need approval, by the older name of parameters."),
            "safeInput": anything("The part of the arguments that clients may show."),
            "policyScope": anything("The scope of the permission."),
            "parentRouting": anything("The agents through which a delegated request passed."),
            "toolCallId": said("The call that the request is about."),
            "agentId": said("The agent that asks."),
            "taskId": said("The task that the request belongs to."),
            "expiresAt": anything("The time until which the request can be answered, from its source."),
            "control": closed(&["submitted"], "A reader's answer is in transit to the owner."),
            "withheld": withheld(),
        }),
    )
}

fn queue() -> Value {
    content(
        "queue",
        "The queued turns, the reason, and what steers the run; also members with the source's own names, bounded. One per session, or per run if the run has no session.",
        json!({}),
        json!({
            "queuedTurnCount": anything("The number of queued turns; absent if unknown."),
            "items": list("The head of the queue, at most 100 items."),
            "queueReason": anything("The reason why the turns wait."),
            "retryableOverload": anything("Whether the reason is a temporary overload."),
            "providerConcurrencyGroup": anything("The group that shares a provider's concurrency limit."),
            "providerParallelBudget": anything("The number of turns that may run at once."),
        }),
    )
}

fn task() -> Value {
    content(
        "task",
        "A queued turn, work item, background job or remote task. The end of a run does not end it, but marks an open one as stale.",
        json!({ "status": said("The status as the owner states it; unknown if no fact states it, or if the task was running when its run ended.") }),
        json!({
            "runtimeEntity": open(&["agent_turn", "subagent_turn", "automation_job", "external_task", "work_item"], "The kind of the task in its runtime."),
            "title": anything("The title of the task."),
            "assignee": anything("The assignee of the task."),
            "blocker": anything("The reason why the task is blocked."),
            "priority": anything("The priority of the task."),
            "dependencies": anything("The tasks that must be done before."),
            "progress": anything("The progress of the task."),
            "attempts": list("The newest 20 failed attempts; they stay when the task is tried again."),
            "attemptCount": count("The number of attempts, by the owner's count."),
            "schedule": anything("The schedule of the task."),
            "wakeReason": anything("The reason why the task was woken."),
            "lastRunRef": anything("A reference to the task's last run."),
            "capabilityRef": anything("A reference to the remote agent's card."),
            "inputNeeds": anything("The input that the task needs."),
            "authNeeds": anything("The permissions that the task needs."),
            "error": anything("The error, while the task is failed."),
            "comments": list("The newest 50 comments on the board."),
            "claimedBy": anything("The party that has claimed the task."),
            "artifactRefs": anything("Artifacts that the task made or needs."),
            "evidenceRefs": anything("Evidence for the task."),
            "refs": anything("Further references."),
            "topology": topology(),
            "stale": stale(),
        }),
    )
}

fn agent() -> Value {
    content(
        "agent",
        "A teammate, worker or remote collaborator. The end of a run does not end it, but marks an open one as stale.",
        json!({
            "agentName": said("The agent's name; its id if it has no name."),
            "status": said("The status as a fact states it, else runtimeStatus; unknown if neither exists, or if the agent was running when its run ended."),
        }),
        json!({
            "teamName": anything("The agent's team."),
            "role": anything("The agent's role in the team."),
            "runtimeStatus": anything("The status of the agent's runtime."),
            "latestTurnStatus": anything("The status of the agent's last turn."),
            "queuedTurnCount": anything("The number of turns that wait for the agent."),
            "source": anything("The origin of the agent."),
            "transcriptRef": anything("A reference to the agent's transcript."),
            "parentSessionId": said("The session that spawned the agent."),
            "parentThreadId": said("The thread that spawned the agent."),
            "sessionId": said("The agent's own session."),
            "threadId": said("The agent's own thread."),
            "taskId": said("The task that the agent works on."),
            "model": anything("The model that the agent uses."),
            "policy": anything("The agent's policy."),
            "usage": object("The usage of the agent's model calls, each member summed over the calls."),
            "schedule": anything("The agent's schedule."),
            "wakeReason": anything("The reason why the agent was woken."),
            "currentRunRef": anything("A reference to the agent's current run."),
            "lastRunRef": anything("A reference to the agent's last run."),
            "capabilityRef": anything("A reference to the remote agent's card."),
            "remoteTaskId": anything("The agent's task at the remote agent."),
            "inputNeeds": anything("The input that the agent needs."),
            "authNeeds": anything("The permissions that the agent needs."),
            "blocker": anything("The reason why the agent is blocked."),
            "dependencies": anything("The work that must be done before."),
            "progress": anything("The progress of the agent's work."),
            "artifactRefs": anything("Artifacts that the agent made or needs."),
            "evidenceRefs": anything("Evidence for the agent's work."),
            "refs": anything("Further references."),
            "topology": topology(),
            "stale": stale(),
            "withheld": withheld(),
        }),
    )
}

fn team() -> Value {
    content(
        "team",
        "A team and its limits.",
        json!({ "topology": topology() }),
        json!({
            "teamName": anything("The team's name."),
            "teamPhase": anything("The team's phase: forming, active, waiting, merging, done."),
            "teamParallelBudget": anything("The number of members that may work at once."),
            "teamActiveCount": anything("The number of members at work."),
            "teamQueuedCount": anything("The number of members that wait."),
            "refs": anything("Further references."),
        }),
    )
}

fn handoff() -> Value {
    content(
        "handoff",
        "A hand-off of work from one agent or user to another. It does not change the authors of earlier messages.",
        json!({ "status": said("The status as a fact states it, else accepted once acceptedAt or acceptedTime exists; else unknown.") }),
        json!({
            "from": anything("The previous owner of the work."),
            "to": anything("The new owner of the work."),
            "reason": anything("The reason for the hand-off."),
            "resumeTarget": anything("The place where the work resumes."),
            "memoryBoundary": anything("The part of the memory that is handed over."),
            "contextBoundary": anything("The part of the context that is handed over."),
            "acceptedAt": anything("The time of acceptance, from its source."),
            "acceptedTime": anything("The same as acceptedAt, by another name."),
            "refs": anything("Further references."),
            "topology": topology(),
            "stale": stale(),
        }),
    )
}

fn notification() -> Value {
    content(
        "worker-notification",
        "A worker's report. It never counts as the user's message, whatever channel carried it.",
        json!({ "status": anything("The status as the worker states it; unknown if it states none.") }),
        json!({
            "taskId": said("The task that the report is about."),
            "agentId": said("The worker."),
            "summary": anything("The summary of the result."),
            "text": text("The text of the report, if it arrived as a user-role message."),
            "resultRef": anything("A reference to the result."),
            "usage": anything("The worker's usage."),
            "durationMs": anything("The duration of the work, in milliseconds."),
            "toolCount": anything("The number of tool calls."),
        }),
    )
}

fn review() -> Value {
    content(
        "review",
        "A request to a reviewer, and its verdict.",
        json!({ "status": said("requested, reviewing, passed, changes_requested, failed and others; completed if no verdict states more.") }),
        json!({
            "reviewer": anything("The reviewer."),
            "target": anything("The object under review."),
            "verdict": anything("The verdict."),
            "evidenceRefs": anything("The evidence for the verdict."),
            "requestedFixes": anything("The changes that the reviewer requests."),
            "refs": anything("Further references."),
            "topology": topology(),
            "stale": stale(),
            "withheld": withheld(),
        }),
    )
}

fn versions() -> Value {
    list("The newest 50 versions, without their bodies.")
}

fn artifact() -> Value {
    let by_class = [
        "created",
        "updated",
        "preview_ready",
        "version_created",
        "diff_ready",
        "exporting",
        "exported",
        "failed",
        "deleted",
        "changed",
    ];
    content(
        "artifact",
        "A deliverable: its kind, its version, and where to read it. Never its body.",
        json!({ "status": open(&by_class, "The status as the owner states it, else the latest event.") }),
        json!({
            "title": anything("The title."),
            "kind": anything("The kind of artifact."),
            "preview": anything("A short preview."),
            "previewRef": anything("A reference to a preview."),
            "diffRef": anything("A reference to the latest diff."),
            "exportRef": anything("A reference to the export."),
            "version": anything("The current version."),
            "versions": versions(),
            "error": anything("The error, while the artifact is failed."),
            "refs": anything("Further references."),
            "stale": stale(),
        }),
    )
}

fn evidence() -> Value {
    content(
        "evidence",
        "A citation, trace, replay, review or audit. Never its body.",
        json!({ "status": anything("The status as the owner states it, else the verdict; unknown if neither exists.") }),
        json!({
            "kind": anything("The kind of evidence."),
            "verdict": anything("The verdict."),
            "title": anything("The title."),
            "summary": anything("The summary."),
            "preview": anything("A short preview."),
            "versions": versions(),
            "refs": anything("References to the evidence."),
        }),
    )
}

fn context() -> Value {
    content(
        "context",
        "The model's input: references, budgets, results and missing parts. The members have the source's names, bounded, without bodies.",
        json!({}),
        json!({ "refs": anything("References to the origin.") }),
    )
}

fn compaction() -> Value {
    content(
        "compaction",
        "A compaction of the model's memory. The members have the source's names, bounded, without bodies.",
        json!({ "status": said("running, completed, failed or cancelled; interrupted if the run ended first.") }),
        json!({ "withheld": withheld() }),
    )
}

fn permission() -> Value {
    content(
        "permission",
        "The permissions that a policy grants. The members have the source's names, bounded. Members about one decision are removed by the next.",
        json!({}),
        json!({
            "toolCallId": said("The call that the last decision is about."),
            "actionId": said("The action that the decision answers."),
            "agentId": said("The agent that the decision applies to."),
            "taskId": said("The task that the decision is about."),
        }),
    )
}

fn state() -> Value {
    content(
        "state",
        "The application's own state, as its source maintains it. Its texts are never joined.",
        json!({ "state": anything("The state.") }),
        json!({}),
    )
}

fn session() -> Value {
    content(
        "session",
        "The frame of a session: title, status, unread state. The members have the source's names, bounded. Never its messages.",
        json!({ "status": said("The status as a fact states it, else open or closed; unknown if no fact states it.") }),
        json!({
            "title": anything("The title."),
            "preview": anything("A short preview."),
            "unread": anything("The unread state, from its source."),
            "pinned": anything("Whether the session is pinned."),
            "stale": anything("Whether the session may be outdated."),
            "parentSessionId": said("The parent session."),
        }),
    )
}

fn diagnostics() -> Value {
    let mut schema = entries("diagnostics", "Entries for an operator who looks for a fault: the newest 50.", &["kind"]);
    schema["properties"]["hiddenFailures"] =
        json!({ "description": "The number of failed calls that this reader may not see.", "type": "integer", "minimum": 1 });
    schema
}

fn entries(kind: &str, purpose: &str, required: &[&str]) -> Value {
    let mut names = vec!["sequence"];
    names.extend(required);
    let properties = Map::from_iter([("sequence".to_owned(), sequence("The sequence of the envelope that added the entry.", 1))]);
    let entry = json!({ "type": "object", "properties": properties, "required": names, "additionalProperties": true });
    let entries = json!({ "description": "The entries, oldest first. The log contains all of them.", "type": "array", "items": entry });
    content(kind, purpose, json!({ "entries": entries }), json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::projection::PROJECTIONS;
    use std::collections::BTreeSet;

    #[test]
    fn every_activity_type_has_exactly_one_schema() {
        let types: BTreeSet<&str> = PROJECTIONS.iter().map(|projection| projection.kind).collect();
        assert_eq!(documents().iter().map(|(kind, _)| *kind).collect::<BTreeSet<_>>(), types);
        assert_eq!(documents().len(), types.len());
    }
}
