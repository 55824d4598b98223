//! Controls under load: submitters, workers, and one record of every answer.
//!
//! Submitters number their controls, repeat each until it is acknowledged, and repeat old ones now and then. Workers
//! claim by long polls and over a WebSocket; some answer, some requeue, some disconnect with open claims. The kills
//! come in between. The server's lists and its logs must agree with each other and with every recorded answer.

use super::KILLS_PER_RUN;
use super::figures::Figures;
use crate::harness::{Client, install_crypto_provider, with_timeout};
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

/// Controls that one run gets between two kills, so that its log remembers all of them to the end.
const SUBMITTED_MAX: u64 = CLOSED_CONTROLS_MAX as u64 / KILLS_PER_RUN - 1;
/// From this attempt on every worker answers, so that no control reaches the attempt limit.
const ALWAYS_ANSWER_FROM: u64 = 4;
/// A control with this many attempts after a restart is answered before the next kill.
///
/// The kill must not use its last attempt.
const OVERDUE_FROM: u64 = ATTEMPTS_MAX as u64 - 4;
/// The minimum number of claims between two kills that come under load.
const CLAIMS_PER_ROUND: u64 = 24;
/// The number of controls that a WebSocket worker claims before it disconnects.
const CLAIMS_PER_SOCKET: usize = 9;

/// A plain client that treats the server's end as a result.
struct ApiClient {
    http: reqwest::Client,
    at: SocketAddr,
}

impl ApiClient {
    fn new(at: SocketAddr) -> Self {
        install_crypto_provider();
        Self { http: reqwest::Client::builder().no_proxy().build().unwrap(), at }
    }

    /// Returns the response's status and body; `None` if the server is gone.
    async fn post(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let answer = self.http.post(format!("http://{}{path}", self.at)).body(body.to_string()).send().await.ok()?;
        Some((answer.status().as_u16(), answer.json().await.ok()?))
    }
}

/// A submitter of controls for one run.
struct Submitter {
    run: String,
    acknowledged: AtomicU64,
}

impl Submitter {
    fn id(&self, n: u64) -> String {
        format!("{}~{n}", self.run)
    }

    /// Submits one control after the other, until the server is gone.
    async fn submit_all(&self, api: &ApiClient) {
        let begin = self.acknowledged.load(Ordering::SeqCst);
        for n in begin..begin + SUBMITTED_MAX {
            if !self.submit(api, n).await {
                return;
            }
            self.acknowledged.store(n + 1, Ordering::SeqCst);
            // Repeat an old control, open or settled: it must not exist twice.
            if n % 5 == 4 && !self.submit(api, n / 2).await {
                return;
            }
        }
    }

    /// Submits one control until it is acknowledged; `false` if the server is gone.
    async fn submit(&self, api: &ApiClient, n: u64) -> bool {
        let control = ["queue", "steer", "send"][n as usize % 3];
        let wish = json!({"controlId": self.id(n), "control": control, "value": value(n)});
        loop {
            let Some((status, response)) = api.post(&format!("/v1/runs/{}/controls", self.run), &wish).await else {
                return false;
            };
            match (status, response["code"].as_str()) {
                (202, None) => {
                    assert_eq!(response, json!({"controlId": self.id(n), "status": "queued"}));
                    return true;
                }
                // Its producer, or the workers, come first.
                (404, Some("no_such_run")) | (429, Some("too_many_controls")) => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                _ => panic!("{status}: {response}"),
            }
        }
    }
}

fn value(n: u64) -> Value {
    json!({"n": n, "text": "x".repeat(100)})
}

/// How a worker deals with a claimed control.
#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Answers,
    /// Requeues half of its claims.
    Requeues,
    /// Drops half of its claims.
    DropsHalf,
    /// Drops all of its claims.
    DropsAll,
}

/// A claimed control.
struct Claim {
    id: String,
    n: u64,
    attempt: u64,
    lease: Value,
}

impl Claim {
    /// Returns the answer's path segment and body; `None` for a dropped claim.
    fn answer(&self, behaviour: Behaviour) -> Option<(&'static str, Value)> {
        let is_half = self.attempt < ALWAYS_ANSWER_FROM && (self.n + self.attempt).is_multiple_of(2);
        match behaviour {
            Behaviour::DropsAll => None,
            Behaviour::DropsHalf if is_half => None,
            Behaviour::Requeues if is_half => Some(("nack", json!({"lease": self.lease, "requeue": true, "reason": "not now"}))),
            _ if end(self.n) == "nacked" => Some(("nack", json!({"lease": self.lease, "reason": "no"}))),
            _ => Some(("ack", json!({"lease": self.lease}))),
        }
    }
}

