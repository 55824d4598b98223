//! The shapes of webhooks, their deliveries and the audit.

use super::parts::{count, flag, id, list, next_cursor, object, shape, text, time};
use crate::audit::Deed;
use crate::model::{Audience, Control, decided_by};
use crate::notify::event::EventKind;
use serde_json::{Value, json};

fn events() -> Value {
    json!({ "type": "array", "items": { "enum": EventKind::ALL.map(EventKind::as_str) },
        "description": "The types of messages that it gets. Empty or absent: all but `log.head`." })
}

fn audience() -> Value {
    json!({ "enum": Audience::ALL.map(Audience::as_str), "description": "The audience whose view of a run the messages have." })
}

fn patterns(of: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 256,
        "description": format!("Ids of {of}, or beginnings of ids with a `*` at the end. Absent: all.") })
}

fn include() -> Value {
    json!({ "const": "activity", "description": "Adds the activity, as the audience sees it, to each message." })
}

pub(super) fn webhooks() -> Value {
    object("Webhooks.", json!({ "webhooks": list(shape("Webhook")), "nextCursor": next_cursor() }), json!({}))
}

fn secrets(meaning: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string", "pattern": "^whsec_" }, "maxItems": 4, "description": meaning })
}

pub(super) fn webhook() -> Value {
    let always = json!({
        "id": text("Its name in the configuration file, or a generated id."),
        "url": text("Where its messages go."),
        "events": events(),
        "audience": audience(),
        "configured": flag("Whether it comes from the configuration file."),
    });
    let sometimes = json!({
        "sessions": patterns("sessions"),
        "agents": patterns("agents"),
        "include": include(),
        "disabledAt": time("When its receiver answered 410. Its messages wait until a test succeeds."),
        "secrets": secrets("Only in the answer that made it: what signs the messages."),
    });
    object("A webhook.", always, sometimes)
}

pub(super) fn webhook_wanted() -> Value {
    let sometimes = json!({
        "secrets": secrets("`whsec_` and the base64 of 24 to 64 bytes, the newest first; each signs. Absent: the server makes one."),
        "events": events(),
        "audience": audience(),
        "sessions": patterns("sessions"),
        "agents": patterns("agents"),
        "include": include(),
    });
    let url = text("An absolute http or https URL of a public host, without user name and password.");
    let mut wanted = object("A webhook to make.", json!({ "url": url }), sometimes);
    wanted["additionalProperties"] = false.into();
    wanted
}

fn outcome() -> Value {
    let classes = ["status", "redirect", "gone", "private_address", "connect", "timeout", "protocol"];
    let sometimes = json!({
        "status": count("The status of the answer."),
        "error": json!({ "enum": classes, "description": "Why it failed; absent for a message that was taken." }),
    });
    object("The last attempt.", json!({ "at": time("When it ended.") }), sometimes)
}

pub(super) fn webhook_tested() -> Value {
    object(
        "What a receiver answered.",
        json!({ "delivered": flag("Whether it took the message."), "last": outcome() }),
        json!({}),
    )
}

pub(super) fn deliveries() -> Value {
    object("Deliveries.", json!({ "deliveries": list(shape("Delivery")), "nextCursor": next_cursor() }), json!({}))
}

pub(super) fn delivery() -> Value {
    let always = json!({
        "id": text("The header `webhook-id` of each attempt."),
        "type": json!({ "enum": EventKind::ALL.map(EventKind::as_str) }),
        "status": json!({ "enum": ["open", "delivered", "failed", "dropped"],
            "description": "`failed`: no attempt of ten succeeded. `dropped`: what it is about was erased, or is hidden." }),
        "attempts": count("Attempts so far."),
        "createdAt": time("When the event happened."),
    });
    let sometimes = json!({
        "nextAttemptAt": time("When an open one is tried next."),
        "last": outcome(),
        "sessionId": id(),
        "runId": id(),
        "actionId": id(),
    });
    object("An event on its way to a webhook.", always, sometimes)
}

pub(super) fn redelivery_wanted() -> Value {
    object("A delivery to try again.", json!({ "deliveryId": text("Its `id`.") }), json!({}))
}

pub(super) fn audit() -> Value {
    object("Entries.", json!({ "entries": list(shape("AuditEntry")), "nextCursor": next_cursor() }), json!({}))
}

pub(super) fn audit_entry() -> Value {
    let always = json!({
        "number": count("Its number, from 1 without gaps."),
        "at": time("When it was recorded."),
        "what": json!({ "enum": Deed::ALL, "description": "What was done." }),
        "by": decided_by::schema(),
    });
    let sometimes = json!({
        "runId": id(),
        "sessionId": id(),
        "actionId": id(),
        "controlId": id(),
        "control": json!({ "type": "string", "description": "The control that decided.", "examples": [Control::Approve.as_str()] }),
        "id": text("The link, or the webhook."),
    });
    object("Who did what. It has ids and no text, and stays when what it is about is erased.", always, sometimes)
}
