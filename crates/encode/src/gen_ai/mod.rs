//! A run as a trace, by OpenTelemetry's conventions for generative AI.
//!
//! ```text
//!   activities that operators see ─┐
//!   notes of the envelopes ────────┼─▶ trace ─▶ spans ─▶ the exporter
//!   activities with the contents ──┘
//! ```
//!
//! The root is the run, `invoke_agent`. Below it are its calls (`execute_tool`), its teammates (`invoke_agent`), and its
//! waits for a decision, with the decision as an event. Ids follow from the run and its epoch, so the same run is the
//! same trace whenever it is read. A run that starts again after its end has a further root in the same trace.
//!
//! Structure, names, times and figures come from what operators see ([`Audience::Internal`]). Texts, arguments, results
//! and the words of errors come from another view alone, and without one no span has any.
//!
//! [`Audience::Internal`]: proscenium_model::Audience::Internal

mod content;
mod notes;
mod span;
#[cfg(test)]
mod tests;

pub use content::{ATTRIBUTE_CONTENT_BYTES_MAX, TRACE_CONTENT_BYTES_MAX};
pub use notes::RunNotes;
pub use span::{ATTRIBUTE_BYTES_MAX, Attribute, Span, SpanEvent, SpanFailure, Trace, TraceParent};

use content::Contents;
use notes::TokenUsage;
use proscenium_model::options::Effect;
use proscenium_model::{AgentId, Epoch, ReceivedAt, RunId, Sequence};
use proscenium_projection::activity_set::Activity;
use proscenium_projection::members::{ACTION_STATUS, ActionStatus, CallState, TOOL_CALL_ID, TypedContent};
use proscenium_projection::{ACTION_KIND, View, action, agent, run, tool_call};
use proscenium_sources::ledger::Status;
use serde_json::Value;
use span::SpanIds;
use std::collections::HashMap;

const INVOKE_AGENT: &str = "invoke_agent";
const EXECUTE_TOOL: &str = "execute_tool";
/// What the name of a wait begins with. The conventions have no word for it.
const WAIT: &str = "wait";
const OPERATION: &str = "gen_ai.operation.name";
const AGENT_NAME: &str = "gen_ai.agent.name";
const TOOL_CALL: &str = "gen_ai.tool.call.id";
const REQUEST_MODEL: &str = "gen_ai.request.model";
const ERROR_TYPE: &str = "error.type";
const STATUS: &str = "proscenium.status";
/// The `error.type` of an error without a code.
const OTHER_ERROR: &str = "_OTHER";

/// A run, as far as it is in its log.
#[derive(Clone, Copy)]
pub struct TracedRun<'v> {
    /// The run.
    pub run: &'v RunId,
    /// The epoch of its log.
    pub epoch: Epoch,
    /// Notes on the envelopes that the views have.
    pub notes: &'v RunNotes,
    /// Its activities, as operators see them.
    pub view: &'v View,
    /// Its activities, as the audience of the contents sees them. `None`: no contents.
    pub content: Option<&'v View>,
}

/// The trace of a run's last attempt. `None`: operators see nothing of the run.
#[must_use]
pub fn trace(of: &TracedRun<'_>) -> Option<Trace> {
    let root = of.view.activities().iter().find(|activity| &*activity.kind == run::KIND)?;
    let spans = TraceWriter::new(of, root).write(root);
    let id = of.notes.parent.map_or_else(|| SpanIds::new(of.run, of.epoch).trace(), |parent| parent.trace);
    Some(Trace { id, spans })
}

/// Writes the spans of a run.
struct TraceWriter<'v> {
    of: TracedRun<'v>,
    ids: SpanIds,
    root: [u8; 8],
    /// When the attempt ended.
    ended: Option<ReceivedAt>,
    /// The calls and teammates of all attempts, by activity type and id.
    known: HashMap<(&'v str, &'v str), &'v Activity>,
    contents: Contents<'v>,
}

