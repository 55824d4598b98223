//! The wire's contract as JSON Schema 2020-12, for `schema/`.
//!
//! Built from the tables that the code itself uses, so that the files cannot say one thing and the server do another; a test
//! holds them together both ways. The taxonomies are open by value: a name that nobody knows is carried, so it must validate.
//! Only what the server stamps is closed. What it never does: judge an envelope at run time.

use super::audience::Audience;
use super::id::{ID_BYTES_MAX, Ids};
use super::taxonomy::{Control, EventType, Owner, Persistence, Phase, Scope, Surface, Topology};
use serde_json::{Map, Value, json};

/// The dialect of every document.
pub const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Every document, by the name of its file in `schema/`.
#[must_use]
pub fn documents() -> [(&'static str, Value); 3] {
    [("agentui-event.schema.json", event()), ("frames.schema.json", frames()), ("problem.schema.json", problem())]
}

/// What each id of [`Ids::MEMBERS`] names, and when the seed requires it.
const ID_PURPOSES: &[(&str, &str)] = &[
    ("sessionId", "The session (a chat, task session or app tab): session and tab projection."),
    ("threadId", "The conversation thread, where it differs from the session: recovery and branching."),
    ("runId", "The run whose log this envelope stands in: runtime status and cancellation. Absent in a session's own log."),
    ("turnId", "The user turn or model turn: groups messages and process."),
    ("messageId", "The message; required for message parts: text reconciliation."),
    ("partId", "The ordered message part, where parts are told apart: interleaved rendering."),
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

/// One of the audiences and nothing else: the server stamps it, and a name it does not know has failed closed already.
fn audience(purpose: &str) -> Value {
    json!({ "description": purpose, "enum": Audience::ALL.map(Audience::as_str) })
}

fn time(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "string", "format": "date-time" })
}

/// What an id of [`Ids::MEMBERS`] names.
#[must_use]
pub fn purpose(id: &str) -> &'static str {
    ID_PURPOSES.iter().find(|(of, _)| *of == id).expect("every id has a purpose: tested").1
}

/// An id.
#[must_use]
pub fn id() -> Value {
    json!({
        "description": "Opaque text of its maker's choosing: 1 to 256 bytes of UTF-8 without control characters.",
        "type": "string",
        "minLength": 1,
        "maxLength": ID_BYTES_MAX,
        "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]+$",
    })
}

