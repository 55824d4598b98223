//! Where messages go: webhooks, and people's devices.

use super::event::SeenEvent;
use super::subscription::PushSubscription;
use super::webhook::Webhook;
use crate::model::OwnerId;
use std::sync::Arc;

/// A webhook, or a device.
#[derive(Debug, Clone)]
pub enum MessageDestination {
    Webhook(Arc<Webhook>),
    /// With its id.
    Device(Box<str>, Arc<PushSubscription>),
}

impl MessageDestination {
    /// The name of its queue of deliveries.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Webhook(webhook) => &webhook.id,
            Self::Device(id, _) => id,
        }
    }

    /// Whether it gets an event. `owner` is the owner of the event's log.
    #[must_use]
    pub fn takes(&self, (event, audiences): &SeenEvent, owner: Option<&OwnerId>) -> bool {
        match self {
            Self::Webhook(webhook) => webhook.takes(event, *audiences),
            Self::Device(_, subscription) => subscription.takes(event, *audiences, owner),
        }
    }
}
