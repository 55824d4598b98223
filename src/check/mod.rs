//! The linter: checks a log against the demands that seed 003 makes of a producer.
//!
//! A rule is a small pure function over the envelopes in order, and over their projection. It uses no clock and no I/O,
//! and infers nothing from prose. A finding names the sentence of the seed that the log breaks, the value, and the
//! remedy. The same log always gives the same findings. A log cannot show the demands on clients; [`DEMANDS`] lists
//! every demand with the rules that check it, or the reason why no rule can.
//!
//! | file | contents |
//! | --- | --- |
//! | `log`, `things` | the parsed log: envelopes; the lifecycles of calls, message parts and actions |
//! | `source` | runs a runtime's own facts through the write path before the check |
//! | `order` | sequences and run boundaries |
//! | `shape` | members, dimensions and ids |
//! | `tools`, `text`, `actions`, `team` | the rules for each |
//! | `safety` | secrets, large bodies, audiences, and the server's diagnostics |
//! | `seed` | the seed's demands and the rules that check them |

mod actions;
mod lifecycles;
mod log;
mod order;
mod safety;
mod seed;
mod shape;
pub mod source;
mod team;
mod text;
mod tools;

pub use log::{CheckedLog, InvalidLine};
pub use seed::{DEMANDS, Demand};

use crate::guard::redact_text;
use crate::model::Audience;
use log::Entry;
use serde::Serialize;

/// The maximum number of findings that the report lists per rule; it only counts the rest.
pub const FINDINGS_MAX: usize = 100;

/// The maximum length of a finding's message, in characters. Names in a log can have any length.
pub const MESSAGE_CHARS_MAX: usize = 500;

/// Describes how the checked log was written.
#[derive(Debug, Clone, Copy)]
pub struct CheckOptions {
    /// The audience of the export. Only the internal audience sees every sequence.
    pub audience: Audience,
    /// Whether the log was compacted. Compaction removes envelopes, so gaps are no error.
    pub is_compacted: bool,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { audience: Audience::Internal, is_compacted: false }
    }
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Clients show wrong data, or data that they must not show.
    Error,
    /// Clients cope, but data is missing or unusual.
    Warning,
    /// A note; the log breaks no requirement.
    Info,
}

impl Severity {
    /// Returns the name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// A rule of the linter.
pub struct Rule {
    /// The stable name, in kebab-case. A name never changes its meaning.
    pub id: &'static str,
    pub severity: Severity,
    /// The requirement, in the seed's words where possible.
    pub sentence: &'static str,
    /// The instruction for the producer of the log.
    pub remedy: &'static str,
    check: fn(&CheckedLog, &mut Findings<'_>),
}

/// A place where a log breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub rule: &'static str,
    pub severity: Severity,
    /// The sequence of the envelope that breaks the rule.
    pub sequence: u64,
    /// The id of the call, action, message or other subject of the finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thing: Option<String>,
    /// The problem, its place and the value.
    pub message: String,
    pub remedy: &'static str,
}

/// The number of findings per severity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub error: u64,
    pub warning: u64,
    pub info: u64,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `null` for a session's own log.
    pub run: Option<String>,
    pub envelopes: usize,
    /// In log order; at most [`FINDINGS_MAX`] per rule.
    pub findings: Vec<Finding>,
    /// Includes the findings that the list omits.
    pub counts: Counts,
    /// The number of findings that the list omits.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Collects the findings of one rule.
struct Findings<'r> {
    rule: &'r Rule,
    listed: Vec<Finding>,
    count: u64,
}

impl Findings<'_> {
    fn report(&mut self, entry: &Entry, subject: Option<&str>, message: String) {
        self.report_at(entry.sequence, subject, message);
    }

    fn report_at(&mut self, sequence: u64, subject: Option<&str>, message: String) {
        self.count += 1;
        if self.listed.len() < FINDINGS_MAX {
            let Rule { id, severity, remedy, .. } = *self.rule;
            let thing = subject.filter(|subject| !subject.is_empty()).map(sanitize);
            self.listed.push(Finding { rule: id, severity, sequence, thing, message: sanitize(&message), remedy });
        }
    }
}

/// Makes a text from a log safe to print: redacts secrets, bounds its length, and keeps it on one line.
fn sanitize(text: &str) -> String {
    let text = redact_text(text);
    let mut sanitized: String = text.chars().take(MESSAGE_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MESSAGE_CHARS_MAX).is_some() {
        sanitized.push('…');
    }
    sanitized
}

