//! The content of each activity type as JSON Schema 2020-12, for `schema/activities/`.
//!
//! The schemas state what a reader may rely on: the members that always exist, and the closed sets of our own values.
//! Further members are allowed, and a source's members keep the source's names. Tests compare the schemas with the
//! folds; the server does not validate with them at run time.

use super::{subject, tool_call};
use crate::model::options::{Effect, OPTIONS_MAX, Width};
use crate::model::schema::{DIALECT, open, sequence};
use crate::model::{ActionKind, ActionOutcome, PartKind, Phase, Topology};
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

fn string(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "string" })
}

/// A value of any type, from the source.
fn any_value(purpose: &str) -> Value {
    json!({ "description": purpose })
}

fn boolean(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "boolean" })
}

fn array(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "array" })
}

fn number(purpose: &str) -> Value {
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
    boolean("The text reached its limit of 4 MiB; the rest is only in the log, or in a body that refs names.")
}

fn bodies() -> Value {
    json!({
        "description": "The strings in this content that are previews, because the whole value moved to a body: its location by the JSON Pointer of the string. A link with the mediaType application/json leads to JSON, any other to text.",
        "type": "object",
        "additionalProperties": { "type": "object", "properties": { "href": { "type": "string" }, "bytes": { "type": "integer" }, "mediaType": { "type": "string" } }, "required": ["href"] },
    })
}

fn has_bodies() -> Value {
    boolean("A value is a preview; bodies names it.")
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
            "attempt": json!({ "description": "The number of the attempt: 1 after the first start, plus 1 for each further start without `continues`; 0 before any start.", "type": "integer", "minimum": 0 }),
        }),
        json!({
            "message": any_value("The runtime's latest message about the run's status."),
            "detail": string("The runtime's own word for the status, if it is not a phase: blocked, retrying, or a source-specific word."),
            "topology": topology(),
            "stale": boolean("The server has received nothing from the run for longer than --stale-after (60 s by default)."),
            "synthetic": boolean("The server ended the run, because its runtime was gone."),
            "withheld": withheld(),
            "error": any_value("The error of a failed run, from its source: { code?, message }."),
            "retryable": any_value("Whether the run's owner would accept another attempt, from its source."),
            "result": any_value("The run's result, from the fact that ended it."),
            "clipped": has_bodies(),
            "bodies": bodies(),
            "usage": object("The usage of the run's model calls, each member summed over the calls."),
            "notices": array("Progress that belongs to no single call, and warnings with their severity: the newest 20."),
            "sessionId": string("The session of the run."),
            "threadId": string("The thread of the run."),
            "agentId": string("The run's own agent. Messages of any other agent are a teammate's."),
            "parentRunId": string("The run that started this one."),
            "activitiesOmitted": boolean("The view reached its limit of 20000 activities; the log contains further ones."),
        }),
    )
}

fn message() -> Value {
    let part = json!({
        "type": "object",
        "properties": {
            "partId": string("The id of the part, unique within the message."),
            "kind": open(PartKind::NAMES, "The kind of the part; image, file or a source's own name for a kind that the seed does not name."),
            "opened": sequence("The sequence of the envelope that opened the part. Clients interleave parts and calls by it.", 1),
            "status": closed(&["streaming", "complete", "interrupted"], "Whether the part may still grow (streaming)."),
            "text": text("The text of the part."),
            "refs": any_value("The part's references."),
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
            "role": string("The role of the author: assistant, user and so on."),
            "status": closed(&["streaming", "complete", "interrupted"], "Whether the message may still grow (streaming)."),
            "parts": json!({ "description": "The parts, in the order in which they appeared, at most 4096. No part is ever removed; a retracted one is empty and interrupted.", "type": "array", "items": part }),
        }),
        json!({ "agentId": string("The agent that wrote the message."), "attachments": any_value("The message's attachments: references, never bodies."), "refs": any_value("The references of the whole message."), "withheld": withheld(), "clipped": boolean("The message reached its limit of 4096 parts; the log contains further ones.") }),
    )
}

fn thought(kind: &str, purpose: &str) -> Value {
    content(
        kind,
        purpose,
        json!({
            "status": closed(&["streaming", "complete", "interrupted"], "Whether the text may still grow (streaming)."),
            "text": text("The text."),
            "messageId": string("The activity id of the message that it accompanies."),
        }),
        json!({ "partId": string("The id of its part in that message."), "withheld": withheld(), "clipped": clipped() }),
    )
}

