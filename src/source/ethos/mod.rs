//! Ethos: the loop's `AgentEvent`, and what its web server adds to that, told apart by `type`, into our vocabulary.
//!
//! One stream is one turn. Nothing on an event says which turn, message or part it is of: all of that comes from its place,
//! which is why this adapter remembers where the turn stands. `done` is not the last event and not always a success: the first
//! end holds, and a halt, a refusal and a credential that is waited for are told apart. The text that was streamed is the
//! text; `done` repeats it, or, where a tool answered in the model's place, says what was never streamed. Who may see an event
//! is said on the event itself, and whatever is said there that we do not know is for internal eyes. Never refuses an event
//! type or a member that it does not know, and never remembers a body.
//!
//! `turn` is the life of a turn, `text` what the model says and thinks, `calls` its tools, `pushes` what the web server sends
//! beside the turn.

mod calls;
mod pushes;
mod text;
mod turn;

use super::members::{carrying, diagnostic, take_text, take_type, unknown_type};
use super::print::Print;
use super::{Adapter, Fact, FactError, SourceKind};
use crate::model::{ActionId, Audience, Draft, EventType, Ids, MessageId, PartId, Scope, ToolCallId, TurnId};
use calls::{Call, Paid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::str::FromStr;

/// The source `ethos`.
pub const SOURCE: SourceKind = SourceKind {
    name: "ethos",
    fresh: || Box::new(Ethos::default()),
    restore: |memory| Ok(Box::new(serde_json::from_slice::<Ethos>(memory)?)),
    answers: None,
};

/// The discriminator.
const TYPE: &str = "type";

/// Calls that are open at once; beyond that the oldest counts as ended here. Ethos caps a turn's calls far below.
const CALLS_OPEN_MAX: usize = 256;

/// Ended calls that are still known to have started.
const CALLS_ENDED_MAX: usize = 32;

/// Results of the last batch of calls, by which a turn's text is known for a tool's.
const RESULTS_MAX: usize = 32;

/// Actions that wait for their answer at once; beyond that the oldest is answered without its call being named.
const PENDING_MAX: usize = 64;

/// Turns that were started while another was open, and whose ends are waited for.
const RIVALS_MAX: usize = 8;

/// What is remembered of a name that Ethos gives (of a tool, a trace, a rule), in characters.
const NAME_CHARS_MAX: usize = 128;

/// An address that holds the state of an OAuth exchange.
const AUTH_URL: &str = "authUrl";

/// What stands on an event for Ethos' own front end and must not be stored: that address, and what the user said before it.
const NEVER_KEPT: &[&str] = &[AUTH_URL, "pendingUserMessage"];

/// Events on which Ethos says who may see them. On any other it may do so one day: that can narrow what it is for by the
/// table, and not widen it.
const SAY_THEIR_AUDIENCE: &[&str] = &["tool_start", "tool_progress", "tool_end", "tool_approval_required"];

/// Where the turn stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Life {
    #[default]
    New,
    Open,
    /// It waits for a credential, and did not run.
    Parked,
    Ended,
}

/// An action that waits for its answer, which names the action alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pending {
    action: ActionId,
    call: Option<ToolCallId>,
}

/// The adapter; all of it is memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Ethos {
    life: Life,
    /// Turns that were started, or refused after another had ended.
    attempt: u64,
    /// What Ethos calls the turn, where it does.
    trace: Option<String>,
    /// What it calls the turns that were started while this one was open. While there are any, nobody can tell which of them
    /// an event is of.
    rivals: Vec<Option<String>>,
    /// Whether the turn asked for a credential: its `done` is no end.
    wants_credential: bool,
    /// The rule that halted the turn: its `done` is no success.
    halted: Option<String>,
    /// The message of the open turn.
    message: Option<MessageId>,
    /// That of the ended turn, to which its plan belongs.
    last_message: Option<MessageId>,
    /// The part that text continues; `None` also after a tool call, when text begins a new part.
    text: Option<PartId>,
    /// The part that thinking continues.
    thought: Option<PartId>,
    /// What was streamed of the turn's text.
    streamed: Print,
    /// Whether some of it was not, for nobody could tell whose it was.
    has_gap: bool,
    /// Whether a tool call ended after the last of it.
    ends_with_tools: bool,
    /// What the calls of the last batch gave.
    results: VecDeque<Print>,
    messages_made: u64,
    parts_made: u64,
    thoughts_made: u64,
    plans_made: u64,
    reviews_made: u64,
    /// By audience: whoever counts those that it sees must not learn of others.
    compactions_made: [u64; 3],
    calls: Vec<Call>,
    ended_calls: VecDeque<ToolCallId>,
    /// The call that ended just now: what costs money right after it is its price.
    just_ended: Option<Paid>,
    pending: Vec<Pending>,
}

/// What a member has to be for its event to mean anything.
#[derive(Debug, Clone, Copy)]
enum Need {
    Text,
    /// Text that can be an id.
    Id,
    Flag,
    List,
}

