//! The router of controls: which run or action waits for a control, and the turns that are queued.

use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The agent of controls that name no agent.
pub const DEFAULT_AGENT: &str = "default";

/// The ids of a run.
#[derive(Debug, Clone, Default)]
pub struct RunIdentity {
    pub run: String,
    pub session: String,
    pub agent: String,
    /// The run and the session of the coordinator.
    pub parent: Option<(String, String)>,
}

/// A claimed control, with the lease that completes it.
#[derive(Debug, Clone)]
pub struct Control(pub Value);

impl Control {
    /// Returns whether the control has this type.
    pub fn is(&self, control: &str) -> bool {
        self.0["control"] == control
    }

    pub fn text(&self, member: &str) -> Option<&str> {
        self.0[member].as_str()
    }

    pub fn id(&self) -> &str {
        self.text("controlId").unwrap_or_default()
    }

    /// Returns the viewer's message; the last one if the client sends several.
    fn last_message(&self) -> &Value {
        let value = &self.0["value"];
        value["messages"].as_array().and_then(|messages| messages.last()).unwrap_or(value)
    }

    /// Returns the id of the viewer's message: the client's own, or else that of the control.
    pub fn message_id(&self) -> &str {
        self.last_message()["id"].as_str().unwrap_or_else(|| self.id())
    }

    /// Returns the text of the viewer's message, in the form of the page, AG-UI or the AI SDK.
    pub fn message_text(&self) -> String {
        let last = self.last_message();
        let bodies = [last, &last["text"], &last["content"], &last["parts"]];
        if let Some(text) = bodies.iter().find_map(|body| body.as_str()) {
            return text.to_owned();
        }
        bodies.iter().filter_map(|body| body.as_array()).flatten().filter_map(|part| part["text"].as_str()).collect()
    }
}

/// A run, or one of its actions, that waits for controls.
struct Receiver {
    id: u64,
    identity: RunIdentity,
    action: Option<String>,
    sender: UnboundedSender<Control>,
}

/// Routes controls to the runs and actions that wait for them.
#[derive(Default)]
pub struct ControlRouter {
    routes: Arc<Mutex<Routes>>,
    /// Notifies the waiters that a run ended, a queue advanced, or a team was cancelled.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Routes {
    receivers: Vec<Receiver>,
    /// The number of receivers so far, which is the id of the last one.
    registered: u64,
    /// The queued turns by session: the id of the control, and its text.
    queued: HashMap<String, VecDeque<(String, String)>>,
    /// The runs whose teams were cancelled.
    cancelled: HashSet<String>,
}

/// The inbox of a run or an action. Dropping it unregisters the receiver.
pub struct ControlInbox {
    id: u64,
    controls: UnboundedReceiver<Control>,
    routes: Arc<Mutex<Routes>>,
    changed: Arc<Notify>,
}

impl ControlInbox {
    /// Receives the next control: of a run `steer`, `interrupt` or `stop`, of an action the answer.
    pub async fn next(&mut self) -> Control {
        match self.controls.recv().await {
            Some(control) => control,
            // The router keeps the sender until this inbox is dropped.
            None => std::future::pending().await,
        }
    }
}

impl Drop for ControlInbox {
    fn drop(&mut self) {
        self.routes.lock().receivers.retain(|receiver| receiver.id != self.id);
        self.changed.notify_waiters();
    }
}

impl ControlRouter {
    /// Registers a run, or one of its pending actions.
    pub fn register(&self, identity: &RunIdentity, action: Option<&str>) -> ControlInbox {
        let (sender, controls) = unbounded_channel();
        let mut routes = self.routes.lock();
        routes.registered += 1;
        let (id, identity) = (routes.registered, identity.clone());
        routes.receivers.push(Receiver { id, identity, action: action.map(str::to_owned), sender });
        ControlInbox { id, controls, routes: self.routes.clone(), changed: self.changed.clone() }
    }

    /// Passes a control to its action; returns it if the action is not pending.
    pub fn route_to_action(&self, control: Control) -> Result<(), Control> {
        let routes = self.routes.lock();
        let (run, action) = (control.text("runId"), control.text("actionId"));
        let found = routes.receivers.iter().find(|of| of.action.as_deref() == action && Some(&*of.identity.run) == run);
        match found.filter(|_| action.is_some()) {
            Some(receiver) => receiver.sender.send(control).map_err(|unsent| unsent.0),
            None => Err(control),
        }
    }

    /// Passes a control to the run that it names, or to the run of the named teammate.
    pub fn route_to_run(&self, control: Control) -> Result<(), Control> {
        let (run, agent) = (control.text("runId").unwrap_or_default(), control.text("agentId").unwrap_or_default());
        let routes = self.routes.lock();
        let runs =
            || routes.receivers.iter().map(|of| (of, &of.identity)).filter(|(of, is)| of.action.is_none() && is.agent == agent);
        let teammate = || runs().find(|(_, is)| is.parent.as_ref().is_some_and(|(parent, _)| parent == run));
        match runs().find(|(_, is)| is.run == run).or_else(teammate) {
            Some((receiver, _)) => receiver.sender.send(control).map_err(|unsent| unsent.0),
            None => Err(control),
        }
    }

    /// Cancels the team of this run.
    pub fn cancel_team(&self, run: &str) {
        self.routes.lock().cancelled.insert(run.to_owned());
        self.changed.notify_waiters();
    }

    /// Waits until the team of this run is cancelled.
    pub async fn team_cancelled(&self, run: &str) {
        self.wait_until(|routes| routes.cancelled.contains(run)).await;
    }

    /// Appends a turn to the queue of its session.
    pub fn queue(&self, session: &str, id: &str, words: &str) {
        self.routes.lock().queued.entry(session.to_owned()).or_default().push_back((id.to_owned(), words.to_owned()));
    }

    /// Returns the queued turns of a session.
    pub fn queued(&self, session: &str) -> Vec<(String, String)> {
        self.routes.lock().queued.get(session).map(|queue| queue.iter().cloned().collect()).unwrap_or_default()
    }

    /// Waits until the turn is first in its queue and its session is idle, and removes it from the queue.
    pub async fn wait_for_turn(&self, session: &str, id: &str) {
        self.wait_until(|routes| {
            let is_busy = routes.receivers.iter().any(|receiver| receiver.identity.session == session);
            let queue = routes.queued.entry(session.to_owned()).or_default();
            let is_next = !is_busy && queue.front().is_none_or(|(first, _)| first == id);
            if is_next {
                queue.pop_front();
            }
            is_next
        })
        .await;
    }

    /// Waits until the check of the routes succeeds.
    async fn wait_until(&self, mut check: impl FnMut(&mut Routes) -> bool) {
        loop {
            // Subscribe before the check, so that no change is lost between the two.
            let changed = self.changed.notified();
            if check(&mut self.routes.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// Notifies the waiters that a queue advanced.
    pub fn notify(&self) {
        self.changed.notify_waiters();
    }
}
