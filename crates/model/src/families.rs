//! What facts say: a struct for each family of event types.
//!
//! The macro `family!` ([`field`](super::field)) makes the structs. A member that only readers understand is one row under
//! `copied`, where contents take it from.

use super::field::{FactFamily, FieldType, MemberMut, MemberRef, family, schema_of};
use serde_json::{Map, Number, Value, json};

family! {
    /// What a fact says of a tool call: its start, arguments, progress, output or end.
    CallFact {
        tool_name: String = "toolName": "The name of the tool.";
        kind: String = "kind": "The kind of the tool, in its runtime's words.";
        raw_output: Box<Value> = "rawOutput": "The result as the tool gave it, beside one for readers.";
        title: String = "title": "What the call does, in the runtime's words for people.";
        blocks: Box<Value> = "blocks":
            "What the call shows, where that is more than one text: the content of an ACP call, as its source has it.";
        locations: Box<Value> = "locations": "The files that the call touches: `[{path, line?}]`. An empty list: no file.";
        input: Box<Value> = "input": "The whole arguments.";
        input_text: String = "inputText": "A chunk of the arguments' JSON text, or arguments that are no JSON.";
        state: String = "state": "On `tool.args`: `input-streaming` or `input-available`.";
        status: String = "status": "The tool's own report: `pending`, `running`, `done`, `failed` or `cancelled`.";
        message: String = "message": "What the tool does now, for people.";
        progress: Number = "progress": "The done fraction of the work, 0 to 1.";
        loaded: Number = "loaded": "The done amount of the work.";
        total: Number = "total": "The whole amount of the work.";
        app: Box<Value> = "app": "The interface of the tool (MCP Apps): `{resourceUri, mimeType?, visibility?}`.";
        awaits: String = "awaits": "Who supplies the result, if not the run.";
        activity_type: String = "activityType": "The type of the activity that the tool reports.";
        content: Box<Value> = "content": "The content of that activity.";
        patch: Box<Value> = "patch": "JSON Patch operations on that content.";
        replace: bool = "replace": "`false`: the content is only for readers that have none yet.";
        channel: String = "channel": "The channel of a chunk of output; `stdout` if absent.";
        text: String = "text": "A chunk of output.";
        output: Box<Value> = "output": "The result.";
        structured: Box<Value> = "structured": "The result as data, beside one for the model.";
        output_ref: Box<Value> = "outputRef": "Where the whole output is.";
        error: Box<Value> = "error": "Why the call failed: `{code?, message}`, or text.";
        duration_ms: Number = "durationMs": "How long the call took, in milliseconds.";
        cost_usd: Number = "costUsd": "What the call cost, in US dollars.";
        truncated: Box<Value> = "truncated": "Whether the output was cut, and by how much.";
        untrusted: bool = "untrusted": "Whether the output is from a source that the runtime does not trust.";
        never_started: bool = "neverStarted": "Whether the call ended before the tool ran.";
        parent_call: String = "parentToolCallId": "The call that made this one.";
        reported_name: String = "tool_name": "Seed 002: the tool's name in a report.";
        node: String = "node_id": "Seed 002: the node of a report.";
        parent_node: String = "parent_node_id": "Seed 002: the node above that of a report.";
        reported_parent: String = "parent_call_id": "Seed 002: the call above that of a report.";
        question_version: Number = "questionVersion":
            "The version of the questions about the call that this fact makes. Only the server writes it.";
        end_withheld: bool = "endWithheld":
            "On `tool.started`: the call's result came first, and is for a narrower audience than the start.";
        withheld: bool = "withheld": "Whether the body is for a narrower audience than this reader's.";
    }
}

