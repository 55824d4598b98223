//! The linter: what seed 003 demands of a producer, checked over a log.
//!
//! A rule is a small pure function over the envelopes in their order, and over what they come to on a screen: no clock, no I/O,
//! nothing inferred from prose. It says where a log breaks a sentence of the seed, with the value, and what would mend it.
//! The same log gives the same findings. What the seed demands of clients alone shows in no log; [`DEMANDS`] names every
//! sentence of it, with the rules that hold it or the reason why none can.
//!
//! | file | holds |
//! | --- | --- |
//! | `log`, `things` | a log as it is read: envelopes; calls, parts and actions from their first envelope to their end |
//! | `source` | a runtime's own facts, taken through the write path first |
//! | `order` | sequences, and the boundaries of the run |
//! | `shape` | members, dimensions and ids |
//! | `tools`, `text`, `actions`, `team` | the rules of each |
//! | `safety` | secrets, bodies, audiences, and what the server noted |
//! | `seed` | the seed's demands, and who holds each |

mod actions;
mod log;
mod order;
mod safety;
mod seed;
mod shape;
pub mod source;
mod team;
mod text;
mod things;
mod tools;

pub use log::{BadLine, Log};
pub use seed::{DEMANDS, Demand};

use crate::guard::redact_text;
use crate::model::Audience;
use log::Entry;
use serde::Serialize;

/// The findings of one rule that are told one by one; the rest are counted. A log that breaks a rule at every envelope is told
/// by its beginning.
pub const FINDINGS_MAX: usize = 100;

/// What is told of one finding, in characters. Names in a log may be of any length.
pub const MESSAGE_CHARS_MAX: usize = 500;

/// How a log is to be read.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// For whom it was written. Only whoever sees everything sees every sequence.
    pub audience: Audience,
    /// Whether it was compacted: then what is missing is meant to be.
    pub is_compacted: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self { audience: Audience::Internal, is_compacted: false }
    }
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Clients show something wrong, or something that must not be shown.
    Error,
    /// Clients cope; something is missing or odd.
    Warning,
    /// Worth knowing.
    Info,
}

impl Severity {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// One thing that a log is checked for.
pub struct Rule {
    /// In kebab-case; it never changes its meaning.
    pub id: &'static str,
    pub severity: Severity,
    /// What is demanded, in the seed's words where it has some.
    pub sentence: &'static str,
    /// What whoever wrote the log can do.
    pub remedy: &'static str,
    check: fn(&Log, &mut Out<'_>),
}

/// A place where a log breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub rule: &'static str,
    pub severity: Severity,
    /// The envelope that shows it.
    pub sequence: u64,
    /// The id of the thing that it is about, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thing: Option<String>,
    /// What, where, and the value.
    pub message: String,
    pub remedy: &'static str,
}

/// How many findings there are of each severity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub error: u64,
    pub warning: u64,
    pub info: u64,
}

/// What a log came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `null` for a session's own log.
    pub run: Option<String>,
    pub envelopes: usize,
    /// In the order of the log; at most [`FINDINGS_MAX`] of each rule.
    pub findings: Vec<Finding>,
    /// Of all findings, also those that are not told one by one.
    pub counts: Counts,
    /// How many are not.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Where a rule says what it found.
struct Out<'r> {
    rule: &'r Rule,
    findings: Vec<Finding>,
    count: u64,
}

impl Out<'_> {
    fn say(&mut self, at: &Entry, thing: Option<&str>, message: String) {
        self.say_at(at.sequence, thing, message);
    }

    fn say_at(&mut self, sequence: u64, thing: Option<&str>, message: String) {
        self.count += 1;
        if self.findings.len() < FINDINGS_MAX {
            let Rule { id, severity, remedy, .. } = *self.rule;
            let thing = thing.filter(|thing| !thing.is_empty()).map(tellable);
            self.findings.push(Finding { rule: id, severity, sequence, thing, message: tellable(&message), remedy });
        }
    }
}

