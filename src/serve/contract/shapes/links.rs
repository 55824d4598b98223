//! The shapes of share links.

use super::parts::{count, id, list, next_cursor, object, shape, text, time};
use crate::links::LINK_DAYS_MAX;
use serde_json::{Value, json};

fn verbs() -> Value {
    let about = "What the link permits: `read`, and `control` for one decision.";
    json!({ "description": about, "type": "array", "items": { "enum": ["read", "control"] } })
}

fn moment() -> Value {
    count("The sequence of the run after which the link shows nothing.")
}

pub(super) fn link_wanted() -> Value {
    let can = json!({
        "description": "`control`: the link may approve, reject or answer one action, once, unless its risk is high or unstated. Default: none.",
        "type": "array",
        "items": { "const": "control" },
    });
    object(
        "A link to make: to one run or to one session.",
        json!({ "until": time(&format!("When the link ends: within {LINK_DAYS_MAX} days.")) }),
        json!({ "runId": id(), "sessionId": id(), "at": moment(), "can": can }),
    )
}

pub(super) fn link_made() -> Value {
    let always = json!({
        "id": text("The link's id, by which it is listed and revoked."),
        "url": text("The address to share. Its fragment has the secret, which the server does not keep."),
        "until": time("When the link ends."),
    });
    object("A link that was just made.", always, json!({}))
}

pub(super) fn links() -> Value {
    object("Open links, newest first.", json!({ "links": list(shape("Link")), "nextCursor": next_cursor() }), json!({}))
}

pub(super) fn link() -> Value {
    let decided = object("The decision that it made.", json!({ "actionId": id(), "controlId": id() }), json!({}));
    object(
        "An open link.",
        json!({
            "id": text("The link's id."),
            "until": time("When the link ends."),
            "createdAt": time("When it was made."),
            "can": verbs(),
            "uses": count("How often its secret was exchanged: at each opening, and each quarter of an hour while it is open."),
        }),
        json!({
            "runId": id(),
            "sessionId": id(),
            "at": moment(),
            "usedAt": time("When its secret was exchanged last."),
            "sub": text("The `sub` of its maker's token."),
            "decided": decided,
        }),
    )
}

pub(super) fn link_secret() -> Value {
    object("The secret of a link.", json!({ "secret": text("What follows `link=` in the link's fragment.") }), json!({}))
}

pub(super) fn link_opened() -> Value {
    object(
        "An opened link.",
        json!({ "until": time("When the link ends."), "can": verbs() }),
        json!({
            "runId": id(),
            "sessionId": id(),
            "at": moment(),
            "token": text("The token for requests. Absent on a server without authentication, which asks for none."),
            "expiresAt": time("When the token ends. Exchange the secret again before."),
        }),
    )
}