family! {
    /// What a fact says in words: a text, reasoning or a plan, as a chunk or as a whole.
    WordsFact {
        text: String = "text": "A chunk, or the whole text at the end.";
        role: String = "role": "Who speaks; `assistant` if absent.";
        kind: String = "kind": "The kind of the part.";
        summary: Box<Value> = "summary": "A summary of the text.";
        plan: Box<Value> = "plan": "The plan.";
        steps: Box<Value> = "steps": "The steps of the plan.";
        entries: Box<Value> = "entries": "The entries of the plan.";
        attachments: Box<Value> = "attachments": "What is attached to the message.";
        status: String = "status": "How the end came about, in its producer's words.";
        withheld: bool = "withheld": "Whether the body is for a narrower audience than this reader's.";
    } copied {
        "title": "The title of an image, a file, a file change or a reference.";
        "name"; "path"; "url"; "uri"; "href"; "ref"; "source"; "mediaType"; "mimeType"; "alt"; "language"; "range"; "size";
        "bytes"; "sha256"; "diff"; "diffRef"; "diffStat"; "previewRef"; "versionId"; "citations"; "artifactRefs"; "evidenceRefs";
    }
}

family! {
    /// What a fact says of a run: its start, its status or its end.
    RunFact {
        error: Box<Value> = "error": "The reason why it failed: `{code?, message}`.";
        retryable: Box<Value> = "retryable": "Whether the run's owner would accept another attempt.";
        result: Box<Value> = "result": "The result of the run.";
        usage: Box<Value> = "usage": "The usage of the run's model calls. Readers get those of `metric.changed`.";
        duration_ms: Number = "durationMs": "How long the run took, in milliseconds.";
        cost_usd: Number = "costUsd": "What the run cost, in US dollars.";
        attempt: Number = "attempt": "The number of the attempt, as its source counts.";
        topology: String = "topology": "How the work is organised.";
        parent_run: String = "parentRunId": "The run that started this one.";
        title: String = "title": "The title of the run.";
        unread: Box<Value> = "unread": "The number of unread things, or whether there are any.";
        pinned: bool = "pinned": "Whether the run is pinned.";
        stale: bool = "stale":
            "On `run.status`: the server has received nothing from the run for too long. Only the server writes it.";
        synthetic: bool = "synthetic":
            "Whether the server ended the run, because its runtime was gone. Only the server writes it.";
        continues: bool = "continues": "Whether a start belongs to the attempt at work. Only the server writes it.";
        cancelled_by: String = "cancelledBy": "The control that stopped the run. Only the server writes it.";
        cause: Box<Value> = "cause": "The error of a run that a control stopped. Only the server writes it.";
    } copied {
        "toolName": "The tool that a notice is about.";
        message: String = "message": "What the run does now, for people.";
        "progress": "The progress that a notice reports.";
        status: String = "status": "The status, in the runtime's words.";
        "severity": "The severity of a notice.";
        "code": "The code of a notice.";
    }
}

family! {
    /// What a fact says of a request that waits for a decision.
    ActionFact {
        kind: String = "kind": "The kind of the request.";
        credential_kind: String = "credentialKind": "The kind of a requested credential.";
        outcome: String = "outcome": "The decision.";
        value: Box<Value> = "value": "The answer.";
        control_id: Box<Value> = "controlId": "The control that decides the request. Only the server writes it.";
        decided_by: Box<Value> = "decidedBy": "Who decided, as the server knows it. Only the server writes it.";
        resolved_by: Box<Value> = "resolvedBy": "Who decided, as the producer says.";
        question_version: Box<Value> = "questionVersion":
            "The version of the question, from the second on. Only the server writes it.";
        synthetic: bool = "synthetic": "Whether the server closed the request. Only the server writes it.";
    } copied {
        title: Box<Value> = "title": "The request in one line.";
        "message": "The text of the request.";
        "reason": "The reason for the request.";
        "description": "A longer description of the request.";
        schema: Box<Value> = "schema": "The schema of the expected answer: the same as responseSchema.";
        response_schema: Box<Value> = "responseSchema": "The schema of the expected answer.";
        options: Box<Value> = "options": "The choices.";
        "default": "The answer if none is given.";
        "risk": "The risk of the action.";
        "scope": "The scope of the approval.";
        "toolName": "The tool that needs approval; the call's tool if the source names only the call.";
        input: Box<Value> = "input": "The arguments that need approval, by the older name of parameters.";
        "safeInput": "The part of the arguments that clients may show.";
        parameters: Box<Value> = "parameters": "The tool's arguments; the call's arguments if the source names only the call.";
        payload: Box<Value> = "payload": "Further members of the request, with the source's own names.";
        "plan": "The plan that needs approval.";
        "versionId": "The version of the artifact.";
        "artifactRefs"; "evidenceRefs";
        expires_at: Box<Value> = "expiresAt": "The time until which the request can be answered, from its source.";
        "approvals": "The number of people who must approve, 1 to 16. A rule of the operator may ask for more.";
        "onExpiry":
            "What the server decides at expiresAt: `reject`, or `approve`, if a rule of the operator allows that.";
        "policyScope": "The scope of the permission.";
        "parentRouting": "The agents through which a delegated request passed.";
        "agentName"; "teamName"; "runtimeEntity"; "resumeMode"; "sourceActionId"; "sourceToolCallId";
    }
}

