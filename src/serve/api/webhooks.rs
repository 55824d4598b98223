//! Webhooks: where they go, what became of each message, and the messages that are sent again.

use crate::audit::{AuditEntry, Deed};
use crate::log::LogId;
use crate::log::server_state::EntryChange;
use crate::model::decided_by::Via;
use crate::notify::WEBHOOKS_MAX;
use crate::notify::delivery::{AttemptOutcome, DeliveryState, Notification};
use crate::notify::event::{EventKind, StatusEvent};
use crate::notify::settings::SettingsError;
use crate::notify::webhook::{Disabled, Include, Secret, Webhook, WebhookRecord, WebhookSettings};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, forbidden};
use crate::serve::http::body::read_object;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::Query;
use crate::serve::http::response::no_store_json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, Uri, header};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// A webhook hears of every session, so only a token for all of them may make or read one.
fn check_reach(authorization: &Authorization) -> Result<(), Problem> {
    match authorization.is_unrestricted() {
        true => Ok(()),
        false => Err(forbidden(
            "sessions:*",
            "The token does not cover all sessions. Webhooks and the audit concern all of them.".into(),
        )),
    }
}

/// `GET /v1/webhooks`: all webhooks, without their secrets.
pub async fn list(State(app): State<Arc<App>>, authorization: Authorization) -> Result<Response, Problem> {
    check_reach(&authorization)?;
    let webhooks: Vec<Value> = app.notifier.webhooks(&app.logs).iter().map(|webhook| shown(&app, webhook)).collect();
    Ok(no_store_json(json!({ "webhooks": webhooks, "nextCursor": null })))
}

/// `POST /v1/webhooks`: makes a webhook. The answer alone has its secrets.
pub async fn post(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    check_reach(&authorization)?;
    let mut body = read_object(&app, request, BODY_BYTES_MAX).await?;
    if body.contains_key("allow-private") {
        let what = "only the configuration file can allow private addresses".into();
        return Err(bad_setting(&SettingsError { member: "allow-private", what }));
    }
    if body.get("secrets").is_none_or(|secrets| secrets.as_array().is_some_and(Vec::is_empty)) {
        body.insert("secrets".into(), json!([Secret::generate(app.environment).reveal()]));
    }
    let settings: WebhookSettings = serde_json::from_value(body.into()).map_err(|error| {
        let member = if error.to_string().contains("unknown field") { "settings" } else { "body" };
        bad_setting(&SettingsError { member, what: error.to_string() })
    })?;
    let id = format!("wh_{}", Uuid::from_u128((app.environment.random)()).simple());
    let webhook = Webhook::new(&id, settings.clone(), false).map_err(|error| bad_setting(&error))?;
    if app.notifier.webhooks(&app.logs).len() >= WEBHOOKS_MAX {
        let detail = format!("The server has {WEBHOOKS_MAX} webhooks, the limit. Remove one.");
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_webhooks", detail).with("limit", WEBHOOKS_MAX));
    }
    let created_at = (app.environment.now)().as_millisecond();
    let record = WebhookRecord { settings, created_at };
    change(&app, &authorization, Deed::WebhookCreated, &id, vec![EntryChange::set(&id, &record)]).await?;
    let mut made = shown(&app, &webhook);
    made["secrets"] = webhook.settings.secrets.iter().map(Secret::reveal).collect();
    let location = format!("/v1/webhooks/{id}");
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], no_store_json(made)).into_response())
}

/// `DELETE /v1/webhooks/{id}`: removes a webhook, and what waits for it.
pub async fn delete(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let webhook = named(&app, &authorization, &uri)?;
    if webhook.is_configured {
        let detail = format!("Webhook {} comes from the configuration file. Remove it there.", webhook.id);
        return Err(Problem::new(StatusCode::CONFLICT, "webhook_configured", detail));
    }
    let changes = vec![EntryChange::remove::<WebhookRecord>(&webhook.id), EntryChange::remove::<Disabled>(&webhook.id)];
    change(&app, &authorization, Deed::WebhookRemoved, &webhook.id, changes).await?;
    Ok((StatusCode::NO_CONTENT, [(header::CACHE_CONTROL, "no-store")]).into_response())
}

/// `POST /v1/webhooks/{id}/test`: sends a message of no event now. If the receiver takes it, a webhook that answered 410
/// is enabled again.
pub async fn test(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let webhook = named(&app, &authorization, &uri)?;
    let outcome = app.notifier.test(&webhook).await;
    if outcome.error.is_none() && app.logs.server_state().get::<Disabled>(&webhook.id).is_some() {
        app.ingest.append_to_server(&[], &[EntryChange::remove::<Disabled>(&webhook.id)]).await?;
    }
    Ok(no_store_json(json!({ "delivered": outcome.error.is_none(), "last": outcome_json(&outcome) })))
}

