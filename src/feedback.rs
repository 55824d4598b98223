//! Feedback: a thumb and words of a person about a message or a run.
//!
//! ```text
//!   POST …/feedback ─▶ fact `feedback.given` in the log of the run ─▶ `feedback` in the content of the message or the run
//! ```
//! Of each person, the last feedback about one message or run stands. The fold knows which that is, so nothing else keeps
//! it: it is exported, replicated, and erased with the run.

use crate::environment::Environment;
use crate::feed::Feed;
use crate::guard::redact_text;
use crate::ingest::{Ingest, ServerAppend, WriterView};
use crate::log::{LogId, StoreError};
use crate::meter::LabelCounter;
use crate::model::decided_by::{DecidedBy, Decider, written_by};
use crate::model::fact::FeedbackFact;
use crate::model::{AgentId, Audience, Draft, EventType, MessageId, RunId, Scope, Sequence};
use crate::projection::activity_set::Activity;
use crate::projection::feedback::{FEEDBACK_MAX, GIVEN_BY, ID, SEQUENCE, THUMB, WORDS, entries};
use crate::projection::members::TypedContent;
use crate::projection::{View, message, run};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The longest words, in characters.
pub const WORDS_CHARS_MAX: usize = 4096;

/// What a person thinks of a message or a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thumb {
    Up,
    Down,
}

impl Thumb {
    /// The value on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// What a person says. Without thumb and words, it withdraws what that person said before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opinion {
    pub thumb: Option<Thumb>,
    pub words: Option<Box<str>>,
}

/// The reader of feedback, or its giver.
#[derive(Debug, Clone)]
pub struct Person {
    pub audience: Audience,
    pub decider: Decider,
}

/// Why feedback is refused.
#[derive(Debug, thiserror::Error)]
pub enum FeedbackError {
    #[error("the run does not exist")]
    NoSuchRun,
    #[error("the message does not exist for this audience")]
    NoSuchMessage,
    #[error("{FEEDBACK_MAX} people have given feedback about this, the limit")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What feedback is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Run,
    Message { agent: Option<AgentId>, id: MessageId },
}

impl Subject {
    /// The activity of the subject in a view.
    fn activity<'v>(&self, view: &'v View, run: &RunId) -> Option<&'v Activity> {
        match self {
            Self::Run => view.activities().iter().find(|activity| &*activity.kind == run::KIND && *activity.id == *run.as_str()),
            Self::Message { agent, id } => message::message_of(view, agent.as_ref(), id),
        }
    }
}

/// The feedback about the runs of one server.
pub struct Feedback {
    environment: Environment,
    feed: Arc<Feed>,
    ingest: Arc<Ingest>,
    /// Facts written, by their thumb.
    pub given: LabelCounter,
    /// Held from reading what stands until its change is committed: only the leader writes feedback.
    giving: tokio::sync::Mutex<()>,
}

impl Feedback {
    /// The feedback about runs of the server with this read path and this write path.
    #[must_use]
    pub fn new(environment: Environment, feed: Arc<Feed>, ingest: Arc<Ingest>) -> Self {
        Self { environment, feed, ingest, given: LabelCounter::default(), giving: tokio::sync::Mutex::default() }
    }

