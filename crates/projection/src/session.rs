//! `session`: the frame of a chat, task session or app tab: title, status, unread state.
//!
//! Never its messages.

use super::envelope_view::EnvelopeView;
use super::members::{Any, Flag, Str, content};
use super::{FoldState, carry};
use proscenium_model::decided_by;
use proscenium_model::fact::SessionFact;
use proscenium_model::{EventType, SessionId, Surface};

content! {
    SESSION = "session" of SessionFact,
    "The frame of a session: title, status, unread state. The members have the source's names, bounded. Never its messages.";
    "status": Str, Always as STATUS, "The status as a fact states it, else open or closed; unknown if no fact states it.";
    "parentSessionId": Str, Sometimes, "The parent session.";
    "titleFrom": Str, Sometimes, "Whose the title is, once a person has changed it: user or source.";
    "sourceTitle": Str, Sometimes, "The title of the source, while a person's title stands.";
    "archived": Flag, Sometimes, "Whether a person archived the session.";
    "updatedBy": Any, Sometimes with decided_by::schema(), "The person who renamed or archived the session, at last.";
}

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    let by_class = match envelope.event_type {
        EventType::SessionOpened => Some("open"),
        EventType::SessionHydrated | EventType::SessionUpdated => None,
        EventType::SessionClosed => Some("closed"),
        _ => return,
    };
    let own = (!fold.is_run).then(|| fold.log.clone());
    let Some(id) = envelope.ids.session.as_ref().map(|id: &SessionId| id.as_str().into()).or(own) else { return };
    let mut edit = fold.activities.open("session", &id, Surface::SessionTabs, None);
    let stated = envelope.text("status").filter(|_| envelope.event_type != EventType::SessionClosed);
    match stated.or(by_class) {
        Some(status) => edit.set(STATUS, status),
        None if !edit.has(STATUS) => edit.set(STATUS, "unknown"),
        None => {}
    }
    carry::all_in_brief(envelope, &mut edit, &["status"]);
    carry::ids(envelope, &mut edit, &["threadId", "parentSessionId", "parentThreadId"]);
    carry::refs(envelope, &mut edit);
}
