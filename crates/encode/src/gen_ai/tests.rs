//! Runs of a few envelopes, and their spans.

use super::*;
use proscenium_model::{Audience, EventType, LogId, Sequence};
use proscenium_projection::envelope_view::EnvelopeView;
use serde_json::json;

/// A run, as its envelopes come.
struct Run {
    id: RunId,
    notes: RunNotes,
    views: [View; 2],
    at: u64,
}

impl Run {
    fn new() -> Self {
        let id = RunId::new("r").unwrap();
        let log = LogId::Run(id.clone());
        let views = [Audience::Internal, Audience::User].map(|audience| View::new(&log, audience));
        Self { id, notes: RunNotes::default(), views, at: 0 }
    }

    /// Adds an envelope, a second after the last. `shown`: as users see it, if they do.
    fn add(&mut self, event_type: &str, members: Value, shown: Option<Value>) -> &mut Self {
        self.at += 1;
        let defaults = EventType::from(event_type);
        let (phase, surface) = (defaults.defaults().phase.clone(), defaults.defaults().surface.clone());
        let envelope = |members: Value| {
            let at = ReceivedAt::default().after_ms(i64::try_from(self.at * 1000).unwrap()).to_string();
            let mut envelope = json!({ "type": event_type, "phase": phase.as_str(), "surface": surface, "receivedAt": at });
            envelope.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            envelope.to_string().into_bytes()
        };
        let text = envelope(members);
        if RunNotes::is_of_interest(&text) {
            self.notes.note(&EnvelopeView::parse(Sequence(self.at), &text).unwrap());
        }
        self.views[0].fold(Sequence(self.at), Some(&text));
        self.views[1].fold(Sequence(self.at), shown.map(envelope).as_deref());
        self
    }

    /// Adds an envelope that all see alike.
    fn all(&mut self, event_type: &str, members: Value) -> &mut Self {
        self.add(event_type, members.clone(), Some(members))
    }

    fn trace(&self, has_content: bool) -> Trace {
        let content = has_content.then_some(&self.views[1]);
        let epoch = Epoch::from_random(7);
        trace(&TracedRun { run: &self.id, epoch, notes: &self.notes, view: &self.views[0], content }).expect("the run is seen")
    }
}

impl Trace {
    fn named(&self, name: &str) -> &Span {
        self.spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name}: {:#?}", self.spans))
    }

    /// The name of the span above.
    fn above(&self, span: &Span) -> &str {
        self.spans.iter().find(|other| Some(other.id) == span.parent).map_or("-", |other| &other.name)
    }
}

impl Span {
    fn text(&self, name: &str) -> Option<&str> {
        find(&self.attributes, name)
    }

    fn seconds(&self) -> (i64, Option<i64>) {
        let seconds = |at: ReceivedAt| at.ms_since(ReceivedAt::default()) / 1000;
        (seconds(self.start), self.end.map(seconds))
    }
}

