//! Deliveries: an event on its way to one destination, and when it is tried again.

use super::event::StatusEvent;
use crate::log::server_state::StateRecord;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Open deliveries of one destination; further events are dropped, and counted.
pub const OPEN_MAX: usize = 10_000;
/// Closed deliveries that are remembered for each destination.
pub const CLOSED_MAX: usize = 100;
/// Attempts at one destination at once.
pub const CONCURRENT_MAX: usize = 8;

/// The pauses before each attempt, of the Standard Webhooks specification.
const PAUSES: [Duration; 10] = [
    Duration::ZERO,
    Duration::from_secs(5),
    Duration::from_mins(5),
    Duration::from_mins(30),
    Duration::from_hours(2),
    Duration::from_hours(5),
    Duration::from_hours(10),
    Duration::from_hours(14),
    Duration::from_hours(20),
    Duration::from_hours(24),
];
/// The longest pause that a receiver can ask for.
const RETRY_AFTER_MAX: Duration = PAUSES[9];

/// How a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    /// It is tried until it succeeds.
    Open,
    /// The receiver took it.
    Delivered,
    /// No attempt succeeded.
    Failed,
    /// What it is about was erased, or is not visible to the destination.
    Dropped,
}

/// The result of the last attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptOutcome {
    /// In milliseconds since 1970.
    pub at: i64,
    /// The status of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The class of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureClass>,
}

/// Why an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The answer has a status other than 2xx.
    Status,
    /// The answer is a redirect, which is not followed.
    Redirect,
    /// The receiver is gone for good: 410.
    Gone,
    /// The address, or what its name resolves to, is not public.
    PrivateAddress,
    /// No connection.
    Connect,
    /// No answer in time.
    Timeout,
    /// Something else in the exchange.
    Protocol,
}

/// An event on its way to a destination. Its key is the destination, the position of the event, and a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// The same for each attempt, and for an event that is read again.
    pub id: String,
    pub event: StatusEvent,
    pub state: DeliveryState,
    pub attempts: u32,
    /// When it is tried next, in milliseconds since 1970.
    pub next_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<AttemptOutcome>,
}

impl StateRecord for Notification {
    const TABLE: &'static str = "delivery";
}

impl Notification {
    /// A delivery that is tried at once.
    #[must_use]
    pub const fn new(id: String, event: StatusEvent, now: i64) -> Self {
        Self { id, event, state: DeliveryState::Open, attempts: 0, next_at: now, last: None }
    }

    /// Notes the result of an attempt. `chance` of 0 to 1 spreads the attempts of deliveries that failed together.
    pub fn note(&mut self, outcome: AttemptOutcome, retry_after: Option<Duration>, chance: f64) {
        self.attempts += 1;
        self.state = match outcome.error {
            None => DeliveryState::Delivered,
            Some(_) => match PAUSES.get(self.attempts as usize) {
                None => DeliveryState::Failed,
                Some(pause) => {
                    let pause =
                        pause.mul_f64(0.2f64.mul_add(chance, 1.0)).max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX));
                    self.next_at = outcome.at.saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX));
                    DeliveryState::Open
                }
            },
        };
        self.last = Some(outcome);
    }

    /// Tries a closed delivery again, with the pauses of a new one.
    pub fn reopen(&mut self, now: i64) {
        (self.state, self.attempts, self.next_at) = (DeliveryState::Open, 0, now);
    }
}

/// The key of a delivery. Keys of one destination are in the order of events.
#[must_use]
pub fn key(destination: &str, position: u64, number: usize) -> String {
    format!("{destination}/{position:020}.{number:04}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogId;
    use crate::model::{Epoch, Sequence};
    use crate::notify::event::EventKind;

    #[test]
    fn a_failed_delivery_is_tried_ten_times_over_the_pauses_of_the_specification() {
        let log = LogId::Run("r".parse().unwrap());
        let (kind, epoch, sequence) = (EventKind::RunWaiting, Epoch::from_random(1), Sequence(1));
        let event = StatusEvent {
            kind,
            log,
            epoch,
            sequence,
            at: 0,
            session: None,
            agent: None,
            action: None,
            control: None,
            status: None,
            step: None,
            to: Vec::new(),
        };
        let mut delivery = Notification::new("m".into(), event, 0);
        let failed = |at| AttemptOutcome { at, status: Some(500), error: Some(FailureClass::Status) };
        let mut pauses = Vec::new();
        while delivery.state == DeliveryState::Open {
            let at = delivery.next_at;
            delivery.note(failed(at), None, 0.0);
            pauses.push((delivery.next_at - at) / 1000);
        }
        assert_eq!(pauses, [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400, 0]);
        assert_eq!((delivery.attempts, delivery.state), (10, DeliveryState::Failed));
        delivery.reopen(7);
        delivery.note(failed(7), Some(Duration::from_mins(10)), 1.0);
        assert_eq!(delivery.next_at, 7 + 600_000, "the receiver asked for more time");
        delivery.note(AttemptOutcome { at: 9, status: Some(204), error: None }, None, 0.5);
        assert_eq!(delivery.state, DeliveryState::Delivered);
    }
}
