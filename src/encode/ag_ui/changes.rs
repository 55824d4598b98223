//! Live changes: translates each change into the events that are new to the reader, in the order of snapshots.

use super::call::{self, Elsewhere};
use super::events::{self, Attribution, Bracket};
use super::items::{self, Body, Item, Key, Order, PartOf};
use super::known::{Had, Print, Record, result_print};
use super::{AgUi, Client};
use crate::encode::Flow;
use crate::encode::frames::{Frame, Shown};
use serde_json::{Value, json};

/// The sort key of an update to a known message: it precedes new messages.
const KNOWN: Order = (0, 0, 0, 0);

/// One update that the client has to receive.
enum Unit {
    Item(Box<Item>),
    /// Append to a text.
    Append(Key, String),
    /// Replace a text.
    Whole(Key, String),
    /// Set whether the text may grow.
    Live(Key, bool),
    Call(Box<str>, Vec<Value>),
    Patch(Key, Vec<Value>),
    State(Value),
    StatePatch(Vec<Value>),
    Agent(Box<str>),
}

type Units = Vec<(Order, Unit)>;

impl AgUi {
    /// Translates the batch of frames.
    pub(super) fn tell(&mut self, events: &mut Vec<Value>) -> Flow {
        if self.batch.is_empty() || self.is_joining {
            return Flow::On;
        }
        let batch = std::mem::take(&mut self.batch);
        let before = batch.iter().any(|frame| kind(frame) == "run").then(|| self.run.clone());
        let Ok(mut units) = self.units(batch) else { return self.again() };
        units.sort_by_key(|(order, _)| *order);
        for (_, unit) in units {
            if self.say(unit, events).is_err() {
                return self.again();
            }
        }
        let Some(before) = before else { return Flow::On };
        let was_open = self.client != Client::Ended;
        let flow = self.turn(&before, events);
        if flow == Flow::On && was_open {
            self.open(events);
        }
        flow
    }

    fn units(&mut self, batch: Vec<Frame>) -> Result<Units, Elsewhere> {
        let is_nobodys = self.run.agent().is_none();
        for frame in &batch {
            match frame {
                Frame::ActivitySnapshot(shown) if &*shown.kind == "run" => self.run.stand(&shown.content),
                Frame::ActivityDelta { activity_type, patch, .. } if &**activity_type == "run" => self.run.follow(patch),
                _ => {}
            }
        }
        if is_nobodys && self.run.agent().is_some_and(|own| self.agents.knows(own)) {
            // The run's agent was unknown, and its messages were attributed to a teammate.
            return Err(Elsewhere);
        }
        let mut units = Vec::new();
        for frame in batch {
            match frame {
                Frame::ActivitySnapshot(shown) => self.appeared(&shown, &mut units),
                Frame::ActivityDelta { activity_type, activity_id, patch } => {
                    self.changed(&activity_type, &activity_id, patch, &mut units)?;
                }
                _ => {}
            }
        }
        Ok(units)
    }

    /// Adds the updates of an activity's snapshot.
    fn appeared(&mut self, shown: &Shown, units: &mut Units) {
        let own = self.run.agent().map(str::to_owned);
        if shown.run.is_some() && self.log.is_none() {
            self.log.clone_from(&shown.run);
        }
        match &*shown.kind {
            "state" => units.extend(shown.content.get("state").map(|state| (KNOWN, Unit::State(state.clone())))),
            "action" => self.run.ask(shown),
            "agent" if own.as_deref() != Some(&*shown.id) => {
                self.agents.stand(shown);
                units.push((KNOWN, Unit::Agent(shown.id.clone())));
            }
            _ => {}
        }
        let agent = items::teammate(shown, own.as_deref());
        self.agents.meet(agent.as_deref());
        units.extend(agent.clone().map(|agent| (KNOWN, Unit::Agent(agent))));
        let place = self.known.place(shown, agent);
        let items = items::items(shown, own.as_deref(), 0, place);
        units.extend(items.into_iter().map(|item| (item.order, Unit::Item(Box::new(item)))));
    }

