//! The content of each activity type as JSON Schema 2020-12, for `schema/activities/`.
//!
//! What a reader may rely on: members that are always there, and the names that a member of ours can have. Further members are
//! free, and what a source says of itself keeps its source's names. It is held against what the folds make by the tests, and
//! never asked at run time.

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
        ("metrics", entries("metrics", "What things cost and how long they took: the newest entries.", &[])),
        ("permission", permission()),
        ("plan", thought("plan", "A plan that the model makes, beside what it says.")),
        ("queue", queue()),
        ("reasoning", thought("reasoning", "What the model thinks, beside what it says.")),
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

/// A content: the members that are always there come first.
fn content(kind: &str, purpose: &str, always: Value, sometimes: Value) -> Value {
    let (Value::Object(mut properties), Value::Object(sometimes)) = (always, sometimes) else {
        unreachable!("both are written as objects below")
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

/// One of these names and no other: it is ours.
fn closed(names: &[&str], purpose: &str) -> Value {
    json!({ "description": purpose, "enum": names })
}

fn said(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "string" })
}

/// Whatever its source says.
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
        "description": format!("{purpose} A list of chunks that belong together: snapshots join them into one, deltas append."),
        "type": "array",
        "items": { "type": "string" },
    })
}

fn withheld() -> Value {
    json!({ "description": "It ended, and the rest of its end is for a narrower audience than this reader's.", "const": true })
}

fn clipped() -> Value {
    flag("A text goes on in the log: it has come to as many bytes as one may.")
}

fn topology() -> Value {
    open(Topology::NAMES, "How the work is organised; unknown where nobody said.")
}

fn stale() -> Value {
    json!({ "description": "It was open when its run ended, and nothing was said of it since.", "const": true })
}

fn run() -> Value {
    use Status::{Accepted, Cancelled, Completed, Failed, Interrupted, Running, Unknown, Waiting};
    let statuses = [Accepted, Running, Waiting, Completed, Failed, Cancelled, Interrupted, Unknown].map(Status::as_str);
    content(
        "run",
        "How the run stands. Its own log has exactly one.",
        json!({
            "status": closed(&statuses, "How it stands, by what this reader sees."),
            "phase": open(Phase::NAMES, "What it is busy with."),
            "attempt": json!({ "description": "1 for the first start, one more for each start after an end; 0 before any.", "type": "integer", "minimum": 0 }),
        }),
        json!({
            "message": anything("What its runtime said last of how it stands."),
            "detail": said("What its runtime calls that, where it is no phase: blocked, retrying, or a word of its own."),
            "topology": topology(),
            "stale": flag("Nothing came from it for a while."),
            "synthetic": flag("The server ended it: its runtime was gone."),
            "withheld": withheld(),
            "error": anything("Why it failed: { code?, message }."),
            "retryable": anything("Whether its owner would take another attempt."),
            "result": anything("What it came to, as its end says."),
            "usage": object("What its model calls used, summed by member."),
            "notices": list("Progress that belongs to no single call, and warnings with their severity: the newest."),
            "sessionId": said("The session that it is of."),
            "threadId": said("The thread that it is of."),
            "agentId": said("The agent that it is of: any other's messages are a teammate's."),
            "parentRunId": said("The run that started it."),
            "activitiesOmitted": flag("There is more in its log than is shown: it has come to as many activities as one may."),
        }),
    )
}

