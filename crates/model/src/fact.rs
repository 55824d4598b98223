//! A fact's payload: what the fact says, by the family of its event type.

pub use super::families::*;
pub use super::field::{FactFamily, MemberMut, MemberRef};
use super::json::write_text;
use super::taxonomy::EventType;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::{Borrow, BorrowMut, Cow};
use std::fmt;

/// A family that payloads hold.
pub trait InPayload: FactFamily {
    /// The payload's fact, if it is of this family.
    fn of(payload: &Payload) -> Option<&Self>;

    /// As [`Self::of`].
    fn of_mut(payload: &mut Payload) -> Option<&mut Self>;
}

/// Defines the families: the event types of each, and where a payload holds its struct.
macro_rules! families {
    ($($(#[doc = $about:literal])+ $family:ident: $fact:ident in $held:ty = $($event_type:ident)|+;)+) => {
        /// A family of event types, by what their payloads have in common.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Family {
            $($(#[doc = $about])+ $family,)+
            /// Unknown event types.
            Open,
        }

        impl Family {
            /// Every family with a struct.
            pub const TYPED: &[Self] = &[$(Self::$family),+];

            /// The names of its members.
            #[must_use]
            pub const fn members(self) -> &'static [&'static str] {
                match self {
                    $(Self::$family => $fact::MEMBERS,)+
                    Self::Open => &[],
                }
            }

            /// The JSON Schema of its payload, with the schema's name.
            #[must_use]
            pub fn schema(self) -> (String, Value) {
                match self {
                    $(Self::$family => (format!("{}Payload", stringify!($family).to_ascii_lowercase()), $fact::schema()),)+
                    Self::Open => ("payload".to_owned(), true.into()),
                }
            }
        }

        impl From<&EventType> for Family {
            fn from(event_type: &EventType) -> Self {
                match event_type {
                    $($(EventType::$event_type)|+ => Self::$family,)+
                    EventType::Other(_) => Self::Open,
                }
            }
        }

        /// What a fact says, by the family of its event type.
        ///
        /// Words stand in it as they are: most facts are words. All others are boxed, so that it stays small.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Payload {
            $($(#[doc = $about])+ $family($held),)+
            /// A payload of an unknown event type.
            Open(Map<String, Value>),
        }

        $(impl InPayload for $fact {
            fn of(payload: &Payload) -> Option<&Self> {
                match payload {
                    Payload::$family(fact) => Some(fact.borrow()),
                    _ => None,
                }
            }

            fn of_mut(payload: &mut Payload) -> Option<&mut Self> {
                match payload {
                    Payload::$family(fact) => Some(fact.borrow_mut()),
                    _ => None,
                }
            }
        })+

        impl Payload {
            /// The family of its event type.
            #[must_use]
            pub const fn family(&self) -> Family {
                match self {
                    $(Self::$family(_) => Family::$family,)+
                    Self::Open(_) => Family::Open,
                }
            }

            /// The payload with these members.
            #[must_use]
            pub fn read(family: impl Into<Family>, members: Map<String, Value>) -> Self {
                match family.into() {
                    $(Family::$family => Self::$family($fact::from(members).into()),)+
                    Family::Open => Self::Open(members),
                }
            }

            /// The empty payload of a family, or of an event type.
            #[must_use]
            pub fn empty(family: impl Into<Family>) -> Self {
                match family.into() {
                    $(Family::$family => Self::$family(<$held>::default()),)+
                    Family::Open => Self::Open(Map::new()),
                }
            }

            /// The payload as a JSON object, in the order of writing.
            #[must_use]
            pub fn into_map(self) -> Map<String, Value> {
                match self {
                    $(Self::$family(fact) => fact.into_map(),)+
                    Self::Open(map) => map,
                }
            }

            /// The members without a field: all of an open payload.
            #[must_use]
            pub const fn open(&self) -> &Map<String, Value> {
                match self {
                    $(Self::$family(fact) => &fact.extra,)+
                    Self::Open(map) => map,
                }
            }

            /// As [`Self::open`]. A member with a field must not be added here.
            pub const fn open_mut(&mut self) -> &mut Map<String, Value> {
                match self {
                    $(Self::$family(fact) => &mut fact.extra,)+
                    Self::Open(map) => map,
                }
            }

            /// The value of a member.
            #[must_use]
            pub fn get(&self, member: &str) -> Option<MemberRef<'_>> {
                match self {
                    $(Self::$family(fact) => fact.get(member),)+
                    Self::Open(map) => map.get(member).map(MemberRef::from),
                }
            }

            /// Sets a member.
            pub fn insert(&mut self, member: impl AsRef<str> + Into<String>, value: Value) {
                match self {
                    $(Self::$family(fact) => fact.insert(member, value),)+
                    Self::Open(map) => drop(map.insert(member.into(), value)),
                }
            }

            /// Removes a member, and returns its value.
            pub fn remove(&mut self, member: &str) -> Option<Value> {
                match self {
                    $(Self::$family(fact) => fact.remove(member),)+
                    Self::Open(map) => map.shift_remove(member),
                }
            }

            /// Whether it has no member.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                match self {
                    $(Self::$family(fact) => fact.is_empty(),)+
                    Self::Open(map) => map.is_empty(),
                }
            }

            /// Shows every member, in the order of writing.
            pub fn each<'m>(&'m self, mut see: impl FnMut(&'m str, MemberRef<'m>)) {
                match self {
                    $(Self::$family(fact) => fact.each(see),)+
                    Self::Open(map) => map.iter().for_each(|(name, value)| see(name, value.into())),
                }
            }

            /// Changes every field that may have text. The other members are in [`Self::open_mut`].
            pub fn each_field_mut(&mut self, change: impl FnMut(&'static str, MemberMut<'_>)) {
                match self {
                    $(Self::$family(fact) => fact.each_mut(change),)+
                    Self::Open(_) => {}
                }
            }
        }
    };
}