    /// Adds the updates of an activity's patch.
    fn changed(&mut self, kind: &str, id: &str, patch: Vec<Value>, units: &mut Units) -> Result<(), Elsewhere> {
        let (call, reasoning) = (Key::Call(id.into()), Key::Reasoning(id.into()));
        match kind {
            "run" => {}
            "state" => units.push((KNOWN, Unit::StatePatch(patch))),
            "message" if self.known.placed(kind, id).is_some_and(|place| place.message.is_some()) => {
                return self.message_changed(id, patch, units);
            }
            "reasoning" if self.known.records.contains_key(&reasoning) => {
                for op in patch {
                    let value = op.get("value");
                    let unit = match (op.get("path").and_then(Value::as_str).unwrap_or_default(), value) {
                        ("/text/-", Some(Value::String(chunk))) => Unit::Append(reasoning.clone(), chunk.clone()),
                        ("/text", text @ Some(_)) => Unit::Whole(reasoning.clone(), items::joined(text)),
                        ("/status", Some(status)) => Unit::Live(reasoning.clone(), status == "streaming"),
                        _ => continue,
                    };
                    units.push((KNOWN, unit));
                }
            }
            "tool-call-progress" if self.known.records.contains_key(&call) => {
                units.push((KNOWN, Unit::Call(id.into(), patch)));
            }
            _ => {
                match kind {
                    "action" => self.run.follow_action(id, &patch),
                    "agent" if self.run.agent() != Some(id) => {
                        self.agents.follow(id, &patch);
                        units.push((KNOWN, Unit::Agent(id.into())));
                    }
                    _ => {}
                }
                units.push((KNOWN, Unit::Patch(Key::Activity(kind.into(), id.into()), patch)));
            }
        }
        Ok(())
    }

    /// Adds the updates of a message's patch: new parts, and changes of existing ones.
    fn message_changed(&mut self, id: &str, patch: Vec<Value>, units: &mut Units) -> Result<(), Elsewhere> {
        let run = self.log.clone();
        let Some(place) = self.known.placed("message", id) else { return Ok(()) };
        let (number, agent, Some(message)) = (place.number, &place.agent, &mut place.message) else { return Ok(()) };
        let known = message.parts.len();
        // An update of a part that this patch adds follows the part.
        let mut new = Vec::new();
        for op in patch {
            let path = op.get("path").and_then(Value::as_str).unwrap_or_default();
            let Some(of_parts) = path.strip_prefix("/parts") else { continue };
            if of_parts == "/-" {
                let part = op.get("value").and_then(Value::as_object).ok_or(Elsewhere)?;
                let sub = u32::try_from(message.parts.len()).unwrap_or(u32::MAX);
                let order = (0, part.get("opened").and_then(Value::as_u64).unwrap_or_default(), number, sub);
                let (key, of) = message.add(id, part);
                let item = Item {
                    key,
                    order,
                    is_history: matches!(of, PartOf::Call | PartOf::Result),
                    run: run.clone(),
                    agent: agent.clone(),
                    body: items::part_body(id, &message.role, part, of),
                };
                new.push(order);
                units.push((order, Unit::Item(Box::new(item))));
                continue;
            }
            let (at, way) = of_parts.strip_prefix('/').and_then(|rest| rest.split_once('/')).ok_or(Elsewhere)?;
            let at: usize = at.parse().map_err(|_| Elsewhere)?;
            let (key, of) = message.parts.get(at).cloned().ok_or(Elsewhere)?;
            let order = at.checked_sub(known).map_or(KNOWN, |nth| new[nth]);
            let value = op.get("value");
            let unit = match (of, way, value) {
                (_, "kind", _) | (PartOf::Call | PartOf::Result, "text" | "text/-", _) => return Err(Elsewhere),
                (PartOf::Other, way, _) => {
                    let path = format!("/{way}");
                    let mut op = op;
                    op["path"] = path.into();
                    Unit::Patch(key, vec![op])
                }
                (PartOf::Text | PartOf::Reasoning, "text/-", Some(Value::String(chunk))) => Unit::Append(key, chunk.clone()),
                (PartOf::Text | PartOf::Reasoning, "text", text @ Some(_)) => Unit::Whole(key, items::joined(text)),
                (PartOf::Text | PartOf::Reasoning, "status", Some(status)) => Unit::Live(key, status == "streaming"),
                _ => continue,
            };
            units.push((order, unit));
        }
        Ok(())
    }

