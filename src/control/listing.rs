//! The controls of a log, as readers see them.

use super::{Requester, format_timestamp};
use crate::log::commit::Logs;
use crate::log::control::{ControlRecord, ControlState, NOT_STARTED};
use crate::log::queues::Queues;
use crate::log::{LogId, StoreError};
use crate::model::decided_by::DECIDED_BY;
use crate::model::{Audience, Control};
use serde_json::{Map, Value};

/// Characters of a waiting message in a list.
const TEXT_CHARS_MAX: usize = 4096;

/// The control as a list item. It names other persons only to dashboards and operators.
#[must_use]
pub fn list_entry(record: &ControlRecord, queues: &Queues, reader: &Requester) -> Value {
    let status = match record.state {
        ControlState::Open if queues.is_leased(record.queue_position) => "claimed",
        ControlState::Open => "queued",
        ControlState::Acked => "acked",
        ControlState::Nacked => "nacked",
        ControlState::Expired => "expired",
    };
    let mut entry = Map::new();
    entry.insert("controlId".into(), record.id.as_str().into());
    entry.insert("control".into(), record.control.as_str().into());
    entry.insert("status".into(), status.into());
    entry.extend(record.targets.iter().map(|(member, id)| (member.clone(), id.as_str().into())));
    if let Some(approval) = &record.approval {
        entry.insert("have".into(), approval.have.into());
        entry.insert("need".into(), approval.need.into());
    }
    entry.insert("attempt".into(), record.attempt.into());
    entry.extend(waiting_text(record).map(|text| ("text".to_owned(), text.into())));
    entry.extend(record.reason.as_deref().map(|reason| ("reason".to_owned(), reason.into())));
    entry.insert("createdAt".into(), format_timestamp(record.created_at).into());
    // The time to live of a message that is held back has not started.
    let expires_at = (record.expires_at != NOT_STARTED).then(|| format_timestamp(record.expires_at).into());
    entry.extend(expires_at.map(|time| ("expiresAt".to_owned(), time)));
    let decided_by = record.decided_by.as_ref().map(|decided_by| match reader.audience {
        // Without tokens, all requests come from one person.
        Audience::User if decided_by.decider.sub.is_some() => decided_by.for_person(decided_by.decider.sub == reader.decider.sub),
        _ => decided_by.to_value(),
    });
    entry.extend(decided_by.map(|decided_by| (DECIDED_BY.to_owned(), decided_by)));
    Value::Object(entry)
}

/// The beginning of a message that waits for its agent, so that a page shows it after a reload.
fn waiting_text(record: &ControlRecord) -> Option<String> {
    let is_message = matches!(record.control, Control::Send | Control::Queue | Control::Steer);
    let value = record.value.as_ref().filter(|_| is_message && record.state == ControlState::Open)?;
    let text = value.as_str().or_else(|| value.get("text")?.as_str())?;
    Some(text.chars().take(TEXT_CHARS_MAX).collect())
}

/// The controls of a log that this reader may see, and the cursor of the next page.
///
/// The page begins after the queue position `after`.
///
/// `None` for a log that was never written.
///
/// # Errors
/// The store's failure.
pub async fn list(
    logs: &Logs,
    log: &LogId,
    reader: &Requester,
    after: u64,
    limit: usize,
) -> Result<Option<(Vec<Value>, Option<u64>)>, StoreError> {
    let Some(loaded) = logs.load(log).await? else { return Ok(None) };
    let prefix = crate::log::control::CONTROL_KEY_PREFIX.as_bytes();
    let saved = loaded.state.iter().filter(|(key, _)| key.starts_with(prefix));
    let mut records = saved.map(|(key, saved)| ControlRecord::read(log, key, saved)).collect::<Result<Vec<_>, _>>()?;
    records.retain(|of| of.queue_position > after && reader.audience.admits(of.audience));
    records.sort_unstable_by_key(|record| record.queue_position);
    let more = records.len() > limit;
    records.truncate(limit);
    let next = records.last().filter(|_| more).map(|last| last.queue_position);
    Ok(Some((records.iter().map(|record| list_entry(record, logs.queues(), reader)).collect(), next)))
}
