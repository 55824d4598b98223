//! `metrics`: costs and durations per call. One activity per log, with the newest entries.

use super::envelope_view::EnvelopeView;
use super::members::{List, content};
use super::{FoldState, carry, entries_schema};
use proscenium_model::fact::{FactFamily, MetricFact};
use proscenium_model::{AgentId, EventType, Surface};
use serde_json::{Map, Value, json};

content! {
    METRICS = "metrics", "Costs and durations of calls: the newest 50 entries.";
    "entries": List, Always as ENTRIES with entries_schema(&["sequence"]),
        "The entries, oldest first. The log contains all of them.";
}

/// The most entries that the activity keeps; the log has all of them.
const ENTRIES_MAX: usize = 50;

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    let is_metric = match &envelope.event_type {
        EventType::MetricChanged => true,
        EventType::Other(class) => class.starts_with("metric."),
        _ => false,
    };
    if !is_metric {
        return;
    }
    let mut entry = Map::from_iter([("sequence".to_owned(), json!(envelope.sequence))]);
    if envelope.event_type != EventType::MetricChanged {
        entry.insert("type".into(), json!(envelope.event_type));
    }
    entry.extend(envelope.ids.agent.as_ref().map(|agent: &AgentId| ("agentId".to_owned(), json!(agent))));
    for (member, _) in MetricFact::COPIED {
        entry.extend(envelope.get(member).map(|value| ((*member).to_owned(), carry::brief(value))));
    }
    let mut edit = fold.activities.open("metrics", "metrics", Surface::Diagnostics, None);
    edit.push_bounded(ENTRIES, Value::Object(entry), ENTRIES_MAX);
}
