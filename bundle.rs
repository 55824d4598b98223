//! Bundles the page's modules into chunks, without comments and superfluous white space.
//!
//! One file per module costs the first load a response head for each, and a worse compression. A chunk holds the
//! modules that the same entries need. The entries are the page's script and each module that an `import()` names. A
//! chunk defines each module as a function that is called once and returns the module's exports, and exports these
//! objects as `$0`, `$1` and so on. Other chunks import them, so no module is evaluated twice. What the first entry exports,
//! its chunk exports by name, too.
//!
//! Names that a module declares become short ones in its chunk: everything but members of objects and what the browser has.
//!
//! The sources remain plain modules, which a browser loads unbundled, except those that import a style sheet: such a sheet
//! is a module whose default export is its text. The bundler knows the forms of modules that they use, and panics on all
//! others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Modules that are minified already. Only their last statement is an export.
const VENDOR: &str = "vendor/";

/// The texts of all modules by their path.
pub type Sources<'a> = BTreeMap<&'a str, String>;

/// Returns the chunks of a page by their path.
///
/// Every page loads the modules of `first`, in this order, so all other chunks import what these need from them.
pub fn bundle(sources: &Sources, first: &[&str]) -> BTreeMap<String, String> {
    let mut modules = BTreeMap::new();
    parse_all(first[0], sources, &mut modules, &mut Vec::new());
    let lazy: BTreeSet<&str> = modules.values().flat_map(Module::dynamic_imports).collect();
    let mut needed_by: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for entry in [first[0]].into_iter().chain(lazy.iter().copied()) {
        for name in in_order(entry, &modules) {
            needed_by.entry(name).or_default().insert(entry);
        }
    }
    let mut chunks: BTreeMap<BTreeSet<&str>, Vec<&str>> = BTreeMap::new();
    for (name, entries) in needed_by {
        let entries = first.iter().find(|one| entries.contains(*one)).map_or(entries, |one| BTreeSet::from([*one]));
        chunks.entry(entries).or_default().push(name);
    }
    // A chunk of one entry has the entry's path, another one that of its first module.
    let chunk_of: BTreeMap<&str, String> = chunks
        .iter()
        .flat_map(|(entries, names)| {
            let path = if entries.len() == 1 { entries.first() } else { names.first() };
            names.iter().map(move |name| (*name, (*path.expect("it has modules")).to_owned()))
        })
        .collect();
    let ids: BTreeMap<&str, String> = modules.keys().enumerate().map(|(at, name)| (name.as_str(), format!("${at}"))).collect();
    let graph = Graph { modules: &modules, chunk_of: &chunk_of, ids: &ids, lazy: &lazy, entry: first[0] };
    chunks
        .values()
        .map(|names| {
            let path = &chunk_of[names[0]];
            let mut order: Vec<&str> = Vec::new();
            for one in names.iter().flat_map(|name| in_order(name, &modules)) {
                if names.contains(&one) && !order.contains(&one) {
                    order.push(one);
                }
            }
            (path.clone(), graph.write_chunk(path, &order))
        })
        .collect()
}

/// Returns a script without comments and superfluous white space.
pub fn minify(script: &str) -> String {
    let mut text = String::new();
    for token in tokens(script) {
        token.write(&mut text);
    }
    text
}

/// Returns a style sheet without comments and superfluous white space.
pub fn minify_css(sheet: &str) -> String {
    let mut text = String::with_capacity(sheet.len());
    let mut rest = sheet;
    let mut has_space = false;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '/' if rest.starts_with("/*") => rest.find("*/").expect("a comment ends") + 2,
            '"' | '\'' => 2 + rest[1..].find(next).expect("a string ends"),
            _ => next.len_utf8(),
        };
        let (part, after) = rest.split_at(length);
        rest = after;
        if next.is_ascii_whitespace() || part.starts_with("/*") {
            has_space = true;
            continue;
        }
        if std::mem::take(&mut has_space) && !text.ends_with(['{', '}', ';', ',']) && !text.is_empty() && !"{};,".contains(next) {
            text.push(' ');
        }
        if next == '}' && text.ends_with(';') {
            text.pop();
        }
        text.push_str(part);
    }
    text
}

