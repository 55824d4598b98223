//! Reports of tools: seed 002's progress, and a tool's own activities.
//!
//! A tool's author reports in order to show it, so both are for users.

use super::EventHandler;
use crate::Fact;
use crate::members::{carry_all, take_checked_id, take_list, take_text};
use crate::report::{PROGRESS, call_of, report_draft};
use proscenium_model::{Audience, Draft, EventType, MessageId, Persistence, ToolCallId};
use serde_json::{Map, Value};

impl EventHandler<'_> {
    pub(super) fn activity_snapshot(&mut self, mut fact: Fact) {
        let target = take_checked_id(&mut fact, "message_id");
        let activity = take_text(&mut fact, "activity_type").unwrap_or_default();
        let content = fact.shift_remove("content").unwrap_or(Value::Null);
        let replace = fact.shift_remove("replace").filter(|v| !v.is_null());
        match content {
            Value::Object(content) if activity == PROGRESS => self.progress(target, content, replace, fact),
            content => {
                let draft = self.activity(target, activity, fact).call(|call| call.content = Some(content.into()));
                self.push(draft.with_some("replace", replace));
            }
        }
    }

    pub(super) fn activity_delta(&mut self, mut fact: Fact) {
        let target = take_checked_id(&mut fact, "message_id");
        let activity = take_text(&mut fact, "activity_type").unwrap_or_default();
        let patch = take_list(&mut fact, "patch");
        let draft = self.activity(target, activity, fact).call(|call| call.patch = Some(Box::new(patch.into())));
        self.push(draft);
    }

    /// Creates a draft of a tool's own activity. Awaken puts the id of the call in place of the message id.
    fn activity(&self, target: ToolCallId, activity: String, rest: Fact) -> Draft {
        let mut draft = carry_all(Draft::new(EventType::ToolProgress), rest).call(|call| call.activity_type = Some(activity));
        if self.memory.calls.open.has(&target) || self.out.know_call(&target) {
            draft.ids.tool_call = Some(target);
        } else {
            draft.ids.message = MessageId::new(target.as_str()).ok();
        }
        (draft.persistence, draft.audience) = (Persistence::Snapshot, Audience::User);
        draft
    }

    fn progress(&mut self, target: ToolCallId, content: Map<String, Value>, replace: Option<Value>, rest: Fact) {
        let id = call_of(&content).unwrap_or(target);
        let own = [self.memory.run.as_ref(), self.given.run.as_ref()];
        let (mut draft, is_child) = report_draft(id, content, own, rest);
        draft = draft.call(|call| call.replace = (replace == Some(Value::Bool(false))).then_some(false));
        let mut draft = self.memory.about(draft, self.given);
        if is_child {
            // The report does not name the child's agent, and the child is not the agent of this run.
            draft.ids.agent = None;
        }
        self.out.push(draft);
    }
}
