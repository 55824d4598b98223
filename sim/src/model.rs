//! The model of what the server promises. It reads JSON alone, and shares no code with the server.
//!
//! * An acknowledged fact is in its log once, in the order of its producer, within the sequences of its receipt. One
//!   without an answer is there at most once.
//! * The same sequence of an epoch is the same envelope, for every reader, at every time.
//! * A reader gets what its audience may see, once and in order, and nothing else.
//! * The activities that a reader has folded are those that the server has.
//! * A decision reaches its question once, as it was sent, or is refused.
//! * What was erased is gone.
//! * A compaction removes only what mattered while its run was live, and changes no activity.
//! * A run whose producer has ended it is over.

use crate::decisions::Decisions;
use crate::plan::{AUDIENCES, FactPlan, Plan};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the clients know.
#[derive(Default)]
pub struct Model {
    facts: BTreeMap<String, Fact>,
    /// The envelopes that a client has seen, by log, audience and sequence.
    seen: BTreeMap<(String, usize, u64), Value>,
    pub(crate) decisions: Decisions,
    erased: BTreeSet<String>,
    /// What contradicts the promises.
    pub violations: Vec<String>,
}

struct Fact {
    run: String,
    producer: String,
    number: u64,
    audience: usize,
    /// Whether a compaction may remove it.
    is_of_live: bool,
    state: FactState,
}

