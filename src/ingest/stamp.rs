//! Drafts become rows: each is entered in the ledger, guarded, numbered, and written as each audience gets it.

use super::World;
use super::desk::Desk;
use crate::guard::{Guarded, Policy};
use crate::log::control::{ASKING_MAX, AskedAction, ControlRecord, ControlState};
use crate::log::row::{APPEND_BYTES_MAX, APPEND_ROWS_MAX, Row};
use crate::log::run::{Shown, count_of};
use crate::log::{Blob, LogId, StoreError};
use crate::model::audience::{self, Audience, Sight};
use crate::model::{BlobId, ControlId, Draft, Envelope, EventType, Ids, Phase, RunId, Sequence, SessionId};
use crate::source::ledger::{Ledger, Violation};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// The rows that a delivery leads to, cut into appends of bounded size, and the bodies that they refer to.
#[derive(Default)]
pub(super) struct EncodedRows {
    /// The last sequence and the rows of each append that is full.
    full: Vec<(Sequence, Bytes)>,
    rows: Vec<u8>,
    count: usize,
    last: Sequence,
    blobs: Vec<Blob>,
    bytes: usize,
}

impl EncodedRows {
    /// Rows and bodies, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, sequence: Sequence, prev: [Sequence; 3], views: [Option<&[u8]>; 3]) {
        let before = self.rows.len();
        Row::encode(&mut self.rows, sequence, prev, views);
        self.bytes += self.rows.len() - before;
        (self.count, self.last) = (self.count + 1, sequence);
        if self.count >= APPEND_ROWS_MAX || self.rows.len() >= APPEND_BYTES_MAX {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.count > 0 {
            self.full.push((self.last, std::mem::take(&mut self.rows).into()));
            self.count = 0;
        }
    }

    fn push_blob(&mut self, blob: Blob) {
        self.bytes += blob.body.len();
        self.blobs.push(blob);
    }

    /// The rows of each append with its last sequence, and all bodies.
    pub fn into_parts(mut self) -> (Vec<(Sequence, Bytes)>, Vec<Blob>) {
        self.cut();
        (self.full, self.blobs)
    }
}

/// When and under which rules drafts become rows.
#[derive(Clone, Copy)]
pub(super) struct Stamping<'p> {
    pub given: &'p Ids,
    pub policy: &'p Policy,
    pub world: World,
    pub now: jiff::Timestamp,
}

impl Desk {
    /// Ledger, guard and stamp: drafts become encoded rows. `ends` says where each fact's drafts end, and `first_index` which
    /// fact is the first.
    pub fn stamp(
        &mut self,
        drafts: Vec<Draft>,
        ends: &[usize],
        first_index: u64,
        Stamping { given, policy, world, now }: Stamping<'_>,
        rows: &mut EncodedRows,
        violations: &mut Vec<Violation>,
    ) {
        if drafts.is_empty() {
            return;
        }
        let received_at: Box<str> = format!("{now:.3}").into();
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        self.event_ids.millis = millis;
        let mut new_blob_id = || {
            let random = Uuid::from_u128((world.random)());
            BlobId::new(&random.simple().to_string()).expect("hexadecimal digits are an id")
        };
        rows.rows.reserve((drafts.len() * 640).min(APPEND_BYTES_MAX));
        let mut scratch = Scratch::default();
        let mut guarded = Vec::new();
        let mut fact = 0;
        for (n, mut draft) in drafts.into_iter().enumerate() {
            while ends.get(fact).is_some_and(|end| *end <= n) {
                fact += 1;
            }
            draft.ids.or(given);
            if draft.may_be_abort
                && !self.ledger.run.status.is_end()
                && let Some(control) = self.asked_to_stop()
            {
                cancelled(&mut draft, control);
            }
            violations.extend(self.ledger.enter(&mut draft, first_index + fact as u64));
            self.guard.pass(policy, &mut new_blob_id, draft, &mut guarded);
            for guarded in guarded.drain(..) {
                self.place(guarded, &received_at, &mut scratch, rows);
            }
        }
        let summary = &mut self.summary;
        summary.run.clone_from(&self.ledger.run);
        summary.asking.retain(|asked| summary.run.pending.contains(asked.action.as_str()));
        let [user, dashboard] = &self.seen_runs;
        for (shown, seen) in [(&mut summary.run_for_user, user), (&mut summary.run_for_dashboard, dashboard)] {
            *shown = (*seen != summary.run).then(|| Box::new(seen.clone()));
        }
        self.summary.last_activity = Some(received_at.clone());
        self.summary.started_at.get_or_insert_with(|| received_at.clone());
        match self.summary.run.status.is_end() {
            true => drop(self.summary.ended_at.get_or_insert(received_at)),
            false => self.summary.ended_at = None,
        }
    }