fn tool() -> Value {
    content(
        "tool-call-progress",
        "A tool call: seed 002's tool-call-progress.v1 with its own names, and the lifecycle of seed 003 beside it.",
        json!({
            "schema": json!({ "const": "tool-call-progress.v1" }),
            "node_id": string("The call's node in the tree of calls."),
            "call_id": string("The id of the call."),
            "tool_name": string("The name of the tool; empty if unknown."),
            "status": closed(tool_call::STATUSES, "The status as the tool reports it; pending while the call waits for a decision (action_id)."),
        }),
        json!({
            "state": closed(tool_call::STATES, "The call's position in its lifecycle; absent before its first event."),
            "progress": json!({ "description": "The last reported progress, as a fraction.", "type": "number", "minimum": 0, "maximum": 1 }),
            "loaded": number("The amount that is done, in the tool's own unit."),
            "total": number("The total amount, in the unit of loaded."),
            "message": string("The tool's latest message about its progress."),
            "reported": sequence("The sequence of the envelope with the tool's first report.", 1),
            "parent_node_id": string("The parent node in the tree of calls."),
            "parent_call_id": string("The call that made this one."),
            "source_call_id": string("The runtime's own id of the call, where the server had to make call_id: the runtime used its id again, or no id is as long."),
            "input": any_value("The arguments, parsed."),
            "input_text": text("The arguments while they stream; removed once they are parsed."),
            "output": any_value("The call's result."),
            "output_text": text("The streamed output: the standard output, and output without a channel."),
            "output_channels": json!({ "description": "The streamed output of other channels by name, each a list of chunks like output_text. Together at most 4 MiB.", "type": "object", "additionalProperties": { "type": "array", "items": { "type": "string" } }, "maxProperties": tool_call::CHANNELS_MAX }),
            "unannounced": boolean("No fact announced the call's start here: only progress reports mention it."),
            "output_ref": any_value("The location of the whole output."),
            "structured": any_value("The result in a form for programs."),
            "error": json!({ "description": "The error of a failed call.", "type": "object" }),
            "never_started": any_value("Whether the call was given up before it ran."),
            "duration_ms": number("The duration of the call, in milliseconds."),
            "cost_usd": number("The cost of the call, in US dollars."),
            "truncated": any_value("The number of characters that the source cut from the result."),
            "untrusted": any_value("Whether the source marks the result as untrusted."),
            "withheld": withheld(),
            "clipped": boolean("The streamed output reached its limit of 4 MiB, and the rest is only in the log; or a value is a preview, and bodies names it."),
            "bodies": bodies(),
            "action_id": string("The action that asks for a decision about the call."),
            "synthetic": boolean("The server closed the call, because it received nothing more from the run."),
            "awaits": string("The party that has to supply the result, even after the run's end; removed once the result arrives."),
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
            "outcome": open(ActionOutcome::NAMES, "The decision. `superseded`: the conversation went on without one."),
            "value": any_value("The answer."),
            "title": any_value("The request in one line."),
            "message": any_value("The text of the request."),
            "description": any_value("A longer description of the request."),
            "schema": any_value("The schema of the expected answer: the same as responseSchema."),
            "responseSchema": any_value("The schema of the expected answer."),
            "titleFrom": closed(&["source", "server"], "Whether the source wrote the title, or the server made it from the subject."),
            "subject": subject_of("What is decided. Absent for readers that cannot see the call."),
            "subjects": json!({ "type": "array", "items": subject_of("One request."), "description": "What is decided, where one action has several requests." }),
            "options": json!({
                "maxItems": OPTIONS_MAX,
                "items": {
                    "type": "object",
                    "properties": {
                        "optionId": string("The id by which a control names the option."),
                        "label": string("The source's words; for readers that cannot see the call, only what the option does."),
                        "kind": string("The source's own kind."),
                        "description": any_value("What the option leads to."),
                        "effect": closed(Effect::NAMES, "What the option does to the request."),
                        "width": closed(Width::NAMES, "How far the option reaches."),
                        "value": any_value("The answer that the option gives, in the source's own form."),
                    },
                    "required": ["effect", "width"],
                },
                "description": "The choices: allow, reject, answer, and within them from narrow to wide.",
            }),
            "risk": any_value("The risk of the action."),
            "scope": any_value("The scope of the approval."),
            "toolName": any_value("The tool that needs approval; the call's tool if the source names only the call."),
            "parameters": any_value("The tool's arguments; the call's arguments if the source names only the call."),
            "payload": any_value("Further members of the request, with the source's own names."),
            "plan": any_value("The plan that needs approval."),
            "artifactId": string("The artifact under review."),
            "versionId": any_value("The version of the artifact."),
            "evidenceId": string("The evidence under review."),
            "refs": any_value("The references of the request."),
            "input": any_value("The arguments that need approval, by the older name of parameters."),
            "safeInput": any_value("The part of the arguments that clients may show."),
            "policyScope": any_value("The scope of the permission."),
            "parentRouting": any_value("The agents through which a delegated request passed."),
            "toolCallId": string("The call that the request is about."),
            "agentId": string("The agent that asks."),
            "taskId": string("The task that the request belongs to."),
            "expiresAt": any_value("The time until which the request can be answered, from its source."),
            "control": closed(&["submitted"], "A reader's answer is in transit to the owner."),
            "controlId": string("The control that decides the action."),
            "decidedBy": decided_by(),
            "resolvedBy": any_value("Who resolved the action, as its producer says."),
            "questionVersion": any_value("The version of the question, from the second on: another content is another version."),
            "withheld": withheld(),
            "clipped": has_bodies(),
            "bodies": bodies(),
        }),
    )
}

