//! Controls in flight: who asks for them, who takes them, and one record of what each was told.
//!
//! Askers number their controls and repeat each until it is acknowledged, and old ones now and then. Workers claim over long
//! polls and over a WebSocket; some answer, some give back, some go away with what they have. The kills come in between. What the
//! server lists and what its logs tell must agree with each other, and with every answer that anybody was given.

use super::KILLS_PER_RUN;
use super::figures::Figures;
use crate::harness::{Client, prepare, soon};
use futures_util::{SinkExt, StreamExt};
use proscenium::control::ATTEMPTS_MAX;
use proscenium::log::control::CLOSED_CONTROLS_MAX;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Controls that one run is asked for between two kills, so that its log remembers all of them to the end.
const ASKED_MAX: u64 = CLOSED_CONTROLS_MAX as u64 / KILLS_PER_RUN - 1;
/// From this attempt on everybody answers, so that nothing is handed over too often.
const SURE_FROM: u64 = 4;
/// What comes out of a restart so often handed over is answered before the next kill: the last attempt is not the kill's to take.
const WEARY_FROM: u64 = ATTEMPTS_MAX as u64 - 4;
/// What is handed over at least between two kills that wait for something to be under way.
const BUSY: u64 = 24;
/// What a worker on a WebSocket is handed before it goes away.
const SOCKET_TURN: usize = 9;

/// A plain client that takes the end of the server for an answer.
struct Desk {
    http: reqwest::Client,
    at: SocketAddr,
}

impl Desk {
    fn new(at: SocketAddr) -> Self {
        prepare();
        Self { http: reqwest::Client::builder().no_proxy().build().unwrap(), at }
    }

    /// The status and body of the answer; `None` when the server is gone.
    async fn post(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let answer = self.http.post(format!("http://{}{path}", self.at)).body(body.to_string()).send().await.ok()?;
        Some((answer.status().as_u16(), answer.json().await.ok()?))
    }
}

/// Somebody who asks one run for controls.
struct Asker {
    run: String,
    acknowledged: AtomicU64,
}

impl Asker {
    fn id(&self, n: u64) -> String {
        format!("{}~{n}", self.run)
    }

    /// Asks for one after the other, until the server is gone.
    async fn ask(&self, desk: &Desk) {
        let begin = self.acknowledged.load(Ordering::SeqCst);
        for n in begin..begin + ASKED_MAX {
            if !self.submit(desk, n).await {
                return;
            }
            self.acknowledged.store(n + 1, Ordering::SeqCst);
            // An old one again, whether it is open or over: there must not be two of it.
            if n % 5 == 4 && !self.submit(desk, n / 2).await {
                return;
            }
        }
    }

    /// Asks for one control until it is acknowledged; `false` when the server is gone.
    async fn submit(&self, desk: &Desk, n: u64) -> bool {
        let control = ["queue", "steer", "send"][n as usize % 3];
        let wish = json!({"controlId": self.id(n), "control": control, "value": value(n)});
        loop {
            let Some((status, told)) = desk.post(&format!("/v1/runs/{}/controls", self.run), &wish).await else { return false };
            match (status, told["code"].as_str()) {
                (202, None) => {
                    assert_eq!(told, json!({"controlId": self.id(n), "status": "queued"}));
                    return true;
                }
                // Its producer, or those who take controls, come first.
                (404, Some("no_such_run")) | (429, Some("too_many_controls")) => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                _ => panic!("{status}: {told}"),
            }
        }
    }
}

fn value(n: u64) -> Value {
    json!({"n": n, "text": "x".repeat(100)})
}

/// How somebody deals with what is handed over.
#[derive(Clone, Copy, PartialEq)]
enum Habit {
    Answers,
    /// Gives half of it back.
    GivesBack,
    /// Forgets half of it.
    Forgets,
    /// Forgets all of it.
    Dies,
}

/// A control that was handed over.
struct Handed {
    id: String,
    n: u64,
    attempt: u64,
    lease: Value,
}

impl Handed {
    /// What is said of it, and with which body; nothing of what is forgotten.
    fn answer(&self, habit: Habit) -> Option<(&'static str, Value)> {
        let is_half = self.attempt < SURE_FROM && (self.n + self.attempt).is_multiple_of(2);
        match habit {
            Habit::Dies => None,
            Habit::Forgets if is_half => None,
            Habit::GivesBack if is_half => Some(("nack", json!({"lease": self.lease, "requeue": true, "reason": "not now"}))),
            _ if end(self.n) == "nacked" => Some(("nack", json!({"lease": self.lease, "reason": "no"}))),
            _ => Some(("ack", json!({"lease": self.lease}))),
        }
    }
}