impl<'v> TraceWriter<'v> {
    fn new(of: &TracedRun<'v>, root: &Activity) -> Self {
        let ids = SpanIds::new(of.run, of.epoch);
        let activities = of.view.activities().iter();
        let known = activities.filter(|activity| [tool_call::KIND, agent::KIND].contains(&&*activity.kind));
        Self {
            of: *of,
            root: ids.span(run::KIND, &of.notes.attempt().max(1).to_string()),
            ids,
            ended: times(root).1,
            known: known.map(|activity| ((&*activity.kind, &*activity.id), activity)).collect(),
            contents: Contents::new(of.content),
        }
    }

    fn write(mut self, root: &Activity) -> Vec<Span> {
        let mut spans = vec![self.run(root)];
        let after = self.of.notes.after;
        for activity in self.of.view.activities().iter().filter(|activity| activity.opened > after && !activity.is_custom) {
            match &*activity.kind {
                tool_call::KIND => spans.push(self.call(activity)),
                agent::KIND if !self.is_own(&activity.id) => spans.push(self.teammate(activity)),
                ACTION_KIND => spans.push(self.wait(activity)),
                _ => {}
            }
        }
        spans
    }

    /// Whether an id is that of the run's own agent.
    fn is_own(&self, agent: &str) -> bool {
        self.of.view.run_and_agent().1.as_ref().is_some_and(|own| own.as_str() == agent)
    }

    fn run(&mut self, root: &Activity) -> Span {
        let (TracedRun { run, view, notes, .. }, content) = (self.of, &root.content);
        let own = view.run_and_agent().1.as_ref().map(AgentId::as_str);
        let described = own.and_then(|own| self.known.get(&(agent::KIND, own))).map(|known| &known.content);
        let name = described.and_then(|known| known.read(agent::AGENT_NAME)).or(own);
        let (start, end) = times(root);
        let start = notes.restarted_at.unwrap_or(start);
        let mut span = Span {
            id: self.root,
            parent: notes.parent.map(|parent| parent.span),
            name: named(INVOKE_AGENT, name),
            start,
            end: end.map(|end| end.max(start)),
            attributes: Vec::new(),
            events: Vec::new(),
            failure: None,
        };
        let status = content.read(run::STATUS).unwrap_or(Status::Unknown);
        span.set(OPERATION, Some(INVOKE_AGENT));
        span.set("gen_ai.conversation.id", content.read(run::SESSION_ID).or_else(|| content.read(run::THREAD_ID)));
        span.set("gen_ai.agent.id", own);
        span.set(AGENT_NAME, name);
        span.set("gen_ai.provider.name", notes.provider.as_deref());
        let stated = described.and_then(|known| known.get("model")).and_then(Value::as_str);
        span.set(REQUEST_MODEL, notes.models[0].as_deref().or(stated));
        span.set("gen_ai.response.model", notes.models[1].as_deref());
        set_usage(&mut span, notes.usage);
        span.set("proscenium.run.id", Some(run.as_str()));
        span.set("proscenium.run.parent_id", content.read(run::PARENT_RUN_ID));
        span.set("proscenium.run.attempt", (notes.attempt() > 1).then_some(u64::from(notes.attempt())));
        span.set(STATUS, Some(status.as_str()));
        span.set("proscenium.run.settled", content.read(run::SYNTHETIC).is_some_and(|is| *is == true).then_some(true));
        span.set("proscenium.spans_omitted", content.read(run::ACTIVITIES_OMITTED));
        let shown = self.contents.of(root);
        if status == Status::Failed {
            fail(&mut span, content.read(run::ERROR), shown.and_then(|shown| shown.content.read(run::ERROR)));
        }
        let finish = if status == Status::Failed { "error" } else { "stop" };
        self.contents.set_messages(&mut span, None, notes.after, finish);
        span
    }

