//! The wire's contract as JSON Schema 2020-12, for `schema/`.
//!
//! Built from the tables that the code itself uses, so that the schema files cannot contradict the server; a test
//! compares both directions. The taxonomies are open by value: the server carries an unknown name, so the schema must
//! accept it. Only the values that the server stamps are closed. The server does not validate envelopes against these
//! schemas at run time.

use super::audience::Audience;
use super::fact::Family;
use super::id::{ID_BYTES_MAX, Ids};
use super::taxonomy::{Control, EventType, Owner, Persistence, Phase, Scope, Surface, Topology};
use serde_json::{Map, Value, json};

/// The dialect of every document.
pub const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Every document, with the name of its file in `schema/`.
#[must_use]
pub fn documents() -> [(&'static str, Value); 3] {
    [("agentui-event.schema.json", event()), ("frames.schema.json", frames()), ("problem.schema.json", problem())]
}

/// The purpose of each id of [`Ids::MEMBERS`], and when the seed requires it.
const ID_PURPOSES: &[(&str, &str)] = &[
    ("sessionId", "The session (a chat, task session or app tab): session and tab projection."),
    ("threadId", "The conversation thread, where it differs from the session: recovery and branching."),
    ("runId", "The run whose log contains this envelope: runtime status and cancellation. Absent in a session's own log."),
    ("turnId", "The user turn or model turn: groups messages and process."),
    ("messageId", "The message; required for message parts: text reconciliation."),
    ("partId", "The ordered message part, where a message has several parts: interleaved rendering."),
    ("taskId", "The background task, work item or subagent task: task capsules, work board, task centre."),
    ("agentId", "The child agent, teammate or remote agent that the fact belongs to: roster, delegation graph, transcript zoom."),
    ("parentSessionId", "The session that this session is a child of: lineage and hydration."),
    ("parentThreadId", "The thread that this thread is a child of: delegation graph and replay."),
    ("toolCallId", "The tool call; required for tool lifecycle events: tool state and progress."),
    ("actionId", "The human-in-the-loop request; required for its events: approval and input resolution."),
    ("artifactId", "The artifact; required for its events: artifact workspace routing."),
    ("evidenceId", "The evidence; required for its events: evidence, replay and review routing."),
];

/// One dimension, open by value.
#[must_use]
pub fn open(names: &[&str], purpose: &str) -> Value {
    json!({ "description": purpose, "anyOf": [{ "enum": names }, { "type": "string" }] })
}

/// A known audience: the server stamps it, and an unknown name has failed closed already.
fn audience(purpose: &str) -> Value {
    json!({ "description": purpose, "enum": Audience::ALL.map(Audience::as_str) })
}

fn time(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "string", "format": "date-time" })
}

/// The purpose of an id of [`Ids::MEMBERS`].
#[must_use]
pub fn purpose(id: &str) -> &'static str {
    ID_PURPOSES.iter().find(|(of, _)| *of == id).expect("every id has a purpose (tested)").1
}

/// The schema of an id.
#[must_use]
pub fn id() -> Value {
    json!({
        "description": "Opaque text chosen by its maker: 1 to 256 bytes of UTF-8 without control characters.",
        "type": "string",
        "minLength": 1,
        "maxLength": ID_BYTES_MAX,
        "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]+$",
    })
}

/// The schema of a sequence.
#[must_use]
pub fn sequence(purpose: &str, minimum: u64) -> Value {
    json!({ "description": purpose, "type": "integer", "minimum": minimum })
}

