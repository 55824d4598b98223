//! AG-UI endpoints: `POST` a `RunAgentInput`, read a stream of events.
//!
//! A call that brings answers repeats the id of the run that asked: the run then continues. AG-UI has no event that
//! resolves an interrupt. So the connector adds what it sent to the run's start (`input`), where AG-UI has it, unless
//! the endpoint did.

use super::call::{ActionReply, Protocol, Step, TurnInput, Upstream, UpstreamCall};
use super::entry::AgentEntry;
use super::error::UpstreamError;
use super::http::{EventReader, HttpEndpoint, HttpUpstream, line_of};
use super::sse::SseMessage;
use super::{ConnectorKind, TargetKind, http_endpoint};
use crate::control::aside::AsideKind;
use crate::model::{Control, halves};
use futures_util::FutureExt;
use http::Method;
use serde_json::{Map, Value, json};

pub(super) const CONNECTOR: ConnectorKind =
    ConnectorKind { name: "ag-ui", source: "ag-ui", target: TargetKind::Url, options: &[], resolves: false, open };

fn open(entry: &AgentEntry, event_bytes_max: usize) -> Result<Box<dyn Protocol>, String> {
    Ok(Box::new(AgUiEndpoint(http_endpoint(entry, event_bytes_max)?)))
}

struct AgUiEndpoint(HttpEndpoint);

/// Members of the page's request that the endpoint gets as they are, with their defaults. Older servers require them.
const PASSED_ON: [(&str, fn() -> Value); 4] =
    [("state", || json!({})), ("tools", || json!([])), ("context", || json!([])), ("forwardedProps", || json!({}))];

impl Protocol for AgUiEndpoint {
    fn call<'a>(&'a self, call: &'a UpstreamCall) -> Step<'a, Box<dyn Upstream>> {
        async {
            let (body, sent) = run_input(call)?;
            let endpoint = self.0.with_headers(&call.user_headers);
            let request = endpoint.request(Method::POST, endpoint.url.clone()).json(&body);
            let stream = endpoint.open(request).await?;
            let reader = AgUiReader { sent: (!sent.is_empty()).then_some(sent) };
            Ok(Box::new(HttpUpstream { endpoint, stream, reader }) as Box<dyn Upstream>)
        }
        .boxed()
    }

    fn carries(&self, _: AsideKind) -> bool {
        true
    }
}

/// The body of a call, and what of it belongs into the run's start.
fn run_input(call: &UpstreamCall) -> Result<(Value, Map<String, Value>), UpstreamError> {
    let mut body = Map::from_iter([
        ("threadId".to_owned(), Value::from(call.session.as_str())),
        ("runId".to_owned(), call.run.as_str().into()),
    ]);
    let (mut messages, mut sent) = (call.history.clone(), Map::new());
    let members = match &call.input {
        TurnInput::Messages { messages: new, members } => {
            messages.extend(new.iter().map(|new| json!({ "id": new.id, "role": "user", "content": new.content })));
            members.clone()
        }
        TurnInput::Replies(replies) => {
            let resume: Vec<Value> = replies.iter().map(resume_entry).collect();
            sent.insert("resume".into(), resume.clone().into());
            body.insert("resume".into(), resume.into());
            Map::new()
        }
        TurnInput::Rejoin => return Err(UpstreamError::cut("AG-UI cannot read on after a restart.")),
    };
    call.own_ids.restore(&mut messages);
    body.insert("messages".into(), messages.into());
    for (member, default) in PASSED_ON {
        body.insert(member.into(), members.get(member).filter(|value| !value.is_null()).cloned().unwrap_or_else(default));
    }
    // A server of before 1.0 refuses members that it does not know.
    for member in ["parentRunId", "protocolVersion"] {
        body.extend(members.get(member).map(|value| (member.to_owned(), value.clone())));
    }
    Ok((body.into(), sent))
}

