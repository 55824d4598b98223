//! The body of a message: an event, as the destination's audience saw it at the event's position.

use super::event::{EventKind, StatusEvent};
use super::push::{self, PushMessage, Urgency};
use super::task_push::TaskPush;
use super::webhook::{Include, Webhook};
use super::{Notifier, Reads};
use crate::encode::a2a::A2aOptions;
use crate::encode::frames::ActivityView;
use crate::log::{LogId, StoreError};
use crate::model::{ActionId, AgentId, Audience, ControlId, SessionId};
use crate::projection::activity_set::Activity;
use crate::projection::{ACTION_KIND, action, run};
use crate::record::signing;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The largest body, in bytes. A larger one goes without its activity.
const BODY_BYTES_MAX: usize = 20_000;
/// What marks the declarative form of a push message.
const DECLARATIVE_PUSH: u32 = 8030;
/// The longest title, in characters.
const TITLE_CHARS_MAX: usize = 200;

/// The members `data` of a message. `None`: the log was erased, or the audience sees nothing of it.
///
/// # Errors
/// [`StoreError`] from the store.
pub(super) async fn data(
    reads: &Reads,
    event: &StatusEvent,
    audience: Audience,
    notifier: &Notifier,
) -> Result<Option<(Map<String, Value>, Option<Activity>)>, StoreError> {
    let mut data = Map::new();
    let run = match &event.log {
        LogId::Run(run) if event.kind != EventKind::SessionCreated => Some(run.as_str()),
        _ => None,
    };
    let (session, agent) = (event.session.as_ref().map(SessionId::as_str), event.agent.as_ref().map(AgentId::as_str));
    let (action_id, control) = (event.action.as_ref().map(ActionId::as_str), event.control.as_ref().map(ControlId::as_str));
    let ids = [("sessionId", session), ("runId", run), ("agentId", agent), ("actionId", action_id), ("controlId", control)];
    data.extend(ids.into_iter().filter_map(|(member, id)| Some((member.to_owned(), id?.into()))));
    data.extend(event.status.map(|status| ("status".to_owned(), status.as_str().into())));
    data.extend(event.step.map(|step| ("step".to_owned(), step.into())));
    let mut shown = None;
    let mut title = None;
    let tail = reads.logs.log(&event.log).await?.tail();
    if tail.epoch != Some(event.epoch) {
        return Ok(None);
    }
    if event.kind == EventKind::LogHead {
        let head = signing::signed_head(&reads.logs, &reads.signing_key, &event.log, (notifier.environment.now)()).await?;
        let Some(head) = head else { return Ok(None) };
        data.insert("head".into(), serde_json::to_value(&head).expect("plain data serializes"));
    }
    if event.kind != EventKind::SessionCreated {
        data.insert("sequence".into(), event.sequence.0.into());
        let Some(view) = reads.feed.activities(&event.log, audience, Some(event.sequence)).await? else { return Ok(None) };
        let about = match &event.action {
            Some(asked) => (ACTION_KIND, Some(asked.as_str())),
            None => (run::KIND, None),
        };
        let is_it = |activity: &&Activity| &*activity.kind == about.0 && about.1.is_none_or(|id| *activity.id == *id);
        shown = view.activities().iter().find(is_it).cloned();
        if event.action.is_some() && shown.is_none() {
            return Ok(None);
        }
        title = match (&event.action, &shown) {
            (Some(_), Some(asked)) => Some(action::title(&asked.content)),
            _ => tail.summary.preview.title.as_deref().map(str::to_owned),
        };
    }
    let named = session.or(run).unwrap_or_default();
    let title: String = title.unwrap_or_else(|| named.to_owned()).chars().take(TITLE_CHARS_MAX).collect();
    data.insert("title".into(), title.into());
    data.insert("audience".into(), audience.as_str().into());
    data.insert("url".into(), address(notifier, [("session", session), ("run", run), ("action", action_id)], audience).into());
    Ok(Some((data, shown)))
}

/// The address of the page that shows a session, a run or an action.
fn address(notifier: &Notifier, ids: [(&str, Option<&str>); 3], audience: Audience) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(ids.into_iter().filter_map(|(member, id)| Some((member, id?))));
    query.append_pair("audience", audience.as_str());
    notifier.page_address(&query.finish())
}

/// The body of a message to a webhook. `None`: there is nothing to tell.
///
/// # Errors
/// [`StoreError`] from the store.
pub(super) async fn body(
    reads: &Reads,
    event: &StatusEvent,
    webhook: &Webhook,
    notifier: &Notifier,
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some((mut data, shown)) = data(reads, event, webhook.settings.audience, notifier).await? else { return Ok(None) };
    let thin = data.clone();
    if let (Some(Include::Activity), Some(activity)) = (webhook.settings.include, shown) {
        data.insert("activity".into(), serde_json::to_value(&activity).expect("an activity is plain data"));
    }
    let whole = envelope(event.kind.as_str(), event.at, data);
    if whole.len() <= BODY_BYTES_MAX {
        return Ok(Some(whole));
    }
    let mut thin = thin;
    thin.insert("activityOmitted".into(), true.into());
    Ok(Some(envelope(event.kind.as_str(), event.at, thin)))
}

