//! What users install: the release archive, the image's description, the changelog.

use crate::cli::{run, stderr, stdout};
use crate::harness::repository;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn read(name: &str) -> String {
    std::fs::read_to_string(repository(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Runs a program that must succeed, and returns its output.
fn run_ok(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    stdout(&output)
}

/// Packs the binary under test into `dist` and returns the path of the archive.
fn pack(dist: &Path) -> String {
    let mut script = Command::new(repository("scripts/release"));
    script.args(["--only", "archive", "--binary", env!("CARGO_BIN_EXE_proscenium"), "--dist"]).arg(dist);
    run_ok(&mut script).trim().to_owned()
}

#[test]
fn a_release_archive_has_the_binary_and_the_files_that_belong_to_it() {
    let directory = TempDir::new().unwrap();
    let archive = pack(directory.path());
    let name = Path::new(&archive).file_name().unwrap().to_str().unwrap().strip_suffix(".tar.gz").unwrap();
    assert!(name.starts_with(&format!("proscenium-{VERSION}-")) && name.contains("linux"), "{name}");
    let checksum = format!("{name}.tar.gz.sha256");
    assert!(run_ok(Command::new("sha256sum").args(["--check", &checksum]).current_dir(directory.path())).contains("OK"));

    let listed = run_ok(Command::new("tar").args(["-tvzf", &archive]));
    assert!(listed.lines().all(|line| line.contains(" 0/0 ")), "every file belongs to root:\n{listed}");
    let files: Vec<&str> = listed.lines().filter_map(|line| line.split_once(&format!("{name}/")).map(|(_, file)| file)).collect();
    for file in [
        "CHANGELOG.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "completions/_proscenium",
        "completions/proscenium.bash",
        "completions/proscenium.fish",
        "man/proscenium-serve.1",
        "man/proscenium.1",
        "proscenium",
        "proscenium.service",
        "proscenium.service.d/agents.conf",
    ] {
        assert!(files.contains(&file), "{file} is not in\n{listed}");
    }
    assert!(files.is_sorted(), "the order does not depend on the file system:\n{listed}");

    run_ok(Command::new("tar").args(["-xzf", &archive]).current_dir(directory.path()));
    let unpacked = directory.path().join(name);
    let shown = run_ok(Command::new(unpacked.join("proscenium")).arg("--version"));
    assert!(shown.starts_with(&format!("proscenium {VERSION} ")), "{shown}");
    for (file, beginning) in [("completions/_proscenium", "#compdef proscenium"), ("man/proscenium.1", ".ie")] {
        let text = std::fs::read_to_string(unpacked.join(file)).unwrap();
        assert!(text.starts_with(beginning), "{file}: {text:.100}");
    }

    let again = TempDir::new().unwrap();
    let second = pack(again.path());
    assert!(std::fs::read(&archive).unwrap() == std::fs::read(second).unwrap(), "a second run writes the same bytes");
}

/// A repository with the release script and one commit.
struct Checkout(TempDir);

impl Checkout {
    fn new() -> Self {
        let checkout = Self(TempDir::new().unwrap());
        std::fs::create_dir(checkout.0.path().join("scripts")).unwrap();
        for file in ["Cargo.toml", "scripts/release"] {
            std::fs::copy(repository(file), checkout.0.path().join(file)).unwrap();
        }
        checkout.git(&["init", "--quiet"]);
        checkout.git(&["add", "."]);
        checkout.git(&["commit", "--quiet", "--message", "One"]);
        checkout
    }

    fn git(&self, arguments: &[&str]) {
        let user = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"];
        run_ok(Command::new("git").args(user).args(arguments).current_dir(self.0.path()));
    }

    /// Runs the script, which must fail before it builds anything.
    fn refused(&self) -> String {
        // A build would fail, too, but for another reason.
        let output: Output = run(Command::new(self.0.path().join("scripts/release")).env_remove("CARGO_TARGET_DIR"));
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
        assert!(!self.0.path().join("dist").exists() && !self.0.path().join("target").exists());
        stderr(&output)
    }
}

#[test]
fn a_release_is_built_only_from_the_commit_that_carries_its_version() {
    let checkout = Checkout::new();
    let stray = checkout.0.path().join("stray.txt");
    std::fs::write(&stray, "").unwrap();
    let reason = checkout.refused();
    assert!(reason.contains("differ from the commit") && reason.contains("stray.txt"), "{reason}");
    std::fs::remove_file(&stray).unwrap();

    checkout.git(&["tag", "v0.0.1"]);
    let reason = checkout.refused();
    assert!(reason.contains("the tag v0.0.1") && reason.contains(&format!("the version {VERSION}")), "{reason}");
    checkout.git(&["tag", "--delete", "v0.0.1"]);

    checkout.git(&["tag", &format!("v{VERSION}")]);
    checkout.git(&["commit", "--quiet", "--allow-empty", "--message", "Two"]);
    let reason = checkout.refused();
    assert!(reason.contains(&format!("the tag v{VERSION} is at ")) && reason.contains("raise the version"), "{reason}");
}

#[test]
fn a_release_of_a_binary_of_another_version_is_refused() {
    let directory = TempDir::new().unwrap();
    let refused =
        run(Command::new(repository("scripts/release")).args(["--binary", "/bin/true", "--dist"]).arg(directory.path()));
    assert!(refused.status.code() == Some(1) && stderr(&refused).contains("is not version"), "{}", stderr(&refused));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_image_is_built_with_the_toolchain_of_the_repository() {
    let toolchain = read("rust-toolchain.toml");
    let version = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    let image = read("Dockerfile");
    let bases: Vec<&str> = image.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(bases[0], format!("rust:{version}-trixie AS build"));
    // The binary links the C library of the first stage. Debian 13 is trixie.
    assert!(bases.len() == 2 && bases[1].starts_with("debian:13."), "{bases:?}");
}

#[test]
fn the_sdks_have_the_version_of_the_server_and_ask_for_it_of_each_other() {
    for (name, version) in [
        ("sdk/python/pyproject.toml", "version = "),
        ("sdk/typescript/package.json", "  \"version\": "),
        ("sdk/react/package.json", "  \"version\": "),
        ("sdk/react/package.json", "    \"@proscenium/client\": "),
        ("sdk/react/package.json", "    \"@proscenium/elements\": "),
        ("web-demo/client/package.json", "  \"version\": "),
        ("web-demo/package.json", "  \"version\": "),
        ("examples/vscode/package.json", "  \"version\": "),
        ("examples/vscode/package.json", "  \"dependencies\": { \"@proscenium/client\": "),
    ] {
        let manifest = read(name);
        let line = manifest.lines().find_map(|line| line.strip_prefix(version)).unwrap();
        assert_eq!(line.trim_end_matches([',', ' ', '}']), format!("\"{VERSION}\""), "{name}");
    }
}

#[test]
fn the_changelog_begins_with_the_current_version_or_what_comes_after_it() {
    let changelog = read("CHANGELOG.md");
    let mut releases = changelog.lines().filter(|line| line.starts_with("## [") && *line != "## [Unreleased]");
    let first = releases.next().unwrap();
    assert!(first.starts_with(&format!("## [{VERSION}] - ")), "{first}");
}