struct Graph<'a> {
    modules: &'a BTreeMap<String, Module<'a>>,
    chunk_of: &'a BTreeMap<&'a str, String>,
    ids: &'a BTreeMap<&'a str, String>,
    /// The modules that an `import()` names.
    lazy: &'a BTreeSet<&'a str>,
    /// The module whose exports its chunk exports by their names, too.
    entry: &'a str,
}

impl Graph<'_> {
    /// Writes the modules of a chunk in an order in which each follows those that it imports.
    fn write_chunk(&self, path: &str, names: &[&str]) -> String {
        let mut text = String::new();
        if names.iter().any(|name| name.starts_with(VENDOR)) {
            text.push_str("/* Contains modules of other projects: see vendor/LICENCES.txt. */\n");
        }
        let mut imported: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for target in names.iter().flat_map(|name| &self.modules[*name].imports).map(|import| import.target.as_str()) {
            if self.chunk_of[target] != path {
                imported.entry(&self.chunk_of[target]).or_default().insert(&self.ids[target]);
            }
        }
        for (chunk, ids) in imported {
            let ids: Vec<_> = ids.into_iter().collect();
            writeln!(text, "import{{{}}}from\"{}\";", ids.join(","), relative(path, chunk)).expect("a string takes all text");
        }
        for name in names {
            self.write_module(path, name, &mut text);
        }
        let ids: Vec<_> = names.iter().map(|name| self.ids[name].as_str()).collect();
        writeln!(text, "export{{{}}};", ids.join(",")).expect("a string takes all text");
        let exports = &self.modules[self.entry].exports;
        if names.contains(&self.entry) && !exports.is_empty() {
            let exports: Vec<_> = exports.iter().map(|(exported, _)| exported.as_str()).collect();
            writeln!(text, "export const{{{}}}={};", exports.join(","), self.ids[self.entry]).expect("a string takes all text");
        }
        text
    }

    /// The member of a module's object with an export: a short name, unless code that names it by itself reads it.
    fn key(&self, module: &str, exported: &str) -> String {
        let exports = &self.modules[module].exports;
        match exports.iter().position(|(name, _)| name == exported) {
            Some(at) if module != self.entry && !self.lazy.contains(module) => short_name(at),
            _ => exported.to_owned(),
        }
    }

    fn write_module(&self, chunk: &str, name: &str, text: &mut String) {
        let module = &self.modules[name];
        write!(text, "const {}=(()=>{{", self.ids[name]).expect("a string takes all text");
        for Import { target, names } in module.imports.iter().filter(|import| !import.names.is_empty()) {
            let names: Vec<_> =
                names.iter().map(|(exported, local)| pair(&self.key(target, exported), module.local(local))).collect();
            write!(text, "const{{{}}}={};", names.join(","), self.ids[target.as_str()]).expect("a string takes all text");
        }
        for piece in &module.body {
            match piece {
                Piece::Token(token) => {
                    assert!(
                        token.text != "meta" || !text.ends_with("import.") || !chunk.contains('/'),
                        "{name} uses import.meta in a folder"
                    );
                    let local = if token.used == Use::None && !token.text.starts_with('#') {
                        token.text
                    } else {
                        module.local(token.text)
                    };
                    if matches!(token.used, Use::Shorthand | Use::DeclaredShorthand) && local != token.text {
                        token.write(text);
                        text.push(':');
                        text.push_str(local);
                    } else {
                        Token { text: local, ..*token }.write(text);
                    }
                }
                Piece::Text(verbatim) => text.push_str(verbatim),
                // The escapes of a string of Rust have the same meaning in JavaScript.
                Piece::Sheet(sheet) => {
                    write!(text, "const css={:?};", minify_css(sheet)).expect("a string takes all text");
                }
                Piece::Dynamic(token, target) => {
                    token.write(text);
                    let from = relative(chunk, &self.chunk_of[target.as_str()]);
                    write!(text, "(\"{from}\").then(chunk=>chunk.{})", self.ids[target.as_str()])
                        .expect("a string takes all text");
                }
            }
        }
        let exports: Vec<_> =
            module.exports.iter().map(|(exported, local)| pair(&self.key(name, exported), module.local(local))).collect();
        writeln!(text, "\nreturn{{{}}}}})();", exports.join(",")).expect("a string takes all text");
    }
}

