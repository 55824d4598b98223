//! Tool calls: a call is what its updates say so far.
//!
//! An update replaces the members that it has, also the whole content. It may be the first mention of its call. The
//! ids are those of a session. `cancelled` is no status of a call: the end of the turn closes what is open.

use super::{EventHandler, block_text, id_from, members_of};
use crate::Fact;
use crate::bounded::Bounded;
use crate::digest::TextDigest;
use crate::members::{diagnostic, malformed, name_of, take_list, take_text};
use proscenium_model::{ArtifactId, Audience, Draft, EventType, Owner, Persistence, Phase, Scope, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The most diffs of a call that are recognised when they come again.
const DIFFS_MAX: usize = 32;

/// The id of the calls that an agent names by an empty text.
const UNNAMED: &str = "acp-unnamed";

/// A call without an end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub id: ToolCallId,
    pub name: String,
    /// The input that was last reported: agents repeat it.
    input: TextDigest,
    diffs: Bounded<TextDigest, DIFFS_MAX>,
}

/// Whether a status ends a call.
pub(super) fn is_final(status: &str) -> bool {
    matches!(status, "completed" | "failed")
}

/// The text of a call's content, which is a list of blocks in wrappers.
pub(super) fn content_text(content: Option<&Value>) -> Option<String> {
    let texts: Vec<&str> = content?.as_array()?.iter().filter_map(|item| block_text(item.get("content")?)).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// What an update shows of its call, beside its output: the title, and the content that is more than one text.
#[derive(Default)]
struct Shown {
    title: Option<String>,
    blocks: Option<Value>,
}

impl Shown {
    /// Reads an update's content. A content of one text, or of none, is the call's output or message alone.
    fn of(title: Option<String>, content: &[Value], had_blocks: bool) -> Self {
        let is_one_text = matches!(content, [only] if only.get("content").and_then(block_text).is_some());
        let blocks = match content {
            [] => None,
            _ if is_one_text => had_blocks.then(|| json!([])),
            blocks => Some(blocks.to_vec().into()),
        };
        Self { title, blocks }
    }

    fn is_empty(&self) -> bool {
        self.title.is_none() && self.blocks.is_none()
    }

    fn put(self, draft: Draft) -> Draft {
        draft.call(|call| {
            call.title = self.title;
            call.blocks = self.blocks.map(Box::new);
        })
    }
}

/// The files that a call touches.
const LOCATIONS: &[(&str, &str)] = &[("locations", "locations")];

impl EventHandler<'_> {
    /// The call's id in this log.
    pub(super) fn call_of(&self, update: &Fact) -> Option<ToolCallId> {
        let id = update.get("toolCallId").and_then(Value::as_str)?;
        Some(id_from(&self.scoped(if id.is_empty() { UNNAMED } else { id })))
    }

    pub(super) fn tool_update(&mut self, event_type: &str, mut update: Fact) {
        let Some(id) = self.call_of(&update) else { return self.push(malformed(event_type, update, "toolCallId as text")) };
        update.retain(|_, value| !value.is_null());
        update.shift_remove("toolCallId");
        let status = take_text(&mut update, "status");
        let ends = status.as_deref().is_some_and(is_final);
        let is_known = self.memory.calls.open.has(&id) || self.out.has_started(&id);
        if !is_known && !ends && self.is_outside_turns() && self.out.next_attempt() > 1 {
            // No end would follow: the turn that closes open calls is over.
            update.insert("toolCallId".into(), id.as_str().into());
            return self.push(diagnostic("late_call", event_type, update));
        }
        self.close_part();
        self.settle_unseen_permission(&id, status.as_deref());
        let is_announced = event_type == "tool_call" && !self.memory.calls.open.has(&id);
        let is_new = !is_known || is_announced;
        let title = take_text(&mut update, "title").filter(|title| !title.is_empty());
        let content = take_list(&mut update, "content");
        let had_blocks = self.memory.calls.open.find(&id).is_some_and(|call| !call.diffs.is_empty());
        let text = content_text(Some(&Value::Array(content.clone())));
        if is_new && ends && event_type != "tool_call" {
            // The announcement of the call may still come.
            self.open_call(&id, &mut update);
        } else if is_new {
            self.start_call(&id, title.as_deref(), &mut update);
        } else {
            self.rename(&id, &mut update);
        }
        self.input(&id, &mut update);
        let has_start = is_new && !(ends && event_type != "tool_call");
        let shown = Shown::of(title.clone().filter(|_| !has_start), &content, had_blocks);
        self.content(&id, content);
        match status.as_deref() {
            Some("completed") => self.completed(id.clone(), text, shown, update),
            Some("failed") => self.failed(id.clone(), text, shown, update),
            status => self.progressed(id.clone(), status, text.or_else(|| title.filter(|_| !is_new)), shown, update),
        }
        self.memory.calls.forget_if_ended(&id, &self.out);
    }

    /// Opens a call, and returns its name: the agent's, else its kind. A title is for people.
    fn open_call(&mut self, id: &ToolCallId, update: &mut Fact) -> String {
        let named = take_text(update, "name").or_else(|| self.tool_name.clone());
        let kind = || update.get("kind").and_then(Value::as_str).map(str::to_owned);
        let name = named.or_else(kind).unwrap_or_else(|| "other".into());
        let call = Call { id: id.clone(), name: name_of(&name), input: TextDigest::default(), diffs: Bounded::default() };
        self.memory.calls.start(call);
        name
    }

    fn start_call(&mut self, id: &ToolCallId, title: Option<&str>, update: &mut Fact) {
        let kind = update.get("kind").and_then(Value::as_str).map(str::to_owned);
        let name = self.open_call(id, update);
        let locations = update.shift_remove("locations").filter(|locations| *locations != json!([]));
        update.shift_remove("kind");
        let draft = Draft::new(EventType::ToolStarted).call(|call| {
            call.tool_name = Some(name);
            call.kind = kind;
            call.message = title.map(str::to_owned);
            call.title = title.map(str::to_owned);
            call.locations = locations.map(Box::new);
        });
        self.push(draft.with_call(id.clone()));
    }

    /// Takes the tool's name, which an agent may say late.
    fn rename(&mut self, id: &ToolCallId, update: &mut Fact) {
        let named = take_text(update, "name").or_else(|| self.tool_name.clone());
        if let (Some(call), Some(name)) = (self.memory.calls.open.find_mut(id), named) {
            call.name = name_of(&name);
        }
    }

    /// Reports the input, if it is another one.
    fn input(&mut self, id: &ToolCallId, update: &mut Fact) {
        let Some(input) = update.shift_remove("rawInput") else { return };
        let digest = TextDigest::of(input.to_string().as_bytes());
        match self.memory.calls.open.find_mut(id) {
            Some(call) if call.input == digest => return,
            Some(call) => call.input = digest,
            None => {}
        }
        // An agent announces a call before it has the input.
        if input == json!({}) {
            return;
        }
        let draft = self.about(EventType::ToolArgs, id).call(|call| call.input = Some(input.into()));
        self.push(draft.with_persistence(Persistence::Archive));
    }

    /// Reports the content that is no text: diffs, terminals, images.
    fn content(&mut self, id: &ToolCallId, content: Vec<Value>) {
        for item in content {
            match item.get("type").and_then(Value::as_str) {
                Some("content") => {
                    if let Some(block) = item.get("content").filter(|block| block_text(block).is_none()) {
                        self.artifact(block.clone(), None, Some(id.clone()), Map::new());
                    }
                }
                Some("diff") => self.diff(id, item),
                Some("terminal") => {
                    if let Some(terminal) = item.get("terminalId").and_then(Value::as_str) {
                        self.link_terminal(terminal, id);
                    }
                }
                _ => {
                    let item = members_of(item, "content");
                    self.push(diagnostic("unknown_content", "tool_call_update", item).with_call(id.clone()));
                }
            }
        }
    }

    /// Reports a change of a file. The guard moves long texts to blobs.
    fn diff(&mut self, id: &ToolCallId, diff: Value) {
        let digest = TextDigest::of(diff.to_string().as_bytes());
        if let Some(call) = self.memory.calls.open.find_mut(id) {
            if call.diffs.has(&digest) {
                return;
            }
            call.diffs.push(digest);
        }
        let mut diff = members_of(diff, "diff");
        diff.shift_remove("type");
        let path = take_text(&mut diff, "path").unwrap_or_default();
        let artifact: ArtifactId = id_from(&path);
        let text = |member: &str| diff.get(member).and_then(Value::as_str);
        let new = text("newText").unwrap_or_default();
        let (old_bytes, is_new) = (text("oldText").map(str::len), text("oldText").is_none());
        let mut draft = Draft::new(EventType::ArtifactDiffReady).with("path", path).with("kind", "file");
        draft = draft.with("sha256", format!("{:x}", Sha256::digest(new))).with("bytes", new.len());
        draft = draft.with_some("oldBytes", old_bytes).with("isNew", is_new);
        (draft.owner, draft.phase, draft.persistence) = (Owner::Tool, Phase::Acting, Persistence::Archive);
        (draft.ids.artifact, draft.ids.tool_call) = (Some(artifact), Some(id.clone()));
        for member in ["oldText", "newText"] {
            draft.set(member, diff.shift_remove(member).filter(|text| !text.is_null()));
        }
        self.push_carrying(draft, diff);
    }

    fn progressed(&mut self, id: ToolCallId, status: Option<&str>, message: Option<String>, shown: Shown, mut rest: Fact) {
        let status = status.filter(|status| *status != "pending");
        if status.is_none() && message.is_none() && shown.is_empty() && rest.is_empty() {
            return;
        }
        let mut draft = self.about(EventType::ToolProgress, &id).with_moved(&mut rest, LOCATIONS);
        match status {
            Some("in_progress") => draft = draft.call(|call| call.status = Some("running".to_owned())),
            Some(odd) => drop(rest.insert("callStatus".into(), odd.into())),
            None => {}
        }
        let draft = shown.put(draft.call(|call| call.message = message));
        self.push_carrying(draft.with_audience(Audience::User), rest);
    }

    fn completed(&mut self, id: ToolCallId, text: Option<String>, shown: Shown, mut rest: Fact) {
        let raw = rest.shift_remove("rawOutput");
        let (output, raw) = match text {
            Some(text) => (Some(text.into()), raw),
            None => (raw, None),
        };
        let draft = self.about(EventType::ToolResult, &id).with_moved(&mut rest, LOCATIONS).call(|call| {
            call.status = Some("completed".to_owned());
            call.output = output.map(Box::new);
            call.raw_output = raw.map(Box::new);
        });
        let draft = shown.put(draft).with_audience(Audience::User);
        self.memory.calls.end(&id);
        self.push_carrying(draft, rest);
    }

    fn failed(&mut self, id: ToolCallId, text: Option<String>, shown: Shown, mut rest: Fact) {
        let raw = rest.shift_remove("rawOutput");
        let said =
            raw.as_ref().and_then(|raw| raw.as_str().or_else(|| ["error", "message"].iter().find_map(|m| raw.get(*m)?.as_str())));
        let message = text.or_else(|| said.map(str::to_owned)).unwrap_or_else(|| "the tool failed without saying why".into());
        let draft = self.about(EventType::ToolFailed, &id).with_moved(&mut rest, LOCATIONS);
        let draft = shown.put(draft.call(|call| {
            call.error = Some(json!({ "message": message }).into());
            call.raw_output = raw.map(Box::new);
        }));
        self.memory.calls.end(&id);
        self.push_carrying(draft, rest);
    }

    /// Adds to a call's content, in protocol 2.
    pub(super) fn tool_content_chunk(&mut self, mut update: Fact) {
        let Some(id) = self.call_of(&update) else {
            return self.push(malformed("tool_call_content_chunk", update, "toolCallId as text"));
        };
        update.shift_remove("toolCallId");
        let item = update.shift_remove("content").unwrap_or(Value::Null);
        if !self.memory.calls.know(&id, &self.out) {
            self.start_call(&id, None, &mut update);
        }
        let text = item.get("content").and_then(block_text).or_else(|| block_text(&item)).map(str::to_owned);
        match text {
            Some(text) => {
                let draft = self.about(EventType::ToolOutputDelta, &id).with_text(text).with_audience(Audience::User);
                self.push_carrying(draft, update);
            }
            None => self.content(&id, vec![item]),
        }
    }

    /// Creates a draft about a call, with the name of its tool.
    pub(super) fn about(&self, class: EventType, id: &ToolCallId) -> Draft {
        let name = self.memory.calls.open.find(id).map(|call| call.name.clone());
        Draft::new(class).with_tool_name(name).with_scope(Scope::ToolCall).with_call(id.clone())
    }
}
