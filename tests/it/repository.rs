//! Checks of the repository: the order of modules, paths in prose, headers of files, leftovers.

use crate::harness::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The sources of the packages: the server's crates, the server, and the library for authors of tools.
fn packages() -> Vec<String> {
    let crates = std::fs::read_dir(repository("crates")).expect("the workspace has crates");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("the folder is readable").file_name().into_string();
    let mut folders: Vec<_> =
        crates.map(|entry| format!("crates/{}/src", name(entry).expect("a crate's name is text"))).collect();
    folders.sort();
    folders.extend([SERVER, "sdk/rust/src"].map(str::to_owned));
    folders
}

/// The server's own sources.
const SERVER: &str = "src";

/// Lists every source file of the server and its crates, sorted.
fn server_files() -> Vec<PathBuf> {
    ["crates", SERVER].iter().flat_map(|folder| list_files(folder, "rs")).collect()
}

/// Lists every source file of every package, sorted.
fn source_files() -> Vec<PathBuf> {
    packages().iter().flat_map(|folder| list_files(folder, "rs")).collect()
}

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

/// Formats the path relative to the sources of its package, such as `feed/ring.rs`.
fn path_in_package(path: &Path) -> String {
    let file = relative_path(path);
    let folders = packages();
    let relative = folders.iter().find_map(|folder| file.strip_prefix(&**folder)?.strip_prefix('/'));
    relative.unwrap_or_else(|| panic!("{file} is not a source file")).to_owned()
}