/// Writes `a:b`, or `a` if both are the same.
fn pair(key: &str, value: &str) -> String {
    if key == value { key.to_owned() } else { format!("{key}:{value}") }
}

/// Returns the modules that a module needs, each after those that it imports, and itself at the end.
fn in_order<'a>(name: &'a str, modules: &'a BTreeMap<String, Module<'a>>) -> Vec<&'a str> {
    fn add<'a>(name: &'a str, modules: &'a BTreeMap<String, Module<'a>>, order: &mut Vec<&'a str>) {
        if order.contains(&name) {
            return;
        }
        modules[name].imports.iter().for_each(|import| add(&import.target, modules, order));
        order.push(name);
    }
    let mut order = Vec::new();
    add(name, modules, &mut order);
    order
}

/// Parses a module and those that it imports. `path` has the modules that lead to it.
fn parse_all<'a>(name: &str, sources: &'a Sources, modules: &mut BTreeMap<String, Module<'a>>, path: &mut Vec<String>) {
    assert!(!path.iter().any(|one| one == name), "modules import each other: {path:?}, {name}");
    if modules.contains_key(name) {
        return;
    }
    let source = sources.get(name).unwrap_or_else(|| panic!("{path:?} import {name}, which does not exist"));
    let module = match name {
        _ if name.starts_with(VENDOR) => Module::of_vendor(name, source),
        _ if std::path::Path::new(name).extension().is_some_and(|extension| extension == "css") => Module::of_sheet(source),
        _ => Module::parse(name, source),
    };
    path.push(name.to_owned());
    module.imports.iter().for_each(|import| parse_all(&import.target, sources, modules, path));
    path.pop();
    let lazy: Vec<String> = module.dynamic_imports().map(str::to_owned).collect();
    modules.insert(name.to_owned(), module);
    // An `import()` may lead back to a module that runs already.
    for target in lazy {
        parse_all(&target, sources, modules, &mut Vec::new());
    }
}

struct Import {
    /// The path of the imported module.
    target: String,
    /// The exported name and the local name of each value.
    names: Vec<(String, String)>,
}