/// What becomes of a control in the end: each sixteenth is refused.
const fn end(n: u64) -> &'static str {
    if n % 16 == 15 { "nacked" } else { "acked" }
}

/// What anybody was told, of all runs.
#[derive(Default)]
struct Record {
    /// The attempts as which a control was handed over.
    handed: BTreeMap<String, BTreeSet<u64>>,
    /// What its owner was told that it then was, by the attempt that was answered.
    answered: BTreeMap<String, BTreeMap<u64, String>>,
    /// What has to be answered before the next kill.
    weary: Vec<String>,
    found: Figures,
}

impl Record {
    /// The attempt whose answer closed a control.
    fn closed(&self, id: &str) -> Option<u64> {
        let answered = self.answered.get(id)?;
        answered.iter().find(|(_, status)| *status != "queued").map(|(attempt, _)| *attempt)
    }
}

/// All who have to do with controls.
#[derive(Default)]
pub struct Office {
    askers: Mutex<Vec<Arc<Asker>>>,
    record: Mutex<Record>,
}

impl Office {
    /// Somebody asks each of these runs, and nobody the former ones any more.
    pub fn open(&self, runs: impl Iterator<Item = String>) {
        let asker = |run| Arc::new(Asker { run, acknowledged: AtomicU64::new(0) });
        *self.askers.lock().unwrap() = runs.map(asker).collect();
    }

    fn askers(&self) -> Vec<Arc<Asker>> {
        self.askers.lock().unwrap().clone()
    }

    /// Everybody works, each on a task of its own, until the server is gone.
    pub fn all_work(self: &Arc<Self>, at: SocketAddr) -> Vec<JoinHandle<()>> {
        let desk = Arc::new(Desk::new(at));
        let mut working: Vec<_> = self
            .askers()
            .into_iter()
            .map(|asker| {
                let desk = desk.clone();
                tokio::spawn(async move { asker.ask(&desk).await })
            })
            .collect();
        for (habit, query) in [
            (Habit::Answers, "wait=30&max=8"),
            (Habit::GivesBack, "wait=30&max=4"),
            (Habit::Forgets, "wait=30&max=2&leaseSeconds=1"),
        ] {
            let (office, desk) = (self.clone(), desk.clone());
            working.push(tokio::spawn(async move { while office.work(&desk, habit, query).await.is_some() {} }));
        }
        let office = self.clone();
        working.push(tokio::spawn(async move { while office.work_on_socket(at).await.is_some() {} }));
        working
    }

    /// Claims once and deals with what comes; how many came, `None` when the server is gone.
    async fn work(&self, desk: &Desk, habit: Habit, query: &str) -> Option<usize> {
        let (status, told) = desk.post(&format!("/v1/agents/default/controls/claim?{query}"), &Value::Null).await?;
        assert_eq!(status, 200, "{told}");
        let controls = told["controls"].as_array().unwrap();
        for control in controls {
            let handed = self.take(control);
            let Some((how, body)) = handed.answer(habit) else { continue };
            let (status, told) = desk.post(&format!("/v1/controls/{}/{how}", handed.id), &body).await?;
            match status {
                200 => self.hear(&handed, &told),
                // Its lease ran out on a slow machine; somebody else gets it.
                _ => assert_eq!((status, &told["code"]), (409, &json!("lease_lost"))),
            }
        }
        Some(controls.len())
    }

    /// Works on a WebSocket for a while and then breaks off, with what it has; `None` when the server is gone.
    async fn work_on_socket(&self, at: SocketAddr) -> Option<()> {
        let socket = TcpStream::connect(at).await.ok()?;
        let (mut socket, _) = tokio_tungstenite::client_async(format!("ws://{at}/v1/ws"), socket).await.ok()?;
        say(&mut socket, json!({"op": "claim", "id": "w", "agentId": "default", "max": 4, "leaseSeconds": 1})).await?;
        // What was answered, by its lease: slow as this worker may be, it may get one again before it hears of the first time.
        let mut waiting: HashMap<String, Handed> = HashMap::new();
        let (mut turn, mut leaves) = (0, false);
        while !(leaves && waiting.is_empty()) {
            let told = hear(&mut socket).await?;
            match told["op"].as_str().unwrap() {
                "claiming" => {}
                "control" => {
                    let handed = self.take(&told);
                    turn += 1;
                    let habit = if turn < SOCKET_TURN { Habit::Answers } else { Habit::Forgets };
                    if let Some((op, mut body)) = handed.answer(habit) {
                        (body["op"], body["control"], body["id"]) = (json!(op), json!(handed.id), handed.lease.clone());
                        waiting.insert(handed.lease.as_str().unwrap().to_owned(), handed);
                        say(&mut socket, body).await?;
                    }
                    if turn == SOCKET_TURN {
                        say(&mut socket, json!({"op": "unclaim", "id": "w"})).await?;
                    }
                }
                "acked" | "nacked" => {
                    let handed = waiting.remove(told["id"].as_str().unwrap()).expect("it was answered");
                    self.hear(&handed, &told);
                }
                "unclaimed" => leaves = true,
                _ => {
                    assert_eq!(json!([told["op"], told["code"]]), json!(["error", "lease_lost"]), "{told}");
                    waiting.remove(told["id"].as_str().unwrap());
                }
            }
        }
        Some(())
    }

