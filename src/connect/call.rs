//! What a protocol gets and gives: a call, and the live stream that it leads to.

use super::error::UpstreamError;
use crate::branches::LeftTurn;
use crate::control::aside::AsideKind;
use crate::log::agent_memory::Remembered;
use crate::model::branch::Fork;
use crate::model::{ActionId, Control, RunId, SessionId};
use futures_util::future::BoxFuture;
use http::HeaderMap;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use uuid::Uuid;

/// One call to an agent.
#[derive(Debug, Clone)]
pub(super) struct UpstreamCall {
    pub session: SessionId,
    pub run: RunId,
    /// The conversation before this call, from the log, in the form of AG-UI messages.
    pub history: Vec<Value>,
    pub input: TurnInput,
    /// What the agent gave in earlier calls of this run, and in its earlier runs of this session.
    pub memory: Remembered,
    /// The headers of the user's request that the agent's entry names.
    pub user_headers: HeaderMap,
    /// A random number, for an id of the agent's.
    pub nonce: u128,
    pub own_ids: OwnIds,
    /// With what the agent begins in a branch. `None`: the session is no branch, or the agent has begun in it.
    pub branch_start: Option<BranchStart>,
}

/// With what an agent begins in a branch.
#[derive(Debug, Clone)]
pub(super) enum BranchStart {
    /// With its own state after this turn.
    State(LeftTurn),
    /// With the conversation before the call, as a page would have it.
    Transcript,
}

impl UpstreamCall {
    /// The turn whose state the agent begins with in a branch.
    pub fn left_turn(&self) -> Option<&LeftTurn> {
        match &self.branch_start {
            Some(BranchStart::State(left)) => Some(left),
            _ => None,
        }
    }

    /// Whether an agent that keeps its conversations has to get what was said before this call.
    pub fn needs_transcript(&self) -> bool {
        matches!(self.branch_start, Some(BranchStart::Transcript))
    }
}

/// The agent's own ids of the calls that have another one in the log, by the log's.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnIds(pub HashMap<String, String>);

impl OwnIds {
    /// Gives the calls in messages or input items that go to the agent the ids that it knows.
    pub fn restore(&self, items: &mut [Value]) {
        for item in items.iter_mut().filter(|_| !self.0.is_empty()) {
            for member in ["toolCallId", "call_id"] {
                self.restore_id(item, member);
            }
            for (list, member) in [("toolCalls", "id"), ("parts", "toolCallId")] {
                let of_list = item.get_mut(list).and_then(Value::as_array_mut);
                of_list.into_iter().flatten().for_each(|of| self.restore_id(of, member));
            }
        }
    }

    fn restore_id(&self, of: &mut Value, member: &str) {
        if let Some(Value::String(id)) = of.get_mut(member)
            && let Some(own) = self.0.get(id)
        {
            id.clone_from(own);
        }
    }
}

/// The reason of a call.
#[derive(Debug, Clone)]
pub(super) enum TurnInput {
    /// New messages. `members` are further members of the page's request, under their own names.
    Messages { messages: Vec<UserMessage>, members: Map<String, Value> },
    /// Answers to everything that the run asked.
    Replies(Vec<ActionReply>),
    /// The server restarted in the middle of a call: read on where it was.
    Rejoin,
}

/// A message of the user.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UserMessage {
    pub id: String,
    pub text: String,
    /// Its content as AG-UI has it: text, or a list of parts.
    pub content: Value,
}

/// A user's answer to an action.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ActionReply {
    pub action: ActionId,
    pub control: Control,
    pub value: Option<Value>,
    /// The pending action as internal readers see it.
    pub asked: Map<String, Value>,
}

impl ActionReply {
    /// Whether the user approved, where the action asks for permission.
    pub fn is_approved(&self) -> bool {
        match &self.value {
            Some(value) => crate::control::rules::approval_of(value).unwrap_or(self.control != Control::Reject),
            None => self.control != Control::Reject,
        }
    }

