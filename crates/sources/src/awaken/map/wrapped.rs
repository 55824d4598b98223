//! Events in the wrapper of Awaken's server: what the wrapper adds, and what it hides.

use super::{Awaken, TurnState};
use crate::Drafts;
use crate::awaken::event::{Kind, Native, Wrapper};
use crate::ledger::Ledger;
use crate::members::{carry, diagnostic, internal};
use proscenium_model::{Audience, Draft, EventType, Ids, Payload, RunId, SessionId, ThreadId};
use serde_json::Value;

/// Members of a non-public boundary or failure that are visible to every reader: the run's status.
const PUBLIC_MEMBERS: &[&str] = &["status", "attempt", "resumed"];

impl Awaken {
    /// Applies a wrapped event.
    pub(super) fn apply_wrapped(&mut self, mut wrapper: Wrapper, native: Native, given: &Ids, mut out: Drafts<'_>) {
        let mut drafts = self.unwrapped(&wrapper, native, given, out.ledger);
        self.learn_scope(&mut wrapper);
        let rest = std::mem::take(&mut wrapper.rest);
        for draft in &mut drafts {
            wrapper.mark(draft);
        }
        if let Some(first) = drafts.first_mut() {
            rest.into_iter().for_each(|(member, value)| carry(first, member, value));
        }
        if wrapper.is_public {
            out.extend(drafts);
        } else {
            for draft in drafts {
                withhold(draft, &mut out);
            }
        }
    }

    /// Applies the inner event.
    fn unwrapped(&mut self, wrapper: &Wrapper, native: Native, given: &Ids, ledger: &Ledger) -> Vec<Draft> {
        let event_type = native.event_type();
        let (open, said) = (self.run.as_ref().map(RunId::as_str), wrapper.run.as_deref());
        let is_boundary = matches!(native.kind, Ok(Kind::RunStart | Kind::RunFinish));
        if self.turn_state == TurnState::Open && !is_boundary && said.is_some() && open.is_some() && said != open {
            let flagged = diagnostic("interleaved_run", event_type, native.members.clone());
            return vec![self.about(flagged.with("openRun", open).with("run", said), given)];
        }
        let question = &wrapper.question;
        if let Some(asked) = self.pending.iter().find(|pending| pending.asked.is_some() && pending.asked == *question) {
            // The same suspension under its other kind: the question is pending already, so only a diagnostic follows.
            let mut repeated = internal("repeated_event", event_type).with("eventKind", wrapper.kind.as_str());
            (repeated.ids.tool_call, repeated.ids.action) = (Some(asked.call.clone()), Some(asked.action.clone()));
            return vec![self.about(repeated, given)];
        }
        let mut drafts = Vec::new();
        self.apply_native(native, given, Drafts { ledger, drafts: &mut drafts });
        let asks = drafts.iter().find(|draft| draft.event_type == EventType::ActionRequired);
        if let Some(pending) = asks.and_then(|draft| self.pending.find_mut(draft.ids.tool_call.as_ref()?)) {
            pending.asked.clone_from(question);
        }
        drafts
    }

    /// Stores the wrapper's thread and run ids if no boundary set them.
    ///
    /// A replay may start in the middle of a run. The draft carries different ids.
    fn learn_scope(&mut self, wrapper: &mut Wrapper) {
        if let Some(thread) = &wrapper.thread {
            if self.thread.is_none() {
                self.thread = ThreadId::new(thread).ok();
                self.session = self.session.take().or_else(|| SessionId::new(thread).ok());
            }
            if self.thread.as_ref().map(ThreadId::as_str) != Some(thread) {
                wrapper.rest.insert("thread_id".into(), thread.as_str().into());
            }
        }
        if let Some(run) = &wrapper.run {
            if self.run.is_none() {
                self.run = RunId::new(run).ok();
            }
            if self.run.as_ref().map(RunId::as_str) != Some(run) {
                wrapper.rest.insert("run_id".into(), run.as_str().into());
            }
        }
    }
}

/// Restricts a non-public draft to the internal audience, but keeps the run's status visible.
///
/// The audience rule shows starts and ends of runs to every reader, without their bodies. It does not show pauses and
/// resumptions, and a run with a hidden pause would appear to work. The audience rule also shows a failure with its
/// body to every reader of the start. So a non-public failure loses its body. An internal diagnostic beside the draft
/// holds the removed members.
fn withhold(mut draft: Draft, out: &mut Vec<Draft>) {
    let fails = matches!(draft.event_type, EventType::ToolFailed | EventType::RunFailed);
    let stands = draft.event_type == EventType::RunStatus && !draft.payload.contains_key("step");
    if !stands {
        draft.audience = Audience::Internal;
    }
    if !fails && !stands {
        return out.push(draft);
    }
    let mut kept = internal("withheld", draft.event_type.as_str());
    if let Some(message) = draft.payload.get("error").and_then(|error| error.get("message")) {
        kept.payload.insert("message", message.clone());
    }
    kept.ids.clone_from(&draft.ids);
    kept.timestamp.clone_from(&draft.timestamp);
    (kept.refs, kept.raw_event_ref) = (draft.refs.take(), draft.raw_event_ref.take());
    kept.extra = std::mem::take(&mut draft.extra);
    let empty = Payload::empty(&draft.event_type);
    let payload = std::mem::replace(&mut draft.payload, empty).into_map();
    for member in PUBLIC_MEMBERS {
        draft.set(member, payload.get(*member).cloned());
    }
    draft.set("withheld", fails.then_some(true));
    out.push(draft);
    out.push(kept.with("event", Value::Object(payload)));
}