family! {
    /// What a fact says of a control: how far it is on its way to its owner. Only the server writes it.
    ControlFact {
        status: String = "status": "The status of the control.";
        control_id: Box<Value> = "controlId": "The control.";
        decided_by: Box<Value> = "decidedBy": "Who made the control.";
        attempt: Number = "attempt": "The number of the delivery.";
        requeued: bool = "requeued": "Whether the control is delivered again.";
        reason: Box<Value> = "reason": "Why the owner did not take it.";
        have: Number = "have": "The approvals that the action has, of an action that needs several.";
        need: Number = "need": "The approvals that the action needs.";
        lead: String = "lead": "The control that is handed out for this approval.";
    }
}

family! {
    /// What the server says of a step of a rule, on an action that waits. Only the server writes it.
    WaitStepFact {
        step: Number = "step": "The number of the step among those of the action, from 1.";
        at: String = "at": "When the server did it, RFC 3339 in UTC.";
        rule: String = "rule": "The name of the rule. Users do not get it.";
        to: Box<Value> = "to": "The receivers that the rule names. Users do not get them.";
    }
}

family! {
    /// What a person says of a message or a run. Only the server writes it.
    FeedbackFact {
        feedback: String = "feedbackId": "The feedback. Later feedback of its giver about the same message or run replaces it.";
        thumb: String = "thumb": "`up` or `down`; absent if the giver gave words alone, or has withdrawn the feedback.";
        text: String = "text": "The words of the giver. Users do not get them.";
        given_by: Box<Value> = "givenBy": "Who gave it, as the server knows it.";
        withdrawn: bool = "withdrawn": "Whether the giver has withdrawn it.";
    }
}

family! {
    /// What a fact says of an agent: a teammate, a worker or a remote collaborator.
    AgentFact {
        agent_name: String = "agentName": "The agent's name.";
        status: String = "status": "The status of the agent.";
        usage: Box<Value> = "usage": "The usage of a model call.";
    } copied {
        "teamName": "The agent's team.";
        "teamId";
        "role": "The agent's role in the team.";
        "runtimeEntity";
        runtime_status: String = "runtimeStatus": "The status of the agent's runtime.";
        "latestTurnStatus": "The status of the agent's last turn.";
        "queuedTurnCount": "The number of turns that wait for the agent.";
        "source": "The origin of the agent.";
        "color"; "avatar";
        "model": "The model that the agent uses.";
        "policy": "The agent's policy.";
        transcript: Box<Value> = "transcriptRef": "A reference to the agent's transcript.";
        "spawnReason"; "reason"; "summary"; "resultRef"; "toolCount"; "durationMs"; "queueReason"; "retryableOverload";
        "providerConcurrencyGroup"; "providerParallelBudget";
        "capabilityRef": "A reference to the remote agent's card.";
        "remoteTaskId": "The agent's task at the remote agent.";
        "inputNeeds": "The input that the agent needs.";
        "authNeeds": "The permissions that the agent needs.";
        "schedule": "The agent's schedule.";
        "wakeReason": "The reason why the agent was woken.";
        "lastRunRef": "A reference to the agent's last run.";
        "message"; "error"; "topology";
        "currentRunRef": "A reference to the agent's current run.";
        "nextRunAt"; "agentCard"; "workItemId"; "assignee";
        "blocker": "The reason why the agent is blocked.";
        "progress": "The progress of the agent's work.";
        "dependencies": "The work that must be done before.";
        "artifactRefs": "Artifacts that the agent made or needs.";
        "evidenceRefs": "Evidence for the agent's work.";
        "permissionMode"; "sandbox"; "planMode"; "budget"; "toolActivity"; "pendingInput";
    }
}

