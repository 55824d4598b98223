//! `session`: the frame of a chat, task session or app tab: title, status, unread state. Never its messages.

use super::seen::Seen;
use super::{Scene, carry};
use crate::model::{EventType, SessionId, Surface};

pub(super) fn fold(seen: &Seen, scene: &mut Scene) {
    let by_class = match seen.class {
        EventType::SessionOpened => Some("open"),
        EventType::SessionHydrated | EventType::SessionUpdated => None,
        EventType::SessionClosed => Some("closed"),
        _ => return,
    };
    let own = (!scene.is_run).then(|| scene.log.clone());
    let Some(id) = seen.ids.session.as_ref().map(|id: &SessionId| id.as_str().into()).or(own) else { return };
    let mut edit = scene.stage.open("session", &id, Surface::SessionTabs, None);
    let told = seen.text("status").filter(|_| seen.class != EventType::SessionClosed);
    match told.or(by_class) {
        Some(status) => edit.say("status", status),
        None if edit.get("status").is_none() => edit.set("status", "unknown"),
        None => {}
    }
    carry::all_in_brief(seen, &mut edit, &["status"]);
    carry::ids(seen, &mut edit, &["threadId", "parentSessionId", "parentThreadId"]);
    carry::refs(seen, &mut edit);
}
