//! Word of what happens, outside the page: webhooks, and what a person's devices show.
//!
//! ```text
//!   log ─▶ follower ─▶ events ─▶ deliveries ─▶ attempts ─▶ receivers
//!            │                     ▲   │
//!            └── one commit: position, deliveries, audit ── the server's own log
//! ```
//!
//! The follower reads the commits that changed how a run stands, in their order, on the node that leads. What it makes of
//! them is saved in one commit with the position that it has read up to. So a restart or another leader goes on where the
//! last one stopped: each event is there once. An attempt may be repeated, and its message then has the same id.

pub mod address;
pub mod delivery;
mod destination;
mod engine;
pub mod event;
pub(crate) mod follower;
mod message;
pub mod push;
pub mod settings;
pub mod subscription;
pub mod task_push;
pub mod webhook;

pub use engine::Engine;

use crate::auth::Authenticator;
use crate::environment::Environment;
use crate::feed::Feed;
use crate::log::commit::Logs;
use crate::meter::{Counter, Gauge, LabelCounter};
use crate::record::signing::SigningKey;
use delivery::{AttemptOutcome, FailureClass, Notification};
use destination::MessageDestination;
use parking_lot::Mutex;
use push::{PushRequest, VAPID_KEY_ID, VapidKey};
use reqwest::{Client, RequestBuilder, Url};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use subscription::{PushServices, PushSubscription};
use task_push::TaskPush;
use tokio::sync::{Notify, mpsc};
use webhook::{Webhook, WebhookRecord};

/// Webhooks of one server.
pub const WEBHOOKS_MAX: usize = 64;

/// What the engine reads to make messages.
#[derive(Clone)]
pub struct Reads {
    pub logs: Arc<Logs>,
    pub feed: Arc<Feed>,
    /// What signs the heads of logs.
    pub signing_key: Arc<SigningKey>,
    /// What knows whose rights have ended.
    pub authenticator: Option<Arc<Authenticator>>,
}

/// The destinations, and what goes to them.
pub struct Notifier {
    environment: Environment,
    /// The address of the page, for links in messages.
    public_url: Option<Url>,
    /// The webhooks of the configuration file.
    configured: Vec<Webhook>,
    /// The push services that devices may use.
    services: PushServices,
    /// Held while push subscriptions are counted and one is added.
    pub(crate) subscribing: tokio::sync::Mutex<()>,
    /// The clients for public addresses and for all.
    clients: [OnceLock<Result<Client, String>>; 2],
    /// Deliveries that a request has changed.
    changed: (mpsc::UnboundedSender<String>, Mutex<Option<mpsc::UnboundedReceiver<String>>>),
    wake: Notify,
    /// Deliveries that wait, on the node that leads.
    pub waiting: Gauge,
    /// Attempts by their result.
    pub attempts: LabelCounter,
    /// Events that found [`delivery::OPEN_MAX`] others waiting.
    pub dropped: Counter,
}

/// What a receiver answered.
pub(super) struct Answer {
    pub outcome: AttemptOutcome,
    pub retry_after: Option<Duration>,
}