/// A place in a log.
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
            "Event class; drives reducer behaviour. Open to extension: a class that nobody knows is carried, for internal readers.",
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
            "Place in the log: 1, 2, 3 … assigned by the server, gapless, never reused within an epoch. Preserves active-run order and repair.",
            1,
        ),
    );
    member("sourceSequence", sequence("The producer's own number for the fact, where it gave one.", 0));
    member("timestamp", time("The producer's own time, where it gave one (RFC 3339, UTC): timeline, latency, replay."));
    member("receivedAt", time("When the server took the fact (RFC 3339, UTC)."));
    for name in Ids::MEMBERS {
        member(name, json!({ "description": purpose(name), "$ref": "#/$defs/id" }));
    }
    member(
        "owner",
        open(
            Owner::NAMES,
            "Who writes the fact. A surface may render it and must not become its writer; prevents UI ownership drift.",
        ),
    );
    member("scope", open(Scope::NAMES, "The smallest stable entity that the fact affects: blast radius and persistence."));
    member("phase", open(Phase::NAMES, "Where in the run's lifecycle the fact belongs: drives status and grouping."));
    member("surface", open(Surface::NAMES, "The primary rendering destination: a hint, never an owner."));
    member("persistence", open(Persistence::NAMES, "How long the fact is of use: hydration and retention hint."));
    member(
        "control",
        open(Control::NAMES, "The user action connected to the fact: maps to a controlled write through its owner."),
    );
    member("topology", open(Topology::NAMES, "How the work is organised. Metadata: replaces none of the dimensions."));
    member("audience", audience("Who the fact is for: user ⊂ dashboard ⊂ internal."));
    member(
        "startAudience",
        audience(
            "The audience of the first envelope of the thing (tool call, action, message part, agent …) that this is about, stamped by the server: a reader outside it gets nothing of the thing. Absent where the fact is about no thing.",
        ),
    );
    member(
        "payload",
        json!({
            "description": "The producer-owned body of the fact. Absent when empty.",
            "type": "object",
            "properties": {
                "withheld": { "description": "true on an edge: the thing ended, and the body is for a narrower audience than this reader's.", "type": "boolean" },
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
        json!({ "description": "A safe reference to the source's own event, never that event: debugging and replay without polluting the UI." }),
    );
    json!({
        "$schema": DIALECT,
        "$id": "urn:proscenium:schema:agentui-event",
        "title": "Agent UI event",
        "description": "One envelope: a runtime's fact in the Agent UI vocabulary, with its place in the log. Permissive on purpose: members that nobody here knows are carried, and taxonomies are open by value.",
        "type": "object",
        "properties": properties,
        "required": ["type", "eventId", "sequence", "receivedAt", "owner", "scope", "phase", "surface", "persistence", "audience"],
        "additionalProperties": true,
        "$defs": { "id": id() },
    })
}

/// `problem.schema.json`: every error, over any transport (RFC 9457).
#[must_use]
pub fn problem() -> Value {
    json!({
        "$schema": DIALECT,
        "$id": "urn:proscenium:schema:problem",
        "title": "Problem",
        "description": "An error as a client gets it (RFC 9457). Programs branch on `code`; people read `detail`.",
        "type": "object",
        "properties": {
            "type": { "description": "`urn:proscenium:problem:` and the code.", "type": "string", "pattern": "^urn:proscenium:problem:[a-z0-9_]+$" },
            "title": { "description": "The code in words.", "type": "string", "minLength": 1 },
            "status": { "description": "The HTTP status, also where no HTTP carries it.", "type": "integer", "minimum": 400, "maximum": 599 },
            "code": { "description": "Stable; what programs branch on. Open to extension.", "type": "string", "pattern": "^[a-z0-9_]+$" },
            "detail": { "description": "What happened, the value, the limit, the remedy.", "type": "string", "minLength": 1 },
            "index": { "description": "The fact at fault in a JSON body, from 0.", "type": "integer", "minimum": 0 },
            "line": { "description": "The line at fault in a streamed body, from 1, blank lines counted.", "type": "integer", "minimum": 1 },
            "member": { "description": "The member, header or query parameter at fault.", "type": "string" },
            "expected": { "description": "What was expected in its place: a sentence, a list of names, or a number." },
            "limit": { "description": "The limit that was passed.", "type": "integer", "minimum": 0 },
            "accepted": { "description": "Facts of a streamed body that were kept before the one at fault.", "type": "integer", "minimum": 0 },
            "duplicates": { "description": "Facts of a streamed body that were known already.", "type": "integer", "minimum": 0 },
            "retryAfter": { "description": "When to come back, in seconds.", "type": "integer", "minimum": 1 },
            "requestId": { "description": "The request's id, as it stands in the server's log; over HTTP also in `x-request-id`.", "type": "string", "minLength": 1 },
        },
        "required": ["type", "title", "status", "code", "detail"],
        "additionalProperties": true,
    })
}

/// One frame: what all have, its own members, and those that it may have.
fn frame(name: &str, purpose: &str, own: Value, optional: Value) -> Value {
    let mut properties = Map::from_iter([
        ("frame".to_owned(), json!({ "const": name })),
        (
            "runId".to_owned(),
            json!({ "description": "The run whose log this is of.", "$ref": "urn:proscenium:schema:agentui-event#/$defs/id" }),
        ),
        (
            "sessionId".to_owned(),
            json!({ "description": "In its place for a session's own log.", "$ref": "urn:proscenium:schema:agentui-event#/$defs/id" }),
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

/// One operation of a patch that a reader is sent.
fn operation() -> Value {
    let pointer = json!({ "description": "A JSON Pointer into the content.", "type": "string", "pattern": "^(/.*)?$" });
    json!({
        "description": "RFC 6902. Text is appended (`add` at `/-`); no operation addresses a chunk of it.",
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

/// `frames.schema.json`: what a reader of a stream gets.
#[must_use]
pub fn frames() -> Value {
    let prev = sequence(
        "The envelope before it that gave this reader's selection a frame, 0 for none. A reader whose last sequence is not `prev` knows that it lost something. Absent on a snapshot that joins or catches up.",
        0,
    );
    let name = |purpose: &str| json!({ "description": purpose, "type": "string", "minLength": 1 });
    let kind = name("What kind of thing: a type of `activities/`, or one that a source names. With activityId it is the key.");
    let id = name("The thing, unique within its type.");
    let definitions = json!({
        "Event": frame("Event", "One visible envelope. Carries its cursor.", json!({
            "prev": prev,
            "event": { "$ref": "urn:proscenium:schema:agentui-event" },
        }), json!({})),
        "ActivitySnapshot": frame("ActivitySnapshot", "An activity as a whole: it is new to this reader, or it has begun anew.", json!({
            "activityType": kind,
            "activityId": id,
            "surface": open(Surface::NAMES, "Where it is meant to be shown. It never changes."),
            "opened": sequence("The envelope with which it appeared: sort by it.", 1),
            "openedAt": time("When that envelope was received."),
            "updatedAt": time("When the envelope was received that changed it last."),
            "content": { "description": "What it is; `activities/` has a schema for each type.", "type": "object" },
        }), json!({
            "prev": prev,
            "endedAt": time("When the envelope was received with which it ended. Absent while it has not, and where its source alone could tell."),
            "agentId": { "description": "The agent that it is of.", "$ref": "urn:proscenium:schema:agentui-event#/$defs/id" },
        })),
        "ActivityDelta": frame("ActivityDelta", "A change to an activity that this reader has.", json!({
            "prev": prev,
            "activityType": kind,
            "activityId": id,
            "at": time("When the envelope was received: the activity's `updatedAt`."),
            "patch": { "description": "Applies, in order, to the content that this reader has.", "type": "array", "items": operation(), "minItems": 1 },
        }), json!({
            "ended": { "description": "`true`: the activity has ended, and `at` is its `endedAt`. `false`: it goes on again, and has no `endedAt`. Absent where that is as before.", "type": "boolean" },
        })),
        "Hydrated": frame("Hydrated", "The snapshots are complete as of `sequence`; from here on live.", json!({}), json!({})),
        "Reset": frame("Reset", "Drop everything of this run; what follows begins anew.", json!({
            "reason": open(&["epoch", "expired"], "`epoch`: the log began another life. `expired`: the cursor stands where this log has nothing."),
        }), json!({})),
        "Error": frame("Error", "The stream ends after this.", json!({ "problem": { "$ref": "urn:proscenium:schema:problem" } }), json!({})),
        "End": frame("End", "The run has ended. Its cursor is later than any event's: whoever comes back with it is answered 204 unless something visible followed.", json!({
            "status": open(&["completed", "failed", "cancelled", "interrupted"], "How the run ended."),
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
        "description": "One frame of a stream, as it stands in SSE `data:`. A stream of events (`frames=events`) has Event, Reset, Error and End only.",
        "oneOf": names,
        "$defs": definitions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        ActionId, AgentId, ArtifactId, Draft, Envelope, EvidenceId, MessageId, PartId, RunId, Sequence, SessionId, TaskId,
        ThreadId, ToolCallId, TurnId,
    };
    use std::collections::BTreeSet;

    /// An envelope with every member that one can have. Written out in full: a new member does not compile until it is here.
    fn full() -> Envelope {
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
            class: EventType::ToolResult,
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
            may_be_abort: true,
            payload: Map::from_iter([("output".to_owned(), json!(1))]),
            refs: Some(json!([])),
            raw_event_ref: Some(json!("log:1")),
            extra: Map::new(),
        };
        Envelope { sequence: Sequence(1), event_id: uuid::Uuid::nil(), received_at: "2026-11-21T10:00:00.000Z".into(), draft }
    }

    fn names(map: &Value) -> BTreeSet<&str> {
        map.as_object().expect("an object").keys().map(String::as_str).collect()
    }

    #[test]
    fn the_schema_has_the_members_that_an_envelope_can_have_and_no_others() {
        let (schema, envelope) = (event(), serde_json::to_value(full()).unwrap());
        assert_eq!(names(&schema["properties"]), names(&envelope));
    }

    #[test]
    fn the_least_envelope_has_exactly_the_required_members() {
        let (schema, mut least) = (event(), full());
        least.draft = Draft::new(EventType::MetricChanged);
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
