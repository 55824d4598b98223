//! The controls of all agents: claimed from the server, handed to the run or the question that waits for them, answered.
//!
//! Nothing is decided here. What nobody waits for is given back with a reason, so that whoever asked is told.

use super::Stage;
use super::actor::Place;
use super::changes::worker;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Who takes what is asked of nobody by name.
pub const DEFAULT_AGENT: &str = "default";
/// From one try to claim to the next, where the server could not be asked.
const RETRY: Duration = Duration::from_millis(500);

/// A control as it was claimed: with its lease, which answers it.
#[derive(Debug, Clone)]
pub struct Control(pub Value);

impl Control {
    /// Whether it is this one.
    pub fn is(&self, control: &str) -> bool {
        self.0["control"] == control
    }

    pub fn text(&self, member: &str) -> Option<&str> {
        self.0[member].as_str()
    }

    /// The same, naming the teammate whose task it is about, where it names the task alone.
    fn of_worker(mut self) -> Self {
        if let Some((agent, _)) = worker(&self) {
            self.0["agentId"] = agent.into();
        }
        self
    }

    pub fn id(&self) -> &str {
        self.text("controlId").unwrap_or_default()
    }

    /// What somebody says with it, as a message: the last one, where a client hands over several.
    fn said(&self) -> &Value {
        let value = &self.0["value"];
        value["messages"].as_array().and_then(|messages| messages.last()).unwrap_or(value)
    }

    /// The id of that message: the client's own, where it has one.
    pub fn message(&self) -> &str {
        self.said()["id"].as_str().unwrap_or_else(|| self.id())
    }

    /// What somebody says with it: a text, or what AG-UI, AI SDK and pages put in its place.
    pub fn words(&self) -> String {
        let last = self.said();
        let bodies = [last, &last["text"], &last["content"], &last["parts"]];
        if let Some(text) = bodies.iter().find_map(|body| body.as_str()) {
            return text.to_owned();
        }
        bodies.iter().filter_map(|body| body.as_array()).flatten().filter_map(|part| part["text"].as_str()).collect()
    }
}

/// A run that goes on, as the desk knows it.
struct Sitting {
    place: Place,
    tell: UnboundedSender<Control>,
}

/// Everybody who waits for something.
#[derive(Default)]
pub struct Desk {
    lines: Arc<Mutex<Lines>>,
    /// A run ended, a queue moved, or a team was dismissed.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Lines {
    sitting: HashMap<String, Sitting>,
    /// Questions, by run and action.
    asked: HashMap<(String, String), UnboundedSender<Control>>,
    /// Turns that wait for the one that goes on, by session: their controls' ids, and what they say.
    queued: HashMap<String, VecDeque<(String, String)>>,
    /// Runs whose teams were sent home.
    dismissed: HashSet<String>,
}

/// A run's place at the desk, for as long as it is played.
pub struct Seat {
    run: String,
    words: UnboundedReceiver<Control>,
    lines: Arc<Mutex<Lines>>,
    changed: Arc<Notify>,
}

impl Seat {
    /// The next thing that a viewer wants of the run: `steer`, `interrupt` or `stop`.
    pub async fn heard(&mut self) -> Control {
        match self.words.recv().await {
            Some(control) => control,
            // The desk holds the other end for as long as there is this one.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.lines.lock().sitting.remove(&self.run);
        self.changed.notify_waiters();
    }
}

/// The answers to a question, for as long as it is asked.
pub struct Answers {
    key: (String, String),
    controls: UnboundedReceiver<Control>,
    lines: Arc<Mutex<Lines>>,
}

impl Answers {
    pub async fn next(&mut self) -> Control {
        match self.controls.recv().await {
            Some(control) => control,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.lines.lock().asked.remove(&self.key);
    }
}

impl Desk {
    /// A place for a run that begins.
    pub fn sit(&self, place: &Place) -> Seat {
        let (tell, words) = unbounded_channel();
        self.lines.lock().sitting.insert(place.run.clone(), Sitting { place: place.clone(), tell });
        Seat { run: place.run.clone(), words, lines: self.lines.clone(), changed: self.changed.clone() }
    }

    /// Hears what is answered to a question.
    pub fn listen(&self, run: &str, action: &str) -> Answers {
        let (tell, controls) = unbounded_channel();
        let key = (run.to_owned(), action.to_owned());
        self.lines.lock().asked.insert(key.clone(), tell);
        Answers { key, controls, lines: self.lines.clone() }
    }

