//! The audience rule of the protocol, section 3: which reader may see which part of an envelope.
//!
//! [`Audience::visibility`] is the only place that decides. The server asks it once per envelope and audience, when it
//! writes the envelope. Live frames, resume, replay, REST, blobs and exports all read the stored decision, so no path
//! can forget to ask.

use super::audience::Audience;
use super::decided_by::{self, DECIDED_BY, UPDATED_BY};
use super::envelope::{Draft, Envelope};
use super::fact::{FeedbackFact, MemberRef, Payload, RunFact, WaitStepFact};
use super::id::EvidenceId;
use super::options;
use super::taxonomy::{EventType, Persistence, Phase, Scope, Surface};
use super::version::QUESTION_VERSION;
use serde_json::{Map, Value};
use std::borrow::Cow;

impl Audience {
    /// The visibility of `envelope` for a reader of this audience.
    ///
    /// The rules, in order:
    ///
    /// 1. Run boundaries reach every reader.
    /// 2. A reader outside the start audience of the subject gets nothing of the subject. Exception: the failure of a
    ///    hidden call is counted, because every failure reaches users (seed 000).
    /// 3. A reader that lacks the base of a patch does not get the patch.
    /// 4. A failure has its subject's start audience instead of its own.
    /// 5. A reader that saw a start sees the end, as a stub if the end's own audience is narrower.
    /// 6. An action loses the data about a call that the reader cannot see.
    #[must_use]
    pub fn visibility(self, envelope: &Envelope) -> Visibility {
        let event_type = &envelope.draft.event_type;
        let own = self.admits(envelope.draft.audience);
        if event_type.is_run_boundary() {
            return if own || *event_type == EventType::RunFailed { Visibility::Body } else { Visibility::Stub };
        }
        if !self.admits(envelope.draft.start_audience.unwrap_or(envelope.draft.audience)) {
            return if is_failed_call(envelope) { Visibility::Counted } else { Visibility::Hidden };
        }
        if envelope.draft.missed_by.is_some_and(|missed| self <= missed) {
            return Visibility::Hidden;
        }
        if is_failure(envelope) && envelope.draft.start_audience.is_some() {
            return Visibility::Body;
        }
        if !own {
            return if event_type.is_end() { Visibility::Stub } else { Visibility::Hidden };
        }
        match envelope.draft.call_audience {
            Some(call) if !self.admits(call) => Visibility::Trimmed,
            _ => Visibility::Body,
        }
    }
}

/// How much of an envelope a reader gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Nothing, not even that it exists.
    Hidden,
    /// Only that a hidden call failed: neither its ids nor its name nor a body.
    Counted,
    /// Only that the subject ended: ids, status, duration, and that the body is withheld.
    Stub,
    /// The body without the data about a call that this reader cannot see.
    Trimmed,
    /// The whole envelope.
    Body,
}

/// Whether the envelope reports a failure.
#[must_use]
pub fn is_failure(envelope: &Envelope) -> bool {
    match envelope.draft.event_type {
        EventType::ToolFailed | EventType::ArtifactFailed | EventType::RunFailed => true,
        ref event_type => event_type.is_end() && envelope.draft.phase == Phase::Failed,
    }
}

/// Ids of subjects outside the envelope's own ids.
///
/// A stub without them would not end a subject that the reader knows.
const SUBJECT_IDS: &[&str] = &["reviewId", "compactionId", "id"];

/// The stub of `envelope`: ids, dimensions, times, `status`, `durationMs`, and `withheld: true`.
///
/// It contains no free text of the producer.
#[must_use]
pub fn stub<'d>(envelope: &Envelope<'d>) -> Envelope<'d> {
    let mut stub = envelope.clone();
    let draft = stub.draft.to_mut();
    let mut payload = Payload::empty(&draft.event_type);
    if matches!(draft.event_type, EventType::ReviewCompleted | EventType::ContextCompactionCompleted) {
        for member in SUBJECT_IDS {
            let id = draft.member(member).filter(|id| match id {
                MemberRef::Text(text) => EvidenceId::new(text).is_ok(),
                MemberRef::Number(number) => number.is_u64() || number.is_i64(),
                _ => false,
            });
            payload.extend(id.map(|id| ((*member).to_owned(), id.into_value())));
        }
    }
    for member in ["status", "durationMs"] {
        if let Some(value @ (MemberRef::Text(_) | MemberRef::Number(_))) = draft.member(member) {
            payload.insert(member, value.into_value());
        }
    }
    // Every audience counts the same attempts.
    if let (Some(start), Some(run)) = (draft.payload.as_fact::<RunFact>(), payload.fact_mut::<RunFact>()) {
        run.continues = start.continues;
    }
    payload.insert("withheld", true.into());
    draft.payload = payload;
    draft.refs = None;
    draft.raw_event_ref = None;
    draft.control = None;
    draft.source_sequence = None;
    draft.extra = Map::new();
    stub
}

/// Whether a tool call failed. A stopped call did not fail.
fn is_failed_call(envelope: &Envelope) -> bool {
    envelope.draft.event_type == EventType::ToolFailed && !matches!(envelope.draft.phase, Phase::Cancelled | Phase::Interrupted)
}

/// `payload.kind` of [`hidden_failure`].
pub const HIDDEN_FAILURE: &str = "hidden_failure";