    /// Notes what was handed over, which has to be whole, and never of the same attempt or after its answer.
    fn take(&self, control: &Value) -> Handed {
        let id = control["controlId"].as_str().unwrap().to_owned();
        let (run, n) = id.rsplit_once('~').unwrap();
        let (run, n) = (json!(run), n.parse().unwrap());
        assert_eq!((&control["runId"], &control["value"]), (&run, &value(n)), "{control}");
        let attempt = control["attempt"].as_u64().unwrap();
        let mut record = self.record.lock().unwrap();
        record.found.handed += 1;
        // Somebody slow may look late at what came before the answer.
        let is_over = record.closed(&id).is_some_and(|closed| closed < attempt);
        let is_new = record.handed.entry(id.clone()).or_default().insert(attempt);
        record.found.controls_doubled += u64::from(is_over || !is_new);
        Handed { id, n, attempt, lease: control["lease"].clone() }
    }

    /// Notes what its owner was told of an answer.
    fn hear(&self, handed: &Handed, told: &Value) {
        assert_eq!(told["controlId"], handed.id.as_str());
        let status = told["status"].as_str().unwrap().to_owned();
        let mut record = self.record.lock().unwrap();
        record.answered.entry(handed.id.clone()).or_default().insert(handed.attempt, status);
    }

