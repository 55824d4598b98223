//! Stamping: drafts become rows.
//!
//! The ledger records each draft, the guard redacts it, and each audience gets its view.

use super::attempt::AttemptStarts;
use super::chaining::Chaining;
use super::questions::Questions;
use super::receipt::VIOLATIONS_MAX;
use super::rows::EncodedRows;
use super::writer::{EventIds, LogWriter};
use crate::environment::Environment;
use crate::environment::sabotage;
use crate::guard::{Guarded, Policy};
use crate::log::commit::{Preview, Summary, SummaryExtension, count_of};
use crate::log::control::{ControlRecord, ControlState, PENDING_ACTIONS_MAX, PendingAction, PendingDetail, WaitState};
use crate::log::figures::RunFigures;
use crate::log::question::QuestionState;
use crate::log::{Blob, LogId, LogKind, StoreError};
use crate::model::a2ui;
use crate::model::branch::{BranchOrigin, FORK, HEAD, PARENT};
use crate::model::decided_by::{DECIDED_BY, DecidedBy, RESOLVED_BY, UPDATED_BY, by_runtime, is_by_runtime};
use crate::model::fact::RunFact;
use crate::model::halves::Halves;
use crate::model::time::parse_time;
use crate::model::visibility::{self, Visibility};
use crate::model::{
    ActionId, ActionOutcome, Audience, BlobId, Control, ControlId, Draft, Envelope, EventType, Ids, MemberRef, Payload, Phase,
    ReceivedAt, RunId, Sequence, SessionId, WordsFact,
};
use crate::source::agent_ui;
use crate::source::ledger::{Ledger, RunState, Violation};
use crate::waits::approvals_of;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use uuid::Uuid;

/// The time and the rules for making rows.
#[derive(Clone, Copy)]
pub(super) struct StampContext<'p> {
    pub given: &'p Ids,
    /// The source of the drafts. `None`: the server.
    pub source: Option<&'static str>,
    pub policy: &'p Policy,
    pub environment: Environment,
    pub now: jiff::Timestamp,
    /// Whether the drafts may have marks of halves.
    pub halves: Halves,
    /// The `sub` of the token that published the drafts.
    pub publisher: Option<&'p str>,
}

/// What stamping has made of a delivery so far.
#[derive(Default)]
pub(super) struct Stamped {
    pub rows: EncodedRows,
    /// The first [`VIOLATIONS_MAX`] violations, and the number of further ones.
    pub violations: Vec<Violation>,
    pub violations_omitted: u64,
    /// Per audience, the last envelope that is news.
    news: [Option<Sequence>; 3],
    /// What the audiences had seen before, and the log's last sequence then.
    before: ([Sequence; 3], Sequence),
    has_drafts: bool,
    received_at: Box<str>,
    scratch: Scratch,
    chaining: Chaining,
}

impl LogWriter {
    /// Begins to stamp about this many drafts.
    pub fn begin_stamp(&mut self, context: StampContext<'_>, drafts: usize) -> Stamped {
        self.begin_figures(context.source);
        self.event_ids.millis = u64::try_from(context.now.as_millisecond()).unwrap_or(0);
        let before = (self.summary.seen_last, self.summary.last_sequence);
        let received_at = ReceivedAt::from(context.now).to_string().into();
        let mut stamped = Stamped { before, received_at, ..Stamped::default() };
        stamped.rows.reserve(drafts);
        stamped
    }

    /// Begins the figures of a run, or names its source.
    fn begin_figures(&mut self, source: Option<&'static str>) {
        if self.id.kind() != LogKind::Run {
            return;
        }
        let is_whole = self.summary.last_sequence == Sequence::NONE;
        match (&mut self.summary.figures, source) {
            (figures @ None, _) => *figures = Some(Arc::new(RunFigures::begin(source, is_whole))),
            (Some(figures), Some(source)) if figures.source().is_none() => Arc::make_mut(figures).name_source(source),
            _ => {}
        }
    }

