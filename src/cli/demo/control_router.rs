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

/// An active run and the sender of its inbox.
struct ActiveRun {
    identity: RunIdentity,
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
    runs: HashMap<String, ActiveRun>,
    /// The inboxes of pending actions, by run and action.
    actions: HashMap<(String, String), UnboundedSender<Control>>,
    /// The queued turns by session: the id of the control, and its text.
    queued: HashMap<String, VecDeque<(String, String)>>,
    /// The runs whose teams were cancelled.
    cancelled: HashSet<String>,
}

/// The inbox of an active run. Dropping it unregisters the run.
pub struct ControlInbox {
    run: String,
    controls: UnboundedReceiver<Control>,
    routes: Arc<Mutex<Routes>>,
    changed: Arc<Notify>,
}

impl ControlInbox {
    /// Receives the next control of the run: `steer`, `interrupt` or `stop`.
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
        self.routes.lock().runs.remove(&self.run);
        self.changed.notify_waiters();
    }
}

/// The inbox of a pending action. Dropping it unregisters the action.
pub struct ActionInbox {
    key: (String, String),
    controls: UnboundedReceiver<Control>,
    routes: Arc<Mutex<Routes>>,
}

impl ActionInbox {
    pub async fn next(&mut self) -> Control {
        match self.controls.recv().await {
            Some(control) => control,
            None => std::future::pending().await,
        }
    }
}

impl Drop for ActionInbox {
    fn drop(&mut self) {
        self.routes.lock().actions.remove(&self.key);
    }
}

impl ControlRouter {
    /// Registers a run.
    pub fn register(&self, identity: &RunIdentity) -> ControlInbox {
        let (sender, controls) = unbounded_channel();
        self.routes.lock().runs.insert(identity.run.clone(), ActiveRun { identity: identity.clone(), sender });
        ControlInbox { run: identity.run.clone(), controls, routes: self.routes.clone(), changed: self.changed.clone() }
    }

    /// Registers a pending action.
    pub fn subscribe(&self, run: &str, action: &str) -> ActionInbox {
        let (sender, controls) = unbounded_channel();
        let key = (run.to_owned(), action.to_owned());
        self.routes.lock().actions.insert(key.clone(), sender);
        ActionInbox { key, controls, routes: self.routes.clone() }
    }

    /// Passes a control to its action; returns it if the action is not pending.
    pub fn route_to_action(&self, control: Control) -> Result<(), Control> {
        let key = (control.text("runId").unwrap_or_default().to_owned(), control.text("actionId").unwrap_or_default().to_owned());
        match self.routes.lock().actions.get(&key) {
            Some(sender) => sender.send(control).map_err(|unsent| unsent.0),
            None => Err(control),
        }
    }

    /// Passes a control to the run that it names, or to the run of the named teammate.
    pub fn route_to_run(&self, control: Control) -> Result<(), Control> {
        let (run, agent) = (control.text("runId").unwrap_or_default(), control.text("agentId").unwrap_or_default());
        let teammates = |active: &&ActiveRun| {
            active.identity.agent == agent && active.identity.parent.as_ref().is_some_and(|(parent, _)| parent == run)
        };
        let routes = self.routes.lock();
        let named = routes.runs.get(run).filter(|active| active.identity.agent == agent);
        let active = named.or_else(|| routes.runs.values().find(teammates)).filter(|active| !active.sender.is_closed());
        match active.map(|active| &active.sender) {
            Some(sender) => {
                let _ = sender.send(control);
                Ok(())
            }
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
        loop {
            // Subscribe before the check, so that no change is lost between the two.
            let changed = self.changed.notified();
            if self.routes.lock().cancelled.contains(run) {
                return;
            }
            changed.await;
        }
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
        loop {
            // Subscribe before the check, so that no change is lost between the two.
            let changed = self.changed.notified();
            {
                let mut routes = self.routes.lock();
                let is_busy = routes.runs.values().any(|active| active.identity.session == session);
                if let Some(queue) = routes.queued.get_mut(session)
                    && !is_busy
                    && queue.front().is_none_or(|(first, _)| first == id)
                {
                    queue.pop_front();
                    return;
                }
            }
            changed.await;
        }
    }

    /// Notifies the waiters that a queue advanced.
    pub fn notify(&self) {
        self.changed.notify_waiters();
    }
}