/// `agentui-event.schema.json`: the envelope.
#[must_use]
pub fn event() -> Value {
    let mut properties = Map::new();
    let mut member = |name: &str, schema: Value| drop(properties.insert(name.into(), schema));
    member(
        "type",
        open(
            EventType::NAMES,
            "Event type; drives reducer behaviour. Open to extension: the server carries an unknown type, for internal readers.",
        ),
    );
    member(
        "eventId",
        json!({
            "description": "UUID v7, stamped by the server: unique, and ordered by time across logs.",
            "type": "string",
            "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
        }),
    );
    member(
        "sequence",
        sequence(
            "Place in the log: 1, 2, 3 … assigned by the server, gapless, never reused within an epoch. Preserves the order of an active run and its repair.",
            1,
        ),
    );
    member("sourceSequence", sequence("The producer's own number for the fact, if it gave one.", 0));
    member("timestamp", time("The producer's own time, if it gave one (RFC 3339, UTC): timeline, latency, replay."));
    member("receivedAt", time("When the server accepted the fact (RFC 3339, UTC)."));
    for name in Ids::MEMBERS {
        member(name, json!({ "description": purpose(name), "$ref": "#/$defs/id" }));
    }
    member(
        "owner",
        open(
            Owner::NAMES,
            "The writer of the fact. A surface may render the fact but must not become its writer; prevents UI ownership drift.",
        ),
    );
    member("scope", open(Scope::NAMES, "The smallest stable entity that the fact affects: blast radius and persistence."));
    member("phase", open(Phase::NAMES, "The phase of the run's lifecycle that the fact belongs to: drives status and grouping."));
    member("surface", open(Surface::NAMES, "The primary rendering destination: a hint, never an owner."));
    member("persistence", open(Persistence::NAMES, "How long the fact is useful: hydration and retention hint."));
    member(
        "control",
        open(Control::NAMES, "The user action connected to the fact: maps to a controlled write through its owner."),
    );
    member("topology", open(Topology::NAMES, "The organisation of the work. Metadata: it replaces none of the dimensions."));
    member("audience", audience("The audience of the fact: user ⊂ dashboard ⊂ internal."));
    member(
        "startAudience",
        audience(
            "The audience of the first envelope of the subject (tool call, action, message part, agent …), stamped by the server: a reader outside it gets nothing of the subject. Absent if the fact has no subject.",
        ),
    );
    member(
        "payload",
        json!({
            "description": "The producer-owned body of the fact. Absent when empty.",
            "type": "object",
            "properties": {
                "withheld": { "description": "true on a stub: the subject ended, and the body is for a narrower audience than this reader's.", "type": "boolean" },
            },
        }),
    );
    member(
        "refs",
        json!({
            "description": "Links to artifacts, evidence, transcripts, files, offloaded bodies or raw diagnostics: a list of { rel, … }, or a map by relation.",
            "type": ["array", "object"],
        }),
    );
    member(
        "rawEventRef",
        json!({ "description": "A safe reference to the source's own event, never the event itself: debugging and replay without polluting the UI." }),
    );
    let mut definitions = Map::from_iter([("id".to_owned(), id())]);
    definitions.extend(Family::TYPED.iter().map(|family| family.schema()));
    json!({
        "$schema": DIALECT,
        "$id": "urn:proscenium:schema:agentui-event",
        "title": "Agent UI event",
        "description": "One envelope: a runtime's fact in the Agent UI vocabulary, with its place in the log. Permissive on purpose: the server carries unknown members, and taxonomies are open by value.",
        "type": "object",
        "properties": properties,
        "required": ["type", "eventId", "sequence", "receivedAt", "owner", "scope", "phase", "surface", "persistence", "audience"],
        "additionalProperties": true,
        "allOf": Family::TYPED.iter().copied().map(payload_of).collect::<Vec<_>>(),
        "$defs": definitions,
    })
}

/// Says which event types have the payload of a family.
fn payload_of(family: Family) -> Value {
    let types: Vec<&str> =
        EventType::NAMES.iter().copied().filter(|name| Family::from(&EventType::from(*name)) == family).collect();
    json!({
        "if": { "properties": { "type": { "enum": types } } },
        "then": { "properties": { "payload": { "$ref": format!("#/$defs/{}", family.schema().0) } } },
    })
}

/// `problem.schema.json`: every error, over any transport (RFC 9457).
#[must_use]
pub fn problem() -> Value {
    json!({
        "$schema": DIALECT,
        "$id": "urn:proscenium:schema:problem",
        "title": "Problem",
        "description": "An error for a client (RFC 9457). Programs branch on `code`; people read `detail`.",
        "type": "object",
        "properties": {
            "type": { "description": "The address of its explanation: `/docs/reference/problems#` and the code.", "type": "string", "pattern": "^/docs/reference/problems#[a-z0-9_]+$" },
            "title": { "description": "The code in words.", "type": "string", "minLength": 1 },
            "status": { "description": "The HTTP status, also on other transports.", "type": "integer", "minimum": 400, "maximum": 599 },
            "code": { "description": "Stable; what programs branch on. Open to extension.", "type": "string", "pattern": "^[a-z0-9_]+$" },
            "detail": { "description": "The error, the value, the limit and the remedy.", "type": "string", "minLength": 1 },
            "index": { "description": "The invalid fact in a JSON body, from 0.", "type": "integer", "minimum": 0 },
            "line": { "description": "The invalid line in a streamed body, from 1, blank lines included.", "type": "integer", "minimum": 1 },
            "member": { "description": "The invalid member, header or query parameter.", "type": "string" },
            "expected": { "description": "The expected value: a sentence, a list of names, or a number." },
            "limit": { "description": "The limit that was exceeded.", "type": "integer", "minimum": 0 },
            "accepted": { "description": "Facts of a streamed body that were stored before the invalid one.", "type": "integer", "minimum": 0 },
            "duplicates": { "description": "Facts of a streamed body that were stored earlier.", "type": "integer", "minimum": 0 },
            "retryAfter": { "description": "When to retry, in seconds.", "type": "integer", "minimum": 1 },
            "requestId": { "description": "The request's id in the server's log; over HTTP also in `x-request-id`.", "type": "string", "minLength": 1 },
        },
        "required": ["type", "title", "status", "code", "detail"],
        "additionalProperties": true,
    })
}

