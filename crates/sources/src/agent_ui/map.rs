//! What facts in the native vocabulary mean: the ids that follow from earlier facts.

use super::event::{Event, parse, parse_text};
use crate::bounded::Bounded;
use crate::members::next_id;
use crate::{Drafts, FactError, Parser, Runtime};
use proscenium_model::fact::NotificationFact;
use proscenium_model::{AgentId, Audience, Draft, EventType, Ids, MessageId, PartId, RunId, WordsFact};
use serde::{Deserialize, Serialize};

/// The most speakers (an agent in a role) whose message and parts the adapter stores.
///
/// Beyond this limit the adapter evicts the speaker that was silent longest; its next chunk starts a new message.
pub(super) const SPEAKERS_MAX: usize = 64;

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

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AgentUi {
    /// Generated message ids, by audience. Hidden envelopes must not change the ids that a reader sees.
    messages_made: [u64; 3],
    parts_made: [u64; 3],
    /// The most recent speaker last.
    speakers: Bounded<Speaker, SPEAKERS_MAX>,
}

impl Runtime for AgentUi {
    type Event = Event;
    const PARSE: Parser<Event> = parse;

    fn parse_text(text: &[u8]) -> Option<Result<Event, FactError>> {
        parse_text(text)
    }

    fn apply(&mut self, Event { mut draft, notification }: Event, given: &Ids, mut out: Drafts<'_>) {
        settle_run(&mut draft, given);
        if let Some(is_final) = notification {
            settle_notification(&mut draft, is_final);
        }
        self.follow(&mut draft);
        out.push(*draft);
    }
}

/// Sets the run to the run of the request. A different run id in the fact becomes a reference.
fn settle_run(draft: &mut Draft, given: &Ids) {
    let own = std::mem::replace(&mut draft.ids.run, given.run.clone());
    draft.add_ref("runId", own.as_ref().filter(|own| given.run.as_ref() != Some(*own)).map(RunId::as_str));
    draft.ids.fill_from(given);
}

/// Adds the members of a notification to a worker's message.
///
/// The message id, if present, joins the chunks and the end into one notification. Only the end has the summary.
fn settle_notification(draft: &mut Draft, is_final: bool) {
    let Some(report) = draft.payload.fact_mut::<NotificationFact>() else { return };
    if let Some(id) = &draft.ids.message {
        report.notification.get_or_insert_with(|| Box::new(id.as_str().into()));
    }
    if let Some(text) = report.text.clone().filter(|_| is_final) {
        report.summary.get_or_insert_with(|| Box::new(text.into()));
    }
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
        draft.ids.agent = draft.ids.agent.take().or_else(|| self.agent_of(draft.ids.message.as_ref()?));
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

    /// The agent that earlier chunks of a message named. `None`: they named none, or several.
    fn agent_of(&self, message: &MessageId) -> Option<AgentId> {
        let mut speakers = self.speakers.iter().filter(|speaker| speaker.message.as_ref() == Some(message));
        let agent = speakers.next()?.agent.clone();
        agent.filter(|agent| speakers.all(|speaker| speaker.agent.as_ref() == Some(agent)))
    }

    /// Removes the draft's speaker from the list, or creates a new one.
    ///
    /// A final event with a narrower audience ends a message that streamed to a wider one.
    fn take_speaker(&mut self, draft: &Draft, is_final: bool) -> Speaker {
        let role = draft.payload.as_fact().and_then(|words: &WordsFact| words.role.as_deref()).unwrap_or("assistant");
        let role = role.char_indices().nth(ROLE_CHARS_MAX).map_or(role, |(end, _)| &role[..end]);
        let speaks = |s: &Speaker, audience: Audience| s.agent == draft.ids.agent && s.role == role && s.audience == audience;
        let wider = Audience::ALL.into_iter().rev().filter(|audience| is_final && *audience < draft.audience);
        let mut audiences = std::iter::once(draft.audience).chain(wider);
        match audiences.find_map(|audience| self.speakers.iter().position(|s| speaks(s, audience))) {
            Some(at) => self.speakers.remove(at),
            None => {
                Speaker { agent: draft.ids.agent.clone(), role: role.to_owned(), audience: draft.audience, ..Speaker::default() }
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
    /// Starts a message. `None`: the adapter generates its id with the next chunk.
    fn begin(&mut self, message: Option<MessageId>) {
        self.message = message;
        self.parts = [None, None, None];
        self.open = None;
    }
}