/// Whether a compaction may remove envelopes of this type.
fn is_of_live(event_type: &Value) -> bool {
    matches!(event_type.as_str(), Some("text.delta" | "diagnostic.note"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FactState {
    Unsent,
    /// It may be stored.
    Sent,
    /// It is stored, between these sequences if the receipt said so.
    Acknowledged(Option<(u64, u64)>),
    /// It was stored, and may not show again.
    Erased,
}

/// An envelope as the end shows it.
pub type Events = BTreeMap<u64, Value>;

impl Model {
    /// The model of a plan, before anything was sent.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let mut model = Self { decisions: Decisions::of(plan), ..Self::default() };
        for producer in &plan.producers {
            for (fact, number) in producer.facts.iter().zip(0..) {
                model.add(&format!("r{}", producer.run), &producer.name, number, fact);
            }
        }
        model
    }

    /// Adds a fact that may be sent.
    pub fn add(&mut self, run: &str, producer: &str, number: u64, FactPlan { token, audience, fact }: &FactPlan) {
        let (run, producer, is_of_live) = (run.to_owned(), producer.to_owned(), is_of_live(&fact["type"]));
        let fact = Fact { run, producer, number, audience: *audience, is_of_live, state: FactState::Unsent };
        self.facts.insert(token.clone(), fact);
    }

    /// Records a contradiction.
    pub fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Records that facts are on their way.
    pub fn sent(&mut self, tokens: &[&str]) {
        for token in tokens {
            let fact = self.facts.get_mut(*token).expect("a fact that is sent is known");
            if fact.state == FactState::Unsent {
                fact.state = FactState::Sent;
            }
        }
    }

    /// Records the receipt of facts.
    pub fn acknowledged(&mut self, tokens: &[&str], receipt: &Value) {
        let number = |name: &str| receipt[name].as_u64();
        let (accepted, duplicates) = (number("accepted").unwrap_or(0), number("duplicates").unwrap_or(0));
        if accepted + duplicates != tokens.len() as u64 {
            self.violation(format!("a receipt is about {} facts, of {}: {receipt}", accepted + duplicates, tokens.len()));
        }
        let range = number("firstSequence").zip(number("lastSequence"));
        for (token, n) in tokens.iter().zip(0..) {
            let fact = self.facts.get_mut(*token).expect("a fact that is acknowledged is known");
            let within = range.filter(|_| n >= duplicates);
            if matches!(fact.state, FactState::Unsent | FactState::Sent) {
                fact.state = FactState::Acknowledged(within);
            }
        }
    }

    /// Checks the number that the server expects of a producer.
    pub fn expected(&mut self, producer: &str, expected: u64) {
        let of = |fact: &&Fact| fact.producer == producer;
        let is_sure = |fact: &&Fact| matches!(fact.state, FactState::Acknowledged(_));
        let least = self.facts.values().filter(of).filter(is_sure).map(|fact| fact.number + 1).max().unwrap_or(0);
        let most = self.facts.values().filter(of).filter(|fact| fact.state != FactState::Unsent);
        let most = most.map(|fact| fact.number + 1).max().unwrap_or(0);
        if !(least..=most).contains(&expected) {
            self.violation(format!(
                "{producer} has {least} facts acknowledged and {most} sent, and the server expects {expected}"
            ));
        }
    }

    /// Records that a run is being erased. What had no answer before may still begin it again.
    pub fn erases(&mut self, run: &str) {
        self.erased.insert(run.to_owned());
    }

    /// Records that a run is erased: what was acknowledged before the request may not show again.
    pub fn erased(&mut self, run: &str, before: &[String]) {
        for token in before {
            self.facts.get_mut(token).expect("it was acknowledged").state = FactState::Erased;
        }
        self.seen.retain(|(log, ..), _| log != run);
    }

    /// Whether a fact was erased.
    #[must_use]
    pub fn is_erased_fact(&self, token: &str) -> bool {
        self.facts.get(token).is_some_and(|fact| fact.state == FactState::Erased)
    }

    /// Whether a run was erased before the server had acknowledged any fact of it: its streams may wait for ever.
    #[must_use]
    pub fn is_erased_unwritten(&self, run: &str) -> bool {
        let is_erased = |fact: &Fact| fact.run == run && fact.state == FactState::Erased;
        self.erased.contains(run) && !self.facts.values().any(is_erased)
    }

    /// The acknowledged facts of a run.
    #[must_use]
    pub fn acknowledged_of(&self, run: &str) -> Vec<String> {
        let of_run = self.facts.iter().filter(|(_, fact)| fact.run == run);
        of_run.filter(|(_, fact)| matches!(fact.state, FactState::Acknowledged(_))).map(|(token, _)| token.clone()).collect()
    }

    /// Whether any run is erased.
    #[must_use]
    pub fn has_erasure(&self) -> bool {
        !self.erased.is_empty()
    }

    /// Whether a run has an acknowledged fact.
    #[must_use]
    pub fn is_written(&self, run: &str) -> bool {
        self.facts.values().any(|fact| fact.run == run && matches!(fact.state, FactState::Acknowledged(_)))
    }

    /// Whether a run is erased.
    #[must_use]
    pub fn is_erased(&self, run: &str) -> bool {
        self.erased.contains(run)
    }

    /// Checks that what a reader of an audience got may be shown to it.
    pub fn shown(&mut self, to: &str, audience: usize, text: &str) {
        for token in tokens_in(text) {
            let Some(fact) = self.facts.get(token) else { continue };
            let why = match fact.state {
                _ if fact.audience > audience => "is not for its audience",
                FactState::Unsent => "was never sent",
                FactState::Erased => "was erased",
                _ => continue,
            };
            self.violations.push(format!("{to} ({}) got {token}, which {why}", AUDIENCES[audience]));
        }
    }

    /// Checks an envelope that a reader got against what others got.
    pub fn seen(&mut self, to: &str, log: &str, audience: usize, event: &Value) {
        if self.erased.contains(log) {
            return;
        }
        let Some(sequence) = event["sequence"].as_u64() else {
            return self.violation(format!("{to} got an envelope without a sequence: {event}"));
        };
        let known = self.seen.entry((log.to_owned(), audience, sequence)).or_insert_with(|| event.clone());
        if known != event {
            let what = format!("{to} got another envelope {sequence} of {log} than was shown before: {event}, not {known}");
            self.violation(what);
        }
    }

    /// Checks the envelopes of a run, as the server has them at the end, for each audience.
    pub fn check_run(&mut self, run: &str, events: &[Events; 3], is_compacted: bool) {
        let (mut found, internal) = (BTreeMap::<&str, Vec<u64>>::new(), &events[2]);
        let mut wrong = Vec::new();
        for ((sequence, event), n) in internal.iter().zip(1..) {
            if *sequence != n && !is_compacted {
                wrong.push(format!("{run} has envelope {sequence} in the place of {n}"));
                break;
            }
            // The whole text of a message repeats those of its chunks.
            let payload = if event["type"] == "text.final" { &event["payload"]["note"] } else { &event["payload"] }.to_string();
            for token in tokens_in(&payload) {
                if let Some((token, _)) = self.facts.get_key_value(token) {
                    found.entry(token).or_default().push(*sequence);
                }
            }
        }
        let mut last = BTreeMap::new();
        let mut facts: Vec<_> = self.facts.iter().filter(|(_, fact)| fact.run == run).collect();
        facts.sort_by_key(|(_, fact)| (&fact.producer, fact.number));
        for (token, fact) in facts {
            let places = found.get(token.as_str()).map_or(&[][..], |places| places);
            match (fact.state, places) {
                (FactState::Unsent | FactState::Sent, []) => continue,
                (FactState::Acknowledged(_), []) if is_compacted && fact.is_of_live => continue,
                (FactState::Acknowledged(_), []) => wrong.push(format!("{run}: the acknowledged {token} is lost")),
                (FactState::Acknowledged(Some((first, end))), [place]) if !(first..=end).contains(place) => {
                    wrong.push(format!("{run}: {token} is envelope {place}, and its receipt says {first} to {end}"));
                }
                (FactState::Unsent, _) => wrong.push(format!("{run} has {token}, which was never sent")),
                (FactState::Erased, _) => unreachable!("an erased run is not checked"),
                (_, [_]) => {}
                (_, _) => wrong.push(format!("{run}: {token} is there {} times, at {places:?}", places.len())),
            }
            if let Some(place) = places.first() {
                let before = last.insert(&fact.producer, *place).unwrap_or(0);
                if before >= *place {
                    wrong.push(format!("{run}: {token} is envelope {place}, before an earlier fact at {before}"));
                }
            }
            for (audience, events) in events.iter().enumerate() {
                let Some(place) = places.first().filter(|_| fact.audience <= audience) else { continue };
                if !events.get(place).is_some_and(|event| event.to_string().contains(token.as_str())) {
                    wrong.push(format!("{run}: {token} at {place} does not show for {}", AUDIENCES[audience]));
                }
            }
        }
        for (audience, events) in events.iter().enumerate() {
            for ((_, _, sequence), event) in self.seen.range((run.to_owned(), audience, 0)..=(run.to_owned(), audience, u64::MAX))
            {
                let found = events.get(sequence);
                if found != Some(event) && !(is_compacted && found.is_none() && is_of_live(&event["type"])) {
                    wrong.push(format!(
                        "{run}: envelope {sequence} for {} was seen, and is now another or gone: {event}",
                        AUDIENCES[audience]
                    ));
                }
            }
        }
        self.violations.extend(wrong);
    }
}

/// The tokens in a text: `<r0.main.3>`.
fn tokens_in(text: &str) -> impl Iterator<Item = &str> {
    let ends = |from: usize| text[from..].find('>').map(|end| &text[from..=from + end]);
    text.match_indices('<').filter_map(move |(from, _)| ends(from))
}

/// A value whose texts are whole: a reader joins the chunks of a text, and their number is no promise.
fn joined(value: &Value) -> Value {
    match value {
        Value::Array(chunks) if !chunks.is_empty() && chunks.iter().all(Value::is_string) => {
            chunks.iter().filter_map(Value::as_str).collect::<String>().into()
        }
        Value::Array(items) => items.iter().map(joined).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), joined(value))).collect::<serde_json::Map<_, _>>().into()
        }
        value => value.clone(),
    }
}