family! {
    /// What a fact says of a task: a queued turn, a work item, a background job or a remote task.
    TaskFact {
        status: String = "status": "The status as the owner states it.";
        runtime_entity: String = "runtimeEntity": "The kind of the task in its runtime.";
        comments: Box<Value> = "comments": "The comments on the board.";
        comment: Box<Value> = "comment": "One further comment.";
        attempts: Box<Value> = "attempts": "The attempts, or their number.";
    } copied {
        runtime_status: String = "runtimeStatus";
        "latestTurnStatus";
        "title": "The title of the task.";
        "assignee": "The assignee of the task.";
        "owner";
        "blocker": "The reason why the task is blocked.";
        "priority": "The priority of the task.";
        "dependencies": "The tasks that must be done before.";
        "progress": "The progress of the task.";
        "schedule": "The schedule of the task.";
        "wakeReason": "The reason why the task was woken.";
        last_run: Box<Value> = "lastRunRef": "A reference to the task's last run.";
        "capabilityRef": "A reference to the remote agent's card.";
        "inputNeeds": "The input that the task needs.";
        "authNeeds": "The permissions that the task needs.";
        work_item: Box<Value> = "workItemId";
        remote_task: Box<Value> = "remoteTaskId";
        "artifactRefs": "Artifacts that the task made or needs.";
        "evidenceRefs": "Evidence for the task.";
        "resultRef"; "transcriptRef"; "summary";
        reason: Box<Value> = "reason";
        "spawnReason";
        message: Box<Value> = "message";
        error: Box<Value> = "error";
        "queuedTurnCount"; "queueReason"; "retryableOverload"; "providerConcurrencyGroup"; "providerParallelBudget"; "agentName";
        "teamName"; "teamId"; "usage"; "durationMs"; "toolCount"; "topology";
        "claimedBy": "The party that has claimed the task.";
        "claims"; "currentRunRef"; "nextRunAt"; "agentCard";
    }
}

family! {
    /// What a fact says of a team and its limits.
    TeamFact {
        team: Box<Value> = "teamId": "The id of the team; its name if it has none.";
        topology: String = "topology": "How the work is organised.";
        members: Box<Value> = "members": "The members of the team.";
        agents: Box<Value> = "agents": "As `members`.";
        roster: Box<Value> = "roster": "As `members`.";
    } copied {
        team_name: Box<Value> = "teamName": "The team's name.";
        "teamPhase": "The team's phase: forming, active, waiting, merging, done.";
        "teamParallelBudget": "The number of members that may work at once.";
        "teamActiveCount": "The number of members at work.";
        "teamQueuedCount": "The number of members that wait.";
        "status"; "title"; "summary"; "runtimeEntity"; "providerConcurrencyGroup"; "providerParallelBudget"; "queueReason";
        "retryableOverload"; "policy"; "coordinator"; "memoryRefs"; "workItemId"; "assignee"; "blocker"; "artifactRefs";
        "evidenceRefs";
    }
}

