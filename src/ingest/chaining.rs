//! The hash chain of a delivery's rows, beside their stamping.

use super::rows::FullAppend;
use crate::environment::threads::spawn_helper;
use crate::log::hash_chain::ChainEnd;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// The complete appends from which on a thread adds them: at a quarter of a mebibyte, a delivery is worth one.
const THREAD_APPENDS_MIN: usize = 2;

/// Adds the rows of a delivery to the chain of its log.
///
/// The hashes of a row take about a tenth of the time that stamping it takes. So a thread adds each append of a large
/// delivery that is complete, while the writer stamps the next one.
#[derive(Default)]
pub(super) struct Chaining {
    thread: Option<ChainThread>,
    /// The appends that the thread has got.
    sent: usize,
}

struct ChainThread {
    appends: mpsc::Sender<FullAppend>,
    thread: JoinHandle<ChainEnd>,
}

impl ChainThread {
    /// Goes on from the end of a chain; `None` if the system has no thread.
    fn start(mut chain: ChainEnd) -> Option<Self> {
        let (appends, received) = mpsc::channel::<FullAppend>();
        let add_all = move || {
            for FullAppend { rows, decisions, .. } in received {
                chain.push_rows(&rows, &decisions);
            }
            chain
        };
        let thread = spawn_helper("hash-chain", add_all)?;
        Some(Self { appends, thread })
    }
}

impl Chaining {
    /// Adds the appends that were completed since the last call, if there are enough of them for a thread.
    pub fn follow(&mut self, chain: &ChainEnd, full: &[FullAppend]) {
        if full.len() == self.sent || full.len() < THREAD_APPENDS_MIN {
            return;
        }
        if self.thread.is_none() {
            self.thread = ChainThread::start(chain.clone());
        }
        let Some(ChainThread { appends, .. }) = &self.thread else { return };
        for append in &full[self.sent..] {
            // The thread receives until it panics, which `end` passes on.
            let _ = appends.send(append.clone());
        }
        self.sent = full.len();
    }

    /// Adds the rest, and moves the end of the chain behind it.
    pub fn end(self, chain: &mut ChainEnd, full: &[FullAppend]) {
        if let Some(ChainThread { appends, thread }) = self.thread {
            drop(appends);
            *chain = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        for FullAppend { rows, decisions, .. } in &full[self.sent..] {
            chain.push_rows(rows, decisions);
        }
    }
}
