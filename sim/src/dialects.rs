//! Clients of AG-UI and of the AI SDK. Each is cut and resumes, and ends with the state of a client that never was.
//!
//! `crates/conform` folds what they get, as the published clients do.

use crate::chance::Chance;
use crate::client::{Answer, Events};
use crate::plan::{AUDIENCES, run_name};
use crate::world::{ReaderToken, World, request};
use proscenium_conform::{ClientState, ResumeDialect, first_difference};
use serde_json::Value;
use std::cell::{Cell, RefCell};

/// The most pauses of a run: each envelope while a question is pending makes one.
const PAUSES_MAX: usize = 1000;

/// What the dialects say when the token of a stream ends.
const TOKEN_ENDED: &str = "The token has expired. Reconnect with a new one.";

/// A client of a dialect, which reads one run.
#[derive(Debug, Clone)]
pub struct DialectPlan {
    pub run: usize,
    pub audience: usize,
    pub address: Address,
}

/// Where a client reads its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// The run's stream in AG-UI, from its current state on.
    AgUiState,
    /// The same with every change.
    AgUiChanges,
    /// The agent's address, from the run's current state on.
    AgUiAgent,
    /// The run's stream for clients of the AI SDK, which count its chunks.
    AiSdkCount,
}

impl Address {
    pub const ALL: [Self; 4] = [Self::AgUiState, Self::AgUiChanges, Self::AgUiAgent, Self::AiSdkCount];

    const fn dialect(self) -> ResumeDialect {
        match self {
            Self::AgUiState | Self::AgUiChanges | Self::AgUiAgent => ResumeDialect::AgUi,
            Self::AiSdkCount => ResumeDialect::AiSdk,
        }
    }
}

/// The state of such a client.
pub struct DialectClient {
    state: RefCell<ClientState>,
    last_id: RefCell<Option<String>>,
    /// Hashes of the events, in order.
    events: RefCell<Vec<u64>>,
    chance: RefCell<Chance>,
    /// Whether its run ended while the server's run waits: after a decision, or a deadline, that run goes on.
    is_paused: Cell<bool>,
    /// Whether it has to load the chat instead: a compaction removed chunks that it would count.
    loads_chat: Cell<bool>,
    pub has_ended: Cell<bool>,
}

impl DialectClient {
    /// A client that has read nothing.
    #[must_use]
    pub fn new(plan: &DialectPlan, chance: Chance) -> Self {
        Self {
            state: RefCell::new(ClientState::new(plan.address.dialect())),
            last_id: RefCell::default(),
            events: RefCell::default(),
            chance: RefCell::new(chance),
            is_paused: Cell::new(false),
            loads_chat: Cell::new(false),
            has_ended: Cell::new(false),
        }
    }

    /// Begins anew.
    fn forget(&self, plan: &DialectPlan) {
        self.state.replace(ClientState::new(plan.address.dialect()));
        self.last_id.take();
        self.events.take();
        self.is_paused.set(false);
    }

    /// What has to be the same for each client, however it was cut.
    fn shown(&self, plan: &DialectPlan) -> Value {
        let mut document = self.state.borrow().document();
        if plan.address == Address::AgUiChanges {
            return document;
        }
        // A client that reads the state has other runs of the thread as they were then.
        let own = [".", "-"].map(|end| run_name(plan.run) + end);
        let mut messages = document["messages"].take();
        if let Some(messages) = messages.as_object_mut() {
            messages.retain(|id, _| own.iter().any(|own| id.contains(own)));
        }
        messages
    }
}

impl World {
    /// Reads as a client, for as long as the node lives.
    pub async fn follow(&self, n: usize) {
        let (plan, client) = (&self.plan.clients[n], &self.clients[n]);
        while !client.has_ended.get() {
            if !self.model.borrow().is_written(&run_name(plan.run)) {
                self.back_off().await;
                continue;
            }
            let is_cut = client.chance.borrow_mut().in_range(0..3) > 0;
            let events = if is_cut { client.chance.borrow_mut().in_range(1..20) } else { u64::MAX };
            let read = async |token: &ReaderToken| self.read_as(plan, client, token, events).await;
            self.under_token(format!("client {n}"), (plan.audience, Some(plan.run)), read).await;
            self.note(&format!("client {n} has {} events", client.events.borrow().len()));
            self.back_off().await;
        }
    }