/// `POST /v1/webhooks/{id}/redeliver {"deliveryId"}`: tries a closed delivery again.
pub async fn redeliver(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    uri: Uri,
    request: Request,
) -> Result<Response, Problem> {
    let webhook = named(&app, &authorization, &uri)?;
    let body = read_object(&app, request, BODY_BYTES_MAX).await?;
    let wanted = body.get("deliveryId").and_then(Value::as_str).ok_or_else(|| {
        let what = "it must be the id of a delivery, as the list of deliveries names it".into();
        bad_setting(&SettingsError { member: "deliveryId", what })
    })?;
    let found = app.notifier.deliveries(&app.logs, &webhook.id).into_iter().find(|(_, delivery)| delivery.id == wanted);
    let Some((key, mut delivery)) = found else {
        let detail =
            format!("Webhook {} remembers no delivery {wanted:?}. GET its deliveries for those that it does.", webhook.id);
        return Err(Problem::not_found("no_such_delivery", detail));
    };
    delivery.reopen((app.environment.now)().as_millisecond());
    app.ingest.append_to_server(&[], &[EntryChange::set(&key, &delivery)]).await?;
    app.notifier.delivery_changed(&key);
    Ok((StatusCode::ACCEPTED, no_store_json(delivery_json(&delivery))).into_response())
}

/// `GET /v1/webhooks/{id}/deliveries`: the deliveries that wait, and the last that do not, newest first.
pub async fn deliveries(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let (limit, before) = (query.page_size()?, query.get("cursor"));
    let webhook = named(&app, &authorization, &uri)?;
    let all = app.notifier.deliveries(&app.logs, &webhook.id);
    let older = all.iter().filter(|(key, _)| before.is_none_or(|before| place(key) < before));
    let page: Vec<_> = older.take(limit + 1).collect();
    let next = page.get(limit).and(page.get(limit - 1)).map(|(key, _)| place(key));
    let deliveries: Vec<Value> = page.iter().take(limit).map(|(_, delivery)| delivery_json(delivery)).collect();
    Ok(no_store_json(json!({ "deliveries": deliveries, "nextCursor": next })))
}

/// The place of a delivery in the list of its webhook.
fn place(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(_, place)| place)
}

fn named(app: &App, authorization: &Authorization, uri: &Uri) -> Result<Arc<Webhook>, Problem> {
    check_reach(authorization)?;
    let id = percent_decode_str(uri.path().split('/').nth(3).unwrap_or_default()).decode_utf8_lossy();
    app.notifier.webhook(&app.logs, &id).ok_or_else(|| {
        Problem::not_found("no_such_webhook", format!("No webhook {id:?} exists. GET /v1/webhooks lists those that do."))
    })
}

/// Changes entries of the server's state, with the entry of the audit in the same commit.
async fn change(
    app: &App,
    authorization: &Authorization,
    what: Deed,
    id: &str,
    entries: Vec<EntryChange>,
) -> Result<(), Problem> {
    let entry = AuditEntry::new(what, authorization.decider(Via::Rest), (app.environment.now)()).with_id(id);
    Ok(app.ingest.append_to_server(&[entry.draft()], &entries).await?)
}

pub(super) fn bad_setting(error: &SettingsError) -> Problem {
    let SettingsError { member, what } = error;
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_member", format!("{member}: {what}.")).with("member", *member)
}

fn shown(app: &App, webhook: &Webhook) -> Value {
    let WebhookSettings { url, events, audience, sessions, agents, include, .. } = &webhook.settings;
    let disabled = app.logs.server_state().get::<Disabled>(&webhook.id);
    let mut shown = json!({
        "id": webhook.id,
        "url": url,
        "events": events,
        "audience": audience,
        "sessions": sessions,
        "agents": agents,
        "include": include.map(|Include::Activity| "activity"),
        "configured": webhook.is_configured,
        "disabledAt": disabled.map(|disabled| time(disabled.at)),
    });
    if let Value::Object(members) = &mut shown {
        members.retain(|_, value| !value.is_null());
    }
    shown
}

fn delivery_json(delivery: &Notification) -> Value {
    let Notification { id, event, state, attempts, next_at, last } = delivery;
    let StatusEvent { kind, log, session, action, .. } = event;
    let run = match log {
        LogId::Run(run) if *kind != EventKind::SessionCreated => Some(run),
        _ => None,
    };
    let mut shown = json!({
        "id": id,
        "type": kind,
        "status": state,
        "attempts": attempts,
        "nextAttemptAt": (*state == DeliveryState::Open).then(|| time(*next_at)),
        "createdAt": time(event.at),
        "last": last.as_ref().map(outcome_json),
        "sessionId": session,
        "runId": run,
        "actionId": action,
    });
    if let Value::Object(members) = &mut shown {
        members.retain(|_, value| !value.is_null());
    }
    shown
}

fn outcome_json(outcome: &AttemptOutcome) -> Value {
    let mut shown = json!({ "at": time(outcome.at) });
    if let Some(status) = outcome.status {
        shown["status"] = status.into();
    }
    if let Some(error) = outcome.error {
        shown["error"] = serde_json::to_value(error).unwrap_or_default();
    }
    shown
}

pub(super) fn time(millis: i64) -> String {
    jiff::Timestamp::from_millisecond(millis).map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}
