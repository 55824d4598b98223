//! A run's UI messages, equal to the ones that a client has after the stream.

use super::call::{self, Approval, Target, data};
use super::message_writer::data_part;
use super::pieces::{
    PartForm, Piece, data_of, is_answer, is_run, is_streaming, metadata_of, part_form, part_id, part_kind, parts, pieces,
    teammate,
};
use super::text;
use crate::content_copy::joined;
use crate::files::{FilePart, files};
use crate::frames::ActivityView;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// Builds the UI messages of a run's activities.
///
/// They are the messages of users and systems, and the assistant message with the id `run`, as its stream leaves it in
/// a client. The assistant message comes last: a client continues the last message.
#[must_use]
pub fn messages(activities: &[ActivityView], run: &str, version: u8) -> Vec<Value> {
    let mut messages: Vec<Value> = activities.iter().filter_map(client_message).collect();
    let whole = MessageBuilder::of(activities, version);
    let parts: Vec<Value> = pieces(activities).into_iter().flat_map(|piece| whole.parts_of(&piece)).collect();
    if parts.is_empty() {
        return messages;
    }
    let mut message = json!({ "id": run, "role": "assistant", "parts": [{ "type": "step-start" }] });
    message["parts"].as_array_mut().expect("the message was built with a parts array").extend(parts);
    let metadata: Map<String, Value> =
        activities.iter().filter(|activity| is_run(activity)).flat_map(|run| metadata_of(&run.id, &run.content)).collect();
    if !metadata.is_empty() {
        message["metadata"] = metadata.into();
    }
    messages.push(message);
    messages
}

/// A user's or system message in the client's form; `None` for others and for teammates' input.
fn client_message(message: &ActivityView) -> Option<Value> {
    let parts = parts(message).filter(|_| !is_answer(message) && teammate(message).is_none())?;
    let role = if message.text("role") == Some("user") { "user" } else { "system" };
    let mut parts: Vec<Value> = parts
        .iter()
        .map(|part| match part_form(part) {
            PartForm::Text(_) => json!({ "type": "text", "text": joined(part.get("text")) }),
            PartForm::Data | PartForm::Omitted => data_part(part_kind(part), &part_id(&message.id, part), part.clone()),
        })
        .collect();
    parts.extend(files(&message.content).iter().filter_map(FilePart::of).map(|file| file.to_ai_sdk()));
    (!parts.is_empty()).then(|| json!({ "id": message.id, "role": role, "parts": parts }))
}

/// The facts about all activities that the parts of one activity depend on.
struct MessageBuilder<'s> {
    version: u8,
    /// By call: the latest approval about it, and its action.
    approvals: HashMap<&'s str, (Approval, &'s ActivityView)>,
    calls: HashMap<&'s str, &'s ActivityView>,
    /// The activities, by type and id, at which a tool part appears: the first of a call and its approvals.
    first_activities: HashSet<(&'s str, &'s str)>,
}

impl<'s> MessageBuilder<'s> {
    fn of(activities: &'s [ActivityView], version: u8) -> Self {
        let mut whole = Self { version, approvals: HashMap::new(), calls: HashMap::new(), first_activities: HashSet::new() };
        let mut seen = HashSet::new();
        for piece in pieces(activities) {
            let Piece::Whole(activity) = piece else { continue };
            let call = match &*activity.kind {
                call::KIND => {
                    whole.calls.insert(&activity.id, activity);
                    Some(&*activity.id)
                }
                "action" => Approval::of(&activity.id, activity.opened, &activity.content, version).map(|(call, approval)| {
                    whole.approvals.insert(call, (approval, activity));
                    call
                }),
                _ => None,
            };
            if call.is_some_and(|call| seen.insert(call)) {
                whole.first_activities.insert((&activity.kind, &activity.id));
            }
        }
        whole
    }

    fn parts_of(&self, piece: &Piece<'s>) -> Vec<Value> {
        match piece {
            Piece::Part(message, at) => self.part_of(message, *at).into_iter().collect(),
            Piece::Whole(activity) if is_run(activity) => Vec::new(),
            Piece::Whole(activity) => self.parts_of_whole(activity),
            Piece::Report(call) => vec![data_part(call::KIND, &call.id, data(&call.content))],
        }
    }

    fn part_of(&self, message: &ActivityView, at: usize) -> Option<Value> {
        let part = parts(message)?.get(at).filter(|_| is_answer(message))?;
        let id = part_id(&message.id, part);
        match part_form(part) {
            PartForm::Text(channel) => {
                let whole = joined(part.get("text"));
                Some(text::part(&id, channel, teammate(message), &whole, is_streaming(part)))
            }
            PartForm::Data => Some(data_part(part_kind(part), &id, part.clone())),
            PartForm::Omitted => None,
        }
    }

    fn parts_of_whole(&self, activity: &'s ActivityView) -> Vec<Value> {
        let is_first = self.first_activities.contains(&(&*activity.kind, &*activity.id));
        let of_kind = |data: Value| data_part(&activity.kind, &activity.id, data);
        match &*activity.kind {
            "reasoning" if activity.text("messageId").is_some() => {
                let (whole, is_streaming) = (joined(activity.content.get("text")), activity.text("status") == Some("streaming"));
                vec![text::part(&activity.id, text::Channel::Reasoning, teammate(activity), &whole, is_streaming)]
            }
            call::KIND => is_first.then(|| self.tool(&activity.id)).into_iter().collect(),
            kind => {
                let own = of_kind(data_of(kind, &activity.content).into_owned());
                let call = activity.text("toolCallId").filter(|_| is_first);
                [own].into_iter().chain(call.map(|call| self.tool(call))).collect()
            }
        }
    }

    /// The tool part of a call in its current state.
    fn tool(&self, id: &str) -> Value {
        let requested = self.approvals.get(id);
        match (self.calls.get(id), requested) {
            (Some(call), _) => Target::of(&call.content, requested.map(|(approval, _)| approval)).part(id, self.version),
            (None, Some((approval, action))) => Target::of_approval(&action.content, approval).part(id, self.version),
            (None, None) => unreachable!("a tool part appears with a call or with an approval of it"),
        }
    }
}