/// One frame: the common members, its own members, and its optional members.
fn frame(name: &str, purpose: &str, own: Value, optional: Value) -> Value {
    let mut properties = Map::from_iter([
        ("frame".to_owned(), json!({ "const": name })),
        (
            "runId".to_owned(),
            json!({ "description": "The run whose log the frame belongs to.", "$ref": "urn:proscenium:schema:agentui-event#/$defs/id" }),
        ),
        (
            "sessionId".to_owned(),
            json!({ "description": "Replaces `runId` for a session's own log.", "$ref": "urn:proscenium:schema:agentui-event#/$defs/id" }),
        ),
        ("sequence".to_owned(), sequence("The envelope that caused the frame; the last one for End, 0 for a Reset.", 0)),
    ]);
    let mut required = vec![json!("frame"), json!("sequence")];
    if let Value::Object(own) = own {
        required.extend(own.keys().map(|name| json!(name)));
        properties.extend(own);
    }
    if let Value::Object(optional) = optional {
        properties.extend(optional);
    }
    json!({
        "description": purpose,
        "type": "object",
        "properties": properties,
        "required": required,
        "anyOf": [{ "required": ["runId"] }, { "required": ["sessionId"] }],
        "additionalProperties": true,
    })
}

/// One operation of a patch.
fn operation() -> Value {
    let pointer = json!({ "description": "A JSON Pointer into the content.", "type": "string", "pattern": "^(/.*)?$" });
    json!({
        "description": "RFC 6902. An `add` at `/-` appends text; no operation addresses a chunk of a text.",
        "type": "object",
        "properties": {
            "op": { "enum": ["add", "remove", "replace", "move", "copy", "test"] },
            "path": pointer,
            "from": pointer,
            "value": {},
        },
        "required": ["op", "path"],
    })
}

