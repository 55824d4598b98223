//! The house itself: modules use only what stands above them, prose names only what exists, and nothing is left half done.

use crate::harness::repository;
use std::path::{Path, PathBuf};

/// Every file under a folder of the repository with this ending, sorted; none if the folder is not there.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![repository(folder)]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            match path.is_dir() {
                true if path.ends_with("node_modules") => {}
                true => folders.push(path),
                false if path.extension().is_some_and(|e| e == ending) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The path as it stands in the repository.
fn shown(path: &Path) -> String {
    path.strip_prefix(repository("")).unwrap_or(path).display().to_string()
}

/// The stages in the order in which `lib.rs` declares them.
fn stages() -> Vec<String> {
    let declared = read(&repository("src/lib.rs"));
    let name = |line: &str| Some(line.strip_prefix("pub mod ").or(line.strip_prefix("mod "))?.strip_suffix(';')?.to_owned());
    declared.lines().filter_map(name).collect()
}

/// The crate's modules that a source text names: `crate::x`, and each of `crate::{x, y::z}`.
fn used(text: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut used = Vec::new();
    for (at, found) in text.match_indices("crate::") {
        let rest = &text[at + found.len()..];
        match rest.strip_prefix('{') {
            None => used.push(name(rest)),
            Some(group) => {
                let mut depth = 0;
                let mut start = true;
                for (i, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        c if c.is_whitespace() => {}
                        _ if start => {
                            used.push(name(&group[i..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    used
}

#[test]
fn a_module_uses_only_modules_declared_above_it() {
    let stages = stages();
    assert!(stages.len() > 5, "{stages:?}");
    let mut broken = Vec::new();
    for path in files("src", "rs") {
        let inside = shown(&path);
        let stage = inside.trim_start_matches("src/").trim_end_matches(".rs").split('/').next().unwrap_or_default().to_owned();
        let Some(place) = stages.iter().position(|name| *name == stage) else { continue };
        for other in used(&read(&path)) {
            match stages.iter().position(|name| *name == other) {
                Some(at) if at <= place => {}
                Some(_) => broken.push(format!("{inside}: {stage} stands above {other} and uses it")),
                None => broken.push(format!("{inside}: crate::{other} is no module of lib.rs")),
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn nobody_goes_round_the_order_of_modules_by_way_of_super() {
    let mut broken = Vec::new();
    for path in files("src", "rs") {
        let inside = shown(&path);
        let text = read(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        // A file at the top of a stage would reach the crate itself, one below it would with two steps.
        let is_top = inside.matches('/').count() == 1 || inside.ends_with("/mod.rs") && inside.matches('/').count() == 2;
        let way_out = if is_top { "super::" } else { "super::super::" };
        let is_visibility = |at: usize| code[..at].ends_with("pub(in ");
        if code.match_indices(way_out).any(|(at, _)| !is_visibility(at)) {
            broken.push(format!("{inside}: {way_out} leaves its stage; say crate::"));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_file_opens_with_its_promise() {
    let without: Vec<_> = files("src", "rs")
        .iter()
        .chain(&files("tests", "rs"))
        .filter(|path| !read(path).starts_with("//! "))
        .map(|path| shown(path))
        .collect();
    assert!(without.is_empty(), "these open without a //! line: {without:?}");
}

#[test]
fn nothing_is_left_half_done() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("dbg", "!("),
        concat!("unimplemented", "!("),
        concat!("to", "do!("),
    ];
    let mut left = Vec::new();
    for path in files("src", "rs").into_iter().chain(files("tests", "rs")).chain(files("web-demo", "js")) {
        for (line, number) in read(&path).lines().zip(1..) {
            left.extend(
                marks.iter().filter(|mark| line.contains(**mark)).map(|mark| format!("{}:{number}: {mark}", shown(&path))),
            );
        }
    }
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn nothing_outside_of_tests_unwraps() {
    let mut left = Vec::new();
    for path in files("src", "rs").into_iter().filter(|path| !path.ends_with("tests.rs")) {
        let text = read(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().zip(1..).filter(|(line, _)| line.contains(".unwrap()") && !line.trim_start().starts_with("//"));
        left.extend(lines.map(|(_, number)| format!("{}:{number}", shown(&path))));
    }
    assert!(left.is_empty(), "say with expect why it holds, or return the error: {left:#?}");
}

/// The paths of the repository that a text names: in backticks or links, with one of its folders or a source file's ending.
fn named(text: &str) -> Vec<String> {
    let folders = ["src/", "tests/", "schema/", "docs/", "benches/", "web-demo/", "examples/"];
    let is_path = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    let words = text.split(|c: char| !is_path(c)).map(|word| word.trim_end_matches(['.', '-']));
    let paths = words.filter(|word| folders.iter().any(|folder| word.starts_with(folder) && word.len() > folder.len()));
    paths.map(str::to_owned).collect()
}

#[test]
fn every_path_that_prose_names_exists() {
    let mut prose = files("docs", "md");
    prose.extend(["README.md", "CONTRIBUTING.md", "src/lib.rs"].map(repository).into_iter().filter(|path| path.exists()));
    let mut missing = Vec::new();
    for path in prose {
        let gone = named(&read(&path)).into_iter().filter(|name| !repository(name).exists());
        missing.extend(gone.map(|name| format!("{} names {name}", shown(&path))));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_checks_of_this_house_see_what_they_look_for() {
    assert_eq!(used("use crate::{model::{A, B}, log, feed::X};\ncrate::serve::y()"), ["model", "log", "feed", "serve"]);
    assert_eq!(named("see `src/log/row.rs`, [x](docs/a-b.md). Or tests/it/."), ["src/log/row.rs", "docs/a-b.md", "tests/it/"]);
}
