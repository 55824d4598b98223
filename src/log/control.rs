//! The controls that a log stores.
//!
//! One state entry per control, and one item in the log's summary while it is open.
//!
//! One commit saves a [`ControlRecord`] and the envelope about its change, so the two cannot diverge. The record keeps
//! the control's redacted value only until the control is closed. The value is in no envelope: a user's input is for
//! the runtime that takes it. Open controls are in [`Summary::controls`](super::commit::Summary), oldest first. So a
//! starting server finds every queue without reading a log.

use super::{LogId, StoreError};
use crate::model::decided_by::DecidedBy;
use crate::model::fact::{ActionFact, ControlFact};
use crate::model::options::{self, Effect, OfferedOption, Width};
use crate::model::time::parse_time;
use crate::model::{
    ActionId, ActionOutcome, AgentId, Audience, Control, ControlId, Draft, EventType, Ids, Owner, Phase, RunId, Scope, Sequence,
};
use crate::source::ledger::RunState;
use crate::waits::{WaitVerdict, approvals_of, risk_of};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The agent that takes a control that names none.
pub const DEFAULT_AGENT: &str = "default";

/// The expiry of a control whose time to live has not started.
pub const NOT_STARTED: i64 = i64::MAX;

/// The prefix of a control's state key; the control id follows.
pub const CONTROL_KEY_PREFIX: &str = "c:";

/// Open controls of one log, queued or leased; the server refuses another one.
pub const OPEN_CONTROLS_MAX: usize = 64;

/// Closed controls that a log remembers, so that a repeated request finds its answer.
///
/// Beyond this, the log forgets the oldest record; its envelopes stay.
pub const CLOSED_CONTROLS_MAX: usize = 256;

/// Pending actions of one log whose asking agent the log remembers.
///
/// The run's own agent answers any further ones.
pub const PENDING_ACTIONS_MAX: usize = 256;

/// The state of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlState {
    /// Queued, or leased to an owner that has not answered.
    Open,
    /// The owner accepted it.
    Acked,
    /// The owner refused it.
    Nacked,
    /// No owner took it in time, or there is nothing left to decide.
    Expired,
}

/// One control, as its log stores it. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlRecord {
    pub id: ControlId,
    pub control: Control,
    /// The targets: ids by their member names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<String, String>,
    /// The agent that takes it.
    pub agent: AgentId,
    /// The readers that may see it.
    pub audience: Audience,
    /// Its position among all controls of the server.
    #[serde(rename = "number")]
    pub queue_position: u64,
    /// The run attempt that it applies to; `None` for a control that outlives its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_attempt: Option<u32>,
    /// Whether it asks to end the run's attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stops_run: bool,
    #[serde(rename = "madeAt")]
    pub created_at: i64,
    /// The end of its log when it was submitted.
    #[serde(default)]
    pub submitted_after: Sequence,
    /// Who submitted it; unknown for a control of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<DecidedBy>,
    pub expires_at: i64,
    /// How often an owner claimed it.
    pub attempt: u32,
    pub state: ControlState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Redacted by the guard; removed once the control is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The option that the server chose for a control that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_option: Option<Box<str>>,
    /// Whether the guard redacted part of the value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// Present for a message that is not leased while an action of its agent is pending in its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitTerms>,
    /// The actions that the message supersedes, at most [`PENDING_ACTIONS_MAX`] of each log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supersedes: Vec<SupersededAction>,
    /// Present for one of several approvals that an action needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The hash of the redacted request. The same id with another fingerprint is a conflict.
    #[serde(rename = "print")]
    pub fingerprint: String,
}

impl ControlRecord {
    /// Reads the record from a log's state entry.
    ///
    /// # Errors
    /// `Unreadable` for bytes that are not a control record.
    pub fn read(log: &LogId, entry: &[u8], saved: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(saved).map_err(|error| StoreError::unreadable(log, entry, &error))
    }

    /// The ids of its targets.
    #[must_use]
    pub fn ids(&self) -> Ids {
        let mut ids = Ids::default();
        for (member, id) in &self.targets {
            // The request was checked; an id that cannot be read back names no target.
            let _ = ids.set(member, id);
        }
        ids
    }