    fn call(&mut self, call: &Activity) -> Span {
        let content = &call.content;
        let name = content.read(tool_call::TOOL_NAME).filter(|name| !name.is_empty());
        let above = content.read(tool_call::PARENT_CALL_ID).filter(|parent| **parent != *call.id);
        let parent = self.parent_of(above, call.agent.as_ref());
        let mut span = self.child(call, parent, named(EXECUTE_TOOL, name));
        span.set(OPERATION, Some(EXECUTE_TOOL));
        span.set("gen_ai.tool.name", name);
        span.set(TOOL_CALL, Some(content.read(tool_call::CALL_ID).unwrap_or(&call.id)));
        let state = content.read(tool_call::STATE);
        span.set(STATUS, state.map(CallState::as_str));
        span.set("gen_ai.usage.cost", content.read(tool_call::COST_USD).and_then(serde_json::Number::as_f64));
        let shown = self.contents.of(call).map(|shown| &shown.content);
        if state == Some(CallState::OutputError) {
            let error = |content: &'v serde_json::Map<String, Value>| content.get(tool_call::ERROR.name());
            fail(&mut span, content.get(tool_call::ERROR.name()), shown.and_then(error));
        }
        if let Some(shown) = self.contents.of(call) {
            self.contents.set(&mut span, "gen_ai.tool.call.arguments", shown.content.read(tool_call::INPUT));
            let output = shown.content.read(tool_call::OUTPUT);
            self.contents.set(&mut span, "gen_ai.tool.call.result", output);
            Contents::note_clipped(&mut span, shown);
        }
        span
    }

    fn teammate(&mut self, of: &Activity) -> Span {
        let content = &of.content;
        let name = content.read(agent::AGENT_NAME).unwrap_or(&of.id);
        let mut span = self.child(of, self.root, named(INVOKE_AGENT, Some(name)));
        span.set(OPERATION, Some(INVOKE_AGENT));
        span.set("gen_ai.conversation.id", content.read(agent::SESSION_ID));
        span.set("gen_ai.agent.id", Some(&*of.id));
        span.set(AGENT_NAME, Some(name));
        span.set(REQUEST_MODEL, content.get("model").and_then(Value::as_str));
        set_usage(&mut span, TokenUsage::of(content.get(agent::USAGE.name())));
        let status = content.read(agent::STATUS);
        span.set(STATUS, status);
        if status == Some("failed") {
            let error = |content: &'v Activity| content.content.get("error");
            fail(&mut span, content.get("error"), self.contents.of(of).and_then(error));
        }
        let finish = if span.failure.is_some() { "error" } else { "stop" };
        self.contents.set_messages(&mut span, AgentId::new(&of.id).ok().as_ref(), Sequence::NONE, finish);
        span
    }

    fn wait(&mut self, asked: &Activity) -> Span {
        let content = &asked.content;
        let call = content.read(TOOL_CALL_ID);
        let parent = self.parent_of(call, asked.agent.as_ref());
        let kind = content.read(action::ACTION_KIND);
        let mut span = self.child(asked, parent, named(WAIT, kind));
        span.set("proscenium.wait.kind", kind);
        span.set("proscenium.action.id", Some(&*asked.id));
        span.set(TOOL_CALL, call);
        span.set("gen_ai.tool.name", content.read(action::TOOL_NAME).and_then(Value::as_str));
        span.set(STATUS, content.read(ACTION_STATUS).map(ActionStatus::as_str));
        let shown = self.contents.of(asked).map(|shown| &shown.content);
        span.events.extend(asked.ended_at.map(|ended| decision(asked, ended, shown.is_some())));
        if let Some(shown) = shown {
            self.contents.set_text(&mut span, "proscenium.wait.title", &action::title(shown));
            self.contents.set(&mut span, "proscenium.decision.value", shown.read(action::VALUE));
        }
        span
    }

    /// The span above: of a call, else of a teammate, else the root.
    fn parent_of(&self, call: Option<&str>, agent: Option<&AgentId>) -> [u8; 8] {
        let is_known = |kind: &'static str, id: &str| self.known.contains_key(&(kind, id));
        if let Some(call) = call.filter(|call| is_known(tool_call::KIND, call)) {
            return self.ids.span(tool_call::KIND, call);
        }
        let teammate = agent.map(AgentId::as_str).filter(|agent| is_known(agent::KIND, agent) && !self.is_own(agent));
        teammate.map_or(self.root, |teammate| self.ids.span(agent::KIND, teammate))
    }

