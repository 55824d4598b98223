//! Tool calls: the model's requests and their results.
//!
//! Each `toolCall` event contains the whole current call; the event with `isComplete` is the end. A result is text, a
//! body that the runtime stores elsewhere (`{}` on the wire), or the description of a media file. The handling and
//! trust members of a media file are internal.

use super::{EventHandler, TurnRunner, key_of};
use crate::Fact;
use crate::bounded::keyed;
use crate::digest::hash_of;
use crate::members::{RuntimeId, diagnostic, id_from, take_flag, take_text, take_time};
use crate::turn::error;
use proscenium_model::{ArtifactId, Audience, Draft, EventType, Owner, Phase, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Members of a media file that are public. All others are internal.
const MEDIA_MEMBERS: &[&str] = &["kind", "mimeType", "filename", "source"];

/// Trust members of a media file. Only ADK's own media have them.
const TRUST: &[&str] = &["trustTier", "modalityHazard"];

/// The progress of a call's execution, according to telemetry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Execution {
    #[default]
    None,
    Running,
    Over,
}

/// A started call without an end. It holds hashes of the names and arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub key: u64,
    /// The reader-visible id.
    pub id: ToolCallId,
    pub tool: Option<u64>,
    pub checksum: Option<u64>,
    /// The hash of the last reported arguments.
    args: Option<u64>,
    pub execution: Execution,
}

keyed! { Call: u64 = key; }

impl TurnRunner {
    /// Returns the open call with this key, and whether it is new.
    fn call(&mut self, key: u64, id: &ToolCallId) -> (&mut Call, bool) {
        let is_new = !self.calls.has(&key);
        if is_new {
            let call = Call { key, id: id.clone(), tool: None, checksum: None, args: None, execution: Execution::None };
            if let Some(oldest) = self.calls.add(call) {
                // The next event of that call starts it anew.
                self.used.forget(oldest.key);
            }
            self.used.add(key);
        }
        (self.calls.find_mut(&key).expect("the lines above have added it"), is_new)
    }

    fn end_call(&mut self, key: u64) {
        self.calls.take(&key);
        self.used.add(key);
    }

    /// Returns the reader-visible id of a call, by ADK's id.
    pub(super) fn call_named(&self, id: &str) -> ToolCallId {
        id_from(&self.name(key_of("toolCall", id), id))
    }
}

impl EventHandler<'_> {
    pub(super) fn tool_call(&mut self, mut payload: Fact) {
        let native = payload.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = key_of(self.event, &native);
        let id = self.memory.call_named(&native);
        if self.memory.has_ended(key) {
            // A call has only one end.
            return self.push(diagnostic("write_after_seal", self.event, payload).with_call(id));
        }
        payload.shift_remove("id");
        let name = take_text(&mut payload, "tool").filter(|name| !name.is_empty());
        let checksum = take_text(&mut payload, "checksum").filter(|checksum| !checksum.is_empty());
        let args = payload.shift_remove("args").filter(|args| !args.is_null());
        let is_complete = take_flag(&mut payload, "isComplete").unwrap_or(false);
        let is_error = take_flag(&mut payload, "isError").unwrap_or(false) && is_complete;
        let at = take_time(&mut payload, "updatedAt");
        let (created, results) = (payload.shift_remove("createdAt"), payload.shift_remove("results"));
        let completed = if is_complete { payload.shift_remove("completedAt") } else { None };
        self.carry_remaining(payload);
        let of = |class: EventType| {
            let draft = Draft::new(class).with_call(id.clone()).with_timestamp(at.clone());
            draft.with_ref("checksum", checksum.as_deref())
        };

        let (call, is_new) = self.memory.call(key, &id);
        let (tool, checked) = (name.as_deref().map(hash_of), checksum.as_deref().map(hash_of));
        let args_hash = args.as_ref().map(|args| hash_of(&args.to_string()));
        let is_renamed = tool.is_some() && call.tool != tool;
        let has_news = args_hash.is_some() && call.args != args_hash
            || is_renamed && !is_new
            || checked.is_some() && call.checksum != checked && !is_new;
        call.tool = tool.or(call.tool);
        call.checksum = checked.or(call.checksum);
        call.args = args_hash.or(call.args);
        if is_new {
            let mut draft = of(EventType::ToolStarted);
            // Until its result, the call is the model's request and not yet the tool's work.
            draft.owner = Owner::Model;
            draft = draft.with_tool_name(name.as_deref()).with_some("createdAt", created);
            draft.add_ref("nativeId", (id.as_str() != native).then_some(native));
            self.push(draft);
        }
        if has_news {
            let mut draft = of(EventType::ToolArgs);
            // The event has the whole current arguments. They replace the earlier ones.
            draft = draft.call(|call| call.input = args.map(Box::new));
            self.push(draft.with_tool_name(name.as_deref().filter(|_| is_renamed && !is_new)));
        }
        if is_complete {
            self.memory.end_call(key);
            let draft = of(if is_error { EventType::ToolFailed } else { EventType::ToolResult });
            self.end_of_call(draft.with_tool_name(name).with_some("completedAt", completed), results.unwrap_or(Value::Null));
        } else if let Some(results) = results.filter(|results| !results.is_null()) {
            // Only the end of a call carries its result.
            let early = Fact::from_iter([("results".to_owned(), results)]);
            self.push(diagnostic("results_before_end", self.event, early).with_call(id));
        }
    }

    fn end_of_call(&mut self, mut draft: Draft, results: Value) {
        draft = draft.with_owner(Owner::Tool).with_audience(Audience::User);
        let mut handling = Vec::new();
        if draft.event_type == EventType::ToolFailed {
            draft = self.failed(draft, results, &mut handling);
        } else {
            draft = place_output(draft.call(|call| call.status = Some("completed".to_owned())), results, &mut handling);
        }
        let call = draft.ids.tool_call.clone();
        self.push(draft);
        if !handling.is_empty() {
            let draft = Draft::new(EventType::DiagnosticChanged).with("kind", "media_handling").with("media", handling);
            self.push(draft.with_call(call));
        }
    }

    /// Creates the end of a failed call. During an abort of the turn the failure is a cancellation.
    fn failed(&self, mut draft: Draft, results: Value, handling: &mut Vec<Value>) -> Draft {
        let lines = |lines: &[Value]| lines.iter().map(Value::as_str).collect::<Option<Vec<_>>>().map(|lines| lines.join("\n"));
        let message = match &results {
            Value::String(message) => Some(message.clone()),
            Value::Array(items) => lines(items),
            _ => None,
        };
        if self.memory.is_aborting {
            draft.phase = Phase::Cancelled;
        }
        if message.is_none() {
            draft = place_output(draft, results, handling);
        }
        let message = message.filter(|message| !message.is_empty());
        let code = self.memory.is_aborting.then_some("cancelled");
        let error = error(code, message.unwrap_or_else(|| "the tool failed without saying why".into()));
        draft.call(|call| call.error = Some(Box::new(error.into())))
    }
}

