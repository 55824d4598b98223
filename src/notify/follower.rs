//! The follower: what happened in the commits after a position.
//!
//! Each consumer has its own, with a position that it keeps: the engine of messages, and the exporter of traces.

use super::event::{EventKind, LogTracker, SeenEvent, StatusEvent};
use crate::audit;
use crate::feed::Feed;
use crate::log::commit::Logs;
use crate::log::row::Row;
use crate::log::server_state::StateRecord;
use crate::log::status_changes::NextChange;
use crate::log::{Limit, LogId, Store, StoreError};
use crate::model::{Audience, Control, Epoch, Sequence};
use crate::projection::envelope_view::EnvelopeView;
use bytes::Bytes;
use quick_cache::unsync::Cache;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Commits that one step reads.
const COMMITS_PER_STEP: usize = 256;
/// Logs whose state is in memory. The state of another one is read from its log again.
const TRACKED_MAX: usize = 4096;
/// What one read of a log fetches.
const READ_LIMIT: Limit = Limit { rows: 1024, bytes: 1024 * 1024 };

/// How far the follower has read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct FollowerPosition {
    pub position: u64,
}

impl StateRecord for FollowerPosition {
    const TABLE: &'static str = "follower";
}

/// The id of its only entry.
pub(super) const POSITION_ID: &str = "position";

/// What a step found.
#[derive(Default)]
pub(crate) struct Found {
    /// Each with the position of its commit.
    pub events: Vec<(u64, SeenEvent)>,
    pub audited: Vec<audit::AuditEntry>,
    /// Whether there may be more.
    pub has_more: bool,
}

/// Reads the commits that changed how a run stands.
pub(crate) struct Follower {
    logs: Arc<Logs>,
    feed: Arc<Feed>,
    pub position: u64,
    tracked: Cache<LogId, (Epoch, LogTracker)>,
}

impl Follower {
    pub fn new(logs: Arc<Logs>, feed: Arc<Feed>, position: u64) -> Self {
        Self { logs, feed, position, tracked: Cache::new(TRACKED_MAX) }
    }

    /// Reads on.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn step(&mut self) -> Result<Found, StoreError> {
        let mut found = Found::default();
        for _ in 0..COMMITS_PER_STEP {
            let visible = self.logs.position();
            let (after, until) = match self.logs.status_changes().after(self.position) {
                NextChange::Nothing => {
                    self.position = self.position.max(visible);
                    return Ok(found);
                }
                NextChange::At(position) if position > visible => return Ok(found),
                NextChange::At(position) => (position - 1, position),
                NextChange::Unknown(until) => (self.position, until.min(visible)),
            };
            let commits = self.logs.query(move |store| store.committed(after, until, COMMITS_PER_STEP)).await?;
            let is_full = commits.len() == COMMITS_PER_STEP;
            let last = commits.last().map_or(until, |(position, _)| *position);
            for (position, rows) in commits {
                match self.read(position, rows, &mut found).await {
                    Err(error) if error.affects_one_log() => {
                        tracing::warn!(%error, position, "a commit cannot be read, so nothing outside learns of it");
                    }
                    read => read?,
                }
            }
            self.position = if is_full { last } else { until };
            if found.events.len() >= COMMITS_PER_STEP {
                break;
            }
        }
        found.has_more = true;
        Ok(found)
    }

    async fn read(&mut self, position: u64, rows: Bytes, found: &mut Found) -> Result<(), StoreError> {
        let Ok(rows) = Row::decode_all(rows) else { return Ok(()) };
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        let (first, last) = (first.sequence(), last.sequence());
        let Some(log) = rows[0].log() else { return Ok(()) };
        let Some(epoch) = self.logs.log(&log).await?.tail().epoch else { return Ok(()) };
        let of = log.clone();
        // The rows of an erased log may still be there, and another log may have its name.
        let is_current = self.logs.query(move |store| Ok(store.position_of(&of, epoch, last)? == Some(position))).await?;
        if !is_current {
            return Ok(());
        }
        let known = self.tracked.remove(&log).map(|(_, known)| known).filter(|(of, _)| *of == epoch);
        let mut tracker = match known {
            Some((_, tracker)) => tracker,
            None => self.tracker_before(&log, epoch, first).await?,
        };
        if first == Sequence::NONE.next()
            && let Some(created) = self.session_created(&log, epoch, &rows[0]).await?
        {
            found.events.push((position, created));
        }
        for row in &rows {
            found.events.extend(tracker.apply(&log, epoch, row).into_iter().map(|event| (position, event)));
            found.audited.extend(row.view(Audience::Internal).and_then(decision));
        }
        self.tracked.insert(log, (epoch, tracker));
        Ok(())
    }

    /// How a log stands before one of its rows.
    async fn tracker_before(&self, log: &LogId, epoch: Epoch, before: Sequence) -> Result<LogTracker, StoreError> {
        let (mut tracker, mut after) = (LogTracker::default(), Sequence::NONE);
        while after.next() < before {
            let rows = self.feed.rows(log, epoch, after, READ_LIMIT).await?;
            let Some(last) = rows.last().map(Row::sequence) else { break };
            for row in rows.iter().filter(|row| row.sequence() < before) {
                tracker.apply(log, epoch, row);
            }
            after = last;
        }
        Ok(tracker)
    }

    /// The event that a session exists, if this is the first row of its first log.
    async fn session_created(&self, log: &LogId, epoch: Epoch, row: &Row) -> Result<Option<SeenEvent>, StoreError> {
        let Some(envelope) = row.view(Audience::Internal).and_then(|text| EnvelopeView::parse(row.sequence(), text)) else {
            return Ok(None);
        };
        let Some(session) = envelope.ids.session.clone() else { return Ok(None) };
        let of = log.clone();
        let number = self.logs.query(move |store: &dyn Store| Ok(store.head(&of)?.map(|head| head.number))).await?;
        if self.logs.sessions().created_order(&session) != number {
            return Ok(None);
        }
        let event = StatusEvent {
            kind: EventKind::SessionCreated,
            log: log.clone(),
            epoch,
            sequence: row.sequence(),
            at: envelope.received_at.ms_since(crate::model::ReceivedAt::default()),
            session: Some(session),
            agent: envelope.ids.agent.clone(),
            action: None,
            control: None,
            status: None,
            step: None,
            to: Vec::new(),
        };
        Ok(Some((event, Audience::ALL.map(|audience| row.view(audience).is_some()))))
    }
}

/// The entry of the audit about a decision that an envelope submits.
fn decision(text: &[u8]) -> Option<audit::AuditEntry> {
    memchr::memmem::find(text, b"\"control.changed\"")?;
    let envelope: Value = serde_json::from_slice(text).ok()?;
    let payload = &envelope["payload"];
    let control: Control = serde_json::from_value(envelope["control"].clone()).ok()?;
    if envelope["type"] != "control.changed" || payload["status"] != "submitted" || !control.decides() {
        return None;
    }
    let text = |value: &Value| value.as_str().map(Into::into);
    let (run_id, session_id) = (text(&envelope["runId"]), text(&envelope["sessionId"]));
    let (action_id, control_id) = (text(&envelope["actionId"]), text(&payload["controlId"]));
    Some(audit::AuditEntry {
        what: audit::Deed::Decision,
        by: payload["decidedBy"].clone(),
        run_id,
        session_id,
        action_id,
        control_id,
        control: text(&envelope["control"]),
        id: None,
        reason: None,
    })
}
