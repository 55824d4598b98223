//! Where messages go: webhooks, people's devices, and the push addresses of tasks.

use super::event::SeenEvent;
use super::subscription::PushSubscription;
use super::task_push::TaskPush;
use super::webhook::Webhook;
use crate::auth::holder::TokenHolder;
use crate::model::OwnerId;
use std::sync::Arc;

/// A webhook, a device, or the push address of a task.
#[derive(Debug, Clone)]
pub enum MessageDestination {
    Webhook(Arc<Webhook>),
    /// With its id.
    Device(Box<str>, Arc<PushSubscription>),
    /// With its id.
    Task(Box<str>, Arc<TaskPush>),
}

impl MessageDestination {
    /// The name of its queue of deliveries.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Webhook(webhook) => &webhook.id,
            Self::Device(id, _) | Self::Task(id, _) => id,
        }
    }

    /// Who asked for its messages, and when it ends if nothing renews it, in milliseconds since 1970. `None`: the operator did.
    #[must_use]
    pub fn asked_by(&self) -> Option<(Option<&TokenHolder>, i64)> {
        match self {
            Self::Webhook(_) => None,
            Self::Device(_, subscription) => Some((subscription.holder.as_ref(), subscription.until())),
            Self::Task(_, push) => Some((push.holder.as_ref(), push.until())),
        }
    }

    /// Whether it gets an event. `owner` is the owner of the event's log.
    #[must_use]
    pub fn takes(&self, (event, audiences): &SeenEvent, owner: Option<&OwnerId>) -> bool {
        match self {
            Self::Webhook(webhook) => webhook.takes(event, *audiences),
            Self::Device(_, subscription) => subscription.takes(event, *audiences, owner),
            Self::Task(_, push) => push.takes(event, *audiences, owner),
        }
    }
}