families! {
    /// Tool calls.
    Call: CallFact in Box<CallFact> =
        ToolStarted | ToolArgs | ToolProgress | ToolOutputDelta | ToolResult | ToolFailed;
    /// Texts, reasoning and plans.
    Words: WordsFact in WordsFact = TextDelta | TextFinal | ReasoningDelta | ReasoningSummary | PlanDelta | PlanFinal;
    /// Runs.
    Run: RunFact in Box<RunFact> = RunStarted | RunStatus | RunFinished | RunFailed;
    /// Requests that wait for a decision.
    Action: ActionFact in Box<ActionFact> = ActionRequired | ActionResolved;
    /// Controls on their way to their owner.
    Control: ControlFact in Box<ControlFact> = ControlChanged;
    /// Steps of rules on actions that wait.
    WaitStep: WaitStepFact in Box<WaitStepFact> = ActionReminded | ActionEscalated;
    /// What people say of an answer.
    Feedback: FeedbackFact in Box<FeedbackFact> = FeedbackGiven;
    /// Agents.
    Agent: AgentFact in Box<AgentFact> = AgentChanged | AgentSpawned | AgentCompleted;
    /// Tasks and work items.
    Task: TaskFact in Box<TaskFact> = TaskChanged;
    /// Teams.
    Team: TeamFact in Box<TeamFact> = TeamChanged;
    /// Hand-offs of work.
    Handoff: HandoffFact in Box<HandoffFact> = AgentHandoff;
    /// Reports of workers.
    Notification: NotificationFact in Box<NotificationFact> = WorkerNotification;
    /// Reviews.
    Review: ReviewFact in Box<ReviewFact> = ReviewRequested | ReviewCompleted;
    /// Artifacts.
    Artifact: ArtifactFact in Box<ArtifactFact> =
        ArtifactCreated | ArtifactUpdated | ArtifactPreviewReady | ArtifactVersionCreated | ArtifactDiffReady
        | ArtifactExportStarted | ArtifactExportCompleted | ArtifactFailed | ArtifactDeleted | ArtifactChanged;
    /// Evidence.
    Evidence: EvidenceFact in Box<EvidenceFact> = EvidenceChanged;
    /// Queued turns.
    Queue: QueueFact in Box<QueueFact> = QueueChanged;
    /// Sessions.
    Session: SessionFact in Box<SessionFact> = SessionOpened | SessionHydrated | SessionUpdated | SessionClosed;
    /// The model's input.
    Context: ContextFact in Box<ContextFact> = ContextChanged;
    /// Compactions of the model's memory.
    Compaction: CompactionFact in Box<CompactionFact> = ContextCompactionStarted | ContextCompactionCompleted;
    /// Permissions.
    Permission: PermissionFact in Box<PermissionFact> = PermissionChanged;
    /// The application's state, and activities that sources name.
    State: StateFact in Box<StateFact> = StateSnapshot | StateDelta;
    /// Windows of the history.
    Messages: MessagesFact in Box<MessagesFact> = MessagesSnapshot;
    /// Costs and durations.
    Metric: MetricFact in Box<MetricFact> = MetricChanged;
    /// Entries for operators.
    Diagnostic: DiagnosticFact in Box<DiagnosticFact> = DiagnosticChanged;
}