fn message() -> Value {
    let part = json!({
        "type": "object",
        "properties": {
            "partId": said("Unique within the message."),
            "kind": open(PartKind::NAMES, "What it is; image, file or another name of its source's for what the seed does not name."),
            "opened": sequence("The envelope with which it appeared: parts and calls interleave by it.", 1),
            "status": closed(&["streaming", "complete", "interrupted"], "Whether more may come."),
            "text": text("What it says."),
            "refs": anything("What it refers to."),
            "withheld": withheld(),
            "clipped": clipped(),
        },
        "required": ["partId", "kind", "opened", "status", "text"],
        "additionalProperties": true,
    });
    content(
        "message",
        "Who said what, in parts.",
        json!({
            "role": said("Who speaks: assistant, user …"),
            "status": closed(&["streaming", "complete", "interrupted"], "Whether more may come."),
            "parts": json!({ "description": "In the order in which they appeared. None is ever removed; a retracted one is empty and interrupted.", "type": "array", "items": part }),
        }),
        json!({ "agentId": said("The agent that speaks."), "attachments": anything("What came with it: references, never bodies."), "refs": anything("What the whole message refers to."), "withheld": withheld(), "clipped": flag("There are more parts in the log than are shown.") }),
    )
}

fn thought(kind: &str, purpose: &str) -> Value {
    content(
        kind,
        purpose,
        json!({
            "status": closed(&["streaming", "complete", "interrupted"], "Whether more may come."),
            "text": text("What it says."),
            "messageId": said("The activity id of the message beside which it stands."),
        }),
        json!({ "partId": said("Its part of that message."), "withheld": withheld(), "clipped": clipped() }),
    )
}

fn tool() -> Value {
    content(
        "tool-call-progress",
        "A tool call: seed 002's tool-call-progress.v1 by its own names, with the lifecycle of seed 003 beside it.",
        json!({
            "schema": json!({ "const": "tool-call-progress.v1" }),
            "node_id": said("Its node in the tree of calls."),
            "call_id": said("The call."),
            "tool_name": said("The tool; empty where nobody said."),
            "status": closed(tool_call::STATUSES, "As its author reports; pending while it waits for a decision (action_id)."),
        }),
        json!({
            "state": closed(tool_call::STATES, "Where it is in its life; absent before anything happened."),
            "progress": json!({ "description": "A fraction, as last reported.", "type": "number", "minimum": 0, "maximum": 1 }),
            "loaded": count("How much is done."),
            "total": count("Of how much."),
            "message": said("What its author says of it."),
            "reported": sequence("The envelope with which its author first reported.", 1),
            "parent_node_id": said("The node above."),
            "parent_call_id": said("The call that made this one."),
            "input": anything("Its arguments, parsed."),
            "input_text": text("Its arguments while they stream; gone once they are parsed."),
            "output": anything("What it gave."),
            "output_text": text("What it put out while it ran: its standard output, and what names no channel."),
            "output_channels": json!({ "description": "What it put out on other channels, each a list of chunks as output_text.", "type": "object", "additionalProperties": { "type": "array", "items": { "type": "string" } }, "maxProperties": tool_call::CHANNELS_MAX }),
            "unannounced": flag("Nobody announced its start here: it is known by reports of its progress alone."),
            "output_ref": anything("Where the whole output is."),
            "structured": anything("What it gave, for programs."),
            "error": json!({ "description": "Why it failed.", "type": "object" }),
            "never_started": anything("Whether it was given up before it ran."),
            "duration_ms": count("How long it took."),
            "cost_usd": count("What it cost."),
            "truncated": anything("Characters that its source cut."),
            "untrusted": anything("Whether its source warns of what it gave."),
            "withheld": withheld(),
            "clipped": clipped(),
            "action_id": said("The action that asks about it."),
            "synthetic": flag("The server closed it, for its run was not heard of any more."),
            "awaits": said("Who has to give its result, beyond the run's end; gone once it is there."),
        }),
    )
}

fn custom() -> Value {
    content(
        "custom",
        "An activity that a source names: its content is the source's, kept as it came, and never joined. A bare text is { text: [ … ] }, what is no object { value: … }. One whose type and id are those of an activity of ours has `custom:` before its name.",
        json!({}),
        json!({}),
    )
}

