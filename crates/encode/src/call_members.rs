//! What each member of a call's content is for in the dialects of existing clients.
//!
//! The table has a row for every declared member, in the order of its declaration: a new member does not compile
//! without one.

use proscenium_projection::tool_call::CALL;
use serde_json::{Map, Value};

/// What a member is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallUse {
    /// Names the call, or says how it is: small.
    Identity,
    /// What the tool reports of its work: small.
    Report,
    /// The sequence of the first report.
    FirstReport,
    /// Decides whether the call has a result.
    State,
    /// A small member beside the result.
    ResultDetail,
    /// The whole result.
    Output,
    /// The result as it streams.
    StreamedOutput,
    /// Why the call has no result.
    Error,
    Arguments,
    /// The party that supplies the result.
    Awaits,
    /// Shown with the call, and nowhere else.
    Detail,
    /// Not for clients.
    Internal,
}

use CallUse as Use;

const USES: [(&str, CallUse); CALL.members.len()] = [
    ("schema", Use::Identity),
    ("node_id", Use::Identity),
    ("call_id", Use::Identity),
    ("tool_name", Use::Identity),
    ("status", Use::Identity),
    ("state", Use::State),
    ("progress", Use::Report),
    ("loaded", Use::Report),
    ("total", Use::Report),
    ("message", Use::Report),
    ("kind", Use::Internal),
    ("title", Use::Internal),
    ("blocks", Use::Internal),
    ("raw_output", Use::Internal),
    ("reported", Use::FirstReport),
    ("parent_node_id", Use::Identity),
    ("parent_call_id", Use::Identity),
    ("source_call_id", Use::Internal),
    ("locations", Use::Report),
    ("input", Use::Arguments),
    ("input_text", Use::Arguments),
    ("output", Use::Output),
    ("output_text", Use::StreamedOutput),
    ("output_channels", Use::StreamedOutput),
    ("unannounced", Use::Internal),
    ("output_ref", Use::ResultDetail),
    ("app", Use::ResultDetail),
    ("structured", Use::Output),
    ("error", Use::Error),
    ("never_started", Use::Detail),
    ("duration_ms", Use::Detail),
    ("cost_usd", Use::Detail),
    ("truncated", Use::ResultDetail),
    ("untrusted", Use::ResultDetail),
    ("withheld", Use::State),
    ("clipped", Use::Detail),
    ("bodies", Use::Detail),
    ("action_id", Use::Detail),
    ("synthetic", Use::Detail),
    ("awaits", Use::Awaits),
];

/// Whether the member of this name has such a use. A member that only a source knows has none.
fn has_use(member: &str, is_such: impl Fn(Use) -> bool) -> bool {
    USES.iter().any(|(name, of)| *name == member && is_such(*of))
}

/// Whether a translator keeps its value: it is small, and decides how to translate the next change.
pub(super) fn is_kept(member: &str) -> bool {
    let is_small =
        |of| matches!(of, Use::Identity | Use::Report | Use::FirstReport | Use::State | Use::ResultDetail | Use::Awaits);
    has_use(member, is_small)
}

/// Whether the progress of a call, which some clients get as an activity of its own, has it.
pub(super) fn is_of_progress(member: &str) -> bool {
    has_use(member, |of| matches!(of, Use::Identity | Use::Report))
}

/// The members of a call's progress, in the order of their declaration.
pub(super) fn progress_members() -> impl Iterator<Item = &'static str> {
    USES.iter().map(|(name, _)| *name).filter(|name| is_of_progress(name))
}

/// The progress of a call.
pub(super) fn progress(content: &Map<String, Value>) -> Map<String, Value> {
    progress_members().filter_map(|member| Some((member.to_owned(), content.get(member)?.clone()))).collect()
}

/// Whether it makes up the result of an ended call.
pub(super) fn makes_result(member: &str) -> bool {
    has_use(member, |of| matches!(of, Use::State | Use::ResultDetail | Use::Output | Use::StreamedOutput | Use::Error))
}

/// Whether it streams a result.
pub(super) fn streams_result(member: &str) -> bool {
    has_use(member, |of| of == Use::StreamedOutput)
}

/// Whether a client gets it beside the call's part, and not within that.
pub(super) fn is_shown_beside(member: &str) -> bool {
    let is_within = |of| matches!(of, Use::Arguments | Use::Output | Use::StreamedOutput | Use::FirstReport | Use::Internal);
    !has_use(member, is_within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_declared_members_in_their_order() {
        assert!(USES.iter().map(|(name, _)| *name).eq(CALL.members.iter().map(|member| member.name)));
    }
}
