//! The engine: turns events into deliveries, and attempts them, on the node that leads.
//!
//! One round: take the results of attempts, read on in the log, save both in one commit, begin what is due. So an attempt
//! begins only for a delivery that is durable, and a result that is lost only repeats an attempt.

use super::delivery::{self, CLOSED_MAX, CONCURRENT_MAX, DeliveryState, FailureClass, Notification, OPEN_MAX};
use super::destination::MessageDestination;
use super::event::{EventKind, SeenEvent, StatusEvent};
use super::follower::{Follower, FollowerPosition, POSITION_ID};
use super::push::{self, VAPID_KEY_ID, VapidKey};
use super::subscription::PushSubscription;
use super::task_push::TaskPush;
use super::webhook::{Disabled, WebhookRecord};
use super::{Answer, Notifier, Reads, message};
use crate::audit::{AuditEntry, Deed};
use crate::auth::holder::TokenHolder;
use crate::ingest::Ingest;
use crate::log::commit::Logs;
use crate::log::server_state::{EntryChange, StateRecord};
use crate::log::{LogId, StoreError};
use crate::model::OwnerId;
use crate::model::decided_by::{Decider, Via};
use data_encoding::BASE64URL_NOPAD;
use reqwest::Client;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Maximum time between two rounds: deliveries become due by time.
const ROUND_INTERVAL: Duration = Duration::from_millis(250);
/// The position is saved once the follower has read so many commits without an event.
const SAVE_POSITION_EVERY: u64 = 65_536;

/// The least time between two heads of a log whose run goes on, in milliseconds.
const HEAD_INTERVAL_MS: i64 = 3_600_000;
/// Logs of which the engine knows when their heads were signed. Beyond, it forgets the older ones.
const HEADS_MAX: usize = 16_384;

/// The deliveries of one destination.
#[derive(Default)]
struct Queue {
    /// In the order of events.
    open: BTreeMap<String, Notification>,
    in_flight: HashSet<String>,
    /// The keys of closed deliveries, the oldest first.
    closed: VecDeque<String>,
}

/// What became of an attempt.
enum Attempt {
    Answered(Answer),
    /// There was nothing to tell.
    Needless,
    /// The rights of the destination's person have ended.
    Ended,
}

/// The result of an attempt.
struct Attempted {
    destination: MessageDestination,
    key: String,
    result: Result<Attempt, StoreError>,
}

/// The key that signs since the last entry of the audit about keys.
#[derive(Serialize, Deserialize)]
struct SignedBy {
    kid: Box<str>,
}

impl StateRecord for SignedBy {
    const TABLE: &'static str = "signed-by";
}

/// The id of its only entry.
const SIGNED_BY_ID: &str = "1";

/// What a round saves in one commit.
#[derive(Default)]
struct Changes {
    audited: Vec<AuditEntry>,
    entries: Vec<EntryChange>,
}

impl Changes {
    fn entry(&mut self, change: EntryChange) {
        self.entries.push(change);
    }

    /// Saves the changes.
    async fn save(&self, ingest: &Ingest) -> Result<(), StoreError> {
        let drafts: Vec<_> = self.audited.iter().map(AuditEntry::draft).collect();
        ingest.append_to_server(&drafts, &self.entries).await
    }
}

/// The engine of one server.
pub struct Engine {
    notifier: Arc<Notifier>,
    logs: Arc<Logs>,
    reads: Reads,
    ingest: Arc<Ingest>,
    changed: mpsc::UnboundedReceiver<String>,
}

impl Engine {
    /// The engine of this notifier. A notifier has one.
    ///
    /// # Panics
    /// For a second engine.
    #[must_use]
    pub fn new(notifier: Arc<Notifier>, reads: Reads, ingest: Arc<Ingest>) -> Self {
        let changed = notifier.changed.1.lock().take().expect("a notifier has one engine");
        Self { notifier, logs: reads.logs.clone(), reads, ingest, changed }
    }