fn decided_by() -> Value {
    json!({
        "description": "Who decided, as the server knows it. Users do not get `sub`, `name` and `onBehalfOf`.",
        "type": "object",
        "required": ["via", "at"],
        "properties": {
            "sub": string("The `sub` of the token."),
            "name": string("The `name` of the token."),
            "onBehalfOf": string("The person for whom the holder of the token decided."),
            "via": string("The face of the request; `runtime` if the runtime resolved the action on its own."),
            "at": string("When the server accepted the decision, RFC 3339 in UTC."),
            "seen": { "description": "The last envelope of the question that its maker saw.", "type": "integer" },
        },
    })
}

fn subject_of(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "properties": {
            "kind": closed(subject::KINDS, "What kind of thing is decided."),
            "toolName": string("The tool."),
            "text": string("What the source says about it."),
            "command": string("The command line."),
            "cwd": string("The directory of the command."),
            "path": string("The file."),
            "diffs": json!({
                "type": "array", "maxItems": subject::ITEMS_MAX, "description": "The changes: { path, oldText?, newText?, patch? }.",
                "items": { "type": "object", "properties": { "path": string("The file.") }, "required": ["path"] },
            }),
            "fields": json!({
                "type": "array", "maxItems": subject::ITEMS_MAX, "description": "The arguments that nothing else shows.",
                "items": { "type": "object", "properties": { "name": string("The name."), "value": true }, "required": ["name", "value"] },
            }),
            "question": string("The question."),
            "plan": any_value("The plan."),
            "title": string("A title of one of several requests."),
            "clipped": any_value("Whether something is left out."),
        },
        "required": ["kind"],
    })
}

fn queue() -> Value {
    content(
        "queue",
        "The queued turns, the reason, and what steers the run; also members with the source's own names, bounded. One per session, or per run if the run has no session.",
        json!({}),
        json!({
            "queuedTurnCount": any_value("The number of queued turns; absent if unknown."),
            "items": array("The head of the queue, at most 100 items."),
            "queueReason": any_value("The reason why the turns wait."),
            "retryableOverload": any_value("Whether the reason is a temporary overload."),
            "providerConcurrencyGroup": any_value("The group that shares a provider's concurrency limit."),
            "providerParallelBudget": any_value("The number of turns that may run at once."),
        }),
    )
}

