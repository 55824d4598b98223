//! `metrics`: costs and durations per call. One activity per log, with the newest entries.

use super::seen::Seen;
use super::{Scene, carry};
use crate::model::{AgentId, EventType, Surface};
use serde_json::{Map, Value, json};

/// The most entries that the activity keeps; the log has all of them.
const ENTRIES_MAX: usize = 50;

const MEMBERS: &[&str] = &["name", "kind", "value", "unit", "model", "durationMs", "costUsd", "usage", "message"];

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    let is_metric = match &seen.class {
        EventType::MetricChanged => true,
        EventType::Other(class) => class.starts_with("metric."),
        _ => false,
    };
    if !is_metric {
        return;
    }
    let mut entry = Map::from_iter([("sequence".to_owned(), json!(seen.sequence))]);
    if seen.class != EventType::MetricChanged {
        entry.insert("type".into(), json!(seen.class));
    }
    entry.extend(seen.ids.agent.as_ref().map(|agent: &AgentId| ("agentId".to_owned(), json!(agent))));
    for member in MEMBERS {
        entry.extend(seen.get(member).map(|value| ((*member).to_owned(), carry::brief(value))));
    }
    let mut edit = scene.stage.open("metrics", "metrics", Surface::Diagnostics, None);
    edit.push_bounded("entries", Value::Object(entry), ENTRIES_MAX);
}
