//! Sets `PROSCENIUM_VERSION`, and writes the table of the files that the binary contains.
//!
//! `proscenium --version` prints the version, the commit and the features. The files are the page and the schemas.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files that a binary is made of. If one changes, the commit may get or lose its suffix `-dirty`.
const SOURCES: [&str; 6] = ["Cargo.lock", "Cargo.toml", "build.rs", "schema", "src", "web-demo"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PROSCENIUM_BUILD_COMMIT");
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets the version");
    let commit = commit().unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=PROSCENIUM_VERSION={version} (commit {commit}, features: {})", features());
    write_embedded_files();
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

/// Returns the checked-out commit, with the suffix `-dirty` if tracked files differ from it.
///
/// `None` without git.
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

/// The page's folders that are not served: installed packages.
const UNSERVED: [&str; 1] = ["node_modules"];

/// Before the names of the client library's files with their comments.
const LIBRARY: &str = "library/";

/// Writes `embedded.rs`: the schemas by name, the page's files with their gzip bodies, and its version.
fn write_embedded_files() {
    let (mut page, mut schemas) = (BTreeMap::new(), BTreeMap::new());
    list_files(Path::new("web-demo"), Path::new("web-demo"), &["html", "css", "js", "txt"], &mut page);
    list_files(Path::new("schema"), Path::new("schema"), &["json"], &mut schemas);
    let texts: BTreeMap<&str, String> = page.iter().map(|(name, path)| (name.as_str(), read(path))).collect();
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    let version = format!("{:016x}", hasher.finish());

    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets the output folder"));
    let mut table = format!("pub const PAGE_VERSION: &str = {version:?};\npub const PAGE: &[(&str, &[u8], &[u8])] = &[\n");
    let mut served: BTreeMap<String, String> = BTreeMap::new();
    for (name, text) in &texts {
        let text = match name.rsplit_once('.') {
            _ if *name == "index.html" => index_page(text, &texts, &version),
            Some((_, "js" | "css")) => without_comments(text),
            _ => text.clone(),
        };
        served.insert((*name).to_owned(), text);
    }
    // Other pages import the client library, and their authors read it.
    let library = texts.iter().filter(|(name, _)| name.starts_with("client/"));
    served.extend(library.map(|(name, text)| (format!("{LIBRARY}{name}"), text.clone())));
    for (name, text) in &served {
        let [plain, gzip] = ["", ".gz"].map(|ending| out.join("page").join(format!("{name}{ending}")));
        std::fs::create_dir_all(plain.parent().expect("it is in a folder")).expect("the output folder is writable");
        std::fs::write(&plain, text).expect("the output folder is writable");
        std::fs::write(&gzip, compress(text.as_bytes())).expect("the output folder is writable");
        writeln!(table, "    ({name:?}, {}, {}),", include(&plain), include(&gzip)).expect("a string takes all text");
    }
    table.push_str("];\npub const SCHEMAS: &[(&str, &[u8])] = &[\n");
    for (name, path) in &schemas {
        let path = std::path::absolute(path).expect("the current folder is known");
        writeln!(table, "    ({name:?}, {}),", include(&path)).expect("a string takes all text");
    }
    std::fs::write(out.join("embedded.rs"), table + "];\n").expect("the output folder is writable");
}

/// Lists the files of a folder and its folders with these endings, by their path below `root`.
fn list_files(root: &Path, folder: &Path, endings: &[&str], found: &mut BTreeMap<String, PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a folder can be listed").path();
        let is_served = !UNSERVED.iter().any(|name| path.ends_with(name));
        if is_served && path.is_dir() {
            // A new file changes its folder. The top folder is not named: cargo would read all installed packages.
            println!("cargo::rerun-if-changed={}", path.display());
            list_files(root, &path, endings, found);
        } else if is_served && path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)) {
            println!("cargo::rerun-if-changed={}", path.display());
            let name = path.strip_prefix(root).expect("it is below the root").to_str().expect("file names are ASCII");
            found.insert(name.to_owned(), path.clone());
        }
    }
}

/// Removes the block comments that take whole lines: a fifth of the page's bytes on the wire.
fn without_comments(text: &str) -> String {
    let mut is_inside = false;
    let is_code = |line: &&str| {
        let line = line.trim();
        let begins = !is_inside && line.starts_with("/*");
        let was_inside = is_inside;
        is_inside = (begins || is_inside) && !line.contains("*/");
        !(was_inside || is_inside || begins && line.ends_with("*/"))
    };
    text.split_inclusive('\n').filter(is_code).collect()
}

/// Writes the expression that contains a file's bytes.
fn include(path: &Path) -> String {
    format!("include_bytes!(r#\"{}\"#)", path.display())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory takes all bytes");
    encoder.finish().expect("memory takes all bytes")
}

/// Puts the version into the addresses of the page's files, and announces the modules of its script.
///
/// A browser then requests all modules at once, instead of one level of imports after another.
fn index_page(text: &str, texts: &BTreeMap<&str, String>, version: &str) -> String {
    let mut modules = BTreeSet::new();
    add_imports("app.js", texts, &mut modules);
    let preloads: String =
        modules.iter().map(|name| format!("  <link rel=\"modulepreload\" href=\"/assets/{name}\">\n")).collect();
    text.replace("</head>", &format!("{preloads}</head>")).replace("\"/assets/", &format!("\"/assets/{version}/"))
}

/// Adds the modules that a module imports, and those that they import.
fn add_imports(module: &str, texts: &BTreeMap<&str, String>, found: &mut BTreeSet<String>) {
    let folder = Path::new(module).parent().unwrap_or(Path::new(""));
    let imports =
        texts[module].lines().filter(|line| line.starts_with("import ") || line.starts_with("export ") || line.starts_with('}'));
    for line in imports {
        let Some(target) = line.strip_suffix("\";").and_then(|line| line.rsplit_once('"')).map(|(_, target)| target) else {
            continue;
        };
        if !target.starts_with('.') {
            continue;
        }
        let mut path = folder.to_path_buf();
        for part in target.split('/').filter(|part| *part != ".") {
            match part {
                ".." => _ = path.pop(),
                part => path.push(part),
            }
        }
        let name = path.to_str().expect("file names are ASCII");
        assert!(texts.contains_key(name), "{module} imports {target}, which does not exist");
        if found.insert(name.to_owned()) {
            add_imports(name, texts, found);
        }
    }
}