    fn say(&mut self, unit: Unit, events: &mut Vec<Value>) -> Result<(), Elsewhere> {
        match unit {
            Unit::Item(item) if self.known.omitted.contains(&item.key) => {}
            Unit::Item(item) if self.known.records.contains_key(&item.key) => {
                if !item.is_history {
                    self.forward(*item, events)?;
                }
            }
            Unit::Item(item) => self.begin(&item, events)?,
            Unit::Append(key, chunk) => {
                if let Some(print) = self.known.records.get_mut(&key).and_then(Record::print_mut) {
                    print.push(&chunk);
                    let is_live = self.is_live(&key);
                    self.grow(&key, &chunk, is_live, events);
                }
            }
            Unit::Whole(key, text) => {
                if let Some(print) = self.known.records.get_mut(&key).and_then(Record::print_mut) {
                    let rest = print.rest(&text).ok_or(Elsewhere)?;
                    print.push(rest);
                    let is_live = self.is_live(&key);
                    self.grow(&key, rest, is_live, events);
                }
            }
            Unit::Live(key, is_live) => self.grow(&key, "", is_live, events),
            Unit::Call(id, patch) => self.call_changed(&id, patch, events)?,
            Unit::Patch(key, patch) => self.patch(&key, patch, events),
            Unit::State(state) => {
                self.open(events);
                events.push(json!({ "type": "STATE_SNAPSHOT", "snapshot": state }));
            }
            Unit::StatePatch(patch) => {
                self.open(events);
                let delta: Vec<_> = patch.into_iter().map(of_state).collect();
                events.push(json!({ "type": "STATE_DELTA", "delta": delta }));
            }
            Unit::Agent(agent) => {
                if self.attribution == Attribution::Subagent {
                    self.open(events);
                    self.agents.change(&agent, events);
                }
            }
        }
        Ok(())
    }

    fn is_live(&self, key: &Key) -> bool {
        self.live.iter().any(|(live, _)| live == key)
    }

    /// Begins a message that this stream has not sent yet.
    fn begin(&mut self, item: &Item, events: &mut Vec<Value>) -> Result<(), Elsewhere> {
        let id = self.known.name(item);
        let text = match &item.body {
            Body::Text { text, .. } | Body::Reasoning { text, .. } => Some(text),
            Body::Call { arguments, .. } => Some(arguments),
            Body::Result { .. } | Body::Activity { .. } => None,
        };
        let had = self.known.has.had(&id, item);
        self.known.records.insert(item.key.clone(), Record::of(&id, item, true));
        let rest = match (had, text) {
            (Some(Had::More), _) => return Ok(()),
            (Some(Had::Text(print)), Some(text)) => {
                let rest = print.rest(text).ok_or(Elsewhere)?;
                if rest.is_empty() && !item.is_live() {
                    return Ok(());
                }
                rest
            }
            (_, text) => text.map_or("", String::as_str),
        };
        self.open(events);
        if self.attribution == Attribution::Subagent {
            self.agents.speak(item.agent.as_deref(), events);
        }
        events.extend(events::begin(&id, item, self.attribution));
        let Some(bracket) = Bracket::of(&id, item) else { return Ok(()) };
        if !rest.is_empty() {
            events.push(bracket.content(rest));
        }
        match item.is_live() {
            true => self.live.push((item.key.clone(), bracket)),
            false => events.extend(bracket.end()),
        }
        Ok(())
    }

    /// Completes a message of which the reader has a part.
    fn forward(&mut self, item: Item, events: &mut Vec<Value>) -> Result<(), Elsewhere> {
        let record = self.known.records.get_mut(&item.key).expect("the caller has checked that the key is present");
        let is_live = item.is_live();
        let rest = match (record, item.body) {
            (Record::Text { print, .. }, Body::Text { text, .. })
            | (Record::Reasoning { print, .. }, Body::Reasoning { text, .. }) => advance(print, &text)?,
            (
                Record::Call { print, scan, kept, is_current, .. },
                Body::Call { name, arguments, scan: scanned, kept: now, .. },
            ) => {
                let has_begun_again = call::has_ended(kept.members()) && !call::has_ended(now.members());
                if has_begun_again || call::name(kept.members()) != name {
                    return Err(Elsewhere);
                }
                (*scan, *kept, *is_current) = (scanned, now, true);
                advance(print, &arguments)?
            }
            (Record::Result(print), Body::Result { answer, .. }) => {
                return if *print == result_print(&answer.content, &answer.told) { Ok(()) } else { Err(Elsewhere) };
            }
            (Record::Activity { id, kind }, Body::Activity { kind: now, content }) => {
                kind.clone_from(&now);
                let mut event = json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": id, "activityType": now, "content": content });
                self.attribution.mark(&mut event, item.agent.as_deref());
                self.open(events);
                events.push(event);
                return Ok(());
            }
            _ => return Err(Elsewhere),
        };
        self.grow(&item.key, &rest, is_live, events);
        Ok(())
    }

