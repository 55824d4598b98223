//! The native source `agentui`: facts that already use our vocabulary.
//!
//! A fact is an envelope-like object whose `type` is its event type. One fact gives one draft. The adapter fills
//! missing members from the event type table and from explicit payload members. It carries a member that cannot keep
//! its name under `source…`, so no input is lost and every envelope stays valid. It generates missing message and part
//! ids and reuses them for later chunks. It infers nothing from prose, and a producer cannot forge the members that the
//! server stamps.

use super::members::{RESERVED, carry, invalid_id_error, next_id, parse_timestamp};
use super::{Fact, FactError, Runtime, SourceKind};
use crate::model::id::IdError;
use crate::model::{AgentId, Audience, Draft, EventType, Ids, MessageId, PartId, Phase, Scope};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The source `agentui`.
pub const SOURCE: SourceKind = SourceKind::of::<AgentUi>("agentui");

/// The most speakers (an agent in a role) whose message and parts the adapter stores.
///
/// Beyond this limit the adapter evicts the speaker that was silent longest; its next chunk starts a new message.
const SPEAKERS_MAX: usize = 64;

/// The length of a role's name that distinguishes speakers, in characters.
///
/// The limit bounds the memory, because a producer chooses the length of the name.
const ROLE_CHARS_MAX: usize = 32;

/// Returns the prefix of generated ids.
///
/// It prevents collisions with a producer's ids and with ids that another source's adapter generates for the same run.
/// Each audience has its own prefix and counter: a reader that counts visible ids must not learn of hidden ones.
fn prefix(kind: &str, audience: Audience) -> String {
    match audience {
        Audience::User => format!("agentui-{kind}"),
        narrower => format!("agentui-{narrower}-{kind}"),
    }
}

/// Members that belong in the payload, even if a producer puts them at the top level.
///
/// First those of the protocol's table (section 3), then those that seed 003 requires of runtime entities, teams and
/// hydration.
#[rustfmt::skip]
const PAYLOAD_MEMBERS: &[&str] = &[
    "text", "role", "toolName", "input", "inputText", "status", "progress", "loaded", "total", "message", "activityType",
    "content", "replace", "patch", "channel", "output", "structured", "outputRef", "durationMs", "costUsd", "truncated",
    "untrusted", "error", "neverStarted", "kind", "schema", "options", "risk", "outcome", "value", "retryable", "result",
    "messages", "mode", "state", "expiresAt", "parameters", "responseSchema", "plan", "versionId", "attachments",

    "runtimeEntity", "runtimeStatus", "latestTurnStatus", "queuedTurnCount", "queueReason", "retryableOverload",
    "providerConcurrencyGroup", "providerParallelBudget", "items", "agentName", "teamName", "teamId", "teamPhase",
    "teamParallelBudget", "teamActiveCount", "teamQueuedCount", "source", "color", "avatar", "model", "policy", "spawnReason",
    "reason", "summary", "resultRef", "usage", "toolCount", "transcriptRef", "title", "assignee", "blocker", "priority",
    "dependencies", "artifactRefs", "evidenceRefs", "from", "to", "resumeTarget", "memoryBoundary", "contextBoundary",
    "acceptedAt", "acceptedTime", "reviewer", "target", "verdict", "requestedFixes", "policyScope", "safeInput",
    "parentRouting", "capabilityRef", "remoteTaskId", "workItemId", "inputNeeds", "authNeeds", "schedule", "wakeReason",
    "lastRunRef", "attempts", "handoffId", "reviewId", "workerNotificationId", "isWorkerNotification", "origin", "preview",
    "counts", "unread", "pinned", "stale",
];

/// A kind of content that streams as parts of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Channel {
    Text,
    Reasoning,
    Plan,
}

/// One agent in one role for one audience.
///
/// It holds the message and the parts that chunks without ids continue.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Speaker {
    agent: Option<AgentId>,
    role: String,
    audience: Audience,
    message: Option<MessageId>,
    /// The last unsealed part of each channel.
    /// A summary may arrive after the speaker has switched channels.
    parts: [Option<PartId>; 3],
    /// The channel that the next chunk continues.
    /// `None` after a tool call: every channel starts a new part.
    open: Option<Channel>,
}

/// The adapter.
/// All its fields are memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct AgentUi {
    /// Generated message ids, by audience.
    /// Hidden envelopes must not change the ids that a reader sees.
    messages_made: [u64; 3],
    parts_made: [u64; 3],
    /// At most [`SPEAKERS_MAX`], the most recent speaker last.
    speakers: Vec<Speaker>,
}

/// A parsed fact: its draft, without the ids that follow from earlier facts.
struct Event {
    draft: Draft,
    /// A message of a worker in the user's role; `true` for its end.
    notification: Option<bool>,
}

impl Runtime for AgentUi {
    type Event = Event;

