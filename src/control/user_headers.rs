//! Headers of a user's request that a connected agent gets, such as the user's own token.
//!
//! They may be credentials. So no log, envelope or stored control has them. The server holds them in memory from the
//! submission of a control to its answer, like the secrets of a value.

use crate::model::AgentId;
use http::{HeaderMap, HeaderName};
use std::collections::HashMap;
use std::sync::OnceLock;

tokio::task_local! {
    /// The headers of the request that the current task answers, as far as any agent gets them.
    static OF_REQUEST: HeaderMap;
}

/// The names of the headers that each agent gets.
#[derive(Debug, Default)]
pub struct UserHeaders(OnceLock<HashMap<AgentId, Vec<HeaderName>>>);

impl UserHeaders {
    /// Sets the names. Only the first call counts, before the server serves.
    pub fn set(&self, names: HashMap<AgentId, Vec<HeaderName>>) {
        let _ = self.0.set(names);
    }

    /// All names, some of them repeatedly.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.0.get().into_iter().flat_map(HashMap::values).flatten()
    }

    /// Answers a request: a control that `answer` submits has these headers, as far as its agent gets them.
    pub async fn scope<T>(&self, headers: &HeaderMap, answer: impl Future<Output = T>) -> T {
        OF_REQUEST.scope(select(headers, self.names()), answer).await
    }

    /// The headers of the current request for this agent. `None`: the agent gets none.
    pub(super) fn for_agent(&self, agent: &AgentId) -> Option<HeaderMap> {
        let names = self.0.get()?.get(agent)?;
        Some(OF_REQUEST.try_with(|headers| select(headers, names)).unwrap_or_default())
    }
}

/// The headers with these names. Debug output hides their values.
fn select<'n>(headers: &HeaderMap, names: impl IntoIterator<Item = &'n HeaderName>) -> HeaderMap {
    let mut selected = HeaderMap::new();
    for name in names {
        if selected.contains_key(name) {
            continue;
        }
        for value in headers.get_all(name) {
            let mut value = value.clone();
            value.set_sensitive(true);
            selected.append(name, value);
        }
    }
    selected
}
