//! Agents that are processes: started without a shell, with a given environment, spoken to by lines of JSON.
//!
//! A process is the leader of its own group, and the whole group is killed with it: agents start tools. On Linux it is
//! the supervisor of the program, which also ends what left the group, and ends all with the server
//! (`connect::supervisor`). A process stays between the turns of its session, and what it writes then is dropped. The
//! pool ends the oldest ones. A process ends with its leader: a child that holds the output open after that does not
//! keep a run alive.

use super::entry::{AgentCommand, CallLimits, HiddenText};
use super::error::{UpstreamError, excerpt};
use super::lines::LineReader;
use super::parts::{Part, parts};
#[cfg(target_os = "linux")]
use super::supervisor::NOT_STARTED;
use crate::model::SessionId;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::Value;
use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// Processes that wait for another turn of their session.
const IDLE_MAX: usize = 16;
/// Lines of standard error that a failure quotes.
const ERROR_LINES_MAX: usize = 8;
/// The most bytes of one of them.
const ERROR_LINE_BYTES_MAX: u64 = 4096;
/// Time that a process has to exit after its output ended, and to say why; and that its output has to end after its exit.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_secs(1);
/// Time to write one message to a process.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);

/// A running process.
pub(super) struct AgentProcess {
    child: Child,
    /// `None` once the process must end: its supervisor sees the end of the pipe.
    input: Option<ChildStdin>,
    output: LineReader<ChildStdout>,
    errors: Arc<Mutex<VecDeque<String>>>,
    /// Reads standard error to its end.
    reading_errors: JoinHandle<()>,
    /// Comes with each end of a process of this server.
    ends: unix::Signal,
    /// Whether the process is a supervisor, which ends the program with the input.
    is_supervised: bool,
    /// When the output has to end, once the leader has exited.
    output_ends_by: Option<Instant>,
}