/// Returns a control's final status: every sixteenth is refused.
const fn end(n: u64) -> &'static str {
    if n % 16 == 15 { "nacked" } else { "acked" }
}

/// All answers that submitters and workers received, over all runs.
#[derive(Default)]
struct Observations {
    /// The attempts of each control's claims.
    claimed: BTreeMap<String, BTreeSet<u64>>,
    /// The status that the server returned for each answered attempt.
    answered: BTreeMap<String, BTreeMap<u64, String>>,
    /// The controls that must be answered before the next kill.
    overdue: Vec<String>,
    found: Figures,
}

impl Observations {
    /// Returns the attempt whose answer settled a control.
    fn closed(&self, id: &str) -> Option<u64> {
        let answered = self.answered.get(id)?;
        answered.iter().find(|(_, status)| *status != "queued").map(|(attempt, _)| *attempt)
    }
}

/// The submitters and the workers.
#[derive(Default)]
pub struct ControlLoad {
    submitters: Mutex<Vec<Arc<Submitter>>>,
    record: Mutex<Observations>,
}

impl ControlLoad {
    /// Replaces the submitters: one for each of these runs.
    pub fn start_runs(&self, runs: impl Iterator<Item = String>) {
        let submitter = |run| Arc::new(Submitter { run, acknowledged: AtomicU64::new(0) });
        *self.submitters.lock().unwrap() = runs.map(submitter).collect();
    }

    fn submitters(&self) -> Vec<Arc<Submitter>> {
        self.submitters.lock().unwrap().clone()
    }

    /// Spawns a task per submitter and worker, which works until the server is gone.
    pub fn spawn_all(self: &Arc<Self>, at: SocketAddr) -> Vec<JoinHandle<()>> {
        let api = Arc::new(ApiClient::new(at));
        let mut working: Vec<_> = self
            .submitters()
            .into_iter()
            .map(|submitter| {
                let api = api.clone();
                tokio::spawn(async move { submitter.submit_all(&api).await })
            })
            .collect();
        for (behaviour, query) in [
            (Behaviour::Answers, "wait=30&max=8"),
            (Behaviour::Requeues, "wait=30&max=4"),
            (Behaviour::DropsHalf, "wait=30&max=2&leaseSeconds=1"),
        ] {
            let (load, api) = (self.clone(), api.clone());
            working.push(tokio::spawn(async move { while load.work(&api, behaviour, query).await.is_some() {} }));
        }
        let load = self.clone();
        working.push(tokio::spawn(async move { while load.work_on_socket(at).await.is_some() {} }));
        working
    }

    /// Claims once and deals with the claims; returns their number, or `None` if the server is gone.
    async fn work(&self, api: &ApiClient, behaviour: Behaviour, query: &str) -> Option<usize> {
        let (status, response) = api.post(&format!("/v1/agents/default/controls/claim?{query}"), &Value::Null).await?;
        assert_eq!(status, 200, "{response}");
        let controls = response["controls"].as_array().unwrap();
        for control in controls {
            let claimed = self.note_claim(control);
            let Some((how, body)) = claimed.answer(behaviour) else { continue };
            let (status, response) = api.post(&format!("/v1/controls/{}/{how}", claimed.id), &body).await?;
            match status {
                200 => self.note_answer(&claimed, &response),
                // The lease expired on a slow machine; another worker gets the control.
                _ => assert_eq!((status, &response["code"]), (409, &json!("lease_lost"))),
            }
        }
        Some(controls.len())
    }

    /// Works on a WebSocket for a while and then disconnects with its open claims.
    ///
    /// `None` if the server is gone.
    async fn work_on_socket(&self, at: SocketAddr) -> Option<()> {
        let socket = TcpStream::connect(at).await.ok()?;
        let (mut socket, _) = tokio_tungstenite::client_async(format!("ws://{at}/v1/ws"), socket).await.ok()?;
        send(&mut socket, json!({"op": "claim", "id": "w", "agentId": "default", "max": 4, "leaseSeconds": 1})).await?;
        // Answered claims by lease: a slow worker may get a control again before the answer to its first claim arrives.
        let mut waiting: HashMap<String, Claim> = HashMap::new();
        let (mut turn, mut leaves) = (0, false);
        while !(leaves && waiting.is_empty()) {
            let response = receive(&mut socket).await?;
            match response["op"].as_str().unwrap() {
                "claiming" => {}
                "control" => {
                    let claimed = self.note_claim(&response);
                    turn += 1;
                    let behaviour = if turn < CLAIMS_PER_SOCKET { Behaviour::Answers } else { Behaviour::DropsHalf };
                    if let Some((op, mut body)) = claimed.answer(behaviour) {
                        (body["op"], body["control"], body["id"]) = (json!(op), json!(claimed.id), claimed.lease.clone());
                        waiting.insert(claimed.lease.as_str().unwrap().to_owned(), claimed);
                        send(&mut socket, body).await?;
                    }
                    if turn == CLAIMS_PER_SOCKET {
                        send(&mut socket, json!({"op": "unclaim", "id": "w"})).await?;
                    }
                }
                "acked" | "nacked" => {
                    let claimed = waiting.remove(response["id"].as_str().unwrap()).expect("the claim was answered");
                    self.note_answer(&claimed, &response);
                }
                "unclaimed" => leaves = true,
                _ => {
                    assert_eq!(json!([response["op"], response["code"]]), json!(["error", "lease_lost"]), "{response}");
                    waiting.remove(response["id"].as_str().unwrap());
                }
            }
        }
        Some(())
    }

