//! The questions of a log, followed from draft to draft.

use crate::log::control::{TOOL_BYTES_MAX, WaitState};
use crate::log::question::{CLOSED_QUESTIONS_MAX, Publishers, Question, QuestionState};
use crate::model::json::hash_sorted;
use crate::model::version::QUESTION_VERSION;
use crate::model::{ActionId, ActionOutcome, Audience, CallFact, Draft, Envelope, EventType, Sequence, ToolCallId};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Calls whose input and tool may still become a question's.
const INPUTS_MAX: usize = 64;
/// Pending questions of one call whose input is followed: each input changes all of them.
const CALL_QUESTIONS_MAX: usize = 256;

/// Members of a request that say nothing about what is asked.
const NOT_CONTENT: &[&str] = &["expiresAt", "status", "attempt", "decidedBy", "resolvedBy", QUESTION_VERSION];

/// The questions of a log.
#[derive(Default)]
pub(super) struct Questions {
    known: HashMap<ActionId, Question>,
    /// The pending questions of each call.
    by_call: HashMap<ToolCallId, BTreeSet<ActionId>>,
    /// The closed questions, the oldest first. All others are pending.
    closed: BTreeSet<(Sequence, ActionId)>,
    /// Questions that changed or were forgotten since the last save.
    changed: BTreeSet<ActionId>,
    /// Hashes of the last inputs. Only a cache: after a restart, an input counts as not known.
    inputs: VecDeque<(ToolCallId, Box<str>)>,
    /// The tools of the last calls. Only a cache: after a restart, a call's tool counts as not known.
    tools: VecDeque<(ToolCallId, Box<str>)>,
}

/// What a draft says about a call's input.
enum Input {
    Whole(Box<str>),
    Chunk,
}

impl Input {
    fn of(draft: &Draft) -> Option<Self> {
        let call = draft.payload.as_fact::<CallFact>()?;
        match call.input.as_deref().filter(|input| !input.is_null()) {
            Some(input) => Some(Self::Whole(hash_sorted(input).into())),
            None => call.input_text.is_some().then_some(Self::Chunk),
        }
    }
}

impl Questions {
    /// The questions that a log has saved.
    pub fn restore(known: HashMap<ActionId, Question>) -> Self {
        let mut questions = Self::default();
        for (action, question) in &known {
            match question.state {
                QuestionState::Pending => questions.follow_call(action, question),
                QuestionState::Resolved | QuestionState::Expired => {
                    questions.closed.insert((question.asked, action.clone()));
                }
            }
        }
        Self { known, ..questions }
    }

    pub fn get(&self, action: &ActionId) -> Option<&Question> {
        self.known.get(action)
    }

    /// The tool of one of the last calls.
    pub fn tool_of(&self, call: &ToolCallId) -> Option<&str> {
        self.tools.iter().find(|(known, _)| known == call).map(|(_, tool)| &**tool)
    }

    /// The pending questions about a call.
    pub fn about_call(&self, call: &ToolCallId) -> impl Iterator<Item = &ActionId> {
        self.by_call.get(call).into_iter().flatten()
    }