    fn parse(fact: Fact) -> Result<Event, FactError> {
        let mut members = Members::default();
        for (member, value) in fact {
            members.add(Member::of(&member), value);
        }
        members.into_event()
    }

    fn parse_text(text: &[u8]) -> Option<Result<Event, FactError>> {
        let members = serde_json::from_slice::<Members>(text).ok().filter(|members| !members.is_repeated)?;
        Some(members.into_event())
    }

    fn apply(&mut self, Event { mut draft, notification }: Event, given: &Ids, out: &mut Vec<Draft>) {
        settle_run(&mut draft, given);
        if let Some(is_final) = notification {
            settle_notification(&mut draft, is_final);
        }
        self.follow(&mut draft);
        out.push(draft);
    }
}

/// The members of a fact, as they come. Most facts have no others than a type, ids and a payload.
#[derive(Default)]
struct Members {
    event_type: Option<Value>,
    ids: Ids,
    /// The first id that is none.
    bad_id: Option<(&'static str, IdError)>,
    payload: Option<Value>,
    rest: Fact,
    /// Whether a member occurs twice. Only a map knows which value counts.
    is_repeated: bool,
}

/// The name of a member.
enum Member {
    Type,
    Payload,
    Id(&'static str),
    Other(String),
}

impl Member {
    fn of(name: &str) -> Self {
        match name {
            "type" => Self::Type,
            "payload" => Self::Payload,
            _ => Ids::MEMBERS.iter().find(|id| **id == name).map_or_else(|| Self::Other(name.to_owned()), |id| Self::Id(id)),
        }
    }
}

impl Members {
    fn add(&mut self, member: Member, value: Value) {
        let before = match (member, value) {
            (Member::Type, value) => self.event_type.replace(value),
            (Member::Payload, value) => self.payload.replace(value),
            (Member::Id(name), Value::String(text)) => {
                let was_bad = self.bad_id.as_ref().is_some_and(|(bad, _)| *bad == name);
                self.is_repeated |= was_bad || self.ids.has(name) || self.rest.contains_key(name);
                if let Err(error) = self.ids.set(name, &text) {
                    self.bad_id.get_or_insert((name, error));
                }
                None
            }
            (Member::Id(name), value) => {
                self.is_repeated |= self.ids.has(name) || self.bad_id.is_some();
                self.rest.insert(name.to_owned(), value)
            }
            (Member::Other(name), value) => self.rest.insert(name, value),
        };
        self.is_repeated |= before.is_some();
    }

    fn into_event(self) -> Result<Event, FactError> {
        let Self { event_type, ids, bad_id, payload, rest, .. } = self;
        let name = event_type.as_ref().and_then(Value::as_str).filter(|name| !name.is_empty());
        let mut class = EventType::from(name.ok_or(FactError::NoType { member: "type" })?);
        let notification = is_worker_speech(&class, payload.as_ref(), &rest).then_some(class == EventType::TextFinal);
        if notification.is_some() {
            class = EventType::WorkerNotification;
        }
        if let Some((member, error)) = bad_id {
            return Err(invalid_id_error(member, &error));
        }
        let mut draft = Draft { ids, ..Draft::new(class) };
        let knows_phase = matches!(rest.get("phase"), Some(Value::String(_)));
        let permission_scope = if draft.event_type == EventType::ActionRequired { scope_of_permission(&rest) } else { None };
        draft.payload = match payload {
            Some(Value::Object(payload)) => payload,
            Some(Value::Null) | None => Map::new(),
            Some(bare) => Map::from_iter([("value".to_owned(), bare)]),
        };
        take_members(rest, &mut draft);
        if let Some(scope) = permission_scope {
            draft.payload.entry("scope").or_insert(scope);
        }
        read_ids_of_payload(&mut draft);
        if !knows_phase {
            refine_phase(&mut draft);
        }
        if draft.event_type == EventType::MessagesSnapshot {
            mark_notifications(&mut draft);
        }
        Ok(Event { draft, notification })
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Whole;
        impl<'de> Visitor<'de> for Whole {
            type Value = Members;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a fact")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some(member) = map.next_key()? {
                    members.add(member, map.next_value()?);
                }
                Ok(members)
            }
        }
        from.deserialize_map(Whole)
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Member;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Member, E> {
                Ok(Member::of(name))
            }
        }
        from.deserialize_str(Name)
    }
}

/// Whether a message in the user's role carries the mark of a worker.
///
/// The marks are `isWorkerNotification: true`, and `origin` or `source` with the value `worker` or `subagent`. Such a
/// message must never appear as the user's own words (seed 003).
fn is_worker_speech(class: &EventType, payload: Option<&Value>, rest: &Fact) -> bool {
    if !matches!(class, EventType::TextDelta | EventType::TextFinal) {
        return false;
    }
    let said = |member: &str| payload.and_then(|payload| payload.get(member)).or_else(|| rest.get(member));
    said("role").and_then(Value::as_str) == Some("user") && is_workers(said)
}