    /// Gives feedback about a run, or about one of its messages, by the id that the giver's faces show.
    ///
    /// Returns what stands then, as the giver sees it, and whether it is the giver's first about this.
    ///
    /// # Errors
    /// Why it is refused.
    pub async fn give(
        &self,
        run: &RunId,
        message: Option<&str>,
        opinion: Opinion,
        giver: &Person,
    ) -> Result<(Value, bool), FeedbackError> {
        let log = LogId::Run(run.clone());
        let _giving = self.giving.lock().await;
        let view = |audience| async move {
            self.feed.activities(&LogId::Run(run.clone()), audience, None).await?.ok_or(FeedbackError::NoSuchRun)
        };
        let mut widest = Audience::User;
        let (subject, shown_as) = match message {
            None => (Subject::Run, None),
            Some(shown) => {
                let of_giver = view(giver.audience).await?;
                let activity = message_shown_as(&of_giver, run, shown).ok_or(FeedbackError::NoSuchMessage)?;
                let (agent, id) = message::author_and_id(&of_giver, activity).ok_or(FeedbackError::NoSuchMessage)?;
                let subject = Subject::Message { agent, id };
                // Readers that do not see the message must not learn of it.
                while widest != giver.audience && subject.activity(&view(widest).await?, run).is_none() {
                    widest = if widest == Audience::User { Audience::Dashboard } else { Audience::Internal };
                }
                (subject, Some(activity.id.clone()))
            }
        };
        let all = view(Audience::Internal).await?;
        let standing: Vec<_> = subject.activity(&all, run).into_iter().flat_map(entries).collect();
        let own = standing.iter().find(|entry| giver_of(entry) == giver.decider.sub.as_deref()).copied();
        let words = opinion.words.as_deref().map(redact_text);
        let (thumb, words) = (opinion.thumb.map(Thumb::as_str), words.as_deref());
        let is_withdrawn = thumb.is_none() && words.is_none();
        let nothing = || json!({ "runId": run, "messageId": shown_as, "thumb": null, "own": true });
        let is_unchanged = match own {
            None => is_withdrawn,
            Some(own) => !is_withdrawn && (own.read(THUMB), own.read(WORDS)) == (thumb, words),
        };
        if is_unchanged {
            let entry = own.map(|own| shown_to(own, run, shown_as.as_deref(), giver));
            return Ok((without_null(entry.unwrap_or_else(nothing)), false));
        }
        if own.is_none() && standing.len() >= FEEDBACK_MAX {
            return Err(FeedbackError::TooMany);
        }
        let id = own.and_then(|own| own.read(ID)).map_or_else(|| format!("{:032x}", (self.environment.random)()), str::to_owned);
        let given_by = written_by(&giver.decider, (self.environment.now)());
        let mut draft = Draft::new(EventType::FeedbackGiven).with_fact(|fact: &mut FeedbackFact| {
            fact.feedback = Some(id.clone());
            fact.thumb = thumb.map(str::to_owned);
            fact.text = words.map(str::to_owned);
            fact.given_by = Some(Box::new(given_by.clone()));
            fact.withdrawn = is_withdrawn.then_some(true);
        });
        draft.audience = widest;
        match subject {
            Subject::Run => draft.scope = Scope::Run,
            Subject::Message { agent, id } => (draft.ids.agent, draft.ids.message) = (agent, Some(id)),
        }
        let append = |view: &WriterView<'_>| match view.is_written {
            true => {
                (Some(view.summary.last_sequence.next()), ServerAppend { drafts: vec![draft.clone()], ..ServerAppend::default() })
            }
            false => (None, ServerAppend::default()),
        };
        let sequence = self.ingest.append_as_server(&log, append).await?.ok_or(FeedbackError::NoSuchRun)?;
        self.given.add(match opinion.thumb {
            Some(thumb) => thumb.as_str(),
            None if is_withdrawn => "withdrawn",
            None => "none",
        });
        let answer = match is_withdrawn {
            true => nothing(),
            false => {
                let entry = new_entry(&id, sequence, thumb, words, given_by);
                shown_to(&entry, run, shown_as.as_deref(), giver)
            }
        };
        Ok((without_null(answer), own.is_none()))
    }

    /// The feedback about a run and its messages that stands, as a reader sees it.
    ///
    /// `at` is the moment after which the reader may see nothing.
    ///
    /// # Errors
    /// `NoSuchRun`, or the failure of the store.
    pub async fn list(&self, run: &RunId, reader: &Person, at: Option<Sequence>) -> Result<Vec<Value>, FeedbackError> {
        let log = LogId::Run(run.clone());
        let view = self.feed.activities(&log, reader.audience, at).await?.ok_or(FeedbackError::NoSuchRun)?;
        // Only this view says whose each is.
        let all = self.feed.activities(&log, Audience::Internal, Some(view.through)).await?.ok_or(FeedbackError::NoSuchRun)?;
        let whole: Vec<_> = all.activities().iter().flat_map(entries).collect();
        let of_id = |entry: &Map<String, Value>| whole.iter().find(|known| known.read(ID) == entry.read(ID)).copied();
        let mut listed = Vec::new();
        for activity in view.activities() {
            let message = (&*activity.kind == message::KIND).then_some(&*activity.id);
            let seen = entries(activity).filter_map(of_id);
            listed.extend(seen.map(|entry| without_null(shown_to(entry, run, message, reader))));
        }
        Ok(listed)
    }
}

/// The message that a face shows by this id: the id of its activity, or that with one of its parts, or after its run's.
fn message_shown_as<'v>(view: &'v View, run: &RunId, shown: &str) -> Option<&'v Activity> {
    let of_run = shown.strip_prefix(run.as_str()).and_then(|rest| rest.strip_prefix('/'));
    let matches = |activity: &Activity, shown: &str| match shown.strip_prefix(&*activity.id) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('/').is_some_and(|part| message::has_part(activity, part)),
        None => false,
    };
    let messages = || view.activities().iter().filter(|activity| &*activity.kind == message::KIND);
    let exact = messages().find(|activity| *activity.id == *shown);
    let parted = || messages().find(|activity| [Some(shown), of_run].into_iter().flatten().any(|shown| matches(activity, shown)));
    exact.or_else(parted)
}

/// The `sub` of the person who gave this; `None` for one without a token.
fn giver_of(entry: &Map<String, Value>) -> Option<&str> {
    entry.read(GIVEN_BY)?.get("sub")?.as_str()
}

fn new_entry(id: &str, sequence: Sequence, thumb: Option<&str>, words: Option<&str>, given_by: Value) -> Map<String, Value> {
    let mut entry = Map::new();
    ID.put(&mut entry, id);
    SEQUENCE.put(&mut entry, sequence);
    for (member, value) in [(THUMB, thumb), (WORDS, words)] {
        if let Some(value) = value {
            member.put(&mut entry, value);
        }
    }
    GIVEN_BY.put(&mut entry, given_by);
    entry
}

/// An entry as a person sees it. Another user's has neither its words nor its giver.
fn shown_to(entry: &Map<String, Value>, run: &RunId, message: Option<&str>, reader: &Person) -> Value {
    let is_own = giver_of(entry) == reader.decider.sub.as_deref();
    let is_whole = is_own || reader.audience != Audience::User;
    let given_by = entry.read(GIVEN_BY).and_then(|by| serde_json::from_value::<DecidedBy>(by.clone()).ok());
    json!({
        "runId": run,
        "messageId": message,
        "feedbackId": entry.read(ID),
        "sequence": entry.read(SEQUENCE),
        "thumb": entry.read(THUMB),
        "own": is_own,
        "text": entry.read(WORDS).filter(|_| is_whole),
        "givenBy": given_by.map(|by| by.for_person(is_whole)),
    })
}

/// An answer without the members that it does not have. A thumb may be null.
fn without_null(mut answer: Value) -> Value {
    if let Value::Object(members) = &mut answer {
        members.retain(|member, value| !value.is_null() || member == "thumb");
    }
    answer
}