impl Notifier {
    /// Without destinations.
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self {
            environment,
            public_url: None,
            configured: Vec::new(),
            services: PushServices::default(),
            subscribing: tokio::sync::Mutex::default(),
            clients: Default::default(),
            changed: (sender, Mutex::new(Some(receiver))),
            wake: Notify::new(),
            waiting: Gauge::default(),
            attempts: LabelCounter::default(),
            dropped: Counter::default(),
        }
    }

    /// With these webhooks, these push services, and the address of the page.
    #[must_use]
    pub fn with(mut self, configured: Vec<Webhook>, services: PushServices, public_url: Option<Url>) -> Self {
        (self.configured, self.services, self.public_url) = (configured, services, public_url);
        self
    }

    /// The push services that devices may use.
    #[must_use]
    pub const fn services(&self) -> &PushServices {
        &self.services
    }

    /// The address of the page with this fragment, relative to the server without `--public-url`.
    #[must_use]
    pub fn page_address(&self, fragment: &str) -> String {
        format!("{}#{fragment}", self.public_url.as_ref().map_or("/", Url::as_str))
    }

    /// All webhooks: those of the configuration file first, then those that requests made.
    #[must_use]
    pub fn webhooks(&self, logs: &Logs) -> Vec<Arc<Webhook>> {
        let made = logs.server_state().all::<WebhookRecord>("").into_iter().filter_map(|(id, record)| {
            let made = Webhook::new(&id, record.settings, false);
            made.inspect_err(|error| tracing::error!(%error, id, "a stored webhook is not used")).ok()
        });
        self.configured.iter().cloned().chain(made).map(Arc::new).collect()
    }

    /// The webhook with this id.
    #[must_use]
    pub fn webhook(&self, logs: &Logs, id: &str) -> Option<Arc<Webhook>> {
        self.webhooks(logs).into_iter().find(|webhook| *webhook.id == *id)
    }

    /// The deliveries of a destination, the newest first, with their keys.
    #[must_use]
    pub fn deliveries(&self, logs: &Logs, destination: &str) -> Vec<(String, Notification)> {
        let mut found = logs.server_state().all::<Notification>(&format!("{destination}/"));
        found.reverse();
        found
    }

    /// All destinations. A subscription past its end is none.
    fn destinations(&self, logs: &Logs) -> Vec<MessageDestination> {
        let now = (self.environment.now)().as_millisecond();
        let devices = logs.server_state().all::<PushSubscription>("").into_iter().filter(|(_, known)| known.until() > now);
        let devices = devices.map(|(id, subscription)| MessageDestination::Device(id.into(), Arc::new(subscription)));
        let tasks = logs.server_state().all::<TaskPush>("").into_iter().filter(|(_, known)| known.until() > now);
        let tasks = tasks.map(|(id, push)| MessageDestination::Task(id.into(), Arc::new(push)));
        self.webhooks(logs).into_iter().map(MessageDestination::Webhook).chain(devices).chain(tasks).collect()
    }

    /// The key that browsers subscribe with, as base64url, once the first node that leads has made it.
    pub async fn vapid_public_key(&self, logs: &Logs) -> String {
        let (state, mut changes) = (logs.server_state(), logs.server_state().watch());
        loop {
            if let Some(key) = state.get::<VapidKey>(VAPID_KEY_ID).and_then(|key| key.public_key()) {
                return key;
            }
            // The sender lives as long as the logs.
            let _ = changes.changed().await;
        }
    }

    /// Tells the engine that a request has changed this delivery.
    pub fn delivery_changed(&self, key: &str) {
        // It fails once the engine has ended, which ends the server.
        let _ = self.changed.0.send(key.to_owned());
        self.wake.notify_one();
    }

    /// Sends one message to a webhook, and says what came of it.
    async fn post(&self, webhook: &Webhook, id: &str, body: Vec<u8>) -> Answer {
        let seconds = (self.environment.now)().as_second();
        let signatures = webhook.signatures(id, seconds, &body);
        let sent = self.send(webhook.settings.allow_private, |client| {
            let request = client.post(webhook.url.clone()).header("content-type", "application/json");
            let request = request.header("webhook-id", id).header("webhook-timestamp", seconds.to_string());
            request.header("webhook-signature", signatures).body(body)
        });
        sent.await
    }

    /// Sends one message to a push service, and says what came of it.
    async fn push(&self, PushRequest { endpoint, headers, body }: PushRequest) -> Answer {
        let post = |client: &Client| client.post(endpoint.url).headers(headers).body(body);
        let mut answer = self.send(endpoint.allow_private, post).await;
        // Push services also answer 404 for a subscription that has ended.
        if answer.outcome.status == Some(404) {
            answer.outcome.error = Some(FailureClass::Gone);
        }
        answer
    }

    async fn send(&self, allow_private: bool, request: impl FnOnce(&Client) -> RequestBuilder) -> Answer {
        let client = self.clients[usize::from(allow_private)].get_or_init(|| address::client(allow_private));
        let answered = match client {
            Ok(client) => request(client).send().await.map_err(|error| class_of(&error)),
            Err(error) => {
                tracing::error!(error, "no client can be built for messages");
                Err(FailureClass::Protocol)
            }
        };
        let at = (self.environment.now)().as_millisecond();
        let Ok(response) = answered else {
            return Answer { outcome: AttemptOutcome { at, status: None, error: answered.err() }, retry_after: None };
        };
        // Its body is never read: it may be as long as it likes.
        let status = response.status();
        let error = match status.as_u16() {
            200..=299 => None,
            300..=399 => Some(FailureClass::Redirect),
            410 => Some(FailureClass::Gone),
            _ => Some(FailureClass::Status),
        };
        let retry_after =
            response.headers().get(http::header::RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, at));
        Answer { outcome: AttemptOutcome { at, status: Some(status.as_u16()), error }, retry_after }
    }

    /// Sends a message of no event to a webhook.
    pub async fn test(&self, webhook: &Webhook) -> AttemptOutcome {
        let (id, body) = message::test(self, webhook);
        self.post(webhook, &id, body).await.outcome
    }
}

/// The pause of a header `retry-after`: seconds, or a date.
fn retry_after(value: &str, now_ms: i64) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    until.checked_sub(Duration::from_millis(u64::try_from(now_ms).ok()?))
}

fn class_of(error: &reqwest::Error) -> FailureClass {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if inner.is::<address::AddressError>() {
            return FailureClass::PrivateAddress;
        }
        cause = inner.source();
    }
    match error {
        error if error.is_timeout() => FailureClass::Timeout,
        error if error.is_connect() => FailureClass::Connect,
        _ => FailureClass::Protocol,
    }
}