    /// Compares the client with one that reads the whole run now.
    pub async fn check_client(&self, n: usize) {
        let (plan, client) = (&self.plan.clients[n], &self.clients[n]);
        let other = DialectClient::new(plan, Chance::new(0, 0));
        // One response reads up to the next pause.
        for _ in 0..PAUSES_MAX {
            self.read_as(plan, &other, &self.operators_token(), u64::MAX).await;
            if other.has_ended.get() {
                break;
            }
        }
        if !other.has_ended.get() {
            return self.violation(format!("{plan:?} does not end for one that reads all of it"));
        }
        if client.loads_chat.get() || other.loads_chat.get() {
            return;
        }
        // A compaction joins the chunks of a text.
        if plan.address == Address::AiSdkCount && !self.plan.upkeep.compacts {
            let (whole, mut cut) = (other.events.borrow(), &client.events.borrow()[..]);
            // The stream of a client that waits for a decision ends with one of its own.
            cut = if whole.len() > cut.len() { &cut[..cut.len().saturating_sub(1)] } else { cut };
            if !whole.starts_with(cut) {
                let at = whole.iter().zip(cut).take_while(|(one, other)| one == other).count();
                self.violation(format!("{plan:?} has another chunk {at} of {} for a client that was cut", cut.len()));
            }
            return;
        }
        let [whole, cut] = [&other, client].map(|client| client.shown(plan));
        if let Some(difference) = first_difference(&whole, &cut) {
            self.violation(format!("{plan:?} is another one for a client that was cut: {difference}"));
        }
    }

    /// Reads up to so many events after those that the client has.
    async fn read_as(&self, plan: &DialectPlan, client: &DialectClient, token: &ReaderToken, events: u64) -> Option<()> {
        let (run, audience) = (run_name(plan.run), AUDIENCES[plan.audience]);
        let path = match plan.address {
            Address::AgUiState => format!("/v1/runs/{run}/stream?format=ag-ui&audience={audience}"),
            Address::AgUiChanges => format!("/v1/runs/{run}/stream?format=ag-ui&replay=deltas&audience={audience}"),
            Address::AgUiAgent => format!("/ag-ui/default?runId={run}&audience={audience}"),
            Address::AiSdkCount => {
                format!("/ai-sdk/default/{run}/stream?audience={audience}&startIndex={}", client.events.borrow().len())
            }
        };
        let last = client.last_id.borrow().clone();
        let headers: Vec<_> = last.into_iter().map(|id| ("last-event-id", id)).collect();
        // After a run that waits without a question, the stream goes on as after an interrupt.
        let end = client.state.borrow().document()["run"].take();
        if !(client.is_paused.get() && end["outcome"]["type"] == "success") {
            client.state.borrow_mut().reconnect();
        }
        let mut stream =
            match Events::open(self.connect()?, request("GET", &path, &headers, String::new(), token.token.clone())).await? {
                Ok(stream) => stream,
                Err(answer) => {
                    self.client_refused(plan, client, token, &answer);
                    return None;
                }
            };
        for _ in 0..events {
            let event = stream.next().await?;
            if event.data == "[DONE]" {
                return None;
            }
            if event.data.contains(TOKEN_ENDED) {
                // An error ends what a client reads, so the next response is for one that has nothing.
                client.forget(plan);
                return None;
            }
            let data: Value = serde_json::from_str(&event.data).ok()?;
            // What is on its way to a client when a run of its thread is erased may still arrive.
            if !self.model.borrow().has_erasure() {
                self.model.borrow_mut().shown("a client", plan.audience, &event.data);
            }
            let applied = client.state.borrow_mut().apply(&data);
            if let Err(why) = applied {
                self.violation(format!("{plan:?} refuses {data}: {why}"));
            }
            client.events.borrow_mut().push(xxhash_rust::xxh3::xxh3_64(event.data.as_bytes()));
            client.last_id.replace(event.id.filter(|_| plan.address != Address::AiSdkCount));
            if client.state.borrow().is_over() {
                let is_interrupted = data["outcome"]["type"] == "interrupt";
                client.is_paused.set(is_interrupted || data["metadata"]["proscenium"]["status"] == "waiting");
                client.has_ended.set(!client.is_paused.get());
                return None;
            }
        }
        Some(())
    }

    fn client_refused(&self, plan: &DialectPlan, client: &DialectClient, token: &ReaderToken, answer: &Answer) {
        match answer.status {
            204 => client.has_ended.set(!client.is_paused.get()),
            404 | 410 if self.is_erased(&run_name(plan.run)) => client.has_ended.set(true),
            410 if self.plan.upkeep.compacts && answer.code() == "compacted" => {
                client.loads_chat.set(true);
                client.has_ended.set(true);
            }
            408 | 429 | 500..=599 => {}
            _ if self.has_ended(token, answer) => {}
            _ => self.violation(format!("{plan:?} was refused: {} {}", answer.status, answer.text)),
        }
    }
}
