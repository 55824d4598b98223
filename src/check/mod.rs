//! The linter: checks a log against the demands that seed 003 makes of a producer.
//!
//! A rule is a small pure function over the envelopes in order, and over their projection. It uses no clock and no I/O,
//! and infers nothing from prose. A finding names the sentence of the seed that the log breaks, the value, and the
//! remedy. The same log always gives the same findings. A log cannot show the demands on clients; [`DEMANDS`] lists
//! every demand with the rules that check it, or the reason why no rule can.
//!
//! | file | contents |
//! | --- | --- |
//! | `log`, `lifecycles` | the parsed log: envelopes; the lifecycles of calls, message parts and actions |
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
mod rules;
mod safety;
mod seed;
mod shape;
pub mod source;
mod team;
mod text;
mod tools;

pub use log::{CheckedLog, InvalidLine};
pub use rules::RULES;
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

#[cfg(test)]
mod tests;
