//! Sets `PROSCENIUM_VERSION`, which `proscenium --version` prints: the version, the commit and the features.

use std::path::Path;
use std::process::Command;

/// The files that a binary is made of. If one changes, the commit may get or lose its suffix `-dirty`.
const SOURCES: [&str; 6] = ["Cargo.lock", "Cargo.toml", "build.rs", "schema", "src", "web-demo"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PROSCENIUM_BUILD_COMMIT");
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets the version");
    let commit = commit().unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=PROSCENIUM_VERSION={version} (commit {commit}, features: {})", features());
}

/// Returns the commit of an optimised build.
///
/// A debug build does not depend on the commit, because a rebuild after each commit would cost a developer a minute.
fn commit() -> Option<String> {
    // The build of an image has no repository, but may pass the commit.
    let given = std::env::var("PROSCENIUM_BUILD_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_optimised = std::env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    // Without the check for `.git`, git would describe a repository around an unpacked crate archive.
    given.or_else(|| if is_optimised && Path::new(".git").exists() { describe_head() } else { None })
}

/// Returns the checked-out commit, with the suffix `-dirty` if tracked files differ from it; `None` without git.
fn describe_head() -> Option<String> {
    // HEAD may name a branch only. Its log changes with each commit.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    for file in git(&[&["ls-files", "--"], &SOURCES[..]].concat())?.lines() {
        println!("cargo::rerun-if-changed={file}");
    }
    git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
}

/// Runs git and returns its output, or `None` if git is missing or fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the names of the enabled features, or `none`.
fn features() -> String {
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> =
        variables.filter_map(|name| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase().replace('_', "-"))).collect();
    names.sort();
    if names.is_empty() { "none".into() } else { names.join(" ") }
}
