//! `run`: the state of the run. The first visible fact opens it; its end is visible to every audience.

use super::activity_set::Edit;
use super::envelope_view::EnvelopeView;
use super::members::{
    Any, Count, Fits, Flag, List, Mark, Member, MemberType, Object, STALE, Str, WITHHELD, WITHHELD_ABOUT, content, open_set,
};
use super::{FoldState, bodies, feedback, stated};
use proscenium_model::fact::{CallFact, FactFamily, MetricFact, RunFact};
use proscenium_model::{AgentId, EventType, Phase, RunId, SessionId, Surface, ThreadId, Topology};
use proscenium_sources::ledger::Status;
use serde_json::{Map, Value, json};

/// The activity type.
pub const KIND: &str = "run";

content! {
    RUN = "run", "The state of the run. A run's log has exactly one.";
    "status": Status, Always as STATUS,
        "The status of the run, from the facts that this reader may see.";
    "phase": Str, Always as PHASE with open_set(Phase::NAMES), "The run's current phase.";
    "attempt": Count, Always as ATTEMPT,
        "The number of the attempt: 1 after the first start, plus 1 for each further start without `continues`; 0 before any start.";
    "message": Str, Sometimes as MESSAGE, "The runtime's latest message about the run's status.";
    "detail": Str, Sometimes as DETAIL,
        "The runtime's own word for the status, if it is not a phase: blocked, retrying, or a source-specific word.";
    "topology": Str, Sometimes as TOPOLOGY with open_set(Topology::NAMES),
        "How the work is organised; unknown if no fact states it.";
    "stale": Flag, Sometimes, "The server has received nothing from the run for longer than --stale-after (60 s by default).";
    "synthetic": Any, Sometimes as SYNTHETIC with Flag::schema(), "The server ended the run, because its runtime was gone.";
    "withheld": Mark, Sometimes, WITHHELD_ABOUT;
    "error": Any, Sometimes as ERROR, "The error of a failed run, from its source: { code?, message }.";
    "reason": Str, Sometimes as REASON, "Why the run ended, in its source's word.";
    "retryable": Any, Sometimes as RETRYABLE, "Whether the run's owner would accept another attempt, from its source.";
    "result": Any, Sometimes as RESULT, "The run's result, from the fact that ended it.";
    "clipped": Flag, Sometimes, bodies::CLIPPED_ABOUT;
    "bodies": Object, Sometimes with bodies::schema(), bodies::ABOUT;
    "usage": Object, Sometimes as USAGE, "The usage of the run's model calls, each member summed over the calls.";
    "notices": List, Sometimes as NOTICES,
        "Progress that belongs to no single call, and warnings with their severity: the newest 20.";
    "sessionId": Str, Sometimes as SESSION_ID, "The session of the run.";
    "threadId": Str, Sometimes as THREAD_ID, "The thread of the run.";
    "agentId": Str, Sometimes as AGENT_ID, "The run's own agent. Messages of any other agent are a teammate's.";
    "parentRunId": Str, Sometimes as PARENT_RUN_ID, "The run that started this one.";
    "feedback": List, Sometimes with feedback::schema(), feedback::FEEDBACK_ABOUT;
    "activitiesOmitted": Flag, Sometimes as ACTIVITIES_OMITTED,
        "The view reached its limit of 20000 activities; the log contains further ones.";
}

impl MemberType for Status {
    type Read<'c> = Self;

    fn read(json: &Value) -> Option<Self> {
        json.as_str().map(Self::of)
    }

    fn schema() -> Value {
        json!({ "enum": Self::ALL.map(Self::as_str) })
    }
}

impl Fits<Self> for Status {
    fn is(&self, json: &Value) -> bool {
        json == self.as_str()
    }

    fn into_json(self) -> Value {
        self.as_str().into()
    }
}

/// The most notices that the activity keeps: progress without a call, and warnings.
const NOTICES_MAX: usize = 20;

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    if !fold.is_run {
        return;
    }
    let is_of_teammate = fold.teammate(envelope).is_some();
    let FoldState { run, activities, log, own_agent, is_late, .. } = fold;
    let mut edit = activities.open(KIND, log, Surface::RuntimeStatus, None);
    let is_same_status = edit.read(STATUS) == Some(run.status);
    let is_same = is_same_status && edit.read(PHASE) == Some(run.phase.as_str());
    edit.set(STATUS, run.status);
    edit.set(PHASE, run.phase.as_str());
    edit.set(ATTEMPT, run.attempt);
    for (member, id) in [
        (SESSION_ID, envelope.ids.session.as_ref().map(SessionId::as_str)),
        (THREAD_ID, envelope.ids.thread.as_ref().map(ThreadId::as_str)),
    ] {
        // A child's facts in this log name the child's session. A run's start names the run's own, even if that has a
        // parent.
        let is_own = envelope.ids.parent_session.is_none() || envelope.event_type == EventType::RunStarted;
        if !edit.has(member) && is_own {
            edit.set_some(member, id);
        }
    }
    edit.set_some(AGENT_ID, own_agent.as_ref().map(AgentId::as_str));
    match run.stale {
        true => edit.set(STALE, true),
        false => edit.remove(STALE),
    }
    // This also applies to a run that the server ended and that continues.
    if !run.status.is_end() {
        bodies::set(&mut edit, Map::new());
        edit.remove(WITHHELD);
        edit.remove(REASON);
        for past in [ERROR, RETRYABLE, SYNTHETIC, RESULT] {
            edit.remove(past);
        }
    }
    if envelope.event_type != EventType::RunStatus {
        // The detail is outdated: the status changed, or the run does again what `detail` said it could not.
        let is_outdated = match edit.read(DETAIL) {
            Some("blocked" | "retrying") => !is_same_status || !is_of_teammate && shows_work(&envelope.event_type),
            _ => !is_same_status,
        };
        if is_outdated {
            edit.remove(DETAIL);
        }
    }
    match envelope.event_type {
        EventType::RunStarted | EventType::RunStatus | EventType::RunFinished | EventType::RunFailed => {
            apply(envelope, &envelope.fact(), &mut edit, is_same, *is_late);
        }
        // Progress of an unknown call (Ethos joins progress to calls only by the tool's name), or of none.
        EventType::ToolProgress if envelope.ids.tool_call.is_none() && envelope.fact::<CallFact>().activity_type.is_none() => {
            edit.push_bounded(NOTICES, notice(envelope), NOTICES_MAX);
        }
        EventType::FeedbackGiven if envelope.ids.message.is_none() => feedback::apply(envelope, &mut edit),
        EventType::MetricChanged => add_usage(&mut edit, USAGE, &envelope.fact::<MetricFact>().usage),
        _ => {}
    }
}

