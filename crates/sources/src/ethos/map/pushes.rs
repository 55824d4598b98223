//! Events that Ethos' web server sends outside of the turn.
//!
//! They are approvals, questions, jobs and events of the server itself.
//!
//! The server waits for an approval that is requested here. It does not wait for the turn's own announcement.

use super::{EventHandler, Pending};
use crate::Fact;
use crate::members::{carry_all, malformed, parse_timestamp, take_checked_id, take_id, take_number, take_question, take_text};
use proscenium_model::{ActionId, Draft, EventType, MessageId, Owner, SessionId, Surface, TaskId, ToolCallId};
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
        draft.move_members(&mut request, &[("toolName", "toolName"), ("args", "input"), ("reason", "message")]);
        take_question(&mut draft, &mut request);
        draft = carry_all(draft, request).with_owner(Owner::Policy).with_action(action.clone()).with_call(call.clone());
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
        let call = self.memory.pending.take(&action).and_then(|pending| pending.call);
        let draft = Draft::new(EventType::ActionResolved).with_some("outcome", outcome).with_owner(Owner::Policy);
        let draft = draft.with_moved(&mut fact, &[("decision", "decision"), ("decidedBy", "decidedBy")]);
        self.push_carrying(draft.with_action(action).with_call(call), fact);
    }

    /// Asks the user a question during the turn.
    pub(super) fn clarify_request(&mut self, mut fact: Fact) {
        let action: ActionId = take_checked_id(&mut fact, "requestId");
        let mut draft = Draft::new(EventType::ActionRequired).with("kind", "clarification");
        draft.move_members(&mut fact, &[("question", "message"), ("options", "options"), ("default", "default")]);
        match fact.shift_remove("defaultDeadlineAt").map(|at| (parse_timestamp(&at), at)) {
            Some((Some(at), _)) => draft.payload.insert("expiresAt", Value::from(&*at)),
            Some((None, at)) if !at.is_null() => drop(fact.insert("defaultDeadlineAt".into(), at)),
            _ => {}
        }
        let draft = draft.with_owner(Owner::Runtime).with_task(take_id::<TaskId>(&mut fact, "jobId"));
        self.memory.pending.add(Pending { action: action.clone(), call: None });
        self.push_carrying(draft.with_action(action), fact);
    }

    pub(super) fn clarify_resolved(&mut self, mut fact: Fact) {
        let action: ActionId = take_checked_id(&mut fact, "requestId");
        let outcome = match fact.get("source").and_then(Value::as_str) {
            Some("user") => Some("answered"),
            Some("timeout-default" | "timeout-no-default") => Some("expired"),
            Some("cancel") => Some("cancelled"),
            _ => None,
        };
        self.memory.pending.take(&action);
        let draft = Draft::new(EventType::ActionResolved).with_some("outcome", outcome).with_owner(Owner::Runtime);
        self.push_carrying(draft.with_moved(&mut fact, &[("source", "resolvedBy")]).with_action(action), fact);
    }

    /// Reports a notification of a plugin or the server to the user.
    ///
    /// It is not the user's own message, even if a plugin starts a turn because of it.
    pub(super) fn notification(&mut self, mut fact: Fact) {
        let members = ["message", "pluginId", "startTurn", "payload", "source"].map(|member| (member, member));
        let content = Draft::new(EventType::SessionUpdated).with_moved(&mut fact, &members).payload.into_map();
        let draft = Draft::new(EventType::SessionUpdated).with("notification", content).with_owner(Owner::Runtime);
        let draft = draft.with_surface(Surface::WorkerNotifications);
        self.push_carrying(draft.with_ref("sessionKey", take_text(&mut fact, "sessionKey")), fact);
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
        let members = [
            ("status", "status"),
            ("now", "message"),
            ("elapsedMs", "durationMs"),
            ("toolCount", "toolCount"),
            ("runner", "runner"),
        ];
        let draft = job(&mut fact).with_moved(&mut fact, &members);
        let spent = take_number(&mut fact, "spendUsd").map(|spent| json!({ "costUsd": spent }));
        self.push_carrying(draft.with_some("usage", spent), fact);
    }

    /// Reports that the schedule has started a job.
    pub(super) fn cron_fired(&mut self, mut fact: Fact) {
        let draft = job(&mut fact).with("wakeReason", "cron").with_timestamp(fact.get("ranAt").and_then(parse_timestamp));
        let draft = draft.with_moved(&mut fact, &[("ranAt", "ranAt"), ("outputPath", "lastRunRef")]);
        self.push_carrying(draft.with_ref("sessionKey", take_text(&mut fact, "sessionKey")), fact);
    }
}

/// Creates a draft about the background job of an event.
fn job(fact: &mut Fact) -> Draft {
    let job: TaskId = take_checked_id(fact, "jobId");
    Draft::new(EventType::TaskChanged).with("runtimeEntity", "automation_job").with_task(job)
}