    /// The outcome in the words of `action.resolved`.
    pub fn outcome(&self) -> &'static str {
        match self.control {
            Control::Answer => "answered",
            _ if self.is_approved() => "approved",
            _ => "rejected",
        }
    }

    /// The option of the pending action that the user chose.
    pub fn chosen_option(&self) -> Option<&Value> {
        let chosen = self.value.as_ref()?.get("optionId")?;
        self.asked.get("options")?.as_array()?.iter().find(|option| option.get("optionId") == Some(chosen))
    }

    /// The answer in the source's own words, where the chosen option states it.
    pub fn with_own_value(self) -> Self {
        let is_choice = self.value.as_ref().and_then(Value::as_object).is_some_and(|members| members.len() == 1);
        let own = self.chosen_option().and_then(|option| option.get("value")).filter(|_| is_choice).cloned();
        Self { value: own.or_else(|| self.value.clone()), ..self }
    }

    /// The agent's own id of the action.
    pub fn own_action(&self) -> &str {
        self.asked("sourceActionId").unwrap_or(self.action.as_str())
    }

    /// A text member of the pending action.
    pub fn asked(&self, member: &str) -> Option<&str> {
        self.asked.get(member).and_then(Value::as_str)
    }

    /// The reason that the user gave, if any.
    pub fn reason(&self) -> Option<&str> {
        let value = self.value.as_ref()?;
        value.as_str().or_else(|| ["reason", "message", "comment", "text"].iter().find_map(|name| value.get(name)?.as_str()))
    }
}

/// How long an agent waits for the answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuestionLife {
    /// Until it is answered: an answer names the question, and the agent knows it.
    UntilAnswered,
    /// Until the session's thread gets new input, which abandons the question without a word.
    UntilNewInput,
    /// As long as the call that asked is open.
    WithinCall,
}

/// A step of a call.
pub(super) type Step<'a, T> = BoxFuture<'a, Result<T, UpstreamError>>;

/// A way to call agents.
pub(super) trait Protocol: Send + Sync {
    /// Begins a call. It resolves once the agent has accepted it.
    fn call<'a>(&'a self, call: &'a UpstreamCall) -> Step<'a, Box<dyn Upstream>>;

    /// Whether a call that the restart of this server cut off can be read on, by what the run remembers.
    fn can_rejoin(&self, _memory: &Remembered) -> bool {
        false
    }

    /// Judges an edit of what a pending action asks about, before the agent gets it.
    ///
    /// # Errors
    /// Why the agent cannot get it, for the user.
    fn check_edit(&self, _edit: &ActionReply) -> Result<(), &'static str> {
        Err("The agent takes no changed arguments. Approve or reject the action.")
    }

    /// Whether the agent takes images, where that is its own to say: `false` until it has started. `None`: it does.
    fn states_images(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// How long the agent waits for an answer.
    fn question_life(&self) -> QuestionLife {
        QuestionLife::UntilAnswered
    }

    /// The ids of the questions that the agent still asks, before it gets answers. `None`: it does not say.
    fn open_questions<'a>(&'a self, _call: &'a UpstreamCall) -> Step<'a, Option<HashSet<String>>> {
        Box::pin(ready(Ok(None)))
    }

    /// What the agent knows in a branch that leaves it after this turn.
    fn fork_of(&self, _left: &LeftTurn) -> Fork {
        Fork::Transcript
    }

    /// Copies the agent's state after a turn for the branch of a call. The log remembers what it gives before the call
    /// begins, so that a repeated call copies nothing again.
    fn copy_state<'a>(&'a self, _call: &'a UpstreamCall, _left: &'a LeftTurn) -> Step<'a, Remembered> {
        Box::pin(ready(Ok(Remembered::default())))
    }

    /// Whether the protocol carries a page's request of this kind, which no message comes with.
    fn carries(&self, _kind: AsideKind) -> bool {
        false
    }

    /// Whether the agent goes on with a call whose connection was closed. Only [`Upstream::cancel`] then stops it.
    fn outlives_connection(&self) -> bool {
        false
    }
}

/// A live call. Dropping it closes the connection, or ends the process.
pub(super) trait Upstream: Send {
    /// The next facts, each as one line of JSON; `None` at the end of the stream. Cancel safe.
    fn next(&mut self) -> Step<'_, Option<Vec<String>>>;

