//! Reads the messages of a stream in order, and goes on after any failure of a connection or a server.

use super::parts::RecordPart;
use crate::log::StoreError;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::Stream;
use futures_util::StreamExt;
use std::time::Duration;

/// How long one request for messages waits at the server.
const REQUEST_TIME: Duration = Duration::from_millis(500);
/// Time without an answer after which the consumer is taken for lost, and made again.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(1500);
/// Requests in a row without a message after which the consumer is made again.
///
/// A server that starts again has lost the consumers in its memory, and ends requests to them like idle ones.
const IDLE_REQUESTS_MAX: usize = 3;
/// Messages and bytes of one request.
const REQUEST_MESSAGES_MAX: usize = 2048;
const REQUEST_BYTES_MAX: usize = 8 << 20;
/// The server deletes a consumer that stays unread for this long.
const INACTIVE_TIME_MAX: Duration = Duration::from_secs(10);

/// Reads messages from a sequence on.
pub struct StreamReader {
    stream: Stream,
    /// The sequence of the next message.
    next: u64,
    consumer: Option<PullConsumer>,
    batch: Option<pull::Batch>,
    /// Requests in a row that ended without a message.
    idle_requests: usize,
}

impl StreamReader {
    pub const fn new(stream: Stream, next: u64) -> Self {
        Self { stream, next, consumer: None, batch: None, idle_requests: 0 }
    }

    /// The next message and its sequence. Waits for it, through any failure of the connection.
    ///
    /// # Errors
    /// `Failed` if the stream no longer has the message; `Corrupt` if another program wrote it.
    pub async fn next(&mut self) -> Result<(u64, RecordPart), StoreError> {
        loop {
            match self.try_next().await {
                Ok(Some(read)) => return Ok(read),
                // The request has ended without a message. A lost consumer answers the same way.
                Ok(None) => {
                    (self.batch, self.idle_requests) = (None, self.idle_requests + 1);
                    if self.idle_requests >= IDLE_REQUESTS_MAX {
                        (self.consumer, self.idle_requests) = (None, 0);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
                Err(Interrupted::Fatal(error)) => return Err(error),
                Err(Interrupted::Connection(error)) => {
                    tracing::debug!(error, next = self.next, "reading the stream was interrupted; it goes on");
                    (self.consumer, self.batch) = (None, None);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn try_next(&mut self) -> Result<Option<(u64, RecordPart)>, Interrupted> {
        if self.consumer.is_none() {
            let config = pull::Config {
                deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.next },
                ack_policy: AckPolicy::None,
                inactive_threshold: INACTIVE_TIME_MAX,
                memory_storage: true,
                num_replicas: 1,
                ..pull::Config::default()
            };
            self.consumer = Some(limited(self.stream.create_consumer(config)).await?);
        }
        if self.batch.is_none()
            && let Some(consumer) = &self.consumer
        {
            let batch = consumer.batch().max_messages(REQUEST_MESSAGES_MAX).max_bytes(REQUEST_BYTES_MAX).expires(REQUEST_TIME);
            self.batch = Some(limited(batch.messages()).await?);
        }
        let batch = self.batch.as_mut().expect("it was made above");
        let Some(message) = limited(async { Ok::<_, String>(batch.next().await) }).await? else { return Ok(None) };
        let message = message.map_err(|error| Interrupted::Connection(error.to_string()))?;
        let sequence = message.info().map_err(|error| Interrupted::Connection(error.to_string()))?.stream_sequence;
        if sequence != self.next {
            let first =
                self.stream.get_info().await.map_err(|error| Interrupted::Connection(error.to_string()))?.state.first_sequence;
            if self.next < first {
                let why = format!(
                    "the messages {} to {} are gone, because the cluster did without this node for too long. Start it again: it \
                     restores the newest snapshot",
                    self.next,
                    first - 1
                );
                return Err(Interrupted::Fatal(StoreError::Forgotten { why }));
            }
            return Err(Interrupted::Connection(format!("message {sequence} came instead of {}", self.next)));
        }
        let part = RecordPart::decode(message.payload.clone()).ok_or_else(|| {
            let what = format!("message {sequence} is no part of a commit; another program wrote it");
            Interrupted::Fatal(StoreError::Corrupt { path: message.subject.as_str().into(), what })
        })?;
        (self.next, self.idle_requests) = (self.next + 1, 0);
        Ok(Some((sequence, part)))
    }
}

/// Why a message was not read.
enum Interrupted {
    Connection(String),
    Fatal(StoreError),
}

/// Waits for an answer of the server, for a limited time.
async fn limited<T, E: ToString>(answer: impl Future<Output = Result<T, E>>) -> Result<T, Interrupted> {
    match tokio::time::timeout(ANSWER_TIME_MAX, answer).await {
        Ok(answer) => answer.map_err(|error| Interrupted::Connection(error.to_string())),
        Err(_) => Err(Interrupted::Connection("the server does not answer".into())),
    }
}