fn find<'a>(attributes: &'a [(&'static str, Attribute)], name: &str) -> Option<&'a str> {
    attributes.iter().find(|(known, _)| *known == name).and_then(|(_, value)| match value {
        Attribute::Text(text) => Some(text.as_str()),
        _ => None,
    })
}

fn approved(run: &mut Run) {
    let asks = json!({ "actionId": "a", "toolCallId": "c", "payload": { "kind": "tool_approval", "options": [
        { "optionId": "once", "label": "Yes", "kind": "allow_once" }, { "optionId": "no", "kind": "reject_once" },
    ] } });
    let by = json!({ "sub": "ann", "name": "Ann Example", "via": "rest", "at": "1970-01-01T00:00:04.500Z" });
    run.all("run.started", json!({ "sessionId": "s", "agentId": "lead", "payload": { "model": "m-1", "provider": "p" } }))
        .all(
            "tool.started",
            json!({ "toolCallId": "c", "agentId": "lead", "payload": { "toolName": "rm", "input": { "path": "/x" } } }),
        )
        .all("action.required", asks)
        .all(
            "action.resolved",
            json!({ "actionId": "a", "payload": { "outcome": "approved", "value": { "optionId": "once" }, "decidedBy": by } }),
        )
        .all("tool.result", json!({ "toolCallId": "c", "payload": { "output": "gone" } }))
        .all(
            "metric.changed",
            json!({ "payload": { "model": "m-1-0506", "usage": { "inputTokens": 10, "outputTokens": 2, "costUsd": 0.1 } } }),
        )
        .all("metric.changed", json!({ "payload": { "usage": { "inputTokens": 5 }, "costUsd": 0.2 } }))
        .all("run.finished", json!({}));
}

#[test]
fn a_run_is_a_root_with_its_calls_and_a_wait_below_its_call() {
    let mut run = Run::new();
    approved(&mut run);
    let trace = run.trace(false);
    let names: Vec<_> = trace.spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["invoke_agent lead", "execute_tool rm", "wait tool_approval"]);
    let [root, call, wait] = &trace.spans[..] else { panic!() };
    assert_eq!((root.parent, root.seconds()), (None, (1, Some(8))));
    assert_eq!((trace.above(call), call.seconds()), ("invoke_agent lead", (2, Some(5))));
    assert_eq!((trace.above(wait), wait.seconds()), ("execute_tool rm", (3, Some(4))));
    let texts = [
        "gen_ai.operation.name",
        "gen_ai.conversation.id",
        "gen_ai.agent.name",
        "gen_ai.request.model",
        "gen_ai.response.model",
        "gen_ai.provider.name",
        "proscenium.status",
    ];
    assert_eq!(texts.map(|name| root.text(name).unwrap()), ["invoke_agent", "s", "lead", "m-1", "m-1-0506", "p", "completed"]);
    for figure in [
        ("gen_ai.usage.input_tokens", Attribute::Count(15)),
        ("gen_ai.usage.output_tokens", Attribute::Count(2)),
        ("gen_ai.usage.cost", Attribute::Amount(0.3)),
    ] {
        assert!(root.attributes.contains(&figure), "{figure:?}: {root:?}");
    }
    let [decision] = &wait.events[..] else { panic!("{wait:?}") };
    let of = |member: &str| find(&decision.attributes, &format!("proscenium.decision.{member}"));
    assert_eq!((decision.name, decision.at.to_string()), ("decision", "1970-01-01T00:00:04.500Z".to_owned()));
    assert_eq!(
        [of("outcome"), of("by"), of("via"), of("option"), of("width")],
        [Some("approved"), Some("ann"), Some("rest"), Some("once"), Some("once")]
    );
    assert!(!format!("{trace:?}").contains("Ann Example"), "a name is no id");
    assert_eq!(trace, run.trace(false), "the same run is the same trace");
}

#[test]
fn contents_are_those_of_their_audience_and_of_no_other() {
    let mut run = Run::new();
    run.all("run.started", json!({}))
        .all("text.final", json!({ "messageId": "q", "payload": { "role": "user", "kind": "user_text", "text": "Ask-words" } }))
        .add("tool.started", json!({ "toolCallId": "c", "payload": { "toolName": "look", "input": "Hidden-input" } }), None)
        .add(
            "tool.failed",
            json!({ "toolCallId": "c", "payload": { "error": { "code": "E1", "message": "Hidden-error" } } }),
            None,
        )
        .add(
            "tool.started",
            json!({ "toolCallId": "d", "payload": { "toolName": "show", "input": "Seen-input" } }),
            Some(json!({ "toolCallId": "d", "payload": { "toolName": "show", "input": "Seen-input" } })),
        )
        .add(
            "tool.result",
            json!({ "toolCallId": "d", "payload": { "output": "Hidden-output" } }),
            Some(json!({ "toolCallId": "d", "payload": { "withheld": true } })),
        )
        .all("text.final", json!({ "messageId": "m", "payload": { "text": "Answer-words" } }))
        .all("run.failed", json!({ "payload": { "error": { "code": "overloaded", "message": "Seen-error" } } }));
    let without = run.trace(false);
    let all = format!("{without:?}");
    for word in ["Ask-words", "Answer-words", "Seen", "Hidden"] {
        assert!(!all.contains(word), "{word}: {all}");
    }
    assert_eq!(without.spans[0].failure, Some(SpanFailure { message: None }));
    assert_eq!(without.named("execute_tool look").text("error.type"), Some("E1"));
    let with = run.trace(true);
    assert!(!format!("{with:?}").contains("Hidden"));
    let root = &with.spans[0];
    let expected = json!([{ "role": "user", "parts": [{ "type": "text", "content": "Ask-words" }] }]).to_string();
    assert_eq!(root.text("gen_ai.input.messages"), Some(&*expected));
    assert!(root.text("gen_ai.output.messages").unwrap().contains("Answer-words"));
    assert_eq!(root.failure, Some(SpanFailure { message: Some("Seen-error".into()) }));
    assert_eq!(root.text("error.type"), Some("overloaded"));
    let show = with.named("execute_tool show");
    assert_eq!((show.text("gen_ai.tool.call.arguments"), show.text("gen_ai.tool.call.result")), (Some("Seen-input"), None));
    assert_eq!(with.named("execute_tool look").text("gen_ai.tool.call.arguments"), None);
}

#[test]
fn a_teammate_is_a_span_with_its_calls_below_and_lasts_until_the_run_ends_at_most() {
    let mut run = Run::new();
    run.all("run.started", json!({ "agentId": "lead" }))
        .all("agent.spawned", json!({ "agentId": "kid", "payload": { "agentName": "Researcher", "model": "small", "usage": { "inputTokens": 3 } } }))
        .all("tool.started", json!({ "toolCallId": "c", "agentId": "kid", "payload": { "toolName": "search" } }))
        .all("tool.started", json!({ "toolCallId": "d", "agentId": "kid", "payload": { "toolName": "fetch", "parentToolCallId": "c" } }))
        .all("run.finished", json!({}));
    let trace = run.trace(false);
    let kid = trace.named("invoke_agent Researcher");
    assert_eq!(
        (trace.above(kid), kid.seconds(), kid.text("gen_ai.request.model")),
        ("invoke_agent lead", (2, Some(5)), Some("small"))
    );
    assert_eq!(trace.above(trace.named("execute_tool search")), "invoke_agent Researcher");
    assert_eq!(trace.above(trace.named("execute_tool fetch")), "execute_tool search");
}

#[test]
fn the_runtime_s_own_span_is_the_parent_and_its_trace_the_trace() {
    let mut run = Run::new();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    run.all("run.started", json!({ "payload": { "traceparent": parent } })).all("run.finished", json!({}));
    let trace = run.trace(false);
    assert_eq!((trace.id[0], trace.id[15]), (0x0a, 0x9c));
    assert_eq!(trace.spans[0].parent.map(|parent| parent[0]), Some(0xb7));
}

#[test]
fn a_run_that_starts_again_has_a_further_root_with_what_came_after_the_first_end() {
    let mut run = Run::new();
    let call = |id: &str| json!({ "toolCallId": id, "payload": { "toolName": id } });
    let costs = json!({ "payload": { "usage": { "inputTokens": 4 } } });
    run.all("run.started", json!({}))
        .all("tool.started", call("one"))
        .all("metric.changed", costs.clone())
        .all("run.failed", json!({}));
    let first = run.trace(false);
    run.all("run.started", json!({}))
        .all("metric.changed", costs)
        .all("tool.started", call("two"))
        .all("run.finished", json!({}));
    let second = run.trace(false);
    assert_eq!(first.id, second.id);
    assert_ne!(first.spans[0].id, second.spans[0].id);
    let names: Vec<_> = second.spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["invoke_agent", "execute_tool two"]);
    assert_eq!(second.spans[0].seconds(), (5, Some(8)));
    assert!(second.spans[0].attributes.contains(&("gen_ai.usage.input_tokens", Attribute::Count(4))), "of this attempt");
}