    /// The control's item in the log's summary.
    #[must_use]
    pub fn to_open(&self) -> OpenControl {
        OpenControl {
            id: self.id.clone(),
            agent: self.agent.clone(),
            queue_position: self.queue_position,
            expires_at: self.expires_at,
            attempt: self.attempt,
            action: self.decides().then(|| self.ids().action).flatten(),
            of_attempt: self.of_attempt,
        }
    }

    /// Whether it answers an action.
    #[must_use]
    pub fn decides(&self) -> bool {
        self.targets.contains_key("actionId")
    }

    /// Whether it is an approval that is not handed out itself: others are missing, or another control stands for it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.approval.as_ref().is_some_and(|approval| approval.approvers.is_empty())
    }

    /// Whether it decides this action, and not only concerns it.
    #[must_use]
    pub fn is_decision_of(&self, action: &ActionId) -> bool {
        self.control.decides() && self.targets.get("actionId").is_some_and(|target| *target == *action.as_str())
    }

    /// Closes the control and drops its value, which no owner needs afterwards.
    #[must_use]
    pub fn into_closed(mut self, state: ControlState, reason: Option<&str>) -> Self {
        (self.state, self.value) = (state, None);
        self.reason = reason.map(str::to_owned);
        self
    }

    /// The envelope about a change of this control.
    #[must_use]
    pub fn change_draft(&self, change: ControlChange, is_run: bool) -> Draft {
        let (status, phase) = match change {
            ControlChange::Submitted => ("submitted", Phase::Submitted),
            ControlChange::Released => ("released", Phase::Submitted),
            ControlChange::Claimed => ("claimed", Phase::Routing),
            ControlChange::Acked => ("acked", Phase::Accepted),
            ControlChange::Nacked | ControlChange::Requeued => ("nacked", Phase::Failed),
            ControlChange::Expired => ("expired", Phase::Cancelled),
        };
        // A queued or claimed control has no outcome that needs a reason.
        let reason = self
            .reason
            .as_deref()
            .filter(|_| !matches!(change, ControlChange::Submitted | ControlChange::Released | ControlChange::Claimed));
        let mut draft = Draft::new(EventType::ControlChanged).with_fact(|control: &mut ControlFact| {
            control.status = Some(status.into());
            control.control_id = Some(Box::new(self.id.as_str().into()));
            control.attempt = (self.attempt > 0).then(|| self.attempt.into());
            control.requeued = (change == ControlChange::Requeued).then_some(true);
            control.reason = reason.map(|reason| Box::new(reason.into()));
            control.decided_by = self.decided_by.as_ref().map(|by| Box::new(by.to_value()));
            if let Some(approval) = &self.approval {
                (control.have, control.need) = (Some(approval.have.into()), Some(approval.need.into()));
                control.lead = approval.lead.as_ref().map(|lead| lead.as_str().into());
            }
        });
        (draft.phase, draft.ids, draft.audience) = (phase, self.ids(), self.audience);
        draft.control = Some(self.control.clone());
        if !is_run {
            draft.scope = Scope::Session;
        }
        draft
    }
}

/// One of several approvals that an action needs. The first one is handed out, once there are enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The approvals of the action, at the last change of this control.
    pub have: u32,
    pub need: u32,
    /// All who approved, of the control that is handed out. Empty for every other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<DecidedBy>,
    /// The control that is handed out for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<ControlId>,
}

/// How a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitTerms {
    /// The time to live in milliseconds, from the moment at which nothing holds the message back.
    ///
    /// `None`: the sender gave the message a fixed end.
    #[serde(default)]
    pub ttl: Option<i64>,
    /// Whether the message supersedes actions.
    #[serde(default)]
    pub supersedes: bool,
}

/// An action that a message supersedes, and the log that asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupersededAction {
    /// `None`: the session's own log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    pub action: ActionId,
}