/// A reader's picture of its logs.
#[derive(Default)]
pub struct Picture {
    pub name: String,
    pub audience: usize,
    pub is_events: bool,
    /// Whether a compaction may remove envelopes that the reader has.
    pub may_be_compacted: bool,
    /// Whether it reads several logs on one stream.
    pub is_of_session: bool,
    pub logs: BTreeMap<String, LogPicture>,
}

/// A reader's picture of one log.
#[derive(Default)]
pub struct LogPicture {
    /// The last envelope that gave a frame, and the one before; `None` until the stream says it.
    last: Option<(u64, u64)>,
    /// The ranges of envelopes that a compaction has to have removed.
    removed: Vec<std::ops::RangeInclusive<u64>>,
    pub activities: BTreeMap<(String, String), Value>,
    /// The status that its end had.
    pub ended: Option<String>,
}

impl LogPicture {
    /// The last envelope that gave a frame.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last.map_or(0, |(last, _)| last)
    }
}

impl Picture {
    /// Notes that the stream begins anew behind its cursor.
    pub fn reconnected(&mut self) {
        if !self.is_events {
            self.logs.values_mut().for_each(|log| log.last = None);
        }
    }

    /// Applies a frame.
    pub fn apply(&mut self, frame: &Value, model: &mut Model) {
        let text = frame.to_string();
        let id = frame["runId"].as_str().or(frame["sessionId"].as_str()).unwrap_or_default();
        // What is on its way to a reader when its run is erased may still arrive.
        if model.is_erased(id) {
            return;
        }
        model.shown(&self.name, self.audience, &text);
        let (kind, is_events, may_be_compacted) =
            (frame["frame"].as_str().unwrap_or_default(), self.is_events, self.may_be_compacted);
        let log = self.logs.entry(id.to_owned()).or_default();
        let number = |name: &str| frame[name].as_u64();
        let sequence = number("sequence").unwrap_or(0);
        let mut wrong = |what: &str| model.violations.push(format!("{}: {what}: {text}", self.name));
        let key = || ["activityType", "activityId"].map(|name| frame[name].as_str().unwrap_or_default().to_owned()).into();
        if let Some(prev) = number("prev") {
            let is_next = match log.last {
                // A cursor does not say which envelopes of a compacted run its reader has.
                Some((last, _)) if may_be_compacted && is_events && self.is_of_session => {
                    log.removed.extend((prev > last).then_some(last + 1..=prev));
                    sequence > last
                }
                Some((last, _)) if may_be_compacted && is_events => prev <= last && sequence > last,
                Some((last, before)) => prev == last || prev == before && sequence == last && !is_events,
                None => !is_events || prev == 0,
            };
            if !is_next || sequence <= prev {
                wrong(&format!("a frame does not follow the one before, at {:?}", log.last));
            }
            log.last = Some((sequence, prev));
        }
        match kind {
            "Event" => model.seen(&self.name, id, self.audience, &frame["event"]),
            "ActivitySnapshot" => {
                log.ended = None;
                drop(log.activities.insert(key(), frame["content"].clone()));
            }
            "ActivityDelta" => {
                let patch = serde_json::from_value::<json_patch::Patch>(frame["patch"].clone());
                match (log.activities.get_mut(&key()), patch) {
                    (Some(content), Ok(patch)) => {
                        if json_patch::patch(content, &patch).is_err() {
                            wrong("a delta does not apply");
                        }
                    }
                    _ => wrong("a delta has no activity"),
                }
            }
            "Hydrated" => log.last = Some((sequence, sequence)),
            "Reset" => *log = LogPicture { last: Some((0, 0)), ..LogPicture::default() },
            "End" => {
                if is_events && sequence < log.last() {
                    wrong("an end is before the last event");
                }
                log.ended = frame["status"].as_str().map(str::to_owned);
            }
            "Error" => {}
            _ => wrong("a frame of no known kind"),
        }
    }