fn action() -> Value {
    content(
        "action",
        "What waits for somebody's decision. Pending until its owner says otherwise, or the run has ended.",
        json!({
            "kind": open(ActionKind::NAMES, "What is asked for; unknown where nobody said."),
            "status": closed(&["pending", "resolved", "interrupted"], "Whether it still waits. An answer alone resolves nothing."),
        }),
        json!({
            "outcome": open(&["approved", "rejected", "answered", "cancelled", "expired"], "How it was decided."),
            "value": anything("What was answered."),
            "title": anything("What is asked, in a line."),
            "message": anything("What is asked."),
            "description": anything("More of what is asked."),
            "schema": anything("Of the answer that is wanted: the same as responseSchema."),
            "responseSchema": anything("Of the answer that is wanted."),
            "options": anything("To choose from: { optionId, label, kind } where the source offers choices."),
            "risk": anything("What is at stake."),
            "scope": anything("For what an approval holds."),
            "toolName": anything("The tool that asks; the call's where the source names the call alone."),
            "parameters": anything("What the tool is about to be called with; the call's where the source names the call alone."),
            "payload": anything("What the source says of the question by names of its own."),
            "plan": anything("The plan that is to be accepted."),
            "artifactId": said("The artifact that is reviewed."),
            "versionId": anything("Its version."),
            "evidenceId": said("The evidence that is reviewed."),
            "refs": anything("What the question refers to."),
            "input": anything("The arguments that are to be allowed, by their older name."),
            "safeInput": anything("What of the arguments may be shown."),
            "policyScope": anything("For what a permission holds."),
            "parentRouting": anything("By way of whom a delegated question came."),
            "toolCallId": said("The call that it is about."),
            "agentId": said("Who asks."),
            "taskId": said("The task for which it is asked."),
            "expiresAt": anything("Until when it can be answered."),
            "control": closed(&["submitted"], "A reader's answer is on its way to the owner."),
            "withheld": withheld(),
        }),
    )
}

fn queue() -> Value {
    content(
        "queue",
        "The turns that wait, why, and what steers the run; also by its source's names, bounded. One a session; of a run without a session, one a run.",
        json!({}),
        json!({
            "queuedTurnCount": anything("How many wait; absent where nobody said."),
            "items": list("The head of the queue."),
            "queueReason": anything("Why they wait."),
            "retryableOverload": anything("Whether it is an overload that passes."),
            "providerConcurrencyGroup": anything("With whom they share a provider's limit."),
            "providerParallelBudget": anything("How many may run at once."),
        }),
    )
}

fn task() -> Value {
    content(
        "task",
        "A queued turn, work item, background job or remote task. A run's end ends none, and leaves those that are open stale.",
        json!({ "status": said("As its owner says; unknown where nobody said, or where it was running when its run ended.") }),
        json!({
            "runtimeEntity": open(&["agent_turn", "subagent_turn", "automation_job", "external_task", "work_item"], "What it is to its runtime."),
            "title": anything("What is to be done."),
            "assignee": anything("By whom."),
            "blocker": anything("What it waits for."),
            "priority": anything("How much it presses."),
            "dependencies": anything("What has to be done before."),
            "progress": anything("How far it is."),
            "attempts": list("Failed attempts, the newest: they stay when it is tried again."),
            "attemptCount": count("How many attempts there were, by its owner's count."),
            "schedule": anything("When it runs."),
            "wakeReason": anything("What woke it."),
            "lastRunRef": anything("Its last run."),
            "capabilityRef": anything("The remote agent's card."),
            "inputNeeds": anything("What it has to be told."),
            "authNeeds": anything("What it has to be allowed."),
            "error": anything("Why it failed, while it stands so."),
            "comments": list("What is said of it on the board: the newest."),
            "claimedBy": anything("Who has claimed it."),
            "artifactRefs": anything("Artifacts that it made or needs."),
            "evidenceRefs": anything("Evidence for it."),
            "refs": anything("Where else it is."),
            "topology": topology(),
            "stale": stale(),
        }),
    )
}