    /// Records a claim. The value must be complete; an attempt must be new and not follow its answer.
    fn note_claim(&self, control: &Value) -> Claim {
        let id = control["controlId"].as_str().unwrap().to_owned();
        let (run, n) = id.rsplit_once('~').unwrap();
        let (run, n) = (json!(run), n.parse().unwrap());
        assert_eq!((&control["runId"], &control["value"]), (&run, &value(n)), "{control}");
        let attempt = control["attempt"].as_u64().unwrap();
        let mut record = self.record.lock().unwrap();
        record.found.claimed += 1;
        // A slow worker may process a claim after a later answer.
        let is_over = record.closed(&id).is_some_and(|closed| closed < attempt);
        let is_new = record.claimed.entry(id.clone()).or_default().insert(attempt);
        record.found.controls_duplicated += u64::from(is_over || !is_new);
        Claim { id, n, attempt, lease: control["lease"].clone() }
    }

    /// Records the server's response to an answer.
    fn note_answer(&self, claimed: &Claim, response: &Value) {
        assert_eq!(response["controlId"], claimed.id.as_str());
        let status = response["status"].as_str().unwrap().to_owned();
        let mut record = self.record.lock().unwrap();
        record.answered.entry(claimed.id.clone()).or_default().insert(claimed.attempt, status);
    }