    /// The actions whose questions changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<ActionId> {
        std::mem::take(&mut self.changed)
    }

    /// Notes what a draft changes of a question, and marks a draft that makes it another version.
    ///
    /// [`Self::place`] follows once the draft has its place. `publisher` is the `sub` of the token that published it.
    pub fn mark(&mut self, draft: &mut Draft, publisher: Option<&str>) {
        match draft.event_type {
            EventType::ActionRequired => self.mark_request(draft, publisher),
            EventType::ToolStarted | EventType::ToolArgs => self.mark_input(draft),
            _ => {}
        }
    }

    fn mark_request(&mut self, draft: &mut Draft, publisher: Option<&str>) {
        remove_member(draft, QUESTION_VERSION);
        let Some(action) = draft.ids.action.clone() else { return };
        let content = content_of(draft);
        let known = self.known.get(&action);
        let is_other = known.is_none_or(|known| *known.content != *content);
        let is_opened = known.is_none_or(|known| known.state != QuestionState::Pending);
        let mut question = known.cloned().unwrap_or_default();
        if is_other {
            question.whole.number += u32::from(known.is_some());
            question.request.number += u32::from(known.is_some());
            (question.whole.since, question.request.since) = (Sequence::NONE, Sequence::NONE);
        }
        if is_opened {
            (question.opened, question.publishers) = (Sequence::NONE, Publishers::default());
        }
        if let Some(sub) = publisher {
            question.publishers.add(sub);
        }
        if is_opened || is_other {
            question.changed = Sequence::NONE;
        }
        draft.request_version = Some(question.request.number);
        if question.whole.number > 1 {
            draft.payload.insert(QUESTION_VERSION, question.whole.number.into());
        }
        let call = draft.ids.tool_call.clone();
        let input = call.as_ref().and_then(|call| self.inputs.iter().find(|(known, _)| known == call));
        let input = input.map(|(_, input)| input.clone());
        question.input = input.or_else(|| question.input.take().filter(|_| question.call == call));
        question.approvals = WaitState::of(draft).approvals;
        (question.call, question.content) = (call, content.into());
        self.open(action, question);
    }

    fn mark_input(&mut self, draft: &mut Draft) {
        remove_member(draft, QUESTION_VERSION);
        let tool = draft.payload.as_fact().and_then(|fact: &CallFact| fact.tool_name.as_deref());
        if let (Some(call), Some(tool)) = (&draft.ids.tool_call, tool.filter(|tool| tool.len() <= TOOL_BYTES_MAX))
            && self.tool_of(call) != Some(tool)
        {
            self.tools.retain(|(known, _)| known != call);
            self.tools.truncate(INPUTS_MAX - 1);
            self.tools.push_front((call.clone(), tool.into()));
        }
        let (Some(call), Some(input)) = (&draft.ids.tool_call, Input::of(draft)) else { return };
        // Versions are visible, so an input that users may not see makes none. It still moves the question's place.
        let is_shown = draft.audience == Audience::User;
        let mut version = None;
        for action in self.by_call.get(call).into_iter().flatten() {
            let question = self.known.get_mut(action).expect("a pending question is known");
            if !is_shown {
                question.whole.since = Sequence::NONE;
                self.changed.insert(action.clone());
                continue;
            }
            let is_other = match (&input, &question.input) {
                (Input::Whole(new), Some(known)) if new == known => continue,
                (_, known) => known.is_some(),
            };
            question.input = if let Input::Whole(input) = &input { Some(input.clone()) } else { None };
            question.whole.since = Sequence::NONE;
            if is_other {
                question.whole.number += 1;
                version = Some(question.whole.number.into());
            }
            self.changed.insert(action.clone());
        }
        if let (Some(payload), Some(version)) = (draft.payload.fact_mut::<CallFact>(), version) {
            payload.question_version = Some(version);
        }
        if let (Input::Whole(input), true) = (input, is_shown) {
            self.inputs.truncate(INPUTS_MAX - 1);
            self.inputs.push_front((call.clone(), input));
        }
    }

    /// Follows an envelope that has its place.
    pub fn place(&mut self, envelope: &Envelope) {
        let draft = &envelope.draft;
        match draft.event_type {
            EventType::ActionRequired => {
                let Some(question) = draft.ids.action.as_ref().and_then(|action| self.known.get_mut(action)) else { return };
                let asked = std::mem::replace(&mut question.asked, envelope.sequence);
                if let Some((_, action)) = draft.ids.action.clone().and_then(|action| self.closed.take(&(asked, action))) {
                    self.closed.insert((envelope.sequence, action));
                }
                let Question { whole, request, opened, changed, .. } = question;
                for place in [&mut whole.since, &mut request.since, opened, changed] {
                    if *place == Sequence::NONE {
                        *place = envelope.sequence;
                    }
                }
            }
            EventType::ToolStarted | EventType::ToolArgs if !self.by_call.is_empty() => {
                let Some(call) = &draft.ids.tool_call else { return };
                for action in self.by_call.get(call).into_iter().flatten() {
                    let question = self.known.get_mut(action).expect("a pending question is known");
                    if question.whole.since == Sequence::NONE {
                        question.whole.since = envelope.sequence;
                        if draft.payload.as_fact().is_some_and(|call: &CallFact| call.question_version.is_some()) {
                            question.changed = envelope.sequence;
                        }
                    }
                }
            }
            EventType::ActionResolved => {
                let Some(action) = &draft.ids.action else { return };
                let has_expired = draft.text("outcome") == Some(ActionOutcome::Expired.as_str());
                self.close(action, if has_expired { QuestionState::Expired } else { QuestionState::Resolved });
            }
            _ => {}
        }
    }

    /// Closes the questions of a run that no longer waits.
    pub fn close_pending(&mut self) {
        if self.known.len() == self.closed.len() {
            return;
        }
        let pending = self.known.iter().filter(|(_, question)| question.state == QuestionState::Pending);
        for action in pending.map(|(action, _)| action.clone()).collect::<Vec<_>>() {
            self.close(&action, QuestionState::Resolved);
        }
    }

    fn open(&mut self, action: ActionId, question: Question) {
        self.forget_call(&action);
        self.follow_call(&action, &question);
        let question = Question { state: QuestionState::Pending, ..question };
        if let Some(was) = self.known.insert(action.clone(), question) {
            self.closed.remove(&(was.asked, action.clone()));
        }
        self.changed.insert(action);
    }

    fn close(&mut self, action: &ActionId, state: QuestionState) {
        self.forget_call(action);
        let Some(question) = self.known.get_mut(action) else { return };
        question.state = state;
        self.closed.insert((question.asked, action.clone()));
        self.changed.insert(action.clone());
        if self.closed.len() > CLOSED_QUESTIONS_MAX
            && let Some((_, oldest)) = self.closed.pop_first()
        {
            self.known.remove(&oldest);
            self.changed.insert(oldest);
        }
    }

    /// Follows the input of a question's call.
    fn follow_call(&mut self, action: &ActionId, question: &Question) {
        let Some(call) = &question.call else { return };
        let actions = self.by_call.entry(call.clone()).or_default();
        if actions.len() < CALL_QUESTIONS_MAX {
            actions.insert(action.clone());
        }
    }

    fn forget_call(&mut self, action: &ActionId) {
        let Some(call) = self.known.get(action).and_then(|question| question.call.as_ref()) else { return };
        if let Some(actions) = self.by_call.get_mut(call) {
            actions.remove(action);
            if actions.is_empty() {
                self.by_call.remove(call);
            }
        }
    }
}

fn remove_member(draft: &mut Draft, member: &str) {
    draft.payload.remove(member);
    draft.extra.shift_remove(member);
}

/// The hash of what a request asks.
fn content_of(draft: &Draft) -> String {
    let mut content = draft.extra.clone();
    draft.payload.each(|member, value| drop(content.insert(member.to_owned(), value.into_value())));
    content.retain(|member, _| !NOT_CONTENT.contains(&member.as_str()));
    content.extend(draft.ids.tool_call.as_ref().map(|call| ("toolCallId".to_owned(), call.as_str().into())));
    hash_sorted(&content.into())
}
