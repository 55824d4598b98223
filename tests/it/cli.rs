//! The command line at a terminal: the built binary, its output, its exit code.

use proscenium::log::embedded::FORMAT;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time after which an operation counts as hanging. No test depends on a faster result.
pub const DEADLINE: Duration = crate::harness::TIMEOUT;

pub fn proscenium(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_proscenium"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A running server; dropping the value kills it.
pub struct Running {
    child: Child,
    pub url: String,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        Self::start_logging(command, Stdio::null())
    }

    pub fn start_logging(command: &mut Command, log: Stdio) -> Self {
        crate::harness::install_crypto_provider();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (line_sender, line_receiver) = mpsc::channel();
        let reading = std::thread::spawn(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            line_sender.send(line).unwrap();
            stdout
        });
        let Ok(line) = line_receiver.recv_timeout(DEADLINE) else {
            child.kill().unwrap();
            panic!("no first line within {DEADLINE:?}");
        };
        let url =
            line.strip_prefix("listening on ").unwrap_or_else(|| panic!("the first line is {line:?}")).trim_end().to_owned();
        Self { child, url, stdout: reading.join().unwrap() }
    }

    /// Starts a server with an in-memory store.
    pub fn serve() -> Self {
        Self::start(&mut proscenium(&["serve", "--listen", "127.0.0.1:0", "--store", "memory"]))
    }

    /// Starts a server with a store in this directory.
    pub fn serve_in(data: &Path) -> Self {
        Self::start(proscenium(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data))
    }

    pub fn terminate(&self) {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
    }

    pub fn exit_code(&mut self) -> Option<i32> {
        poll_until(|| self.child.try_wait().unwrap()).code()
    }

    async fn get(&self, path: &str) -> Value {
        reqwest::get(format!("{}{path}", self.url)).await.unwrap().json().await.unwrap()
    }

    pub async fn post(&self, run: &str, source: &str, content_type: &str, body: impl Into<reqwest::Body>) -> Value {
        let url = format!("{}/v1/runs/{run}/facts?source={source}", self.url);
        let answer = reqwest::Client::new().post(url).header("content-type", content_type).body(body).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        answer.json().await.unwrap()
    }

    pub async fn record(&self, run: &str, recording: &Path) {
        self.post(run, "awaken", "application/x-ndjson", std::fs::read(recording).unwrap()).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until `poll` returns a value.
fn poll_until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < DEADLINE, "no value within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Threads drain both pipes, so that neither fills up.
    let drain = |mut pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).unwrap();
            bytes
        })
    };
    let (out, err) = (drain(Box::new(child.stdout.take().unwrap())), drain(Box::new(child.stderr.take().unwrap())));
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > DEADLINE => {
                child.kill().unwrap();
                panic!("the command did not end within {DEADLINE:?}");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/awaken").join(name)
}

#[tokio::test]
async fn a_server_first_prints_its_address_and_answers_there() {
    let server = Running::serve();
    assert_eq!(server.get("/healthz").await["status"], "ok");
}

#[tokio::test]
async fn a_server_keeps_its_logs_in_the_given_data_directory() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let server = Running::start(proscenium(&["serve"]).env("PROSCENIUM_LISTEN", "127.0.0.1:0").env("PROSCENIUM_DATA_DIR", &data));
    let answer = server.post("r", "agentui", "application/json", r#"{"type":"run.started"}"#).await;
    assert_eq!(answer["lastSequence"], 1);
    assert!(data.is_dir());
}

#[tokio::test]
async fn sigterm_ends_a_server_with_0_while_clients_are_connected() {
    // With this limit for a request's head, only the stop ends a connection that sends none.
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--head-time-ms", "600000"];
    let mut server = Running::start_logging(&mut proscenium(&arguments), Stdio::piped());
    let stream = reqwest::get(format!("{}/v1/runs/never/stream?frames=events", server.url)).await.unwrap();
    // A connection without a request, as browsers open them in advance.
    let idle = std::net::TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    server.get("/readyz").await;
    server.terminate();
    assert_eq!(server.exit_code(), Some(0));
    drop((stream, idle));
    let mut log = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("stopped") && !log.contains("still open"), "the stop waited for a connection:\n{log}");
}