impl Payload {
    /// The payload of any value. Null is an empty one, and a value that is no object becomes its `value`.
    #[must_use]
    pub fn of_value(family: impl Into<Family>, value: Value) -> Self {
        match value {
            Value::Object(members) => Self::read(family, members),
            Value::Null => Self::empty(family),
            bare => Self::read(family, Map::from_iter([("value".to_owned(), bare)])),
        }
    }

    /// The same members as the payload of another family.
    #[must_use]
    pub fn into_family(self, family: impl Into<Family>) -> Self {
        let family = family.into();
        if self.family() == family { self } else { Self::read(family, self.into_map()) }
    }

    /// The payload as a JSON value, in the order of writing.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.clone().into_map())
    }

    /// What it says, if its event type is of this family.
    #[must_use]
    pub fn as_fact<F: InPayload>(&self) -> Option<&F> {
        F::of(self)
    }

    /// What it says as one of this family, with members of the envelope's top level in place of its own.
    #[must_use]
    pub fn overlaid<F: InPayload>(&self, top: &Map<String, Value>) -> Cow<'_, F> {
        let other = || Cow::Owned(self.clone().into_map().into());
        F::overlaid(self.as_fact().map_or_else(other, Cow::Borrowed), top)
    }

    /// As [`Self::as_fact`].
    pub fn fact_mut<F: InPayload>(&mut self) -> Option<&mut F> {
        F::of_mut(self)
    }

    /// The text of a member, if it is text.
    #[must_use]
    pub fn text(&self, member: &str) -> Option<&str> {
        self.get(member)?.text()
    }

    /// Whether it has a member.
    #[must_use]
    pub fn contains_key(&self, member: &str) -> bool {
        self.get(member).is_some()
    }

    /// Sets a member, unless the payload has it.
    pub fn insert_missing(&mut self, member: impl AsRef<str> + Into<String>, value: impl Into<Value>) {
        if !self.contains_key(member.as_ref()) {
            self.insert(member, value.into());
        }
    }

    /// Keeps the members of these names.
    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        let mut dropped = Vec::new();
        self.each(|name, _| dropped.extend((!keeps(name)).then(|| name.to_owned())));
        for name in dropped {
            self.remove(&name);
        }
    }

    /// Whether a member is `true`.
    #[must_use]
    pub fn is_true(&self, member: &str) -> bool {
        self.get(member) == Some(MemberRef::Flag(true))
    }

    /// Appends the JSON to `out`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        let before = out.len();
        self.each(|name, member| {
            if out.len() > before {
                out.push(b',');
            }
            write_text(out, name);
            out.push(b':');
            member.write_json(out);
        });
        out.push(b'}');
    }
}

impl Extend<(String, Value)> for Payload {
    fn extend<T: IntoIterator<Item = (String, Value)>>(&mut self, members: T) {
        for (member, value) in members {
            self.insert(member, value);
        }
    }
}

impl Serialize for Payload {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(to)
    }
}

/// Reads a payload in one pass, if it is an object or null. Any other value is an error: [`Payload::of_value`] takes it.
pub struct PayloadSeed(pub Family);

impl<'de> DeserializeSeed<'de> for PayloadSeed {
    type Value = Payload;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Payload, D::Error> {
        from.deserialize_any(self)
    }
}

/// By this name the parser marks an object that stands for a number. A payload with it could not be read again.
const NUMBER: &str = "$serde_json::private::Number";

/// A member's name, borrowed if its JSON text has no escapes.
#[derive(Deserialize)]
struct Name<'n>(#[serde(borrow)] Cow<'n, str>);