    /// Runs ledger, guard and encoder: the drafts of one fact become encoded rows.
    ///
    /// `index` is the index of the fact.
    pub fn stamp(&mut self, drafts: &mut Vec<Draft>, index: u64, context: StampContext<'_>, stamped: &mut Stamped) {
        let StampContext { given, source, policy, environment, halves, .. } = context;
        let mut new_blob_id = || new_blob_id(environment);
        for draft in &mut *drafts {
            draft.ids.fill_from(given);
            let agent = draft.ids.agent.as_ref();
            let names_speakers = source == Some(agent_ui::SOURCE.name) || (agent.is_some() && agent == given.agent.as_ref());
            self.ledger.add_speaker(draft, names_speakers);
            if draft.may_be_abort
                && !self.ledger.run.status.is_end()
                && let Some(control) = self.stop_control()
            {
                mark_cancelled(draft, control);
            }
            if draft.event_type == EventType::RunStarted
                && let Some(source) = source
            {
                self.attempt_starts.note_start(draft, source, &self.ledger.run);
            }
            if source.is_some() {
                self.attribute(draft, context.now);
            }
            match self
                .ledger
                .record(draft, index)
                .or_else(|| unreadable_wait(draft, index))
                .or_else(|| unreadable_surface(draft, index))
            {
                Some(violation) if stamped.violations.len() < VIOLATIONS_MAX => stamped.violations.push(violation),
                Some(_) => stamped.violations_omitted += 1,
                None => {}
            }
            // The ledger has named the draft's call.
            self.questions.mark(draft, context.publisher);
            let Self { id, ledger, guard, summary, seen_runs, event_ids, attempt_starts, questions, .. } = self;
            let mut encoder = RowEncoder { log: id, ledger, summary, seen_runs, event_ids, attempt_starts, questions };
            guard.pass(policy, &mut new_blob_id, draft, halves, &mut |guarded| encoder.encode(guarded, stamped));
            stamped.has_drafts = true;
        }
        stamped.chaining.follow(&self.hash_chain, stamped.rows.full());
        drafts.clear();
    }

    /// Updates the summary and the hash chain, if there was a draft.
    pub fn end_stamp(&mut self, mut stamped: Stamped) -> Stamped {
        if !stamped.has_drafts {
            return stamped;
        }
        stamped.rows.cut();
        std::mem::take(&mut stamped.chaining).end(&mut self.hash_chain, stamped.rows.full());
        self.list_pending();
        let received_at = &stamped.received_at;
        let summary = &mut self.summary;
        let of_summary = [Audience::User, Audience::Dashboard].map(|audience| summary.run_for(audience).pending.clone());
        for (seen, before) in self.seen_runs.iter_mut().zip(of_summary) {
            seen.share_pending(&self.ledger.run, &before, &summary.run);
        }
        summary.run.clone_from(&self.ledger.run);
        summary.pending_actions.retain(|asked| summary.run.pending.contains(asked.action.as_str()));
        if summary.run.pending.is_empty() {
            self.questions.close_pending();
        }
        summary.extension.actions.retain(|action, _| summary.run.pending.contains(action.as_str()));
        let [user, dashboard] = &self.seen_runs;
        for (preview, seen) in [(&mut summary.run_for_user, user), (&mut summary.run_for_dashboard, dashboard)] {
            *preview = (!seen.is_same(&summary.run)).then(|| Box::new(seen.clone()));
        }
        let (seen, last) = stamped.before;
        summary.note_news(stamped.news, seen, last, i64::try_from(self.event_ids.millis).unwrap_or(i64::MAX));
        summary.last_activity = Some(received_at.clone());
        summary.started_at.get_or_insert_with(|| received_at.clone());
        match summary.run.status.is_end() {
            true => drop(summary.ended_at.get_or_insert_with(|| received_at.clone())),
            false => summary.ended_at = None,
        }
        stamped
    }

    /// Lists in the summary the pending actions that the server needs without their log: those that it remembers, and those
    /// with an open control.
    fn list_pending(&mut self) {
        let Summary { pending_actions, controls, .. } = &self.summary;
        let remembered = pending_actions.iter().map(|asked| &asked.action);
        let needed = remembered.chain(controls.iter().filter_map(|control| control.action.as_ref()));
        for run in self.seen_runs.iter_mut().chain([&mut self.ledger.run]) {
            run.pending.list(needed.clone().map(ActionId::as_str));
        }
    }