enum Piece<'a> {
    Token(Token<'a>),
    /// The text of a module that is minified already.
    Text(&'a str),
    /// The text of a style sheet.
    Sheet(&'a str),
    /// `import()` of the module with this path.
    Dynamic(Token<'a>, String),
}

#[derive(Default)]
struct Module<'a> {
    imports: Vec<Import>,
    /// The exported name and the local name of each value.
    exports: Vec<(String, String)>,
    body: Vec<Piece<'a>>,
    /// Short names for the private members of its classes, and for what it declares, which no other module sees.
    short_names: BTreeMap<&'a str, String>,
}

impl<'a> Module<'a> {
    /// The name in a chunk of a name that the module declares.
    fn local<'b>(&'b self, name: &'b str) -> &'b str {
        self.short_names.get(name).map_or(name, String::as_str)
    }

    fn dynamic_imports(&self) -> impl Iterator<Item = &str> {
        self.body.iter().filter_map(|piece| if let Piece::Dynamic(_, target) = piece { Some(target.as_str()) } else { None })
    }

    /// Parses a module that ends with `export{…};` and imports nothing.
    fn of_vendor(name: &str, source: &'a str) -> Self {
        let (body, exports) = source.rsplit_once("export{").unwrap_or_else(|| panic!("{name} has no export at its end"));
        let exports = exports.trim_end().strip_suffix("};").unwrap_or_else(|| panic!("{name} has no export at its end"));
        let body = body.split_once("*/").map_or(body, |(_, body)| body).trim_start();
        let exports = exports.split(',').map(|one| one.split_once(" as ").unwrap_or((one, one)));
        Self {
            exports: exports.map(|(local, exported)| (exported.to_owned(), local.to_owned())).collect(),
            body: vec![Piece::Text(body)],
            ..Self::default()
        }
    }

    /// A style sheet: its default export is its text.
    fn of_sheet(source: &'a str) -> Self {
        Self { exports: vec![("default".into(), "css".into())], body: vec![Piece::Sheet(source)], ..Self::default() }
    }

    fn parse(name: &str, source: &'a str) -> Self {
        let mut tokens = tokens(source);
        find_uses(&mut tokens);
        let mut module = Self { short_names: short_names(&tokens), ..Self::default() };
        let mut tokens = Tokens { name, rest: tokens.into_iter().peekable() };
        let mut depth = 0_u32;
        while let Some(token) = tokens.rest.next() {
            let next = tokens.peek();
            match token.text {
                "import" if next == "(" => {
                    tokens.expect("(");
                    let target = tokens.string();
                    tokens.expect(")");
                    module.body.push(Piece::Dynamic(token, resolve(name, target)));
                }
                "import" if depth == 0 && next != "." => {
                    let names = match next {
                        "{" => tokens.names(),
                        _ if next.starts_with(is_word) => tokens.default_name(),
                        _ => Vec::new(),
                    };
                    if !names.is_empty() || next == "{" {
                        tokens.expect("from");
                    }
                    module.imports.push(Import { target: resolve(name, tokens.string()), names });
                    tokens.expect(";");
                }
                "export" if depth == 0 && next == "{" => {
                    // The local name comes first here.
                    module.exports.extend(tokens.names().into_iter().map(|(local, exported)| (exported, local)));
                    tokens.expect(";");
                }
                "export" if depth == 0 => {
                    let declaration: Vec<Token> = std::iter::from_fn(|| {
                        tokens.rest.next_if(|one| ["async", "function", "class", "const", "*"].contains(&one.text))
                    })
                    .collect();
                    let exported = tokens.peek();
                    assert!(
                        !declaration.is_empty() && exported.starts_with(is_word),
                        "{name} exports by a form that the bundler does not know: {exported}"
                    );
                    module.exports.push((exported.to_owned(), exported.to_owned()));
                    module.body.extend(declaration.into_iter().map(Piece::Token));
                }
                text => {
                    match text {
                        "{" => depth += 1,
                        "}" => depth -= 1,
                        _ => {}
                    }
                    module.body.push(Piece::Token(token));
                }
            }
        }
        module
    }
}

/// Names that a module may declare, but that elsewhere in it may be those of the browser or of the language.
#[rustfmt::skip]
const KEPT: [&str; 24] = [
    "CSS", "EventSource", "Notification", "WebSocket", "as", "async", "caches", "crypto", "document", "fetch",
    "from", "get", "globalThis", "history", "localStorage", "location", "navigator", "of", "performance",
    "sessionStorage", "set", "static", "undefined", "window",
];

/// Words of the language that are no names.
#[rustfmt::skip]
const KEYWORDS: [&str; 39] = [
    "await", "break", "case", "catch", "class", "const", "continue", "debugger", "default", "delete", "do", "else",
    "export", "extends", "false", "finally", "for", "function", "if", "import", "in", "instanceof", "let", "new",
    "null", "return", "super", "switch", "this", "throw", "true", "try", "typeof", "var", "void", "while", "with",
    "yield", "enum",
];

/// What an open bracket of a script holds.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    /// Statements, or the arguments of a call, or an expression.
    Code,
    /// The parameters of a function, or the elements of a pattern with brackets.
    Targets,
    /// The members of an object, or of a pattern with braces, which declares names.
    Members { declares: bool },
    /// The members of a class: a name, or after `=` an expression.
    Class { is_value: bool },
}

/// Finds what each name stands for, and which names the module declares.
fn find_uses(tokens: &mut [Token]) {
    let closing = closing_brackets(tokens);
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let before = |at: usize, back: usize| at.checked_sub(back).map_or("", text);
    let is_spread = |at: usize| before(at, 1) == "." && before(at, 2) == "." && before(at, 3) == ".";
    let mut open: Vec<Holds> = vec![Holds::Code];
    let mut uses = vec![Use::None; tokens.len()];
    let mut begins_class = false;
    for at in 0..tokens.len() {
        let (this, last, next) = (text(at), before(at, 1), text(at + 1));
        let within = *open.last().expect("what is around the whole module");
        // Where a pattern declares names: at the begin of a parameter, an element or the value of a member.
        let is_target = match within {
            Holds::Targets => "([,".contains(last) || is_spread(at),
            Holds::Members { declares: true } => "{,:".contains(last) || is_spread(at),
            _ => false,
        } && !last.is_empty();
        let is_declared = is_target || ["const", "let", "var", "import"].contains(&last);
        match this {
            "class" if last != "." && next != ":" => begins_class = true,
            "(" => {
                let end = closing[at];
                let is_arrow = text(end + 1) == "=" && text(end + 2) == ">";
                let is_function =
                    last == "function" || before(at, 2) == "function" || before(at, 2) == "*" && before(at, 3) == "function";
                let is_method = match within {
                    Holds::Class { is_value } => !is_value,
                    Holds::Members { .. } => text(end + 1) == "{",
                    _ => false,
                };
                let has_targets = is_arrow || is_function || is_method || last == "catch";
                open.push(if has_targets { Holds::Targets } else { Holds::Code });
            }
            "[" => open.push(if is_declared { Holds::Targets } else { Holds::Code }),
            "{" if std::mem::take(&mut begins_class) => open.push(Holds::Class { is_value: false }),
            "{" if is_declared => open.push(Holds::Members { declares: true }),
            "{" if begins_object(tokens, at) => open.push(Holds::Members { declares: false }),
            "{" => open.push(Holds::Code),
            ")" | "]" | "}" => _ = open.pop(),
            "=" if matches!(within, Holds::Class { .. }) => {
                *open.last_mut().expect("it is open") = Holds::Class { is_value: true }
            }
            ";" if matches!(within, Holds::Class { .. }) => {
                *open.last_mut().expect("it is open") = Holds::Class { is_value: false }
            }
            // A part of a template that ends with an expression, or follows one.
            _ if this.starts_with(['`', '}']) => {
                if this.starts_with('}') {
                    open.pop();
                }
                if this.ends_with("${") {
                    open.push(Holds::Code);
                }
            }
            _ if this.starts_with(|first: char| first.is_alphabetic() || first == '_' || first == '$')
                && !KEYWORDS.contains(&this) =>
            {
                let is_member_start = matches!(within, Holds::Members { .. }) && ["{", ","].contains(&last);
                let is_accessor = matches!(within, Holds::Members { .. })
                    && ["get", "set", "async", "*"].contains(&last)
                    && "{,".contains(before(at, 2));
                uses[at] = match within {
                    _ if last == "." && !is_spread(at) => Use::None,
                    Holds::Class { is_value: false } => Use::None,
                    _ if is_accessor => Use::None,
                    _ if is_member_start && [",", "}", "="].contains(&next) => Use::Shorthand,
                    _ if is_member_start => Use::None,
                    _ => Use::Name,
                };
                let is_lone_parameter = next == "=" && text(at + 2) == ">";
                let is_named = ["function", "class"].contains(&last) || last == "*" && before(at, 2) == "function";
                let is_renamed = last == "as" && matches!(within, Holds::Members { declares: true });
                let declares = is_declared || is_named || is_lone_parameter || is_renamed;
                if declares && uses[at] != Use::None && !KEPT.contains(&this) {
                    uses[at] = if uses[at] == Use::Name { Use::Declared } else { Use::DeclaredShorthand };
                }
            }
            _ => {}
        }
    }
    for (token, used) in tokens.iter_mut().zip(uses) {
        token.used = used;
    }
}

/// Returns the index of the closing bracket for each opening one.
fn closing_brackets(tokens: &[Token]) -> Vec<usize> {
    let (mut closing, mut open) = (vec![0; tokens.len()], Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => open.push(at),
            ")" | "]" | "}" => closing[open.pop().expect("a bracket was opened")] = at,
            _ => {}
        }
    }
    closing
}

