//! What stands in bodies of our own, beside the documents of `schema/`: one shape each, as JSON Schema.
//!
//! Members that are listed first are always there. Others may come: a client takes no offence at a member that it does not know.

use crate::auth::tickets::SECONDS_MAX;
use crate::control::rules::TARGETS;
use crate::model::{Control, Phase, Surface, schema};
use crate::source::ledger::Status;
use serde_json::{Map, Value, json};

/// A shape: its name in the description, and what it is.
pub type Shape = (&'static str, fn() -> Value);

/// All of them. `AgentUiEvent`, `Frame` and `Problem` are made of the documents of `schema/`.
pub const SHAPES: &[Shape] = &[
    ("Facts", facts),
    ("Fact", fact),
    ("Receipt", receipt),
    ("Settled", settled),
    ("Runs", runs),
    ("Run", run),
    ("Sessions", sessions),
    ("SessionLine", session_line),
    ("Session", session),
    ("Window", window),
    ("Timeline", timeline),
    ("Events", events),
    ("SessionEvents", session_events),
    ("SessionActivities", session_activities),
    ("Activities", activities),
    ("Activity", activity),
    ("ControlWanted", control_wanted),
    ("ControlQueued", control_queued),
    ("Controls", controls),
    ("Control", control),
    ("Claimed", claimed),
    ("ControlHanded", control_handed),
    ("ControlAnswer", control_answer),
    ("ControlAnswered", control_answered),
    ("RunAgentInput", run_agent_input),
    ("AgUiEvent", ag_ui_event),
    ("ThreadAtRest", thread_at_rest),
    ("CopilotInfo", copilot_info),
    ("CopilotCall", copilot_call),
    ("ChatWanted", chat_wanted),
    ("ChatChunk", chat_chunk),
    ("ChatAtRest", chat_at_rest),
    ("StopWanted", stop_wanted),
    ("Stopped", stopped),
    ("TicketWanted", ticket_wanted),
    ("Ticket", ticket),
    ("Health", health),
    ("Ready", ready),
    ("Description", description),
    ("Any", any),
];

/// An object of members that are always there, and of others.
fn object(purpose: &str, always: Value, sometimes: Value) -> Value {
    let (Value::Object(always), Value::Object(sometimes)) = (always, sometimes) else {
        unreachable!("both are written out below");
    };
    let required: Vec<_> = always.keys().cloned().collect();
    let properties: Map<_, _> = always.into_iter().chain(sometimes).collect();
    json!({ "description": purpose, "type": "object", "properties": properties, "required": required })
}

fn shape(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn list(of: Value) -> Value {
    json!({ "type": "array", "items": of })
}

fn count(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "integer", "minimum": 0 })
}

fn text(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "string" })
}

fn flag(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "boolean" })
}

fn or_null(mut schema: Value) -> Value {
    let kind = schema["type"].take();
    schema["type"] = json!([kind, "null"]);
    schema
}

fn id() -> Value {
    json!({ "$ref": "#/components/schemas/AgentUiEvent/$defs/id" })
}

fn time(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "string", "format": "date-time" })
}

fn status() -> Value {
    use Status::{Accepted, Cancelled, Completed, Failed, Interrupted, Running, Unknown, Waiting};
    let all = [Accepted, Running, Waiting, Completed, Failed, Cancelled, Interrupted, Unknown];
    json!({ "description": "How it stands.", "enum": all.map(Status::as_str) })
}

fn phase() -> Value {
    schema::open(Phase::NAMES, "Where in its life.")
}

fn epoch() -> Value {
    text("One life of the log: after a run was erased and written anew it is another, and sequences and cursors begin anew.")
}

fn next_cursor() -> Value {
    or_null(text("Asks for the next page; null after the last."))
}

fn activation() -> Value {
    text("The query's `activation`.")
}

fn facts() -> Value {
    json!({ "description": "One fact, or an array of them.", "anyOf": [shape("Fact"), list(shape("Fact"))] })
}

fn fact() -> Value {
    json!({
        "description": "What a runtime says, in the vocabulary of its `source`. Of `agentui` it has a `type`, and further members of an AgentUiEvent; what nobody knows is carried.",
        "type": "object",
        "properties": {
            "type": { "description": "The event's class.", "type": "string", "minLength": 1 },
            "payload": {},
        },
    })
}

