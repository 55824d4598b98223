//! The shell examples of the documentation run, and print what the page shows.
//!
//! Each page has a server, a working directory and one `bash` of its own, which runs the page's `sh` blocks from top to bottom.
//! The script has the lines of the page at their own numbers, so that the shell names the line of the page where it fails.
//!
//! A `rust` block has a copy in the documentation of the library, or is a whole file of `tests/runtime`. Cargo compiles
//! both.
//!
//! A `text` block that directly follows an `sh` block is compared with what that block printed. White space, ids, cursors and
//! times do not count, and `…` stands for anything.

use super::{Page, markdown, site_pages};
use crate::harness::{Process, repository};
use markdown::Block;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long the blocks of one page may take. Only a hang takes as long.
const PAGE_TIME_MAX: Duration = Duration::from_mins(3);
/// Pages that run at the same time. They sleep more than they compute.
const PAGES_AT_ONCE: usize = 4;
/// The two commands at the head of README: the demo does not end, and the tests are what runs this.
const NOT_RUN: [&str; 2] = ["cargo run --release -- demo", "scripts/test"];
/// Ends what a block prints.
const SEPARATOR: char = '\u{1e}';

/// An `sh` block, and the output that the page shows for it.
struct Example<'t> {
    block: Block<'t>,
    shown: Option<Block<'t>>,
}

fn examples(page: &Page) -> Vec<Example<'_>> {
    let lines: Vec<&str> = page.text.lines().collect();
    let mut examples: Vec<Example<'_>> = Vec::new();
    for block in markdown::blocks(&page.text) {
        match (block.language, examples.last_mut()) {
            ("sh", _) if block.lines.iter().any(|line| NOT_RUN.contains(line)) => {}
            ("sh", _) => examples.push(Example { block, shown: None }),
            ("text", Some(example)) if example.shown.is_none() => {
                let between = &lines[example.block.end_line()..block.first_line - 2];
                if between.iter().all(|line| line.is_empty()) {
                    example.shown = Some(block);
                }
            }
            _ => {}
        }
    }
    examples
}

/// The page as a script: lines of examples at their own numbers, and after each example a separator.
fn script(page: &Page, examples: &[Example<'_>]) -> String {
    let mut lines = vec![String::new(); page.text.lines().count()];
    for Example { block, .. } in examples {
        for (line, number) in block.lines.iter().zip(block.first_line..) {
            // The server of the test listens elsewhere.
            let is_address = line.starts_with("PROSCENIUM=http");
            lines[number - 1] = if is_address { String::new() } else { (*line).to_owned() };
        }
        lines[block.end_line() - 1] = format!("printf '{SEPARATOR}'");
    }
    lines.join("\n") + "\n"
}

/// Replaces what differs from run to run.
///
/// Epochs, uuids and other long hexadecimal numbers, times, ids of requests, and the time after which a stream may be
/// opened again.
fn masked(text: &str) -> String {
    let (mut masked, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        if let Some(member) =
            ["\"requestId\":\"", "\"requestId\": \"", "retry: "].into_iter().find(|member| rest.starts_with(member))
        {
            masked.push_str(member);
            rest = rest[member.len()..].trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == '-');
            continue;
        }
        let run = rest.find(|c: char| !c.is_ascii_hexdigit() && !matches!(c, '-' | ':' | '.' | 'T' | 'Z')).unwrap_or(rest.len());
        let token = &rest[..run];
        let hex = token.find(|c: char| !c.is_ascii_hexdigit() && c != '-').unwrap_or(token.len());
        let digits = token[..hex].chars().filter(char::is_ascii_hexdigit).count();
        let is_time = token.len() >= 20 && token.ends_with('Z') && token.as_bytes()[10] == b'T';
        let taken = match () {
            () if is_time => run,
            () if digits >= 16 => hex,
            () => {
                // A word that merely begins like a number goes through as a whole.
                let word = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
                let taken = word.max(first.len_utf8());
                masked.push_str(&rest[..taken]);
                rest = &rest[taken..];
                continue;
            }
        };
        masked.push('#');
        rest = &rest[taken..];
    }
    masked
}