/// Returns whether a brace begins an object, or a pattern: it stands where an expression may stand.
fn begins_object(tokens: &[Token], at: usize) -> bool {
    let text = |back: usize| at.checked_sub(back).map_or("", |index| tokens[index].text);
    match text(1) {
        ">" => text(2) != "=",
        ":" => !tokens[..at]
            .iter()
            .rev()
            .take_while(|one| ![";", "{", "}"].contains(&one.text))
            .any(|one| ["case", "default"].contains(&one.text)),
        "(" | "," | "=" | "[" | "?" | "&" | "|" | "!" | "+" | "." | "return" | "of" | "in" | "export" | "throw" | "yield" => true,
        last => last.ends_with("${"),
    }
}

/// Returns the shortest names of letters, one after another: `a` to `z`, `A` to `Z`, `aa`, …
fn short_name(at: usize) -> String {
    let letter = |at: usize| char::from(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[at % 52]);
    if at < 52 { letter(at).to_string() } else { format!("{}{}", short_name(at / 52 - 1), letter(at)) }
}

/// Returns short names for the private members and for what the module declares, the shortest for the most frequent.
fn short_names<'a>(tokens: &[Token<'a>]) -> BTreeMap<&'a str, String> {
    let (mut names, mut taken) = (BTreeMap::<&str, usize>::new(), BTreeSet::new());
    for token in tokens {
        if token.text.starts_with('#') || token.used.declares() {
            *names.entry(token.text).or_default() += 0;
        }
    }
    for token in tokens.iter().filter(|token| token.text.starts_with('#') || token.used != Use::None) {
        match names.get_mut(token.text) {
            Some(count) if token.text.len() > 1 => *count += 1,
            _ => _ = taken.insert(token.text),
        }
    }
    names.retain(|name, _| name.len() > 1);
    let mut names: Vec<(&str, usize)> = names.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let all = (0..).map(short_name);
    let is_free =
        |name: &String| !taken.contains(name.as_str()) && !KEYWORDS.contains(&name.as_str()) && !KEPT.contains(&name.as_str());
    let (mut private, mut free) = (all.clone().map(|name| format!("#{name}")), all.filter(is_free));
    names
        .into_iter()
        .filter_map(|(name, _)| Some((name, if name.starts_with('#') { private.next() } else { free.next() }?)))
        .collect()
}

