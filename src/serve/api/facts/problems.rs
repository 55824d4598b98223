//! Why facts are refused, as answers.

use super::{BODY_FACTS_MAX, BUSY_RETRY_AFTER_SECS};
use crate::ingest::{IngestError, OutOfScope};
use crate::serve::access::quota::quota_exceeded;
use crate::serve::http::problem::Problem;
use crate::source::FactError;
use http::StatusCode;

pub fn not_json(why: &dyn std::fmt::Display) -> Problem {
    let detail = format!("The body is not JSON: {why}. Nothing was accepted.");
    Problem::bad_request("not_json", detail).with("expected", "one JSON object, or an array of them")
}

pub fn too_many_facts() -> Problem {
    let remedy = "Send it in parts, or as application/x-ndjson, which has no limit.";
    let detail =
        format!("The body has more than {BODY_FACTS_MAX} facts, the limit for a JSON body. Nothing was accepted. {remedy}");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_facts", detail).with("limit", BODY_FACTS_MAX)
}

pub fn fact_too_large(bytes: usize, limit: usize) -> Problem {
    let detail = format!("A fact has {bytes} bytes. The limit is {limit}. Store large output elsewhere, and send a reference.");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "fact_too_large", detail).with("limit", limit)
}

/// How errors number the facts of a body.
pub enum FactNumbering<'l> {
    Index,
    /// The line of each fact.
    Line(&'l [u64]),
}

pub fn ingest_problem(error: IngestError, numbering: &FactNumbering<'_>) -> Problem {
    let detail = error.to_string();
    let fact_location = |index: u64| match numbering {
        FactNumbering::Index => ("index", index, "nothing was accepted"),
        FactNumbering::Line(lines) => {
            ("line", lines.get(usize::try_from(index).unwrap_or(0)).copied().unwrap_or(0), "earlier lines were accepted")
        }
    };
    let outside = |error: &OutOfScope, detail: String| {
        let missing = if let OutOfScope::Run(_) = error { "run" } else { "session" };
        Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", missing)
    };
    match error {
        IngestError::OutOfScope { index, error, .. } => {
            let (member, number, kept) = fact_location(index);
            outside(&error, format!("{member} {number}: {error}; {kept}")).with(member, number)
        }
        IngestError::RunOutOfScope(error) => outside(&error, detail),
        IngestError::OtherOwner(_) => Problem::new(StatusCode::CONFLICT, "other_owner", detail).with("member", "owner"),
        IngestError::Quota(exceeded) => quota_exceeded(&exceeded),
        IngestError::NotJson { index, error, .. } => match fact_location(index) {
            ("line", line, kept) => {
                let detail = format!("Line {line} is not JSON: {error}; {kept}.");
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_json", detail)
                    .with("line", line)
                    .with("expected", "one JSON object a line")
            }
            (_, index, _) => not_json(&format_args!("{error}, in fact {index}")),
        },
        IngestError::Fact { index, error, .. } => {
            let (member, number, kept) = fact_location(index);
            let code = match &error {
                FactError::NotAnObject { .. } => "not_an_object",
                FactError::NoType { .. } => "no_type",
                FactError::BadMember { .. } => "bad_member",
            };
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, format!("{member} {number}: {error}; {kept}"))
                .with(member, number)
                .with("expected", error.expected());
            match error.member() {
                Some(at_fault) => problem.with("member", at_fault),
                None => problem,
            }
        }
        IngestError::ProducerGap { expected, .. } => {
            Problem::new(StatusCode::CONFLICT, "producer_gap", detail).with("expected", expected)
        }
        IngestError::ProducerFenced { current, .. } => {
            Problem::new(StatusCode::FORBIDDEN, "producer_fenced", detail).with("expected", current)
        }
        IngestError::TooManyProducers => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_producers", detail)
            .with("limit", crate::ingest::PRODUCERS_MAX),
        IngestError::TooManyRuns { limit } => {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, "too_many_runs", detail).with("limit", limit)
        }
        IngestError::TooManySubjects { limit } => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_subjects", detail).with("limit", limit)
        }
        IngestError::Busy(_) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).with_retry_after(BUSY_RETRY_AFTER_SECS)
        }
        IngestError::RunExists => Problem::new(StatusCode::CONFLICT, "run_exists", detail).with("member", "runId"),
        IngestError::Erased => Problem::new(StatusCode::CONFLICT, "run_erased", detail),
        IngestError::EnvelopesTooLarge { bytes, limit } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "envelopes_too_large", detail).with("bytes", bytes).with("limit", limit)
        }
        IngestError::ParsedFactTooLarge { bytes, limit } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "fact_too_large", detail).with("bytes", bytes).with("limit", limit)
        }
        IngestError::Panicked => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", detail),
        IngestError::Store(error) => error.into(),
    }
}