fn receipt() -> Value {
    let violation = object(
        "A chunk that came after its stream was sealed.",
        json!({
            "index": count("The fact's number in the body, from 0."),
            "code": text("`write_after_seal`."),
            "eventType": text("The class that came too late."),
            "thing": text("The sealed thing, as `kind:id`."),
        }),
        json!({}),
    );
    object(
        "What became of a body of facts; all of it is durable.",
        json!({
            "epoch": or_null(epoch()),
            "accepted": count("Facts that were taken."),
            "duplicates": count("Facts that were known already, by their producer's numbers."),
            "firstSequence": or_null(count("The first envelope that they led to; null if they led to none.")),
            "lastSequence": count("The log's last envelope after them."),
        }),
        json!({
            "runId": id(),
            "sessionId": id(),
            "shed": count("Diagnostics and metrics that were left out, for too much was under way; they need not be sent again."),
            "violations": list(violation),
            "violationsOmitted": count("How many more there were."),
        }),
    )
}

fn settled() -> Value {
    object(
        "How a run stands after it was to be settled.",
        json!({
            "runId": id(),
            "epoch": epoch(),
            "status": status(),
            "phase": phase(),
            "lastSequence": count("The log's last envelope."),
            "settled": flag("Whether this ended it; false for a run that had ended."),
        }),
        json!({}),
    )
}

fn runs() -> Value {
    let always = json!({ "runs": list(shape("Run")), "nextCursor": next_cursor() });
    object("Runs, the newest first.", always, json!({ "activation": activation() }))
}

fn run() -> Value {
    let counts = object(
        "As this audience sees it.",
        json!({ "events": count("Envelopes."), "pendingActions": count("Actions that wait for somebody.") }),
        json!({}),
    );
    object(
        "A run, as an audience sees it.",
        json!({
            "runId": id(),
            "status": status(),
            "phase": phase(),
            "attempt": count("1 for the first start, one more for each start after an end; 0 before any."),
            "epoch": epoch(),
            "lastSequence": count("The log's last envelope."),
            "counts": counts,
        }),
        json!({
            "sessionId": id(),
            "threadId": id(),
            "parentSessionId": id(),
            "stale": flag("Nothing was heard of it for long."),
            "synthetic": flag("It was the server that ended it."),
            "startedAt": time("When it began."),
            "endedAt": time("When it ended."),
            "lastActivity": time("When its last fact came."),
            "title": text("What it is called."),
            "preview": text("The beginning of its newest message."),
            "compacted": flag("What was of use only while it was live is gone."),
            "activation": activation(),
        }),
    )
}

fn sessions() -> Value {
    let always = json!({ "sessions": list(shape("SessionLine")), "nextCursor": next_cursor() });
    object("Sessions, the newest first.", always, json!({ "activation": activation() }))
}

/// What a session's line in a list has: always, and sometimes.
fn session_members() -> (Map<String, Value>, Map<String, Value>) {
    let counts = object(
        "Of all of its runs, as this audience sees them.",
        json!({
            "runs": count("Runs of the session."),
            "pendingActions": count("Pending actions of the session and of its descendants."),
            "pendingActionsBelow": count("Those of its descendants."),
        }),
        json!({}),
    );
    let always = json!({ "sessionId": id(), "status": status(), "counts": counts });
    let sometimes = json!({
        "title": text("What it is called."),
        "preview": text("The beginning of its newest message."),
        "unread": count("Unread items, as its source says; a source's `true` is 1."),
        "pinned": flag("As its source says."),
        "stale": flag("Its source says so, or the server found one of its runs stale."),
        "lastActivity": time("When its last fact came."),
        "parentSessionId": id(),
    });
    match (always, sometimes) {
        (Value::Object(always), Value::Object(sometimes)) => (always, sometimes),
        _ => unreachable!("both are written out above"),
    }
}

fn session_line() -> Value {
    let (always, sometimes) = session_members();
    object("A session's line in a list, made of its own log and all of its runs.", always.into(), sometimes.into())
}