/// A text with values out of a log, as it may be told: without what looks like a secret, bounded, and in one line.
fn tellable(text: &str) -> String {
    let text = redact_text(text);
    let mut told: String = text.chars().take(MESSAGE_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MESSAGE_CHARS_MAX).is_some() {
        told.push('…');
    }
    told
}

/// Checks a log against every rule.
#[must_use]
pub fn check(log: &Log) -> Report {
    let (mut findings, mut counts, mut omitted) = (Vec::new(), Counts::default(), 0);
    for rule in RULES {
        let mut out = Out { rule, findings: Vec::new(), count: 0 };
        (rule.check)(log, &mut out);
        match rule.severity {
            Severity::Error => counts.error += out.count,
            Severity::Warning => counts.warning += out.count,
            Severity::Info => counts.info += out.count,
        }
        omitted += out.count - out.findings.len() as u64;
        findings.append(&mut out.findings);
    }
    findings.sort_by_key(|finding| finding.sequence);
    Report { run: log.run().map(str::to_owned), envelopes: log.entries.len(), findings, counts, omitted }
}

/// Every rule, by what it is about.
pub static RULES: &[Rule] = &{
    use Severity::{Error, Info, Warning};
    const fn rule(
        id: &'static str,
        severity: Severity,
        sentence: &'static str,
        remedy: &'static str,
        check: fn(&Log, &mut Out<'_>),
    ) -> Rule {
        Rule { id, severity, sentence, remedy, check }
    }
    [
        // The order of the log and the boundaries of its run.
        rule(
            "sequence-increasing",
            Error,
            "Runtime event order is preserved: sequences grow.",
            "write envelopes in the order of their sequences; if files were joined, check each by itself",
            order::increasing,
        ),
        rule(
            "sequence-gapless",
            Error,
            "Runtime event order is preserved: no envelope is missing.",
            "export as internal; of a log for others say --audience, of a compacted one --compacted",
            order::gapless,
        ),
        rule(
            "one-log",
            Error,
            "Sequence is monotonic within one run, and each event is in its log once.",
            "check each run by itself, and number facts (Producer-Id, Producer-Seq) so that a repeated request adds nothing",
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
            "A run boundary that started ends before it starts again.",
            "send run.finished or run.failed before another run.started; send another run to a log of its own",
            order::start_inside_run,
        ),
        rule(
            "one-terminal",
            Error,
            "An attempt of a run ends once, with run.finished or run.failed.",
            "send one end; a later attempt begins with run.started",
            order::one_terminal,
        ),
        rule(
            "work-after-end",
            Warning,
            "Nothing of a run's work comes after its end; only a new start reopens it.",
            "send the end last, a pause as run.status with phase waiting, and another attempt after run.started",
            order::work_after_end,
        ),
        rule(
            "run-never-ended",
            Warning,
            "A run that waits for nobody ends.",
            "send run.finished or run.failed, also for a runtime that is gone",
            order::never_ended,
        ),
        // What every envelope has, and what each class needs.
        rule(
            "envelope-members",
            Error,
            "An envelope has the portable members by their names and kinds.",
            "write envelopes by schema/agentui-event.schema.json, or send the facts to a server and export them",
            shape::members,
        ),
        rule(
            "required-ids",
            Error,
            "A fact has the id of what it is about: messageId, toolCallId, actionId, artifactId, evidenceId, agentId, taskId …",
            "let the producer name the thing on every fact of it",
            shape::ids,
        ),
        rule(
            "part-id",
            Warning,
            "partId is required for ordered message parts.",
            "name the part on every chunk, so that text interleaves with tools as it came",
            shape::part_ids,
        ),
        rule(
            "unknown-dimension",
            Info,
            "Owner, scope, phase, surface, persistence, control and topology have the seed's values.",
            "use a value of the seed, or unknown",
            shape::dimensions,
        ),
        rule(
            "unknown-event-type",
            Warning,
            "Event classes are those of the seed; what nobody knows is kept for internal eyes.",
            "use a class of the seed, or a server whose adapter knows this release of the runtime",
            shape::classes,
        ),
        rule(
            "unknown-audience",
            Info,
            "An audience is user, dashboard or internal; whatever else counts as internal.",
            "say one of the three",
            shape::audiences,
        ),
        rule(
            "failure-without-message",
            Error,
            "A failure shows a recoverable error: what failed says why.",
            "send error: { message, code? }",
            shape::failures,
        ),
        rule(
            "snapshot-shape",
            Warning,
            "A snapshot of messages says of each message which it is, whose, and of what parts.",
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
            "send tool.started first, or neverStarted: true with the failure of a call that never ran",
            tools::end_without_start,
        ),
        rule(
            "tool-ended-twice",
            Error,
            "A tool call ends once.",
            "send one end a call; a retry begins with tool.started",
            tools::ended_twice,
        ),
        rule(
            "tool-without-name",
            Warning,
            "A tool call says which tool it is of.",
            "send toolName with tool.started",
            tools::without_name,
        ),
        rule(
            "result-without-output",
            Info,
            "tool.result: the tool completed successfully with output or output reference.",
            "send output (null, if the tool gives none) or outputRef",
            tools::without_output,
        ),
        rule(
            "progress-range",
            Warning,
            "Progress is a fraction from 0 to 1.",
            "divide percent by 100; tell counts by loaded and total",
            tools::progress_range,
        ),
        rule(
            "progress-backwards",
            Warning,
            "Progress of a running call does not go back.",
            "report what is done of the whole; a phase of its own is a message, or a call of its own",
            tools::progress_backwards,
        ),
        rule(
            "progress-after-end",
            Info,
            "After its end a call stays ended: late progress changes its message only.",
            "report before the call ends",
            tools::progress_after_end,
        ),
        // What is said.
        rule(
            "write-after-seal",
            Error,
            "After its final event a stream takes no more chunks.",
            "send chunks before the final; a new text is a new part, of a new message",
            text::write_after_seal,
        ),
        rule(
            "final-text",
            Error,
            "Final answer text is reconciled without duplication: it is what was streamed.",
            "send as the final the whole of what was streamed in that part or message, or no text at all",
            text::final_text,
        ),
        rule(
            "part-never-ended",
            Warning,
            "Text, reasoning and plans that are streamed are sealed.",
            "send text.final, reasoning.summary or plan.final; they need no text",
            text::part_never_ended,
        ),
        rule(
            "only-text-in-conversation",
            Error,
            "Final answer text is separate from reasoning, tools, actions, status and diagnostics.",
            "leave the surface to the class, or name the one that the seed gives it",
            text::only_text_in_conversation,
        ),
        rule(
            "text-surface",
            Warning,
            "What is said stands in the conversation, or in a teammate's transcript.",
            "send reasoning as reasoning.delta, plans as plan.delta, status as run.status",
            text::text_elsewhere,
        ),
        rule(
            "worker-as-user",
            Error,
            "Internal worker notifications are no user messages, whatever channel brought them.",
            "send worker.notification",
            text::worker_as_user,
        ),
        // What waits for somebody.
        rule(
            "action-never-required",
            Error,
            "An action is resolved by its owner after it was required, under the same id.",
            "send action.required first, and resolve it by its actionId",
            actions::never_required,
        ),
        rule(
            "action-pending-at-end",
            Warning,
            "No action is pending when its run ends: a run that waits has not ended.",
            "send action.resolved (cancelled or expired, too), or run.status with phase waiting in place of the end",
            actions::pending_at_end,
        ),
        rule(
            "action-resolved-twice",
            Warning,
            "An action is resolved once.",
            "resolve once; ask again with action.required",
            actions::resolved_twice,
        ),
        rule(
            "action-kind",
            Warning,
            "Actions are of the seed's types.",
            "send kind: tool_approval, plan_decision, structured_input, clarification …",
            actions::kinds,
        ),
        rule(
            "action-fields",
            Warning,
            "A card shows what its type requires: tool name, scope, risk and safe input; a stable schema; what is asked.",
            "send what the card must show with action.required",
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
            "Delegated approvals have a policy scope, a safe input and a way back to the parent.",
            "send policyScope, safeInput and parentRouting with action.required",
            actions::delegated_details,
        ),
        rule(
            "action-outcome",
            Warning,
            "A resolution says how it came out; nobody infers it from prose.",
            "send outcome: approved, rejected, answered, cancelled or expired",
            actions::outcomes,
        ),
        // Teams.
        rule(
            "agent-lineage",
            Warning,
            "parentSessionId is required for child sessions: lineage survives hydration, replay and export.",
            "send parentSessionId with agent.spawned, or in the query of the child's facts",
            team::lineage,
        ),
        rule(
            "entity-ids",
            Warning,
            "A runtime entity has the ids by which a client places it.",
            "send the ids that the seed requires of this runtimeEntity",
            team::entity_ids,
        ),
        rule(
            "entity-details",
            Info,
            "A runtime entity has the fields that the seed requires of it.",
            "send them when the runtime has them",
            team::entity_details,
        ),
        rule(
            "handoff-fields",
            Error,
            "A hand-off says from whom, to whom and why.",
            "send from, to and reason with agent.handoff",
            team::handoffs,
        ),
        rule(
            "handoff-details",
            Info,
            "A hand-off says where work resumes and which memory goes with it.",
            "send resumeTarget, and memoryBoundary or contextBoundary",
            team::handoff_details,
        ),
        rule(
            "review-fields",
            Error,
            "A review says its target, and its verdict when it completes.",
            "send target with review.requested, verdict with review.completed",
            team::reviews,
        ),
        rule(
            "review-details",
            Info,
            "Verdicts say who gave them and link to evidence facts.",
            "send reviewer and evidenceRefs with review.completed",
            team::review_details,
        ),
        rule(
            "worker-notification-fields",
            Error,
            "A worker's notification has taskId, agentId, status and summary.",
            "send them with worker.notification",
            team::notifications,
        ),
        rule(
            "worker-notification-details",
            Info,
            "A worker's notification refers to its result.",
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
        rule("task-status", Info, "Tasks and teammates have the seed's status values.", "use the seed's value", team::statuses),
        rule(
            "dangling-ref",
            Info,
            "Evidence, replay, review and citations link to evidence facts.",
            "send evidence.changed or artifact.* for what is referred to; it may be in another log",
            team::dangling,
        ),
        // What must not be in a log, or not for everybody.
        rule(
            "secret",
            Error,
            "Raw secrets must be redacted before they enter projection state.",
            "rotate the secret, erase the run, and send facts through a server, which redacts",
            safety::secrets,
        ),
        rule(
            "large-inline",
            Error,
            "Large output must be offloaded to a detail reference.",
            "send outputRef, or send facts through a server, which moves bodies out",
            safety::large_bodies,
        ),
        rule(
            "artifact-body",
            Warning,
            "Artifact bodies live in the artifact workspace.",
            "send a preview and a reference",
            safety::artifact_bodies,
        ),
        rule(
            "diagnostics-audience",
            Error,
            "Diagnostics and metrics stay outside normal conversation.",
            "leave their audience to the class, or say dashboard",
            safety::diagnostics_audience,
        ),
        rule(
            "runtime-internals",
            Error,
            "A runtime's internals are for internal eyes.",
            "send state that holds them with the audience internal",
            safety::internals,
        ),
        rule(
            "screen-state",
            Error,
            "Collapse state, selected tabs and drafts are no runtime truth.",
            "keep them in the client",
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
            "A known event has what it cannot do without.",
            "send the member; the diagnostic keeps the event",
            safety::malformed,
        ),
        rule("interleaved-run", Error, "One ingest stream is one run.", "send each run to its own address", safety::interleaved),
        rule(
            "patch-not-applied",
            Warning,
            "A patch applies to the activity that readers have.",
            "send a snapshot first, and patch what it has (RFC 6902)",
            safety::patches,
        ),
    ]
};

#[cfg(test)]
mod tests;