    /// Works while this node leads, until the task is aborted.
    pub async fn run(mut self) {
        let mut leads = self.logs.leadership().watch();
        loop {
            // The sender lives as long as the logs.
            let _ = leads.wait_for(|leads| *leads).await;
            match self.lead().await {
                Ok(()) | Err(StoreError::NotLeader) => {}
                Err(error) => {
                    // A failure of the store stops the server elsewhere.
                    tracing::warn!(%error, "cannot send messages; trying again");
                    tokio::time::sleep(ROUND_INTERVAL).await;
                }
            }
        }
    }

    async fn lead(&mut self) -> Result<(), StoreError> {
        let mut work = Work::load(self).await?;
        let (mut commits, mut state) = (self.logs.status_changes().watch(), self.logs.server_state().watch());
        while self.logs.leadership().leads() {
            let has_more = work.round(self).await?;
            if has_more {
                continue;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(ROUND_INTERVAL) => {}
                () = self.notifier.wake.notified() => {}
                _ = commits.changed() => {}
                _ = state.changed() => {}
                Some(attempted) = work.attempts.join_next() => work.results.push(attempted.expect("an attempt panicked")),
            }
        }
        Ok(())
    }
}

/// The state of the engine while it leads.
struct Work {
    follower: Follower,
    /// The position that is saved.
    saved: u64,
    destinations: Vec<MessageDestination>,
    disabled: HashSet<String>,
    /// The versions of the tables that the destinations are from.
    versions: Option<[u64; 4]>,
    queues: HashMap<Box<str>, Queue>,
    attempts: JoinSet<Attempted>,
    results: Vec<Attempted>,
    /// The time of the event at which the head of a log was due last, or of its first event since this node leads.
    heads: HashMap<LogId, i64>,
}

impl Work {
    async fn load(engine: &Engine) -> Result<Self, StoreError> {
        let Engine { logs, reads, ingest, .. } = engine;
        let state = logs.server_state();
        let mut first = Changes::default();
        let position = match state.get::<FollowerPosition>(POSITION_ID) {
            Some(FollowerPosition { position }) => position,
            // No destination gets what was before the first start with an engine.
            None => {
                let position = logs.position();
                first.entry(EntryChange::set(POSITION_ID, &FollowerPosition { position }));
                position
            }
        };
        if state.get::<VapidKey>(VAPID_KEY_ID).is_none() {
            first.entry(EntryChange::set(VAPID_KEY_ID, &VapidKey::generate()));
        }
        let kid = reads.signing_key.kid();
        if state.get::<SignedBy>(SIGNED_BY_ID).is_none_or(|known| &*known.kid != kid) {
            first.entry(EntryChange::set(SIGNED_BY_ID, &SignedBy { kid: kid.into() }));
            let at = (engine.notifier.environment.now)();
            first.audited.push(AuditEntry::new(Deed::KeyChanged, Decider::anonymous(Via::Cli), at).with_id(kid));
        }
        if !first.entries.is_empty() {
            first.save(ingest).await?;
        }
        let mut queues = HashMap::<Box<str>, Queue>::new();
        for (key, delivery) in state.all::<Notification>("") {
            let Some((destination, _)) = key.rsplit_once('/') else { continue };
            let queue = queues.entry(destination.into()).or_default();
            match delivery.state {
                DeliveryState::Open => drop(queue.open.insert(key, delivery)),
                _ => queue.closed.push_back(key),
            }
        }
        Ok(Self {
            follower: Follower::new(logs.clone(), reads.feed.clone(), position),
            saved: position,
            destinations: Vec::new(),
            disabled: HashSet::new(),
            versions: None,
            queues,
            attempts: JoinSet::new(),
            results: Vec::new(),
            heads: HashMap::new(),
        })
    }