fn task() -> Value {
    content(
        "task",
        "A queued turn, work item, background job or remote task. The end of a run does not end it, but marks an open one as stale.",
        json!({ "status": string("The status as the owner states it; unknown if no fact states it, or if the task was running when its run ended.") }),
        json!({
            "runtimeEntity": open(&["agent_turn", "subagent_turn", "automation_job", "external_task", "work_item"], "The kind of the task in its runtime."),
            "title": any_value("The title of the task."),
            "assignee": any_value("The assignee of the task."),
            "blocker": any_value("The reason why the task is blocked."),
            "priority": any_value("The priority of the task."),
            "dependencies": any_value("The tasks that must be done before."),
            "progress": any_value("The progress of the task."),
            "attempts": array("The newest 20 failed attempts; they stay when the task is tried again."),
            "attemptCount": number("The number of attempts, by the owner's count."),
            "schedule": any_value("The schedule of the task."),
            "wakeReason": any_value("The reason why the task was woken."),
            "lastRunRef": any_value("A reference to the task's last run."),
            "capabilityRef": any_value("A reference to the remote agent's card."),
            "inputNeeds": any_value("The input that the task needs."),
            "authNeeds": any_value("The permissions that the task needs."),
            "error": any_value("The error, while the task is failed."),
            "comments": array("The newest 50 comments on the board."),
            "claimedBy": any_value("The party that has claimed the task."),
            "artifactRefs": any_value("Artifacts that the task made or needs."),
            "evidenceRefs": any_value("Evidence for the task."),
            "refs": any_value("Further references."),
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
            "agentName": string("The agent's name; its id if it has no name."),
            "status": string("The status as a fact states it, else runtimeStatus; unknown if neither exists, or if the agent was running when its run ended."),
        }),
        json!({
            "teamName": any_value("The agent's team."),
            "role": any_value("The agent's role in the team."),
            "runtimeStatus": any_value("The status of the agent's runtime."),
            "latestTurnStatus": any_value("The status of the agent's last turn."),
            "queuedTurnCount": any_value("The number of turns that wait for the agent."),
            "source": any_value("The origin of the agent."),
            "transcriptRef": any_value("A reference to the agent's transcript."),
            "parentSessionId": string("The session that spawned the agent."),
            "parentThreadId": string("The thread that spawned the agent."),
            "sessionId": string("The agent's own session."),
            "threadId": string("The agent's own thread."),
            "taskId": string("The task that the agent works on."),
            "model": any_value("The model that the agent uses."),
            "policy": any_value("The agent's policy."),
            "usage": object("The usage of the agent's model calls, each member summed over the calls."),
            "schedule": any_value("The agent's schedule."),
            "wakeReason": any_value("The reason why the agent was woken."),
            "currentRunRef": any_value("A reference to the agent's current run."),
            "lastRunRef": any_value("A reference to the agent's last run."),
            "capabilityRef": any_value("A reference to the remote agent's card."),
            "remoteTaskId": any_value("The agent's task at the remote agent."),
            "inputNeeds": any_value("The input that the agent needs."),
            "authNeeds": any_value("The permissions that the agent needs."),
            "blocker": any_value("The reason why the agent is blocked."),
            "dependencies": any_value("The work that must be done before."),
            "progress": any_value("The progress of the agent's work."),
            "artifactRefs": any_value("Artifacts that the agent made or needs."),
            "evidenceRefs": any_value("Evidence for the agent's work."),
            "refs": any_value("Further references."),
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
            "teamName": any_value("The team's name."),
            "teamPhase": any_value("The team's phase: forming, active, waiting, merging, done."),
            "teamParallelBudget": any_value("The number of members that may work at once."),
            "teamActiveCount": any_value("The number of members at work."),
            "teamQueuedCount": any_value("The number of members that wait."),
            "refs": any_value("Further references."),
        }),
    )
}

fn handoff() -> Value {
    content(
        "handoff",
        "A hand-off of work from one agent or user to another. It does not change the authors of earlier messages.",
        json!({ "status": string("The status as a fact states it, else accepted once acceptedAt or acceptedTime exists; else unknown.") }),
        json!({
            "from": any_value("The previous owner of the work."),
            "to": any_value("The new owner of the work."),
            "reason": any_value("The reason for the hand-off."),
            "resumeTarget": any_value("The place where the work resumes."),
            "memoryBoundary": any_value("The part of the memory that is handed over."),
            "contextBoundary": any_value("The part of the context that is handed over."),
            "acceptedAt": any_value("The time of acceptance, from its source."),
            "acceptedTime": any_value("The same as acceptedAt, by another name."),
            "refs": any_value("Further references."),
            "topology": topology(),
            "stale": stale(),
        }),
    )
}