family! {
    /// What a fact says of a hand-off of work.
    HandoffFact {
        handoff: Box<Value> = "handoffId": "The id of the hand-off; the server makes one if it is absent.";
    } copied {
        "from": "The previous owner of the work.";
        "to": "The new owner of the work.";
        "reason": "The reason for the hand-off.";
        "resumeTarget": "The place where the work resumes.";
        "memoryBoundary": "The part of the memory that is handed over.";
        "contextBoundary": "The part of the context that is handed over.";
        "acceptedAt": "The time of acceptance, from its source.";
        "acceptedTime": "The same as acceptedAt, by another name.";
        "status"; "summary"; "topology";
    }
}

family! {
    /// What a worker reports to its user.
    NotificationFact {
        notification: Box<Value> = "workerNotificationId": "The id of the report; the server makes one if it is absent.";
        text: String = "text": "The text of the report, or a chunk of it.";
        role: String = "role": "The role of the message that the report arrived as.";
        is_worker_notification: bool = "isWorkerNotification": "Marks a message in the user's role as a worker's.";
        origin: String = "origin": "As `isWorkerNotification`: `worker` or `subagent`.";
        source: String = "source": "As `origin`.";
    } copied {
        "status";
        summary: Box<Value> = "summary": "The summary of the result.";
        "resultRef": "A reference to the result.";
        "usage": "The worker's usage.";
        "durationMs": "The duration of the work, in milliseconds.";
        "toolCount": "The number of tool calls.";
        "agentName"; "teamName"; "runtimeEntity"; "error"; "transcriptRef"; "artifactRefs"; "evidenceRefs";
    }
}

family! {
    /// What a fact says of a request to a reviewer, or of the verdict.
    ReviewFact {
        review: Box<Value> = "reviewId": "The id of the review; the server makes one if it is absent.";
        status: String = "status": "The status of the review.";
    } copied {
        "reviewer": "The reviewer.";
        "target": "The object under review.";
        verdict: Box<Value> = "verdict": "The verdict.";
        "evidenceRefs": "The evidence for the verdict.";
        "artifactRefs";
        "requestedFixes": "The changes that the reviewer requests.";
        "summary"; "reason"; "title"; "topology";
    }
}

family! {
    /// What a fact says of an artifact: what it is, its version, and where it is.
    ArtifactFact {
        status: String = "status": "The status as the owner states it.";
        versions: Box<Value> = "versions": "The versions, without their bodies.";
        created_at: Box<Value> = "createdAt": "When the version was made.";
        body: String = "body": "The bytes, as a `data:` URL. The server moves them out of the envelope.";
    } copied {
        "title": "The title.";
        "name";
        "kind": "The kind of artifact.";
        "artifactKind"; "artifactType"; "mimeType"; "mediaType"; "language"; "path";
        "preview": "A short preview.";
        "previewRef": "A reference to a preview.";
        "diffRef": "A reference to the latest diff.";
        "diffStat";
        "exportRef": "A reference to the export.";
        "exportFormat"; "bodyRef"; "contentRef"; "ref"; "href"; "url"; "uri";
        "version": "The current version.";
        "versionId"; "versionRef"; "size"; "bytes"; "sha256"; "summary"; "reason"; "error"; "message"; "readOnly"; "retryable";
        "progress"; "artifactRefs"; "evidenceRefs"; "remoteTaskId"; "runtimeEntity";
    }
}

family! {
    /// What a fact says of evidence: a citation, a trace, a replay, a review or an audit.
    EvidenceFact {
        versions: Box<Value> = "versions": "The versions, without their bodies.";
    } copied {
        "kind": "The kind of evidence.";
        "evidenceType"; "status";
        "verdict": "The verdict.";
        "title": "The title.";
        "name";
        "summary": "The summary.";
        "preview": "A short preview.";
        "previewRef"; "source"; "target"; "reviewer"; "ref"; "href"; "url"; "uri"; "range"; "traceId"; "replayId"; "version";
        "confidence"; "reason"; "error"; "message"; "requestedFixes"; "artifactRefs"; "evidenceRefs"; "size"; "bytes"; "sha256";
    }
}