/// An answer as AG-UI's `resume` has it.
fn resume_entry(reply: &ActionReply) -> Value {
    let payload = match (&reply.control, &reply.value) {
        (Control::Answer, value) => value.clone().unwrap_or(Value::Null),
        // The user dismissed a question.
        (Control::Reject, None) if crate::control::rules::QUESTIONS.contains(&reply.asked("kind").unwrap_or_default()) => {
            return json!({ "interruptId": reply.own_action(), "status": "cancelled" });
        }
        (_, Some(Value::Object(value))) => {
            let mut payload = Map::from_iter([("approved".to_owned(), Value::from(reply.is_approved()))]);
            payload.extend(value.clone());
            payload.into()
        }
        (_, Some(value)) if !value.is_boolean() => json!({ "approved": reply.is_approved(), "value": value }),
        _ => json!({ "approved": reply.is_approved() }),
    };
    json!({ "interruptId": reply.own_action(), "status": "resolved", "payload": payload })
}

struct AgUiReader {
    /// What the run's start must say, until it came.
    sent: Option<Map<String, Value>>,
}

impl EventReader for AgUiReader {
    fn read(&mut self, message: SseMessage, facts: &mut Vec<String>) -> Result<(), UpstreamError> {
        let event = self.sent.as_ref().and_then(|_| halves::parse(message.data.as_bytes()).ok());
        let Some(mut event) = event else {
            facts.push(line_of(message.data));
            return Ok(());
        };
        if event["type"] == "RUN_STARTED"
            && let (Some(event), Some(sent)) = (event.as_object_mut(), self.sent.take())
        {
            match event.get_mut("input").and_then(Value::as_object_mut) {
                Some(input) => sent.into_iter().for_each(|(member, value)| _ = input.entry(member).or_insert(value)),
                None => drop(event.insert("input".into(), sent.into())),
            }
        }
        facts.push(event.to_string());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::samples;
    use super::*;

    fn reply(control: Control, kind: &str, value: Option<Value>) -> Value {
        resume_entry(&samples::reply("ask", control, value.unwrap_or_default(), json!({ "kind": kind })))
    }

    #[test]
    fn an_answer_goes_upstream_as_the_protocol_has_it() {
        let resolved = |payload: Value| json!({ "interruptId": "ask", "status": "resolved", "payload": payload });
        assert_eq!(reply(Control::Approve, "tool_approval", None), resolved(json!({ "approved": true })));
        assert_eq!(reply(Control::Reject, "tool_approval", None), resolved(json!({ "approved": false })));
        assert_eq!(
            reply(Control::Approve, "tool_approval", Some(json!({ "comment": "fine" }))),
            resolved(json!({ "approved": true, "comment": "fine" }))
        );
        assert_eq!(
            reply(Control::Reject, "tool_approval", Some(json!("no"))),
            resolved(json!({ "approved": false, "value": "no" }))
        );
        assert_eq!(
            reply(Control::Answer, "structured_input", Some(json!({ "city": "Oslo" }))),
            resolved(json!({ "city": "Oslo" }))
        );
        assert_eq!(reply(Control::Reject, "structured_input", None), json!({ "interruptId": "ask", "status": "cancelled" }));
    }

    #[test]
    fn the_start_of_a_resumed_run_says_what_was_answered_unless_the_endpoint_does() {
        let sent = Map::from_iter([("resume".to_owned(), json!([1]))]);
        let read = |data: &str| {
            let mut facts = Vec::new();
            let message = SseMessage { event: String::new(), data: data.into(), id: None };
            AgUiReader { sent: Some(sent.clone()) }.read(message, &mut facts).unwrap();
            serde_json::from_str::<Value>(&facts[0]).unwrap()
        };
        assert_eq!(read(r#"{"type":"RUN_STARTED"}"#), json!({ "type": "RUN_STARTED", "input": { "resume": [1] } }));
        let own = json!({ "type": "RUN_STARTED", "input": { "resume": [2], "state": {} } });
        assert_eq!(read(&own.to_string()), own);
        assert_eq!(read(r#"{"type":"STEP_STARTED"}"#), json!({ "type": "STEP_STARTED" }));
    }
}
