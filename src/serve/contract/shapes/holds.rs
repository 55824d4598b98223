//! Shapes of legal holds, of the dry run of retention, and of the export of an owner.

use super::parts::{count, id, list, next_cursor, object, shape, text, time};
use crate::holds::HOLD_REASON_CHARS_MAX;
use crate::model::decided_by;
use crate::retention_rules::DRY_RUN_NAMED_MAX;
use serde_json::{Value, json};

fn reason() -> Value {
    json!({ "description": "Why, without control characters.", "type": "string", "minLength": 1, "maxLength": HOLD_REASON_CHARS_MAX })
}

pub(super) fn hold_wanted() -> Value {
    object("A legal hold to set.", json!({ "reason": reason() }), json!({}))
}

pub(super) fn hold() -> Value {
    object(
        "A legal hold. In the entry of a session: the one that covers it, on itself, on a session above it, or on its owner. Users do not see it.",
        json!({ "reason": text("Why, as the person wrote it."), "by": decided_by::schema() }),
        json!({ "sessionId": id(), "ownerId": id() }),
    )
}

pub(super) fn holds() -> Value {
    object("Legal holds.", json!({ "holds": list(shape("Hold")), "nextCursor": next_cursor() }), json!({}))
}

fn one_or_more(of: &Value, meaning: &str) -> Value {
    json!({ "description": meaning, "anyOf": [of, { "type": "array", "items": of, "minItems": 1 }] })
}

pub(super) fn retention_wanted() -> Value {
    let rule = object(
        "A rule, as `[[retention]]` of the configuration has it.",
        json!({
            "after": json!({ "description": "The time since the last activity: such as `30d`, `24h`, or a number of seconds.", "type": ["string", "integer"] }),
            "then": then(),
        }),
        json!({
            "name": text("The rule's name."),
            "owner": one_or_more(&json!({ "type": "string" }), "Owners, whole or as a beginning with `*` at its end. Absent: all, and what has no owner."),
            "status": one_or_more(&ended(), "Statuses. Absent: any."),
            "confirm": json!({ "description": "Of no effect here.", "type": "boolean" }),
        }),
    );
    object(
        "Rules to look at.",
        json!({}),
        json!({
            "rules": json!({ "description": "The rules. Absent: the server's own.", "type": "array", "items": rule }),
            "limit": json!({
                "description": "How many of the oldest to name of each rule. Default: 10.",
                "type": "integer",
                "minimum": 0,
                "maximum": DRY_RUN_NAMED_MAX,
            }),
        }),
    )
}

fn then() -> Value {
    json!({ "description": "What the rule does.", "enum": ["compact", "erase"] })
}

fn ended() -> Value {
    json!({ "enum": ["completed", "failed", "cancelled", "interrupted"] })
}

pub(super) fn retention_due() -> Value {
    let first = object(
        "A session with those below it, or a run.",
        json!({ "lastActivity": time("When it was last active.") }),
        json!({
            "sessionId": id(),
            "runId": id(),
            "sessions": count("The session and those below it."),
            "runs": count("The runs of all of these."),
            "hold": shape("Hold"),
        }),
    );
    let part = |meaning: &str| {
        object(
            meaning,
            json!({
                "sessions": count("Sessions, with those below them."),
                "runs": count("Their runs, and runs without a session; of a rule that compacts, the runs to compact."),
                "first": list(first.clone()),
            }),
            json!({ "oldest": time("The oldest last activity of these.") }),
        )
    };
    let rule = object(
        "A rule, and what it is due for. What an earlier rule of the list takes is not listed again.",
        json!({
            "name": text("The rule's name."),
            "then": then(),
            "afterSeconds": count("The time since the last activity, in seconds."),
            "due": part("What the rule would do now."),
            "held": part("What a legal hold keeps from it."),
        }),
        json!({
            "owner": list(json!({ "type": "string" })),
            "status": list(ended()),
        }),
    );
    object(
        "What rules of retention would do now.",
        json!({ "at": time("When the server looked."), "rules": list(rule) }),
        json!({}),
    )
}

pub(super) fn owner_export_line() -> Value {
    json!({
        "description": "An envelope of the log that the last line with `export` names; or such a line. `owner` is the first line, `end` the last one of an export that is whole.",
        "anyOf": [
            shape("AgentUiEvent"),
            object(
                "What comes next.",
                json!({ "export": json!({ "enum": ["owner", "session", "run", "unreadable", "end"], "description": "What the line is about." }) }),
                json!({
                    "version": count("In `owner`: the version of the form."),
                    "ownerId": id(),
                    "audience": text("In `owner`: the audience that the envelopes are for."),
                    "marks": list(json!({ "type": "object" })),
                    "sessions": count("In `end`: the sessions."),
                    "runs": count("In `end`: the runs."),
                    "unreadable": count("In `end`: the runs and sessions that are not whole."),
                    "after": count("In `unreadable`: the last envelope of the log that was read; 0 if none was."),
                    "why": text("In `unreadable`: why the log is not whole."),
                }),
            ),
        ],
    })
}
