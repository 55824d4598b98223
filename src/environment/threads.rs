//! The threads of the server below its sockets. In a simulation they are tasks of the thread that simulates.

use parking_lot::{Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task;

/// Starts a thread that runs `work` to its end.
///
/// # Panics
/// When the operating system cannot start a thread.
pub fn spawn_thread(name: &str, work: impl AsyncFnOnce() + Send + 'static) {
    #[cfg(feature = "simulation")]
    if super::simulation::is_active() {
        let mut work = Box::pin(async move { work().await });
        // A caller may block until the work has begun.
        if futures_util::FutureExt::now_or_never(&mut work).is_none() {
            task::spawn_local(work);
        }
        return;
    }
    let thread = Builder::new().name(name.into()).spawn(move || pollster::block_on(work()));
    thread.expect("the operating system can start a thread");
}

/// Starts a thread that takes work off its caller. `None`: the caller has to do the work itself.
#[must_use]
pub fn spawn_helper<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Option<JoinHandle<T>> {
    #[cfg(feature = "simulation")]
    if super::simulation::is_active() {
        return None;
    }
    Builder::new().name(name.into()).spawn(work).ok()
}

/// Runs work that may block where it delays no task.
#[must_use]
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> task::JoinHandle<T> {
    #[cfg(feature = "simulation")]
    if super::simulation::is_active() {
        let pause = super::simulation::blocking_time();
        return task::spawn(async move {
            tokio::time::sleep(pause).await;
            work()
        });
    }
    task::spawn_blocking(work)
}

/// Waits for a task of a runtime. It blocks: only for work of [`spawn_blocking`]. `None`: the runtime has ended.
///
/// The future itself would panic in a runtime that stops. In a simulation it has to be ready at once.
pub fn wait_for<T: Send + 'static>(runtime: &Handle, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
    #[cfg(feature = "simulation")]
    if super::simulation::is_active() {
        return futures_util::FutureExt::now_or_never(task::unconstrained(future));
    }
    let (done, waited) = oneshot::channel();
    runtime.spawn(async move { done.send(future.await) });
    waited.blocking_recv().ok()
}

/// Wakes the thread that waits for a change of state behind a lock. One thread may wait.
#[derive(Default)]
pub struct Signal {
    changed: Condvar,
    #[cfg(feature = "simulation")]
    simulated: tokio::sync::Notify,
}

impl Signal {
    /// Wakes the thread that waits, after a change.
    pub fn notify(&self) {
        self.changed.notify_one();
        #[cfg(feature = "simulation")]
        self.simulated.notify_one();
    }

    /// Waits until `take` finds something in the state. Blocks the thread: only for work of [`spawn_thread`].
    #[cfg_attr(not(feature = "simulation"), expect(clippy::unused_async, reason = "only a simulation awaits"))]
    pub async fn wait_for<S, T>(&self, state: &Mutex<S>, mut take: impl FnMut(&mut S) -> Option<T>) -> T {
        #[cfg(feature = "simulation")]
        while super::simulation::is_active() {
            let found = take(&mut state.lock());
            match found {
                Some(found) => return found,
                None => self.simulated.notified().await,
            }
        }
        let mut state = state.lock();
        loop {
            match take(&mut state) {
                Some(found) => return found,
                None => self.changed.wait(&mut state),
            }
        }
    }
}