impl AgentProcess {
    /// Starts the program.
    ///
    /// # Errors
    /// [`UpstreamError`] if it cannot be started.
    pub fn start(command: &AgentCommand, further: &[String], line_bytes_max: usize) -> Result<Self, UpstreamError> {
        let mut words = command.supervisor.iter().chain(&command.words).chain(further);
        let program = &command.words[0];
        let mut starting = Command::new(words.next().expect("an entry has a program"));
        starting.args(words).env_clear();
        starting.envs(command.environment.iter().map(|(name, HiddenText(value))| (name, value)));
        if let Some(directory) = &command.directory {
            starting.current_dir(directory);
        }
        // Listens first, so that it does not miss the end of the process.
        let ends = unix::signal(SignalKind::child()).map_err(|error| {
            UpstreamError::new("process_not_started", format!("The end of {program:?} could not be noticed: {error}."))
        })?;
        starting.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = starting.spawn().map_err(|error| {
            UpstreamError::new("process_not_started", format!("The program {program:?} cannot be started: {error}."))
        })?;
        let is_supervised = !command.supervisor.is_empty();
        let (input, error) = (child.stdin.take(), child.stderr.take());
        let output = LineReader::new(child.stdout.take().expect("standard output is piped"), line_bytes_max);
        let errors = Arc::default();
        let kept: Arc<Mutex<VecDeque<String>>> = Arc::clone(&errors);
        let name = program.clone();
        let reading_errors = tokio::spawn(async move {
            let mut error = BufReader::new(error.expect("standard error is piped"));
            loop {
                let mut line = Vec::new();
                // A longer line comes in pieces. A program would fail to write if nothing read on.
                let read = (&mut error).take(ERROR_LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
                if !read.is_ok_and(|bytes| bytes > 0) {
                    return;
                }
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                tracing::debug!(program = name, line, "an agent's standard error");
                let mut kept = kept.lock();
                if kept.len() == ERROR_LINES_MAX {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
        Ok(Self { child, input, output, errors, reading_errors, ends, is_supervised, output_ends_by: None })
    }

    /// Writes one message.
    ///
    /// # Errors
    /// The process has ended, or does not read.
    pub async fn write(&mut self, message: &Value) -> Result<(), UpstreamError> {
        let line = format!("{message}\n");
        let Self { input: Some(input), output, .. } = self else { return Err(self.ended("it was ended").await) };
        let writing = async {
            input.write_all(line.as_bytes()).await?;
            input.flush().await
        };
        let written = tokio::select! {
            biased;
            written = timeout(WRITE_TIME_MAX, writing) => written,
            () = output.read_ahead() => unreachable!("it never resolves"),
        };
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.ended(&error.to_string()).await),
            Err(_) => Err(UpstreamError::new("process_silent", "The agent's process does not read its input.")),
        }
    }

    /// The next line of the process. Cancel safe.
    ///
    /// # Errors
    /// The process has ended, or is silent for longer than `limit`.
    pub async fn next(&mut self, limit: Option<Duration>) -> Result<String, UpstreamError> {
        let until = |time: Option<Instant>| async move {
            match time {
                Some(time) => sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        let silent_at = limit.map(|limit| Instant::now() + limit);
        loop {
            let leader = self.leader();
            tokio::select! {
                biased;
                received = self.output.next() => return match received {
                    Some(line) => line,
                    None => Err(self.ended("it closed its output").await),
                },
                () = exit_of(leader, &mut self.ends), if self.output_ends_by.is_none() => {
                    // Most children that hold the output open end with the group.
                    self.end();
                    self.output_ends_by = Some(Instant::now() + LAST_WORDS_TIME_MAX);
                }
                () = until(self.output_ends_by) => return Err(self.ended("it exited").await),
                () = until(silent_at) => {
                    let seconds = limit.unwrap_or_default().as_secs_f64();
                    let reason = format!("The agent's process wrote nothing for {seconds} s, the limit.");
                    return Err(UpstreamError::new("process_silent", reason));
                }
            }
        }
    }

    /// The error of a process that has ended.
    async fn ended(&mut self, how: &str) -> UpstreamError {
        // Its exit and its last words may follow its output by a moment.
        let leader = self.leader();
        let exit = tokio::task::spawn_blocking(move || leader.is_none_or(|leader| has_exited(leader, WaitIdOptions::empty())));
        let has_exited = matches!(timeout(LAST_WORDS_TIME_MAX, exit).await, Ok(Ok(true)));
        self.end();
        let status = match self.child.wait().await {
            Ok(status) if has_exited => status.to_string(),
            _ => how.to_owned(),
        };
        let _ = timeout(LAST_WORDS_TIME_MAX, &mut self.reading_errors).await;
        let words = self.errors.lock().iter().cloned().collect::<Vec<_>>().join("\n");
        #[cfg(target_os = "linux")]
        if words.starts_with(NOT_STARTED) {
            return UpstreamError::new("process_not_started", words);
        }
        UpstreamError::new("process_ended", format!("The agent's process ended: {status}. {}", excerpt(&words)).trim_end())
    }

    fn is_running(&mut self) -> bool {
        self.leader().is_some_and(|leader| !has_exited(leader, WaitIdOptions::NOHANG))
    }

    /// The leader of the group, until it is reaped.
    fn leader(&self) -> Option<Pid> {
        self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// Ends the program with what it started. Call it before the leader is reaped: until then its id names no other group.
    fn end(&mut self) {
        self.input = None;
        if let Some(group) = self.leader().filter(|_| !self.is_supervised) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether the process has exited. Does not reap it, so that its id stays the id of its group.
fn has_exited(process: Pid, options: WaitIdOptions) -> bool {
    let options = options | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(process), options), Ok(None))
}

/// Resolves once the leader has exited. Cancel safe.
async fn exit_of(leader: Option<Pid>, ends: &mut unix::Signal) {
    while leader.is_some_and(|leader| !has_exited(leader, WaitIdOptions::NOHANG)) {
        ends.recv().await;
    }
}

/// Processes between two turns, with what their protocol knows about them.
pub(super) struct ProcessPool<P> {
    pub command: AgentCommand,
    pub limits: CallLimits,
    pub line_bytes_max: usize,
    /// The least recently used first.
    idle: Mutex<VecDeque<(SessionId, IdleProcess<P>)>>,
}

/// A process between two turns. Dropping it ends the process.
struct IdleProcess<P> {
    /// Dropping it ends the task.
    is_wanted: oneshot::Sender<()>,
    /// Drops what the process writes, and returns the process once it is wanted. `None`: its output has ended.
    discarding: JoinHandle<Option<P>>,
}

impl<P: Pooled> IdleProcess<P> {
    fn new(mut process: P) -> Self {
        let (is_wanted, wanted) = oneshot::channel();
        let discarding = tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = wanted => Some(process),
                () = process.process().output.discard() => None,
            }
        });
        Self { is_wanted, discarding }
    }

    /// The process, if it still runs. Nothing that it wrote before is left.
    async fn wake(self) -> Option<P> {
        drop(self.is_wanted);
        let mut process = self.discarding.await.ok()??;
        process.process().output.discard_written();
        process.process().is_running().then_some(process)
    }
}

/// A process with the state of its protocol.
pub(super) trait Pooled: Send + 'static {
    fn process(&mut self) -> &mut AgentProcess;
}

impl<P: Pooled> ProcessPool<P> {
    pub const fn new(command: AgentCommand, limits: CallLimits, line_bytes_max: usize) -> Self {
        Self { command, limits, line_bytes_max, idle: Mutex::new(VecDeque::new()) }
    }

    /// Takes the process of a session, if it still runs.
    pub async fn take(&self, session: &SessionId) -> Option<P> {
        let (_, process) = {
            let mut idle = self.idle.lock();
            let at = idle.iter().position(|(of, _)| of == session)?;
            idle.remove(at)?
        };
        process.wake().await
    }

    /// Keeps a process for the next turn of its session.
    pub fn keep(&self, session: &SessionId, process: P) {
        let mut idle = self.idle.lock();
        idle.push_back((session.clone(), IdleProcess::new(process)));
        if idle.len() > IDLE_MAX {
            idle.pop_front();
        }
    }
}

/// The conversation as text, for a process that does not know it.
pub(super) fn told(history: &[Value]) -> Option<String> {
    let said = |message: &Value| {
        let said = parts(&message["content"]).into_iter().map(|part| match part {
            Part::Text(text) => text.to_owned(),
            Part::File(file) => format!("[file {}]", file.shown_name()),
        });
        let text = said.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        (!text.is_empty()).then_some(format!("{}: {text}", message["role"].as_str()?))
    };
    let lines: Vec<String> = history.iter().filter_map(said).collect();
    (!lines.is_empty()).then(|| format!("The conversation so far:\n\n{}", lines.join("\n\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::test_kill_process;

    /// Starts a shell that leaves this child behind, and returns it with the child's id, which it has written.
    async fn leader_with(child: &str, then: &str) -> (AgentProcess, Pid) {
        let words = ["sh", "-c", &format!("{child} & echo $!; {then}")].map(str::to_owned).to_vec();
        let environment = std::env::var("PATH").map(|path| ("PATH".to_owned(), HiddenText(path))).into_iter().collect();
        let command = AgentCommand { words, environment, directory: None, supervisor: Vec::new() };
        let mut process = AgentProcess::start(&command, &[], 1024).unwrap();
        let child = process.next(None).await.unwrap().parse().unwrap();
        (process, Pid::from_raw(child).unwrap())
    }

    async fn leader_with_child(then: &str) -> (AgentProcess, Pid) {
        leader_with("sleep 600 >&- 2>&-", then).await
    }

    /// Waits until the process is gone, or is a zombie that the machine's first process has not reaped.
    async fn has_ended(process: Pid) -> bool {
        let status = format!("/proc/{}/stat", process.as_raw_nonzero());
        for _ in 0..200 {
            let is_zombie = std::fs::read_to_string(&status).is_ok_and(|stat| stat.contains(") Z "));
            if is_zombie || test_kill_process(process).is_err() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    }

    #[tokio::test]
    async fn the_children_of_a_program_that_ended_by_itself_end_with_it() {
        let (mut process, child) = leader_with_child("echo last words >&2; exit 3").await;
        let error = process.next(None).await.unwrap_err().to_string();
        drop(process);
        assert!(has_ended(child).await, "the child runs on");
        assert!(error.contains("exit status: 3") && error.contains("last words"), "{error}");
    }

    /// A test that waits for longer fails.
    const PATIENCE: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_program_ends_although_its_child_holds_its_output_open() {
        let ends = "echo line; echo last words >&2; exit 3";
        // `setsid` makes the child a group of its own, which is not killed with the program.
        let ends_later = format!("until [ \"$(cut -d' ' -f6 /proc/$!/stat)\" = $! ]; do :; done; {ends}");
        for (child, ends, is_of_group) in [("sleep 600", ends, true), ("setsid sleep 600", &ends_later, false)] {
            let (mut process, child) = leader_with(child, ends).await;
            assert_eq!(process.next(None).await.unwrap(), "line", "what it wrote before its exit is there");
            let error = timeout(PATIENCE, process.next(None)).await.expect("the exit ends it").unwrap_err().to_string();
            assert!(error.contains("exit status: 3") && error.contains("last words"), "{error}");
            match is_of_group {
                true => assert!(has_ended(child).await, "the child runs on"),
                false => rustix::process::kill_process(child, Signal::KILL).unwrap(),
            }
        }
    }

    #[tokio::test]
    async fn the_children_of_a_program_that_ended_between_two_turns_end_with_it() {
        let (mut process, child) = leader_with_child("exit 0").await;
        while process.is_running() {
            tokio::task::yield_now().await;
        }
        drop(process);
        assert!(has_ended(child).await, "the child runs on");
    }
}