fn session() -> Value {
    let (mut always, mut sometimes) = session_members();
    let more = json!({
        "runs": list(shape("Run")),
        "truncated": flag("Whether there are more runs than those in `runs`."),
        "children": list(id()),
        "pendingActions": list(shape("Activity")),
        "queue": list(shape("Activity")),
        "tasks": list(shape("Activity")),
        "team": list(shape("Activity")),
    });
    always.extend(more.as_object().cloned().unwrap_or_default());
    sometimes.insert("activation".into(), activation());
    object("A session: its shell, and what needs attention.", always.into(), sometimes.into())
}

fn window() -> Value {
    object(
        "Recent messages, in order.",
        json!({
            "sessionId": id(),
            "messages": list(shape("Activity")),
            "truncated": flag("Whether there are messages before these."),
            "nextCursor": next_cursor(),
            "deferred": list(text("What a client asks for when it is looked at.")),
        }),
        json!({ "activation": activation() }),
    )
}

fn timeline() -> Value {
    object(
        "Process details, in order.",
        json!({
            "sessionId": id(),
            "items": list(shape("Activity")),
            "truncated": flag("Whether there are any before these."),
            "nextCursor": next_cursor(),
        }),
        json!({ "activation": activation() }),
    )
}

fn events() -> Value {
    let hole = json!({ "type": "array", "prefixItems": [count("The first."), count("The last.")], "minItems": 2, "maxItems": 2 });
    object(
        "A page of envelopes, in order.",
        json!({
            "events": list(shape("AgentUiEvent")),
            "nextCursor": next_cursor(),
            "truncated": flag("Whether there are more."),
            "epoch": epoch(),
        }),
        json!({
            "holes": { "description": "Sequences that were compacted away, by stretch.", "type": "array", "items": hole },
            "activation": activation(),
        }),
    )
}

fn session_events() -> Value {
    object(
        "A page of a session's envelopes, in the order of commits.",
        json!({
            "sessionId": id(),
            "events": list(shape("AgentUiEvent")),
            "cursors": list(text("The place of each of `events`, in the same order: for `at`, `after`, `before` and the session's stream.")),
            "nextCursor": next_cursor(),
            "truncated": flag("Whether there are more."),
        }),
        json!({ "activation": activation() }),
    )
}

fn session_activities() -> Value {
    object(
        "What there is to see of a session, as of one place in the order of commits.",
        json!({
            "sessionId": id(),
            "cursor": text("The place: joins the session's stream there, and as `at` gives further pages of the same moment."),
            "activities": list(shape("Activity")),
            "nextCursor": next_cursor(),
            "truncated": flag("Whether there are further logs."),
        }),
        json!({ "activation": activation() }),
    )
}

fn activities() -> Value {
    object(
        "What there is to see of a run.",
        json!({
            "runId": id(),
            "epoch": epoch(),
            "sequence": count("As of this envelope."),
            "cursor": text("Joins the live stream there."),
            "activities": list(shape("Activity")),
        }),
        json!({ "activation": activation() }),
    )
}

fn activity() -> Value {
    object(
        "One evolving thing on a screen.",
        json!({
            "activityType": text("What kind of thing; `/schema/activities/` has a schema for each."),
            "activityId": text("The thing, unique within its type and its log."),
            "surface": schema::open(Surface::NAMES, "Where it is meant to be shown."),
            "opened": count("The envelope with which it appeared: sort by it."),
            "sequence": count("The envelope that changed it last."),
            "openedAt": time("When the envelope was received with which it appeared."),
            "updatedAt": time("When the envelope was received that changed it last."),
            "content": { "description": "What it is.", "type": "object" },
        }),
        json!({
            "agentId": id(),
            "runId": id(),
            "sessionId": id(),
            "endedAt": time("When the envelope was received with which it ended; absent while it has not."),
        }),
    )
}

/// What a control may be about.
fn targets() -> Map<String, Value> {
    TARGETS.iter().map(|name| ((*name).to_owned(), id())).collect()
}

fn control_name() -> Value {
    schema::open(Control::NAMES, "What is asked for.")
}

fn control_wanted() -> Value {
    let mut sometimes = targets();
    sometimes.insert("controlId".into(), id());
    sometimes.insert("runId".into(), id());
    sometimes.insert("sessionId".into(), id());
    sometimes.insert("value".into(), json!({ "description": "What it says: an answer, a message, an edit." }));
    sometimes.insert("expiresAt".into(), time("Until when it waits for its owner."));
    let seconds = json!({ "description": "The same, in seconds from now.", "type": "number", "exclusiveMinimum": 0 });
    sometimes.insert("ttlSeconds".into(), seconds);
    object("What is asked for, and of what.", json!({ "control": control_name() }), sometimes.into())
}

