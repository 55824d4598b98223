//! The shapes of webhooks, their deliveries, push subscriptions and the audit.

use super::parts::{count, flag, id, list, next_cursor, object, shape, text, time};
use crate::audit::Deed;
use crate::model::{Audience, Control, decided_by};
use crate::notify::event::EventKind;
use crate::notify::subscription::{EVENTS as DEVICE_EVENTS, MUTED_MAX};
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

pub(super) fn push() -> Value {
    let members = json!({
        "publicKey": text("The server's key (RFC 8292), as `applicationServerKey` of the browser takes it: base64url."),
        "subscriptions": list(shape("PushSubscription")),
    });
    object("Web Push: the key, and the person's own subscriptions.", members, json!({}))
}

fn device_events() -> Value {
    json!({ "type": "array", "items": { "enum": DEVICE_EVENTS.map(EventKind::as_str) },
        "description": "What the device hears of." })
}

fn muted() -> Value {
    let ids = || json!({ "type": "array", "items": { "type": "string" }, "maxItems": MUTED_MAX });
    json!({ "type": "object", "properties": { "sessions": ids(), "agents": ids() }, "additionalProperties": false,
        "description": "Sessions and agents that the device hears nothing of." })
}

pub(super) fn push_subscription() -> Value {
    let always = json!({
        "id": text("Its id."),
        "host": text("The host of the push service."),
        "audience": audience(),
        "events": device_events(),
        "muted": muted(),
        "createdAt": time("When the device was subscribed."),
        "renewedAt": time("When it was renewed last. A renewal that changes nothing counts once a day."),
        "until": time("When it ends without renewal."),
    });
    object("The subscription of a device, without its address and keys.", always, json!({}))
}

fn endpoint() -> Value {
    text("The address that the browser's push service made.")
}

pub(super) fn push_subscription_wanted() -> Value {
    let keys =
        json!({ "p256dh": text("The browser's public key, base64url."), "auth": text("Its secret, base64url of 16 bytes.") });
    let always = json!({ "endpoint": endpoint(), "keys": object("The keys of the browser.", keys, json!({})) });
    let mut expires = json!({ "description": "As the browser has it. The server does not need it." });
    expires["type"] = json!(["number", "null"]);
    let sometimes = json!({
        "expirationTime": expires,
        "audience": audience(),
        "events": device_events(),
        "muted": muted(),
    });
    let mut wanted = object(
        "What `PushSubscription.toJSON()` of a browser gives, and what the person wants. What is absent stays as it was; in a new \
         subscription it is the audience of the token, `run.waiting`, and nothing muted.",
        always,
        sometimes,
    );
    wanted["additionalProperties"] = false.into();
    wanted
}

pub(super) fn push_subscription_ended() -> Value {
    object("A subscription to end.", json!({ "endpoint": endpoint() }), json!({}))
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
        "id": text("The link, the webhook, the key, or the owner."),
        "reason": text("Of a hold: why."),
    });
    object(
        "Who did what. It has ids, the reason of a hold, and no other text, and stays when what it is about is erased.",
        always,
        sometimes,
    )
}
