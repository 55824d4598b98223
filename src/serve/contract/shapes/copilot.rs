//! The schemas of `CopilotKit`'s bodies.

use super::clients::foreign;
use super::parts::{flag, id, list, next_cursor, object, or_null, shape, text, time, title_wanted};
use serde_json::{Value, json};

pub(super) fn info() -> Value {
    let transport = object("How events reach the client.", json!({ "streaming": { "const": true } }), json!({}));
    let agent = object(
        "An agent.",
        json!({
            "name": id(),
            "description": text("Always empty."),
            "className": text("`Proscenium`."),
            "capabilities": object("AG-UI's capabilities, as far as the server knows them.", json!({ "transport": transport }), json!({})),
            "present": { "description": "Whether a worker of the agent waits for controls.", "type": "boolean" },
        }),
        json!({}),
    );
    let endpoints = object(
        "What the server has for threads.",
        json!({
            "list": { "const": true },
            "inspect": { "const": true },
            "mutations": { "const": true },
            "realtimeMetadata": { "description": "The list is not live.", "const": false },
        }),
        json!({}),
    );
    let single_route = object(
        "What `POST /copilotkit` takes besides the calls of agents.",
        json!({ "resourceOperations": { "description": "The method `resource/request`.", "const": true }, "threadEndpoints": endpoints }),
        json!({}),
    );
    object(
        "A CopilotKit runtime's description of itself.",
        json!({
            "version": text("The server's version."),
            "agents": { "description": "By name.", "type": "object", "additionalProperties": agent },
            "mode": { "const": "sse" },
            "audioFileTranscriptionEnabled": { "const": false },
            "threadEndpoints": endpoints,
            "singleRoute": single_route,
            "suggestions": { "description": "The server makes no suggestions.", "const": false },
            "a2uiEnabled": { "description": "CopilotKit's own A2UI renderer stays off.", "const": false },
            "openGenerativeUIEnabled": { "const": false },
            "telemetryDisabled": { "description": "CopilotKit's inspector sends no telemetry for this server.", "const": true },
        }),
        json!({}),
    )
}

pub(super) fn call() -> Value {
    let method =
        json!({ "description": "The call.", "enum": ["info", "agent/run", "agent/connect", "agent/stop", "resource/request"] });
    let params = object(
        "The parameters of the call.",
        json!({}),
        json!({
            "agentId": id(),
            "threadId": id(),
            "path": text("For `resource/request`: `/threads` or a path below it, with its query, as below `/copilotkit`."),
            "httpMethod": { "description": "For `resource/request`: the method of that address.", "enum": ["GET", "POST", "PATCH", "DELETE"] },
        }),
    );
    let body = foreign("The body of that method's own address.");
    object("A call of CopilotKit's single endpoint.", json!({ "method": method }), json!({ "params": params, "body": body }))
}

pub(super) fn threads() -> Value {
    object(
        "Threads, those with the newest activity first.",
        json!({ "threads": list(shape("CopilotThread")), "nextCursor": next_cursor() }),
        json!({}),
    )
}

pub(super) fn thread() -> Value {
    object(
        "A thread, which is a session.",
        json!({
            "id": id(),
            "organizationId": { "description": "The server has no organizations.", "const": "default" },
            "agentId": id(),
            "createdById": text("The `sub` of the token that began it, if the reader may know it; else `anonymous`."),
            "name": or_null(text("The title shown.")),
            "archived": flag("Whether a person archived it."),
            "createdAt": time("When it began."),
            "updatedAt": time("When the newest news came that the audience sees."),
        }),
        json!({ "lastRunAt": time("As `updatedAt`; absent if the audience sees nothing of it.") }),
    )
}

pub(super) fn thread_change() -> Value {
    object(
        "What a person changes of a thread, for all who see it.",
        json!({}),
        json!({ "agentId": id(), "name": title_wanted(), "archived": flag("Whether it is archived.") }),
    )
}

pub(super) fn thread_of_agent() -> Value {
    object("The thread's agent, as CopilotKit sends it.", json!({}), json!({ "agentId": id() }))
}

pub(super) fn thread_archived() -> Value {
    object("An archived thread.", json!({ "threadId": id(), "archived": { "const": true } }), json!({}))
}

pub(super) fn thread_deleted() -> Value {
    object("An erased thread.", json!({ "threadId": id(), "deleted": { "const": true } }), json!({}))
}

pub(super) fn messages() -> Value {
    let call = object(
        "A tool call.",
        json!({ "id": id(), "name": text("The tool's name."), "args": text("The arguments, as JSON.") }),
        json!({}),
    );
    let message = object(
        "A message.",
        json!({ "id": id(), "role": text("Its role, such as `user`, `assistant`, `tool`, `reasoning` or `activity`.") }),
        json!({
            "content": { "description": "Its text, or AG-UI's list of parts." },
            "toolCalls": list(call),
            "toolCallId": text("The call whose result it is."),
            "activityType": text("The type of an activity, whose content is in the events."),
        }),
    );
    object("The messages of a thread.", json!({ "messages": list(message) }), json!({}))
}

pub(super) fn events() -> Value {
    object("The events of a thread.", json!({ "events": list(shape("AgUiEvent")) }), json!({}))
}

pub(super) fn state() -> Value {
    object(
        "The state of a thread.",
        json!({ "state": or_null(foreign("The application's state; null if there is none, or it is no object.")) }),
        json!({}),
    )
}
