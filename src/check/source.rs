//! Runs a runtime's own facts through the real write path in memory: adapter, ledger, guard and log.

use crate::environment::Environment;
use crate::guard::Policy;
use crate::ingest::{Delivery, Ingest, IngestError};
use crate::log::commit::{Logs, rows_after};
use crate::log::journal::MemoryJournal;
use crate::log::memory::MemoryStore;
use crate::log::{Limit, LogId};
use crate::model::{Audience, RunId, Sequence};
use crate::source::SourceKind;
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;

/// The id of the temporary run that holds a file's facts.
const RUN: &str = "checked";

/// The size of one read from the log.
const PAGE: Limit = Limit { rows: 1000, bytes: 1024 * 1024 };

/// Returns the envelopes that these facts produce for this audience.
///
/// # Errors
/// [`IngestError::Fact`] with the index of the first invalid fact.
pub async fn envelopes(
    source: &'static SourceKind,
    facts: Vec<Value>,
    audience: Audience,
    environment: Environment,
) -> Result<Vec<Bytes>, IngestError> {
    let (logs, mut groups) = Logs::open(MemoryStore::new(), Arc::new(MemoryJournal::default()))?;
    // This task replaces the part of the server that acknowledges commits; nothing reads the log live.
    let acknowledging = tokio::spawn(async move {
        while let Some(group) = groups.recv().await {
            group.acks.into_iter().for_each(|(ack, outcome)| drop(ack.send(outcome)));
        }
    });
    let log = LogId::Run(RunId::new(RUN).expect("a short name is a valid id"));
    let ingest = Ingest::new(logs.clone(), Policy::default(), environment);
    ingest.deliver(Delivery::new(log.clone(), source, facts.into())).await?;
    let tail = logs.log(&log).await?.tail();
    let (mut envelopes, mut at) = (Vec::new(), Sequence::NONE);
    while let Some(epoch) = tail.epoch.filter(|_| at < tail.last) {
        for row in rows_after(logs.read(&log, epoch, at, PAGE).await?, at) {
            at = row.sequence();
            envelopes.extend(row.view(audience).map(Bytes::copy_from_slice));
        }
    }
    acknowledging.abort();
    Ok(envelopes)
}