impl SupersededAction {
    /// The action of a log.
    #[must_use]
    pub fn of(log: &LogId, action: &ActionId) -> Self {
        let run = if let LogId::Run(run) = log { Some(run.clone()) } else { None };
        Self { run, action: action.clone() }
    }

    /// The log that asked; `scope` is the session.
    #[must_use]
    pub fn log(&self, scope: &LogId) -> LogId {
        self.run.clone().map_or_else(|| scope.clone(), LogId::Run)
    }
}

/// The envelope by which the server closes an action. The run waits on.
#[must_use]
pub fn closed_draft(outcome: ActionOutcome, action: ActionId, agent: Option<AgentId>) -> Draft {
    let draft = Draft::new(EventType::ActionResolved).with_fact(|action: &mut ActionFact| {
        action.outcome = Some(outcome.as_str().into());
        action.synthetic = Some(true);
    });
    draft.with_action(action).with_agent(agent).with_owner(Owner::Diagnostics).with_phase(Phase::Waiting)
}

/// A change of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlChange {
    Submitted,
    /// The approvals that its action needs are complete, and it is handed out for all.
    Released,
    Claimed,
    Acked,
    Nacked,
    /// The owner refused it and returned it to the queue.
    Requeued,
    Expired,
}

/// An open control, as its log's summary has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenControl {
    pub id: ControlId,
    pub agent: AgentId,
    #[serde(rename = "number")]
    pub queue_position: u64,
    pub expires_at: i64,
    pub attempt: u32,
    /// The action that it answers.
    #[serde(default)]
    pub action: Option<ActionId>,
    #[serde(default)]
    pub of_attempt: Option<u32>,
}

impl OpenControl {
    /// Whether it asks for new work: it neither answers an action nor concerns the attempt at work.
    #[must_use]
    pub const fn asks_for_work(&self) -> bool {
        self.action.is_none() && self.of_attempt.is_none()
    }

    /// Why the control is obsolete for the run's current state, if it is.
    #[must_use]
    pub fn obsolete_reason(&self, run: &RunState) -> Option<&'static str> {
        if self.action.as_ref().is_some_and(|action| !run.pending.contains(action.as_str())) {
            return Some("action_resolved");
        }
        // A run without a visible start is in its first attempt.
        self.of_attempt.filter(|of| run.status.is_end() || run.attempt.max(1) != (*of).max(1)).map(|_| "run_ended")
    }
}

/// A pending action and the agent that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingAction {
    pub action: ActionId,
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// The action type, if the seed defines it.
    #[serde(default)]
    pub kind: Option<Box<str>>,
    /// In milliseconds since 1970.
    #[serde(default)]
    pub expires_at: Option<i64>,
    /// The options that a control can name, in the protocol's order. What [`option_flags`] does not store is in
    /// [`PendingDetail::options`].
    #[serde(default, with = "option_flags")]
    pub options: Vec<OfferedOption>,
}

/// More about a pending action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingDetail {
    /// In milliseconds since 1970.
    pub asked_at: i64,
    /// The envelope that asked.
    pub sequence: Sequence,
    /// The decision under way: a control that is open, or that the owner acknowledged.
    #[serde(default)]
    pub control: Option<ControlId>,
    /// All of [`PendingAction::options`].
    #[serde(default, with = "option_codes")]
    pub options: Vec<OfferedOption>,
    /// What the rules for actions that wait need. `None`: its defaults.
    #[serde(default)]
    pub wait: Option<Box<WaitState>>,
}

/// How a pending action waits, by its own words and by the rules of [`waits`](crate::waits).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitState {
    /// The tool that it is about.
    #[serde(default)]
    pub tool: Option<Box<str>>,
    /// Whether it is about a call whose tool is not known.
    #[serde(default)]
    pub is_tool_unknown: bool,
    /// Its risk in lower case.
    #[serde(default)]
    pub risk: Option<Box<str>>,
    /// What its runtime asks for at the deadline.
    #[serde(default)]
    pub on_expiry: Option<WaitVerdict>,
    /// When its steps began to count, in milliseconds since 1970, if not when it was asked first.
    #[serde(default)]
    pub since: Option<i64>,
    /// The steps of rules that were done.
    #[serde(default)]
    pub steps: u32,
    /// The approvals that its runtime asks for; 0 if it does not say.
    #[serde(default)]
    pub approvals: u32,
}

