//! Sets `PROSCENIUM_VERSION`, the beginning of what `--version` prints, and writes the table of the files that the binary contains.
//!
//! `proscenium --version` prints the version, the commit and the features. The files are the page and the schemas.

mod bundle;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files that a binary is made of. If one changes, the commit may get or lose its suffix `-dirty`.
const SOURCES: [&str; 8] = ["Cargo.lock", "Cargo.toml", "build.rs", "bundle.rs", "crates", "schema", "src", "web-demo"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=bundle.rs");
    println!("cargo::rerun-if-env-changed=PROSCENIUM_BUILD_COMMIT");
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets the version");
    let commit = commit().unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=PROSCENIUM_VERSION={version} (commit {commit}, features: {}", features());
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
    // It only names others.
    names.retain(|name| name != "default");
    names.sort();
    if names.is_empty() { "none".into() } else { names.join(" ") }
}

/// The page's folders that are not served: installed packages, and what its packages build.
const UNSERVED: [&str; 2] = ["node_modules", "dist"];

/// The modules that every page loads: its script, and what it loads right after the first paint.
const FIRST_MODULES: [&str; 2] = ["app.js", "tools/scrubber.js"];

/// The script with the elements for other pages. Its chunks are apart from the page's, whose script begins the page.
const ELEMENTS: &str = "embed.js";

/// Before the names of the chunks of the elements.
const ELEMENTS_FOLDER: &str = "embed/";

/// Before the names of the client library's files. Other pages import them, and their authors read them.
const LIBRARY: &str = "library/";

/// The name of the file with the styles of the first paint.
const STYLES: &str = "page.css";

/// The service worker: a script of its own, which no module imports.
const WORKER: &str = "push-worker.js";

/// The compression of Brotli: the highest quality, and its usual window as a power of two.
const BROTLI_QUALITY: u32 = 11;
const BROTLI_WINDOW: u32 = 22;

/// Writes `embedded.rs`: the schemas by name, the page's files with their gzip and Brotli bodies, and its version.
fn write_embedded_files() {
    let (mut page, mut schemas) = (BTreeMap::new(), BTreeMap::new());
    list_files(Path::new("web-demo"), Path::new("web-demo"), &["html", "css", "js", "txt"], &mut page);
    list_files(Path::new("schema"), Path::new("schema"), &["json"], &mut schemas);
    let texts: BTreeMap<&str, String> = page.iter().map(|(name, path)| (name.as_str(), read(path))).collect();
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    let version = format!("{:016x}", hasher.finish());

    let mut served = bundle::bundle(&texts, &FIRST_MODULES);
    for (name, chunk) in bundle::bundle(&texts, &[ELEMENTS]) {
        served.insert(format!("{ELEMENTS_FOLDER}{name}"), chunk);
    }
    // Its address stays the same, and leads to the chunks of this build.
    let exports = format!("export*from\"./assets/{version}/{ELEMENTS_FOLDER}{ELEMENTS}\";\n");
    served.insert(ELEMENTS.to_owned(), exports);
    for (name, text) in &texts {
        match name.rsplit_once('.') {
            Some((_, "css")) => _ = served.insert((*name).to_owned(), bundle::minify_css(text)),
            Some((_, "txt")) => _ = served.insert((*name).to_owned(), text.clone()),
            _ if *name == WORKER => _ = served.insert(WORKER.to_owned(), bundle::minify(text)),
            _ if name.starts_with("client/") => _ = served.insert(format!("{LIBRARY}{name}"), text.clone()),
            _ => {}
        }
    }
    let (index, styles) = index_page(&texts["index.html"], &served, &version);
    served.extend([("index.html".to_owned(), index), (STYLES.to_owned(), styles)]);

    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets the output folder"));
    let mut table = format!("pub const PAGE_VERSION: &str = {version:?};\npub const PAGE: &[(&str, [&[u8]; 3])] = &[\n");
    for (name, text) in &served {
        let [plain, gzip, brotli] = ["", ".gz", ".br"].map(|ending| out.join("page").join(format!("{name}{ending}")));
        std::fs::create_dir_all(plain.parent().expect("it is in a folder")).expect("the output folder is writable");
        std::fs::write(&plain, text).expect("the output folder is writable");
        std::fs::write(&gzip, to_gzip(text.as_bytes())).expect("the output folder is writable");
        std::fs::write(&brotli, to_brotli(text.as_bytes())).expect("the output folder is writable");
        writeln!(table, "    ({name:?}, [{}, {}, {}]),", include(&plain), include(&gzip), include(&brotli))
            .expect("a string takes all text");
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

/// Writes the expression that contains a file's bytes.
fn include(path: &Path) -> String {
    format!("include_bytes!(r#\"{}\"#)", path.display())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn to_gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory takes all bytes");
    encoder.finish().expect("memory takes all bytes")
}

fn to_brotli(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), bytes.len().max(1), BROTLI_QUALITY, BROTLI_WINDOW);
    encoder.write_all(bytes).expect("memory takes all bytes");
    encoder.into_inner()
}

/// Returns the page with one style sheet and with the version in the addresses of its files, and that sheet.
fn index_page(text: &str, served: &BTreeMap<String, String>, version: &str) -> (String, String) {
    let (mut page, mut styles) = (String::new(), String::new());
    for line in text.split_inclusive('\n') {
        match line.trim().strip_prefix("<link rel=\"stylesheet\" href=\"/assets/").and_then(|rest| rest.strip_suffix("\">")) {
            Some(name) if styles.is_empty() => {
                page.push_str(&line.replace(name, STYLES));
                styles.push_str(&served[name]);
            }
            Some(name) => styles.push_str(&served[name]),
            None => page.push_str(line),
        }
    }
    (page.replace("\"/assets/", &format!("\"/assets/{version}/")), styles)
}
