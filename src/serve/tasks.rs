//! The server's long-lived tasks: each has a name, and none ends before the server does.
//!
//! A task that panics or returns leaves part of the work undone for ever, while everything else looks well: facts that no
//! reader gets, runs that nothing settles. So the first end is the server's end, with the task's name and the reason.

use crate::log::panic_message;
use std::collections::HashMap;
use tokio::task::{Id, JoinSet};

/// Why the server stopped although nothing told it to: one of its tasks ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the task {name} {how}; the server cannot go on without it")]
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
    /// The task that panics when it is spawned, for tests of what follows.
    panics: Option<String>,
}

impl Tasks {
    /// No tasks; the one of this name will panic.
    pub(super) fn panicking_in(panics: Option<String>) -> Self {
        Self { panics, ..Self::default() }
    }

    /// Starts a task.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let panics = self.panics.as_deref() == Some(name);
        let handle = self.running.spawn(async move {
            assert!(!panics, "a test asked for this panic");
            task.await;
        });
        self.names.insert(handle.id(), name);
    }

    /// Waits until a task ends. Pending for ever while there is none.
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
    async fn the_first_task_that_ends_is_named_with_the_reason() {
        let mut tasks = Tasks::default();
        tasks.spawn("patient", std::future::pending());
        tasks.spawn("careless", async { panic!("{} is no number", "x") });
        assert_eq!(tasks.ended().await, TaskEnded { name: "careless", how: "panicked: x is no number".into() });
        tasks.spawn("brief", async {});
        assert_eq!(tasks.ended().await.to_string(), "the task brief ended; the server cannot go on without it");
    }
}