/// What the server did about an action that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitProgress {
    pub action: ActionId,
    /// The steps of rules that were done.
    pub steps: u32,
    /// Another deadline, in milliseconds since 1970.
    pub deadline: Option<i64>,
}

/// The ids of one action's options that the log remembers, in bytes.
///
/// The log's summary, which each commit may save, holds the options of all pending actions.
const OPTION_IDS_BYTES_MAX: usize = 2048;

/// The longest remembered action kind and risk, in bytes.
const KIND_BYTES_MAX: usize = 64;

/// The longest remembered tool name, in bytes.
pub const TOOL_BYTES_MAX: usize = 256;

impl WaitState {
    /// What a request says of its wait.
    #[must_use]
    pub fn of(draft: &Draft) -> Self {
        let text = |member: &str, bytes_max: usize| draft.member(member)?.text().filter(|text| text.len() <= bytes_max);
        let on_expiry = match text("onExpiry", KIND_BYTES_MAX) {
            Some("reject") => Some(WaitVerdict::Reject),
            Some("approve") => Some(WaitVerdict::Approve),
            _ => None,
        };
        let (tool, risk) = (text("toolName", TOOL_BYTES_MAX), text("risk", KIND_BYTES_MAX));
        let is_tool_unknown = tool.is_none() && (draft.ids.tool_call.is_some() || draft.member("toolName").is_some());
        let approvals = draft.member("approvals").map_or(0, |stated| approvals_of(&stated.to_value()).0);
        Self { tool: tool.map(Into::into), is_tool_unknown, risk: risk.map(risk_of), on_expiry, since: None, steps: 0, approvals }
    }

    /// Names the tool of the call that the action is about, unless the action names one.
    pub fn set_tool_of_call(&mut self, tool: &str) {
        if std::mem::take(&mut self.is_tool_unknown) {
            self.tool = Some(tool.into());
        }
    }