/// Reads the scope of a question's permission: a `scope` that is no scope name of the protocol.
fn scope_of_permission(rest: &Fact) -> Option<Value> {
    let scope = rest.get("scope").filter(|scope| !scope.is_null())?;
    (!scope.as_str().is_some_and(|name| Scope::NAMES.contains(&name))).then(|| scope.clone())
}

/// Whether the producer marked the message as a worker's.
/// `said` reads a member of the message.
pub(crate) fn is_workers<'a>(said: impl Fn(&str) -> Option<&'a Value>) -> bool {
    said("isWorkerNotification") == Some(&Value::Bool(true))
        || ["origin", "source"].iter().any(|m| matches!(said(m).and_then(Value::as_str), Some("worker" | "subagent")))
}

/// Adds the members of a notification to a worker's message.
///
/// The message id, if present, joins the chunks and the end into one notification. Only the end has the summary.
fn settle_notification(draft: &mut Draft, is_final: bool) {
    let id = draft.ids.message.as_ref().map(|id| Value::from(id.as_str()));
    if let Some(id) = id {
        draft.payload.entry("workerNotificationId").or_insert(id);
    }
    if let Some(text) = draft.payload.get("text").cloned().filter(|_| is_final) {
        draft.payload.entry("summary").or_insert(text);
    }
}

/// Marks the notifications among the messages of a history window.
fn mark_notifications(draft: &mut Draft) {
    let messages = draft.payload.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten();
    for message in messages.filter_map(Value::as_object_mut) {
        if message.get("role").and_then(Value::as_str) == Some("user") && is_workers(|member| message.get(member)) {
            message.insert("role".into(), "notification".into());
            let parts = message.get_mut("parts").and_then(Value::as_array_mut).into_iter().flatten();
            for part in parts.filter_map(Value::as_object_mut) {
                part.insert("kind".into(), "worker_notification".into());
            }
        }
    }
}

/// Moves the other members of the fact to their place in the draft.
fn take_members(mut fact: Fact, draft: &mut Draft) {
    take_sequence(&mut fact, draft);
    for (member, value) in fact {
        match (member.as_str(), value) {
            // Fails closed: any value but the three audience names makes the draft internal.
            ("audience", value) => {
                draft.audience = value.as_str().and_then(Audience::parse).unwrap_or_else(|| {
                    carry(draft, member, value);
                    Audience::Internal
                });
            }
            // Many serialisers write null for an absent member.
            (name, Value::Null) if RESERVED.contains(&name) || Ids::MEMBERS.contains(&name) => {}
            ("timestamp", value) => match parse_timestamp(&value) {
                Some(at) => draft.timestamp = Some(at),
                None => carry(draft, member, value),
            },
            ("owner", Value::String(name)) => draft.owner = name.as_str().into(),
            ("scope", Value::String(name)) => draft.scope = name.as_str().into(),
            ("phase", Value::String(name)) => draft.phase = name.as_str().into(),
            ("surface", Value::String(name)) => draft.surface = name.as_str().into(),
            ("persistence", Value::String(name)) => draft.persistence = name.as_str().into(),
            ("control", Value::String(name)) => draft.control = Some(name.as_str().into()),
            ("topology", Value::String(name)) => draft.topology = Some(name.as_str().into()),
            ("refs", refs @ (Value::Array(_) | Value::Object(_))) => draft.refs = Some(refs),
            ("rawEventRef", raw) => draft.raw_event_ref = Some(raw),
            (name, value) if PAYLOAD_MEMBERS.contains(&name) && !draft.payload.contains_key(name) => {
                draft.payload.insert(member, value);
            }
            (_, value) => carry(draft, member, value),
        }
    }
}

/// Takes the producer's own sequence number.
///
/// In an exported envelope it is `sourceSequence`; `sequence` is then the position in the exporting log.
fn take_sequence(fact: &mut Fact, draft: &mut Draft) {
    let own = fact.shift_remove("sourceSequence").filter(|v| !v.is_null());
    let place = fact.shift_remove("sequence").filter(|v| !v.is_null());
    draft.source_sequence = own.as_ref().and_then(Value::as_u64);
    match own {
        Some(own) if draft.source_sequence.is_none() => carry(draft, "sourceSequence".into(), own),
        _ => {}
    }
    match place {
        Some(place) if draft.source_sequence.is_none() && place.is_u64() => draft.source_sequence = place.as_u64(),
        Some(place) => drop(draft.extra.insert("sourceLogSequence".into(), place)),
        None => {}
    }
}

