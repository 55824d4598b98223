//! The handle that a tool gets for one call: its progress, its activities, and its start and end.

use crate::facts::{self, EventTarget, Fact, ProgressStatus, ToolCallProgressState, ToolProgressEvent};
use crate::queue::SharedState;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// A reporter for one call.
/// Clones report the same call.
#[derive(Debug, Clone, Default)]
pub struct ToolCallReporter {
    call: Option<Arc<Call>>,
    parent: Option<Arc<str>>,
}

#[derive(Debug)]
struct Call {
    link: Arc<SharedState>,
    id: Arc<str>,
    tool: Box<str>,
    reported: Mutex<ReportedState>,
}

/// The reported state of a call, as far as this reporter knows.
#[derive(Debug, Clone, Copy, Default)]
struct ReportedState {
    /// Whether the call's first report, which decides its audience, is in the queue or at the server.
    has_begun: bool,
    status: Option<ProgressStatus>,
}

impl ToolCallReporter {
    pub(crate) fn new(link: &Arc<SharedState>, call_id: &str, tool_name: &str) -> Self {
        let call = Call {
            link: link.clone(),
            id: call_id.into(),
            tool: tool_name.into(),
            reported: Mutex::new(ReportedState::default()),
        };
        Self { call: Some(Arc::new(call)), parent: None }
    }

    /// Sets the parent call.
    #[must_use]
    pub fn with_parent(mut self, call_id: &str) -> Self {
        if self.call.is_some() {
            self.parent = Some(call_id.into());
        }
        self
    }

    /// Returns a reporter for a call that this call makes.
    #[must_use]
    pub fn child(&self, call_id: &str, tool_name: &str) -> Self {
        let Some(call) = &self.call else { return Self::default() };
        Self { parent: Some(call.id.clone()), ..Self::new(&call.link, call_id, tool_name) }
    }

    /// Declares that the server has already acknowledged the runtime's start of this call.
    ///
    /// Later emitted events then belong to the call.
    #[must_use]
    pub fn with_known_start(self) -> Self {
        if let Some(call) = &self.call {
            call.reported.lock().has_begun = true;
        }
        self
    }

    /// Reports progress: a status, a message, and a fraction from 0.0 to 1.0 (`None`: unknown).
    ///
    /// ```
    /// # use proscenium_reporter::{ProgressStatus, Reporter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let call = Reporter::none().call("call-1", "index_docs");
    /// call.report_progress(ProgressStatus::Running, Some("Indexed batch 3/10"), Some(0.3)).await;
    /// # }
    /// ```
    pub async fn report_progress(&self, status: ProgressStatus, message: Option<&str>, progress: Option<f64>) {
        if self.call.is_none() {
            return;
        }
        let mut state = self.state(status);
        state.message = message.map(str::to_owned);
        state.progress = progress;
        self.report(state).await;
    }

    /// Returns a state of this call with only a status, for [`report`](Self::report).
    #[must_use]
    pub fn state(&self, status: ProgressStatus) -> ToolCallProgressState {
        let (id, tool) = self.call.as_ref().map_or(("", ""), |call| (&*call.id, &*call.tool));
        let state = ToolCallProgressState::new(id, tool, status);
        match &self.parent {
            Some(parent) => state.with_parent(parent),
            None => state,
        }
    }

    /// Reports a whole state.
    /// The reporter sets the state's call id to this call.
    ///
    /// ```
    /// # use proscenium_reporter::{ProgressStatus, Reporter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let call = Reporter::none().call("call-1", "download");
    /// call.report(call.state(ProgressStatus::Running).with_loaded(3 << 20).with_total(12 << 20)).await;
    /// # }
    /// ```
    pub async fn report(&self, mut state: ToolCallProgressState) {
        let Some(call) = &self.call else { return };
        state.call_id = (*call.id).to_owned();
        let (status, begins) = (state.status, !call.reported.lock().has_begun);
        if call.put(facts::state(Timestamp::now(), &call.id, state, begins)).await {
            *call.reported.lock() = ReportedState { has_begun: true, status: Some(status) };
        }
    }