    /// The state as a detail stores it.
    #[must_use]
    pub fn into_stored(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl PendingAction {
    /// The pending action that a fact requests; `None` for a fact that requests none.
    #[must_use]
    pub fn of(draft: &Draft) -> Option<Self> {
        let action = draft.ids.action.clone().filter(|_| draft.event_type == EventType::ActionRequired)?;
        let fact = draft.fact::<ActionFact>();
        let expires = fact.expires_at.as_deref().and_then(parse_time);
        Some(Self {
            action,
            agent: draft.ids.agent.clone(),
            kind: fact.kind.as_deref().filter(|kind| kind.len() <= KIND_BYTES_MAX).map(Into::into),
            expires_at: expires.map(jiff::Timestamp::as_millisecond),
            options: fact.options.as_deref().map(remembered_options).unwrap_or_default(),
        })
    }

    /// The remembered option with this id.
    #[must_use]
    pub fn option(&self, id: &str) -> Option<&OfferedOption> {
        self.options.iter().find(|option| &*option.id == id)
    }
}

/// The options whose ids fit into [`OPTION_IDS_BYTES_MAX`]: the narrowest come first.
fn remembered_options(offered: &Value) -> Vec<OfferedOption> {
    let mut room = OPTION_IDS_BYTES_MAX;
    let mut options = options::offered(offered);
    options.retain(|option| {
        let fits = option.id.len() <= room;
        room -= if fits { option.id.len() } else { 0 };
        fits
    });
    options
}

/// The form of options that every version stores: for each id, whether the option allows. Answers are not in it.
mod option_flags {
    use super::{Effect, OfferedOption, Width};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(options: &[OfferedOption], to: S) -> Result<S::Ok, S::Error> {
        let decides = options.iter().filter(|option| option.effect != Effect::Answer);
        decides.map(|option| (&*option.id, option.effect == Effect::Allow)).collect::<BTreeMap<_, _>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OfferedOption>, D::Error> {
        let effect = |allows| if allows { Effect::Allow } else { Effect::Reject };
        let flags = BTreeMap::<Box<str>, bool>::deserialize(from)?.into_iter();
        Ok(flags.map(|(id, allows)| OfferedOption { id, effect: effect(allows), width: Width::Unknown }).collect())
    }
}

/// The stored form of options: each id with a number for effect and width.
mod option_codes {
    use super::{Effect, OfferedOption, Width};
    use serde::{Deserialize, Deserializer, Serializer};

    const EFFECTS: [Effect; 3] = [Effect::Reject, Effect::Allow, Effect::Answer];
    const WIDTHS: [Width; 5] = [Width::Unknown, Width::Once, Width::Turn, Width::Session, Width::Always];

    fn position<T: PartialEq>(all: &[T], one: &T) -> usize {
        all.iter().position(|known| known == one).expect("the list has every value")
    }

    fn code(option: &OfferedOption) -> u8 {
        let code = position(&EFFECTS, &option.effect) + EFFECTS.len() * position(&WIDTHS, &option.width);
        u8::try_from(code).expect("there are 15 codes")
    }

    fn decoded((id, code): (Box<str>, u8)) -> OfferedOption {
        let code = usize::from(code);
        let width = WIDTHS.get(code / EFFECTS.len()).copied().unwrap_or(Width::Unknown);
        OfferedOption { id, effect: EFFECTS[code % EFFECTS.len()], width }
    }

    pub(super) fn serialize<S: Serializer>(options: &[OfferedOption], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(options.iter().map(|option| (&option.id, code(option))))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OfferedOption>, D::Error> {
        Ok(Vec::deserialize(from)?.into_iter().map(decoded).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stored;
    use serde_json::json;

    fn asked(options: &Value) -> PendingAction {
        let mut draft = Draft::new(EventType::ActionRequired).with("kind", "tool_approval").with("options", options.clone());
        draft.ids.action = ActionId::new("a").ok();
        PendingAction::of(&draft).unwrap()
    }

    #[test]
    fn every_version_reads_which_options_allow_and_this_one_all_of_them() {
        let kinds =
            ["allow_once", "allow_turn", "allow_session", "allow_always", "allow", "reject_once", "reject_always", "edit"];
        let asked = asked(&kinds.iter().map(|kind| json!({"optionId": kind, "kind": kind})).collect());
        assert_eq!(asked.options.len(), kinds.len());
        let (detail, sequence) = (asked.options.clone(), Sequence(1));
        let detail = PendingDetail { asked_at: 0, sequence, control: None, options: detail, wait: None };
        assert_eq!(stored::restore::<PendingDetail>(&stored::save(&detail)).unwrap(), detail);
        assert_eq!(serde_json::from_value::<PendingDetail>(serde_json::to_value(&detail).unwrap()).unwrap(), detail);
        let flags: BTreeMap<_, _> =
            kinds.iter().filter(|kind| **kind != "edit").map(|kind| (*kind, kind.starts_with("allow"))).collect();
        let earlier = ("a", None::<&str>, Some("tool_approval"), None::<i64>, flags);
        assert_eq!(stored::save(&asked), stored::save(&earlier));
        let read: PendingAction = stored::restore(&stored::save(&earlier)).unwrap();
        assert!(
            read.options.iter().all(
                |option| option.width == Width::Unknown && option.id.starts_with("allow") == (option.effect == Effect::Allow)
            )
        );
        assert_eq!(serde_json::from_value::<PendingAction>(serde_json::to_value(&read).unwrap()).unwrap(), read);
    }

    #[test]
    fn the_remembered_option_ids_have_a_limit() {
        let option = |n: usize| json!({"optionId": format!("{n:0>200}"), "kind": "allow_always"});
        let mut options: Vec<Value> = (0..40).map(option).collect();
        options.push(json!({"optionId": "once", "kind": "allow_once"}));
        let many = asked(&options.into());
        assert_eq!((many.options.len(), &*many.options[0].id), (OPTION_IDS_BYTES_MAX / 200 + 1, "once"));
    }
}