    /// One round. Returns whether there is more to read.
    async fn round(&mut self, engine: &mut Engine) -> Result<bool, StoreError> {
        let mut changes = Changes::default();
        let state = engine.logs.server_state();
        let versions = [
            state.version::<WebhookRecord>(),
            state.version::<Disabled>(),
            state.version::<PushSubscription>(),
            state.version::<TaskPush>(),
        ];
        if self.versions.replace(versions) != Some(versions) {
            self.read_destinations(engine, &mut changes);
        }
        while let Ok(key) = engine.changed.try_recv() {
            self.reload(engine, key);
        }
        while let Some(attempted) = self.attempts.try_join_next() {
            self.results.push(attempted.expect("an attempt panicked"));
        }
        for attempted in std::mem::take(&mut self.results) {
            self.take_result(engine, attempted, &mut changes)?;
        }
        let found = self.follower.step().await?;
        changes.audited = found.audited;
        for (position, event) in found.events {
            let owner = self.owner_of(engine, &event.0.log).await?;
            self.enqueue(engine, position, &event, owner.as_ref(), &mut changes);
            if let Some(head) = self.head_due(&event) {
                self.enqueue(engine, position, &head, owner.as_ref(), &mut changes);
            }
        }
        let has_changes = !changes.entries.is_empty() || !changes.audited.is_empty();
        if has_changes || self.follower.position >= self.saved + SAVE_POSITION_EVERY {
            let position = self.follower.position;
            changes.entry(EntryChange::set(POSITION_ID, &FollowerPosition { position }));
            changes.save(&engine.ingest).await?;
            self.saved = position;
        }
        self.begin_attempts(engine);
        let waiting: usize = self.queues.values().map(|queue| queue.open.len()).sum();
        engine.notifier.waiting.set(waiting as u64);
        Ok(found.has_more)
    }

    /// The owner of a log, where a person may get an event of it.
    async fn owner_of(&self, engine: &Engine, log: &LogId) -> Result<Option<OwnerId>, StoreError> {
        match self.destinations.iter().any(|destination| !matches!(destination, MessageDestination::Webhook(_))) {
            true => owner_of(&engine.reads, log).await,
            false => Ok(None),
        }
    }

    /// Reads the destinations again, and forgets the deliveries to those that are gone.
    fn read_destinations(&mut self, engine: &Engine, changes: &mut Changes) {
        let state = engine.logs.server_state();
        self.destinations = engine.notifier.destinations(&engine.logs);
        self.disabled = state.all::<Disabled>("").into_iter().map(|(id, _)| id).collect();
        let known: HashSet<&str> = self.destinations.iter().map(MessageDestination::id).collect();
        let gone: Vec<_> = self.queues.keys().filter(|id| !known.contains(&***id)).cloned().collect();
        for id in gone {
            let queue = self.queues.remove(&id).unwrap_or_default();
            for key in queue.open.into_keys().chain(queue.closed) {
                changes.entry(EntryChange::remove::<Notification>(&key));
            }
        }
    }

    /// Takes a delivery as a request has changed it.
    fn reload(&mut self, engine: &Engine, key: String) {
        let Some((destination, _)) = key.rsplit_once('/') else { return };
        let queue = self.queues.entry(destination.into()).or_default();
        let Some(delivery) = engine.logs.server_state().get::<Notification>(&key) else {
            // What it is about was erased.
            queue.open.remove(&key);
            queue.closed.retain(|closed| *closed != key);
            return;
        };
        if delivery.state == DeliveryState::Open && !queue.in_flight.contains(&key) {
            queue.closed.retain(|closed| *closed != key);
            queue.open.insert(key, delivery);
        }
    }

    /// The event that a log's head is signed: at the end of its run, and otherwise once an hour when something happens.
    fn head_due(&mut self, (event, audiences): &SeenEvent) -> Option<SeenEvent> {
        // By the times of events: the engine may read them late.
        let now = event.at;
        if self.heads.len() >= HEADS_MAX {
            self.heads.retain(|_, at| now - *at < HEAD_INTERVAL_MS);
        }
        let last = self.heads.get(&event.log).copied();
        let is_due = event.kind.ends_run() || last.is_some_and(|at| now - at >= HEAD_INTERVAL_MS);
        if is_due || last.is_none() {
            self.heads.insert(event.log.clone(), now);
        }
        let about =
            StatusEvent { kind: EventKind::LogHead, action: None, control: None, step: None, to: Vec::new(), ..event.clone() };
        is_due.then_some((about, *audiences))
    }