    /// Says who decided, where a producer reports it: only the server names the maker of a decision.
    fn attribute(&self, draft: &mut Draft, now: jiff::Timestamp) {
        if let Some(claimed) = draft.payload.remove(DECIDED_BY).filter(|claimed| !is_by_runtime(claimed)) {
            draft.payload.insert_missing(RESOLVED_BY, claimed);
        }
        if let Some(claimed) = draft.extra.shift_remove(DECIDED_BY).filter(|claimed| !is_by_runtime(claimed)) {
            draft.extra.entry(RESOLVED_BY).or_insert(claimed);
        }
        if matches!(draft.event_type, EventType::SessionOpened | EventType::SessionHydrated | EventType::SessionUpdated) {
            self.keep_from_persons(draft);
        }
        if matches!(draft.event_type, EventType::ActionReminded | EventType::ActionEscalated | EventType::FeedbackGiven) {
            // Only the server reminds, and only it knows who gave feedback.
            draft.payload = Payload::empty(&draft.event_type);
            draft.extra.clear();
        }
        let Some(action) = draft.ids.action.as_ref().filter(|_| draft.event_type == EventType::ActionResolved) else { return };
        let outcome = draft.text("outcome");
        match self.decision_behind(action, outcome) {
            Some(decision) => {
                draft.payload.insert("controlId", decision.id.as_str().into());
                draft.set(DECIDED_BY, decision.decided_by.as_ref().map(DecidedBy::to_value));
            }
            None => draft.payload.insert(DECIDED_BY, by_runtime(now)),
        }
    }

    /// Renames what only persons say of a session, in what its source says, and keeps a person's title from its source.
    fn keep_from_persons(&self, draft: &mut Draft) {
        let take = |draft: &mut Draft, member| draft.payload.remove(member).or_else(|| draft.extra.shift_remove(member));
        for member in [UPDATED_BY, "titleFrom"] {
            take(draft, member);
        }
        let has_title = matches!(self.id, LogId::Session(_)) && self.summary.extension.title.is_some();
        let title = has_title.then_some(("title", "sourceTitle"));
        let others = [("archived", "sourceArchived"), (PARENT, "sourceParent"), (FORK, "sourceFork"), (HEAD, "sourceHead")];
        for (member, becomes) in title.into_iter().chain(others) {
            if let Some(claimed) = take(draft, member) {
                draft.payload.insert(becomes, claimed);
            }
        }
    }

    /// The control that led to this outcome: the last one that its owner has, unless it says the contrary.
    fn decision_behind(&self, action: &ActionId, outcome: Option<&str>) -> Option<&ControlRecord> {
        let asked = self.questions.get(action).map(|question| question.asked).unwrap_or_default();
        let led = |record: &&ControlRecord| match (record.state, &record.control, outcome) {
            (_, Control::Approve, Some("rejected" | "cancelled"))
            | (_, Control::Reject, Some("approved"))
            | (.., Some("expired" | "superseded"))
            | (ControlState::Nacked | ControlState::Expired, ..) => false,
            (ControlState::Acked, ..) => record.submitted_after >= asked,
            (ControlState::Open, ..) => record.attempt > 0,
        };
        let decisions = self.controls.values().filter(|record| record.is_decision_of(action) && !record.is_held());
        decisions.filter(led).max_by_key(|record| record.queue_position)
    }

    /// The control that asked to end the active attempt, unless its owner refused it or it expired.
    fn stop_control(&self) -> Option<&ControlId> {
        let attempt = self.ledger.run.attempt.max(1);
        let asks = |record: &&ControlRecord| {
            record.stops_run
                && record.of_attempt.unwrap_or_default().max(1) == attempt
                && matches!(record.state, ControlState::Open | ControlState::Acked)
        };
        self.controls.values().filter(asks).min_by_key(|record| record.queue_position).map(|record| &record.id)
    }
}

/// The parts of a log's writer that a row needs, beside the guard.
struct RowEncoder<'w> {
    log: &'w LogId,
    ledger: &'w Ledger,
    summary: &'w mut Summary,
    seen_runs: &'w mut [RunState; 2],
    event_ids: &'w mut EventIds,
    attempt_starts: &'w mut AttemptStarts,
    questions: &'w mut Questions,
}