    /// Compares the picture of a run with what the server has at the end.
    pub fn check(&self, run: &str, activities: &Value, events: &Events, model: &mut Model) {
        let nothing = LogPicture::default();
        let log = self.logs.get(run).unwrap_or(&nothing);
        if self.is_events {
            let last = events.last_key_value().map_or(0, |(sequence, _)| *sequence);
            if log.last() != last {
                model.violation(format!("{} has {run} up to {}, and the server up to {last}", self.name, log.last()));
            }
            for removed in log.removed.iter().filter(|removed| events.range((*removed).clone()).next().is_some()) {
                model.violation(format!("{} did not get all envelopes {removed:?} of {run}", self.name));
            }
        } else {
            let name = |activity: &Value, name: &str| activity[name].as_str().unwrap_or_default().to_owned();
            let key = |activity: &Value| (name(activity, "activityType"), name(activity, "activityId"));
            let listed = activities.as_array().map_or(&[][..], |listed| listed);
            let listed: BTreeMap<_, _> = listed.iter().map(|activity| (key(activity), activity["content"].clone())).collect();
            for (key, content) in &listed {
                match log.activities.get(key) {
                    Some(own) if joined(own) == joined(content) => {}
                    own => model
                        .violation(format!("{} has another {key:?} of {run} than the server: {own:?}, not {content}", self.name)),
                }
            }
            for key in log.activities.keys().filter(|key| !listed.contains_key(key)) {
                model.violation(format!("{} has {key:?} of {run}, and the server does not", self.name));
            }
        }
        if log.ended.is_none() {
            model.violation(format!("{} did not get the end of {run}", self.name));
        }
    }
}