    /// Gives one guarded draft its place, and writes its row: each audience's view of it.
    fn place(&mut self, guarded: Guarded, received_at: &str, scratch: &mut Scratch, rows: &mut EncodedRows) {
        let (draft, bodies) = guarded.into_parts();
        let sequence = self.summary.last_sequence.next();
        let mut envelope = Envelope { sequence, event_id: self.event_ids.next(), received_at: received_at.into(), draft };
        name_by_sequence(&mut envelope);
        let sights = Audience::ALL.map(|reader| reader.sight(&envelope));
        let views = scratch.write(&envelope, sights, &self.ledger);
        rows.push(sequence, self.summary.seen_last, views);
        for (i, view) in views.iter().enumerate() {
            if view.is_some() {
                // What is only counted tells nothing of how the run stands.
                if let Some(run) = self.seen_runs.get_mut(i).filter(|_| sights[i] != Sight::Counted) {
                    let of = &envelope.draft;
                    run.follow(&of.class, &of.phase, of.ids.action.as_ref(), &of.payload);
                }
                self.summary.seen_last[i] = sequence;
                self.summary.seen_count[i] += 1;
            }
        }
        if !bodies.is_empty() {
            // Whoever sees the body of the envelope may read the bodies that it refers to; nobody else. A body of a snapshot of
            // messages cannot be filtered any more: it is for those from whom nothing is hidden.
            let is_snapshot = envelope.draft.class == EventType::MessagesSnapshot;
            let reads = |a: &Audience| sights[a.index()] == Sight::Body && !(is_snapshot && self.ledger.hides_from(*a));
            let readable = Audience::ALL.into_iter().find(reads).unwrap_or(Audience::Internal);
            for body in bodies {
                let (run, session) = match self.id.clone() {
                    LogId::Run(run) => (Some(run), None),
                    LogId::Session(session) => (None, Some(session)),
                };
                let meta = BlobMeta { audience: readable, media_type: body.media_type.into(), run, session };
                let meta = serde_json::to_vec(&meta).expect("plain data").into();
                rows.push_blob(Blob { id: body.id, meta, body: body.bytes });
            }
        }
        self.summary.last_sequence = sequence;
        if let Some(asked) = AskedAction::of(&envelope.draft) {
            let asking = &mut self.summary.asking;
            asking.retain(|known| known.action != asked.action);
            if asking.len() < ASKING_MAX {
                asking.push(asked);
            }
        }
        if envelope.draft.class == EventType::RunStarted && self.summary.agent.is_none() {
            self.summary.agent.clone_from(&envelope.draft.ids.agent);
        }
        if sights[Audience::User.index()] == Sight::Body {
            show(&mut self.summary.shown, &envelope.draft);
        }
        let of = &envelope.draft.ids;
        for (known, new) in
            [(&mut self.summary.session_id, &of.session), (&mut self.summary.parent_session_id, &of.parent_session)]
        {
            if known.is_none() {
                known.clone_from(new);
            }
        }
        if self.summary.thread_id.is_none() {
            self.summary.thread_id.clone_from(&of.thread);
        }
    }

    /// The control that asked for the end of the attempt that goes on, unless its owner refused it or nobody took it in time.
    fn asked_to_stop(&self) -> Option<&ControlId> {
        let attempt = self.ledger.run.attempt.max(1);
        let asks = |record: &&ControlRecord| {
            record.stops_run
                && record.of_attempt.unwrap_or_default().max(1) == attempt
                && matches!(record.state, ControlState::Open | ControlState::Acked)
        };
        self.controls.values().filter(asks).min_by_key(|record| record.number).map(|record| &record.id)
    }
}

/// An end that an abort looks like, too, in a run that somebody asked to stop: that is what it was.
fn cancelled(draft: &mut Draft, by: &ControlId) {
    draft.class = EventType::RunFinished;
    draft.phase = Phase::Cancelled;
    let payload = &mut draft.payload;
    payload.insert("status".into(), Phase::Cancelled.as_str().into());
    payload.insert("cancelledBy".into(), by.as_str().into());
    payload.shift_remove("retryable");
    if let Some(error) = payload.shift_remove("error") {
        payload.insert("cause".into(), error);
    }
}