/// Returns a package's modules in the order in which its `lib.rs` declares them, or takes them from another crate.
fn modules(sources: &str) -> Vec<String> {
    let declared = read(&repository(sources).join("lib.rs"));
    let of_crate = |line: &str| Some(line.strip_prefix("pub use proscenium_")?.split_once(" as ")?.1.to_owned());
    let own = |line: &str| Some(line.strip_prefix("pub mod ").or(line.strip_prefix("mod "))?.to_owned());
    declared.lines().filter_map(|line| own(line).or_else(|| of_crate(line))?.strip_suffix(';').map(str::to_owned)).collect()
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
    let mut broken = Vec::new();
    for sources in [SERVER, "sdk/rust/src"] {
        let modules = modules(sources);
        assert!(modules.len() > 5, "{modules:?}");
        for path in list_files(sources, "rs") {
            let file = relative_path(&path);
            let module = path_in_package(&path).trim_end_matches(".rs").split('/').next().unwrap_or_default().to_owned();
            let Some(position) = modules.iter().position(|name| *name == module) else { continue };
            for other in used_modules(&read(&path)) {
                match modules.iter().position(|name| *name == other) {
                    Some(at) if at <= position => {}
                    Some(_) => broken.push(format!("{file}: {module} uses {other}, which lib.rs declares after it")),
                    None => broken.push(format!("{file}: crate::{other} is not declared in lib.rs")),
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A file's place in the module tree of its package.
///
/// `feed/ring.rs` and `feed/mod.rs` are `[feed, ring]` and `[feed]`.
type ModulePath = Vec<String>;

/// Returns the path of the module that this source file holds; `None` for the crate's root.
fn module_path(file: &str) -> Option<ModulePath> {
    let path = file.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    (path != "lib" && path != "main").then(|| path.split('/').map(str::to_owned).collect())
}

/// Splits the text of a use tree into its paths: `a::{b, c::d as e}` gives `[a, b]` and `[a, c, d]`.
fn paths_of_tree(tree: &str, prefix: &[String], found: &mut Vec<ModulePath>) {
    let tree = tree.trim();
    let (head, group) =
        tree.split_once('{').map_or((tree, None), |(head, rest)| (head, Some(rest.trim_end().trim_end_matches('}'))));
    let head = head.split(" as ").next().unwrap_or_default();
    let mut path = prefix.to_vec();
    path.extend(head.split("::").map(str::trim).filter(|segment| !segment.is_empty()).map(str::to_owned));
    let Some(group) = group else { return found.push(path) };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !group[start..at].trim().is_empty() {
                    paths_of_tree(&group[start..at], &path, found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns every path that a module's code names.
///
/// Those of its `use` declarations, and those within its expressions.
fn paths_in_code(text: &str) -> Vec<ModulePath> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String =
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).fold(String::new(), |all, line| all + line + "\n");
    let mut found = Vec::new();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        let declaration =
            statement.rfind("use ").filter(|at| !statement[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
        match declaration {
            Some(at) => paths_of_tree(statement[at + 4..].trim_end_matches(';'), &[], &mut found),
            None => rest.push_str(statement),
        }
    }
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = rest.split(|c: char| !is_path(c)).filter(|word| word.contains("::"));
    found.extend(words.map(|word| word.split("::").map(str::to_owned).collect()));
    found
}

/// Resolves a path that a module names to the file that holds its target; `None` outside the package.
fn resolve(path: &[String], module: &[String], files: &BTreeMap<ModulePath, String>) -> Option<ModulePath> {
    let (mut base, mut rest): (ModulePath, &[String]) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (module.to_vec(), &path[1..]),
        // `super` leaves it below; a name without a root can be a child of this module.
        _ => (module.to_vec(), path),
    };
    while let Some(after) = rest.strip_prefix(&["super".to_owned()]) {
        base.pop();
        rest = after;
    }
    let mut target = None;
    for segment in rest {
        base.push(segment.clone());
        if !files.contains_key(&base) {
            base.pop();
            break;
        }
        target = Some(base.clone());
    }
    target.or_else(|| files.contains_key(&base).then_some(base)).filter(|target| target != module)
}

/// Returns the groups of files that import each other in a circle.
///
/// A file may always use a module that contains it.
fn circles(files: &BTreeMap<ModulePath, String>) -> Vec<Vec<ModulePath>> {
    let uses: BTreeMap<&ModulePath, BTreeSet<ModulePath>> = files
        .iter()
        .map(|(module, text)| {
            let targets = paths_in_code(text).into_iter().filter_map(|path| resolve(&path, module, files));
            (module, targets.filter(|target| !module.starts_with(target)).collect())
        })
        .collect();
    let reachable = |from: &ModulePath| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            for target in &uses[module] {
                if seen.insert(target) {
                    next.push(target);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = files.keys().map(|module| (module, reachable(module))).collect();
    let mut groups: Vec<Vec<ModulePath>> = Vec::new();
    for module in files.keys().filter(|module| reached[module].contains(module)) {
        let group = groups.iter_mut().find(|group| reached[module].contains(&group[0]) && reached[&group[0]].contains(module));
        match group {
            Some(group) => group.push(module.clone()),
            None => groups.push(vec![module.clone()]),
        }
    }
    groups
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for sources in packages() {
        let files = list_files(&sources, "rs").into_iter();
        let files: BTreeMap<_, _> = files.filter_map(|path| Some((module_path(&path_in_package(&path))?, read(&path)))).collect();
        assert!(files.len() > 2, "{sources}");
        let found = circles(&files);
        assert!(found.is_empty(), "{sources}: these import each other: {found:#?}");
    }
}

#[test]
fn no_two_public_types_of_the_server_share_a_name() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in server_files().into_iter().filter(|path| !path_in_package(path).starts_with("cli/")) {
        for line in read(&path).lines() {
            let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
            let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            files.entry(name.to_owned()).or_default().push(relative_path(&path));
        }
    }
    assert!(files.len() > 200, "{}", files.len());
    files.retain(|_, files| files.len() > 1);
    assert!(files.is_empty(), "{files:#?}");
}

#[test]
fn only_the_command_line_uses_the_reporter() {
    let files = server_files().into_iter().map(|path| (path_in_package(&path), path));
    let server = files.filter(|(file, _)| file != "main.rs" && !file.starts_with("cli/"));
    let using: Vec<_> = server.filter(|(_, path)| read(path).contains("proscenium_reporter")).map(|(file, _)| file).collect();
    assert!(using.is_empty(), "the server does not depend on the library for authors of tools: {using:?}");
}

#[test]
fn no_module_uses_super_to_escape_the_module_order() {
    let mut broken = Vec::new();
    for path in source_files() {
        let file = path_in_package(&path);
        let text = read(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        // From a file at the top of a module, one `super` leaves the module; from a file below it, two do. A crate is one
        // module.
        let is_in_module = !relative_path(&path).starts_with("crates/");
        let is_top = is_in_module && (!file.contains('/') || file.ends_with("/mod.rs") && file.matches('/').count() == 1);
        let escape = if is_top { "super::" } else { "super::super::" };
        let is_visibility = |at: usize| code[..at].ends_with("pub(in ");
        if code.match_indices(escape).any(|(at, _)| !is_visibility(at)) {
            broken.push(format!("{}: {escape} leaves its module; write crate::", relative_path(&path)));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The crates and modules in the order of the path, and which of those above each of them uses.
fn structure() -> String {
    let names = modules(SERVER);
    let crates = read(&repository(SERVER).join("lib.rs"));
    let crate_of = |name: &str| {
        let line =
            crates.lines().find_map(|line| line.strip_suffix(&format!(" as {name};"))?.strip_prefix("pub use proscenium_"))?;
        Some(line.to_owned())
    };
    let of_crate = |name: &str| -> BTreeSet<String> {
        let manifest = read(&repository("crates").join(crate_of(name).unwrap_or_default()).join("Cargo.toml"));
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        names
            .iter()
            .filter(|name| dependencies.contains(&format!("proscenium-{}.", crate_of(name).unwrap_or_default())))
            .cloned()
            .collect()
    };
    let of_module = |name: &str| -> BTreeSet<String> {
        let is_test = |file: &str| file.contains("/tests/") || file.ends_with("tests.rs");
        let files = list_files(SERVER, "rs").into_iter().filter(|path| {
            let file = path_in_package(path);
            !is_test(&file) && file.trim_end_matches(".rs").split('/').next() == Some(name)
        });
        let code = |path: PathBuf| read(&path).split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        files.flat_map(|path| used_modules(&code(path))).filter(|used| used != name).collect()
    };
    let width = names.iter().map(String::len).max().unwrap_or_default();
    let mut text = String::new();
    for (at, name) in names.iter().enumerate() {
        let uses = if crate_of(name).is_some() { of_crate(name) } else { of_module(name) };
        let marks: Vec<&str> = names[..at].iter().map(|other| if uses.contains(other) { "■" } else { "·" }).collect();
        let place = crate_of(name).map_or_else(|| "src".to_owned(), |of| format!("crates/{of}"));
        let line = format!("{:>2} {name:width$}  {place:18} {}", at + 1, marks.join("  "));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let numbers: Vec<String> = (1..names.len()).map(|number| format!("{number:<2}")).collect();
    text + format!("{}{}", " ".repeat(width + 24), numbers.join(" ")).trim_end() + "\n"
}

#[test]
fn the_picture_of_crates_and_modules_is_current() {
    const PAGE: &str = "docs/src/architecture.md";
    const BEGIN: &str = "<!-- structure -->\n```text\n";
    let page = read(&repository(PAGE));
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the picture");
    let (shown, after) = rest.split_once("```").expect("the block ends");
    let structure = structure();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(repository(PAGE), format!("{before}{BEGIN}{structure}```{after}")).expect("the page can be written");
        return;
    }
    assert_eq!(shown, structure, "the picture in {PAGE} is stale: UPDATE_DOCS=1 cargo test --test it repository");
}

#[test]
fn every_file_opens_with_a_module_doc() {
    let without: Vec<_> = source_files()
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
    let others = [
        ("tests", "rs"),
        ("web-demo", "js"),
        ("sdk", "py"),
        ("sdk/typescript/src", "ts"),
        ("sdk/react/src", "ts"),
        ("sdk/react/src", "tsx"),
    ];
    for path in source_files().into_iter().chain(others.into_iter().flat_map(|(folder, ending)| list_files(folder, ending))) {
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
    let is_test = |path: &Path| path.ends_with("tests.rs") || path.parent().is_some_and(|folder| folder.ends_with("tests"));
    for path in source_files().into_iter().filter(|path| !is_test(path)) {
        let text = read(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().zip(1..).filter(|(line, _)| line.contains(".unwrap()") && !line.trim_start().starts_with("//"));
        left.extend(lines.map(|(_, number)| format!("{}:{number}", relative_path(&path))));
    }
    assert!(left.is_empty(), "use expect with a reason, or return the error: {left:#?}");
}

/// Returns the repository paths that a text names: words that start with one of its folders.
fn named_paths(text: &str) -> Vec<String> {
    let folders = ["crates/", "src/", "sdk/", "tests/", "schema/", "docs/", "benches/", "web-demo/", "examples/"];
    let is_path = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    let words = text.split(|c: char| !is_path(c)).map(|word| word.trim_end_matches(['.', '-']));
    let paths = words.filter(|word| folders.iter().any(|folder| word.starts_with(folder) && word.len() > folder.len()));
    paths.map(str::to_owned).collect()
}

#[test]
fn every_path_named_in_prose_exists() {
    let mut prose = list_files("docs", "md");
    let readmes = [
        "README.md",
        "sdk/python/README.md",
        "sdk/react/README.md",
        "sdk/rust/README.md",
        "sdk/typescript/README.md",
        "web-demo/README.md",
    ];
    prose.extend(readmes.into_iter().chain(["CONTRIBUTING.md", "src/lib.rs"]).map(repository));
    let mut missing = Vec::new();
    for path in prose {
        let unresolved = named_paths(&read(&path)).into_iter().filter(|name| !repository(name).exists());
        missing.extend(unresolved.map(|name| format!("{} names {name}", relative_path(&path))));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The features of the server for tests alone.
const TEST_FEATURES: [&str; 3] = ["sabotage", "simulation", "test-clock"];

/// What each feature of a manifest enables.
fn features(manifest: &str) -> BTreeMap<String, Vec<String>> {
    let table: toml::Table = manifest.parse().expect("the manifest is TOML");
    let enabled =
        |list: &toml::Value| list.as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect();
    table["features"].as_table().expect("features").iter().map(|(name, list)| (name.clone(), enabled(list))).collect()
}

/// The features for tests that these features enable, directly or not.
fn enabled_test_features(features: &BTreeMap<String, Vec<String>>, mut wanted: Vec<String>) -> BTreeSet<String> {
    let mut enabled = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if enabled.insert(name.clone()) {
            wanted.extend(features.get(&name).into_iter().flatten().cloned());
        }
    }
    enabled.retain(|name| TEST_FEATURES.contains(&name.as_str()));
    enabled
}

#[test]
fn no_feature_of_a_release_enables_planted_faults_or_simulated_time() {
    let features = features(&read(&repository("Cargo.toml")));
    let for_users: Vec<_> = features.keys().filter(|name| !TEST_FEATURES.contains(&name.as_str())).cloned().collect();
    assert!(for_users.contains(&"default".to_owned()), "{for_users:?}");
    assert_eq!(enabled_test_features(&features, for_users), BTreeSet::new());
    assert_eq!(enabled_test_features(&features, vec!["sabotage".to_owned()]).len(), 2, "the check follows features");
    for builds in ["Dockerfile", "scripts/release", "scripts/image", "scripts/packages", "scripts/pgo", "scripts/peers.py"] {
        let text = read(&repository(builds));
        let named: Vec<_> = TEST_FEATURES.into_iter().chain(["all-features"]).filter(|name| text.contains(name)).collect();
        assert!(named.is_empty(), "{builds} names {named:?}");
    }
}

#[test]
fn the_checks_of_this_file_find_what_they_look_for() {
    assert_eq!(used_modules("use crate::{model::{A, B}, log, feed::X};\ncrate::serve::y()"), ["model", "log", "feed", "serve"]);
    assert_eq!(
        named_paths("see `src/log/row.rs`, [x](docs/a-b.md). Or tests/it/."),
        ["src/log/row.rs", "docs/a-b.md", "tests/it/"]
    );

    let circular = [
        ("a", "use crate::{b::{self, X}, c};"),
        ("b", "fn f() { super::c::g() } // super::d"),
        ("c", "use super::a::Y;"),
        ("d", "use crate::a;"),
        ("e", "mod inner; use inner::Z;"),
        ("e/inner", "use super::W;"),
    ];
    let files = circular.map(|(file, text)| (module_path(&format!("{file}.rs")).unwrap(), text.to_owned()));
    let names = |group: &Vec<ModulePath>| group.iter().map(|path| path.join("/")).collect::<Vec<_>>();
    assert_eq!(circles(&files.into()).iter().map(names).collect::<Vec<_>>(), [["a", "b", "c"]]);
}