    /// Native facts that complete the log after a stream that ended without an end or a pause in the log.
    fn conclude(&mut self) -> Step<'_, Vec<Value>> {
        let why = "The endpoint closed its stream before the run ended.";
        Box::pin(ready(Err(UpstreamError::cut(why))))
    }

    /// Asks the agent to stop. `true`: the stream will still report the end.
    fn cancel(&mut self) -> Step<'_, bool> {
        Box::pin(ready(Ok(false)))
    }

    /// Gives an answer to the running agent. `false`: this call takes none, and another call must bring it.
    fn reply<'a>(&'a mut self, _reply: &'a ActionReply) -> Step<'a, bool> {
        Box::pin(ready(Ok(false)))
    }

    /// Gives a message to the running agent. `false`: this protocol cannot.
    fn steer<'a>(&'a mut self, _text: &'a str) -> Step<'a, bool> {
        Box::pin(ready(Ok(false)))
    }

    /// What the agent gave since the last call of this function, and later calls need.
    ///
    /// It is stored with the facts that [`Self::next`] returned last.
    fn news(&mut self) -> Remembered {
        Remembered::default()
    }
}

/// A UUID made from these parts: the same for the same parts.
pub(super) fn uuid_of(parts: &[&str]) -> Uuid {
    let hash = Sha256::digest(parts.join("\0"));
    uuid::Builder::from_custom_bytes(std::array::from_fn(|n| hash[n])).into_uuid()
}

/// Calls for the tests of protocols.
#[cfg(test)]
pub(super) mod samples {
    use super::{ActionReply, OwnIds, Remembered, TurnInput, UpstreamCall};
    use crate::model::{ActionId, Control, RunId, SessionId};
    use serde_json::Value;

    pub(in crate::connect) fn call(history: Vec<Value>, input: TurnInput) -> UpstreamCall {
        let (session, run) = (SessionId::new("s").unwrap(), RunId::new("r").unwrap());
        let (memory, user_headers, own_ids) = (Remembered::default(), http::HeaderMap::new(), OwnIds::default());
        UpstreamCall { session, run, history, input, memory, user_headers, nonce: 0, own_ids, branch_start: None }
    }

    /// An answer; `null` is no value.
    pub(in crate::connect) fn reply(action: &str, control: Control, value: Value, asked: Value) -> ActionReply {
        let Value::Object(asked) = asked else { panic!("{asked} is no action") };
        ActionReply {
            action: ActionId::new(action).unwrap(),
            control,
            value: Some(value).filter(|value| !value.is_null()),
            asked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_go_to_the_agent_under_the_ids_that_it_gave() {
        let own_ids = OwnIds(HashMap::from([("call_0~2".to_owned(), "call_0".to_owned())]));
        let mut items = [
            json!({ "id": "call_0~2", "role": "assistant", "toolCalls": [{ "id": "call_0" }, { "id": "call_0~2" }] }),
            json!({ "role": "tool", "toolCallId": "call_0~2", "content": "call_0~2" }),
            json!({ "role": "assistant", "parts": [{ "type": "tool-ls", "toolCallId": "call_0~2", "output": "call_0~2" }] }),
            json!({ "type": "function_call_output", "call_id": "call_0~2", "output": "call_0~2" }),
        ];
        own_ids.restore(&mut items);
        let expected = [
            json!({ "id": "call_0~2", "role": "assistant", "toolCalls": [{ "id": "call_0" }, { "id": "call_0" }] }),
            json!({ "role": "tool", "toolCallId": "call_0", "content": "call_0~2" }),
            json!({ "role": "assistant", "parts": [{ "type": "tool-ls", "toolCallId": "call_0", "output": "call_0~2" }] }),
            json!({ "type": "function_call_output", "call_id": "call_0", "output": "call_0~2" }),
        ];
        assert_eq!(items, expected);
        let asked = json!({ "sourceActionId": "the runtime's", "toolCallId": "c" });
        let reply = samples::reply("made", Control::Approve, Value::Null, asked);
        assert_eq!(reply.own_action(), "the runtime's");
    }
}