/// The failure of a hidden call for readers that cannot see the call.
///
/// It keeps only the failure's place in the log.
#[must_use]
pub fn hidden_failure<'d>(envelope: &Envelope<'d>) -> Envelope<'d> {
    let mut draft = Draft::new(EventType::ToolFailed).call(|call| {
        call.kind = Some(HIDDEN_FAILURE.to_owned());
        call.withheld = Some(true);
    });
    draft.ids.run.clone_from(&envelope.draft.ids.run);
    draft.scope = if draft.ids.run.is_some() { Scope::Run } else { Scope::Session };
    (draft.surface, draft.persistence) = (Surface::Diagnostics, Persistence::DiagnosticsLog);
    Envelope { draft: Cow::Owned(draft), ..*envelope }
}

/// Payload members of an action that describe the question and its answer.
///
/// Every other member may describe the call.
#[rustfmt::skip]
const QUESTION_MEMBERS: &[&str] = &[
    "kind", "title", "message", "reason", "description", "schema", "responseSchema", "options", "default", "risk", "scope",
    "policyScope", "plan", "versionId", "artifactRefs", "evidenceRefs", "expiresAt", "parentRouting", "agentName", "teamName",
    "runtimeEntity", "resumeMode", "outcome", "value", "decision", "decidedBy", "resolvedBy", "status", "controlId", "attempt",
    "requeued", "withheld", QUESTION_VERSION,
];

/// The choices of a question.
const OPTIONS: &str = "options";

/// Relations to the subject under review. Any other reference may lead to the call.
const REVIEWED_RELATIONS: &[&str] =
    &["artifact", "artifactId", "version", "versionId", "evidence", "evidenceId", "plan", "diff", "review"];

/// The member by which the envelope of a trimmed action states that its call is withheld.
pub const CALL_WITHHELD: &str = "callWithheld";

/// `envelope` of an action without the data about its tool call.
///
/// Only members that describe the question stay. Options keep their effect and width, because their labels may repeat
/// the call's arguments.
#[must_use]
pub fn without_call<'d>(envelope: &Envelope<'d>, reader: Audience) -> Envelope<'d> {
    let mut trimmed = without_person(envelope, reader).unwrap_or_else(|| envelope.clone());
    let draft = trimmed.draft.to_mut();
    draft.ids.tool_call = None;
    match draft.request_version {
        Some(version @ 2..) => draft.payload.insert(QUESTION_VERSION, version.into()),
        _ => drop(draft.payload.remove(QUESTION_VERSION)),
    }
    draft.payload.retain(|member| QUESTION_MEMBERS.contains(&member));
    draft.extra.retain(|member, _| QUESTION_MEMBERS.contains(&member.as_str()));
    if let Some(options) = draft.payload.remove(OPTIONS).and_then(|options| options::reduce(&options)) {
        draft.payload.insert(OPTIONS, options.into());
    }
    if let Some(options) = draft.extra.shift_remove(OPTIONS).and_then(|options| options::reduce(&options)) {
        draft.extra.insert(OPTIONS.into(), options.into());
    }
    draft.extra.insert(CALL_WITHHELD.into(), true.into());
    draft.raw_event_ref = None;
    draft.refs = draft.refs.take().and_then(reviewed_refs);
    trimmed
}

/// `envelope` without the person who decided, changed a session or gave feedback, without the words of feedback, and
/// without the rule and the receivers of a step, for users. `None`: this reader gets it as it is.
#[must_use]
pub fn without_person<'d>(envelope: &Envelope<'d>, reader: Audience) -> Option<Envelope<'d>> {
    if reader != Audience::User {
        return None;
    }
    if envelope.draft.payload.as_fact().is_some_and(|step: &WaitStepFact| step.rule.is_some() || step.to.is_some()) {
        let mut public = envelope.clone();
        let step = public.draft.to_mut().payload.fact_mut::<WaitStepFact>();
        if let Some(step) = step {
            (step.rule, step.to) = (None, None);
        }
        return Some(public);
    }
    if let Some(feedback) = envelope.draft.payload.as_fact::<FeedbackFact>() {
        let given_by = feedback.given_by.as_deref().and_then(|by| decided_by::without_person(by.into()));
        let mut public = envelope.clone();
        if let Some(feedback) = public.draft.to_mut().payload.fact_mut::<FeedbackFact>() {
            feedback.text = None;
            feedback.given_by = given_by.map(Box::new).or_else(|| feedback.given_by.take());
        }
        return Some(public);
    }
    let (member, person) =
        [DECIDED_BY, UPDATED_BY].iter().find_map(|member| Some((*member, envelope.draft.payload.get(member)?)))?;
    let person = decided_by::without_person(person)?;
    let mut public = envelope.clone();
    public.draft.to_mut().payload.insert(member, person);
    Some(public)
}

/// The references to the subject under review.
fn reviewed_refs(refs: Value) -> Option<Value> {
    match refs {
        Value::Array(mut links) => {
            links.retain(|link| link.get("rel").and_then(Value::as_str).is_some_and(|rel| REVIEWED_RELATIONS.contains(&rel)));
            (!links.is_empty()).then_some(Value::Array(links))
        }
        Value::Object(mut map) => {
            map.retain(|rel, _| REVIEWED_RELATIONS.contains(&rel.as_str()));
            (!map.is_empty()).then_some(Value::Object(map))
        }
        _ => None,
    }
}
