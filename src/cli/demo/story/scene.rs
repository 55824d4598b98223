//! The scenes: what the agents of the demo say and do, as data.
//!
//! A file of `scenes/` is NDJSON. Each line is one [`Step`]: an object with one member, or a string if the step has no
//! arguments. A line `{"scene":"name"}` begins a further scene of this name; the lines before the first one are the
//! scene with the name of the file. `{name}` in a string stands for a variable, as `variables` defines.

use super::variables::Variables;
use crate::cli::demo::actor::PlayError;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Embeds the files of these names.
macro_rules! files {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("scenes/", $name, ".ndjson")))),*] };
}

/// The files, and their contents.
const FILES: &[(&str, &str)] = files![
    "common",
    "controls",
    "coordinator",
    "researcher",
    "writer",
    "profiler",
    "link-watch",
    "translator",
    "publisher",
    "errand-benchmark",
    "errand-digest",
    "errand-index",
    "errand-keys",
    "errand-triage",
];

/// One step of a scene.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Step {
    /// Begins another scene in the file.
    Scene(String),
    /// Begins a run of this agent. `parent`: the run and the session of its coordinator.
    Begin {
        run: String,
        session: String,
        agent: String,
        parent: Option<(String, String)>,
        started: Value,
    },
    /// Publishes facts in the agent's own run, or without one in the log of `Lead`.
    Publish(Vec<Value>),
    /// Publishes one fact, and pauses so that a viewer can see it.
    Show(Value),
    /// Publishes facts in the coordinator's run.
    Lead(Vec<Value>),
    /// Publishes facts in the own log of a session.
    Session {
        id: String,
        facts: Vec<Value>,
    },
    /// Pauses for this many milliseconds.
    Pause(u64),
    /// Streams a message, word by word.
    Text(String),
    Reasoning(String),
    Plan(String),
    /// Streams a message of a teammate that works in this run.
    Say {
        agent: String,
        text: String,
    },
    /// Sets `{message}` to the id of the run's next message.
    Message,
    /// Reports the progress of a call.
    Report(ReportedCall),
    /// Requests a decision and waits for it.
    ///
    /// `sets`: variables for members of the answer, with the values that they have without an answer. `approved` and
    /// `rejected`: the scenes that follow.
    Decide {
        action: String,
        agent: Option<String>,
        request: Value,
        #[serde(default)]
        sets: Map<String, Value>,
        approved: Option<String>,
        rejected: Option<String>,
    },
    /// Sets variables.
    Set(Map<String, Value>),
    /// Plays another scene: once, so many `times`, or once for `each` of these variables.
    Play {
        scene: String,
        #[serde(default)]
        each: Vec<Map<String, Value>>,
        #[serde(default)]
        times: usize,
    },
    /// Starts the scene of a teammate, who belongs to a group.
    Start {
        scene: String,
        group: String,
        with: Map<String, Value>,
    },
    /// Waits for a group. `stopped`: the scene that follows if a teammate did not finish; otherwise `done` follows.
    Wait {
        group: String,
        done: Option<String>,
        stopped: Option<String>,
    },
    /// Waits until the server has ended a run whose producer is gone.
    Settle(String),
    /// Ends the run as completed.
    Finish,
    /// Leaves the run without an end, as a process that dies.
    Abandon,
    /// Names the scene to play if the viewer stops this one.
    IfStopped(String),
    /// Acknowledges the control that this scene handles.
    Ack,
}

/// A call whose tool reports its progress by the library for authors of tools, as a producer of its own.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportedCall {
    pub call: String,
    pub tool: String,
    /// The messages of the reports.
    pub messages: Vec<String>,
    /// The pause after each report, in milliseconds.
    pub pace_ms: u64,
    /// The number of things to work on.
    pub total: Option<u64>,
    /// A note with each report for operators; `#` stands for the number of the report.
    pub note: Option<String>,
    /// The message of the last report.
    pub done: Option<String>,
    /// The type of a custom activity, and its content at the start.
    pub activity: Option<String>,
    pub content: Option<Value>,
    /// The JSON Pointer of the place in the activity that gets each message.
    pub list: Option<String>,
}

/// A line of a scene that cannot be played.
#[derive(Debug, thiserror::Error)]
#[error("scenes/{file}.ndjson:{line}: {reason}")]
pub struct SceneError {
    file: &'static str,
    line: usize,
    reason: String,
}