    /// Reports the whole content of a tool's own activity.
    /// Plain text is valid content.
    ///
    /// Frontends choose by `activity_type` how to show the content.
    ///
    /// ```
    /// # use proscenium_reporter::Reporter;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let call = Reporter::none().call("call-1", "generate");
    /// call.report_activity("code-generation", "fn hello() {\n    println!(\"hi\");\n}").await;
    /// # }
    /// ```
    pub async fn report_activity(&self, activity_type: &str, content: impl Into<Value>) {
        if let Some(call) = &self.call {
            call.put(facts::activity(Timestamp::now(), &call.id, activity_type, content.into())).await;
        }
    }

    /// Reports a change of an activity, as a JSON Patch (RFC 6902).
    /// A single operation needs no array.
    ///
    /// ```
    /// # use proscenium_reporter::Reporter;
    /// # use serde_json::json;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let call = Reporter::none().call("call-1", "generate");
    /// call.report_activity_delta("code-generation", json!({ "op": "add", "path": "/line", "value": "println!(\"world\");" })).await;
    /// # }
    /// ```
    pub async fn report_activity_delta(&self, activity_type: &str, patch: impl Into<Value>) {
        if let Some(call) = &self.call {
            call.put(facts::activity_delta(Timestamp::now(), &call.id, activity_type, patch.into())).await;
        }
    }

    /// Emits Ethos' progress event.
    /// Never waits; if the queue is full, the reporter sheds the event.
    ///
    /// The event belongs to the call once this reporter has reported on the call, or if the call has a [known
    /// start](Self::with_known_start). Before that, the event is one of the run's notices and only refers to the call.
    /// The first report of a call decides its audience, so it must not be an internal event.
    ///
    /// ```
    /// # use proscenium_reporter::{Reporter, ToolProgressEvent};
    /// # let call = Reporter::none().call("call-1", "read_file");
    /// call.emit(ToolProgressEvent::new("read_file", "reading bytes 0-65000").with_percent(1.3));
    /// call.emit(ToolProgressEvent::new("read_file", "reading 5 MB, this takes a few seconds").with_audience("user"));
    /// ```
    pub fn emit(&self, event: ToolProgressEvent) {
        let Some(call) = &self.call else { return };
        let reported = *call.reported.lock();
        let target =
            if reported.has_begun { EventTarget::Call(&call.id, reported.status) } else { EventTarget::RunNotice(&call.id) };
        call.link.queue.try_put(facts::event(Timestamp::now(), &target, event));
    }

    /// Reports the start of the call, if no runtime reports it.
    pub async fn started(&self, input: impl Into<Value>) {
        let Some(call) = &self.call else { return };
        let fact = facts::started(Timestamp::now(), &call.id, &call.tool, self.parent.as_deref(), input.into());
        if call.put(fact).await {
            *call.reported.lock() = ReportedState { has_begun: true, status: None };
        }
    }

    /// Reports the result of the call, if no runtime reports it.
    ///
    /// The output is internal. Every reader that saw the start sees the end.
    pub async fn result(&self, output: impl Into<Value>) {
        if let Some(call) = &self.call {
            call.put(facts::result(Timestamp::now(), &call.id, &call.tool, output.into())).await;
        }
    }

    /// Reports the failure of the call, if no runtime reports it.
    /// Every reader that saw the start sees it.
    pub async fn failed(&self, code: Option<&str>, message: &str) {
        if let Some(call) = &self.call {
            call.put(facts::failed(Timestamp::now(), &call.id, &call.tool, code, message)).await;
        }
    }
}

impl Call {
    async fn put(&self, fact: Fact) -> bool {
        self.link.queue.put(fact).await
    }
}