/// What is kept of a body beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobMeta {
    /// The widest audience that may read it.
    pub audience: Audience,
    pub media_type: Box<str>,
    /// Whose log refers to it: one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

impl BlobMeta {
    /// What is kept beside a body.
    ///
    /// # Errors
    /// `Unreadable`, for what was not saved as that.
    pub fn read(blob: &Blob) -> Result<Self, StoreError> {
        serde_json::from_slice(&blob.meta)
            .map_err(|error| StoreError::unreadable(&format_args!("blob {}", blob.id), b"meta", &error))
    }
}

/// Room for one envelope's texts, used again for the next.
#[derive(Default)]
struct Scratch {
    body: Vec<u8>,
    edge: Vec<u8>,
    counted: Vec<u8>,
    own: [Vec<u8>; 3],
}

impl Scratch {
    /// Each audience's view of the envelope; equal views are the same slice.
    fn write(&mut self, envelope: &Envelope, sights: [Sight; 3], ledger: &Ledger) -> [Option<&[u8]>; 3] {
        self.body.clear();
        envelope.write_json(&mut self.body);
        if sights.contains(&Sight::Edge) {
            self.edge.clear();
            audience::edge(envelope).write_json(&mut self.edge);
        }
        if sights.contains(&Sight::Counted) {
            self.counted.clear();
            audience::counted(envelope).write_json(&mut self.counted);
        }
        for (i, reader) in Audience::ALL.into_iter().enumerate() {
            self.own[i].clear();
            match sights[i] {
                Sight::Trimmed => audience::trimmed(envelope).write_json(&mut self.own[i]),
                Sight::Body => {
                    if let Some(filtered) = ledger.messages_for(envelope, reader) {
                        filtered.write_json(&mut self.own[i]);
                    }
                }
                Sight::Hidden | Sight::Counted | Sight::Edge => {}
            }
        }
        let (body, edge, counted, own) = (&self.body, &self.edge, &self.counted, &self.own);
        std::array::from_fn(|i| match sights[i] {
            Sight::Hidden => None,
            Sight::Counted => Some(counted.as_slice()),
            Sight::Edge => Some(edge.as_slice()),
            Sight::Body | Sight::Trimmed if !own[i].is_empty() => Some(own[i].as_slice()),
            Sight::Body | Sight::Trimmed => Some(body.as_slice()),
        })
    }
}

/// What users are shown of a log in lists, by a fact that they see.
fn show(shown: &mut Shown, draft: &Draft) {
    match draft.class {
        EventType::TextDelta | EventType::TextFinal => {
            let Some(message) = &draft.ids.message else { return };
            let is_known = shown.preview.as_ref().is_some_and(|(of, _)| **of == *message.as_str());
            // A final text repeats what was streamed.
            if draft.class == EventType::TextDelta || !is_known {
                shown.preview(message.as_str(), draft.text("text").unwrap_or_default());
            }
        }
        EventType::SessionOpened | EventType::SessionUpdated | EventType::RunStarted => {
            let get = |member: &str| draft.extra.get(member).or_else(|| draft.payload.get(member));
            if let Some(title) = get("title").and_then(Value::as_str) {
                shown.title(title);
            }
            shown.unread = get("unread").and_then(count_of).or(shown.unread);
            for (flag, member) in [(&mut shown.pinned, "pinned"), (&mut shown.stale, "stale")] {
                *flag = get(member).and_then(Value::as_bool).or(*flag);
            }
        }
        _ => {}
    }
}

/// A hand-off, review or worker notification without an id is named by its sequence, a team by its name.
fn name_by_sequence(envelope: &mut Envelope) {
    let member = match envelope.draft.class {
        EventType::AgentHandoff => "handoffId",
        EventType::ReviewRequested | EventType::ReviewCompleted => "reviewId",
        EventType::WorkerNotification => "workerNotificationId",
        EventType::TeamChanged => "teamId",
        _ => return,
    };
    let draft = &mut envelope.draft;
    if draft.payload.contains_key(member) || draft.extra.contains_key(member) {
        return;
    }
    let name = match draft.payload.get("teamName") {
        Some(team) if member == "teamId" => team.clone(),
        _ if member == "teamId" => return,
        _ => Value::String(envelope.sequence.to_string()),
    };
    draft.payload.insert(member.into(), name);
}