fn control_queued() -> Value {
    let always = json!({ "controlId": id(), "status": { "const": "queued" } });
    object("It is recorded.", always, json!({}))
}

fn controls() -> Value {
    let always = json!({ "controls": list(shape("Control")), "nextCursor": next_cursor() });
    object("Controls, in the order in which they were asked for.", always, json!({ "activation": activation() }))
}

/// What a control has that somebody sees: always, and sometimes.
fn control_members() -> (Map<String, Value>, Map<String, Value>) {
    let always = json!({
        "controlId": id(),
        "control": control_name(),
        "attempt": count("How often it was handed over."),
        "createdAt": time("When it was asked for."),
        "expiresAt": time("Until when it waits for its owner."),
    });
    (always.as_object().cloned().unwrap_or_default(), targets())
}

fn control() -> Value {
    let (mut always, mut sometimes) = control_members();
    let status = json!({ "description": "What became of it.", "enum": ["queued", "claimed", "acked", "nacked", "expired"] });
    always.insert("status".into(), status);
    sometimes.insert("reason".into(), text("Why its owner refused it."));
    object("A control, and what became of it.", always.into(), sometimes.into())
}

fn claimed() -> Value {
    let always = json!({ "agentId": id(), "controls": list(shape("ControlHanded")) });
    object("What an agent took.", always, json!({}))
}

fn control_handed() -> Value {
    let (mut always, mut sometimes) = control_members();
    always.insert("lease".into(), text("What its answer has to name."));
    always.insert("leaseExpiresAt".into(), time("Until when it is this owner's."));
    sometimes.insert("runId".into(), id());
    sometimes.insert("sessionId".into(), id());
    sometimes.insert("value".into(), json!({ "description": "What it says." }));
    sometimes.insert("redacted".into(), flag("Whether something secret is missing in the value."));
    object("A control in the hands of its owner.", always.into(), sometimes.into())
}

fn control_answer() -> Value {
    object(
        "What its owner says of a control.",
        json!({ "lease": text("The lease under which it was taken.") }),
        json!({
            "reason": text("Why it is refused."),
            "requeue": flag("Whether somebody else is to have it."),
        }),
    )
}

fn control_answered() -> Value {
    let always = json!({ "controlId": id(), "status": text("What became of it.") });
    object("What became of a control.", always, json!({}))
}

/// An object of a protocol that is described elsewhere.
fn foreign(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "object" })
}

fn run_agent_input() -> Value {
    let resumed = object(
        "An answer to what a run waits for.",
        json!({
            "interruptId": id(),
            "status": { "description": "Whether it is answered, or turned down.", "enum": ["resolved", "cancelled"] },
        }),
        json!({ "payload": { "description": "The answer." } }),
    );
    object(
        "AG-UI's RunAgentInput. What is listed is read; whatever else it has is handed on to the agent.",
        json!({ "threadId": id(), "runId": id() }),
        json!({
            "messages": list(foreign("An AG-UI message. The agent gets those that the thread does not have.")),
            "resume": list(resumed),
            "protocolVersion": text("`1.0` from clients of AG-UI 1.0; absent before."),
            "parentRunId": text("Handed on."),
            "state": { "description": "Handed on." },
            "tools": list(foreign("Handed on.")),
            "context": list(foreign("Handed on.")),
            "forwardedProps": { "description": "Handed on." },
        }),
    )
}

fn ag_ui_event() -> Value {
    object("An event of AG-UI 1.0 or 0.0.59.", json!({ "type": text("Its type, such as `RUN_STARTED`.") }), json!({}))
}

/// The run that goes on.
fn active_run() -> Value {
    or_null(object("The run that goes on, or that was asked for; null if there is none.", json!({ "runId": id() }), json!({})))
}