fn agent() -> Value {
    content(
        "agent",
        "A teammate, worker or remote collaborator. A run's end ends none, and leaves those that are open stale.",
        json!({
            "agentName": said("Its name; its id where it has none."),
            "status": said("As it is told, else by runtimeStatus; unknown where nobody said, or where it was running when its run ended."),
        }),
        json!({
            "teamName": anything("Its team."),
            "role": anything("Its part in the team."),
            "runtimeStatus": anything("Of its runtime."),
            "latestTurnStatus": anything("How its last turn stands."),
            "queuedTurnCount": anything("Turns that wait for it."),
            "source": anything("Where it comes from."),
            "transcriptRef": anything("Where to read what it said."),
            "parentSessionId": said("The session that spawned it."),
            "parentThreadId": said("The thread that spawned it."),
            "sessionId": said("Its own session."),
            "threadId": said("Its own thread."),
            "taskId": said("What it works on."),
            "model": anything("The model that it runs on."),
            "policy": anything("What it may do."),
            "usage": object("What it used, summed by member."),
            "schedule": anything("When it runs."),
            "wakeReason": anything("What woke it."),
            "currentRunRef": anything("The run that it is in."),
            "lastRunRef": anything("Its last run."),
            "capabilityRef": anything("The remote agent's card."),
            "remoteTaskId": anything("Its task at the remote agent."),
            "inputNeeds": anything("What it has to be told."),
            "authNeeds": anything("What it has to be allowed."),
            "blocker": anything("What it waits for."),
            "dependencies": anything("What has to be done before."),
            "progress": anything("How far it is."),
            "artifactRefs": anything("Artifacts that it made or needs."),
            "evidenceRefs": anything("Evidence for what it did."),
            "refs": anything("Where else it is."),
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
            "teamName": anything("Its name."),
            "teamPhase": anything("How far it is: forming, active, waiting, merging, done."),
            "teamParallelBudget": anything("How many may work at once."),
            "teamActiveCount": anything("How many work."),
            "teamQueuedCount": anything("How many wait."),
            "refs": anything("Where else it is."),
        }),
    )
}

fn handoff() -> Value {
    content(
        "handoff",
        "Somebody hands over to somebody. It rewrites no past authorship.",
        json!({ "status": said("As it is told, else accepted once there is a time of that; else unknown.") }),
        json!({
            "from": anything("Who had it."),
            "to": anything("Who has it now."),
            "reason": anything("Why."),
            "resumeTarget": anything("Where it goes on."),
            "memoryBoundary": anything("What of the memory goes along."),
            "contextBoundary": anything("What of the context goes along."),
            "acceptedAt": anything("When it was accepted."),
            "acceptedTime": anything("The same, by another name."),
            "refs": anything("Where else it is."),
            "topology": topology(),
            "stale": stale(),
        }),
    )
}

fn notification() -> Value {
    content(
        "worker-notification",
        "What a worker reports: never the user's word, whatever channel brought it.",
        json!({ "status": anything("As the worker says; unknown where nobody said.") }),
        json!({
            "taskId": said("The task that it is about."),
            "agentId": said("The worker."),
            "summary": anything("What came of it."),
            "text": text("Its words, where it spoke in a user's role."),
            "resultRef": anything("Where the result is."),
            "usage": anything("What it used."),
            "durationMs": anything("How long it took."),
            "toolCount": anything("How many tools it called."),
        }),
    )
}

fn review() -> Value {
    content(
        "review",
        "What a reviewer is asked, and its verdict.",
        json!({ "status": said("requested, reviewing, passed, changes_requested, failed …; completed where no verdict says more.") }),
        json!({
            "reviewer": anything("Who reviews."),
            "target": anything("What is reviewed."),
            "verdict": anything("What came of it."),
            "evidenceRefs": anything("On what it rests."),
            "requestedFixes": anything("What has to be changed."),
            "refs": anything("Where else it is."),
            "topology": topology(),
            "stale": stale(),
            "withheld": withheld(),
        }),
    )
}

