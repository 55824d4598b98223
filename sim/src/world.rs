//! The clients of a simulated node: producers, readers, people and a worker. They outlive it.

use crate::chance::Chance;
use crate::client::{Answer, Cut, Events, send};
use crate::dialects::DialectClient;
use crate::disk::Disk;
use crate::model::{Model, Picture};
use crate::plan::{AUDIENCES, BEGIN_MS, FactPlan, Plan, Timed, Wait, run_name};
use crate::storage::Storage;
use futures_util::{SinkExt, StreamExt};
use http::Request;
use proscenium::auth::keys::TokenSigner;
use proscenium::environment::simulation;
use proscenium::record::signing::SignedHead;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::DuplexStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// The session of all runs.
pub const SESSION: &str = "s";
/// The number with which a producer asks for its next one.
const ASK: u64 = (1 << 53) - 1;
/// The secret that signs the tokens.
pub const SECRET_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/secret.txt");
const DAY_S: i64 = 24 * 60 * 60;
/// How long a stream may be open under a token that the server no longer takes.
const OUTLIVES: Duration = Duration::from_secs(5);

/// Everything that outlives a node.
pub struct World {
    pub plan: Plan,
    pub steps: Vec<Timed>,
    pub disk: Arc<Disk>,
    pub storage: Storage,
    /// Where a node that archives keeps what it fetched.
    pub archive_dir: Option<TempDir>,
    pub model: RefCell<Model>,
    pub chance: RefCell<Chance>,
    pub producers: Vec<Producer>,
    pub readers: Vec<Reader>,
    pub clients: Vec<DialectClient>,
    pub worker: Worker,
    /// The decisions that people still have to send.
    pub decisions: RefCell<Vec<(usize, usize, bool)>>,
    /// The number of those that were sent.
    decided: Cell<u64>,
    /// The runs that are still to erase.
    pub erasures: RefCell<BTreeSet<usize>>,
    /// Notified when the schedule lets a client do something.
    pub changed: Notify,
    /// The bytes after which a connection ends.
    pub cut_after: Cell<u64>,
    /// The node, while it runs.
    pub node: RefCell<Option<UnboundedSender<DuplexStream>>>,
    /// The time at which this life of the node began, on the simulation's clock and on tokio's; that is `None` between
    /// two lives.
    pub begun: Cell<(u64, Option<Instant>)>,
    /// What was added to the wall clock, in milliseconds.
    pub wall_ms: Cell<i64>,
    wall_ms_max: Cell<i64>,
    /// Signs the tokens, if the server has any.
    signer: Option<TokenSigner>,
    tokens: Cell<u64>,
    lifetimes: RefCell<Chance>,
    /// The heads of the runs' chains that a client keeps.
    pub(crate) heads: RefCell<BTreeMap<String, Vec<SignedHead>>>,
    /// The last activity of the session, in milliseconds since 1970, once everything was checked.
    pub active_at: Cell<Option<i64>>,
    /// How often the node crashed while a rule erased the session.
    pub erasure_crashes: Cell<u64>,
    /// When the faults stopped.
    pub healed_at: Cell<Option<u64>>,
    pub trace: RefCell<Vec<String>>,
    pub requests: Cell<u64>,
}

/// The state of a producer.
pub struct Producer {
    pub next: Cell<usize>,
    /// The facts that it may send so far.
    pub allowed: Cell<usize>,
    pub burst: Cell<usize>,
    pub asks: Cell<bool>,
    /// The end of a body without numbers that is on its way.
    in_flight: Cell<Option<usize>>,
    pub is_refused: Cell<bool>,
}

/// The state of a reader.
pub struct Reader {
    pub is_open: Cell<bool>,
    pub stall_ms: Cell<u64>,
    cursor: RefCell<Option<String>>,
    pub picture: RefCell<Picture>,
    /// Notified to cut its connection.
    pub cut: Notify,
    pub has_ended: Cell<bool>,
}

/// The token of one connection that reads.
pub(crate) struct ReaderToken {
    /// `None` on a server without tokens.
    pub token: Option<String>,
    /// Its end on the wall clock, in milliseconds since 1970.
    until: i64,
}

