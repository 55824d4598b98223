//! Checks of the documentation.
//!
//! Generated parts match the code, links resolve, examples run, lines and files stay short.
//!
//! Everything here reads what a user gets: the built binary, `/metrics`, `schema/` and the Markdown files.

mod examples;
mod limits;
mod links;
mod markdown;
mod reference;

use crate::harness::repository;
use std::path::{Path, PathBuf};

/// README stays a page that a reader finishes in two minutes.
const README_BYTES_MAX: usize = 8 * 1024;
/// The widest line of prose. Tables, code and links that cannot be wrapped may be wider.
const LINE_CHARS_MAX: usize = 120;

/// A Markdown file of the repository.
struct Page {
    /// Its path in the repository, with `/`.
    name: String,
    text: String,
}

impl Page {
    fn read(path: &Path) -> Self {
        let name = path.strip_prefix(repository("")).unwrap_or(path).display().to_string();
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name, text }
    }
}

/// Every page of the site, sorted by path.
fn site_pages() -> Vec<Page> {
    let (mut paths, mut folders): (Vec<PathBuf>, _) = (Vec::new(), vec![repository("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("the directory is readable").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "md") => paths.push(path),
                false => {}
            }
        }
    }
    paths.sort();
    paths.iter().map(|path| Page::read(path)).collect()
}

/// Every page that these tests check.
fn all_pages() -> Vec<Page> {
    let others = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "sdk/python/README.md",
        "sdk/react/README.md",
        "sdk/rust/README.md",
        "sdk/typescript/README.md",
        "web-demo/README.md",
        "web-demo/client/README.md",
    ];
    site_pages().into_iter().chain(others.map(|name| Page::read(&repository(name)))).collect()
}

#[test]
fn the_readme_is_short() {
    let bytes = Page::read(&repository("README.md")).text.len();
    assert!(bytes <= README_BYTES_MAX, "README.md has {bytes} bytes; at most {README_BYTES_MAX} are allowed");
}

#[test]
fn prose_is_wrapped() {
    let mut wide = Vec::new();
    for page in all_pages() {
        for (number, line) in markdown::prose(&page.text) {
            let chars = line.chars().count();
            let can_wrap = !line.trim_start().starts_with('|') && markdown::wrap(line).lines().count() > 1;
            if chars > LINE_CHARS_MAX && can_wrap {
                wide.push(format!("{}:{number}: {chars} columns", page.name));
            }
        }
    }
    assert!(wide.is_empty(), "wrap these lines at {LINE_CHARS_MAX} columns: {wide:#?}");
}