impl RowEncoder<'_> {
    /// Assigns a sequence to one guarded draft, and encodes its row with each audience's view.
    fn encode(&mut self, guarded: Guarded<'_>, stamped: &mut Stamped) {
        let Stamped { rows, received_at, scratch, news, .. } = stamped;
        let (mut draft, bodies) = guarded.into_parts();
        let sequence = self.summary.last_sequence.next();
        add_missing_id(&mut draft, sequence);
        let shown = if sabotage::is(28) && sequence.0.is_multiple_of(5) { self.summary.last_sequence } else { sequence };
        let envelope = Envelope { sequence: shown, event_id: self.event_ids.next(), received_at, draft };
        let visibilities = Audience::ALL.map(|reader| reader.visibility(&envelope));
        if visibilities[Audience::User.index()] != Visibility::Hidden {
            self.attempt_starts.note_visible(&envelope.draft);
        }
        let visibilities = if sabotage::is(15) { [visibilities[1], visibilities[0], visibilities[2]] } else { visibilities };
        let views = scratch.write(&envelope, visibilities, self.ledger);
        rows.push(sequence, self.summary.seen_last, views, is_decision(&envelope.draft));
        let is_news = !is_by_person(&envelope.draft) && envelope.draft.event_type != EventType::FeedbackGiven;
        for (i, view) in views.iter().enumerate() {
            if view.is_some() {
                if is_news {
                    news[i] = Some(sequence);
                }
                // A counted failure reveals nothing about the state of the run.
                if let Some(run) = self.seen_runs.get_mut(i).filter(|_| visibilities[i] != Visibility::Counted) {
                    let of = &envelope.draft;
                    run.apply(&of.event_type, &of.phase, of.ids.action.as_ref(), &of.payload);
                }
                self.summary.seen_last[i] = sequence;
                self.summary.seen_count[i] += 1;
            }
        }
        if !bodies.is_empty() {
            // A reader that sees the body of the envelope may read the bodies that it refers to. A body of a messages
            // snapshot cannot be filtered later: only audiences from which nothing is hidden may read it.
            let is_snapshot = envelope.draft.event_type == EventType::MessagesSnapshot;
            let reads =
                |a: &Audience| visibilities[a.index()] == Visibility::Body && !(is_snapshot && self.ledger.hides_from(*a));
            let readable = Audience::ALL.into_iter().find(reads).unwrap_or(Audience::Internal);
            for body in bodies {
                let (run, session) = match self.log.clone() {
                    LogId::Run(run) => (Some(run), None),
                    LogId::Session(session) => (None, Some(session)),
                };
                let media_type = body.media_type.into();
                let meta = BlobMeta { audience: readable, media_type, run, session, attachment: None };
                rows.push_blob(Blob { id: body.id, meta: meta.save(), body: body.bytes });
            }
        }
        self.summary.last_sequence = sequence;
        self.note_figures(&envelope, visibilities);
        self.questions.place(&envelope);
        if let Some(asked) = PendingAction::of(&envelope.draft) {
            let asked_at = i64::try_from(self.event_ids.millis).unwrap_or(i64::MAX);
            let options = asked.options.clone();
            let mut wait = WaitState::of(&envelope.draft);
            let call = envelope.draft.ids.tool_call.as_ref();
            if let Some(tool) = call.and_then(|call| self.questions.tool_of(call)) {
                wait.set_tool_of_call(tool);
            }
            let wait = wait.into_stored();
            remember(self.summary, asked, PendingDetail { asked_at, sequence, control: None, options, wait });
        }
        self.name_tool(&envelope.draft);
        if envelope.draft.event_type.begins_run(&envelope.draft.phase) && self.summary.agent.is_none() {
            self.summary.agent.clone_from(&envelope.draft.ids.agent);
        }
        if is_by_person(&envelope.draft) {
            update_by_person(&mut self.summary.extension, &envelope.draft);
        } else if visibilities[Audience::User.index()] == Visibility::Body {
            update_preview(&mut self.summary.preview, &envelope.draft);
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
}

impl RowEncoder<'_> {
    /// Notes what an envelope adds to the figures of its run.
    fn note_figures(&mut self, envelope: &Envelope, visibilities: [Visibility; 3]) {
        let draft = &envelope.draft;
        let adds = matches!(draft.event_type, EventType::MetricChanged | EventType::ActionResolved);
        if !adds || !self.summary.figures.as_ref().is_some_and(|figures| figures.is_whole()) {
            return;
        }
        let waited = self.waited(draft);
        let Some(figures) = self.summary.figures.as_mut().map(Arc::make_mut) else { return };
        let is_seen = visibilities.map(|seen| matches!(seen, Visibility::Body | Visibility::Trimmed));
        match draft.event_type {
            EventType::MetricChanged => figures.measure(draft, is_seen),
            _ => waited.into_iter().for_each(|waited| figures.add_wait(waited, is_seen)),
        }
    }

    /// How long an action waited that is decided now, in milliseconds.
    ///
    /// The server names when a control decided; a runtime that resolves its action decides then. What ended an action
    /// without a decision is no wait for one.
    fn waited(&self, draft: &Draft) -> Option<u64> {
        let action = draft.ids.action.as_ref().filter(|_| draft.event_type == EventType::ActionResolved)?;
        let without_decision = [ActionOutcome::Cancelled, ActionOutcome::Expired, ActionOutcome::Superseded];
        if without_decision.iter().any(|outcome| draft.text("outcome") == Some(outcome.as_str())) {
            return None;
        }
        self.questions.get(action).filter(|question| question.state == QuestionState::Pending)?;
        let asked = self.summary.extension.actions.get(action)?.asked_at;
        let decided = draft.payload.get(DECIDED_BY).map(MemberRef::into_value);
        let decided = decided.and_then(|decided| decided["at"].as_str()?.parse::<jiff::Timestamp>().ok());
        let decided = decided.map_or(i64::try_from(self.event_ids.millis).ok()?, jiff::Timestamp::as_millisecond);
        Some(u64::try_from(decided - asked).unwrap_or(0))
    }

    /// Names the tool of pending actions that were asked before their call named it.
    fn name_tool(&mut self, draft: &Draft) {
        let is_call = matches!(draft.event_type, EventType::ToolStarted | EventType::ToolArgs);
        let Some(call) = draft.ids.tool_call.as_ref().filter(|_| is_call) else { return };
        let Some(tool) = self.questions.tool_of(call) else { return };
        for action in self.questions.about_call(call) {
            if let Some(wait) = self.summary.extension.actions.get_mut(action).and_then(|detail| detail.wait.as_mut()) {
                wait.set_tool_of_call(tool);
            }
        }
    }
}

