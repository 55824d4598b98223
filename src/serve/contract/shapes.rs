//! The schemas of bodies that `schema/` does not define.
//!
//! The members listed first are always present. Others may follow: clients must ignore members that they do not know.

mod clients;
mod copilot;
mod durable;
mod holds;
mod links;
mod notify;
mod parts;

use crate::auth::rights::Verb;
use crate::auth::tickets::TICKET_TTL_SECS_MAX;
use crate::control::rules::TARGETS;
use crate::model::{Audience, Control, Surface, schema};
use crate::projection::action::{ACTION, LISTED};
use crate::record::proof::VERSION;
use clients::{ag_ui_event, chat_at_rest, chat_chunk, chat_wanted, chats, run_agent_input, stop_wanted, stopped, thread_at_rest};
use links::{link, link_made, link_opened, link_secret, link_wanted, links};
use parts::{
    activation, count, epoch, flag, id, list, next_cursor, object, or_null, phase, shape, status, text, time, title_wanted,
};
use serde_json::{Map, Value, json};

/// A shape: its component name and its schema.
pub type Shape = (&'static str, fn() -> Value);

/// All shapes. `AgentUiEvent`, `Frame` and `Problem` come from the documents of `schema/`.
pub const SHAPES: &[Shape] = &[
    ("Facts", facts),
    ("Fact", fact),
    ("Receipt", receipt),
    ("Settled", settled),
    ("OwnerErasure", owner_erasure),
    ("Runs", runs),
    ("Run", run),
    ("RunTotals", run_totals),
    ("Stats", stats),
    ("Sessions", sessions),
    ("SessionLine", session_line),
    ("Session", session),
    ("Window", window),
    ("Timeline", timeline),
    ("Events", events),
    ("SessionEvents", session_events),
    ("SessionActivities", session_activities),
    ("DurableItems", durable::items),
    ("DurableEvent", durable::event),
    ("Activities", activities),
    ("Activity", activity),
    ("ExportLine", export_line),
    ("ProofLine", proof_line),
    ("SignedHead", signed_head),
    ("Attention", attention),
    ("AttentionItem", attention_item),
    ("ListFrame", list_frame),
    ("Decisions", decisions),
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
    ("CopilotInfo", copilot::info),
    ("A2aCard", clients::a2a_card),
    ("A2aCall", clients::a2a_call),
    ("A2aAnswer", clients::a2a_answer),
    ("CopilotCall", copilot::call),
    ("CopilotThreads", copilot::threads),
    ("CopilotThread", copilot::thread),
    ("CopilotThreadChange", copilot::thread_change),
    ("CopilotThreadOfAgent", copilot::thread_of_agent),
    ("CopilotThreadArchived", copilot::thread_archived),
    ("CopilotThreadDeleted", copilot::thread_deleted),
    ("CopilotMessages", copilot::messages),
    ("CopilotEvents", copilot::events),
    ("CopilotState", copilot::state),
    ("ChatWanted", chat_wanted),
    ("ChatChunk", chat_chunk),
    ("ChatAtRest", chat_at_rest),
    ("Chats", chats),
    ("StopWanted", stop_wanted),
    ("Stopped", stopped),
    ("SignIn", sign_in),
    ("Webhooks", notify::webhooks),
    ("Webhook", notify::webhook),
    ("WebhookWanted", notify::webhook_wanted),
    ("WebhookTested", notify::webhook_tested),
    ("Deliveries", notify::deliveries),
    ("Delivery", notify::delivery),
    ("RedeliveryWanted", notify::redelivery_wanted),
    ("Push", notify::push),
    ("PushSubscription", notify::push_subscription),
    ("PushSubscriptionWanted", notify::push_subscription_wanted),
    ("PushSubscriptionEnded", notify::push_subscription_ended),
    ("Audit", notify::audit),
    ("AuditEntry", notify::audit_entry),
    ("BackupWanted", backup_wanted),
    ("TicketWanted", ticket_wanted),
    ("Me", me),
    ("Keys", keys),
    ("Ticket", ticket),
    ("Attachment", attachment),
    ("BranchWanted", branch_wanted),
    ("Branch", branch),
    ("SessionChange", session_change),
    ("FeedbackWanted", feedback_wanted),
    ("Feedback", feedback),
    ("FeedbackList", feedback_list),
    ("MarksWanted", marks_wanted),
    ("Marks", marks),
    ("LinkWanted", link_wanted),
    ("LinkMade", link_made),
    ("Links", links),
    ("Link", link),
    ("LinkSecret", link_secret),
    ("LinkOpened", link_opened),
    ("Hold", holds::hold),
    ("Holds", holds::holds),
    ("HoldWanted", holds::hold_wanted),
    ("RetentionWanted", holds::retention_wanted),
    ("RetentionDue", holds::retention_due),
    ("OwnerExportLine", holds::owner_export_line),
    ("Health", health),
    ("Ready", ready),
    ("Cluster", cluster),
    ("Description", description),
    ("Any", any),
];

fn facts() -> Value {
    json!({ "description": "One fact, or an array of them.", "anyOf": [shape("Fact"), list(shape("Fact"))] })
}

fn fact() -> Value {
    json!({
        "description": "A fact in the vocabulary of its `source`. An `agentui` fact has a `type`, and further members of an AgentUiEvent; unknown members are kept.",
        "type": "object",
        "properties": {
            "type": { "description": "The event's type.", "type": "string", "minLength": 1 },
            "payload": {},
        },
    })
}

fn receipt() -> Value {
    let violation = object(
        "What the log could not take as it came, such as a chunk after the end of its stream.",
        json!({
            "index": count("The fact's index in the body, from 0."),
            "code": text("`write_after_seal`; or `unreadable_deadline`, `unreadable_approvals` or `unreadable_on_expiry` for a member of an action that cannot be read and counts as not stated."),
            "eventType": text("The type of the fact."),
            "thing": text("The sealed subject or the action, as `kind:id`."),
        }),
        json!({}),
    );
    object(
        "The outcome of a body of facts; everything accepted is durable.",
        json!({
            "epoch": or_null(epoch()),
            "accepted": count("Accepted facts."),
            "duplicates": count("Duplicates, by their producer's numbers."),
            "firstSequence": or_null(count("The sequence of the first envelope of these facts; null if there is none.")),
            "lastSequence": count("The sequence of the log's last envelope after them."),
        }),
        json!({
            "runId": id(),
            "sessionId": id(),
            "shed": count("Diagnostics and metrics dropped because of overload; they need not be sent again."),
            "violations": list(violation),
            "violationsOmitted": count("The number of further violations."),
        }),
    )
}

fn settled() -> Value {
    object(
        "A run's state after a settle request.",
        json!({
            "runId": id(),
            "epoch": epoch(),
            "status": status(),
            "phase": phase(),
            "lastSequence": count("The sequence of the log's last envelope."),
            "settled": flag("Whether this request ended the run; false if it had ended before."),
        }),
        json!({}),
    )
}

fn owner_erasure() -> Value {
    let always = json!({ "ownerId": id(), "sessions": count("The sessions of the owner that are left.") });
    object("The erasure of an owner, which goes on.", always, json!({}))
}

fn facets() -> Value {
    let counts =
        |of: &str| json!({ "description": of, "type": "object", "additionalProperties": { "type": "integer", "minimum": 1 } });
    object(
        "How many runs each value has, among those that meet all other conditions of the filter.",
        json!({
            "status": counts("By status."),
            "agent": counts("By agent, the 256 of the most runs. Runs that name none count as `default`."),
            "source": counts("By source, the 256 of the most runs. Runs without a known source are not counted."),
            "owner": counts("By owner, the 256 of the most runs. Runs without an owner are not counted."),
        }),
        json!({}),
    )
}

fn run_totals() -> Value {
    let always = json!({ "total": count("The runs of the list."), "facets": facets() });
    object("How many runs a list has, and of which kinds.", always, json!({}))
}

fn stats() -> Value {
    let times = |of: &str| {
        let members =
            json!({ "count": count("The number of values."), "p50": count("The median."), "p95": count("The 95th percentile.") });
        object(of, members, json!({}))
    };
    let figures = |of: &str, more: Value| {
        let mut always = json!({
            "runs": count("The number of runs."),
            "status": json!({ "description": "How many have each status.", "type": "object", "additionalProperties": { "type": "integer", "minimum": 1 } }),
        });
        if let (Value::Object(always), Value::Object(more)) = (&mut always, more) {
            always.extend(more);
        }
        let sometimes = json!({
            "usage": usage(),
            "durationMs": times("How long they took, in milliseconds. Absent: none has ended."),
            "waitedMs": times("How long actions waited for their decisions, in milliseconds: of each run the newest 64. Absent: none was decided."),
        });
        object(of, always, sometimes)
    };
    let key = object(
        "What the bucket is of.",
        json!({}),
        json!({
            "at": time("The start of the hour or day in which the runs started."),
            "agent": text("The agent; `default` for runs that name none."),
            "status": status(),
        }),
    );
    object(
        "Figures of the runs that started since a time. A run counts at its start, with all of its usage and waits.",
        json!({
            "since": time("From when runs count."),
            "total": figures("All of these runs.", json!({})),
            "buckets": list(figures("The runs of one bucket. One without runs is left out.", json!({ "key": key }))),
        }),
        json!({ "activation": activation() }),
    )
}

fn runs() -> Value {
    let always = json!({ "runs": list(shape("Run")), "nextCursor": next_cursor() });
    object(
        "Runs, newest first, or in the order of `sort`.",
        always,
        json!({
            "total": count("With `filter` or `sort`: the runs of the list. With words, those of which the index of texts has them."),
            "facets": facets(),
            "activation": activation(),
        }),
    )
}

fn usage() -> Value {
    object(
        "The usage of its model calls, as this audience sees it. Absent: it sees none, or an earlier version of the server began the run.",
        json!({}),
        json!({
            "inputTokens": count("Tokens of the input, if a call reported them."),
            "outputTokens": count("Tokens of the output, if a call reported them."),
            "costUsd": json!({ "description": "US dollars, if a call reported a cost.", "type": "number", "minimum": 0 }),
        }),
    )
}

fn run() -> Value {
    let counts = object(
        "Counts, as this audience sees the run.",
        json!({ "events": count("Visible envelopes."), "pendingActions": count("Pending actions.") }),
        json!({}),
    );
    object(
        "A run, as an audience sees it.",
        json!({
            "runId": id(),
            "status": status(),
            "phase": phase(),
            "attempt": count("The number of starts: 1 after the first, one more for each restart, 0 before any."),
            "epoch": epoch(),
            "lastSequence": count("The sequence of the log's last envelope."),
            "counts": counts,
        }),
        json!({
            "sessionId": id(),
            "threadId": id(),
            "parentSessionId": id(),
            "stale": flag("The run has been silent for too long."),
            "synthetic": flag("The server ended the run."),
            "agentId": id(),
            "startedAt": time("When it started."),
            "endedAt": time("When it ended."),
            "durationMs": count("How long it took, in milliseconds. Absent: it has not ended."),
            "usage": usage(),
            "lastActivity": time("When the newest news came that this audience sees."),
            "title": text("The title, from its source. In lists with `filter` or `sort`, else from its first message of a user."),
            "highlight": highlight(),
            "preview": text("The beginning of its newest message."),
            "compacted": flag("Compaction has removed facts that mattered only while the run was live."),
            "activation": activation(),
        }),
    )
}

fn sessions() -> Value {
    let always = json!({ "sessions": list(shape("SessionLine")), "nextCursor": next_cursor() });
    object("Sessions, newest first.", always, json!({ "activation": activation() }))
}

/// The required and optional members of a session in a list.
fn session_members() -> (Map<String, Value>, Map<String, Value>) {
    let counts = object(
        "Counts over all its runs, as this audience sees them.",
        json!({
            "runs": count("Runs of the session."),
            "pendingActions": count("Pending actions of the session and of its descendants."),
            "pendingActionsBelow": count("Pending actions of its descendants."),
            "unanswered": count("Those of `pendingActions` that have no decision under way."),
        }),
        json!({}),
    );
    let always = json!({ "sessionId": id(), "status": status(), "counts": counts, "agents": list(id()) });
    let sometimes = json!({
        "title": text("The title: of a person, else of the source, else made of the first message of a user."),
        "titleFrom": json!({ "description": "Whose title it is.", "enum": ["user", "source", "message"] }),
        "preview": text("The beginning of its newest message."),
        "unread": count(
            "1 if news came after what the token's `sub` has read, else 0. Where it has read nothing: unread items, as the source reports; a source's `true` counts as 1.",
        ),
        "pinned": flag("As the token's `sub` has set it, else as the source reports."),
        "archived": flag("A person archived it. Absent: it is not archived."),
        "stale": flag("Its source reports it, or one of its runs is stale."),
        "highlight": highlight(),
        "lastActivity": time("When the newest news came that this audience sees. Renaming and archiving are no news."),
        "createdBy": text("The `sub` of the token that began it. As `user`, a client sees only its own."),
        "parentSessionId": id(),
        "parent": branch_point(),
        "fork": fork(),
        "head": text("The branch that existing clients read and write by the id of this session. Absent: the session itself."),
        "hold": shape("Hold"),
    });
    match (always, sometimes) {
        (Value::Object(always), Value::Object(sometimes)) => (always, sometimes),
        _ => unreachable!("both are object literals"),
    }
}

fn fork() -> Value {
    json!({
        "description": "What the agent of a branch knows of what came before: its own state at the point, the messages up to it, or nothing that the server gives it.",
        "enum": ["state", "transcript", "none"],
    })
}

fn branch_point() -> Value {
    let members = json!({
        "sessionId": id(),
        "runId": id(),
        "sequence": count("The last sequence of the run that the branch has; 0: the branch leaves before the run."),
    });
    object("Where a branch leaves: a point of a run of this session.", members, json!({}))
}

fn branch_wanted() -> Value {
    let point = object(
        "After an envelope of a run of the session, or of what the session has of its ancestors.",
        json!({ "runId": id(), "sequence": count("0: before the run.") }),
        json!({}),
    );
    let message = object("After a message.", json!({ "messageId": text("The id of a message.") }), json!({}));
    let always = json!({ "after": { "description": "Where the branch begins.", "oneOf": [point, message] } });
    object("A branch to begin.", always, json!({ "sessionId": text("The id of the branch. Without it the server names it.") }))
}

fn branch() -> Value {
    let always = json!({ "sessionId": id(), "parent": branch_point(), "fork": fork() });
    object("A branch of a session's tree.", always, json!({}))
}

fn highlight() -> Value {
    let members = json!({
        "kind": json!({ "description": "What it is.", "enum": ["question", "error", "match"] }),
        "text": text("The question that waits, the error of the newest run, or what is around the words of a search, in one line."),
    });
    let of_match = json!({
        "runId": id(),
        "sequence": count("Of a match: the first envelope of the text, in the log of the run or, without `runId`, of the session."),
        "messageId": text("Of a match in a message or its reasoning: the message."),
        "sessionId": text("Of a match in a branch of the session: the branch."),
    });
    object(
        "Why the session or the run needs a look, or what a search in texts found. Of runs, in lists with `filter` or `sort`.",
        members,
        of_match,
    )
}

fn attachment() -> Value {
    let always = json!({
        "href": text("The address of its bytes, for `value.attachments[].href` of a message."),
        "mediaType": text("Its media type, without parameters."),
        "bytes": count("Its size."),
        "sha256": text("Its SHA-256, in hexadecimal digits."),
    });
    object("A file of a session.", always, json!({ "name": text("Its name.") }))
}

fn session_change() -> Value {
    object(
        "A change of a session.",
        json!({}),
        json!({ "title": title_wanted(), "archived": flag("Whether it is archived."), "head": head_wanted() }),
    )
}

fn head_wanted() -> Value {
    let about =
        "The branch that existing clients read and write by the id of this session: one of its tree. `null`: the session itself.";
    json!({ "description": about, "type": ["string", "null"] })
}

fn feedback_wanted() -> Value {
    let sometimes = json!({
        "messageId": text("The message, by its `activityId` or as a face shows it. Absent: the run."),
        "thumb": thumb(),
        "text": text("Words of at most 4096 characters. Only their giver, dashboards and operators get them."),
    });
    object("What a person says of a message or a run.", json!({}), sometimes)
}

fn thumb() -> Value {
    json!({ "description": "The thumb; null for none.", "enum": ["up", "down", null] })
}

fn feedback() -> Value {
    let always = json!({ "runId": id(), "thumb": thumb(), "own": flag("Whether it is the token's own.") });
    let sometimes = json!({
        "messageId": text("The `activityId` of the message; absent if it is about the run."),
        "feedbackId": text("Its id, which stays when its giver changes it; absent once it is withdrawn."),
        "sequence": count("The sequence of the newest envelope of it."),
        "text": text("The words; not for other users."),
        "givenBy": decided_by(),
    });
    object("The feedback of one person about a message or a run.", always, sometimes)
}

fn feedback_list() -> Value {
    let always = json!({ "feedback": list(shape("Feedback")) });
    object("The feedback about a run and its messages.", always, json!({ "activation": activation() }))
}

fn marks_wanted() -> Value {
    let about = "A cursor of the session, of one of its newest runs, or of a list: all up to it is read. An earlier one than before changes nothing. `null`: nothing is read.";
    let read_to = json!({ "description": about, "type": ["string", "null"] });
    object("A change of marks.", json!({}), json!({ "readTo": read_to, "pinned": flag("Whether the session is pinned.") }))
}

fn marks() -> Value {
    let sometimes = json!({
        "readTo": text("The cursor up to which it is read, in the order of commits."),
        "pinned": flag("Whether it is pinned."),
    });
    object("The marks of the token's `sub` on a session.", json!({ "sessionId": id() }), sometimes)
}

fn session_line() -> Value {
    let (always, sometimes) = session_members();
    object("A session in a list, from its own log and all its runs.", always.into(), sometimes.into())
}

/// The runs of which an answer lacks what their objects have.
pub(super) fn unreadable_runs() -> Value {
    let mut runs = list(id());
    runs["description"] = "Archived runs whose objects cannot be read now: what only they have is left out.".into();
    runs
}

fn session() -> Value {
    let (mut always, mut sometimes) = session_members();
    let more = json!({
        "runs": list(shape("Run")),
        "truncated": flag("Whether the session has more runs than `runs` lists."),
        "children": list(id()),
        "pendingActions": list(shape("Activity")),
        "queue": list(shape("Activity")),
        "tasks": list(shape("Activity")),
        "team": list(shape("Activity")),
    });
    always.extend(more.as_object().cloned().unwrap_or_default());
    sometimes.insert("activation".into(), activation());
    sometimes.insert("branches".into(), list(shape("Branch")));
    sometimes.insert("unreadable".into(), unreadable_runs());
    sometimes.insert("root".into(), text("The session from which all branches of the tree come. Absent: there are no branches."));
    object("A session's shell and what needs attention.", always.into(), sometimes.into())
}

fn window() -> Value {
    object(
        "Recent messages, in order.",
        json!({
            "sessionId": id(),
            "messages": list(shape("Activity")),
            "truncated": flag("Whether earlier messages exist."),
            "nextCursor": next_cursor(),
            "deferred": list(text("A part that a client loads when the user opens it.")),
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
            "truncated": flag("Whether earlier items exist."),
            "nextCursor": next_cursor(),
        }),
        json!({ "activation": activation() }),
    )
}

fn events() -> Value {
    let hole = json!({ "type": "array", "prefixItems": [count("The first sequence."), count("The last sequence.")], "minItems": 2, "maxItems": 2 });
    object(
        "A page of envelopes, in order.",
        json!({
            "events": list(shape("AgentUiEvent")),
            "nextCursor": next_cursor(),
            "truncated": flag("Whether the page is not the last."),
            "epoch": epoch(),
        }),
        json!({
            "holes": { "description": "Ranges of sequences that compaction removed.", "type": "array", "items": hole },
            "activation": activation(),
        }),
    )
}

fn session_events() -> Value {
    object(
        "A page of a session's envelopes, in commit order.",
        json!({
            "sessionId": id(),
            "events": list(shape("AgentUiEvent")),
            "cursors": list(text("The cursor of each of `events`, in the same order: for `at`, `after`, `before` and the session's stream.")),
            "nextCursor": next_cursor(),
            "truncated": flag("Whether the page is not the last."),
        }),
        json!({ "activation": activation() }),
    )
}

fn session_activities() -> Value {
    object(
        "The activities of a session at one position in commit order.",
        json!({
            "sessionId": id(),
            "cursor": text("The position: the session's stream can start there, and `at` with it returns further pages of the same moment."),
            "activities": list(shape("Activity")),
            "nextCursor": next_cursor(),
            "truncated": flag("Whether further logs follow."),
        }),
        json!({ "activation": activation() }),
    )
}

fn activities() -> Value {
    object(
        "The activities of a run.",
        json!({
            "runId": id(),
            "epoch": epoch(),
            "sequence": count("The sequence of the last envelope included."),
            "cursor": text("The cursor from which the live stream continues."),
            "activities": list(shape("Activity")),
        }),
        json!({ "activation": activation() }),
    )
}

fn activity() -> Value {
    object(
        "An activity: one evolving item on a screen.",
        json!({
            "activityType": text("The activity type; `/schema/activities/` has a schema for each."),
            "activityId": text("The activity's id, unique within its type and its log."),
            "surface": schema::open(Surface::NAMES, "The surface that shows it."),
            "opened": count("The sequence of the envelope that opened it; clients sort by it."),
            "sequence": count("The sequence of the envelope that last changed it."),
            "openedAt": time("When the server received the envelope that opened it."),
            "updatedAt": time("When the server received the envelope that last changed it."),
            "content": { "description": "The content, by activity type.", "type": "object" },
        }),
        json!({
            "agentId": id(),
            "runId": id(),
            "sessionId": id(),
            "endedAt": time("When the server received the envelope that ended it; absent while it is open."),
            "sourceOpenedAt": time("When it opened by its source's own clock; absent unless the source states times."),
            "sourceEndedAt": time("When it ended by its source's own clock; absent while it is open."),
        }),
    )
}

/// The members that name a control's target.
fn targets() -> Map<String, Value> {
    TARGETS.iter().map(|name| ((*name).to_owned(), id())).collect()
}

fn control_name() -> Value {
    schema::open(Control::NAMES, "The control.")
}

fn control_wanted() -> Value {
    let mut sometimes = targets();
    sometimes.insert("controlId".into(), id());
    sometimes.insert("runId".into(), id());
    sometimes.insert("sessionId".into(), id());
    sometimes.insert("value".into(), json!({ "description": "The control's value: an answer, a message or an edit. For approve and reject, optionId names an option of the action; without it, approve takes the option that allows once, and reject the narrowest." }));
    sometimes.insert("expiresAt".into(), time("When the control expires."));
    let seconds = json!({ "description": "The time until it expires, in seconds.", "type": "number", "exclusiveMinimum": 0 });
    sometimes.insert("ttlSeconds".into(), seconds);
    let supersede =
        flag("With `send`: whether the message supersedes the pending actions of its agent, which then take no decision.");
    sometimes.insert("supersede".into(), supersede);
    let seen = "The last envelope of the question that the requester saw. A decision about an earlier version is refused.";
    sometimes.insert("seenSequence".into(), count(seen));
    sometimes.insert("onBehalfOf".into(), text("The person for whom the requester decides; needs the verb `impersonate`."));
    object("A control and its target.", json!({ "control": control_name() }), sometimes.into())
}

fn attention_item() -> Value {
    let mut of_action = ACTION.object();
    let mut sometimes = Map::from_iter([("sessionId".to_owned(), id()), ("runId".to_owned(), id())]);
    sometimes.extend(LISTED.into_iter().map(|member| (member.to_owned(), of_action["properties"][member].take())));
    object(
        "A pending action.",
        json!({
            "actionId": id(),
            "title": text("The request in one line, for a person."),
            "subject": json!({ "description": "What is decided: at most 2 KiB, without the bodies of diffs.", "type": "object" }),
            "agentId": id(),
            "askedAt": time("When it was asked."),
        }),
        sometimes.into(),
    )
}

fn attention() -> Value {
    let always = json!({
        "items": list(shape("AttentionItem")),
        "total": count("All pending actions that match and have no decision under way."),
        "nextCursor": next_cursor(),
    });
    object("Pending actions, oldest first.", always, json!({ "activation": activation() }))
}

fn list_frame() -> Value {
    let entry = json!({ "description": "The entry, as the list has it.", "oneOf": [shape("AttentionItem"), shape("SessionLine"), shape("Run"), shape("RunTotals")] });
    object(
        "A frame of a list stream.",
        json!({ "frame": json!({
            "description": "`Hydrated`: all entries were sent; changes follow. `Reset`: drop all entries; they follow again. `Error`: the stream ends.",
            "enum": ["List", "Hydrated", "Reset", "Error"],
        }) }),
        json!({
            "list": json!({ "description": "The list of a List frame.", "enum": ["attention", "sessions", "runs", "runTotals"] }),
            "op": json!({ "description": "`put`: the list has this entry. `remove`: it has it no longer.", "enum": ["put", "remove"] }),
            "key": text("The entry's key in its list; that of a session and of a run is its id."),
            "entry": entry,
            "truncated": flag("Of Hydrated: a list has more entries. They follow when they change."),
            "reason": text("Of Reset: `epoch` or `expired`."),
            "problem": json!({ "description": "Of Error.", "$ref": "#/components/schemas/Problem" }),
        }),
    )
}

fn decisions() -> Value {
    let sequences = object(
        "The envelopes of the decision, by their sequences.",
        json!({ "asked": count("The last request."), "decided": count("The control that decided, else the resolution.") }),
        json!({ "shown": count("What the person had seen."), "resolved": count("The resolution.") }),
    );
    let decision = object(
        "A decision.",
        json!({
            "actionId": id(),
            "subject": json!({ "description": "What was decided.", "type": "object" }),
            "callIds": list(id()),
            "sequences": sequences,
        }),
        json!({
            "runId": id(),
            "controlId": id(),
            "control": control_name(),
            "outcome": text("How the action ended; absent until it is resolved."),
            "title": json!({ "description": "The request in one line." }),
            "options": json!({ "description": "The choices." }),
            "decidedBy": json!({ "description": "Who decided.", "type": "object" }),
            "approvals": json!({
                "description": "All who approved, as `decidedBy`, of an action that needs several approvals.",
                "type": "array",
                "items": { "type": "object" },
            }),
            "askedAt": time("When it was first asked."),
            "decidedAt": time("When it was decided."),
            "waitedMs": count("The time between the two, in milliseconds."),
        }),
    );
    let always = json!({ "decisions": list(decision), "nextCursor": next_cursor() });
    object("Decisions.", always, json!({ "activation": activation(), "unreadable": unreadable_runs() }))
}

fn control_queued() -> Value {
    let always = json!({ "controlId": id(), "status": { "const": "queued" } });
    object("The control is recorded.", always, quorum())
}

/// The approvals of an action that needs several.
fn quorum() -> Value {
    json!({
        "have": count("The people who have approved, of an action that needs several."),
        "need": count("The people who must approve."),
    })
}

fn controls() -> Value {
    let always = json!({ "controls": list(shape("Control")), "nextCursor": next_cursor() });
    object("Controls, in submission order.", always, json!({ "activation": activation() }))
}

/// The required and optional members of a control.
fn control_members() -> (Map<String, Value>, Map<String, Value>) {
    let always = json!({
        "controlId": id(),
        "control": control_name(),
        "attempt": count("How often it was claimed."),
        "createdAt": time("When it was submitted."),
        "expiresAt": time("When the control expires."),
    });
    (always.as_object().cloned().unwrap_or_default(), targets())
}

fn control() -> Value {
    let (mut always, mut sometimes) = control_members();
    let status = json!({ "description": "The outcome.", "enum": ["queued", "claimed", "acked", "nacked", "expired"] });
    always.insert("status".into(), status);
    let expires_at = always.shift_remove("expiresAt");
    sometimes.extend(expires_at.map(|time| ("expiresAt".to_owned(), time)));
    sometimes.insert("reason".into(), text("Why its owner refused it."));
    sometimes.insert("text".into(), text("The beginning of a message that waits: at most 4,096 characters."));
    sometimes.insert("decidedBy".into(), decided_by());
    sometimes.extend(quorum().as_object().cloned().unwrap_or_default());
    object("A control and its outcome.", always.into(), sometimes.into())
}

fn claimed() -> Value {
    let always = json!({ "agentId": id(), "controls": list(shape("ControlHanded")) });
    object("The controls that an agent claimed.", always, json!({}))
}

fn control_handed() -> Value {
    let (mut always, mut sometimes) = control_members();
    always.insert("lease".into(), text("The lease, which the answer must name."));
    always.insert("leaseExpiresAt".into(), time("When the lease expires."));
    sometimes.insert("runId".into(), id());
    sometimes.insert("sessionId".into(), id());
    sometimes.insert("threadId".into(), id());
    sometimes.insert("decidedBy".into(), decided_by());
    sometimes.insert("approvals".into(), list(decided_by()));
    sometimes.insert("value".into(), json!({ "description": "The control's value." }));
    sometimes.insert("redacted".into(), flag("Whether secrets were removed from the value."));
    sometimes.insert("supersedes".into(), list(id()));
    object("A claimed control.", always.into(), sometimes.into())
}

fn decided_by() -> Value {
    object(
        "Who submitted it, as the server knows it.",
        json!({ "via": text("The face of the request."), "at": time("When the server accepted it.") }),
        json!({
            "sub": text("The `sub` of the token; not for other users."),
            "name": text("The `name` of the token; not for other users."),
            "onBehalfOf": text("The person for whom the requester decided; not for other users."),
            "seen": count("The last envelope of the question that the requester saw."),
            "other": flag("Whether another person than the reader submitted it."),
        }),
    )
}

fn control_answer() -> Value {
    object(
        "The owner's answer to a control.",
        json!({ "lease": text("The lease of the claim.") }),
        json!({
            "reason": text("Why the owner refuses it."),
            "requeue": flag("Whether another owner may claim it."),
        }),
    )
}

fn control_answered() -> Value {
    let always = json!({ "controlId": id(), "status": text("The outcome.") });
    object("The outcome of a control.", always, json!({}))
}

fn sign_in() -> Value {
    let provider = object(
        "An identity provider (`OpenID` Connect). The page is its public client: authorization code with PKCE (S256).",
        json!({
            "issuer": text("The issuer."),
            "clientId": text("The page's client id."),
            "scope": text("The scopes to request."),
            "token": { "description": "Which of the provider's tokens the page sends to the server.", "enum": ["access", "id"] },
            "parameters": {
                "description": "Further parameters of the authorization request.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
        }),
        json!({
            "authorizationEndpoint": text("Where a person signs in."),
            "tokenEndpoint": text("Where the page exchanges the code for tokens."),
            "endSessionEndpoint": text("Where a person signs out of the provider."),
        }),
    );
    object("How a person signs in.", json!({}), json!({ "provider": provider }))
}

fn backup_wanted() -> Value {
    object(
        "What a client that keeps backups has.",
        json!({}),
        json!({
            "have": {
                "description": "The files that it has: the checksum and the size of each, joined by a hyphen.",
                "type": "array",
                "items": { "type": "string" },
            },
            "bytesPerSecond": { "description": "How fast the server sends; 134217728 by default.", "type": "integer", "minimum": 1 },
        }),
    )
}

fn ticket_wanted() -> Value {
    object(
        "The purpose of a ticket.",
        json!({ "for": { "description": "A stream of frames, or a WebSocket.", "enum": ["stream", "ws"] } }),
        json!({
            "run": id(),
            "session": id(),
            "ttlSeconds": { "description": "The ticket's lifetime, in seconds.", "type": "integer", "minimum": 1, "maximum": TICKET_TTL_SECS_MAX },
        }),
    )
}

fn me() -> Value {
    let ids = |about: &str| json!({ "description": about, "type": "array", "items": { "type": "string" } });
    let always = json!({
        "audience": { "description": "The widest audience that the client may ask for.", "enum": Audience::ALL.map(Audience::as_str) },
        "can": { "description": "What the client may do.", "type": "array", "items": { "enum": Verb::ALL.map(Verb::as_str) } },
        "sessions": ids("The sessions that the client may use. `*` means all, `acme/*` those that begin with `acme/`."),
        "runs": ids("The runs that the client may use."),
        "agents": ids("The agents that the client may address."),
    });
    let sometimes = json!({
        "sub": text("The token's `sub`. Absent without authentication."),
        "name": text("The person's name."),
        "owner": text("Whose the sessions are that the client begins."),
        "owners": ids("The owners whose sessions the client may use."),
        "expiresAt": time("When the token ends."),
    });
    object("Who the client is, and what it may do.", always, sometimes)
}

fn keys() -> Value {
    let key = object(
        "A JSON Web Key (RFC 8037).",
        json!({
            "kid": text("The key's name: its thumbprint (RFC 7638)."),
            "kty": { "const": "OKP" },
            "crv": { "const": "Ed25519" },
            "x": text("The public key, as base64url."),
            "alg": { "const": "EdDSA" },
        }),
        json!({ "use": { "const": "sig" } }),
    );
    object("A JSON Web Key Set.", json!({ "keys": list(key) }), json!({}))
}

/// 32 bytes.
fn hash(about: &str) -> Value {
    json!({ "description": about, "type": "string", "pattern": "^[0-9a-f]{64}$" })
}

fn signature() -> Value {
    json!({ "description": "The Ed25519 signature.", "type": "string", "pattern": "^[0-9a-f]{128}$" })
}

fn export_line() -> Value {
    json!({
        "description": "An envelope, or a line that proves some.",
        "anyOf": [shape("ProofLine"), shape("AgentUiEvent")],
    })
}

fn proof_line() -> Value {
    let begin = object(
        "The first line, of a run or of a session's own log.",
        json!({
            "version": { "const": VERSION },
            "epoch": epoch(),
            "audience": { "enum": Audience::ALL.map(Audience::as_str) },
            "until": count("The last row of the export."),
        }),
        json!({
            "runId": id(),
            "sessionId": id(),
            "chain": object(
                "The rows that the hash chain has. Absent: none.",
                json!({ "from": count("The first."), "until": count("The last.") }),
                json!({}),
            ),
        }),
    );
    let row = object(
        "A row. If it has `key` or `shown`, the next line is its envelope.",
        json!({ "sequence": count("The row's sequence.") }),
        json!({
            "key": hash("The row key, with which the next line is hashed to the leaf."),
            "leaf": hash("The leaf of a row that is not shown as it was written."),
            "shown": hash("BLAKE3 of the next line, where that is not the text of the leaf."),
            "chain": hash("The chain's value after the row. Absent outside of the chain."),
        }),
    );
    let removed = object(
        "Rows that compaction removed.",
        json!({ "first": count("The first."), "last": count("The last."), "rows": count("How many.") }),
        json!({
            "before": hash("The chain's value before the first of them. Absent outside of the chain."),
            "after": hash("The chain's value after the last of them. Absent if it is not known."),
        }),
    );
    let resume = object(
        "The chain's value after a row, where it was not known before.",
        json!({ "sequence": count("The row's sequence."), "chain": hash("The chain's value.") }),
        json!({}),
    );
    let end = object(
        "The last line.",
        json!({
            "digest": hash("BLAKE3 of all bytes before this line."),
            "kid": text("The name of the key that signed."),
            "signature": signature(),
        }),
        json!({ "head": shape("SignedHead") }),
    );
    let one = |name: &str, value: Value| json!({ "type": "object", "properties": { name: value }, "required": [name], "additionalProperties": false });
    let kinds = [one("begin", begin), one("row", row), one("removed", removed), one("resume", resume), one("end", end)];
    object("A line that proves envelopes of an export.", json!({ "proof": { "oneOf": kinds } }), json!({}))
}

fn signed_head() -> Value {
    object(
        "The head of a log's hash chain, signed by the server.",
        json!({
            "epoch": epoch(),
            "sequence": count("The last row of the chain."),
            "chain": hash("The chain's value after that row."),
            "at": time("When it was signed."),
            "kid": text("The name of the key that signed."),
            "signature": signature(),
        }),
        json!({ "runId": id(), "sessionId": id() }),
    )
}

fn ticket() -> Value {
    let always = json!({ "ticket": text("The value of `?ticket=`."), "expiresAt": time("When it expires.") });
    object("A ticket.", always, json!({}))
}

fn health() -> Value {
    let always = json!({ "status": { "const": "ok" }, "version": text("The server's version.") });
    object("The process answers.", always, json!({}))
}

fn ready() -> Value {
    object(
        "The server accepts facts and readers.",
        json!({
            "status": { "const": "ready" },
            "openLogs": count("Logs in memory."),
            "readers": count("Open streams."),
        }),
        json!({
            "following": { "description": "In a cluster: whether the node receives its commits.", "type": "boolean" },
            "lag": count("In a cluster: commits that the node knows of and has not applied."),
        }),
    )
}

fn cluster() -> Value {
    let node = object(
        "A node that was heard of lately.",
        json!({
            "id": text("The id of the process."),
            "url": text("Where other nodes reach it."),
            "role": { "description": "The role.", "enum": ["leader", "follower"] },
            "position": count("The last commit that its store has."),
            "lagMs": count("For how long its store has been behind, in milliseconds."),
        }),
        json!({}),
    );
    object(
        "A cluster, as one node sees it.",
        json!({
            "name": text("The name of the cluster."),
            "self": text("The id of the node that answers."),
            "leader": or_null(text("The id of the leader; null while the cluster has none.")),
            "position": count("The last commit that the store of the answering node has."),
            "nodes": list(node),
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