/// `frames.schema.json`: the frames of a stream.
#[must_use]
pub fn frames() -> Value {
    let prev = sequence(
        "The previous envelope that produced a frame for this reader's filter, 0 for none. A reader whose last sequence is not `prev` has lost a frame. Absent on a snapshot that joins or catches up.",
        0,
    );
    let name = |purpose: &str| json!({ "description": purpose, "type": "string", "minLength": 1 });
    let kind = name(
        "The kind of the activity: a type of `activities/`, or one that a source names. Together with activityId it is the key.",
    );
    let id = name("The id of the activity, unique within its type.");
    let definitions = json!({
        "Event": frame("Event", "One visible envelope. It carries its cursor.", json!({
            "prev": prev,
            "event": { "$ref": "urn:proscenium:schema:agentui-event" },
        }), json!({})),
        "ActivitySnapshot": frame("ActivitySnapshot", "A whole activity: it is new to this reader, or it has restarted.", json!({
            "activityType": kind,
            "activityId": id,
            "surface": open(Surface::NAMES, "The surface that should show it. It never changes."),
            "opened": sequence("The envelope that opened it: the sort key.", 1),
            "openedAt": time("When the server received that envelope."),
            "updatedAt": time("When the server received the envelope that changed it last."),
            "content": { "description": "The content of the activity; `activities/` has a schema for each type.", "type": "object" },
        }), json!({
            "prev": prev,
            "endedAt": time("When the server received the envelope that ended it. Absent while it is open, and if only its source knows the end."),
            "sourceOpenedAt": time("When it opened by its source's own clock. Absent unless the source states times."),
            "sourceEndedAt": time("When it ended by its source's own clock. Absent while it is open."),
            "agentId": { "description": "The agent that it belongs to.", "$ref": "urn:proscenium:schema:agentui-event#/$defs/id" },
        })),
        "ActivityDelta": frame("ActivityDelta", "A change to an activity that this reader has.", json!({
            "prev": prev,
            "activityType": kind,
            "activityId": id,
            "at": time("When the server received the envelope: the activity's new `updatedAt`."),
            "patch": { "description": "Applies in order to the content that this reader has.", "type": "array", "items": operation(), "minItems": 1 },
        }), json!({
            "ended": { "description": "`true`: the activity has ended, and `at` is its `endedAt`. `false`: the activity is open again, without `endedAt` and `sourceEndedAt`. Absent if neither changed.", "type": "boolean" },
            "sourceOpenedAt": time("The activity's `sourceOpenedAt`, if the source stated no time before this change."),
            "sourceEndedAt": time("The activity's new `sourceEndedAt`; only beside `ended: true`."),
        })),
        "Hydrated": frame("Hydrated", "The snapshots are complete as of `sequence`; live frames follow.", json!({}), json!({})),
        "Reset": frame("Reset", "Discard all state of this run; the following frames start from the beginning.", json!({
            "reason": open(&["epoch", "expired"], "`epoch`: the log has another epoch. `expired`: this log does not contain the cursor's place."),
        }), json!({})),
        "Error": frame("Error", "The stream ends after this.", json!({ "problem": { "$ref": "urn:proscenium:schema:problem" } }), json!({})),
        "End": frame("End", "The run has ended. Its cursor is later than that of any event: a reader that returns with it gets 204 unless a visible envelope followed.", json!({
            "status": open(&["completed", "failed", "cancelled", "interrupted"], "The final status of the run."),
        }), json!({})),
    });
    let names: Vec<Value> = definitions
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .map(|name| json!({ "$ref": format!("#/$defs/{name}") }))
        .collect();
    json!({
        "$schema": DIALECT,
        "$id": "urn:proscenium:schema:frames",
        "title": "Frame",
        "description": "One frame of a stream, as in SSE `data:`. A stream of events (`frames=events`) has Event, Reset, Error and End only.",
        "oneOf": names,
        "$defs": definitions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ActionId, AgentId, ArtifactId, Draft, Envelope, EvidenceId, MessageId, PartId, Payload, RunId, Sequence, SessionId,
        TaskId, ThreadId, ToolCallId, TurnId,
    };
    use std::borrow::Cow;
    use std::collections::BTreeSet;

    /// An envelope with every possible member.
    ///
    /// The literal has no `..`, so that a new member does not compile until it is here.
    fn full() -> Envelope<'static> {
        let id = "x";
        let ids = Ids {
            session: SessionId::new(id).ok(),
            thread: ThreadId::new(id).ok(),
            run: RunId::new(id).ok(),
            turn: TurnId::new(id).ok(),
            message: MessageId::new(id).ok(),
            part: PartId::new(id).ok(),
            task: TaskId::new(id).ok(),
            agent: AgentId::new(id).ok(),
            parent_session: SessionId::new(id).ok(),
            parent_thread: ThreadId::new(id).ok(),
            tool_call: ToolCallId::new(id).ok(),
            action: ActionId::new(id).ok(),
            artifact: ArtifactId::new(id).ok(),
            evidence: EvidenceId::new(id).ok(),
        };
        let draft = Draft {
            event_type: EventType::ToolResult,
            timestamp: Some("2026-11-21T10:00:00Z".into()),
            source_sequence: Some(0),
            ids,
            owner: Owner::Tool,
            scope: Scope::ToolCall,
            phase: Phase::Completed,
            surface: Surface::ToolUi,
            persistence: Persistence::Archive,
            control: Some(Control::Retry),
            topology: Some(Topology::SoloRun),
            audience: Audience::Internal,
            start_audience: Some(Audience::User),
            call_audience: Some(Audience::User),
            missed_by: Some(Audience::User),
            request_version: Some(1),
            may_be_abort: true,
            reopens: true,
            payload: Payload::read(&EventType::ToolResult, Map::from_iter([("output".to_owned(), json!(1))])),
            refs: Some(json!([])),
            raw_event_ref: Some(json!("log:1")),
            extra: Map::new(),
        };
        let (received_at, draft) = ("2026-11-21T10:00:00.000Z", Cow::Owned(draft));
        Envelope { sequence: Sequence(1), event_id: uuid::Uuid::nil(), received_at, draft }
    }

    fn names(map: &Value) -> BTreeSet<&str> {
        map.as_object().expect("an object").keys().map(String::as_str).collect()
    }

    #[test]
    fn the_schema_has_exactly_the_members_of_a_full_envelope() {
        let (schema, envelope) = (event(), serde_json::to_value(full()).unwrap());
        assert_eq!(names(&schema["properties"]), names(&envelope));
    }

    #[test]
    fn the_minimal_envelope_has_exactly_the_required_members() {
        let (schema, mut least) = (event(), full());
        least.draft = Cow::Owned(Draft::new(EventType::MetricChanged));
        let least = serde_json::to_value(least).unwrap();
        let required: BTreeSet<&str> = schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(required, names(&least));
    }

    #[test]
    fn every_id_has_a_purpose_and_every_purpose_an_id() {
        let purposes: Vec<_> = ID_PURPOSES.iter().map(|(name, _)| *name).collect();
        assert_eq!(purposes, Ids::MEMBERS);
    }
}