/// The state of the worker of the agent `default`.
#[derive(Default)]
pub struct Worker {
    pub mood: Cell<u64>,
    /// The number of the next report, by run.
    next: RefCell<BTreeMap<String, u64>>,
    /// The report of each control: its number, and its fact.
    reports: RefCell<BTreeMap<String, (u64, Value)>>,
}

impl World {
    /// The world of a plan before its first node.
    #[must_use]
    pub fn new(plan: Plan, steps: Vec<Timed>) -> Rc<Self> {
        let producer = |_| Producer {
            next: Cell::new(0),
            allowed: Cell::new(0),
            burst: Cell::new(1),
            asks: Cell::new(false),
            in_flight: Cell::new(None),
            is_refused: Cell::new(false),
        };
        let reader = |(n, of): (usize, &crate::plan::ReaderPlan)| {
            let name = format!("reader {n}");
            Reader {
                is_open: Cell::new(false),
                stall_ms: Cell::new(0),
                cursor: RefCell::default(),
                picture: RefCell::new(Picture {
                    name,
                    audience: of.audience,
                    is_events: of.is_events,
                    may_be_compacted: plan.upkeep.compacts,
                    is_of_session: of.run.is_none(),
                    ..Picture::default()
                }),
                cut: Notify::new(),
                has_ended: Cell::new(false),
            }
        };
        Rc::new(Self {
            disk: Disk::new(plan.seed),
            storage: Storage::new(Chance::new(plan.seed, 10)),
            archive_dir: plan
                .upkeep
                .archives
                .then(|| tempfile::tempdir().expect("the machine has a directory for temporary files")),
            model: RefCell::new(Model::of(&plan)),
            chance: RefCell::new(Chance::new(plan.seed, 3)),
            producers: plan.producers.iter().map(producer).collect(),
            readers: plan.readers.iter().enumerate().map(reader).collect(),
            clients: plan
                .clients
                .iter()
                .zip(0..)
                .map(|(of, n)| DialectClient::new(of, Chance::new(plan.seed, 100 + n)))
                .collect(),
            worker: Worker::default(),
            decisions: RefCell::default(),
            decided: Cell::new(0),
            erasures: RefCell::default(),
            changed: Notify::new(),
            cut_after: Cell::new(0),
            node: RefCell::new(None),
            begun: Cell::new((0, None)),
            wall_ms: Cell::new(0),
            wall_ms_max: Cell::new(0),
            signer: plan.has_tokens.then(|| TokenSigner::from_file(include_bytes!("secret.txt")).expect("the secret is valid")),
            tokens: Cell::new(0),
            lifetimes: RefCell::new(Chance::new(plan.seed, 7)),
            heads: RefCell::default(),
            active_at: Cell::new(None),
            erasure_crashes: Cell::new(0),
            healed_at: Cell::new(None),
            trace: RefCell::default(),
            requests: Cell::new(0),
            plan,
            steps,
        })
    }