/// Reads ids that only the payload has.
/// The members stay there; an invalid id is the producer's data.
fn read_ids_of_payload(draft: &mut Draft) {
    for (name, value) in &draft.payload {
        if let Value::String(text) = value {
            let _ = draft.ids.set(name, text);
        }
    }
}

/// Sets the run to the run of the request.
/// A different run id in the fact becomes a reference.
fn settle_run(draft: &mut Draft, given: &Ids) {
    let own = std::mem::replace(&mut draft.ids.run, given.run.clone());
    if let Some(own) = own.filter(|own| given.run.as_ref() != Some(own)) {
        draft.add_ref("runId", own.as_str().into());
    }
    draft.ids.fill_from(given);
}

/// Sets the phase from explicit payload members.
/// The caller has checked that the fact has no phase.
fn refine_phase(draft: &mut Draft) {
    let status = draft.text("status");
    let phase = match (&draft.event_type, status) {
        (EventType::RunFinished, Some("cancelled" | "canceled")) => Phase::Cancelled,
        (EventType::RunFinished, Some("interrupted")) => Phase::Interrupted,
        (EventType::RunFinished | EventType::AgentCompleted, Some("failed")) => Phase::Failed,
        (EventType::RunStatus, Some(status)) if Phase::NAMES.contains(&status) => status.into(),
        (EventType::ToolFailed, _) if error_code(&draft.payload) == Some("cancelled") => Phase::Cancelled,
        _ => return,
    };
    draft.phase = phase;
}

fn error_code(payload: &Map<String, Value>) -> Option<&str> {
    payload.get("error")?.get("code")?.as_str()
}

impl AgentUi {
    /// Tracks the speakers, and fills in missing ids of messages and parts.
    fn follow(&mut self, draft: &mut Draft) {
        let (channel, is_final) = match draft.event_type {
            EventType::TextDelta => (Channel::Text, false),
            EventType::TextFinal => (Channel::Text, true),
            EventType::ReasoningDelta => (Channel::Reasoning, false),
            EventType::ReasoningSummary => (Channel::Reasoning, true),
            EventType::PlanDelta => (Channel::Plan, false),
            EventType::PlanFinal => (Channel::Plan, true),
            EventType::RunStarted => return self.speakers.clear(),
            EventType::ToolStarted => {
                // A call interrupts a speaker only if every reader of the speaker also sees the call.
                let is_interrupted = |s: &&mut Speaker| s.agent == draft.ids.agent && s.audience.admits(draft.audience);
                return self.speakers.iter_mut().filter(is_interrupted).for_each(|s| s.open = None);
            }
            _ => return,
        };
        self.keep_clear_of(draft);
        let mut speaker = self.take_speaker(draft, is_final);
        let is_elsewhere = draft.ids.message.is_some() && draft.ids.message != speaker.message;
        // A final event for another message does not make that message the current one.
        if is_elsewhere && is_final {
            let mut aside = Speaker { message: draft.ids.message.clone(), audience: draft.audience, ..Speaker::default() };
            self.name(&mut aside, draft, channel, is_final);
        } else {
            if is_elsewhere {
                speaker.begin(draft.ids.message.clone());
            }
            self.name(&mut speaker, draft, channel, is_final);
        }
        self.speakers.push(speaker);
    }

    /// Removes the draft's speaker from the list, or creates a new one.
    ///
    /// A final event with a narrower audience ends a message that streamed to a wider one.
    fn take_speaker(&mut self, draft: &Draft, is_final: bool) -> Speaker {
        let role: String = draft.text("role").unwrap_or("assistant").chars().take(ROLE_CHARS_MAX).collect();
        let speaks = |s: &Speaker, audience: Audience| s.agent == draft.ids.agent && s.role == role && s.audience == audience;
        let wider = Audience::ALL.into_iter().rev().filter(|audience| is_final && *audience < draft.audience);
        let mut audiences = std::iter::once(draft.audience).chain(wider);
        match audiences.find_map(|audience| self.speakers.iter().position(|s| speaks(s, audience))) {
            Some(at) => self.speakers.remove(at),
            None => {
                if self.speakers.len() == SPEAKERS_MAX {
                    self.speakers.remove(0);
                }
                Speaker { agent: draft.ids.agent.clone(), role, audience: draft.audience, ..Speaker::default() }
            }
        }
    }