impl Need {
    fn is_met(self, value: Option<&Value>) -> bool {
        match (self, value) {
            (Self::Text, Some(Value::String(_))) | (Self::Flag, Some(Value::Bool(_))) | (Self::List, Some(Value::Array(_))) => {
                true
            }
            (Self::Id, Some(Value::String(text))) => ToolCallId::new(text).is_ok(),
            _ => false,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Id => "text that can be an id",
            Self::Flag => "a boolean",
            Self::List => "an array",
        }
    }
}

/// The members that an event cannot do without.
fn required(event_type: &str) -> &'static [(&'static str, Need)] {
    use Need::{Flag, Id, List, Text};
    match event_type {
        "text_delta" => &[("text", Text)],
        "thinking_delta" => &[("thinking", Text)],
        "tool_start" | "tool_approval_required" => &[("toolCallId", Id)],
        "tool_progress" => &[("toolName", Text)],
        "tool_end" => &[("toolCallId", Id), ("ok", Flag)],
        "tool_approval_response" => &[("toolCallId", Id), ("approved", Flag)],
        "credential_required" => &[("pluginId", Text), ("credentialKey", Text)],
        "evaluators_complete" => &[("results", List)],
        "dry_run_summary" => &[("plan", List)],
        "message_persisted" => &[("messageId", Id)],
        "approval.resolved" => &[("approvalId", Id)],
        "clarify.request" | "clarify.resolved" => &[("requestId", Id)],
        "run.update" | "cron.fired" => &[("jobId", Id)],
        _ => &[],
    }
}

impl Adapter for Ethos {
    fn adapt(&mut self, mut fact: Fact, given: &Ids, out: &mut Vec<Draft>) -> Result<(), FactError> {
        let event_type = take_type(&mut fact, TYPE)?;
        let has_address = fact.contains_key(AUTH_URL);
        fact.retain(|member, _| !NEVER_KEPT.contains(&member.as_str()));
        let at_most = if SAY_THEIR_AUDIENCE.contains(&event_type.as_str()) { Audience::User } else { audience_of(&fact) };
        let mut step = Step { given, out, at_most, just_ended: self.just_ended.take(), memory: self };
        if let Some((member, need)) = required(&event_type).iter().find(|(member, need)| !need.is_met(fact.get(*member))) {
            step.malformed(&event_type, fact, &format!("{member} as {}", need.name()));
            return Ok(());
        }
        match event_type.as_str() {
            "run_start" => step.run_start(fact),
            "done" => step.done(fact),
            "error" => step.error(fact),
            "halt" => step.halt(fact),
            "context_meta" => step.context_meta(fact),
            "usage" => step.usage(fact),
            "credential_required" => step.credential_required(fact, has_address),
            "dry_run_summary" => step.dry_run_summary(fact),
            "evaluators_complete" => step.evaluators_complete(fact),
            "text_delta" => step.text_delta(fact),
            "thinking_delta" => step.thinking_delta(fact),
            "tool_start" => step.tool_start(fact),
            "tool_progress" => step.tool_progress(fact),
            "tool_end" => step.tool_end(fact),
            "tool_approval_required" => step.approval_announced(fact),
            "tool_approval_response" => step.approval_response(fact),
            "notification_received" | "notification" => step.notification(fact),
            "message_persisted" => step.message_persisted(fact),
            "tool.approval_required" => step.approval_required(fact),
            "approval.resolved" => step.approval_resolved(fact),
            "clarify.request" => step.clarify_request(fact),
            "clarify.resolved" => step.clarify_resolved(fact),
            "run.update" => step.job_update(fact),
            "cron.fired" => step.cron_fired(fact),
            known if pushes::IS_OF_THE_HOUSE.contains(&known) => step.push(diagnostic(known, known, fact)),
            unknown => step.push(unknown_type(unknown, fact)),
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("memory has only string keys")
    }
}

/// As much of a name as is remembered.
fn name_of(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).collect()
}

/// What Ethos calls the turn that the event is of.
fn trace_of(fact: &Fact) -> Option<String> {
    fact.get("traceId").and_then(Value::as_str).filter(|trace| !trace.is_empty()).map(name_of)
}

/// Who may see the event at the most. What we do not know is for internal eyes.
fn audience_of(fact: &Fact) -> Audience {
    match fact.get("audience") {
        None | Some(Value::Null) => Audience::User,
        Some(said) => said.as_str().and_then(Audience::parse).unwrap_or(Audience::Internal),
    }
}

/// Takes who may see the event. What we do not know stays, is carried, and is for internal eyes.
fn take_audience(fact: &mut Fact, absent: Audience) -> Audience {
    let audience = match fact.get("audience") {
        None | Some(Value::Null) => Some(absent),
        Some(said) => said.as_str().and_then(Audience::parse),
    };
    if audience.is_some() {
        fact.shift_remove("audience");
    }
    audience.unwrap_or(Audience::Internal)
}