impl From<SceneError> for PlayError {
    fn from(error: SceneError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A line of a file.
#[derive(Debug)]
pub struct Line {
    file: &'static str,
    number: usize,
    template: Value,
}

impl Line {
    fn error(&self, reason: impl ToString) -> SceneError {
        SceneError { file: self.file, line: self.number, reason: reason.to_string() }
    }

    /// Returns the step of this line, with the values of the variables.
    pub fn step(&self, variables: &Variables) -> Result<Step, SceneError> {
        let filled = variables.fill(&self.template).map_err(|reason| self.error(reason))?;
        serde_json::from_value(filled).map_err(|error| self.error(error))
    }
}

/// All scenes by name.
#[derive(Debug)]
pub struct Scenes(HashMap<String, Vec<Line>>);

impl Scenes {
    /// Reads the scenes that the binary contains.
    pub fn load() -> Result<Self, SceneError> {
        Self::read(FILES)
    }

    fn read(files: &[(&'static str, &'static str)]) -> Result<Self, SceneError> {
        let mut scenes: HashMap<String, Vec<Line>> = HashMap::new();
        for (file, text) in files {
            let mut name = (*file).to_owned();
            for (number, line) in (1..).zip(text.lines()) {
                let failed = |reason: String| SceneError { file, line: number, reason };
                let template: Value = serde_json::from_str(line).map_err(|error| failed(error.to_string()))?;
                match Step::deserialize(&template).map_err(|error| failed(error.to_string()))? {
                    Step::Scene(next) if scenes.contains_key(&next) => {
                        return Err(failed(format!("the scene {next} exists already")));
                    }
                    Step::Scene(next) => name = next,
                    _ => scenes.entry(name.clone()).or_default().push(Line { file, number, template }),
                }
            }
        }
        Ok(Self(scenes))
    }

    /// Returns the lines of a scene; empty if it does not exist.
    pub fn lines(&self, scene: &str) -> &[Line] {
        self.0.get(scene).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AGENTS, ERRANDS, variables};
    use super::*;
    use std::collections::BTreeSet;

    /// Reads a scene as the player does, and all that it refers to; adds their names to `seen`.
    fn walk(scenes: &Scenes, scene: &str, variables: &mut Variables, seen: &mut BTreeSet<String>) -> Result<(), SceneError> {
        seen.insert(scene.to_owned());
        for line in scenes.lines(scene) {
            let follow = |scene: &str, variables: &mut Variables, seen: &mut BTreeSet<String>| {
                if scenes.lines(scene).is_empty() {
                    Err(line.error(format!("no scene {scene}")))
                } else {
                    walk(scenes, scene, variables, seen)
                }
            };
            let mut next = Vec::new();
            match line.step(variables)? {
                Step::Play { scene, each, times } => {
                    for (n, with) in variables::repetitions(each, times) {
                        variables.set_all(n);
                        variables.set_all(with);
                        follow(&scene, variables, seen)?;
                    }
                }
                Step::Start { scene, group, with } => {
                    seen.insert(group);
                    let mut own = variables.clone();
                    own.set_all(with);
                    follow(&scene, &mut own, seen)?;
                }
                Step::Decide { sets, approved, rejected, .. } => {
                    variables.set_all(sets);
                    next.extend([approved, rejected]);
                }
                Step::Wait { group, .. } if !seen.contains(&group) => return Err(line.error(format!("no group {group}"))),
                Step::Wait { done, stopped, .. } => next.extend([done, stopped]),
                Step::Begin { agent, .. } if !AGENTS.contains(&&*agent) && agent != "given" => {
                    return Err(line.error(format!("no agent {agent}")));
                }
                Step::IfStopped(scene) => next.push(Some(scene)),
                Step::Message => variables.set("message", "m".into()),
                Step::Set(values) => variables.set_all(values),
                _ => {}
            }
            for scene in next.into_iter().flatten() {
                follow(&scene, variables, seen)?;
            }
        }
        Ok(())
    }

    #[test]
    fn every_line_is_a_step_and_every_reference_exists() {
        let scenes = Scenes::load().unwrap_or_else(|error| panic!("{error}"));
        let mut seen = BTreeSet::new();
        // The variables that Rust gives to all scenes, and to those that handle a control.
        let given = "now session run";
        let of_control = "agent answer artifact assignee call control evidence excerpt input messageId target task \
                          teammate tool trigger turn version words status";
        let controls = scenes.0.iter().filter(|(_, lines)| lines[0].file == "controls").map(|(name, _)| (&**name, of_control));
        let story = ERRANDS.iter().map(|errand| errand[0]).chain(["coordinator"]).map(|name| (name, ""));
        for (entry, more) in controls.chain(story) {
            let mut variables = Variables::default();
            given.split(' ').chain(more.split_whitespace()).for_each(|name| variables.set(name, "given".into()));
            variables.set("taskKind", "task-on-board".into());
            walk(&scenes, entry, &mut variables, &mut seen).unwrap_or_else(|error| panic!("{error}"));
        }
        let all: BTreeSet<_> = scenes.0.keys().cloned().collect();
        assert_eq!(all.difference(&seen).collect::<Vec<_>>(), Vec::<&String>::new(), "scenes that no other one plays");
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        let error = |text| Scenes::read(&[("one", text)]).unwrap_err().to_string();
        assert!(error("{\"pause\":1}\n{\"paus\":1}").starts_with("scenes/one.ndjson:2: unknown variant `paus`"));
        assert!(error("{\"say\":{\"agent\":\"a\",\"text\":\"b\",\"to\":\"c\"}}").contains("unknown field `to`"));
        assert!(error("{\"scene\":\"a\"}\n\"finish\"\n{\"scene\":\"a\"}").contains("exists already"));
        let scenes = Scenes::read(&[("one", "{\"text\":\"{unknown}\"}")]).unwrap();
        let failed = scenes.lines("one")[0].step(&Variables::default()).unwrap_err().to_string();
        assert_eq!(failed, "scenes/one.ndjson:1: no variable {unknown}");
    }
}