    /// The time since the simulation began, in milliseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        let (at, begun) = self.begun.get();
        at + begun.map_or(0, |begun| begun.elapsed().as_millis() as u64)
    }

    /// Sets the wall clock forward or back.
    pub fn step_wall_clock(&self, ms: i64) {
        let wall_ms = self.wall_ms.get() + ms;
        self.wall_ms.set(wall_ms);
        self.wall_ms_max.set(self.wall_ms_max.get().max(wall_ms));
        simulation::step_wall_clock(ms);
    }

    /// Sets the wall clock to the latest time that it ever had: what was due once is due.
    pub fn correct_wall_clock(&self) {
        self.step_wall_clock(self.wall_ms_max.get() - self.wall_ms.get());
    }

    /// Adds a line to the trace.
    pub fn note(&self, what: &str) {
        for note in self.disk.take_notes() {
            self.trace.borrow_mut().push(format!("{:>8} disk: {note}", self.now()));
        }
        self.trace.borrow_mut().push(format!("{:>8} {what}", self.now()));
    }

    /// Records a contradiction.
    pub fn violation(&self, what: String) {
        self.model.borrow_mut().violation(what);
    }

    pub(crate) fn connect(&self) -> Option<Cut> {
        let mut chance = self.chance.borrow_mut();
        let buffer = *chance.pick(&[64, 1024, 16 * 1024, 64 * 1024]);
        let left = match self.cut_after.get() {
            0 => u64::MAX,
            bytes => chance.in_range(1..2 * bytes + 1),
        };
        self.requests.set(self.requests.get() + 1);
        Cut::connect(self.node.borrow().as_ref()?, buffer, left)
    }

    /// The wall clock, in milliseconds since 1970.
    pub(crate) fn wall_clock_ms(&self) -> i64 {
        BEGIN_MS + self.now().cast_signed() + self.wall_ms.get()
    }

    /// A token with these rights that ends after so many seconds; `None` on a server without tokens.
    pub(crate) fn token(&self, sub: &str, rights: &Value, seconds: i64) -> Option<String> {
        let signer = self.signer.as_ref()?;
        self.tokens.set(self.tokens.get() + 1);
        let expires = self.wall_clock_ms() / 1000 + seconds;
        // A name of its own, so that the token of each connection ends by itself.
        let claims = json!({"sub": sub, "exp": expires, "jti": format!("t{}", self.tokens.get()), "proscenium": rights});
        Some(signer.sign(&claims, None).expect("the claims can be signed"))
    }

    pub(crate) fn operator(&self) -> Option<String> {
        self.token("operator", &json!({"audience": "internal", "sessions": ["*"], "agents": ["*"], "can": ["admin"]}), DAY_S)
    }

    /// The operator's token, for one that reads.
    pub(crate) fn operators_token(&self) -> ReaderToken {
        ReaderToken { token: self.operator(), until: i64::MAX }
    }

    /// Reads with a token of its own, which covers one run or the session, and soon ends in half of the cases.
    pub(crate) async fn under_token(
        &self,
        who: String,
        (audience, run): (usize, Option<usize>),
        read: impl AsyncFnOnce(&ReaderToken) -> Option<()>,
    ) {
        let seconds = match self.lifetimes.borrow_mut().in_range(0..6).cast_signed() {
            soon @ 0..3 => 1 + soon,
            _ => DAY_S,
        };
        let mut rights = json!({"audience": AUDIENCES[audience], "can": ["read"]});
        match run {
            Some(run) => rights["runs"] = json!([run_name(run)]),
            None => rights["sessions"] = json!([SESSION]),
        }
        let (token, until) = (self.token("reader", &rights, seconds), self.wall_clock_ms() + seconds * 1000);
        let is_over = || until <= self.wall_clock_ms();
        let outlived = async {
            while token.is_some() {
                sleep(Duration::from_millis((until - self.wall_clock_ms()).max(1).cast_unsigned())).await;
                if is_over() {
                    self.note(&format!("the token of {who} has ended"));
                    sleep(OUTLIVES).await;
                    if is_over() {
                        return;
                    }
                }
            }
            std::future::pending::<()>().await;
        };
        let token = ReaderToken { token: token.clone(), until };
        tokio::select! {
            biased;
            _ = read(&token) => {}
            () = outlived => self.violation(format!("{who} reads {OUTLIVES:?} after the end of its token")),
        }
    }

    /// Whether an answer refuses a token that has ended.
    pub(crate) fn has_ended(&self, token: &ReaderToken, answer: &Answer) -> bool {
        let latest = self.wall_clock_ms() - self.wall_ms.get() + self.wall_ms_max.get();
        // The server reads whole seconds.
        answer.status == 401 && answer.json()["reason"] == "expired" && token.until - 1000 <= latest
    }

    /// Sends a request of the operator, of producers or the worker; `None` without an answer.
    pub async fn request(&self, method: &str, path: &str, headers: &[(&str, String)], body: String) -> Option<Answer> {
        self.exchange(request(method, path, headers, body, self.operator())).await
    }

    /// Sends a request; `None` without an answer.
    pub(crate) async fn exchange(&self, request: Request<String>) -> Option<Answer> {
        let (method, path) = (request.method().clone(), request.uri().clone());
        let sent = async { send(self.connect()?, request).await };
        // A client gives up, too.
        let answer = tokio::time::timeout(Duration::from_secs(100), sent).await.ok().flatten();
        match &answer {
            Some(Answer { status, text }) => {
                let hash = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
                self.note(&format!("{method} {path}: {status} {hash:016x}"));
            }
            None => self.note(&format!("{method} {path}: no answer")),
        }
        answer
    }

    /// Reads JSON; `None` without an answer of 200.
    pub async fn get(&self, path: &str) -> Option<Value> {
        self.request("GET", path, &[], String::new()).await.filter(|answer| answer.status == 200).map(|answer| answer.json())
    }

    pub(crate) async fn back_off(&self) {
        let ms = self.chance.borrow_mut().in_range(1..300);
        sleep(Duration::from_millis(ms)).await;
    }

    /// Starts the clients of a life of the node.
    pub fn start(self: &Rc<Self>) {
        for n in 0..self.producers.len() {
            let world = self.clone();
            tokio::task::spawn_local(async move { world.produce(n).await });
        }
        for n in 0..self.readers.len() {
            let world = self.clone();
            tokio::task::spawn_local(async move { world.read(n).await });
        }
        for n in 0..self.clients.len() {
            let world = self.clone();
            tokio::task::spawn_local(async move { world.follow(n).await });
        }
        for n in 0..4 {
            let world = self.clone();
            tokio::task::spawn_local(async move {
                match n {
                    0 => world.work().await,
                    1 => world.decide_all().await,
                    2 => world.erase_all().await,
                    _ => world.audit_all().await,
                }
            });
        }
    }

    /// Sends what a producer may send, for as long as the node lives.
    async fn produce(&self, n: usize) {
        let (plan, producer) = (&self.plan.producers[n], &self.producers[n]);
        let path = format!("/v1/runs/{}/facts?sessionId={SESSION}", run_name(plan.run));
        if let Some(end) = producer.in_flight.take() {
            // Without numbers, it cannot repeat them.
            producer.next.set(end);
        }
        loop {
            let numbers = |seq: u64| match plan.is_numbered {
                true => vec![
                    ("producer-id", plan.name.clone()),
                    ("producer-epoch", "0".to_owned()),
                    ("producer-seq", seq.to_string()),
                ],
                false => Vec::new(),
            };
            let from = producer.next.get();
            let until = producer.allowed.get().min(plan.facts.len()).min(from + producer.burst.get());
            if producer.is_refused.get() || until <= from && !producer.asks.get() {
                self.changed.notified().await;
                continue;
            }
            if producer.asks.get() && plan.is_numbered {
                match self.request("POST", &path, &numbers(ASK), "[]".to_owned()).await {
                    Some(answer) if answer.code() == "producer_gap" => {
                        let expected = answer.json()["expected"].as_u64().unwrap_or(ASK);
                        self.model.borrow_mut().expected(&plan.name, expected);
                        producer.next.set(expected as usize);
                        producer.asks.set(false);
                    }
                    answer => self.refused(n, answer).await,
                }
                continue;
            }
            producer.asks.set(false);
            let facts = &plan.facts[from..until];
            let tokens: Vec<_> = facts.iter().map(|fact| fact.token.as_str()).collect();
            let body = Value::from(facts.iter().map(|fact| fact.fact.clone()).collect::<Vec<_>>()).to_string();
            self.model.borrow_mut().sent(&tokens);
            producer.in_flight.set((!plan.is_numbered).then_some(until));
            let answer = self.request("POST", &path, &numbers(from as u64), body).await;
            producer.in_flight.set(None);
            match answer {
                Some(answer) if answer.status == 200 => {
                    self.model.borrow_mut().acknowledged(&tokens, &answer.json());
                    producer.next.set(until);
                }
                answer => {
                    if !plan.is_numbered {
                        producer.next.set(until);
                    }
                    self.refused(n, answer).await;
                }
            }
        }
    }

    /// Deals with an answer that is no receipt.
    async fn refused(&self, n: usize, answer: Option<Answer>) {
        let run = run_name(self.plan.producers[n].run);
        match answer {
            None | Some(Answer { status: 408 | 429 | 500..=599, .. }) => {}
            Some(_) if self.is_erased(&run) => self.producers[n].is_refused.set(true),
            Some(answer) => self.violation(format!("{run} refused facts: {} {}", answer.status, answer.text)),
        }
        self.back_off().await;
    }

    /// Whether the run is erased, or may be.
    pub(crate) fn is_erased(&self, run: &str) -> bool {
        self.model.borrow().is_erased(run) || self.erasures.borrow().iter().any(|erased| run_name(*erased) == run)
    }

    /// Reads a reader's stream, again and again, for as long as the node lives.
    async fn read(&self, n: usize) {
        let (plan, reader) = (&self.plan.readers[n], &self.readers[n]);
        loop {
            while !reader.is_open.get() || reader.has_ended.get() {
                self.changed.notified().await;
            }
            reader.picture.borrow_mut().reconnected();
            tokio::select! {
                biased;
                () = reader.cut.notified() => {}
                () = self.under_token(format!("reader {n}"), (plan.audience, plan.run), async |token| {
                    match plan.is_socket {
                        true => self.read_socket(n, token).await,
                        false => self.read_events(n, token).await,
                    }
                }) => {}
            }
            self.note(&format!("reader {n} is cut at {:?}", reader.cursor.borrow()));
            self.back_off().await;
        }
    }

    async fn read_events(&self, n: usize, token: &ReaderToken) -> Option<()> {
        let (plan, reader) = (&self.plan.readers[n], &self.readers[n]);
        let of = plan.run.map_or_else(|| format!("/v1/sessions/{SESSION}/stream"), |run| format!("/v1/runs/r{run}/stream"));
        let frames = if plan.is_events { "events" } else { "activities" };
        let path = format!("{of}?audience={}&frames={frames}", AUDIENCES[plan.audience]);
        let cursor = reader.cursor.borrow().clone();
        let headers: Vec<_> = cursor.into_iter().map(|cursor| ("last-event-id", cursor)).collect();
        match Events::open(self.connect()?, request("GET", &path, &headers, String::new(), token.token.clone())).await? {
            Ok(mut events) => loop {
                self.stall(n).await;
                let event = events.next().await?;
                let frame: Value = serde_json::from_str(&event.data).ok()?;
                self.frame(n, &frame, event.id);
            },
            Err(answer) => self.stream_refused(n, token, &answer),
        }
        Some(())
    }

    async fn read_socket(&self, n: usize, token: &ReaderToken) -> Option<()> {
        let (plan, reader) = (&self.plan.readers[n], &self.readers[n]);
        let mut asks = "ws://localhost/v1/ws".into_client_request().expect("the address is valid");
        if let Some(token) = &token.token {
            let token = format!("Bearer {token}").parse().expect("a token is ASCII");
            asks.headers_mut().insert("authorization", token);
        }
        let (mut socket, _) = tokio_tungstenite::client_async(asks, self.connect()?).await.ok()?;
        let mut wanted = json!({"op": "subscribe", "id": "s", "audience": AUDIENCES[plan.audience],
            "frames": if plan.is_events { "events" } else { "activities" }});
        match plan.run {
            Some(run) => wanted["run"] = json!(run_name(run)),
            None => wanted["session"] = json!(SESSION),
        }
        if let Some(cursor) = &*reader.cursor.borrow() {
            wanted["after"] = json!(cursor);
        }
        socket.send(Message::text(wanted.to_string())).await.ok()?;
        loop {
            self.stall(n).await;
            let Message::Text(text) = socket.next().await?.ok()? else { continue };
            let frame: Value = serde_json::from_str(&text).ok()?;
            match frame["op"].as_str() {
                None => self.frame(n, &frame, frame["cursor"].as_str().map(str::to_owned)),
                Some("error") => {
                    let status = frame["status"].as_u64().unwrap_or(0) as u16;
                    self.stream_refused(n, token, &Answer { status, text: text.to_string() });
                    return None;
                }
                Some(_) => {}
            }
            if frame["frame"] == "Error" || plan.run.is_some() && frame["frame"] == "End" {
                return None;
            }
        }
    }

    async fn stall(&self, n: usize) {
        let ms = self.readers[n].stall_ms.take();
        if ms > 0 {
            sleep(Duration::from_millis(ms)).await;
        }
    }

    fn frame(&self, n: usize, frame: &Value, cursor: Option<String>) {
        let reader = &self.readers[n];
        self.note(&format!("reader {n} gets {} {:?} {cursor:?}", frame["frame"], frame["sequence"].as_u64()));
        reader.picture.borrow_mut().apply(frame, &mut self.model.borrow_mut());
        if cursor.is_some() {
            *reader.cursor.borrow_mut() = cursor;
        }
        if self.plan.readers[n].run.is_some() && frame["frame"] == "End" {
            reader.has_ended.set(true);
        }
    }

    fn stream_refused(&self, n: usize, token: &ReaderToken, answer: &Answer) {
        let run = self.plan.readers[n].run.map(run_name);
        let is_gone = run.is_some_and(|run| self.is_erased(&run));
        match answer.status {
            204 => self.readers[n].has_ended.set(true),
            404 | 410 if is_gone => self.readers[n].has_ended.set(true),
            408 | 429 | 500..=599 => {}
            _ if self.has_ended(token, answer) => {}
            _ => self.violation(format!("reader {n} was refused: {} {}", answer.status, answer.text)),
        }
    }

    /// Sends the decisions of people, one after another.
    async fn decide_all(&self) {
        loop {
            let Some((question, person, approves)) = self.decisions.borrow().first().copied() else {
                self.changed.notified().await;
                continue;
            };
            let asked = &self.plan.questions[question];
            let (run, control) = (run_name(asked.run), if approves { "approve" } else { "reject" });
            let (mut id, person) = (format!("{}-p{person}-{control}", asked.action), format!("p{person}"));
            if asked.wait == Wait::People {
                // Another click of the same person, which counts once all the same.
                id = format!("{id}-{}", self.decided.get());
            }
            // Two people have to say the same.
            let value = json!({"reason": if asked.wait == Wait::People { control } else { &id }});
            let body = json!({"control": control, "controlId": id, "actionId": asked.action, "value": value});
            self.model.borrow_mut().decides(&id, asked, &person, control, &value);
            let token = self.token(&person, &json!({"runs": [run], "agents": ["*"], "can": ["control"]}), DAY_S);
            let path = format!("/v1/runs/{run}/controls");
            let answer = self.exchange(request("POST", &path, &[], body.to_string(), token)).await;
            match answer {
                Some(answer) if answer.status == 202 => {
                    let answer = answer.json();
                    self.model.borrow_mut().decision_accepted(answer["controlId"].as_str().unwrap_or_default());
                }
                Some(Answer { status: 404 | 409 | 410, .. }) => {}
                None | Some(Answer { status: 408 | 429 | 500..=599, .. }) => {
                    self.back_off().await;
                    continue;
                }
                Some(answer) => self.violation(format!("the decision {id} is refused: {} {}", answer.status, answer.text)),
            }
            self.decided.set(self.decided.get() + 1);
            self.decisions.borrow_mut().remove(0);
        }
    }

    /// Erases the runs that are to erase.
    async fn erase_all(&self) {
        loop {
            let Some(run) = self.erasures.borrow().first().copied() else {
                self.changed.notified().await;
                continue;
            };
            let known = self.model.borrow().acknowledged_of(&run_name(run));
            self.model.borrow_mut().erases(&run_name(run));
            match self.request("DELETE", &format!("/v1/runs/r{run}"), &[], String::new()).await {
                Some(Answer { status: 204 | 404 | 410, .. }) => self.model.borrow_mut().erased(&run_name(run), &known),
                Some(answer) if answer.status < 500 => {
                    self.violation(format!("r{run} is not erased: {} {}", answer.status, answer.text));
                }
                _ => {
                    self.back_off().await;
                    continue;
                }
            }
            self.erasures.borrow_mut().remove(&run);
        }
    }

    /// Claims decisions, reports their outcome, and answers.
    async fn work(&self) {
        loop {
            let path = "/v1/agents/default/controls/claim?wait=20&max=4&leaseSeconds=5";
            let Some(answer) = self.request("POST", path, &[], String::new()).await else {
                self.back_off().await;
                continue;
            };
            let claimed = answer.json();
            for control in claimed["controls"].as_array().into_iter().flatten() {
                self.model.borrow_mut().claimed(control);
                if self.handle(control).await.is_none() {
                    self.back_off().await;
                }
            }
            if answer.status != 200 {
                self.back_off().await;
            }
        }
    }

    async fn handle(&self, control: &Value) -> Option<()> {
        let text = |name: &str| control[name].as_str().unwrap_or_default();
        let (id, run, action) = (text("controlId"), text("runId"), text("actionId"));
        let attempt = control["attempt"].as_u64().unwrap_or(0);
        if self.is_erased(run) {
            return None;
        }
        let has_reported = self.worker.reports.borrow().contains_key(id);
        match self.worker.mood.get() {
            // It takes so long that its lease may end.
            1 => sleep(Duration::from_secs(4)).await,
            2 if attempt < 3 => return None,
            3 if attempt < 3 && !has_reported => {
                return self.answer(id, "nack", &json!({"lease": control["lease"], "requeue": true, "reason": "later"})).await;
            }
            4 if !has_reported => return self.answer(id, "nack", &json!({"lease": control["lease"], "reason": "no"})).await,
            _ => {}
        }
        let (number, fact) = self.report(id, run, action, text("control"));
        let token = format!("<{run}.worker.{number}>");
        self.model.borrow_mut().sent(&[&token]);
        self.model.borrow_mut().decision_reported(id);
        let headers =
            [("producer-id", format!("{run}.worker")), ("producer-epoch", "0".to_owned()), ("producer-seq", number.to_string())];
        let path = format!("/v1/runs/{run}/facts");
        let answer = self.request("POST", &path, &headers, json!([fact]).to_string()).await?;
        if answer.status != 200 {
            return None;
        }
        self.model.borrow_mut().acknowledged(&[&token], &answer.json());
        self.answer(id, "ack", &json!({"lease": control["lease"]})).await
    }

    /// The report of a control: the same for each of its claims.
    fn report(&self, id: &str, run: &str, action: &str, control: &str) -> (u64, Value) {
        if let Some(report) = self.worker.reports.borrow().get(id) {
            return report.clone();
        }
        let mut numbers = self.worker.next.borrow_mut();
        let next = numbers.entry(run.to_owned()).or_default();
        let (number, producer) = (*next, format!("{run}.worker"));
        *next += 1;
        let token = format!("<{producer}.{number}>");
        let outcome = if control == "approve" { "approved" } else { "rejected" };
        let fact = json!({"type": "action.resolved", "actionId": action, "audience": "user",
            "payload": {"outcome": outcome, "note": token}});
        self.model.borrow_mut().add(run, &producer, number, &FactPlan { token, audience: 0, fact: fact.clone() });
        self.worker.reports.borrow_mut().insert(id.to_owned(), (number, fact.clone()));
        (number, fact)
    }

    async fn answer(&self, id: &str, how: &str, body: &Value) -> Option<()> {
        let answer = self.request("POST", &format!("/v1/controls/{id}/{how}"), &[], body.to_string()).await?;
        if answer.status == 200 {
            self.model.borrow_mut().decision_answered(id, answer.json()["status"].as_str().unwrap_or_default());
        }
        Some(())
    }
}

/// A request to the node.
pub(crate) fn request(
    method: &str,
    path: &str,
    headers: &[(&str, String)],
    body: String,
    token: Option<String>,
) -> Request<String> {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if !body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    request.body(body).expect("the parts of a request are valid")
}
