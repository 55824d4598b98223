//! The stream of a cluster: its name, and what it must keep.

use crate::log::StoreError;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{Context, CreateStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use std::time::Duration;
use tokio::time::Instant;

/// The replicas of a stream with which it survives the loss of a server.
const REPLICAS: usize = 3;
/// How long a node tries to open the stream at its start, while NATS does not answer or lacks a server.
const OPEN_TIME_MAX: Duration = Duration::from_secs(15);
const RETRY_TIME: Duration = Duration::from_millis(100);

/// Where the stream of a cluster is.
#[derive(Clone)]
pub struct StreamOptions {
    /// The name of the cluster: letters, digits, `-` and `_`.
    pub cluster: String,
    /// Whether a stream with a single replica is accepted.
    pub allows_one_replica: bool,
    /// Whether appends name the sequence that they expect. Only a test of the tests turns the fence off.
    pub is_fenced: bool,
    /// Distinguishes this process from all others.
    pub writer: u64,
}

/// The name of the stream of a cluster.
#[must_use]
pub fn stream_name(cluster: &str) -> String {
    format!("PROSCENIUM_{cluster}")
}

/// Checks that the stream keeps what an acknowledgement promises.
fn check(config: &Config, options: &StreamOptions) -> Result<(), StoreError> {
    let name = &config.name;
    let refuse = |why: String| Err(StoreError::Failed { doing: "opening the stream of commits", why });
    if config.storage != StorageType::File {
        return refuse(format!("the stream {name} is in memory; its storage must be `file`"));
    }
    if config.num_replicas < REPLICAS && !options.allows_one_replica {
        return refuse(format!(
            "the stream {name} has {} replica; give it {REPLICAS}, or accept the loss of acknowledged facts with a server by \
             --cluster-allow-r1",
            config.num_replicas
        ));
    }
    if config.retention != RetentionPolicy::Limits || !config.max_age.is_zero() {
        return refuse(format!("the stream {name} deletes messages by itself; give it the retention `limits` and no max age"));
    }
    if config.max_messages > 0 || config.max_messages_per_subject > 0 {
        return refuse(format!("the stream {name} has a maximum number of messages; remove it"));
    }
    if config.max_bytes > 0 && config.discard != DiscardPolicy::New {
        return refuse(format!("the stream {name} discards old messages when it is full; set discard to `new`"));
    }
    if config.no_ack {
        return refuse(format!("the stream {name} sends no acknowledgements"));
    }
    Ok(())
}

/// Opens the stream of a cluster, or creates it, and checks that it keeps what an acknowledgement promises.
///
/// # Errors
/// `Failed` when NATS does not answer, or the stream could lose what it acknowledged.
pub async fn open_stream(context: &Context, options: &StreamOptions) -> Result<Stream, StoreError> {
    let name = stream_name(&options.cluster);
    let failed = |error: &dyn std::fmt::Display| StoreError::failed("opening the stream of commits", error);
    let config = |num_replicas| Config {
        name: name.clone(),
        subjects: vec![subject_of(&options.cluster)],
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        num_replicas,
        description: Some("Every commit of a Proscenium cluster, in order.".into()),
        ..Config::default()
    };
    let begun = Instant::now();
    let stream = loop {
        if let Ok(stream) = context.get_stream(&name).await {
            break stream;
        }
        match context.get_or_create_stream(config(REPLICAS)).await {
            Ok(stream) => break stream,
            Err(error) if is_unsettled(&error.kind(), options) && begun.elapsed() < OPEN_TIME_MAX => {
                tokio::time::sleep(RETRY_TIME).await;
            }
            Err(_) if options.allows_one_replica => {
                break context.get_or_create_stream(config(1)).await.map_err(|e| failed(&e))?;
            }
            Err(error) => {
                return Err(failed(&format_args!(
                    "{name} needs {REPLICAS} replicas, and NATS answers: {error}. Start {REPLICAS} NATS servers as one cluster, or \
                     accept the loss of acknowledged facts with a server by --cluster-allow-r1"
                )));
            }
        }
    };
    check(&stream.cached_info().config, options)?;
    Ok(stream)
}

/// Whether the servers may be about to elect a leader, or to find one that starts again.
fn is_unsettled(error: &CreateStreamErrorKind, options: &StreamOptions) -> bool {
    match error {
        CreateStreamErrorKind::TimedOut => true,
        CreateStreamErrorKind::JetStream(error) => {
            error.error_code() == ErrorCode::CLUSTER_NO_PEERS && !options.allows_one_replica
        }
        _ => false,
    }
}

/// The subject of its messages.
pub(super) fn subject_of(cluster: &str) -> String {
    format!("proscenium.{cluster}.commits")
}