    fn enqueue(&mut self, engine: &Engine, position: u64, seen: &SeenEvent, owner: Option<&OwnerId>, changes: &mut Changes) {
        let (now, event) = (now_ms(engine), &seen.0);
        for destination in self.destinations.iter().filter(|destination| destination.takes(seen, owner)) {
            let id = destination.id();
            let queue = self.queues.entry(id.into()).or_default();
            if queue.open.len() >= OPEN_MAX {
                engine.notifier.dropped.add(1);
                continue;
            }
            let at_position = delivery::key(id, position, 0);
            let number = queue.open.range(at_position..).filter(|(key, _)| key.starts_with(&format!("{id}/{position:020}.")));
            let key = delivery::key(id, position, number.count());
            let delivery = Notification::new(message_id(engine, id, event), event.clone(), now);
            changes.entry(EntryChange::set(&key, &delivery));
            queue.open.insert(key, delivery);
        }
    }

    fn take_result(&mut self, engine: &Engine, attempted: Attempted, changes: &mut Changes) -> Result<(), StoreError> {
        let Attempted { destination, key, result } = attempted;
        let Some(queue) = self.queues.get_mut(destination.id()) else { return Ok(()) };
        queue.in_flight.remove(&key);
        let Some(mut delivery) = queue.open.remove(&key) else { return Ok(()) };
        let mut has_ended = false;
        match result {
            Ok(Attempt::Needless) => delivery.state = DeliveryState::Dropped,
            Ok(Attempt::Ended) => (delivery.state, has_ended) = (DeliveryState::Dropped, true),
            Ok(Attempt::Answered(Answer { outcome, retry_after })) => {
                has_ended = outcome.error == Some(FailureClass::Gone);
                #[expect(clippy::cast_precision_loss, reason = "any of the random bits suffice")]
                let chance = ((engine.notifier.environment.random)() % 1000) as f64 / 1000.0;
                delivery.note(outcome, retry_after, chance);
            }
            Err(error) if error.affects_one_log() => delivery.state = DeliveryState::Dropped,
            Err(error) => return Err(error),
        }
        let is_last = delivery.state != DeliveryState::Open && delivery.event.kind.ends_run();
        match &destination {
            MessageDestination::Webhook(webhook) if has_ended => {
                changes.entry(EntryChange::set(&webhook.id, &Disabled { at: now_ms(engine) }));
                self.disabled.insert(webhook.id.to_string());
            }
            // Their deliveries go when the destinations are read again.
            MessageDestination::Device(id, _) if has_ended => changes.entry(EntryChange::remove::<PushSubscription>(id)),
            MessageDestination::Task(id, _) if has_ended || is_last => changes.entry(EntryChange::remove::<TaskPush>(id)),
            MessageDestination::Webhook(_) | MessageDestination::Device(..) | MessageDestination::Task(..) => {}
        }
        engine.notifier.attempts.add(match delivery.state {
            DeliveryState::Open => "retried",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
            DeliveryState::Dropped => "dropped",
        });
        changes.entry(EntryChange::set(&key, &delivery));
        match delivery.state {
            DeliveryState::Open => drop(queue.open.insert(key, delivery)),
            _ => queue.closed.push_back(key),
        }
        while queue.closed.len() > CLOSED_MAX {
            if let Some(oldest) = queue.closed.pop_front() {
                changes.entry(EntryChange::remove::<Notification>(&oldest));
            }
        }
        Ok(())
    }

    /// Begins what is due: of each log the first delivery, so that a receiver gets the events of a run in order.
    fn begin_attempts(&mut self, engine: &Engine) {
        let now = now_ms(engine);
        for destination in self.destinations.iter().filter(|destination| !self.disabled.contains(destination.id())) {
            let Some(queue) = self.queues.get_mut(destination.id()) else { continue };
            let Queue { open, in_flight, .. } = queue;
            let mut seen: HashSet<&LogId> = HashSet::new();
            for (key, delivery) in &*open {
                if in_flight.len() >= CONCURRENT_MAX {
                    break;
                }
                let is_first = seen.insert(&delivery.event.log);
                if !is_first || delivery.next_at > now || in_flight.contains(key) {
                    continue;
                }
                in_flight.insert(key.clone());
                self.attempts.spawn(attempt(engine, destination.clone(), key.clone(), delivery.clone()));
            }
        }
    }
}

/// One attempt.
fn attempt(
    engine: &Engine,
    destination: MessageDestination,
    key: String,
    delivery: Notification,
) -> impl Future<Output = Attempted> + use<> {
    let (notifier, reads) = (engine.notifier.clone(), engine.reads.clone());
    async move {
        let result = deliver(&notifier, &reads, &destination, &delivery).await;
        Attempted { destination, key, result }
    }
}