/// Checks a log against every rule.
#[must_use]
pub fn check(log: &CheckedLog) -> Report {
    let (mut findings, mut counts, mut omitted) = (Vec::new(), Counts::default(), 0);
    for rule in RULES {
        let mut found = Findings { rule, listed: Vec::new(), count: 0 };
        (rule.check)(log, &mut found);
        match rule.severity {
            Severity::Error => counts.error += found.count,
            Severity::Warning => counts.warning += found.count,
            Severity::Info => counts.info += found.count,
        }
        omitted += found.count - found.listed.len() as u64;
        findings.append(&mut found.listed);
    }
    findings.sort_by_key(|finding| finding.sequence);
    Report { run: log.run().map(str::to_owned), envelopes: log.entries.len(), findings, counts, omitted }
}

/// All rules, grouped by subject.
pub static RULES: &[Rule] = &{
    use Severity::{Error, Info, Warning};
    const fn rule(
        id: &'static str,
        severity: Severity,
        sentence: &'static str,
        remedy: &'static str,
        check: fn(&CheckedLog, &mut Findings<'_>),
    ) -> Rule {
        Rule { id, severity, sentence, remedy, check }
    }
    [
        // Log order and run boundaries.
        rule(
            "sequence-increasing",
            Error,
            "Runtime event order is preserved: sequences increase.",
            "write envelopes in sequence order; check concatenated files one by one",
            order::increasing,
        ),
        rule(
            "sequence-gapless",
            Error,
            "Runtime event order is preserved: no envelope is missing.",
            "export with the internal audience; for another audience pass --audience, for a compacted log pass --compacted",
            order::gapless,
        ),
        rule(
            "one-log",
            Error,
            "Sequence is monotonic within one run, and a log holds each event once.",
            "check each run separately; send Producer-Id and Producer-Seq, so that the server drops repeated requests",
            order::one_run,
        ),
        rule(
            "work-before-start",
            Warning,
            "Runtime accepted status can render before the first text.",
            "send run.started before the run's first text, reasoning, tool or action",
            order::work_before_start,
        ),
        rule(
            "start-inside-run",
            Warning,
            "A run that has started ends before it starts again.",
            "send run.finished or run.failed before the next run.started; send another run to its own log",
            order::start_inside_run,
        ),
        rule(
            "one-terminal",
            Error,
            "An attempt of a run ends once, with run.finished or run.failed.",
            "send one end per attempt; begin a later attempt with run.started",
            order::one_terminal,
        ),
        rule(
            "work-after-end",
            Warning,
            "No work of a run follows its end; only a new start reopens the run.",
            "send the end last; send a pause as run.status with phase waiting, and another attempt after run.started",
            order::work_after_end,
        ),
        rule(
            "run-never-ended",
            Warning,
            "A run that is not waiting ends.",
            "send run.finished or run.failed, also when the runtime has stopped",
            order::never_ended,
        ),
        // Envelope members, and the members that each event type requires.
        rule(
            "envelope-members",
            Error,
            "An envelope has the portable members, with the names and types of the schema.",
            "write envelopes that match schema/agentui-event.schema.json, or send the facts to a server and export the run",
            shape::members,
        ),
        rule(
            "required-ids",
            Error,
            "A fact has the id of its subject: messageId, toolCallId, actionId, artifactId, evidenceId, agentId, taskId …",
            "send the id with every fact about the subject",
            shape::ids,
        ),
        rule(
            "part-id",
            Warning,
            "partId is required for ordered message parts.",
            "send partId with every chunk, so that text and tools keep their order",
            shape::part_ids,
        ),
        rule(
            "unknown-dimension",
            Info,
            "Owner, scope, phase, surface, persistence, control and topology have the seed's values.",
            "send a value of the seed, or unknown",
            shape::dimensions,
        ),
        rule(
            "unknown-event-type",
            Warning,
            "Event types are those of the seed; only the internal audience sees an unknown one.",
            "send an event type of the seed, or use a server whose adapter supports this release of the runtime",
            shape::event_types,
        ),
        rule(
            "unknown-audience",
            Info,
            "An audience is user, dashboard or internal; any other value counts as internal.",
            "send user, dashboard or internal",
            shape::audiences,
        ),
        rule(
            "failure-without-message",
            Error,
            "A failure shows a recoverable error: it has an error message.",
            "send error: { message, code? }",
            shape::failures,
        ),
        rule(
            "snapshot-shape",
            Warning,
            "A snapshot of messages gives the id, role and parts of each message.",
            "send messages: [{ messageId, role, parts }]",
            shape::snapshots,
        ),
        // Tool calls.
        rule(
            "tool-never-ended",
            Warning,
            "A tool call progresses to output-available, output-error or cancelled.",
            "send tool.result or tool.failed for every call that started",
            tools::never_ended,
        ),
        rule(
            "tool-end-without-start",
            Warning,
            "A tool call's boundary is established before its result.",
            "send tool.started first; if the call never ran, send tool.failed with neverStarted: true",
            tools::end_without_start,
        ),
        rule(
            "tool-ended-twice",
            Error,
            "A tool call ends once.",
            "send one end per call; begin a retry with tool.started",
            tools::ended_twice,
        ),
        rule("tool-without-name", Warning, "A tool call names its tool.", "send toolName with tool.started", tools::without_name),
        rule(
            "result-without-output",
            Info,
            "tool.result: the tool completed successfully with output or output reference.",
            "send output (null if the tool returns none) or outputRef",
            tools::without_output,
        ),
        rule(
            "progress-range",
            Warning,
            "Progress is a fraction from 0 to 1.",
            "divide a percentage by 100; send counts as loaded and total",
            tools::progress_range,
        ),
        rule(
            "progress-backwards",
            Warning,
            "Progress of a running call does not decrease.",
            "report the completed fraction of the whole call; report a phase as a message or as a separate call",
            tools::progress_backwards,
        ),
        rule(
            "progress-after-end",
            Info,
            "A call that has ended stays ended: late progress only changes its message.",
            "send progress before the call ends",
            tools::progress_after_end,
        ),
        // Messages.
        rule(
            "write-after-seal",
            Error,
            "A stream accepts no chunks after its final event.",
            "send all chunks before the final event; send further text as a new part of a new message",
            text::write_after_seal,
        ),
        rule(
            "final-text",
            Error,
            "Final answer text is reconciled without duplication: it equals the streamed text.",
            "send the whole streamed text of the part or message as the final, or send no text",
            text::final_text,
        ),
        rule(
            "part-never-ended",
            Warning,
            "A final event ends each streamed text, reasoning and plan.",
            "send text.final, reasoning.summary or plan.final; they need no text",
            text::part_never_ended,
        ),
        rule(
            "only-text-in-conversation",
            Error,
            "Final answer text is separate from reasoning, tools, actions, status and diagnostics.",
            "omit the surface, or send the one that the seed assigns to the event type",
            text::only_text_in_conversation,
        ),
        rule(
            "text-surface",
            Warning,
            "Message text belongs to the conversation, or to a teammate's transcript.",
            "send reasoning as reasoning.delta, plans as plan.delta, status as run.status",
            text::text_elsewhere,
        ),
        rule(
            "worker-as-user",
            Error,
            "Internal worker notifications are not user messages, even if they arrive through a user-role channel.",
            "send worker.notification",
            text::worker_as_user,
        ),
        // Actions.
        rule(
            "action-never-required",
            Error,
            "The owner of an action resolves it after it was required, under the same id.",
            "send action.required first, and resolve it with the same actionId",
            actions::never_required,
        ),
        rule(
            "action-pending-at-end",
            Warning,
            "No action is pending when its run ends: a run that waits has not ended.",
            "send action.resolved (also for cancelled or expired), or run.status with phase waiting instead of the end",
            actions::pending_at_end,
        ),
        rule(
            "action-resolved-twice",
            Warning,
            "An action is resolved once.",
            "resolve an action once; send action.required to ask again",
            actions::resolved_twice,
        ),
        rule(
            "action-kind",
            Warning,
            "An action has one of the seed's types.",
            "send kind: tool_approval, plan_decision, structured_input, clarification …",
            actions::kinds,
        ),
        rule(
            "action-fields",
            Warning,
            "A card shows the fields of its type: tool name, scope, risk and safe input; a stable schema; the question.",
            "send the missing fields with action.required",
            actions::shapes,
        ),
        rule(
            "delegated-approval",
            Error,
            "Delegated approvals identify the teammate or subagent that requested the action.",
            "send agentId with action.required",
            actions::delegated,
        ),
        rule(
            "delegated-details",
            Info,
            "Delegated approvals have a policy scope, a safe input and a route back to the parent.",
            "send policyScope, safeInput and parentRouting with action.required",
            actions::delegated_details,
        ),
        rule(
            "action-outcome",
            Warning,
            "A resolution has an outcome; clients do not infer it from prose.",
            "send outcome: approved, rejected, answered, cancelled or expired",
            actions::outcomes,
        ),
        // Teams.
        rule(
            "agent-lineage",
            Warning,
            "parentSessionId is required for child sessions: lineage survives hydration, replay and export.",
            "send parentSessionId with agent.spawned, or as a query parameter with the child's facts",
            team::lineage,
        ),
        rule(
            "entity-ids",
            Warning,
            "A runtime entity has the ids that a client needs to place it.",
            "send the ids that the seed requires for this runtimeEntity",
            team::entity_ids,
        ),
        rule(
            "entity-details",
            Info,
            "A runtime entity has the fields that the seed requires.",
            "send the fields if the runtime knows them",
            team::entity_details,
        ),
        rule(
            "handoff-fields",
            Error,
            "A handoff names the sender, the receiver and the reason.",
            "send from, to and reason with agent.handoff",
            team::handoffs,
        ),
        rule(
            "handoff-details",
            Info,
            "A handoff names the place where work resumes and the memory that it transfers.",
            "send resumeTarget, and memoryBoundary or contextBoundary",
            team::handoff_details,
        ),
        rule(
            "review-fields",
            Error,
            "A review names its target, and a completed review its verdict.",
            "send target with review.requested, and verdict with review.completed",
            team::reviews,
        ),
        rule(
            "review-details",
            Info,
            "A verdict names its reviewer and links to evidence facts.",
            "send reviewer and evidenceRefs with review.completed",
            team::review_details,
        ),
        rule(
            "worker-notification-fields",
            Error,
            "A worker notification has taskId, agentId, status and summary.",
            "send the missing fields with worker.notification",
            team::notifications,
        ),
        rule(
            "worker-notification-details",
            Info,
            "A worker notification refers to its result.",
            "send resultRef with worker.notification",
            team::notification_details,
        ),
        rule(
            "team-topology",
            Info,
            "Team topology is visible when the runtime exposes a team.",
            "send topology with team.changed",
            team::topology,
        ),
        rule("task-status", Info, "Tasks and teammates have a status of the seed.", "send a status of the seed", team::statuses),
        rule(
            "dangling-ref",
            Info,
            "Evidence, replay, review and citations link to evidence facts.",
            "send evidence.changed or artifact.* for the id; ignore this if another log has it",
            team::dangling,
        ),
        // Content that does not belong in a log, or not in a log for every audience.
        rule(
            "secret",
            Error,
            "Raw secrets must be redacted before they enter projection state.",
            "rotate the secret, erase the run, and send the facts through a server, which redacts secrets",
            safety::secrets,
        ),
        rule(
            "large-inline",
            Error,
            "Large output must be offloaded to a detail reference.",
            "send outputRef, or send the facts through a server, which offloads large bodies",
            safety::large_bodies,
        ),
        rule(
            "artifact-body",
            Warning,
            "Artifact bodies live in the artifact workspace.",
            "send a preview and a reference, and the body in artifact.version.created",
            safety::artifact_bodies,
        ),
        rule(
            "diagnostics-audience",
            Error,
            "Diagnostics and metrics stay outside normal conversation.",
            "omit the audience, or send dashboard",
            safety::diagnostics_audience,
        ),
        rule(
            "runtime-internals",
            Error,
            "Only the internal audience sees a runtime's internals.",
            "send state that contains internals with the audience internal",
            safety::internals,
        ),
        rule(
            "screen-state",
            Error,
            "Collapse state, selected tabs and drafts are not runtime facts.",
            "keep this state in the client",
            safety::screen_state,
        ),
        rule(
            "compaction-never-ended",
            Warning,
            "Compaction is a boundary with a beginning and an end.",
            "send context.compaction.completed",
            safety::compaction_never_ended,
        ),
        rule(
            "malformed-event",
            Error,
            "A known event has its required members.",
            "send the expected member; the diagnostic keeps the original event",
            safety::malformed,
        ),
        rule("interleaved-run", Error, "One ingest stream holds one run.", "send each run to its own URL", safety::interleaved),
        rule(
            "patch-not-applied",
            Warning,
            "A patch applies to the current content of its activity.",
            "send a snapshot first, and patch only members that it has (RFC 6902)",
            safety::patches,
        ),
    ]
};

#[cfg(test)]
mod tests;
