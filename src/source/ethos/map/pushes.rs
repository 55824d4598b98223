//! Events that Ethos' web server sends outside of the turn.
//!
//! They are approvals, questions, jobs and events of the server itself.
//!
//! The server waits for an approval that is requested here. It does not wait for the turn's own announcement.

use super::{EventHandler, Pending};
use crate::model::{ActionId, Draft, EventType, MessageId, Owner, SessionId, Surface, TaskId, ToolCallId};
use crate::source::Fact;
use crate::source::members::{
    carry_all, malformed, move_members, parse_timestamp, take_checked_id, take_id, take_number, take_question, take_text,
};
use serde_json::{Map, Value, json};

impl EventHandler<'_> {
    /// Requests the approval of a call.
    pub(super) fn approval_required(&mut self, mut fact: Fact) {
        let mut request = match fact.get("request") {
            Some(Value::Object(request)) => request.clone(),
            _ => Map::new(),
        };
        let Some(action) = take_id::<ActionId>(&mut request, "approvalId") else {
            return self.push(malformed("tool.approval_required", fact, "request as an object with an approvalId"));
        };
        fact.shift_remove("request");
        let call: Option<ToolCallId> = take_id(&mut request, "toolCallId");
        let session: Option<SessionId> = take_id(&mut request, "sessionId");
        let mut draft = carry_all(Draft::new(EventType::ActionRequired), fact).with("kind", "tool_approval");
        move_members(&mut draft, &mut request, &[("toolName", "toolName"), ("args", "input"), ("reason", "message")]);
        take_question(&mut draft, &mut request);
        draft = carry_all(draft, request);
        draft.owner = Owner::Policy;
        (draft.ids.action, draft.ids.tool_call) = (Some(action.clone()), call.clone());
        // The session of the request's query overrides Ethos' session.
        draft.ids.session = self.given.session.clone().or(session);
        self.memory.pending.add(Pending { action, call });
        self.push(draft);
    }

    pub(super) fn approval_resolved(&mut self, mut fact: Fact) {
        let action: ActionId = take_checked_id(&mut fact, "approvalId");
        let outcome = match fact.get("decision").and_then(Value::as_str) {
            Some("allow") => Some("approved"),
            Some("deny") => Some("rejected"),
            // An unknown decision sets no outcome; the payload keeps the decision.
            _ => None,
        };
        let mut draft = Draft::new(EventType::ActionResolved);
        draft.set("outcome", outcome);
        move_members(&mut draft, &mut fact, &[("decision", "decision"), ("decidedBy", "decidedBy")]);
        draft.owner = Owner::Policy;
        draft.ids.tool_call = self.memory.pending.take(&action).and_then(|pending| pending.call);
        draft.ids.action = Some(action);
        self.push_carrying(draft, fact);
    }

    /// Asks the user a question during the turn.
    pub(super) fn clarify_request(&mut self, mut fact: Fact) {
        let action: ActionId = take_checked_id(&mut fact, "requestId");
        let mut draft = Draft::new(EventType::ActionRequired).with("kind", "clarification");
        move_members(&mut draft, &mut fact, &[("question", "message"), ("options", "options"), ("default", "default")]);
        match fact.shift_remove("defaultDeadlineAt").map(|at| (parse_timestamp(&at), at)) {
            Some((Some(at), _)) => drop(draft.payload.insert("expiresAt".into(), Value::from(&*at))),
            Some((None, at)) if !at.is_null() => drop(fact.insert("defaultDeadlineAt".into(), at)),
            _ => {}
        }
        draft.owner = Owner::Runtime;
        draft.ids.task = take_id(&mut fact, "jobId");
        draft.ids.action = Some(action.clone());
        self.memory.pending.add(Pending { action, call: None });
        self.push_carrying(draft, fact);
    }

    pub(super) fn clarify_resolved(&mut self, mut fact: Fact) {
        let action: ActionId = take_checked_id(&mut fact, "requestId");
        let outcome = match fact.get("source").and_then(Value::as_str) {
            Some("user") => Some("answered"),
            Some("timeout-default" | "timeout-no-default") => Some("expired"),
            Some("cancel") => Some("cancelled"),
            _ => None,
        };
        let mut draft = Draft::new(EventType::ActionResolved);
        draft.set("outcome", outcome);
        move_members(&mut draft, &mut fact, &[("source", "resolvedBy")]);
        draft.owner = Owner::Runtime;
        self.memory.pending.take(&action);
        draft.ids.action = Some(action);
        self.push_carrying(draft, fact);
    }

    /// Reports a notification of a plugin or the server to the user.
    ///
    /// It is not the user's own message, even if a plugin starts a turn because of it.
    pub(super) fn notification(&mut self, mut fact: Fact) {
        let mut content = Draft::new(EventType::SessionUpdated);
        let members = ["message", "pluginId", "startTurn", "payload", "source"].map(|member| (member, member));
        move_members(&mut content, &mut fact, &members);
        let mut draft = Draft::new(EventType::SessionUpdated).with("notification", Value::Object(content.payload));
        draft.add_ref("sessionKey", take_text(&mut fact, "sessionKey"));
        (draft.owner, draft.surface) = (Owner::Runtime, Surface::WorkerNotifications);
        self.push_carrying(draft, fact);
    }

    /// Reports the id under which Ethos' server stores a message.
    /// The adapter's own message id does not change.
    pub(super) fn message_persisted(&mut self, mut fact: Fact) {
        let id: MessageId = take_checked_id(&mut fact, "messageId");
        let role = take_text(&mut fact, "role");
        let persisted = json!({ "messageId": id.as_str(), "role": role });
        let mut draft = Draft::new(EventType::SessionUpdated).with("persisted", persisted);
        if role.as_deref() == Some("assistant") {
            let ours = self.memory.message.as_ref().or(self.memory.last_message.as_ref());
            draft.ids.message = ours.cloned();
        }
        self.push_carrying(draft, fact);
    }

    /// Reports the status of a background job.
    pub(super) fn job_update(&mut self, mut fact: Fact) {
        let mut draft = Draft::new(EventType::TaskChanged).with("runtimeEntity", "automation_job");
        draft.ids.task = Some(take_checked_id::<TaskId>(&mut fact, "jobId"));
        let members = [
            ("status", "status"),
            ("now", "message"),
            ("elapsedMs", "durationMs"),
            ("toolCount", "toolCount"),
            ("runner", "runner"),
        ];
        move_members(&mut draft, &mut fact, &members);
        if let Some(spent) = take_number(&mut fact, "spendUsd") {
            draft.payload.insert("usage".into(), json!({ "costUsd": spent }));
        }
        self.push_carrying(draft, fact);
    }

    /// Reports that the schedule has started a job.
    pub(super) fn cron_fired(&mut self, mut fact: Fact) {
        let mut draft = Draft::new(EventType::TaskChanged).with("runtimeEntity", "automation_job").with("wakeReason", "cron");
        draft.ids.task = Some(take_checked_id::<TaskId>(&mut fact, "jobId"));
        draft.timestamp = fact.get("ranAt").and_then(parse_timestamp);
        move_members(&mut draft, &mut fact, &[("ranAt", "ranAt"), ("outputPath", "lastRunRef")]);
        draft.add_ref("sessionKey", take_text(&mut fact, "sessionKey"));
        self.push_carrying(draft, fact);
    }
}
