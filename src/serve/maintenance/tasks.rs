//! The server's long-lived tasks: each has a name, and none ends before the server does.
//!
//! A task that panics or returns leaves part of the work undone while everything else looks healthy: facts that no
//! reader gets, runs that never settle. So the first task that ends stops the server, with the task's name and the
//! reason.

use crate::log::panic_message;
use std::collections::HashMap;
use tokio::task::{Id, JoinSet};

/// The server stopped because one of its tasks ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the task {name} {how}; the server cannot run without it")]
pub struct TaskEnded {
    pub name: &'static str,
    /// `panicked: …` or `ended`.
    pub how: String,
}

/// Running tasks. Dropping the value aborts them.
#[derive(Default)]
pub struct Tasks {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
    /// The task that panics when it is spawned, for tests.
    panicking_task: Option<String>,
}

impl Tasks {
    /// Starts without tasks. The task of this name will panic.
    pub(in crate::serve) fn with_panic_in(panicking_task: Option<String>) -> Self {
        Self { panicking_task, ..Self::default() }
    }

    /// Starts a task.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let panicking_task = self.panicking_task.as_deref() == Some(name);
        let handle = self.running.spawn(async move {
            assert!(!panicking_task, "a test asked for this panic");
            task.await;
        });
        self.names.insert(handle.id(), name);
    }

    /// Waits until a task ends; forever without tasks.
    pub async fn ended(&mut self) -> TaskEnded {
        let (id, how) = match self.running.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, ()))) => (id, "ended".to_owned()),
            Some(Err(error)) => {
                let id = error.id();
                let panicked = error.try_into_panic().map(|panic| format!("panicked: {}", panic_message(&*panic)));
                (id, panicked.unwrap_or_else(|error| error.to_string()))
            }
        };
        TaskEnded { name: self.names.remove(&id).unwrap_or("of no name"), how }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_task_that_ends_is_reported_with_its_reason() {
        let mut tasks = Tasks::default();
        tasks.spawn("patient", std::future::pending());
        tasks.spawn("careless", async { panic!("{} is no number", "x") });
        assert_eq!(tasks.ended().await, TaskEnded { name: "careless", how: "panicked: x is no number".into() });
        tasks.spawn("brief", async {});
        assert_eq!(tasks.ended().await.to_string(), "the task brief ended; the server cannot run without it");
    }
}
