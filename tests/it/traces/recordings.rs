//! The spans of recordings of every source, without a server: their tree, and what holds for all of them.
//!
//! `tests/traces.txt` has the tree of some recordings as sentences. After a change that is meant to change it:
//! `UPDATE_FACES=1 cargo test --test it traces`.

use crate::harness::{facts_in, part_of, recordings, repository};
use crate::projection::{Pipeline, block_on};
use proscenium::encode::gen_ai::{Attribute, RunNotes, Span, Trace, TracedRun, trace};
use proscenium::log::LogId;
use proscenium::log::row::Row;
use proscenium::model::{Audience, Epoch};
use proscenium::projection::View;
use proscenium::projection::envelope_view::EnvelopeView;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

const TABLE: &str = "tests/traces.txt";
/// The recordings whose tree is in the table: each source, with calls, waits and teammates.
const SHOWN: [(&str, &str); 9] = [
    ("acp", "acp/scripted-permission_allow_once"),
    ("ag-ui", "ag-ui/scripted-sdk1.0-tools_interleaved"),
    ("ai-sdk", "ai-sdk/approval_approved"),
    ("awaken", "awaken/hitl_approve"),
    ("claude-stream-json", "claude-stream-json/subagent_foreground"),
    ("ethos", "ethos/short_text_thinking"),
    ("langgraph", "langgraph/interrupt_approve"),
    ("openai-responses", "openai-responses/agents-chatcmpl-handoff"),
    ("a2a", "a2a/v1-input_required_then_answer"),
];

/// The attributes that spans have without contents.
const STRUCTURE: [&str; 27] = [
    "error.type",
    "gen_ai.agent.id",
    "gen_ai.agent.name",
    "gen_ai.conversation.id",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.tool.call.id",
    "gen_ai.tool.name",
    "gen_ai.usage.cost",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "proscenium.action.id",
    "proscenium.decision.by",
    "proscenium.decision.effect",
    "proscenium.decision.on_behalf_of",
    "proscenium.decision.option",
    "proscenium.decision.outcome",
    "proscenium.decision.via",
    "proscenium.decision.width",
    "proscenium.run.attempt",
    "proscenium.run.id",
    "proscenium.run.parent_id",
    "proscenium.run.settled",
    "proscenium.status",
    "proscenium.wait.kind",
];

/// The trace of a recording, without contents or with those of an audience.
fn trace_of(source: &str, facts: &[Value], content: Option<Audience>) -> Trace {
    let (log, rows) = block_on(async { Pipeline::with_clock(|| jiff::Timestamp::UNIX_EPOCH).rows(&[(source, facts)]).await });
    let LogId::Run(run) = &log else { panic!("not a run") };
    let view = |audience| {
        let mut view = View::new(&log, audience);
        for row in &rows {
            view.fold(row.sequence(), row.view(audience));
        }
        view
    };
    let (all, shown) = (view(Audience::Internal), content.map(view));
    let notes = notes(&rows);
    let epoch = Epoch::from_random(1);
    trace(&TracedRun { run, epoch, notes: &notes, view: &all, content: shown.as_ref() }).expect("every recording has a run")
}

fn notes(rows: &[Row]) -> RunNotes {
    let mut notes = RunNotes::default();
    for row in rows {
        let text = row.view(Audience::Internal).filter(|text| RunNotes::is_of_interest(text));
        if let Some(envelope) = text.and_then(|text| EnvelopeView::parse(row.sequence(), text)) {
            notes.note(&envelope);
        }
    }
    notes
}

fn text<'a>(attributes: &'a [(&'static str, Attribute)], name: &str) -> &'a str {
    let found = attributes.iter().find(|(known, _)| *known == name);
    found.map_or("-", |(_, value)| if let Attribute::Text(text) = value { text } else { "-" })
}

/// A trace as sentences, one for each span, below the one above it.
fn sentences(trace: &Trace) -> String {
    let depths: HashMap<[u8; 8], Option<[u8; 8]>> = trace.spans.iter().map(|span| (span.id, span.parent)).collect();
    let mut lines = String::new();
    for span in &trace.spans {
        let above = std::iter::successors(span.parent, |above| depths.get(above).copied().flatten());
        let depth = above.count();
        write!(lines, "{}{}", "  ".repeat(depth + 1), span.name).unwrap();
        let figures = span.attributes.iter().filter_map(|(name, value)| match (name.strip_prefix("gen_ai.usage."), value) {
            (Some(name), Attribute::Count(count)) => Some(format!("{name} {count}")),
            (Some(name), Attribute::Amount(amount)) => Some(format!("{name} {amount}")),
            _ => None,
        });
        let said = [("gen_ai.request.model", "model"), ("gen_ai.response.model", "answered by"), ("proscenium.status", "is")];
        let said = said
            .iter()
            .map(|(name, word)| format!("{word} {}", text(&span.attributes, name)))
            .filter(|said| !said.ends_with(" -"));
        let failed = span.failure.is_some().then(|| format!("failed with {}", text(&span.attributes, "error.type")));
        let events = span.events.iter().map(|event| {
            let of = |member: &str| text(&event.attributes, &format!("proscenium.decision.{member}")).to_owned();
            format!("{} {} via {}, option {}", event.name, of("outcome"), of("via"), of("option"))
        });
        for part in said.chain(figures).chain(failed).chain(events) {
            write!(lines, "; {part}").unwrap();
        }
        lines.push('\n');
    }
    lines
}

#[test]
fn the_tree_of_a_run_is_as_recorded_for_each_source() {
    let mut found = String::from("# The spans of recordings; see tests/it/traces/recordings.rs.\n");
    for (source, name) in SHOWN {
        write!(found, "{name}\n{}", sentences(&trace_of(source, &facts_in(name), None))).unwrap();
    }
    if std::env::var("UPDATE_FACES").is_ok_and(|update| update == "1") {
        std::fs::write(repository(TABLE), found).expect("the table can be written");
        return;
    }
    let expected = std::fs::read_to_string(repository(TABLE)).expect("the table is readable");
    assert_eq!(found.lines().collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
}

#[test]
fn every_recording_is_a_tree_whose_structure_has_no_contents() {
    for (source, name, facts) in part_of(recordings(), 4) {
        let trace = trace_of(source, &facts, None);
        let ids: HashSet<_> = trace.spans.iter().map(|span| span.id).collect();
        assert_eq!(ids.len(), trace.spans.len(), "{name}: two spans have one id");
        assert!(trace.spans[0].parent.is_none() && trace.spans[0].name.starts_with("invoke_agent"), "{name}");
        for span in &trace.spans[1..] {
            // A call of an earlier attempt may be above.
            assert!(span.parent.is_some(), "{name}: {span:?}");
            assert!(span.end.is_none_or(|end| end >= span.start), "{name}: {span:?}");
        }
        let attributes =
            |span: &Span| [span.attributes.clone(), span.events.iter().flat_map(|event| event.attributes.clone()).collect()];
        for (attribute, _) in trace.spans.iter().flat_map(attributes).flatten() {
            assert!(STRUCTURE.contains(&attribute), "{name}: {attribute}");
        }
        assert!(trace.spans.iter().all(|span| span.failure.as_ref().is_none_or(|failure| failure.message.is_none())), "{name}");
        // The same spans, with contents or without.
        let with = trace_of(source, &facts, Some(Audience::User));
        let ids = |trace: &Trace| trace.spans.iter().map(|span| span.id).collect::<Vec<_>>();
        assert_eq!((with.id, ids(&with)), (trace.id, ids(&trace)), "{name}");
    }
}