    /// Sets the draft's message and part ids, generates missing ones, and updates the speaker.
    fn name(&mut self, speaker: &mut Speaker, draft: &mut Draft, channel: Channel, is_final: bool) {
        let audience = speaker.audience;
        let made = &mut self.messages_made[audience.index()];
        let message = speaker.message.get_or_insert_with(|| next_id(&prefix("message", audience), made));
        draft.ids.message = Some(message.clone());
        let part = &mut speaker.parts[channel as usize];
        let continues = part.is_some() && (is_final || speaker.open == Some(channel));
        if draft.ids.part.is_some() {
            part.clone_from(&draft.ids.part);
        } else if !(channel == Channel::Text && is_final) {
            // A final text without a part id covers the whole message, so it gets no part id.
            if !continues {
                *part = Some(next_id(&prefix("part", audience), &mut self.parts_made[audience.index()]));
            }
            draft.ids.part.clone_from(part);
        }
        match (channel, is_final) {
            (Channel::Text, true) => speaker.begin(None),
            (_, true) => {
                *part = None;
                speaker.open = speaker.open.filter(|open| *open != channel);
            }
            (_, false) => speaker.open = Some(channel),
        }
    }

    /// Advances the counters past generated ids of an imported export, so that no id repeats.
    fn keep_clear_of(&mut self, draft: &Draft) {
        fn past(made: &mut [u64; 3], id: Option<&str>, kind: &str) {
            let Some(id) = id.filter(|id| id.starts_with("agentui-")) else { return };
            for audience in Audience::ALL {
                let number = id.strip_prefix(&prefix(kind, audience)).and_then(|rest| rest.strip_prefix('-')?.parse().ok());
                let made = &mut made[audience.index()];
                *made = (*made).max(number.unwrap_or(0));
            }
        }
        past(&mut self.messages_made, draft.ids.message.as_ref().map(MessageId::as_str), "message");
        past(&mut self.parts_made, draft.ids.part.as_ref().map(PartId::as_str), "part");
    }
}

impl Speaker {
    /// Starts a message.
    /// `None`: the adapter generates its id with the next chunk.
    fn begin(&mut self, message: Option<MessageId>) {
        self.message = message;
        self.parts = [None, None, None];
        self.open = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{given, object};
    use super::*;
    use crate::model::{Control, Owner, Topology};
    use crate::source::Adapter;
    use serde_json::json;

    /// Adapts the facts one by one; saves and restores the adapter after each.
    fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
        let mut adapter = (SOURCE.fresh)();
        let mut out = Vec::new();
        for fact in facts {
            adapter.adapt(object(fact), &given(), &mut out).unwrap();
            adapter = (SOURCE.restore)(&adapter.save()).unwrap();
        }
        out
    }

    fn one(fact: Value) -> Draft {
        adapt([fact]).remove(0)
    }

    fn refusal(fact: Value) -> FactError {
        (SOURCE.fresh)().adapt(object(fact), &given(), &mut Vec::new()).unwrap_err()
    }

    /// Returns `message/part` of each draft, `-` for a missing id.
    fn names(facts: impl IntoIterator<Item = Value>) -> Vec<String> {
        let or_dash = |id: Option<&str>| id.map_or("-".to_owned(), |id| id.replace("agentui-", ""));
        let name = |d: &Draft| {
            let message = or_dash(d.ids.message.as_ref().map(MessageId::as_str));
            format!("{message}/{}", or_dash(d.ids.part.as_ref().map(PartId::as_str)))
        };
        adapt(facts).iter().map(name).collect()
    }

