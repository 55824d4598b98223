//! The supervisor of an agent's program: a process between the server and the program that ends all that was started.
//!
//! ```text
//! server ──input──▶ program ─▶ its children, also with sessions of their own
//!    └──────────▶ supervisor: sees the end of the input, and adopts the children that lose their parents
//! ```
//! The supervisor and the program share the pipe that is the program's input. Only the server holds its other end. So its
//! end says that the server wants the program to end, or has ended, also by `kill -9`. The supervisor then kills all its
//! descendants. It is their subreaper (Linux): a descendant whose parent ends becomes its child.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// How the report of a program that cannot be started begins.
pub(super) const NOT_STARTED: &str = "proscenium cannot start the program ";
/// The exit code of that, as shells have it.
const NOT_STARTED_CODE: u8 = 127;

/// Runs a program and ends everything that it started. Exits as the program did.
#[must_use]
pub fn run(words: &[OsString]) -> ExitCode {
    let leader = match start(words) {
        Ok(leader) => leader,
        Err(error) => {
            // A closed standard error has no reader of the reason.
            let program = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "{NOT_STARTED}{program:?}: {error}.");
            return NOT_STARTED_CODE.into();
        }
    };
    std::thread::spawn(move || {
        wait_for_end_of_input();
        let _ = kill_process(leader, Signal::KILL);
    });
    let status = wait_for(leader);
    kill_descendants();
    exit_as(status)
}

fn start(words: &[OsString]) -> std::io::Result<Pid> {
    let [program, arguments @ ..] = words else { return Err(std::io::ErrorKind::InvalidInput.into()) };
    set_child_subreaper(Some(getpid()))?;
    // A program that signals its own group must not end its supervisor.
    let child = Command::new(program).args(arguments).process_group(0).spawn()?;
    // Otherwise the server would not see that the program closed its output. It fails only where nothing is mounted.
    if let Ok(nothing) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&nothing).and_then(|()| rustix::stdio::dup2_stderr(&nothing));
    }
    Ok(Pid::from_child(&child))
}

/// Waits until no process holds the other end of standard input.
fn wait_for_end_of_input() {
    let input = std::io::stdin();
    // The kernel reports a hangup unasked.
    let mut waited = [PollFd::new(&input, PollFlags::empty())];
    // Fails only for an interrupted call.
    while poll(&mut waited, None).is_err() {}
}

/// Reaps children until this one has ended. `None`: another process reaped it.
fn wait_for(leader: Pid) -> Option<WaitStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == leader => return Some(status),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Kills the children, then those that they leave behind, until none is left.
fn kill_descendants() {
    loop {
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// The processes whose parent this one is.
fn children() -> Vec<Pid> {
    let own = getpid();
    let processes =
        std::fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_child = |process: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // After the name, which may have any character: the state, and the parent.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        parent.and_then(Pid::from_raw) == Some(own)
    };
    processes.filter(is_child).filter_map(|process| Pid::from_raw(process.parse().ok()?)).collect()
}

/// Ends this process as the program ended.
fn exit_as(status: Option<WaitStatus>) -> ExitCode {
    if let Some(signal) = status.and_then(WaitStatus::terminating_signal).and_then(Signal::from_named_raw) {
        let _ = kill_process(getpid(), signal);
    }
    let code = status.and_then(WaitStatus::exit_status).and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
