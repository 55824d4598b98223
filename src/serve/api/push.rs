//! Push subscriptions over HTTP: the devices on which a person wants to hear of runs that wait.

use super::webhooks::{bad_setting, time};
use crate::log::server_state::EntryChange;
use crate::notify::settings::SettingsError;
use crate::notify::subscription::{PushSubscription, SUBSCRIPTIONS_MAX, SUBSCRIPTIONS_PER_PERSON_MAX, SubscriptionWanted};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, forbidden};
use crate::serve::http::body::read_object;
use crate::serve::http::problem::Problem;
use crate::serve::http::response::no_store_json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// How long a request waits for the key, which the first leader makes when it starts.
const KEY_TIME_MAX: Duration = Duration::from_secs(5);
/// Subscriptions past their end that one new one removes.
const SWEPT_MAX: usize = 256;
/// A renewal without a change is kept at most so often, in milliseconds.
const RENEWAL_INTERVAL_MS: i64 = 24 * 3_600_000;

/// The `sub` whose subscriptions a client has. `None`: those of a server without authentication.
fn person(authorization: &Authorization) -> Result<Option<&str>, Problem> {
    if authorization.link().is_some() {
        let detail = "A share link is no person. Subscribe with a token of your own.";
        return Err(forbidden("token", detail.into()));
    }
    Ok(authorization.principal().grant().map(|grant| &*grant.subject))
}

/// `GET /v1/push`: the key that browsers subscribe with, and the person's subscriptions.
pub async fn get(State(app): State<Arc<App>>, authorization: Authorization) -> Result<Response, Problem> {
    let person = person(&authorization)?;
    let key = tokio::time::timeout(KEY_TIME_MAX, app.notifier.vapid_public_key(&app.logs)).await.map_err(|_| {
        let detail = "The server has no key for push services yet: its cluster has no leader.";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_leader", detail).with_retry_after(1)
    })?;
    let subscriptions: Vec<Value> = of_person(&app, person).iter().map(|(id, known)| shown(id, known)).collect();
    Ok(no_store_json(json!({ "publicKey": key, "subscriptions": subscriptions })))
}

/// The subscriptions of a person that have not ended.
fn of_person(app: &App, person: Option<&str>) -> Vec<(String, PushSubscription)> {
    let now = (app.environment.now)().as_millisecond();
    let mut known = app.logs.server_state().all::<PushSubscription>("");
    known.retain(|(_, subscription)| subscription.is_of(person) && subscription.until() > now);
    known
}

/// `PUT /v1/push`: subscribes a device, or renews its subscription.
pub async fn put(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    let person = person(&authorization)?;
    app.disk.check_space()?;
    let body = read_object(&app, request, BODY_BYTES_MAX).await?;
    let wanted: SubscriptionWanted = serde_json::from_value(body.into())
        .map_err(|error| bad_setting(&SettingsError { member: "body", what: error.to_string() }))?;
    let _held = app.notifier.subscribing.lock().await;
    let (state, now) = (app.logs.server_state(), (app.environment.now)().as_millisecond());
    let id = PushSubscription::id_of(&wanted.endpoint);
    // The browser's next person takes its subscription over, with nothing of the last one's wishes.
    let known = state.get::<PushSubscription>(&id).filter(|known| known.is_of(person));
    let holder = authorization.principal().grant().map(|grant| grant.holder());
    let renewed = PushSubscription::renewed(wanted, known.clone(), holder, app.notifier.services(), now);
    let renewed = renewed.map_err(|error| bad_setting(&error))?;
    if let Some(known) = &known
        && now - known.renewed_at < RENEWAL_INTERVAL_MS
        && *known == (PushSubscription { renewed_at: known.renewed_at, ..renewed.clone() })
    {
        return Ok(no_store_json(shown(&id, known)));
    }
    let mut entries = vec![EntryChange::set(&id, &renewed)];
    if known.is_none() {
        entries.extend(make_room(&app, person, &id, now)?);
    }
    app.ingest.append_to_server(&[], &entries).await?;
    let status = if known.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, no_store_json(shown(&id, &renewed))).into_response())
}

/// Checks that one more subscription fits, and removes some that have ended.
fn make_room(app: &App, person: Option<&str>, id: &str, now: i64) -> Result<Vec<EntryChange>, Problem> {
    let all = app.logs.server_state().all::<PushSubscription>("");
    let (open, ended): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, known)| known.until() > now);
    let others = || open.iter().filter(|(other, _)| other != id);
    let own = others().filter(|(_, known)| known.is_of(person)).count();
    let limits = [(own, SUBSCRIPTIONS_PER_PERSON_MAX, "of this person"), (others().count(), SUBSCRIPTIONS_MAX, "of this server")];
    if let Some((_, limit, of)) = limits.into_iter().find(|(count, limit, _)| count >= limit) {
        let detail = format!("{limit} devices {of} are subscribed, the limit. Unsubscribe one.");
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_devices", detail).with("limit", limit));
    }
    let ended = ended.iter().filter(|(other, _)| other != id).take(SWEPT_MAX);
    Ok(ended.map(|(id, _)| EntryChange::remove::<PushSubscription>(id)).collect())
}

/// `DELETE /v1/push {"endpoint"}`: ends the subscription of a device.
pub async fn delete(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    let person = person(&authorization)?;
    let body = read_object(&app, request, BODY_BYTES_MAX).await?;
    let endpoint = body.get("endpoint").and_then(Value::as_str).ok_or_else(|| {
        bad_setting(&SettingsError { member: "endpoint", what: "it must be the address of a subscription".into() })
    })?;
    let id = PushSubscription::id_of(endpoint);
    let _held = app.notifier.subscribing.lock().await;
    if !app.logs.server_state().get::<PushSubscription>(&id).is_some_and(|known| known.is_of(person)) {
        let detail = "The person has no subscription with this address. GET /v1/push lists those that exist.";
        return Err(Problem::not_found("no_such_subscription", detail));
    }
    app.ingest.append_to_server(&[], &[EntryChange::remove::<PushSubscription>(&id)]).await?;
    Ok((StatusCode::NO_CONTENT, [(header::CACHE_CONTROL, "no-store")]).into_response())
}

/// A subscription without its address and keys, which are secrets of the device.
fn shown(id: &str, subscription: &PushSubscription) -> Value {
    let PushSubscription { endpoint, audience, events, muted, created_at, renewed_at, .. } = subscription;
    let host = reqwest::Url::parse(endpoint).ok().and_then(|url| url.host_str().map(str::to_owned));
    json!({
        "id": id,
        "host": host,
        "audience": audience,
        "events": events,
        "muted": muted,
        "createdAt": time(*created_at),
        "renewedAt": time(*renewed_at),
        "until": time(subscription.until()),
    })
}
