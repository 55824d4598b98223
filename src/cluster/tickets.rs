//! The tickets of a cluster: the key that signs them, and the record of the used ones, in key-value buckets.

use super::lease::{answer, open_bucket};
use crate::auth::TokenError;
use crate::auth::shared_tickets::{RECORD_SECS_MIN, SharedTickets, TicketRecord, TicketUse};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::kv::{Config, CreateErrorKind, Store, UpdateErrorKind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::time::Duration;

/// The record keeps a used ticket for this long after its stream was last seen: more, because clocks differ.
const ENTRY_TIME_MAX: Duration = Duration::from_secs(RECORD_SECS_MIN + 60);
/// The size of the record. When it is full, no ticket can be used until entries are dropped.
const RECORD_BYTES_MAX: i64 = 64 << 20;
const SECRET_KEY: &str = "tickets";

/// Opens the tickets of a cluster. `secret` becomes its secret if it has none.
pub async fn open(context: &Context, cluster: &str, num_replicas: usize, secret: &str) -> Result<SharedTickets, String> {
    let keys = Config {
        bucket: format!("PROSCENIUM_{cluster}_keys"),
        description: "The secret that signs the tickets of a Proscenium cluster.".into(),
        num_replicas,
        ..Config::default()
    };
    let keys = open_bucket(context, keys).await?;
    let secret = match keys.create(SECRET_KEY, secret.to_owned().into()).await {
        Ok(_) => secret.to_owned().into(),
        Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {
            let stored = keys.get(SECRET_KEY).await.map_err(|error| error.to_string())?;
            stored.ok_or("the secret of the cluster was deleted meanwhile")?
        }
        Err(error) => return Err(error.to_string()),
    };
    let used = Config {
        bucket: format!("PROSCENIUM_{cluster}_tickets"),
        description: "The used tickets of a Proscenium cluster.".into(),
        max_age: ENTRY_TIME_MAX,
        max_bytes: RECORD_BYTES_MAX,
        num_replicas,
        ..Config::default()
    };
    Ok(SharedTickets::new(&secret, UsedTickets { store: open_bucket(context, used).await? }))
}

struct UsedTickets {
    store: Store,
}

fn unrecorded(error: impl std::fmt::Display) -> TokenError {
    tracing::warn!(%error, "cannot reach the record of used tickets");
    TokenError::Unrecorded
}

impl TicketRecord for UsedTickets {
    fn read<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<TicketUse>, TokenError>> {
        async move {
            let entry = answer(self.store.entry(id)).await.map_err(unrecorded)?;
            let seen = |value: &[u8]| std::str::from_utf8(value).ok()?.parse().ok();
            Ok(entry.and_then(|entry| Some(TicketUse { seen: seen(&entry.value)?, revision: entry.revision })))
        }
        .boxed()
    }

    fn write<'a>(&'a self, id: &'a str, seen: u64, revision: u64) -> BoxFuture<'a, Result<Option<u64>, TokenError>> {
        async move {
            let written = self.store.update(id, seen.to_string().into(), revision).map(|written| match written {
                Ok(revision) => Ok(Some(revision)),
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(None),
                Err(error) => Err(error),
            });
            answer(written).await.map_err(unrecorded)
        }
        .boxed()
    }
}