    /// Appends to a text, ends it, or reopens it.
    fn grow(&mut self, key: &Key, more: &str, is_live: bool, events: &mut Vec<Value>) {
        let was = self.live.iter().position(|(live, _)| live == key);
        if more.is_empty() && was.is_some() == is_live {
            return;
        }
        let Some((bracket, start)) = self.known.records.get(key).and_then(Record::bracket) else { return };
        self.open(events);
        if was.is_none() {
            events.extend(start);
        }
        if !more.is_empty() {
            events.push(bracket.content(more));
        }
        match (was, is_live) {
            (None, true) => self.live.push((key.clone(), bracket)),
            (Some(at), false) => {
                events.extend(bracket.end());
                self.live.remove(at);
            }
            (None, false) => events.extend(bracket.end()),
            (Some(_), true) => {}
        }
    }

    fn patch(&mut self, key: &Key, patch: Vec<Value>, events: &mut Vec<Value>) {
        if let Some(Record::Activity { id, kind }) = self.known.records.get(key) {
            let event = json!({ "type": "ACTIVITY_DELTA", "messageId": id, "activityType": kind, "patch": patch });
            self.open(events);
            events.push(event);
        }
    }

    fn call_changed(&mut self, id: &str, patch: Vec<Value>, events: &mut Vec<Value>) -> Result<(), Elsewhere> {
        let key = Key::Call(id.into());
        let agent = self.known.placed("tool-call-progress", id).and_then(|place| place.agent.clone());
        let Some(Record::Call { print, scan, kept, .. }) = self.known.records.get_mut(&key) else { return Ok(()) };
        let (name, had_ended) = (call::name(kept.members()).to_owned(), call::has_ended(kept.members()));
        let change = kept.follow(patch)?;
        if name != call::name(kept.members()) {
            return Err(Elsewhere);
        }
        let more = match change.said("input") {
            Some(input) => advance(print, &input.to_string())?,
            // The arguments are complete.
            None if kept.members().contains_key("input") => String::new(),
            None if change.loses_input || change.said("input_text").is_some() && !print.is_empty() => return Err(Elsewhere),
            None => {
                let begun = call::chunks(change.said("input_text"));
                let chunks = begun.chain(change.arguments.iter().map(String::as_str));
                let more = chunks.map(|chunk| scan.push(chunk)).collect::<String>();
                print.push(&more);
                more
            }
        };
        let kept = kept.clone();
        self.grow(&key, &more, call::is_live(kept.members()), events);
        let made = |key: Key, body: Body| Item { key, order: KNOWN, is_history: false, run: None, agent: agent.clone(), body };
        let progress = Key::Progress(id.into());
        if self.known.records.contains_key(&progress) {
            if !change.report.is_empty() {
                self.patch(&progress, change.report.clone(), events);
            }
        } else if kept.is_reported() && !self.known.omitted.contains(&progress) {
            let body = Body::Activity { kind: "tool-call-progress".into(), content: change.first_report(&kept)? };
            let item = Item { run: self.log.clone(), ..made(progress, body) };
            self.begin(&item, events)?;
        }
        if change.is_about_result {
            let answer = call::answer(|member| kept.get(&change, member))?;
            let key = Key::Result(id.into());
            match (answer, self.known.records.get(&key)) {
                (Some(answer), None) => {
                    let body = Body::Result { call: id.into(), answer, id: None };
                    let item = Item { run: self.log.clone(), ..made(key, body) };
                    self.begin(&item, events)?;
                }
                (Some(answer), Some(Record::Result(print))) if *print == result_print(&answer.content, &answer.told) => {}
                (None, _) if !had_ended => {}
                _ => return Err(Elsewhere),
            }
        }
        Ok(())
    }
}

/// Advances the digest to this text and returns the new part.
fn advance(print: &mut Print, whole: &str) -> Result<String, Elsewhere> {
    let rest = print.rest(whole).ok_or(Elsewhere)?.to_owned();
    print.push(&rest);
    Ok(rest)
}

fn kind(frame: &Frame) -> &str {
    match frame {
        Frame::ActivitySnapshot(shown) => &shown.kind,
        Frame::ActivityDelta { activity_type, .. } => activity_type,
        _ => "",
    }
}

/// Rewrites an operation on the state activity's content as an operation on the state itself.
fn of_state(mut op: Value) -> Value {
    for member in ["path", "from"] {
        if let Some(Value::String(path)) = op.get_mut(member) {
            *path = path.strip_prefix("/state").unwrap_or(path).to_owned();
        }
    }
    op
}