/// The tokens of a module that are not read yet.
struct Tokens<'a, 'n> {
    name: &'n str,
    rest: std::iter::Peekable<std::vec::IntoIter<Token<'a>>>,
}

impl<'a> Tokens<'a, '_> {
    fn peek(&mut self) -> &'a str {
        self.rest.peek().map_or("", |token| token.text)
    }

    fn expect(&mut self, text: &str) {
        let found = self.rest.next().map_or("", |token| token.text);
        assert!(found == text, "{}: the bundler expects {text} instead of {found}", self.name);
    }

    /// Reads a string, without its quotes.
    fn string(&mut self) -> &'a str {
        let found = self.rest.next().map_or("", |token| token.text);
        found
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            .unwrap_or_else(|| panic!("{}: the bundler expects a string instead of {found}", self.name))
    }

    /// Reads the name of a default import.
    fn default_name(&mut self) -> Vec<(String, String)> {
        vec![("default".into(), self.rest.next().map_or("", |token| token.text).to_owned())]
    }

    /// Reads `{ a, b as c }` as pairs of names.
    fn names(&mut self) -> Vec<(String, String)> {
        self.expect("{");
        let mut names = Vec::new();
        while self.peek() != "}" {
            let first = self.rest.next().expect("a list of names ends").text;
            let second = if self.rest.next_if(|token| token.text == "as").is_some() {
                self.rest.next().expect("a name follows").text
            } else {
                first
            };
            names.push((first.to_owned(), second.to_owned()));
            self.rest.next_if(|token| token.text == ",");
        }
        self.expect("}");
        names
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Space {
    None,
    Blank,
    /// White space with an end of line.
    Line,
}

/// What a word of a script is.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// No name of a value: a keyword, a member, or no word.
    None,
    /// The name of a value.
    Name,
    /// A member of an object with the value of the same name, or of a pattern, `{ name }`.
    Shorthand,
    /// As the two before, and it declares the name.
    Declared,
    DeclaredShorthand,
}

impl Use {
    fn declares(self) -> bool {
        matches!(self, Self::Declared | Self::DeclaredShorthand)
    }
}

#[derive(Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    /// What stands before it.
    before: Space,
    used: Use,
}

impl Token<'_> {
    fn write(&self, text: &mut String) {
        let (last, first) = (text.chars().next_back().unwrap_or(';'), self.text.chars().next().unwrap_or(';'));
        match self.before {
            // JavaScript ends a statement at some ends of lines. After these there is no end of a statement.
            Space::Line if "{([,;:?=&|<>".contains(last) || "})],;:?=&|.".contains(first) => {}
            Space::Line => text.push('\n'),
            Space::Blank
                if is_word(last) && is_word(first) || last == first && "+-".contains(first) || last == '/' || first == '/' =>
            {
                text.push(' ');
            }
            _ => {}
        }
        text.push_str(self.text);
    }
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || "_$#".contains(char)
}