impl<'de> Visitor<'de> for PayloadSeed {
    type Value = Payload;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a payload")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Payload, A::Error> {
        let mut payload = Payload::empty(self.0);
        while let Some(Name(name)) = map.next_key()? {
            if name == NUMBER {
                return Err(Error::custom("the payload has the name by which the parser marks numbers"));
            }
            payload.insert(name, map.next_value()?);
        }
        Ok(payload)
    }

    fn visit_unit<E: Error>(self) -> Result<Payload, E> {
        Ok(Payload::empty(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ids;
    use serde_json::json;

    const TYPES: [EventType; 3] = [EventType::ToolResult, EventType::TextDelta, EventType::RunStarted];

    fn parse(event_type: &EventType, text: &str) -> Payload {
        PayloadSeed(event_type.into()).deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap()
    }

    /// The payload's JSON as it is written.
    fn written(payload: &Payload) -> Value {
        let mut json = Vec::new();
        payload.write_json(&mut json);
        serde_json::from_slice(&json).unwrap()
    }

    #[test]
    fn every_payload_is_written_with_all_its_members_whatever_their_types() {
        let odd = json!({"text": 7, "toolName": null, "output": {"a": [1, "x"]}, "role": "user", "untrusted": "yes",
            "withheld": true, "durationMs": 3, "progress": 0.5, "ofTomorrow": [1], "\"": "\n"});
        for event_type in TYPES {
            let members = odd.as_object().unwrap().clone();
            let (parsed, read) = (parse(&event_type, &odd.to_string()), Payload::read(&event_type, members));
            assert_eq!(parsed, read);
            assert_eq!((written(&parsed), parsed.to_value()), (odd.clone(), odd.clone()), "{event_type}");
            for other in &TYPES {
                assert_eq!(written(&parsed.clone().into_family(other)), odd);
            }
            for (name, value) in odd.as_object().unwrap() {
                assert_eq!(parsed.get(name).map(MemberRef::into_value).as_ref(), Some(value));
                let mut rest = parsed.clone();
                assert_eq!(rest.remove(name).as_ref(), Some(value));
                assert!(!rest.contains_key(name));
            }
        }
    }

    #[test]
    fn a_member_has_one_value_by_its_last_type() {
        let mut payload = parse(&EventType::ToolStarted, r#"{"toolName": 7, "toolName": "a", "input": 1, "input": 2}"#);
        assert_eq!(written(&payload), json!({"toolName": "a", "input": 2}));
        payload.insert("toolName", json!(["b"]));
        assert_eq!(written(&payload), json!({"input": 2, "toolName": ["b"]}));
        payload.fact_mut::<CallFact>().unwrap().tool_name = Some("c".into());
        assert_eq!(written(&payload), json!({"toolName": "c", "input": 2}));
        assert_eq!(payload.to_value(), written(&payload));
    }

    #[test]
    fn a_payload_that_is_no_object_is_a_value_or_nothing() {
        for event_type in TYPES {
            for bare in [json!([1]), json!("x"), json!(7), json!(false)] {
                assert_eq!(written(&Payload::of_value(&event_type, bare.clone())), json!({ "value": bare }));
            }
            assert!(parse(&event_type, "{}").is_empty() && parse(&event_type, "null").is_empty());
            assert!(Payload::of_value(&event_type, Value::Null).is_empty());
        }
    }

    #[test]
    fn what_the_parser_takes_for_a_number_is_no_object() {
        for text in ["7", "1.5", r#"{"$serde_json::private::Number": "7"}"#, r#"{"$serde_json::private::Number": "x", "a": 1}"#] {
            let from = &mut serde_json::Deserializer::from_str(text);
            assert!(PayloadSeed(Family::Open).deserialize(from).is_err(), "{text}");
        }
    }

    #[test]
    fn no_field_has_the_name_of_an_id() {
        for family in Family::TYPED {
            let ids: Vec<_> = family.members().iter().filter(|name| Ids::member(name).is_some()).collect();
            assert!(ids.is_empty(), "{family:?}: {ids:?}");
        }
    }

    #[test]
    fn the_schema_describes_every_member() {
        for family in Family::TYPED {
            let (_, schema) = family.schema();
            let described: Vec<_> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(described, family.members());
        }
    }

    #[test]
    fn a_payload_is_as_large_as_its_words() {
        assert!(size_of::<Payload>() <= size_of::<WordsFact>() + size_of::<usize>());
    }
}