    #[test]
    fn the_text_of_a_fact_gives_what_its_map_gives() {
        for text in [
            r#"{"type":"text.delta","messageId":"m","payload":{"text":"a\n\u00e9"},"vendor":[1,{"x":null}]}"#,
            r#"{"payload":"bare","runId":"other","type":"run.status","sequence":3,"refs":{"a":1},"timestamp":"yesterday"}"#,
            r#"{"type":"text.final","role":"user","origin":"worker","text":"done","payload":null}"#,
            r#"{"type":"action.required","scope":{"x":1},"phase":"waiting","actionId":"a"}"#,
            r#"{"type":"text.delta","messageId":7,"partId":null,"taskId":""}"#,
            r#"{"type":"text.delta","messageId":"","partId":"\n"}"#,
            r#"{"type":"text.delta","messageId":"","messageId":"m"}"#,
            r#"{"type":"text.delta","messageId":"m","messageId":""}"#,
            r#"{"type":"text.delta","messageId":"m","messageId":7,"type":"text.final","payload":1,"payload":{}}"#,
            r#"{"type":"text.delta","messageId":7,"messageId":"m","x":1,"y":2,"x":3}"#,
            r#"{"t\u0079pe":"text.delta","type":""}"#,
            r#"{"type":7}"#,
            "{}",
        ] {
            let map = || AgentUi::parse(serde_json::from_str(text).unwrap());
            let read = |parsed: Result<Event, FactError>| parsed.map(|event| (event.draft, event.notification));
            assert_eq!(read(AgentUi::parse_text(text.as_bytes()).unwrap_or_else(map)), read(map()), "{text}");
        }
        for text in ["", "7", "[]", "{", r#"{"type":"text.delta"} x"#] {
            assert!(AgentUi::parse_text(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn hidden_facts_do_not_change_generated_ids_of_visible_drafts() {
        let ids = |facts: Vec<Value>| -> Vec<Ids> {
            let (mut adapter, mut out) = ((SOURCE.fresh)(), Vec::new());
            for fact in facts {
                adapter.adapt(object(fact), &given(), &mut out).unwrap();
            }
            out.into_iter().filter(|draft| draft.audience == Audience::User).map(|draft| draft.ids).collect()
        };
        let seen = || vec![json!({"type": "text.delta", "text": "a"}), json!({"type": "text.delta", "text": "b"})];
        let mut between = seen();
        between.insert(1, json!({"type": "tool.started", "toolCallId": "t", "audience": "internal"}));
        between.insert(1, json!({"type": "text.delta", "text": "hidden", "audience": "dashboard"}));
        between.insert(0, json!({"type": "reasoning.delta", "text": "hidden", "audience": "internal"}));
        assert_eq!(ids(between), ids(seen()));
    }

    #[test]
    fn each_member_maps_to_its_place() {
        let draft = one(json!({
            "type": "tool.started", "sequence": 7, "timestamp": "2026-01-02T03:04:05.5+02:00", "toolCallId": "c",
            "owner": "model", "scope": "tool_call", "phase": "preparing", "surface": "custom", "persistence": "ui_local",
            "control": "stop", "topology": "review_team", "audience": "dashboard", "payload": {"toolName": "x", "new": 1},
            "refs": [{"rel": "docs", "href": "/d"}], "rawEventRef": "raw/1", "flavour": {"sweet": true},
        }));
        assert_eq!(draft.source_sequence, Some(7));
        assert_eq!(draft.timestamp.as_deref(), Some("2026-01-02T01:04:05.5Z"));
        assert_eq!(draft.ids.tool_call.as_ref().unwrap().as_str(), "c");
        assert_eq!((draft.owner, draft.phase.as_str()), (Owner::Model, "preparing"));
        assert_eq!((draft.control, draft.topology), (Some(Control::Stop), Some(Topology::ReviewTeam)));
        assert_eq!(draft.audience, Audience::Dashboard);
        assert_eq!(Value::Object(draft.payload), json!({"toolName": "x", "new": 1}));
        assert_eq!(draft.refs, Some(json!([{"rel": "docs", "href": "/d"}])));
        assert_eq!(draft.raw_event_ref, Some(json!("raw/1")));
        assert_eq!(Value::Object(draft.extra), json!({"flavour": {"sweet": true}}));
    }

    #[test]
    fn times_become_utc_and_invalid_times_are_carried() {
        let time = |value: Value| {
            let draft = one(json!({"type": "run.started", "timestamp": value}));
            (draft.timestamp.map(String::from), draft.extra.get("sourceTimestamp").cloned())
        };
        assert_eq!(time(json!(1_767_225_600_000_i64)), (Some("2026-01-01T00:00:00Z".into()), None));
        assert_eq!(time(json!(1_767_225_600_000.25)), (Some("2026-01-01T00:00:00.00025Z".into()), None));
        assert_eq!(time(json!("2026-01-01T01:00:00+01:00")), (Some("2026-01-01T00:00:00Z".into()), None));
        for bad in [json!("yesterday"), json!("2026-01-01"), json!(1e300), json!(i64::MAX), json!([1])] {
            assert_eq!(time(bad.clone()), (None, Some(bad)));
        }
        assert_eq!(time(Value::Null), (None, None));
    }

    #[test]
    fn an_unknown_audience_is_internal_and_an_absent_one_is_the_event_type_s() {
        for unknown in [json!("public"), json!("User"), json!(7), json!(["user"]), Value::Null] {
            let draft = one(json!({"type": "text.delta", "text": "x", "audience": unknown}));
            assert_eq!(draft.audience, Audience::Internal);
            assert_eq!(draft.extra["sourceAudience"], unknown);
        }
        assert_eq!(one(json!({"type": "text.delta"})).audience, Audience::User);
        assert_eq!(one(json!({"type": "tool.progress"})).audience, Audience::Internal);
        assert_eq!(one(json!({"type": "tool.progress", "audience": "user"})).audience, Audience::User);
    }

    #[test]
    fn stamped_members_cannot_be_forged_and_survive_export_and_import() {
        let exported = json!({
            "type": "run.status", "eventId": "e", "sequence": 12, "sourceSequence": 3, "receivedAt": "2026-01-01T00:00:00Z",
            "startAudience": "user", "audience": "internal",
        });
        let draft = one(exported.clone());
        assert_eq!(draft.source_sequence, Some(3));
        assert_eq!(draft.start_audience, None);
        let carried = json!({
            "sourceLogSequence": 12, "sourceEventId": "e", "sourceReceivedAt": "2026-01-01T00:00:00Z",
            "sourceStartAudience": "user",
        });
        assert_eq!(Value::Object(draft.extra), carried);
        let mut again = object(exported);
        again.insert("eventId".into(), "f".into());
        again.insert("sourceEventId".into(), "e".into());
        assert_eq!(one(Value::Object(again)).extra["sourceEventId"], "e");
    }

    #[test]
    fn no_carried_member_takes_an_envelope_member_s_name() {
        let mut fact = Map::from_iter([("type".to_owned(), json!("text.delta"))]);
        for member in RESERVED.iter().chain(Ids::MEMBERS).filter(|m| **m != "type") {
            fact.insert((*member).to_owned(), json!({"odd": 1}));
        }
        let draft = one(Value::Object(fact));
        for member in RESERVED.iter().chain(Ids::MEMBERS) {
            assert!(!draft.extra.contains_key(*member), "{member}");
        }
        assert_eq!(draft.extra["sourceToolCallId"], json!({"odd": 1}));
        assert_eq!(draft.extra["sourceOwner"], json!({"odd": 1}));
        assert_eq!(draft.extra["sourceSourceSequence"], json!({"odd": 1}));
    }

    #[test]
    fn a_fact_without_a_type_or_with_a_bad_id_is_rejected_by_member() {
        for no_type in [json!({}), json!({"type": 7}), json!({"type": ""})] {
            assert_eq!(refusal(no_type), FactError::NoType { member: "type" });
        }
        let error = refusal(json!({"type": "text.delta", "messageId": "a\nb"}));
        assert_eq!(error.member(), Some("messageId"));
        let kept = one(json!({"type": "text.delta", "payload": {"messageId": "a\nb", "text": "x"}}));
        assert_eq!(kept.payload["messageId"], "a\nb");
    }

    #[test]
    fn payload_ids_are_read_and_stay_in_the_payload() {
        let draft = one(json!({"type": "tool.result", "toolCallId": "top", "payload": {"toolCallId": "low", "taskId": "t"}}));
        assert_eq!(draft.ids.tool_call.unwrap().as_str(), "top");
        assert_eq!(draft.ids.task.unwrap().as_str(), "t");
        assert_eq!(Value::Object(draft.payload), json!({"toolCallId": "low", "taskId": "t"}));
    }

    #[test]
    fn the_run_is_the_run_of_the_request() {
        let own = one(json!({"type": "run.started", "runId": "native", "refs": {"docs": "/d"}}));
        assert_eq!(own.ids.run.unwrap().as_str(), "run");
        assert_eq!(own.refs, Some(json!({"docs": "/d", "runId": "native"})));
        assert_eq!(one(json!({"type": "run.started", "runId": "run"})).refs, None);
    }

    #[test]
    fn top_level_payload_members_move_and_a_bare_payload_is_wrapped() {
        let draft = one(json!({"type": "tool.started", "toolName": "x", "input": {}, "vendor": 1}));
        assert_eq!(Value::Object(draft.payload), json!({"toolName": "x", "input": {}}));
        assert_eq!(Value::Object(draft.extra), json!({"vendor": 1}));
        let both = one(json!({"type": "text.delta", "text": "top", "payload": {"text": "low"}}));
        assert_eq!((&both.payload["text"], &both.extra["text"]), (&json!("low"), &json!("top")));
        assert_eq!(one(json!({"type": "run.status", "payload": "busy"})).payload["value"], "busy");
    }

    #[test]
    fn an_explicit_payload_status_sets_the_phase_unless_the_fact_has_one() {
        let phase = |fact: Value| one(fact).phase;
        assert_eq!(phase(json!({"type": "run.finished", "payload": {"status": "cancelled"}})), Phase::Cancelled);
        assert_eq!(phase(json!({"type": "run.finished", "status": "interrupted"})), Phase::Interrupted);
        assert_eq!(phase(json!({"type": "run.finished", "payload": {"status": "fine"}})), Phase::Completed);
        assert_eq!(phase(json!({"type": "run.status", "payload": {"status": "waiting"}})), Phase::Waiting);
        assert_eq!(phase(json!({"type": "run.status", "payload": {"status": "odd"}})), Phase::Acting);
        assert_eq!(phase(json!({"type": "agent.completed", "payload": {"status": "failed"}})), Phase::Failed);
        assert_eq!(phase(json!({"type": "tool.failed", "payload": {"error": {"code": "cancelled"}}})), Phase::Cancelled);
        assert_eq!(phase(json!({"type": "run.finished", "phase": "completed", "status": "cancelled"})), Phase::Completed);
    }

    fn said(class: &str) -> Value {
        json!({"type": class, "text": "x"})
    }

    #[test]
    fn a_message_continues_until_its_final_and_a_part_until_a_tool_or_channel_change() {
        let facts = [
            said("reasoning.delta"),
            said("text.delta"),
            said("text.delta"),
            json!({"type": "tool.started", "toolCallId": "c"}),
            said("text.delta"),
            said("reasoning.summary"),
            said("text.final"),
            said("text.delta"),
            json!({"type": "run.started"}),
            said("text.delta"),
            said("text.final"),
            said("text.final"),
        ];
        let expected = [
            "message-1/part-1",
            "message-1/part-2",
            "message-1/part-2",
            "-/-",
            "message-1/part-3",
            "message-1/part-1",
            "message-1/-",
            "message-2/part-4",
            "-/-",
            "message-3/part-5",
            "message-3/-",
            "message-4/-",
        ];
        assert_eq!(names(facts), expected);
    }

    #[test]
    fn each_agent_and_role_has_its_own_message() {
        let by = |agent: &str, role: &str| json!({"type": "text.delta", "text": "x", "agentId": agent, "role": role});
        let facts = [by("a", "assistant"), by("b", "assistant"), by("a", "user"), by("a", "assistant"), by("b", "assistant")];
        let expected = ["message-1/part-1", "message-2/part-2", "message-3/part-3", "message-1/part-1", "message-2/part-2"];
        assert_eq!(names(facts), expected);
    }

    #[test]
    fn a_producer_s_own_ids_are_kept_and_continued() {
        let facts = [
            json!({"type": "text.delta", "messageId": "m", "partId": "p", "text": "x"}),
            said("text.delta"),
            json!({"type": "text.final", "messageId": "other"}),
            said("text.delta"),
            json!({"type": "text.final", "messageId": "m"}),
            said("text.delta"),
        ];
        assert_eq!(names(facts), ["m/p", "m/p", "other/-", "m/p", "m/-", "message-1/part-1"]);
    }

    #[test]
    fn ids_generated_before_an_export_are_not_generated_again() {
        let facts = [
            json!({"type": "text.final", "messageId": "agentui-message-4", "text": "x"}),
            json!({"type": "reasoning.delta", "messageId": "m", "partId": "agentui-part-9", "text": "x"}),
            json!({"type": "run.started"}),
            said("text.delta"),
        ];
        assert_eq!(names(facts)[3], "message-5/part-10");
    }

    #[test]
    fn memory_is_bounded_and_evicts_the_longest_silent_speaker() {
        let by =
            |agent: usize| json!({"type": "text.delta", "text": "x", "agentId": format!("a{agent}"), "role": "r".repeat(9999)});
        let mut adapter = AgentUi::default();
        for agent in 0..SPEAKERS_MAX + 5 {
            adapter.adapt(object(by(agent)), &given(), &mut Vec::new()).unwrap();
        }
        assert_eq!(adapter.speakers.len(), SPEAKERS_MAX);
        assert_eq!(adapter.speakers[0].agent.as_ref().unwrap().as_str(), "a5");
        assert!(adapter.save().len() < SPEAKERS_MAX * 256);
    }

    #[test]
    fn a_worker_s_message_in_the_user_role_is_a_notification() {
        for mark in ["isWorkerNotification", "origin", "source"] {
            let value = if mark == "isWorkerNotification" { json!(true) } else { json!("subagent") };
            let draft =
                one(json!({"type": "text.final", "messageId": "m", "payload": {"role": "user", "text": "done", mark: value}}));
            assert_eq!(draft.event_type, EventType::WorkerNotification);
            assert_eq!(draft.surface.as_str(), "worker_notifications");
            assert_eq!((&draft.payload["summary"], &draft.payload["workerNotificationId"]), (&json!("done"), &json!("m")));
        }
        let user = one(json!({"type": "text.final", "payload": {"role": "user", "text": "I am a worker"}}));
        assert_eq!(user.event_type, EventType::TextFinal);
        let native = one(json!({"type": "worker.notification", "messageId": "m", "summary": "done"}));
        assert_eq!(native.payload.get("workerNotificationId"), None, "the sequence identifies the notification");
        let window = one(json!({"type": "messages.snapshot", "messages": [
            {"messageId": "m", "role": "user", "origin": "worker", "parts": [{"partId": "p", "kind": "user_text", "text": ["x"]}]},
        ]}));
        assert_eq!(window.payload["messages"][0]["role"], "notification");
        assert_eq!(window.payload["messages"][0]["parts"][0]["kind"], "worker_notification");
    }

    #[test]
    fn an_unknown_event_type_is_carried_and_internal() {
        let draft = one(json!({"type": "weather.changed", "payload": {"sky": "clear"}}));
        assert_eq!((draft.event_type.as_str(), draft.audience), ("weather.changed", Audience::Internal));
        assert_eq!(draft.payload["sky"], "clear");
    }

    #[test]
    fn unreadable_memory_is_an_error() {
        assert!((SOURCE.restore)(b"{\"speakers").is_err());
    }
}