/// Applies what a fact says of the run.
///
/// The pattern names every member: a new one does not compile before the fold uses or ignores it here.
fn apply(envelope: &EnvelopeView, fact: &RunFact, edit: &mut Edit<'_>, is_same: bool, is_late: bool) {
    #[rustfmt::skip]
    let RunFact {
        status, message, error, retryable, result, topology, parent_run, stale, synthetic,
        // Others read the first ones. The usage of a run is the sum of its model calls.
        attempt: _, title: _, unread: _, pinned: _, continues: _, cancelled_by: _, cause: _,
        usage: _, duration_ms: _, cost_usd: _, extra: _,
    } = fact;
    edit.set_some(TOPOLOGY, topology.as_deref());
    match envelope.event_type {
        EventType::RunStarted => {
            edit.remove(MESSAGE);
            let parent = parent_run.as_deref().or_else(|| envelope.related("parentRunId").and_then(Value::as_str));
            edit.set_some(PARENT_RUN_ID, parent.filter(|parent| RunId::new(parent).is_ok()));
        }
        // The server's own fact: it received nothing from the run.
        EventType::RunStatus if stale.is_some() => {}
        EventType::RunStatus => {
            // A step or a notice does not change the run's state.
            let is_news = status.is_some() || !is_same;
            match message {
                Some(message) => edit.set(MESSAGE, message.as_str()),
                None if is_news => edit.remove(MESSAGE),
                None => {}
            }
            let run_status = edit.read(STATUS).map_or("", Status::as_str);
            match status.as_deref().filter(|word| !Phase::NAMES.contains(word) && *word != run_status) {
                Some(word) => edit.set(DETAIL, word),
                None if is_news => edit.remove(DETAIL),
                None => {}
            }
            if message.is_some() {
                edit.push_bounded(NOTICES, notice(envelope), NOTICES_MAX);
            }
        }
        // Only the first end counts; a second one does not change the run's state.
        _ if is_late => {}
        _ => {
            edit.set_some(WITHHELD, envelope.is_withheld().then_some(true));
            edit.set_some(ERROR, stated(error.as_deref()));
            edit.set_some(REASON, envelope.text("reason"));
            edit.set_some(RETRYABLE, stated(retryable.as_deref()));
            edit.set_some(SYNTHETIC, synthetic.map(Value::from));
            edit.set_some(RESULT, stated(result.as_deref()));
            bodies::carry(envelope, edit, &[("result", "result"), ("error", "error")]);
        }
    }
}

/// The members of a notice.
fn notice(envelope: &EnvelopeView) -> Value {
    let mut notice = json!({ "sequence": envelope.sequence });
    for (member, _) in RunFact::COPIED {
        if let Some(value) = envelope.get(member) {
            notice[*member] = value.into_value();
        }
    }
    notice
}

/// Adds the usage of a model call to the sum of those before.
pub(super) fn add_usage(edit: &mut Edit<'_>, member: Member<Object>, usage: &Option<Box<Value>>) {
    if let Some(usage) = usage.as_deref().and_then(Value::as_object) {
        let sum = summed(edit.read(member), usage);
        edit.set(member, sum);
    }
}

/// Whether a fact of this class shows that an agent works.
const fn shows_work(class: &EventType) -> bool {
    matches!(class, EventType::TextDelta | EventType::ReasoningDelta | EventType::PlanDelta | EventType::ToolStarted)
}

/// Marks that the log has more activities than the view shows.
pub(super) fn mark_omissions(fold: &mut FoldState) {
    fold.activities.open(KIND, &fold.log, Surface::RuntimeStatus, None).set(ACTIVITIES_OMITTED, true);
}

/// The sum of two usages: each model call reports its own.
fn summed(known: Option<&Map<String, Value>>, more: &Map<String, Value>) -> Map<String, Value> {
    let mut sum = known.cloned().unwrap_or_default();
    for (member, value) in more {
        let total = match (sum.get(member), value) {
            (Some(known), value) if known.is_u64() && value.is_u64() => {
                json!(known.as_u64().unwrap_or(0).saturating_add(value.as_u64().unwrap_or(0)))
            }
            (Some(known), value) if known.is_number() && value.is_number() => {
                json!(known.as_f64().unwrap_or(0.0) + value.as_f64().unwrap_or(0.0))
            }
            (_, value) if value.is_number() => value.clone(),
            _ => continue,
        };
        sum.insert(member.clone(), total);
    }
    sum
}