/// Takes an id that [`required`] has seen.
fn take_needed<T: FromStr>(fact: &mut Fact, member: &str) -> T {
    let text = take_text(fact, member).unwrap_or_default();
    text.parse().ok().expect("ids are of one kind of text, and this was seen to be such")
}

/// Takes a member that is a number; of any other kind it stays and is carried.
fn take_number(fact: &mut Fact, member: &str) -> Option<Value> {
    fact.get(member).filter(|value| value.is_number())?;
    fact.shift_remove(member)
}

/// Moves members as they are into the payload, by the name that they have there; JSON's null is as good as absent.
fn tell(draft: &mut Draft, fact: &mut Fact, members: &[(&str, &str)]) {
    for (member, ours) in members {
        let value = fact.shift_remove(*member).filter(|value| !value.is_null());
        draft.payload.extend(value.map(|value| ((*ours).to_owned(), value)));
    }
}

/// An action's id out of what names it, however long that is.
fn action_id(kind: &str, name: &str) -> ActionId {
    let id = ActionId::new(&format!("{kind}:{name}"));
    id.or_else(|_| ActionId::new(&format!("{kind}:{:x}", Sha256::digest(name)))).expect("a hash is short and printable")
}

impl Ethos {
    /// The draft with the ids that hold for whatever this turn now says. What was given wins over Ethos' own notion.
    fn about(&self, mut draft: Draft, given: &Ids) -> Draft {
        draft.ids.or(given);
        if self.is_interleaved() {
            if draft.class != EventType::DiagnosticChanged {
                draft.payload.insert("interleaved".into(), true.into());
            }
        } else if draft.ids.turn.is_none() && !matches!(draft.scope, Scope::Session | Scope::Task) {
            draft.ids.turn = self.trace.as_deref().and_then(|trace| TurnId::new(trace).ok());
        }
        draft
    }

    /// Whether nobody can tell which turn an event is of.
    const fn is_interleaved(&self) -> bool {
        !self.rivals.is_empty()
    }

    /// What was parked goes on after all.
    fn works(&mut self) {
        if self.life == Life::Parked {
            self.life = Life::Open;
        }
    }

    /// The message of the turn; Ethos gives it no name.
    fn message(&mut self) -> MessageId {
        if self.message.is_none() {
            self.message = Some(self.made_message());
        }
        self.message.clone().expect("just set")
    }

    // The source in made-up ids keeps them away from those that another source's adapter makes up for the same run.
    fn made_message(&mut self) -> MessageId {
        self.messages_made += 1;
        MessageId::new(&format!("ethos-message-{}", self.messages_made)).expect("a short name with a number is an id")
    }

    fn made_part(&mut self) -> PartId {
        self.parts_made += 1;
        PartId::new(&format!("ethos-part-{}", self.parts_made)).expect("a short name with a number is an id")
    }

    /// Thoughts are counted apart from text: not everybody who sees the text sees them.
    fn made_thought(&mut self) -> PartId {
        self.thoughts_made += 1;
        PartId::new(&format!("ethos-thought-{}", self.thoughts_made)).expect("a short name with a number is an id")
    }

    fn await_answer(&mut self, action: &ActionId, call: Option<ToolCallId>) {
        self.pending.retain(|pending| pending.action != *action);
        if self.pending.len() == PENDING_MAX {
            self.pending.remove(0);
        }
        self.pending.push(Pending { action: action.clone(), call });
    }

    /// Takes the action off the list; its call, if it is about one.
    fn answered(&mut self, action: &ActionId) -> Option<ToolCallId> {
        let at = self.pending.iter().position(|pending| pending.action == *action)?;
        self.pending.remove(at).call
    }
}

/// One event on its way.
struct Step<'a> {
    memory: &'a mut Ethos,
    given: &'a Ids,
    out: &'a mut Vec<Draft>,
    /// Who may see what the event becomes at the most.
    at_most: Audience,
    /// The call that the event before this one ended.
    just_ended: Option<Paid>,
}

impl Step<'_> {
    fn push(&mut self, mut draft: Draft) {
        draft.audience = draft.audience.max(self.at_most);
        let draft = self.memory.about(draft, self.given);
        self.out.push(draft);
    }

    /// The event without what makes it one: kept, and told apart from nothing.
    fn malformed(&mut self, event_type: &str, fact: Fact, expected: &str) {
        self.push(diagnostic("malformed_event", event_type, fact).with("expected", expected));
    }

    /// An event of which nobody can tell the turn, and which would be merged into another turn's: kept, and flagged.
    fn set_aside(&mut self, event_type: &str, fact: Fact) {
        self.push(diagnostic("interleaved_run", event_type, fact));
    }

    /// The draft with what is left of the event.
    fn push_carrying(&mut self, draft: Draft, rest: Fact) {
        self.push(carrying(draft, rest));
    }
}

#[cfg(test)]
mod tests;
