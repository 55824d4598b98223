//! Checks of the repository: the order of modules, paths in prose, headers of files, leftovers.

use crate::harness::repository;
use std::path::{Path, PathBuf};

/// Lists every file below `folder` with this extension, sorted; empty if the folder is missing.
fn list_files(folder: &str, ending: &str) -> Vec<PathBuf> {
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

/// Formats the path relative to the repository.
fn relative_path(path: &Path) -> String {
    path.strip_prefix(repository("")).unwrap_or(path).display().to_string()
}

/// Returns the modules in the order in which `lib.rs` declares them.
fn modules() -> Vec<String> {
    let declared = read(&repository("src/lib.rs"));
    let name = |line: &str| Some(line.strip_prefix("pub mod ").or(line.strip_prefix("mod "))?.strip_suffix(';')?.to_owned());
    declared.lines().filter_map(name).collect()
}

/// Returns the crate's modules that a source text uses: `crate::x`, and each of `crate::{x, y::z}`.
fn used_modules(text: &str) -> Vec<String> {
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
    let modules = modules();
    assert!(modules.len() > 5, "{modules:?}");
    let mut broken = Vec::new();
    for path in list_files("src", "rs") {
        let file = relative_path(&path);
        let module = file.trim_start_matches("src/").trim_end_matches(".rs").split('/').next().unwrap_or_default().to_owned();
        let Some(position) = modules.iter().position(|name| *name == module) else { continue };
        for other in used_modules(&read(&path)) {
            match modules.iter().position(|name| *name == other) {
                Some(at) if at <= position => {}
                Some(_) => broken.push(format!("{file}: {module} uses {other}, which lib.rs declares after it")),
                None => broken.push(format!("{file}: crate::{other} is not declared in lib.rs")),
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn no_module_uses_super_to_escape_the_module_order() {
    let mut broken = Vec::new();
    for path in list_files("src", "rs") {
        let file = relative_path(&path);
        let text = read(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        // From a file at the top of a module, one `super` leaves the module; from a file below it, two do.
        let is_top = file.matches('/').count() == 1 || file.ends_with("/mod.rs") && file.matches('/').count() == 2;
        let escape = if is_top { "super::" } else { "super::super::" };
        let is_visibility = |at: usize| code[..at].ends_with("pub(in ");
        if code.match_indices(escape).any(|(at, _)| !is_visibility(at)) {
            broken.push(format!("{file}: {escape} leaves its module; write crate::"));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_file_opens_with_a_module_doc() {
    let without: Vec<_> = list_files("src", "rs")
        .iter()
        .chain(&list_files("tests", "rs"))
        .filter(|path| !read(path).starts_with("//! "))
        .map(|path| relative_path(path))
        .collect();
    assert!(without.is_empty(), "files without a //! line: {without:?}");
}

#[test]
fn no_unfinished_code_is_left() {
    let markers = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("dbg", "!("),
        concat!("unimplemented", "!("),
        concat!("to", "do!("),
    ];
    let mut left = Vec::new();
    for path in list_files("src", "rs").into_iter().chain(list_files("tests", "rs")).chain(list_files("web-demo", "js")) {
        for (line, number) in read(&path).lines().zip(1..) {
            left.extend(
                markers
                    .iter()
                    .filter(|marker| line.contains(**marker))
                    .map(|marker| format!("{}:{number}: {marker}", relative_path(&path))),
            );
        }
    }
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn code_outside_tests_does_not_unwrap() {
    let mut left = Vec::new();
    for path in list_files("src", "rs").into_iter().filter(|path| !path.ends_with("tests.rs")) {
        let text = read(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().zip(1..).filter(|(line, _)| line.contains(".unwrap()") && !line.trim_start().starts_with("//"));
        left.extend(lines.map(|(_, number)| format!("{}:{number}", relative_path(&path))));
    }
    assert!(left.is_empty(), "use expect with a reason, or return the error: {left:#?}");
}

/// Returns the repository paths that a text names: words that start with one of its folders.
fn named_paths(text: &str) -> Vec<String> {
    let folders = ["src/", "tests/", "schema/", "docs/", "benches/", "web-demo/", "examples/"];
    let is_path = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    let words = text.split(|c: char| !is_path(c)).map(|word| word.trim_end_matches(['.', '-']));
    let paths = words.filter(|word| folders.iter().any(|folder| word.starts_with(folder) && word.len() > folder.len()));
    paths.map(str::to_owned).collect()
}

#[test]
fn every_path_named_in_prose_exists() {
    let mut prose = list_files("docs", "md");
    prose.extend(["README.md", "CONTRIBUTING.md", "src/lib.rs"].map(repository).into_iter().filter(|path| path.exists()));
    let mut missing = Vec::new();
    for path in prose {
        let unresolved = named_paths(&read(&path)).into_iter().filter(|name| !repository(name).exists());
        missing.extend(unresolved.map(|name| format!("{} names {name}", relative_path(&path))));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_checks_of_this_file_find_what_they_look_for() {
    assert_eq!(used_modules("use crate::{model::{A, B}, log, feed::X};\ncrate::serve::y()"), ["model", "log", "feed", "serve"]);
    assert_eq!(
        named_paths("see `src/log/row.rs`, [x](docs/a-b.md). Or tests/it/."),
        ["src/log/row.rs", "docs/a-b.md", "tests/it/"]
    );
}