/// Whether a person began, renamed, archived or changed the session. Of other drafts, none has the member: only the server
/// writes it.
fn is_by_person(draft: &Draft) -> bool {
    matches!(draft.event_type, EventType::SessionOpened | EventType::SessionUpdated) && draft.payload.contains_key(UPDATED_BY)
}

/// Whether the draft decides an action, or reports that a runtime did.
fn is_decision(draft: &Draft) -> bool {
    match draft.event_type {
        EventType::ActionResolved => true,
        EventType::ControlChanged => draft.ids.action.is_some() && draft.phase == Phase::Submitted,
        _ => false,
    }
}

/// Remembers a pending action. One that is asked again keeps the time of its first request, and needs another decision.
///
/// It also keeps the steps of rules that were done, unless a decision was under way: then its wait begins again.
fn remember(summary: &mut Summary, asked: PendingAction, detail: PendingDetail) {
    let Summary { pending_actions, extension, .. } = summary;
    pending_actions.retain(|known| known.action != asked.action);
    let known = extension.actions.remove(&asked.action);
    if pending_actions.len() < PENDING_ACTIONS_MAX {
        let mut detail = detail;
        if let Some(known) = known {
            let mut wait = detail.wait.take().map_or_else(WaitState::default, |wait| *wait);
            let before = known.wait.unwrap_or_default();
            (wait.since, wait.steps) = match known.control {
                Some(_) => (Some(detail.asked_at), 0),
                None => (before.since, before.steps),
            };
            (detail.asked_at, detail.wait) = (known.asked_at, wait.into_stored());
        }
        extension.actions.insert(asked.action.clone(), detail);
        pending_actions.push(asked);
    }
}