fn versions() -> Value {
    list("The newest versions, without their bodies.")
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
        "A deliverable: what it is, in which version, and where to read it. Never its body.",
        json!({ "status": open(&by_class, "As its owner calls it, else by what happened last.") }),
        json!({
            "title": anything("Its title."),
            "kind": anything("What it is."),
            "preview": anything("A glance at it."),
            "previewRef": anything("Where a preview is."),
            "diffRef": anything("Where what changed is."),
            "exportRef": anything("Where the export is."),
            "version": anything("The version that is current."),
            "versions": versions(),
            "error": anything("Why it failed, while it stands so."),
            "refs": anything("Where else it is."),
            "stale": stale(),
        }),
    )
}

fn evidence() -> Value {
    content(
        "evidence",
        "A citation, trace, replay, review or audit. Never its body.",
        json!({ "status": anything("As its owner says, else its verdict; unknown where nobody said.") }),
        json!({
            "kind": anything("What it is."),
            "verdict": anything("What it says."),
            "title": anything("Its title."),
            "summary": anything("What it comes to."),
            "preview": anything("A glance at it."),
            "versions": versions(),
            "refs": anything("Where it is."),
        }),
    )
}

fn context() -> Value {
    content(
        "context",
        "What the model was given: references, budgets, results, what is missing; by its source's names, bounded, without bodies.",
        json!({}),
        json!({ "refs": anything("Where it comes from.") }),
    )
}

fn compaction() -> Value {
    content(
        "compaction",
        "Where memory was cut; by its source's names, bounded, without bodies.",
        json!({ "status": said("running, completed, failed, cancelled, or interrupted by the run's end.") }),
        json!({ "withheld": withheld() }),
    )
}

fn permission() -> Value {
    content(
        "permission",
        "What may be done, as policy says; by its source's names, bounded. What it says of one decision goes with the next.",
        json!({}),
        json!({
            "toolCallId": said("The call that the last decision is about."),
            "actionId": said("The action that it answers."),
            "agentId": said("The agent that it binds."),
            "taskId": said("The task that it is about."),
        }),
    )
}

fn state() -> Value {
    content(
        "state",
        "The application's own state, as its source keeps it. Its texts are never joined.",
        json!({ "state": anything("The state.") }),
        json!({}),
    )
}

fn session() -> Value {
    content(
        "session",
        "The shell of a session, by its source's names, bounded. Never its messages.",
        json!({ "status": said("As it is told, else open or closed; unknown where nobody said.") }),
        json!({
            "title": anything("Its title."),
            "preview": anything("A glance at it."),
            "unread": anything("What is unread."),
            "pinned": anything("Whether it is pinned."),
            "stale": anything("Whether it may be behind."),
            "parentSessionId": said("The session that it is a child of."),
        }),
    )
}

fn diagnostics() -> Value {
    let mut schema = entries("diagnostics", "What is of use to whoever looks for a fault: the newest entries.", &["kind"]);
    schema["properties"]["hiddenFailures"] =
        json!({ "description": "How many calls failed that this reader cannot see.", "type": "integer", "minimum": 1 });
    schema
}

fn entries(kind: &str, purpose: &str, required: &[&str]) -> Value {
    let mut names = vec!["sequence"];
    names.extend(required);
    let properties = Map::from_iter([("sequence".to_owned(), sequence("The envelope that told it.", 1))]);
    let entry = json!({ "type": "object", "properties": properties, "required": names, "additionalProperties": true });
    let entries = json!({ "description": "Oldest first. All of them are in the log.", "type": "array", "items": entry });
    content(kind, purpose, json!({ "entries": entries }), json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::projection::PROJECTIONS;
    use std::collections::BTreeSet;

    #[test]
    fn every_activity_type_has_a_schema_and_every_schema_a_type() {
        let types: BTreeSet<&str> = PROJECTIONS.iter().map(|projection| projection.kind).collect();
        assert_eq!(documents().iter().map(|(kind, _)| *kind).collect::<BTreeSet<_>>(), types);
        assert_eq!(documents().len(), types.len());
    }
}