/// The id and the body of a message of no event.
pub(super) fn test(notifier: &Notifier, webhook: &Webhook) -> (String, Vec<u8>) {
    let (environment, audience) = (notifier.environment, webhook.settings.audience);
    let id = format!("msg_test_{}", Uuid::from_u128((environment.random)()).simple());
    let mut data = Map::new();
    data.insert("title".into(), "A test of this webhook".into());
    data.insert("audience".into(), audience.as_str().into());
    data.insert("url".into(), address(notifier, [("session", None); 3], audience).into());
    data.insert("test".into(), true.into());
    (id, envelope("test", (environment.now)().as_millisecond(), data))
}

/// The message to a device. `None`: there is nothing to tell, or what waited was decided meanwhile.
///
/// # Errors
/// [`StoreError`] from the store.
pub(super) async fn push(
    reads: &Reads,
    event: &StatusEvent,
    audience: Audience,
    notifier: &Notifier,
) -> Result<Option<PushMessage>, StoreError> {
    if event.kind == EventKind::RunWaiting && !waits(reads, event, audience).await? {
        return Ok(None);
    }
    let Some((data, _)) = data(reads, event, audience, notifier).await? else { return Ok(None) };
    let about = event.action.as_ref().map_or_else(|| event.log.to_string(), |action| format!("{}, action {action}", event.log));
    let (title, address) = (data["title"].clone(), data["url"].clone());
    let agent = event.agent.as_ref().map_or("An agent", AgentId::as_str);
    let body = match event.kind {
        EventKind::RunWaiting if event.step.is_some() => format!("{agent} still waits for you"),
        EventKind::RunWaiting => format!("{agent} waits for you"),
        EventKind::RunCompleted => format!("{agent} is done"),
        EventKind::RunFailed => format!("{agent} has failed"),
        EventKind::RunCancelled => format!("{agent} was stopped"),
        EventKind::ControlExpired => format!("{agent} did not take your answer in time"),
        EventKind::RunResumed | EventKind::SessionCreated | EventKind::LogHead => return Ok(None),
    };
    let notification = |navigate: Value| json!({ "title": title, "body": body, "navigate": navigate, "tag": about });
    let whole = json!({
        "web_push": DECLARATIVE_PUSH,
        "notification": notification(address.clone()),
        "type": event.kind.as_str(),
        "timestamp": timestamp(event.at),
        "data": data,
    });
    // Long ids fill a message. The notification alone still opens the page at what it is about.
    let thin = json!({ "web_push": DECLARATIVE_PUSH, "notification": notification(address) });
    let thinnest = json!({ "web_push": DECLARATIVE_PUSH, "notification": notification(notifier.page_address("").into()) });
    let texts = [whole, thin, thinnest].into_iter().map(|text| text.to_string().into_bytes());
    let Some(text) = texts.into_iter().find(|text| text.len() <= push::PUSH_TEXT_BYTES_MAX) else { return Ok(None) };
    let urgency = if event.kind == EventKind::RunWaiting { Urgency::High } else { Urgency::Normal };
    Ok(Some(PushMessage { text, about, urgency }))
}

/// The message to a push address of a task: its status now. `None`: there is nothing to tell.
///
/// # Errors
/// [`StoreError`] from the store.
pub(super) async fn task(reads: &Reads, event: &StatusEvent, push: &TaskPush) -> Result<Option<Vec<u8>>, StoreError> {
    if event.kind == EventKind::RunWaiting && !waits(reads, event, push.audience).await? {
        return Ok(None);
    }
    if reads.logs.log(&event.log).await?.tail().epoch != Some(event.epoch) {
        return Ok(None);
    }
    let Some(view) = reads.feed.activities(&event.log, push.audience, None).await? else { return Ok(None) };
    let shown: Vec<_> = view.activities().iter().map(|activity| ActivityView::of(&push.task, activity)).collect();
    let context = event.session.as_ref().map_or(push.task.as_str(), SessionId::as_str).to_owned();
    let options = A2aOptions { version: push.version, context, task: push.task.to_string(), request: Value::Null };
    Ok(Some(options.status(&shown).to_string().into_bytes()))
}

/// Whether what an event says to wait still waits for this audience.
async fn waits(reads: &Reads, event: &StatusEvent, audience: Audience) -> Result<bool, StoreError> {
    let Some(view) = reads.feed.activities(&event.log, audience, None).await? else { return Ok(false) };
    let (kind, id, waiting) = match &event.action {
        Some(action) => (ACTION_KIND, Some(action.as_str()), "pending"),
        None => (run::KIND, None, "waiting"),
    };
    let is_it = |activity: &&Activity| &*activity.kind == kind && id.is_none_or(|id| *activity.id == *id);
    let found = view.activities().iter().find(is_it);
    Ok(found.is_some_and(|activity| activity.content.get("status").and_then(Value::as_str) == Some(waiting)))
}

fn timestamp(at: i64) -> String {
    format!("{:.3}", jiff::Timestamp::from_millisecond(at).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}

fn envelope(kind: &str, at: i64, data: Map<String, Value>) -> Vec<u8> {
    json!({ "type": kind, "timestamp": timestamp(at), "data": data }).to_string().into_bytes()
}