fn notification() -> Value {
    content(
        "worker-notification",
        "A worker's report. It never counts as the user's message, on any channel.",
        json!({ "status": any_value("The status as the worker states it; unknown if it states none.") }),
        json!({
            "taskId": string("The task that the report is about."),
            "agentId": string("The worker."),
            "summary": any_value("The summary of the result."),
            "text": text("The text of the report, if it arrived as a user-role message."),
            "resultRef": any_value("A reference to the result."),
            "usage": any_value("The worker's usage."),
            "durationMs": any_value("The duration of the work, in milliseconds."),
            "toolCount": any_value("The number of tool calls."),
        }),
    )
}

fn review() -> Value {
    content(
        "review",
        "A request to a reviewer, and its verdict.",
        json!({ "status": string("requested, reviewing, passed, changes_requested, failed and others; completed if no verdict states more.") }),
        json!({
            "reviewer": any_value("The reviewer."),
            "target": any_value("The object under review."),
            "verdict": any_value("The verdict."),
            "evidenceRefs": any_value("The evidence for the verdict."),
            "requestedFixes": any_value("The changes that the reviewer requests."),
            "refs": any_value("Further references."),
            "topology": topology(),
            "stale": stale(),
            "withheld": withheld(),
        }),
    )
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
            "title": any_value("The title."),
            "kind": any_value("The kind of artifact."),
            "preview": any_value("A short preview."),
            "previewRef": any_value("A reference to a preview."),
            "diffRef": any_value("A reference to the latest diff."),
            "exportRef": any_value("A reference to the export."),
            "version": any_value("The current version."),
            "versions": array("The newest 50 versions, without their bodies. `sequence`, `at` and `agentId` name the event, its time and its agent."),
            "error": any_value("The error, while the artifact is failed."),
            "refs": any_value("Further references."),
            "stale": stale(),
        }),
    )
}

fn evidence() -> Value {
    content(
        "evidence",
        "A citation, trace, replay, review or audit. Never its body.",
        json!({ "status": any_value("The status as the owner states it, else the verdict; unknown if neither exists.") }),
        json!({
            "kind": any_value("The kind of evidence."),
            "verdict": any_value("The verdict."),
            "title": any_value("The title."),
            "summary": any_value("The summary."),
            "preview": any_value("A short preview."),
            "versions": array("The newest 50 versions, without their bodies."),
            "refs": any_value("References to the evidence."),
        }),
    )
}

fn context() -> Value {
    content(
        "context",
        "The model's input: references, budgets, results and missing parts. The members have the source's names, bounded, without bodies.",
        json!({}),
        json!({ "refs": any_value("References to the origin.") }),
    )
}

fn compaction() -> Value {
    content(
        "compaction",
        "A compaction of the model's memory. The members have the source's names, bounded, without bodies.",
        json!({ "status": string("running, completed, failed or cancelled; interrupted if the run ended first.") }),
        json!({ "withheld": withheld() }),
    )
}

fn permission() -> Value {
    content(
        "permission",
        "The permissions that a policy grants. The members have the source's names, bounded. Members about one decision are removed by the next.",
        json!({}),
        json!({
            "toolCallId": string("The call that the last decision is about."),
            "actionId": string("The action that the decision answers."),
            "agentId": string("The agent that the decision applies to."),
            "taskId": string("The task that the decision is about."),
        }),
    )
}

fn state() -> Value {
    content(
        "state",
        "The application's own state, as its source maintains it. Its texts are never joined.",
        json!({ "state": any_value("The state.") }),
        json!({ "clipped": has_bodies(), "bodies": bodies() }),
    )
}

fn session() -> Value {
    content(
        "session",
        "The frame of a session: title, status, unread state. The members have the source's names, bounded. Never its messages.",
        json!({ "status": string("The status as a fact states it, else open or closed; unknown if no fact states it.") }),
        json!({
            "title": any_value("The title."),
            "preview": any_value("A short preview."),
            "unread": any_value("The unread state, from its source."),
            "pinned": any_value("Whether the session is pinned."),
            "stale": any_value("Whether the session may be outdated."),
            "parentSessionId": string("The parent session."),
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
    let entries =
        json!({ "description": "The entries, oldest first. The log contains all of them.", "type": "array", "items": entry });
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
