//! Writes to a journal that does not answer: each gets an answer, and nothing is lost or doubled when the journal does.

use crate::harness::{environment, fact, with_timeout};
use bytes::Bytes;
use proscenium::guard::Policy;
use proscenium::ingest::{CompactionPlan, Delivery, Ingest, IngestError, Pending};
use proscenium::log::commit::{Logs, rows_after};
use proscenium::log::journal::{Appended, Journal, JournalState, MemoryJournal, Record};
use proscenium::log::memory::MemoryStore;
use proscenium::log::{Leader, Limit, LogId, StoreError};
use proscenium::model::{Audience, RunId, Sequence};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// A journal of a cluster whose answers a test holds back.
struct SilentJournal {
    records: MemoryJournal,
    answers: watch::Sender<bool>,
    /// Counts the appends that have begun.
    begun: watch::Sender<u64>,
    /// Each permit declares one append overdue.
    overdue: Semaphore,
    moved: watch::Sender<u64>,
}

impl JournalState for SilentJournal {
    fn path(&self) -> PathBuf {
        self.records.path()
    }

    fn others(&self) -> Option<watch::Receiver<u64>> {
        Some(self.moved.subscribe())
    }
}

impl Journal for SilentJournal {
    fn bounds(&self) -> (u64, u64) {
        self.records.bounds()
    }

    async fn append(&self, expected: u64, parts: &[Bytes]) -> Result<Appended, StoreError> {
        self.begun.send_modify(|begun| *begun += 1);
        self.answers.subscribe().wait_for(|answers| *answers).await.unwrap();
        self.records.append(expected, parts).await
    }

    async fn overdue(&self) {
        self.overdue.acquire().await.unwrap().forget();
    }

    async fn read(&self, after: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError> {
        self.records.read(after, bytes_max).await
    }

    async fn truncate_before(&self, position: u64) -> Result<(), StoreError> {
        self.records.truncate_before(position).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The write path of a node that leads.
struct Node {
    journal: Arc<SilentJournal>,
    logs: Arc<Logs>,
    ingest: Ingest,
}

fn log() -> LogId {
    LogId::Run(RunId::new("r").unwrap())
}

fn says(text: &str) -> Delivery {
    let facts = vec![fact("text.delta", json!({ "messageId": "m", "payload": { "text": text } }))];
    let source = proscenium::source::by_name("agentui").unwrap();
    Delivery { atomic: false, ..Delivery::new(log(), source, facts.into()) }
}

fn assert_no_leader<T: std::fmt::Debug>(answer: Result<T, IngestError>) {
    assert!(matches!(answer, Err(IngestError::Store(StoreError::NotLeader))), "{answer:?}");
}

impl Node {
    async fn start() -> Self {
        let journal = Arc::new(SilentJournal {
            records: MemoryJournal::default().keeping_all(),
            answers: watch::Sender::new(true),
            begun: watch::Sender::new(0),
            overdue: Semaphore::new(0),
            moved: watch::Sender::new(0),
        });
        let (logs, mut groups) = Logs::open(MemoryStore::new(), journal.clone()).unwrap();
        tokio::spawn(async move {
            while let Some(group) = groups.recv().await {
                group.acks.into_iter().for_each(|(ack, outcome)| drop(ack.send(outcome)));
            }
        });
        let ingest = Ingest::new(logs.clone(), Policy::default(), environment(jiff::Timestamp::now));
        let node = Self { journal, logs, ingest };
        node.lead(1).await;
        node
    }

    async fn lead(&self, term: u64) {
        self.logs.leadership().extend(Instant::now() + Duration::from_hours(1));
        with_timeout("the leader record", self.logs.lead(Leader { term, node: "a".into() })).await.unwrap();
    }

    async fn submit(&self, delivery: Delivery) -> Pending<'_> {
        let admitted = self.ingest.admit(&delivery).await.unwrap();
        self.ingest.submit(delivery, admitted).await.unwrap()
    }

    /// Holds back every answer from now on; returns what resolves when the next append has begun.
    fn silence(&self) -> impl Future<Output = ()> + use<> {
        self.journal.answers.send_replace(false);
        let mut begun = self.journal.begun.subscribe();
        let before = *begun.borrow_and_update();
        async move { drop(begun.wait_for(|begun| *begun > before).await.unwrap()) }
    }

    async fn texts(&self) -> Vec<String> {
        let epoch = self.logs.log(&log()).await.unwrap().tail().epoch.unwrap();
        let all = Limit { rows: usize::MAX, bytes: usize::MAX };
        let rows = self.logs.read(&log(), epoch, Sequence::NONE, all).await.unwrap();
        let view = |row: proscenium::log::row::Row| {
            serde_json::from_slice::<Value>(row.view(Audience::Internal).unwrap()).unwrap()["payload"]["text"].clone()
        };
        let texts = rows_after(rows, Sequence::NONE).filter_map(|row| view(row).as_str().map(str::to_owned));
        texts.collect()
    }
}

#[tokio::test]
async fn an_append_that_is_stored_after_its_log_refused_a_later_one_is_stored_once() {
    let node = Node::start().await;
    node.ingest.deliver(says("0")).await.unwrap();
    let begun = node.silence();
    let mut first = node.submit(says("1")).await;
    with_timeout("the append", begun).await;
    let mut behind = node.submit(says("2")).await;
    node.journal.overdue.add_permits(1);
    let answer = with_timeout("the answer to the append on its way", first.durable()).await;
    assert!(matches!(answer, Err(IngestError::Store(StoreError::Unconfirmed))), "{answer:?}");
    assert_no_leader(with_timeout("the answer to the append behind it", behind.durable()).await);
    // As the server does with an answered request: the next writer accepts what a caller still waits for.
    drop(behind);
    node.journal.answers.send_replace(true);
    node.lead(2).await;
    with_timeout("the answer to the repeat", node.ingest.deliver(says("2"))).await.unwrap();
    assert_eq!(node.texts().await, ["0", "1", "2"]);
}

#[tokio::test]
async fn a_write_to_a_log_whose_compaction_has_no_answer_is_refused() {
    let node = Node::start().await;
    node.ingest.deliver(says("0")).await.unwrap();
    let (id, tail) = (log(), node.logs.log(&log()).await.unwrap().tail());
    let begun = node.silence();
    let compacting = node.ingest.compact(&id, &tail, CompactionPlan::default());
    let writing = async {
        with_timeout("the compaction's append", begun).await;
        // One waits for the compaction when it becomes overdue, and one comes later.
        let waiting = node.ingest.deliver(says("1"));
        let overdue = async { node.journal.overdue.add_permits(1) };
        let (waiting, ()) = tokio::join!(with_timeout("the answer to a write that waits", waiting), overdue);
        assert_no_leader(waiting);
        assert_no_leader(with_timeout("the answer to a later write", node.ingest.deliver(says("1"))).await);
        node.journal.answers.send_replace(true);
    };
    let (compacted, ()) = tokio::join!(compacting, writing);
    assert!(compacted.unwrap());
    node.lead(2).await;
    with_timeout("the answer to the repeat", node.ingest.deliver(says("1"))).await.unwrap();
    assert_eq!(node.texts().await, ["0", "1"]);
}