    /// Hands a control to the question that it answers; gives it back if nobody asks.
    fn answer(&self, control: Control) -> Result<(), Control> {
        let key = (control.text("runId").unwrap_or_default().to_owned(), control.text("actionId").unwrap_or_default().to_owned());
        match self.lines.lock().asked.get(&key) {
            Some(tell) => tell.send(control).map_err(|unheard| unheard.0),
            None => Err(control),
        }
    }

    /// Hands a control to the run that it is meant for: the one that it names, or the run of the teammate that it names there.
    fn tell(&self, control: Control) -> Result<(), Control> {
        let (run, agent) = (control.text("runId").unwrap_or_default(), control.text("agentId").unwrap_or_default());
        let teammates = |sitting: &&Sitting| {
            sitting.place.agent == agent && sitting.place.parent.as_ref().is_some_and(|(parent, _)| parent == run)
        };
        let lines = self.lines.lock();
        let named = lines.sitting.get(run).filter(|sitting| sitting.place.agent == agent);
        let sitting = named.or_else(|| lines.sitting.values().find(teammates)).filter(|sitting| !sitting.tell.is_closed());
        match sitting.map(|sitting| &sitting.tell) {
            Some(tell) => {
                let _ = tell.send(control);
                Ok(())
            }
            None => Err(control),
        }
    }

    /// Sends home everybody who works for this run.
    pub fn dismiss(&self, run: &str) {
        self.lines.lock().dismissed.insert(run.to_owned());
        self.changed.notify_waiters();
    }

    /// Waits until whoever works for this run is sent home.
    pub async fn dismissed(&self, run: &str) {
        loop {
            // Before looking: what changes meanwhile is noticed.
            let changed = self.changed.notified();
            if self.lines.lock().dismissed.contains(run) {
                return;
            }
            changed.await;
        }
    }

    /// Puts a turn behind those that wait in its session.
    pub fn queue(&self, session: &str, id: &str, words: &str) {
        self.lines.lock().queued.entry(session.to_owned()).or_default().push_back((id.to_owned(), words.to_owned()));
    }

    /// The turns that wait in a session.
    pub fn queued(&self, session: &str) -> Vec<(String, String)> {
        self.lines.lock().queued.get(session).map(|queue| queue.iter().cloned().collect()).unwrap_or_default()
    }

    /// Takes the turn out of its queue, once it is the first there and nothing goes on in its session.
    pub async fn turn_comes(&self, session: &str, id: &str) {
        loop {
            // Before looking: what changes meanwhile is noticed.
            let changed = self.changed.notified();
            {
                let mut lines = self.lines.lock();
                let is_busy = lines.sitting.values().any(|sitting| sitting.place.session == session);
                if let Some(queue) = lines.queued.get_mut(session)
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

    /// Says that a queue moved on.
    pub fn moved(&self) {
        self.changed.notify_waiters();
    }
}

impl Stage {
    /// Takes what is asked of an agent, for as long as the demo lasts.
    pub async fn serve_agent(self: Arc<Self>, agent: &'static str) {
        loop {
            match self.api.claim(agent).await {
                Ok(controls) => {
                    for control in controls {
                        tokio::spawn(self.clone().take(Control(control)));
                    }
                }
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Takes one control, or says why not.
    async fn take(self: Arc<Self>, control: Control) {
        let waits_for_none = "no run of the demo waits for this answer; a recording goes on as it was recorded";
        let refused = match control.text("control").unwrap_or_default() {
            "approve" | "reject" | "answer" => self.desk.answer(control).map_err(|it| (it, waits_for_none)),
            "edit" if control.text("actionId").is_some() => self.desk.answer(control).map_err(|it| (it, waits_for_none)),
            "interrupt" | "steer" => self.desk.tell(control).map_err(|it| (it, "no run of the demo plays that turn now")),
            "stop" | "close" => match self.desk.tell(control.of_worker()) {
                Ok(()) => return,
                Err(control) => return self.change(control).await,
            },
            "send" | "continue_agent" => return self.reply(control).await,
            "queue" => return self.reply_later(control).await,
            "assign" => return self.assign(control).await,
            "export" => return self.export(control).await,
            _ => return self.change(control).await,
        };
        if let Err((control, reason)) = refused {
            self.api.nack(&control.0, reason).await;
        }
    }
}