/// Sends a message, with the rights that the person who asked for it has now.
async fn deliver(
    notifier: &Notifier,
    reads: &Reads,
    destination: &MessageDestination,
    delivery: &Notification,
) -> Result<Attempt, StoreError> {
    let event = &delivery.event;
    if let Some((holder, until)) = destination.asked_by() {
        if have_ended(reads, holder) || until <= (notifier.environment.now)().as_millisecond() {
            return Ok(Attempt::Ended);
        }
        if !event.is_covered_by(holder, owner_of(reads, &event.log).await?.as_ref()) {
            return Ok(Attempt::Needless);
        }
    }
    match destination {
        MessageDestination::Webhook(webhook) => match message::body(reads, event, webhook, notifier).await? {
            Some(body) => Ok(Attempt::Answered(notifier.post(webhook, &delivery.id, body).await)),
            None => Ok(Attempt::Needless),
        },
        MessageDestination::Device(_, subscription) => tell_device(notifier, reads, subscription, event).await,
        MessageDestination::Task(_, push) => tell_task(notifier, reads, push, event).await,
    }
}

/// Sends a message to a device.
async fn tell_device(
    notifier: &Notifier,
    reads: &Reads,
    subscription: &PushSubscription,
    event: &StatusEvent,
) -> Result<Attempt, StoreError> {
    let Ok(endpoint) = notifier.services.endpoint(&subscription.endpoint) else { return Ok(Attempt::Ended) };
    let Some(message) = message::push(reads, event, subscription.audience, notifier).await? else {
        return Ok(Attempt::Needless);
    };
    let (key, now) = (reads.logs.server_state().get::<VapidKey>(VAPID_KEY_ID), (notifier.environment.now)());
    let request = key.and_then(|key| push::request(subscription, endpoint, &key, notifier.public_url.as_ref(), message, now));
    match request {
        Some(request) => Ok(Attempt::Answered(notifier.push(request).await)),
        None => Ok(Attempt::Ended),
    }
}

/// Sends the status of a task to a push address.
async fn tell_task(notifier: &Notifier, reads: &Reads, push: &TaskPush, event: &StatusEvent) -> Result<Attempt, StoreError> {
    let Ok(endpoint) = notifier.services.any_endpoint(&push.url) else { return Ok(Attempt::Ended) };
    let Some(body) = message::task(reads, event, push).await? else { return Ok(Attempt::Needless) };
    let post = |client: &Client| client.post(endpoint.url).headers(push.headers()).body(body);
    Ok(Attempt::Answered(notifier.send(endpoint.allow_private, post).await))
}

/// Whether the rights have ended with which a person asked for messages.
fn have_ended(reads: &Reads, holder: Option<&TokenHolder>) -> bool {
    match (&reads.authenticator, holder) {
        (Some(authenticator), Some(holder)) => authenticator.end_of(holder).is_some(),
        // It was made when the server let everyone in.
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// The owner of a log.
async fn owner_of(reads: &Reads, log: &LogId) -> Result<Option<OwnerId>, StoreError> {
    match log {
        LogId::Session(session) => Ok(reads.logs.sessions().owner_of(session)),
        LogId::Run(_) => Ok(reads.logs.log(log).await?.tail().summary.extension.owner.clone()),
    }
}

fn now_ms(engine: &Engine) -> i64 {
    (engine.notifier.environment.now)().as_millisecond()
}

/// The id of an event's message to a destination: the same whenever the event is read.
fn message_id(engine: &Engine, destination: &str, event: &super::event::StatusEvent) -> String {
    let (epoch, store) = (event.epoch, engine.logs.store_epoch());
    let action = event.action.as_ref().map_or("", |action| action.as_str());
    let control = event.control.as_ref().map_or("", |control| control.as_str());
    let about = format!(
        "{store}\n{destination}\n{}\n{epoch}\n{}\n{}\n{action}\n{control}",
        event.log,
        event.sequence,
        event.kind.as_str()
    );
    format!("msg_{}", BASE64URL_NOPAD.encode(&Sha256::digest(about)[..18]))
}