/// Places a call's result in the draft: inline data as its output, or as the `data` of a failure, and external data under
/// references.
fn place_output(mut draft: Draft, results: Value, handling: &mut Vec<Value>) -> Draft {
    let mut media = Vec::new();
    let is_reference = is_elsewhere(&results) || is_media(&results);
    match public_view(results, true, &mut media, handling) {
        Value::Null => {}
        reference if is_reference => draft = draft.call(|call| call.output_ref = Some(reference.into())),
        data if draft.event_type == EventType::ToolFailed => draft = draft.with("data", data),
        output => draft = draft.call(|call| call.output = Some(output.into())),
    }
    if let [Value::Object(only)] = media.as_slice() {
        draft.ids.artifact = only.get("artifactId").and_then(Value::as_str).and_then(ArtifactId::of);
    }
    for media in media {
        draft.add_ref("artifact", Some(media));
    }
    draft
}

/// Returns the public view of a call's result.
///
/// The function also appends the public part of each media file to `media`, and the internal part to `handling`. Within
/// a tool's own data (`is_result` is false), it recognises only media, not the other forms of ADK.
fn public_view(value: Value, is_result: bool, media: &mut Vec<Value>, handling: &mut Vec<Value>) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| public_view(item, is_result, media, handling)).collect(),
        // A spooled artifact has no JSON form: the call has a result, but only the runtime has its body.
        value if is_result && is_elsewhere(&value) => json!({ "kind": "spooled_artifact", "available": false }),
        value if !is_media(&value) => match value {
            Value::Object(data) => {
                data.into_iter().map(|(member, value)| (member, public_view(value, false, media, handling))).collect()
            }
            plain => plain,
        },
        Value::Object(mut described) => {
            let id = described.shift_remove("id").map(|id| ("artifactId".to_owned(), id));
            let (open, hidden): (Map<_, _>, Map<_, _>) =
                described.into_iter().partition(|(member, _)| MEDIA_MEMBERS.contains(&member.as_str()));
            if !hidden.is_empty() {
                handling.push(Value::Object(id.clone().into_iter().chain(hidden).collect()));
            }
            let reference = Value::Object(id.into_iter().chain(open).collect());
            media.push(reference.clone());
            reference
        }
        plain => plain,
    }
}

fn is_elsewhere(results: &Value) -> bool {
    results.as_object().is_some_and(Map::is_empty)
}

fn is_media(results: &Value) -> bool {
    let is_text = |member: &str| results.get(member).is_some_and(Value::is_string);
    TRUST.iter().any(|member| results.get(*member).is_some()) || ["id", "kind", "mimeType"].into_iter().all(is_text)
}