    /// Waits until so many more have been handed over.
    pub async fn busy(&self) {
        let handed = || self.record.lock().unwrap().found.handed;
        let until = handed() + BUSY;
        soon("controls to be handed over", async {
            while handed() < until {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// Waits until what was handed over too often in vain has been answered.
    pub async fn rested(&self) {
        let weary = std::mem::take(&mut self.record.lock().unwrap().weary);
        let is_open = || weary.iter().any(|id| self.record.lock().unwrap().closed(id).is_none());
        soon("what was handed over often to be answered", async {
            while is_open() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// What is wrong with the controls of this run, of which its log tells all this. Nobody may be working.
    pub async fn found(&self, client: &Client, run: &str, events: &[Value]) -> Figures {
        let mut found = Figures::default();
        let Some(asker) = self.askers().into_iter().find(|asker| asker.run == run) else { return found };
        let acknowledged = asker.acknowledged.load(Ordering::SeqCst);
        let listed = if events.is_empty() { Vec::new() } else { listed(client, run).await };
        let mut stories: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for event in events.iter().filter(|event| event["type"] == "control.changed") {
            stories.entry(event["payload"]["controlId"].as_str().unwrap()).or_default().push(&event["payload"]);
        }
        let mut there = BTreeSet::new();
        for (control, at) in listed.iter().zip(0..) {
            let id = control["controlId"].as_str().unwrap();
            if !there.insert(id) {
                found.controls_doubled += 1;
                continue;
            }
            assert_eq!(id, asker.id(at), "each in the order in which it was asked for");
            match stories.remove(id) {
                Some(story) => self.compare(id, control, &story, &mut found),
                None => found.controls_lost += 1,
            }
        }
        // Told of, and not there.
        found.controls_lost += stories.len() as u64;
        found.controls_lost += (0..acknowledged).filter(|n| !there.contains(asker.id(*n).as_str())).count() as u64;
        assert!(there.len() as u64 <= acknowledged + 1, "{run}: one was asked for at a time");
        found
    }

    /// Holds what is listed of a control against what the log tells of it, and both against what anybody was told.
    fn compare(&self, id: &str, control: &Value, story: &[&Value], found: &mut Figures) {
        let (mut status, mut attempt) = ("", 0);
        let mut given_back = BTreeSet::new();
        for step in story {
            let said = step["status"].as_str().unwrap();
            let of = step["attempt"].as_u64().unwrap_or(0);
            status = match (status, said) {
                ("", "submitted") if of == 0 => "queued",
                ("queued" | "claimed", "claimed") if of == attempt + 1 => "claimed",
                ("claimed", "nacked") if of == attempt && step["requeued"] == true => {
                    given_back.insert(of);
                    "queued"
                }
                ("claimed", "acked" | "nacked") if of == attempt => said,
                (before, "submitted") | (before @ ("acked" | "nacked"), _) if !before.is_empty() => {
                    found.controls_doubled += 1;
                    before
                }
                _ => panic!("{id}: {said} cannot follow {status:?}: {story:?}"),
            };
            attempt = of.max(attempt);
        }
        // Nobody has anything: this server has handed over nothing yet, or everything is answered.
        let status = if status == "claimed" { "queued" } else { status };
        assert_eq!(json!([control["status"], control["attempt"]]), json!([status, attempt]), "{id}: {story:?}");
        let mut record = self.record.lock().unwrap();
        if status == "queued" && attempt >= WEARY_FROM {
            record.weary.push(id.to_owned());
        }
        let handed = record.handed.get(id).and_then(BTreeSet::last);
        found.controls_lost += u64::from(handed.is_some_and(|last| *last > attempt));
        for (of, answer) in record.answered.get(id).into_iter().flatten() {
            let is_kept = if answer == "queued" { given_back.contains(of) } else { (answer.as_str(), *of) == (status, attempt) };
            found.controls_lost += u64::from(!is_kept);
        }
    }

    /// Everything is answered, however often it has to come back for that; what was wrong with it. Nobody may be working.
    pub async fn close(&self, client: &Client) -> Figures {
        let desk = Desk::new(client.at);
        self.answer_all(client, &desk).await;
        // One more of each, which somebody takes who dies; and what he had comes back when its lease is over.
        for asker in self.askers() {
            let n = asker.acknowledged.load(Ordering::SeqCst);
            assert!(soon("a control to be taken", asker.submit(&desk, n)).await);
            asker.acknowledged.store(n + 1, Ordering::SeqCst);
        }
        let open = self.open_count(client).await;
        assert_eq!(self.work(&desk, Habit::Dies, "max=100&leaseSeconds=1").await, Some(open));
        self.answer_all(client, &desk).await;
        let mut found = self.find_nothing(client).await;
        for asker in self.askers() {
            found.asked += asker.acknowledged.load(Ordering::SeqCst);
            for (control, n) in listed(client, &asker.run).await.iter().zip(0..) {
                found.controls_lost += u64::from(control["status"] != end(n));
            }
        }
        found
    }

    async fn answer_all(&self, client: &Client, desk: &Desk) {
        soon("every control to be answered", async {
            while self.open_count(client).await > 0 {
                self.work(desk, Habit::Answers, "wait=5&max=100").await.expect("the server is there");
            }
        })
        .await;
    }

    /// How many controls wait, or are with somebody.
    async fn open_count(&self, client: &Client) -> usize {
        let mut open = 0;
        for asker in self.askers() {
            let listed = listed(client, &asker.run).await;
            open += listed.iter().filter(|control| control["status"] == "queued" || control["status"] == "claimed").count();
        }
        open
    }

    /// Nothing is left to be handed over, and everything is as it was told; what was wrong since the last time.
    pub async fn find_nothing(&self, client: &Client) -> Figures {
        let mut found = Figures::default();
        found.controls_doubled += self.work(&Desk::new(client.at), Habit::Answers, "max=100").await.expect("a server") as u64;
        for asker in self.askers() {
            found.add(&self.found(client, &asker.run, &super::story(client, &asker.run).await).await);
        }
        found.add(&std::mem::take(&mut self.record.lock().unwrap().found));
        found
    }
}

/// The controls of a run, as it lists them.
pub async fn listed(client: &Client, run: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let page = client.get(&format!("/v1/runs/{run}/controls?audience=internal&limit=100&cursor={cursor}")).await.ok();
        all.extend(page["controls"].as_array().unwrap().iter().cloned());
        match page["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return all,
        }
    }
}

async fn say(socket: &mut WebSocketStream<TcpStream>, what: Value) -> Option<()> {
    socket.send(Message::text(what.to_string())).await.ok()
}

async fn hear(socket: &mut WebSocketStream<TcpStream>) -> Option<Value> {
    loop {
        match socket.next().await?.ok()? {
            Message::Text(text) => return Some(serde_json::from_str(&text).unwrap()),
            Message::Close(_) => return None,
            _ => {}
        }
    }
}