#[test]
fn listening_on_a_public_address_is_rejected_with_the_remedy() {
    let refused = run(&mut proscenium(&["serve", "--listen", "0.0.0.0:0", "--store", "memory"]));
    assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(1), ""));
    assert!(stderr(&refused).contains("0.0.0.0:0") && stderr(&refused).contains("--insecure"), "{}", stderr(&refused));
    let insecure = Running::start(&mut proscenium(&["serve", "--listen", "0.0.0.0:0", "--store", "memory", "--insecure"]));
    assert!(insecure.url.starts_with("http://0.0.0.0:"));
}

#[test]
fn a_listen_address_in_use_is_named() {
    let server = Running::serve();
    let taken = server.url.strip_prefix("http://").unwrap();
    let refused = run(&mut proscenium(&["serve", "--listen", taken, "--store", "memory"]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains(&format!("cannot listen on {taken}")), "{}", stderr(&refused));
}

#[tokio::test]
async fn a_demo_plays_runs_that_end_and_leaves_no_files() {
    let directory = TempDir::new().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let wanted = taken.local_addr().unwrap().to_string();
    let mut demo = Running::start(proscenium(&["demo", "--listen", &wanted]).env("TMPDIR", directory.path()));
    assert_ne!(demo.url, format!("http://{wanted}"), "the demo uses another port if its port is in use");
    let begun = Instant::now();
    loop {
        let runs = demo.get("/v1/runs").await;
        if let Some(run) = runs["runs"].as_array().unwrap().iter().find(|run| run["status"] == "completed") {
            assert!(run["runId"].as_str().unwrap().starts_with("demo-"), "{run}");
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "no run has ended within the deadline: {runs}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    demo.terminate();
    assert_eq!(demo.exit_code(), Some(0));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let mut welcome = String::new();
    demo.stdout.read_to_string(&mut welcome).unwrap();
    assert!(welcome.contains(&format!("Open {} in a browser", demo.url)), "{welcome}");
}

#[tokio::test]
async fn tail_shows_a_finished_run_and_exits() {
    let server = Running::serve();
    server.record("r", &recording("tool_progress_activity.ndjson")).await;
    let shown = run(&mut proscenium(&["tail", "r", "--url", &server.url]));
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    let text = stdout(&shown);
    for line in [
        "reasoning: Need to index first.",
        "▸ index_docs  50%  Indexed batch 5/10",
        "✓ index_docs  {\"indexed\":10}",
        "Indexed 10 batches.",
        "■ completed",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line:?} is not in\n{text}");
    }
    assert!(!text.contains('\x1b'), "output to a pipe has no colours");
}

#[tokio::test]
async fn tail_reports_an_unknown_run_and_shows_it_once_it_starts() {
    let server = Running::serve();
    let mut child =
        proscenium(&["tail", "later", "--url", &server.url]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut notice = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut notice).unwrap();
    assert_eq!(notice, "run \"later\" has no facts yet; waiting for the first (Ctrl-C to stop)\n");
    let facts = json!([{ "type": "run.started" }, { "type": "run.finished" }]);
    server.post("later", "agentui", "application/json", facts.to_string()).await;
    let shown = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert_eq!((shown.status.code(), stdout(&shown).contains("■ completed")), (Some(0), true));
}

#[test]
fn a_data_directory_that_cannot_be_created_is_named() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("data");
    let refused = run(&mut proscenium(&["serve", "--listen", "127.0.0.1:0", "--data-dir", below.to_str().unwrap()]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains(&below.display().to_string()), "{}", stderr(&refused));
}

#[tokio::test]
async fn an_interrupted_demo_removes_its_directory_and_logs_no_warning() {
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    for _ in 0..3 {
        let temporary = TempDir::new().unwrap();
        let mut command = proscenium(&["demo", "--listen", "127.0.0.1:0", "--speed", "0"]);
        let written = std::fs::File::create(&log).unwrap();
        let mut demo = Running::start_logging(command.env("TMPDIR", temporary.path()), Stdio::from(written));
        let begun = Instant::now();
        // The more the demo has written, the more its store cleans up at the end.
        while demo.get("/v1/runs?limit=40").await["runs"].as_array().unwrap().len() < 40 {
            assert!(begun.elapsed() < DEADLINE);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(Command::new("kill").args(["-INT", &demo.child.id().to_string()]).status().unwrap().success());
        assert_eq!(tokio::task::spawn_blocking(move || demo.exit_code()).await.unwrap(), Some(0));
        let notice = std::fs::read_to_string(&log).unwrap();
        assert!(!notice.contains("lsm_tree") && !notice.contains("cleanup"), "{notice}");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "the demo removes its directory");
    }
}

#[tokio::test]
async fn tail_exits_with_0_for_a_failed_run_and_shows_each_audience_its_lines() {
    let server = Running::serve();
    server.record("r", &recording("blocked_by_policy.ndjson")).await;
    let lines = |audience: &str| {
        let shown = run(&mut proscenium(&["tail", "r", "--url", &server.url, "--audience", audience]));
        assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
        stdout(&shown).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (user, internal) = (lines("user"), lines("internal"));
    assert_eq!(user.last().map(String::as_str), Some("■ failed"));
    assert!(user.iter().all(|line| internal.contains(line)), "{user:#?} {internal:#?}");
    assert!(
        internal.iter().any(|line| line.starts_with("· state snapshot"))
            && !user.iter().any(|line| line.contains("state snapshot"))
    );
}

#[tokio::test]
async fn tail_resumes_after_lost_connections_without_losing_output() {
    let server = Running::serve();
    server.record("r", &recording("multi_tool_sequential.ndjson")).await;
    let whole = run(&mut proscenium(&["tail", "r", "--url", &server.url]));
    // A relay that breaks each connection after more bytes than the last, always in the middle of a frame.
    let far = server.url.strip_prefix("http://").unwrap().to_owned();
    let near = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", near.local_addr().unwrap());
    let relay = tokio::spawn(async move {
        for passed in (0..).map(|n| 5000 << n) {
            let (mut near, _) = near.accept().await.unwrap();
            let mut far = tokio::net::TcpStream::connect(&far).await.unwrap();
            let (mut from_near, mut to_near) = near.split();
            let (from_far, mut to_far) = far.split();
            let mut from_far = tokio::io::AsyncReadExt::take(from_far, passed);
            tokio::select! {
                _ = tokio::io::copy(&mut from_near, &mut to_far) => {}
                _ = tokio::io::copy(&mut from_far, &mut to_near) => {}
            }
        }
    });
    let cut = tokio::task::spawn_blocking(move || run(&mut proscenium(&["tail", "r", "--url", &url]))).await.unwrap();
    relay.abort();
    assert_eq!(cut.status.code(), Some(0), "{}", stderr(&cut));
    // Notices about the connection split a text: remove them and all line breaks before comparing.
    let words = |output: &Output| {
        let text = stdout(output);
        text.lines().filter(|line| !line.starts_with('—')).collect::<String>()
    };
    assert!(stdout(&cut).contains("connection lost") && stdout(&cut).contains("reconnected"), "{}", stdout(&cut));
    assert_eq!(words(&cut), words(&whole));
}

#[test]
fn a_client_command_without_a_server_says_how_to_start_one() {
    let unused_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{unused_address}");
    for arguments in [&["tail", "r", "--url", &url][..], &["export", "r", "--url", &url], &["health", "--url", &url]] {
        let failed = run(&mut proscenium(arguments));
        assert_eq!(failed.status.code(), Some(1));
        assert!(
            stderr(&failed).contains("no server answers at") && stderr(&failed).contains("proscenium serve"),
            "{}",
            stderr(&failed)
        );
    }
}

#[tokio::test]
async fn an_exported_and_imported_run_is_the_same_run() {
    let server = Running::serve();
    let directory = TempDir::new().unwrap();
    for entry in std::fs::read_dir(recording("")).unwrap() {
        let recording = entry.unwrap().path();
        let name = recording.file_stem().unwrap().to_str().unwrap();
        server.record(name, &recording).await;
        let (copy, file) = (format!("copy of {name}"), directory.path().join(name));
        let file = file.to_str().unwrap();
        run_ok(&["export", name, "-o", file], &server);
        run_ok(&["import", file, "--run", &copy], &server);
        let again = format!("{file} again");
        run_ok(&["export", &copy, "-o", &again], &server);
        assert_eq!(envelopes(Path::new(&again)), envelopes(Path::new(file)), "{name}");
    }
}

/// Runs a command that must succeed.
fn run_ok(arguments: &[&str], server: &Running) -> Output {
    let output = run(proscenium(arguments).args(["--url", &server.url]));
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    output
}

/// Reads a file's envelopes without the members that a server stamps on each envelope it accepts.
fn envelopes(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let envelope = |line: &str| {
        let mut envelope: Value = serde_json::from_str(line).unwrap();
        for stamp in ["eventId", "receivedAt", "runId"] {
            assert!(envelope.as_object_mut().unwrap().remove(stamp).is_some(), "{line}");
        }
        envelope.pointer_mut("/payload/decidedBy").and_then(Value::as_object_mut).map(|by| by.remove("at"));
        envelope
    };
    text.lines().map(envelope).collect()
}

#[tokio::test]
async fn a_repeated_import_adds_nothing() {
    let server = Running::serve();
    server.record("r", &recording("hitl_approve.ndjson")).await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("r.ndjson");
    let file = file.to_str().unwrap();
    run_ok(&["export", "r", "-o", file], &server);
    run_ok(&["import", file, "--run", "copy"], &server);
    let before = server.get("/v1/runs/copy").await["lastSequence"].clone();
    let again = run_ok(&["import", file, "--run", "copy"], &server);
    assert_eq!(server.get("/v1/runs/copy").await["lastSequence"], before);
    assert!(stderr(&again).contains("35 more were already imported"), "{}", stderr(&again));
}

#[tokio::test]
async fn a_run_is_not_imported_into_itself() {
    let server = Running::serve();
    server.record("r", &recording("short_text_reasoning.ndjson")).await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("r.ndjson");
    run_ok(&["export", "r", "-o", file.to_str().unwrap()], &server);
    let refused = run(&mut proscenium(&["import", file.to_str().unwrap(), "--url", &server.url]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--run"), "{}", stderr(&refused));
}

#[tokio::test]
async fn a_bad_line_of_an_import_is_named_by_file_and_line() {
    let server = Running::serve();
    let directory = TempDir::new().unwrap();
    let check = |name: &str, lines: &[&str], line: u64, why: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, lines.join("\n")).unwrap();
        let refused = run(&mut proscenium(&["import", file.to_str().unwrap(), "--run", name, "--url", &server.url]));
        assert_eq!(refused.status.code(), Some(1));
        let error = stderr(&refused);
        assert!(error.contains(&format!("{}:{line}: ", file.display())) && error.contains(why), "{error}");
    };
    let good = r#"{"type":"text.delta","payload":{"text":"a"}}"#;
    check("cut", &[good, good, "{\"type\":"], 3, "not JSON");
    check("untyped", &[good, "", "{}"], 3, "type");
    // Only the server can detect this error.
    check("id", &[good, "", r#"{"type":"text.delta","messageId":""}"#, good], 3, "messageId");
    assert_eq!(server.get("/v1/runs/cut").await["code"], json!("no_such_run"), "an import of an incomplete file writes nothing");
}

#[tokio::test]
async fn a_failed_export_leaves_no_file() {
    let server = Running::serve();
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("r.ndjson");
    let refused = run(&mut proscenium(&["export", "never", "-o", file.to_str().unwrap(), "--url", &server.url]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("no_such_run"), "{}", stderr(&refused));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_version_names_the_commit_the_features_and_the_store_format() {
    let shown = run(&mut proscenium(&["--version"]));
    let enabled = [
        ("cloud", cfg!(feature = "cloud")),
        ("cluster", cfg!(feature = "cluster")),
        ("otlp", cfg!(feature = "otlp")),
        ("sabotage", cfg!(feature = "sabotage")),
        ("simulation", cfg!(feature = "simulation")),
        ("test-clock", cfg!(feature = "test-clock")),
    ];
    let names: Vec<_> = enabled.iter().filter(|(_, is_enabled)| *is_enabled).map(|(name, _)| *name).collect();
    let features = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    let version = env!("CARGO_PKG_VERSION");
    let text = stdout(&shown);
    let commit = text
        .strip_prefix(&format!("proscenium {version} (commit "))
        .and_then(|rest| rest.strip_suffix(&format!(", features: {features}, store format {FORMAT})\n")))
        .unwrap_or_else(|| panic!("{text}"));
    let digits = commit.trim_end_matches("-dirty");
    assert!(commit == "unknown" || digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{text}");
}

/// Returns the names of all commands, as the help lists them.
fn commands() -> Vec<String> {
    let help = stdout(&run(&mut proscenium(&["--help"])));
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    listed.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
}

#[test]
fn every_shell_gets_completions_for_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&run(&mut proscenium(&["completions", shell])));
        for command in commands() {
            assert!(script.contains(&command), "{shell} does not complete {command}");
        }
    }
    let unknown = run(&mut proscenium(&["completions", "cmd.exe"]));
    assert!(unknown.status.code() == Some(2) && stderr(&unknown).contains("possible values: bash"), "{}", stderr(&unknown));
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("proscenium.bash");
    std::fs::write(&script, run(&mut proscenium(&["completions", "bash"])).stdout).unwrap();
    for (line, expected) in [
        (&["proscenium", "heal"][..], "health"),
        (&["proscenium", "serve", "--data-"], "--data-dir"),
        (&["proscenium", "serve", "--sync", "al"], "always"),
    ] {
        let complete = r#". "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _proscenium proscenium "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; echo "${COMPREPLY[@]}""#;
        let completed = run(Command::new("bash").args(["-c", complete, "bash"]).arg(&script).args(line));
        assert_eq!(stdout(&completed).trim(), expected, "{line:?}: {}", stderr(&completed));
    }
}

#[test]
fn every_command_has_a_man_page() {
    let page = stdout(&run(&mut proscenium(&["man"])));
    assert!(page.contains(concat!(".TH proscenium 1  \"proscenium ", env!("CARGO_PKG_VERSION"), "\"")), "{page}");
    let directory = TempDir::new().unwrap();
    let pages = directory.path().join("share/man1");
    let written = run(proscenium(&["man", "--dir"]).arg(&pages).env("PROSCENIUM_TOKEN", "hidden-value"));
    assert_eq!((written.status.code(), stdout(&written).as_str()), (Some(0), ""), "{}", stderr(&written));
    assert_eq!(std::fs::read_to_string(pages.join("proscenium.1")).unwrap(), page);
    let named = commands().into_iter().filter(|name| name != "help").map(|name| format!("proscenium-{name}.1"));
    let mut expected: Vec<String> = named.chain(["proscenium.1".to_owned()]).collect();
    expected.sort();
    let mut files: Vec<String> =
        pages.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, expected);
    for file in &files {
        let text = std::fs::read_to_string(pages.join(file)).unwrap();
        assert!(!text.contains(".SH EXTRA"), "{file}: `man` would fill the lines of the examples:\n{text}");
    }
    let tail = std::fs::read_to_string(pages.join("proscenium-tail.1")).unwrap();
    assert!(tail.contains("PROSCENIUM_TOKEN") && !tail.contains("hidden-value"), "{tail}");
}

#[test]
fn a_man_directory_that_cannot_be_created_is_named() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = run(proscenium(&["man", "--dir"]).arg(&file));
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains(&file.display().to_string()), "{}", stderr(&refused));
}

#[test]
fn health_succeeds_while_a_server_is_ready() {
    let server = Running::serve();
    for arguments in [&["health", "--url", &server.url][..], &["health", "--url", &format!("{}/", server.url)]] {
        let checked = run(&mut proscenium(arguments));
        assert_eq!((checked.status.code(), stdout(&checked).as_str()), (Some(0), "ready\n"), "{}", stderr(&checked));
    }
    let configured = run(proscenium(&["health"]).env("PROSCENIUM_URL", &server.url));
    assert_eq!(configured.status.code(), Some(0), "{}", stderr(&configured));
}

#[test]
fn health_fails_with_the_reason_if_the_server_is_not_ready() {
    let directory = TempDir::new().unwrap();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--disk-reserve", "1024GiB", "--data-dir"];
    let server = Running::start(proscenium(&arguments).arg(directory.path()));
    let checked = run(&mut proscenium(&["health", "--url", &server.url]));
    assert_eq!((checked.status.code(), stdout(&checked).as_str()), (Some(1), ""));
    let reason = stderr(&checked);
    assert!(reason.contains(&format!("{} is not ready", server.url)) && reason.contains("disk_full"), "{reason}");
}

#[test]
fn health_fails_if_the_server_does_not_answer_in_time() {
    // A listener that accepts connections, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let checked = run(&mut proscenium(&["health", "--url", &url]));
    assert_eq!(checked.status.code(), Some(1));
    assert!(stderr(&checked).contains("timed out"), "{}", stderr(&checked));
}
