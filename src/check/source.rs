//! A runtime's own facts, taken through the real write path before they are checked: adapter, ledger, guard and log, in memory.

use crate::guard::Policy;
use crate::ingest::{Delivery, Ingest, IngestError, Environment};
use crate::log::memory::MemoryStore;
use crate::log::run::{Logs, rows_after};
use crate::log::{Limit, LogId};
use crate::model::{Audience, Ids, RunId, Sequence};
use crate::source::SourceKind;
use bytes::Bytes;
use serde_json::Value;

/// The run that facts of a file are of: nobody else names it.
const RUN: &str = "checked";

/// How much of the log is read at once.
const PAGE: Limit = Limit { rows: 1000, bytes: 1024 * 1024 };

/// The envelopes that these facts lead to, as this audience gets them.
///
/// # Errors
/// [`IngestError::Fact`] with the index of the first fact that cannot be one.
pub async fn envelopes(
    source: &'static SourceKind,
    facts: Vec<Value>,
    audience: Audience,
    environment: Environment,
) -> Result<Vec<Bytes>, IngestError> {
    let (logs, mut groups) = Logs::open(MemoryStore::new())?;
    // The part of a server that answers whoever waits for a commit; there are no readers.
    let answering = tokio::spawn(async move {
        while let Some(group) = groups.recv().await {
            group.acks.into_iter().for_each(|(ack, outcome)| drop(ack.send(outcome)));
        }
    });
    let log = LogId::Run(RunId::new(RUN).expect("a short name is an id"));
    let ingest = Ingest::new(logs.clone(), Policy::default(), environment);
    let given = Ids::default();
    let facts = facts.into();
    let delivery = Delivery { log: log.clone(), source, given, producer: None, facts, atomic: true, epoch: None, write_scope: None };
    ingest.deliver(delivery).await?;
    let tail = logs.log(&log).await?.tail();
    let (mut envelopes, mut at) = (Vec::new(), Sequence::NONE);
    while let Some(epoch) = tail.epoch.filter(|_| at < tail.last) {
        for row in rows_after(logs.read(&log, epoch, at, PAGE).await?, at) {
            at = row.sequence();
            envelopes.extend(row.view(audience).map(Bytes::copy_from_slice));
        }
    }
    answering.abort();
    Ok(envelopes)
}