/// Splits a script into words, strings, parts of templates, regular expressions and single marks.
fn tokens(script: &str) -> Vec<Token<'_>> {
    let mut found: Vec<Token> = Vec::new();
    let mut before = Space::None;
    // For each template that is open: the number of open braces in its expression.
    let mut templates: Vec<u32> = Vec::new();
    let mut rest = script;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if first.is_whitespace() => {
                before = if first == '\n' || before == Space::Line { Space::Line } else { Space::Blank };
                rest = &rest[first.len_utf8()..];
                continue;
            }
            '/' if rest.starts_with("//") || rest.starts_with("/*") => {
                let length = if rest.starts_with("//") {
                    rest.find('\n').unwrap_or(rest.len())
                } else {
                    rest.find("*/").expect("a comment ends") + 2
                };
                before = if rest[..length].contains('\n') || before == Space::Line { Space::Line } else { Space::Blank };
                rest = &rest[length..];
                continue;
            }
            '"' | '\'' => quoted_length(rest, first),
            '`' => template_length(rest, &mut templates),
            '}' if templates.last() == Some(&0) => {
                templates.pop();
                template_length(rest, &mut templates)
            }
            '/' if begins_expression(&found) => regex_length(rest),
            _ if is_word(first) => rest.find(|char| !is_word(char)).unwrap_or(rest.len()),
            _ => {
                match first {
                    '{' => templates.iter_mut().last().into_iter().for_each(|open| *open += 1),
                    '}' => templates.iter_mut().last().into_iter().for_each(|open| *open -= 1),
                    _ => {}
                }
                first.len_utf8()
            }
        };
        let (text, after) = rest.split_at(length);
        found.push(Token { text, before: std::mem::replace(&mut before, Space::None), used: Use::None });
        rest = after;
    }
    assert!(templates.is_empty(), "a template ends");
    found
}

/// Returns whether an expression, and so a regular expression, may follow these tokens.
fn begins_expression(found: &[Token]) -> bool {
    let last = found.last().map_or(";", |token| token.text);
    let is_operand = last.starts_with(is_word) || last.starts_with(['"', '\'', '`']) || last.ends_with([')', ']', '}', '`']);
    !is_operand || ["return", "typeof", "case", "in", "of", "else", "await", "yield", "new", "throw"].contains(&last)
}

/// Returns the length of a string, with its quotes.
fn quoted_length(rest: &str, quote: char) -> usize {
    length_to(rest, |char, _| char == quote)
}

/// Returns the length of a regular expression, with its flags.
fn regex_length(rest: &str) -> usize {
    let mut is_in_class = false;
    let length = length_to(rest, |char, _| {
        is_in_class = char == '[' || is_in_class && char != ']';
        char == '/' && !is_in_class
    });
    length + rest[length..].find(|char: char| !char.is_ascii_alphabetic()).unwrap_or(0)
}

/// Returns the length of a part of a template: to its end, or to its next expression.
fn template_length(rest: &str, templates: &mut Vec<u32>) -> usize {
    let length = length_to(rest, |char, after| char == '`' || char == '$' && after.starts_with('{'));
    if rest[..length].ends_with('$') {
        templates.push(0);
        return length + 1;
    }
    length
}

/// Returns the length up to a character that is no escaped one, and not the first.
fn length_to(rest: &str, mut is_end: impl FnMut(char, &str) -> bool) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        if char == '\\' {
            chars.next();
        } else if is_end(char, &rest[at + char.len_utf8()..]) {
            return at + char.len_utf8();
        }
    }
    panic!("a literal does not end: {}", rest.lines().next().unwrap_or_default());
}

/// Returns the path of a module that another one imports.
fn resolve(from: &str, target: &str) -> String {
    assert!(target.starts_with('.'), "{from} imports {target}: a bundled module has a relative address");
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the address of a file for an import in another one.
fn relative(from: &str, to: &str) -> String {
    let up = from.matches('/').count();
    if up == 0 { format!("./{to}") } else { format!("{}{to}", "../".repeat(up)) }
}