    /// Waits until this many more controls have been claimed.
    pub async fn wait_for_claims(&self) {
        let claimed = || self.record.lock().unwrap().found.claimed;
        let until = claimed() + CLAIMS_PER_ROUND;
        with_timeout("further claims", async {
            while claimed() < until {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// Waits until the controls with too many attempts are settled.
    pub async fn wait_for_overdue(&self) {
        let overdue = std::mem::take(&mut self.record.lock().unwrap().overdue);
        let is_open = || overdue.iter().any(|id| self.record.lock().unwrap().closed(id).is_none());
        with_timeout("the answers to repeatedly claimed controls", async {
            while is_open() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Compares this run's controls with its log. No worker may be active.
    pub async fn found(&self, client: &Client, run: &str, events: &[Value]) -> Figures {
        let mut found = Figures::default();
        let Some(submitter) = self.submitters().into_iter().find(|submitter| submitter.run == run) else { return found };
        let acknowledged = submitter.acknowledged.load(Ordering::SeqCst);
        let listed = if events.is_empty() { Vec::new() } else { list_controls(client, run).await };
        let mut stories: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for event in events.iter().filter(|event| event["type"] == "control.changed") {
            stories.entry(event["payload"]["controlId"].as_str().unwrap()).or_default().push(&event["payload"]);
        }
        let mut there = BTreeSet::new();
        for (control, at) in listed.iter().zip(0..) {
            let id = control["controlId"].as_str().unwrap();
            if !there.insert(id) {
                found.controls_duplicated += 1;
                continue;
            }
            assert_eq!(id, submitter.id(at), "controls in the order of submission");
            match stories.remove(id) {
                Some(story) => self.compare(id, control, &story, &mut found),
                None => found.controls_lost += 1,
            }
        }
        // The log names a control that is missing.
        found.controls_lost += stories.len() as u64;
        found.controls_lost += (0..acknowledged).filter(|n| !there.contains(submitter.id(*n).as_str())).count() as u64;
        assert!(there.len() as u64 <= acknowledged + 1, "{run}: only one control is submitted at a time");
        found
    }

    /// Compares a listed control with the log's events about it, and both with the recorded answers.
    fn compare(&self, id: &str, control: &Value, story: &[&Value], found: &mut Figures) {
        let (mut status, mut attempt) = ("", 0);
        let mut given_back = BTreeSet::new();
        for step in story {
            let step_status = step["status"].as_str().unwrap();
            let of = step["attempt"].as_u64().unwrap_or(0);
            status = match (status, step_status) {
                ("", "submitted") if of == 0 => "queued",
                ("queued" | "claimed", "claimed") if of == attempt + 1 => "claimed",
                // The claim before did not reach its claimant, so it was no attempt.
                ("claimed", "claimed") if of == attempt => "claimed",
                ("claimed", "nacked") if of == attempt && step["requeued"] == true => {
                    given_back.insert(of);
                    "queued"
                }
                ("claimed", "acked" | "nacked") if of == attempt => step_status,
                (before, "submitted") | (before @ ("acked" | "nacked"), _) if !before.is_empty() => {
                    found.controls_duplicated += 1;
                    before
                }
                _ => panic!("{id}: {step_status} cannot follow {status:?}: {story:?}"),
            };
            attempt = of.max(attempt);
        }
        // No claim is open: this server has given out no claims yet, or all are answered.
        let status = if status == "claimed" { "queued" } else { status };
        assert_eq!(json!([control["status"], control["attempt"]]), json!([status, attempt]), "{id}: {story:?}");
        let mut record = self.record.lock().unwrap();
        if status == "queued" && attempt >= OVERDUE_FROM {
            record.overdue.push(id.to_owned());
        }
        let claimed = record.claimed.get(id).and_then(BTreeSet::last);
        found.controls_lost += u64::from(claimed.is_some_and(|last| *last > attempt));
        for (of, answer) in record.answered.get(id).into_iter().flatten() {
            let is_kept = if answer == "queued" { given_back.contains(of) } else { (answer.as_str(), *of) == (status, attempt) };
            found.controls_lost += u64::from(!is_kept);
        }
    }

    /// Answers every control, after as many claims as needed; returns the errors. No worker may be active.
    pub async fn close(&self, client: &Client) -> Figures {
        let api = ApiClient::new(client.at);
        self.answer_all(client, &api).await;
        // One more control per run is claimed by a worker that drops it; it is claimable again after its lease.
        for submitter in self.submitters() {
            let n = submitter.acknowledged.load(Ordering::SeqCst);
            assert!(with_timeout("the acceptance of a control", submitter.submit(&api, n)).await);
            submitter.acknowledged.store(n + 1, Ordering::SeqCst);
        }
        let open = self.open_count(client).await;
        assert_eq!(self.work(&api, Behaviour::DropsAll, "max=100&leaseSeconds=1").await, Some(open));
        self.answer_all(client, &api).await;
        let mut found = self.check_idle(client).await;
        for submitter in self.submitters() {
            found.submitted += submitter.acknowledged.load(Ordering::SeqCst);
            for (control, n) in list_controls(client, &submitter.run).await.iter().zip(0..) {
                found.controls_lost += u64::from(control["status"] != end(n));
            }
        }
        found
    }

    async fn answer_all(&self, client: &Client, api: &ApiClient) {
        with_timeout("the answers to all controls", async {
            while self.open_count(client).await > 0 {
                self.work(api, Behaviour::Answers, "wait=5&max=100").await.expect("the server runs");
            }
        })
        .await;
    }

    /// Counts the queued and the claimed controls.
    async fn open_count(&self, client: &Client) -> usize {
        let mut open = 0;
        for submitter in self.submitters() {
            let listed = list_controls(client, &submitter.run).await;
            open += listed.iter().filter(|control| control["status"] == "queued" || control["status"] == "claimed").count();
        }
        open
    }

    /// Asserts that no control is claimable and that all are as recorded.
    ///
    /// Returns the errors since the last check.
    pub async fn check_idle(&self, client: &Client) -> Figures {
        let mut found = Figures::default();
        found.controls_duplicated +=
            self.work(&ApiClient::new(client.at), Behaviour::Answers, "max=100").await.expect("the server runs") as u64;
        for submitter in self.submitters() {
            found.add(&self.found(client, &submitter.run, &super::read_log(client, &submitter.run).await).await);
        }
        found.add(&std::mem::take(&mut self.record.lock().unwrap().found));
        found
    }
}

/// Lists the controls of a run.
pub async fn list_controls(client: &Client, run: &str) -> Vec<Value> {
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

async fn send(socket: &mut WebSocketStream<TcpStream>, what: Value) -> Option<()> {
    socket.send(Message::text(what.to_string())).await.ok()
}

async fn receive(socket: &mut WebSocketStream<TcpStream>) -> Option<Value> {
    loop {
        match socket.next().await?.ok()? {
            Message::Text(text) => return Some(serde_json::from_str(&text).unwrap()),
            Message::Close(_) => return None,
            _ => {}
        }
    }
}