/// Names an action that states its wait in a form that cannot be read: it counts as not stated,
/// and a number of approvals that is too large as the largest.
fn unreadable_wait(draft: &Draft, index: u64) -> Option<Violation> {
    let action = draft.ids.action.as_ref().filter(|_| draft.event_type == EventType::ActionRequired)?;
    let stated = |member| draft.member(member).map(MemberRef::into_value).filter(|stated| !stated.is_null());
    let code = match (stated("expiresAt"), stated("approvals"), stated("onExpiry")) {
        (Some(deadline), ..) if parse_time(&deadline).is_none() => "unreadable_deadline",
        (_, Some(approvals), _) if !approvals_of(&approvals).1 => "unreadable_approvals",
        (.., Some(wish)) if wish != "reject" && wish != "approve" => "unreadable_on_expiry",
        _ => return None,
    };
    Some(Violation { index, code, event_type: draft.event_type.as_str().into(), thing: format!("action:{action}") })
}

/// Names the first A2UI message of a fact that cannot be read. The others count.
fn unreadable_surface(draft: &Draft, index: u64) -> Option<Violation> {
    let has_activity = matches!(draft.event_type, EventType::StateSnapshot | EventType::StateDelta | EventType::ToolProgress);
    if !has_activity || draft.text("activityType") != Some(a2ui::ACTIVITY_TYPE) {
        return None;
    }
    let content = draft.member("content").map(MemberRef::into_value);
    let patch = draft.member("patch").map(MemberRef::into_value);
    let (at, why) = match (content, patch) {
        (Some(content), _) => a2ui::fault(content.get(a2ui::OPERATIONS)?)?,
        (None, Some(patch)) => {
            let appended = |of: &&Value| of["path"].as_str().is_some_and(|path| path.starts_with("/a2ui_operations/"));
            let appended = patch.as_array()?.iter().filter(appended).filter_map(|of| of.get("value").cloned());
            a2ui::fault(&appended.collect())?
        }
        (None, None) => return None,
    };
    tracing::debug!(at, why, "an A2UI message cannot be read");
    let code = "unreadable_surface";
    Some(Violation { index, code, event_type: draft.event_type.as_str().into(), thing: format!("{}:{at}", a2ui::OPERATIONS) })
}

/// Turns an end that may be an abort into a cancellation, because a control asked to stop the run.
fn mark_cancelled(draft: &mut Draft, by: &ControlId) {
    draft.event_type = EventType::RunFinished;
    draft.phase = Phase::Cancelled;
    if let Some(run) = draft.payload.fact_mut::<RunFact>() {
        run.status = Some(Phase::Cancelled.as_str().into());
        run.cancelled_by = Some(by.as_str().into());
        run.retryable = None;
        run.cause = run.error.take();
    }
}

/// The metadata of a body.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobMeta {
    /// The widest audience that may read it.
    pub audience: Audience,
    pub media_type: Box<str>,
    /// The log that refers to it: exactly one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The name of the file, perhaps empty, if a person attached it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Box<str>>,
}

/// The id of a new body.
#[must_use]
pub fn new_blob_id(environment: Environment) -> BlobId {
    let random = Uuid::from_u128((environment.random)());
    BlobId::new(&random.simple().to_string()).expect("hexadecimal digits are a valid id")
}

impl BlobMeta {
    /// The metadata for the store.
    #[must_use]
    pub fn save(&self) -> bytes::Bytes {
        serde_json::to_vec(self).expect("plain data serializes").into()
    }

    /// Reads the metadata of a body.
    ///
    /// # Errors
    /// `Unreadable` for bytes that are not body metadata.
    pub fn read(blob: &Blob) -> Result<Self, StoreError> {
        serde_json::from_slice(&blob.meta)
            .map_err(|error| StoreError::unreadable(&format_args!("blob {}", blob.id), b"meta", &error))
    }
}

/// Buffers for one envelope's texts, reused for the next.
#[derive(Default)]
struct Scratch {
    body: Vec<u8>,
    stub: Vec<u8>,
    counted: Vec<u8>,
    own: [Vec<u8>; 3],
}

