//! The schemas of existing clients' bodies: AG-UI and the AI SDK.

use super::parts::{activation, flag, id, list, next_cursor, object, or_null, text, time};
use serde_json::{Value, json};

/// An object that another protocol defines.
pub(super) fn foreign(purpose: &str) -> Value {
    json!({ "description": purpose, "type": "object" })
}

pub(super) fn run_agent_input() -> Value {
    let resumed = object(
        "An answer to an interrupt.",
        json!({
            "interruptId": id(),
            "status": { "description": "Whether the interrupt is answered or rejected.", "enum": ["resolved", "cancelled"] },
        }),
        json!({ "payload": { "description": "The answer." } }),
    );
    object(
        "AG-UI's RunAgentInput. The server reads the listed members and forwards all others to the agent.",
        json!({ "threadId": id(), "runId": id() }),
        json!({
            "messages": list(foreign("An AG-UI message. The agent gets those that are new to the thread.")),
            "resume": list(resumed),
            "protocolVersion": text("`1.0` from AG-UI 1.0 clients; absent from older ones."),
            "parentRunId": text("Forwarded to the agent."),
            "state": { "description": "Forwarded to the agent." },
            "tools": list(foreign("Forwarded to the agent.")),
            "context": list(foreign("Forwarded to the agent.")),
            "forwardedProps": { "description": "Forwarded to the agent." },
        }),
    )
}

pub(super) fn a2a_card() -> Value {
    object(
        "The card of an agent, as A2A 1.0 and 0.3 define it.",
        json!({
            "name": id(),
            "description": text("What the agent is."),
            "version": text("The version of the server."),
            "url": text("Where the agent takes requests."),
            "protocolVersion": text("The version that `url` speaks for clients of 0.3."),
            "preferredTransport": text("The binding of `url` for clients of 0.3: `JSONRPC`."),
            "defaultInputModes": list(text("A media type that messages may have.")),
            "defaultOutputModes": list(text("A media type that artifacts may have.")),
            "supportedInterfaces": list(foreign("An address with its binding and its version.")),
            "capabilities": foreign("What the agent can."),
            "skills": list(foreign("What the agent is for.")),
        }),
        json!({
            "securitySchemes": foreign("How a client shows who it is, on a server with keys."),
            "securityRequirements": list(foreign("A scheme that a client needs.")),
        }),
    )
}

pub(super) fn a2a_call() -> Value {
    object(
        "A request of JSON-RPC 2.0.",
        json!({ "jsonrpc": text("`2.0`."), "method": text("A method, such as `message/send` or `SendMessage`.") }),
        json!({
            "id": { "description": "The id of the request, a string or a number, which the answer repeats." },
            "params": foreign("The parameters of the method."),
        }),
    )
}

pub(super) fn a2a_answer() -> Value {
    let error = object(
        "Why the request failed.",
        json!({ "code": { "description": "The code of A2A or of JSON-RPC.", "type": "integer" }, "message": text("Why.") }),
        json!({ "data": { "description": "The member, or the problem of the server." } }),
    );
    object(
        "An answer of JSON-RPC 2.0.",
        json!({ "jsonrpc": text("`2.0`."), "id": { "description": "The id of the request; null if it had none." } }),
        json!({ "result": foreign("A task, an update of one, or a page of tasks."), "error": error }),
    )
}

pub(super) fn ag_ui_event() -> Value {
    object("An event of AG-UI 1.0 or 0.0.59.", json!({ "type": text("Its type, such as `RUN_STARTED`.") }), json!({}))
}

/// The active run.
pub(super) fn active_run() -> Value {
    or_null(object("The active or requested run; null if there is none.", json!({ "runId": id() }), json!({})))
}

pub(super) fn thread_at_rest() -> Value {
    let pending = object(
        "The interrupts of the newest waiting run; null if none waits, or a run is active.",
        json!({ "runId": id(), "pending": list(foreign("An AG-UI interrupt.")) }),
        json!({}),
    );
    let page = object(
        "Whether earlier messages exist.",
        json!({ "truncated": flag("Whether earlier messages exist.") }),
        json!({ "cursor": text("The `before` of the page before.") }),
    );
    object(
        "A stored thread.",
        json!({
            "threadId": id(),
            "messages": list(foreign("An AG-UI message, with the `parts` that `TanStack` AI shows.")),
            "activeRun": active_run(),
            "interrupts": or_null(pending),
            "page": page,
        }),
        json!({ "state": { "description": "The application's state, if any." }, "activation": activation() }),
    )
}

pub(super) fn chat_wanted() -> Value {
    object(
        "The request of `useChat`. The server reads the listed members and forwards all others to the agent.",
        json!({ "id": id() }),
        json!({
            "messages": list(foreign("A UIMessage. The agent gets those that are new to the chat.")),
            "trigger": { "description": "The trigger. Default: `submit-message`.", "type": "string", "examples": ["submit-message", "regenerate-message"] },
            "messageId": text("The message that the trigger concerns."),
        }),
    )
}

pub(super) fn chat_chunk() -> Value {
    object("A chunk of the AI SDK's UI message stream.", json!({ "type": text("Its type, such as `text-delta`.") }), json!({}))
}

pub(super) fn chat_at_rest() -> Value {
    object(
        "A stored chat.",
        json!({
            "id": id(),
            "messages": list(foreign("A UIMessage. Of the active run only the user's messages; the stream has its own.")),
            "activeRun": active_run(),
            "truncated": flag("Whether earlier runs exist."),
        }),
        json!({ "activation": activation() }),
    )
}

pub(super) fn chats() -> Value {
    let chat = object(
        "A chat.",
        json!({ "id": id() }),
        json!({
            "title": text("Its title, or one made of the first message of a user."),
            "updatedAt": time("When the newest news came that this audience sees."),
        }),
    );
    let always = json!({ "chats": list(chat), "nextCursor": next_cursor() });
    object("The chats of an agent, with the newest activity first.", always, json!({ "activation": activation() }))
}

pub(super) fn stop_wanted() -> Value {
    object(
        "The run to stop.",
        json!({}),
        json!({ "runId": or_null(text("The run to stop, if it is one of the thread's; else the active run.")) }),
    )
}

pub(super) fn stopped() -> Value {
    object(
        "The outcome of a stop request.",
        json!({ "stopped": flag("Whether a run was asked to stop.") }),
        json!({
            "runId": id(),
            "controlId": { "description": "The control that asks for it; absent if the requested run was withdrawn.", "type": "string" },
            "message": text("Why no run was stopped."),
        }),
    )
}
