//! Publishing facts from within the server.

use super::Destination;
use super::lines::LineBody;
use crate::guard::KnownSecrets;
use crate::ingest::BeginOwner;
use crate::log::LogId;
use crate::log::agent_memory::MemoryWrite;
use crate::model::Ids;
use crate::serve::App;
use crate::serve::access::authorization::{OpenAccess, Principal};
use crate::serve::http::problem::Problem;
use crate::source::{SourceKind, agent_ui};
use std::borrow::Cow;
use std::sync::Arc;

/// A producer within the server. It has the path and the limits of a streamed body.
pub struct FactPublisher<'a>(LineBody<'a>);

impl<'a> FactPublisher<'a> {
    /// Connects to a log. `default_ids` are ids for facts without their own.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn connect(app: &'a App, log: LogId, default_ids: Ids) -> Result<Self, Problem> {
        let (source, principal) = (&agent_ui::SOURCE, Principal::anonymous());
        let to =
            Destination { log, source, default_ids, producer: None, write_scope: None, owner: BeginOwner::default(), principal };
        LineBody::new(app, to, OpenAccess::default()).await.map(Self)
    }

    /// Masks these values in all further facts, also where the chunks of a stream cut them.
    pub fn hide(&mut self, secrets: Arc<KnownSecrets>) {
        self.0.secrets = Some(secrets);
    }

    /// Publishes facts, each a line of JSON, and waits until they are durable.
    ///
    /// The log keeps the facts before one that it does not accept. One commit has `memory` and the last of the facts, or
    /// the first if it begins the run.
    ///
    /// # Errors
    /// The [`Problem`] of the first fact that the log does not accept.
    pub async fn publish(
        &mut self,
        source: &'static SourceKind,
        facts: &[String],
        memory: Option<MemoryWrite>,
    ) -> Result<(), Problem> {
        self.0.app.disk.check_space()?;
        (self.0.to.source, self.0.memory) = (source, memory);
        for fact in facts {
            let fact = self.0.secrets.as_ref().map_or(Cow::Borrowed(fact.as_str()), |secrets| secrets.mask(fact));
            self.0.buffer.extend_from_slice(fact.as_bytes());
            self.0.buffer.extend_from_slice(b"\n");
        }
        let outcome = self.0.group(true).await;
        outcome.and(self.0.drain_to(0).await)
    }
}