impl Scratch {
    /// Writes each audience's view of the envelope; equal views are the same slice.
    fn write(&mut self, envelope: &Envelope, visibilities: [Visibility; 3], ledger: &Ledger) -> [Option<&[u8]>; 3] {
        self.body.clear();
        envelope.write_json(&mut self.body);
        if visibilities.contains(&Visibility::Stub) {
            self.stub.clear();
            visibility::stub(envelope).write_json(&mut self.stub);
        }
        if visibilities.contains(&Visibility::Counted) {
            self.counted.clear();
            visibility::hidden_failure(envelope).write_json(&mut self.counted);
        }
        for (i, reader) in Audience::ALL.into_iter().enumerate() {
            self.own[i].clear();
            match visibilities[i] {
                Visibility::Trimmed => visibility::without_call(envelope, reader).write_json(&mut self.own[i]),
                Visibility::Body => {
                    let filtered = ledger.messages_for(envelope, reader);
                    if let Some(filtered) = filtered.or_else(|| visibility::without_person(envelope, reader)) {
                        filtered.write_json(&mut self.own[i]);
                    }
                }
                Visibility::Hidden | Visibility::Counted | Visibility::Stub => {}
            }
        }
        let (body, stub, counted, own) = (&self.body, &self.stub, &self.counted, &self.own);
        std::array::from_fn(|i| match visibilities[i] {
            Visibility::Hidden => None,
            Visibility::Counted => Some(counted.as_slice()),
            Visibility::Stub => Some(stub.as_slice()),
            Visibility::Body | Visibility::Trimmed if !own[i].is_empty() => Some(own[i].as_slice()),
            Visibility::Body | Visibility::Trimmed => Some(body.as_slice()),
        })
    }
}

/// Updates the log's preview by a fact that users see.
fn update_preview(preview: &mut Preview, draft: &Draft) {
    match draft.event_type {
        EventType::TextDelta | EventType::TextFinal => {
            let Some(message) = &draft.ids.message else { return };
            let is_known = preview.message.as_ref().is_some_and(|(of, _)| **of == *message.as_str());
            // A final text repeats the streamed text.
            if draft.event_type == EventType::TextDelta || !is_known {
                let text = draft.payload.as_fact().and_then(|words: &WordsFact| words.text.as_deref());
                preview.append_message(message.as_str(), text.unwrap_or_default());
            }
        }
        EventType::SessionOpened | EventType::SessionUpdated | EventType::RunStarted => {
            let title = draft.member("sourceTitle").or_else(|| draft.member("title"));
            if let Some(title) = title.and_then(MemberRef::text) {
                preview.set_title(title);
            }
            preview.unread = draft.member("unread").and_then(|unread| count_of(&unread.to_value())).or(preview.unread);
            for (flag, member) in [(&mut preview.pinned, "pinned"), (&mut preview.stale, "stale")] {
                *flag = draft.member(member).and_then(MemberRef::flag).or(*flag);
            }
        }
        _ => {}
    }
}

/// Updates what a person did to the session, by the fact of it: its title has passed the guard.
fn update_by_person(extension: &mut SummaryExtension, draft: &Draft) {
    match draft.member("titleFrom").and_then(MemberRef::text) {
        Some("user") => extension.title = draft.member("title").and_then(MemberRef::text).map(Into::into),
        Some(_) => extension.title = None,
        None => {}
    }
    extension.archived = draft.member("archived").and_then(MemberRef::flag).unwrap_or(extension.archived);
    if let (Some(parent), Some(fork)) = (draft.payload.get(PARENT), draft.member(FORK).and_then(MemberRef::text)) {
        extension.branch = BranchOrigin::read(&parent.to_value(), fork).map(Box::new);
    }
    if let Some(head) = draft.member(HEAD) {
        extension.head = head.text().and_then(|head| SessionId::new(head).ok());
    }
}

/// Adds a missing id: a handoff, review or worker notification gets its sequence, a team its name.
fn add_missing_id(draft: &mut Cow<'_, Draft>, sequence: Sequence) {
    let member = match draft.event_type {
        EventType::AgentHandoff => "handoffId",
        EventType::ReviewRequested | EventType::ReviewCompleted => "reviewId",
        EventType::WorkerNotification => "workerNotificationId",
        EventType::TeamChanged => "teamId",
        _ => return,
    };
    if draft.payload.contains_key(member) || draft.extra.contains_key(member) {
        return;
    }
    let name = match draft.payload.get("teamName") {
        Some(team) if member == "teamId" => team.into_value(),
        _ if member == "teamId" => return,
        _ => Value::String(sequence.to_string()),
    };
    draft.to_mut().payload.insert(member, name);
}