#[test]
fn a_run_that_goes_on_has_open_spans_and_an_answer_is_content() {
    let mut run = Run::new();
    let asks = json!({ "actionId": "a", "payload": { "kind": "clarification", "title": "Which colour?", "options": [
        { "optionId": "Crimson", "label": "Crimson", "kind": "answer", "value": "Crimson" },
    ] } });
    run.all("run.started", json!({})).all("action.required", asks);
    assert!(run.trace(false).spans.iter().all(|span| span.end.is_none() && span.events.is_empty()));
    run.all("action.resolved", json!({ "actionId": "a", "payload": { "outcome": "answered", "value": "Crimson" } }));
    let trace = run.trace(false);
    assert_eq!((trace.spans[0].end, trace.spans[1].seconds()), (None, (2, Some(3))));
    assert!(!format!("{trace:?}").contains("Crimson"));
    assert!(!format!("{trace:?}").contains("colour"));
    let with = run.trace(true);
    assert_eq!(with.spans[1].text("proscenium.wait.title"), Some("Which colour?"));
    assert_eq!(find(&with.spans[1].events[0].attributes, "proscenium.decision.option"), Some("Crimson"));
}

#[test]
fn contents_end_at_their_limits_and_say_so() {
    let mut run = Run::new();
    let long = "ä".repeat(ATTRIBUTE_CONTENT_BYTES_MAX);
    run.all("run.started", json!({}));
    let calls = TRACE_CONTENT_BYTES_MAX / ATTRIBUTE_CONTENT_BYTES_MAX + 2;
    for n in 0..calls {
        run.all("tool.started", json!({ "toolCallId": format!("c{n}"), "payload": { "toolName": "t", "input": long } }));
    }
    let trace = run.trace(true);
    let sizes: Vec<_> = trace.spans[1..].iter().map(|span| span.text("gen_ai.tool.call.arguments").map_or(0, str::len)).collect();
    assert_eq!((sizes[0], sizes[calls - 1]), (ATTRIBUTE_CONTENT_BYTES_MAX, 0));
    assert!(sizes.iter().sum::<usize>() <= TRACE_CONTENT_BYTES_MAX);
    assert!(
        trace.spans[1..].iter().all(|span| span.attributes.contains(&("proscenium.content.truncated", Attribute::Flag(true))))
    );
}
