//! What tools report of themselves: seed 002's progress, and activities of a tool's own making. Reporting is their author's
//! decision to show, so they are for users.

use super::{PROGRESS, Step};
use crate::model::{Audience, Draft, EventType, MessageId, Persistence, RunId, Surface, ToolCallId};
use crate::source::members::{carrying, take_known_id, take_text};
use crate::source::{Fact, FactError};
use serde_json::{Map, Value};

impl Step<'_> {
    pub(super) fn activity_snapshot(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let target = take_known_id(&mut fact, "message_id")?;
        let activity = take_text(&mut fact, "activity_type").unwrap_or_default();
        let content = fact.shift_remove("content").unwrap_or(Value::Null);
        let replace = fact.shift_remove("replace").filter(|v| !v.is_null());
        match content {
            Value::Object(content) if activity == PROGRESS => self.progress(target, content, replace, fact),
            content => {
                let mut draft = self.activity(target, activity, fact).with("content", content);
                draft.payload.extend(replace.map(|replace| ("replace".to_owned(), replace)));
                self.push(draft);
            }
        }
        Ok(())
    }

    pub(super) fn activity_delta(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let target = take_known_id(&mut fact, "message_id")?;
        let activity = take_text(&mut fact, "activity_type").unwrap_or_default();
        let patch = match fact.shift_remove("patch") {
            Some(patch @ Value::Array(_)) => patch,
            None => Value::Array(Vec::new()),
            Some(bare) => Value::Array(vec![bare]),
        };
        let draft = self.activity(target, activity, fact).with("patch", patch);
        self.push(draft);
        Ok(())
    }

    /// An activity of a tool's own making. Awaken puts the id of the call that makes it in the place of a message's.
    fn activity(&self, target: ToolCallId, activity: String, rest: Fact) -> Draft {
        let mut draft = carrying(Draft::new(EventType::ToolProgress).with("activityType", activity), rest);
        if self.memory.knows_call(&target) {
            draft.ids.tool_call = Some(target);
        } else {
            draft.ids.message = MessageId::new(target.as_str()).ok();
        }
        (draft.persistence, draft.audience) = (Persistence::Snapshot, Audience::User);
        draft
    }

    fn progress(&mut self, target: ToolCallId, mut content: Map<String, Value>, replace: Option<Value>, rest: Fact) {
        let id = content.get("call_id").and_then(Value::as_str).and_then(|id| ToolCallId::new(id).ok()).unwrap_or(target);
        let parent = content.get("parent_call_id").filter(|v| !v.is_null()).cloned();
        let child_run = content.get("run_id").and_then(Value::as_str).filter(|run| {
            let is = |ours: Option<&RunId>| ours.is_none_or(|ours| ours.as_str() == *run);
            !is(self.memory.run.as_ref()) && self.given.run.as_ref().is_none_or(|ours| ours.as_str() != *run)
        });
        let child_run = child_run.map(|run| Value::from(run.to_owned()));
        let is_child = parent.is_some() || child_run.is_some();
        let mut draft = self.tool(EventType::ToolProgress, id.clone(), rest);
        draft.payload.extend(content.shift_remove("tool_name").map(|name| ("toolName".to_owned(), name)));
        for member in ["status", "progress", "loaded", "total", "message"] {
            draft.payload.extend(content.shift_remove(member).map(|value| (member.to_owned(), value)));
        }
        draft.payload.extend(content);
        if replace == Some(Value::Bool(false)) {
            draft.payload.insert("replace".into(), false.into());
        }
        draft.audience = Audience::User;
        if is_child {
            draft = draft.with("runtimeEntity", "subagent_turn");
            draft.surface = Surface::TaskCapsule;
            for (rel, value) in [("parentToolCallId", parent), ("childRunId", child_run)] {
                if let Some(value) = value {
                    draft.add_ref(rel, value);
                }
            }
        }
        if !self.memory.knows_call(&id) {
            // A child's call is announced nowhere else; from here on its activities are known to be a call's.
            self.memory.remember_ended(id);
        }
        let mut draft = self.memory.about(draft, self.given);
        if is_child {
            // Which agent the child is, its progress does not say; it is not the one that speaks here.
            draft.ids.agent = None;
        }
        self.out.push(draft);
    }
}