/// Whether the output is what the page shows.
fn is_as_shown(shown: &str, output: &str) -> bool {
    let plain = |text: &str| masked(text).split_whitespace().collect::<String>();
    let output = plain(output);
    // Ids are masked piece by piece: one that `…` cuts off is shorter.
    let shown = plain(shown);
    let pieces: Vec<&str> = shown.split('…').collect();
    let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
    if pieces.len() == 1 {
        return output == first;
    }
    let Some(mut rest) = output.strip_prefix(first) else { return false };
    for piece in &pieces[1..pieces.len() - 1] {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// What is wrong with the examples of a page.
fn complaints(page: &Page) -> Vec<String> {
    let examples = examples(page);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let work = dir.path().join("work");
    std::fs::create_dir(&work).expect("the directory can be created");
    let file = dir.path().join(page.name.replace('/', "_"));
    std::fs::write(&file, script(page, &examples)).expect("the script can be written");
    // Both outputs together, as a terminal shows them.
    let output = dir.path().join("output");
    let stdout = File::create(&output).expect("the output can be written");
    let stderr = stdout.try_clone().expect("a second handle");

    let server = Process::start_in(dir.path());
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_proscenium")).parent().expect("the binary is in a directory");
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(binary.to_owned()).chain(std::env::split_paths(&paths));
    let mut shell = Command::new("bash")
        .args(["-euo", "pipefail"])
        .arg(&file)
        .current_dir(&work)
        .env("PATH", std::env::join_paths(paths).expect("PATH"))
        .env("PROSCENIUM", format!("http://{}", server.at))
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        // The shell and what it leaves behind end together.
        .process_group(0)
        .spawn()
        .expect("bash starts");
    let begun = Instant::now();
    let status = loop {
        match shell.try_wait().expect("a child of ours") {
            None if begun.elapsed() < PAGE_TIME_MAX => std::thread::sleep(Duration::from_millis(20)),
            status => break status,
        }
    };
    let group = format!("-{}", shell.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let _ = shell.wait();

    let output = String::from_utf8_lossy(&std::fs::read(&output).expect("the output can be read")).into_owned();
    let printed: Vec<&str> = output.split(SEPARATOR).collect();
    let place = |index: usize, what: &str| {
        let line = examples[index].block.first_line;
        format!("{}: block {} at line {line}: {what}", page.name, index + 1)
    };
    let passed = printed.len() - 1;
    let mut complaints = Vec::new();
    for (index, (example, output)) in examples.iter().zip(&printed).take(passed).enumerate() {
        let Some(shown) = &example.shown else { continue };
        let shown = shown.lines.join("\n");
        if !is_as_shown(&shown, output) {
            let differs = format!("the page shows\n{shown}\nand the block printed\n{output}");
            complaints.push(place(index, &differs));
        }
    }
    if passed < examples.len() {
        let how = status.map_or_else(|| format!("no end within {PAGE_TIME_MAX:?}"), |status| status.to_string());
        complaints.push(place(passed, &format!("{how}; stdout and stderr:\n{}", printed[passed])));
    }
    complaints
}

#[test]
fn every_example_runs_and_prints_what_the_page_shows() {
    let mut pages = site_pages();
    pages.push(Page::read(&repository("README.md")));
    pages.retain(|page| !examples(page).is_empty());
    let (blocks, shown) = pages
        .iter()
        .flat_map(examples)
        .fold((0, 0), |(blocks, shown), example| (blocks + 1, shown + usize::from(example.shown.is_some())));
    let (waiting, wrong) = (Mutex::new(pages.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PAGES_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(page) = waiting.lock().expect("no page panics here").next() else { return };
                    let found = complaints(page);
                    wrong.lock().expect("no page panics here").extend(found);
                }
            });
        }
    });
    println!("{} pages, {blocks} blocks, {shown} of them with their output", pages.len());
    let wrong = wrong.into_inner().expect("no page panics here");
    assert!(wrong.is_empty(), "{} examples are wrong\n\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn every_rust_example_is_one_that_compiles() {
    // Cargo compiles and runs the examples of this page, because it is the library's documentation.
    let library = Page::read(&repository("sdk/rust/README.md"));
    let files = ["mod", "event", "map"].map(|name| Page::read(&repository(&format!("tests/runtime/{name}.rs"))));
    let blocks = markdown::blocks(&library.text).into_iter().map(|block| block.lines);
    let compiled: Vec<Vec<&str>> = blocks.chain(files.iter().map(|file| file.text.lines().collect())).collect();
    for page in site_pages() {
        for block in markdown::blocks(&page.text).into_iter().filter(|block| block.language == "rust") {
            let place = format!("{}:{}", page.name, block.first_line);
            let places = format!("neither {} nor a file of tests/runtime", library.name);
            assert!(compiled.contains(&block.lines), "{place}: {places} has this example; copy it from there");
        }
    }
    let guide = Page::read(&repository("docs/src/guides/add-a-runtime.md"));
    let shown = markdown::blocks(&guide.text);
    for file in &files {
        assert!(shown.iter().any(|block| file.text.lines().eq(block.lines.iter().copied())), "the guide lacks {}", file.name);
    }
}

#[test]
fn output_is_compared_without_ids_and_times() {
    let output = r#"{"epoch":"9e8a4dbb63065c92","cursor":"9e8a4dbb63065c92:10","at":"2026-11-23T04:26:07.217Z","n":5}"#;
    for (shown, expected) in [
        (r#"{ "epoch": "0000000000000000", "cursor": "1111111111111111:10", "at": "2025-01-01T00:00:00Z", "n": 5 }"#, true),
        (r#"{ "epoch": "0000000000000000", … "n": 5 }"#, true),
        (r#"{"epoch":"0000000000000000","cursor":"1111111111111111:11",…"#, false),
        (r#"…"n":6}"#, false),
        ("", false),
    ] {
        assert_eq!(is_as_shown(shown, output), expected, "{shown}");
    }
    assert_eq!(masked("facade deadbeef 01a206a8-b89e-7f6b-8009-0c3f036edef1"), "facade deadbeef #");
}