family! {
    /// What a fact says of queued turns.
    QueueFact {
        items: Box<Value> = "items": "The head of the queue.";
    } copied {
        queued_turn_count: Box<Value> = "queuedTurnCount": "The number of queued turns; absent if unknown.";
        queue_reason: Box<Value> = "queueReason": "The reason why the turns wait.";
        retryable_overload: Box<Value> = "retryableOverload": "Whether the reason is a temporary overload.";
        "providerConcurrencyGroup": "The group that shares a provider's concurrency limit.";
        "providerParallelBudget": "The number of turns that may run at once.";
        "status"; "runtimeStatus"; "message";
    }
}

// The contents of the next four take all members, in the order of the fact. So these members have no field.
family! {
    /// What a fact says of a session: its title, its status, what is unread. Contents take all members.
    SessionFact {
        withheld: bool = "withheld": "Whether the body is for a narrower audience than this reader's.";
    } copied {
        "status": "The status of the session.";
        "title": "The title.";
        "preview": "A short preview.";
        "unread": "The unread state, from its source.";
        "counts";
        "pinned": "Whether the session is pinned.";
        "stale": "Whether the session may be outdated.";
    }
}

family! {
    /// What a fact says of the model's input. Contents take all members.
    ContextFact {
        withheld: bool = "withheld": "Whether the body is for a narrower audience than this reader's.";
    } copied {
        "contextId": "The id of the context.";
    }
}

family! {
    /// What a fact says of a compaction of the model's memory. Contents take all members.
    CompactionFact {
        withheld: bool = "withheld": "Whether the body is for a narrower audience than this reader's.";
    } copied {
        "compactionId": "The id of the compaction.";
        "id": "As compactionId.";
        "status": "The status of the compaction.";
    }
}

family! {
    /// What a fact says of permissions, or of a decision by them. Contents take all members.
    PermissionFact {
        withheld: bool = "withheld": "Whether the body is for a narrower audience than this reader's.";
    } copied {
        "permissionId": "The id of the permissions.";
        "policyId": "As permissionId.";
        "status": "The status of the decision.";
        "decision": "The decision.";
        "reason": "The reason for the decision.";
        "message": "The decision in words.";
        "risk": "The risk of what is decided.";
        "toolName": "The tool that the decision is about.";
        "expiresAt": "When the decision ends.";
    }
}

family! {
    /// What a fact says of the application's state, or of an activity that its source names.
    StateFact {
        state: Box<Value> = "state": "The whole state.";
        patch: Box<Value> = "patch": "JSON Patch operations on the state, or on the activity's content.";
        activity_type: String = "activityType": "The type of the activity.";
        content: Box<Value> = "content": "The content of the activity.";
        replace: bool = "replace": "`false`: the content is only for readers that have none yet.";
    }
}

family! {
    /// A window of the history.
    MessagesFact {
        messages: Box<Value> = "messages": "The messages: `[{messageId, role, agentId?, parts}]`.";
        mode: String = "mode": "`repair`: the window replaces what was streamed.";
    }
}

family! {
    /// What a fact measures: costs and durations.
    MetricFact {
    } copied {
        "name": "The name of the metric.";
        "kind": "The kind of the metric.";
        "value": "The value.";
        "unit": "The unit of the value.";
        "model": "The model.";
        "durationMs": "The duration, in milliseconds.";
        "costUsd": "The cost, in US dollars.";
        usage: Box<Value> = "usage": "The usage of a model call: counts by their names.";
        "message": "The measurement in words.";
    }
}

family! {
    /// What a fact says to an operator who looks for a fault.
    DiagnosticFact {
        kind: String = "kind": "The kind of the entry.";
    } copied {
        "message": "The entry in words.";
        "code": "The code of the fault.";
        "severity": "How bad it is.";
        "status": "The status of what the entry is about.";
    }
}