fn thread_at_rest() -> Value {
    let pending = object(
        "What the newest waiting run waits for; null if nothing waits, or something goes on.",
        json!({ "runId": id(), "pending": list(foreign("An AG-UI interrupt.")) }),
        json!({}),
    );
    let page = object(
        "Whether there are messages before these.",
        json!({ "truncated": flag("Whether there are.") }),
        json!({ "cursor": text("Asks for them, as `before`.") }),
    );
    object(
        "A thread at rest.",
        json!({
            "threadId": id(),
            "messages": list(foreign("An AG-UI message, with the `parts` that `TanStack` AI shows.")),
            "activeRun": active_run(),
            "interrupts": or_null(pending),
            "page": page,
        }),
        json!({ "state": { "description": "The application's state, if it has any." }, "activation": activation() }),
    )
}

fn copilot_info() -> Value {
    let agent = object(
        "An agent.",
        json!({ "name": id(), "description": text("Nothing is known."), "className": text("`Proscenium`.") }),
        json!({}),
    );
    object(
        "What a runtime of CopilotKit tells of itself.",
        json!({
            "version": text("The server's version."),
            "agents": { "description": "By name.", "type": "object", "additionalProperties": agent },
            "mode": { "const": "sse" },
            "audioFileTranscriptionEnabled": { "const": false },
        }),
        json!({}),
    )
}

fn copilot_call() -> Value {
    let method = json!({ "description": "What for.", "enum": ["info", "agent/run", "agent/connect", "agent/stop"] });
    let params = object("About what.", json!({}), json!({ "agentId": id(), "threadId": id() }));
    let body = foreign("What the address of that method takes.");
    object("A call of CopilotKit's single endpoint.", json!({ "method": method }), json!({ "params": params, "body": body }))
}

fn chat_wanted() -> Value {
    object(
        "What `useChat` sends. What is listed is read; whatever else it has is handed on to the agent.",
        json!({ "id": id() }),
        json!({
            "messages": list(foreign("A UIMessage. The agent gets those that the chat does not have.")),
            "trigger": { "description": "What for; `submit-message` unless given.", "type": "string", "examples": ["submit-message", "regenerate-message"] },
            "messageId": text("The message that is meant."),
        }),
    )
}

fn chat_chunk() -> Value {
    object("A chunk of the AI SDK's UI message stream.", json!({ "type": text("Its type, such as `text-delta`.") }), json!({}))
}

fn chat_at_rest() -> Value {
    object(
        "What a chat begins with.",
        json!({
            "id": id(),
            "messages": list(foreign("A UIMessage. Of a run that goes on, the user's; its own comes with the stream.")),
            "activeRun": active_run(),
            "truncated": flag("Whether there are earlier runs than those of these messages."),
        }),
        json!({ "activation": activation() }),
    )
}

fn stop_wanted() -> Value {
    object(
        "What is to stop.",
        json!({}),
        json!({ "runId": or_null(text("The run that is meant, if it is one of the thread; else what goes on.")) }),
    )
}

fn stopped() -> Value {
    object(
        "Whether anything was asked to stop.",
        json!({ "stopped": flag("Whether.") }),
        json!({
            "runId": id(),
            "controlId": { "description": "The control that asks for it; absent where nobody had taken the run yet, and nobody will.", "type": "string" },
            "message": text("Why not."),
        }),
    )
}

fn ticket_wanted() -> Value {
    object(
        "What a ticket is for.",
        json!({ "for": { "description": "A stream of frames, or a WebSocket.", "enum": ["stream", "ws"] } }),
        json!({
            "run": id(),
            "session": id(),
            "ttlSeconds": { "description": "How long it is good for.", "type": "integer", "minimum": 1, "maximum": SECONDS_MAX },
        }),
    )
}

fn ticket() -> Value {
    let always = json!({ "ticket": text("What to put after `?ticket=`."), "expiresAt": time("Until when it is good.") });
    object("A ticket.", always, json!({}))
}

fn health() -> Value {
    let always = json!({ "status": { "const": "ok" }, "version": text("The server's version.") });
    object("The process answers.", always, json!({}))
}

fn ready() -> Value {
    object(
        "The server takes facts and readers.",
        json!({
            "status": { "const": "ready" },
            "openLogs": count("Logs that are in memory."),
            "readers": count("Streams that are open."),
        }),
        json!({}),
    )
}

fn description() -> Value {
    object(
        "An OpenAPI document.",
        json!({ "openapi": { "const": "3.1.0" }, "info": { "type": "object" }, "paths": { "type": "object" } }),
        json!({}),
    )
}

fn any() -> Value {
    json!({ "description": "Any JSON." })
}