    /// A span below the root. What is open when the run ends has its end.
    fn child(&self, of: &Activity, parent: [u8; 8], name: String) -> Span {
        let (start, ended) = times(of);
        Span {
            id: self.ids.span(&of.kind, &of.id),
            parent: Some(parent),
            name,
            start,
            end: ended.or(self.ended).map(|end| end.max(start)),
            attributes: Vec::new(),
            events: Vec::new(),
            failure: None,
        }
    }
}

/// When an activity began and ended: by its source's clock if that states both, else by the server's.
fn times(activity: &Activity) -> (ReceivedAt, Option<ReceivedAt>) {
    match (activity.source_opened_at, activity.source_ended_at, activity.ended_at) {
        (Some(opened), Some(ended), Some(_)) => (opened, Some(ended)),
        (Some(opened), _, None) => (opened, None),
        (_, _, ended) => (activity.opened_at, ended),
    }
}

fn named(operation: &str, what: Option<&str>) -> String {
    match what.filter(|what| !what.is_empty()) {
        Some(what) => format!("{operation} {}", span::clipped(what, ATTRIBUTE_BYTES_MAX)),
        None => operation.to_owned(),
    }
}

fn set_usage(span: &mut Span, usage: TokenUsage) {
    span.set("gen_ai.usage.input_tokens", usage.input);
    span.set("gen_ai.usage.output_tokens", usage.output);
    span.set("gen_ai.usage.cost", usage.cost_usd());
}

/// Marks a span as failed. Its code is structure; its words are content.
fn fail(span: &mut Span, error: Option<&Value>, shown: Option<&Value>) {
    let code = error.and_then(|error| error.get("code"));
    let code = code.map(|code| code.as_str().map_or_else(|| code.to_string(), str::to_owned));
    span.set(ERROR_TYPE, Some(code.as_deref().filter(|code| !code.is_empty()).unwrap_or(OTHER_ERROR)));
    let words = shown.and_then(|shown| shown.get("message").unwrap_or(shown).as_str());
    span.failure = Some(SpanFailure { message: words.map(|words| span::clipped(words, 4 * ATTRIBUTE_BYTES_MAX).to_owned()) });
}

/// What ended a wait.
fn decision(asked: &Activity, ended: ReceivedAt, has_content: bool) -> SpanEvent {
    let content = &asked.content;
    let by = |member: &str| content.read(action::DECIDED_BY).and_then(|by| by.get(member)).and_then(Value::as_str);
    let mut attributes = Vec::new();
    let mut set = |name, value: Option<&str>| attributes.extend(value.map(|value| (name, Attribute::from(value))));
    set("proscenium.decision.outcome", content.read(action::OUTCOME));
    set("proscenium.decision.by", by("sub").or_else(|| content.read(action::RESOLVED_BY).and_then(Value::as_str)));
    set("proscenium.decision.on_behalf_of", by("onBehalfOf"));
    set("proscenium.decision.via", by("via"));
    if let Some(option) = chosen(content) {
        let text = |member: &str| option.get(member).and_then(Value::as_str);
        // The id of an answer is often its words.
        let is_structure = text("effect") != Some(Effect::Answer.as_str());
        set("proscenium.decision.option", text("optionId").filter(|_| is_structure || has_content));
        set("proscenium.decision.effect", text("effect"));
        set("proscenium.decision.width", text("width"));
    }
    let at = by("at").and_then(ReceivedAt::parse).unwrap_or(ended);
    let name = if content.read(ACTION_STATUS) == Some(ActionStatus::Resolved) { "decision" } else { "interrupted" };
    SpanEvent { name, at, attributes }
}

/// The option of an action that was chosen.
fn chosen(content: &serde_json::Map<String, Value>) -> Option<&Value> {
    let value = content.read(action::VALUE)?;
    let id = value.get("optionId").unwrap_or(value).as_str()?;
    let options = content.read(action::OPTIONS).and_then(Value::as_array)?;
    options.iter().find(|option| option.get("optionId").and_then(Value::as_str) == Some(id))
}
