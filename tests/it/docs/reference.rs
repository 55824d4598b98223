//! The generated parts of the reference pages: between `<!-- generated: name -->` and `<!-- end -->`.

use super::markdown::{table, wrap};
use super::{Page, limits, site_pages};
use crate::harness::{Process, repository};
use proscenium::auth::rights::Verb;
use proscenium::serve::contract::access_rule::AccessRule;
use proscenium::serve::contract::operations::OPERATIONS;
use proscenium::serve::socket::SocketOperation;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

/// Each generated part: its name, and what makes it.
const PARTS: &[(&str, fn() -> String)] = &[
    ("operations", operations),
    ("objects", objects),
    ("problems", problems),
    ("metrics", metrics),
    ("commands", commands),
    ("settings", limits::settings),
    ("limits", limits::limits),
    ("activities", activities),
    ("frames", frames),
];

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

/// The text with its generated parts made anew. Adds the parts that it has to `found`.
fn generated(text: &str, found: &mut Vec<&'static str>) -> String {
    let (mut whole, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        whole.push_str(&format!("{line}\n"));
        let Some(name) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        let (name, make) = PARTS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no part is named {name}"));
        found.push(name);
        whole.push_str(&format!("\n{}\n\n{END}\n", make().trim()));
        lines.by_ref().find(|line| *line == END).unwrap_or_else(|| panic!("the part {name} has no end"));
    }
    whole
}

#[test]
fn the_reference_pages_are_what_the_code_says() {
    let update = std::env::var_os("UPDATE_DOCS").is_some_and(|yes| yes == "1");
    let (mut found, mut stale) = (Vec::new(), Vec::new());
    for Page { name, text } in site_pages() {
        let made = generated(&text, &mut found);
        if made == text {
            continue;
        }
        if update {
            std::fs::write(repository(&name), made).expect("the page can be written");
            continue;
        }
        let differs = text.lines().zip(made.lines()).position(|(there, made)| there != made);
        let line = differs.unwrap_or(text.lines().count().min(made.lines().count()));
        let at = |text: &str| text.lines().nth(line).unwrap_or_default().to_owned();
        stale.push(format!("{name}:{}: the page has {:?}; the code says {:?}", line + 1, at(&text), at(&made)));
    }
    for (part, _) in PARTS {
        assert_eq!(found.iter().filter(|name| *name == part).count(), 1, "the part {part} must be on exactly one page");
    }
    let remedy = "run `UPDATE_DOCS=1 cargo test --all-features --test it docs` and commit the pages";
    assert!(stale.is_empty(), "{remedy}: {stale:#?}");
}

/// A document of `schema/`.
pub fn schema(name: &str) -> Value {
    let text = std::fs::read_to_string(repository("schema").join(name)).unwrap_or_else(|error| panic!("schema/{name}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("schema/{name}: {error}"))
}

fn text_of<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn joined(parts: impl IntoIterator<Item = String>, between: &str) -> String {
    parts.into_iter().collect::<Vec<_>>().join(between)
}

/// The name that a `$ref` leads to, with a link where a page describes it.
fn reference(target: &str) -> String {
    let name = target.rsplit(['/', ':']).next().unwrap_or_default().trim_end_matches('#');
    match name {
        "id" => "id".into(),
        "agentui-event" | "AgentUiEvent" => "[envelope](../concepts.md#envelopes-and-sequences)".into(),
        "problem" | "Problem" => "[problem](problems.md)".into(),
        "Frame" => "[frame](frames.md)".into(),
        "Any" => "any JSON".into(),
        "Description" => "OpenAPI document".into(),
        name => format!("[{name}](#object-{})", name.to_ascii_lowercase()),
    }
}

/// A schema's type in words.
fn type_of(schema: &Value) -> String {
    if let Some(target) = schema["$ref"].as_str() {
        return reference(target);
    }
    if let Some(value) = schema.get("const") {
        return format!("`{value}`");
    }
    if schema["enum"].is_array() {
        let name = |value: &Value| value.as_str().map_or_else(|| format!("`{value}`"), |name| format!("`{name}`"));
        return joined(items(&schema["enum"]).map(name), ", ");
    }
    for either in ["anyOf", "oneOf"] {
        if let [known, other] = items(&schema[either]).collect::<Vec<_>>()[..]
            && known["enum"].is_array()
        {
            return format!("{}, or another {}", type_of(known), type_of(other));
        }
        if schema[either].is_array() {
            return joined(items(&schema[either]).map(type_of), " or ");
        }
    }
    let named = |name: &str| match name {
        "array" if schema["items"].is_object() => format!("array of {}", type_of(&schema["items"])),
        "string" if schema["format"] == "date-time" => "time".into(),
        "integer" => match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
            (Some(min), Some(max)) if max < u64::from(u32::MAX) => format!("integer, {min} to {max}"),
            (Some(min), _) if min > 0 => format!("integer from {min}"),
            _ => "integer".into(),
        },
        name => name.to_owned(),
    };
    match &schema["type"] {
        Value::String(name) => named(name),
        Value::Array(names) => joined(names.iter().filter_map(Value::as_str).map(named), " or "),
        _ => "any".into(),
    }
}

/// A row for each member of an object, and for the members of objects in it.
fn member_rows(schema: &Value, prefix: &str, rows: &mut Vec<Vec<String>>) {
    let required: Vec<&str> = items(&schema["required"]).filter_map(Value::as_str).collect();
    for (name, member) in members(&schema["properties"]) {
        let always = if required.contains(&name.as_str()) { "yes" } else { "" };
        let meaning = match text_of(member, "description") {
            "" => text_of(&member["items"], "description"),
            meaning => meaning,
        };
        rows.push(vec![format!("`{prefix}{name}`"), type_of(member), always.into(), meaning.into()]);
        let inside = if member["items"]["properties"].is_object() { &member["items"] } else { member };
        if inside["properties"].is_object() {
            let dots = if member["items"].is_object() { "[]." } else { "." };
            member_rows(inside, &format!("{prefix}{name}{dots}"), rows);
        }
    }
}

fn member_table(schema: &Value) -> String {
    let mut rows = Vec::new();
    member_rows(schema, "", &mut rows);
    if rows.is_empty() { String::new() } else { table(&["member", "type", "always", "meaning"], rows) }
}

/// Every operation of the description, with its method and path.
fn all_operations(description: &Value) -> Vec<(&String, &String, &Value)> {
    members(&description["paths"])
        .flat_map(|(path, methods)| members(methods).map(move |(method, operation)| (method, path, operation)))
        .collect()
}

/// The problems that an operation can answer with, as `status code`, in the order of the description.
fn problems_of(operation: &Value) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    for (status, answer) in members(&operation["responses"]) {
        let codes = &answer["content"]["application/problem+json"]["schema"]["properties"]["code"]["enum"];
        problems.extend(items(codes).filter_map(Value::as_str).map(|code| (status.clone(), code.to_owned())));
    }
    problems
}

/// The problems by status, each status with a link.
fn named(problems: &[(String, String)]) -> String {
    let by_status = problems.chunk_by(|(before, _), (status, _)| before == status).map(|of_status| {
        let (status, _) = &of_status[0];
        let codes = joined(of_status.iter().map(|(_, code)| format!("`{code}`")), ", ");
        format!("[{status}](problems.md#{status}) {codes}")
    });
    joined(by_status, "; ")
}

/// The right that an operation needs, in words.
fn right_of(operation: &Value) -> String {
    let id = operation["operationId"].as_str().expect("an operation has an id");
    let row = OPERATIONS.iter().find(|row| row.id == id).expect("an operation has a row");
    match row.access_rule {
        AccessRule::Public => "none".into(),
        AccessRule::AnyToken => "any token".into(),
        AccessRule::InBand => "any token; a ticket will do".into(),
        AccessRule::Requires(verb) => format!("`{}`", verb.as_str()),
        AccessRule::ReadStream => format!("`{}`; a ticket will do", Verb::Read.as_str()),
    }
}

/// The bodies of a request or an answer: media types, and what is in them.
fn contents(content: &Value) -> String {
    let one = |(kind, media): (&String, &Value)| {
        let shape = match (media["x-itemSchema"]["$ref"].as_str(), media["schema"]["$ref"].as_str()) {
            (Some(item), _) => format!(", each a {}", reference(item)),
            (None, Some(whole)) => format!(": {}", reference(whole)),
            (None, None) => String::new(),
        };
        format!("`{kind}`{shape}")
    };
    joined(members(content).map(one), "; ")
}

fn operations() -> String {
    let description = schema("openapi.json");
    let operations = all_operations(&description);
    let guarded = operations.iter().filter(|(_, _, operation)| items(&operation["security"]).next().is_some());
    // What most of them can answer stands once, at the head.
    let common: Vec<(String, String)> = guarded
        .map(|(_, _, operation)| problems_of(operation))
        .reduce(|common, problems| common.into_iter().filter(|problem| problems.contains(problem)).collect())
        .unwrap_or_default();
    // Ids for facts that lack them are the same for each operation that takes facts.
    let is_id = |parameter: &&Value| parameter.get("required").is_none();
    let ids = operations.iter().map(|(_, _, operation)| items(&operation["parameters"]).filter(is_id).collect::<Vec<_>>());
    let ids = ids.max_by_key(Vec::len).unwrap_or_default();

    let common_names = wrap(&format!("Every address that needs a right can also answer: {}.", named(&common)));
    let mut page = format!("{common_names}\n");
    for tag in items(&description["tags"]) {
        let of_tag = operations.iter().filter(|(_, _, operation)| operation["tags"][0] == tag["name"]);
        let rows = of_tag.clone().map(|(method, path, operation)| {
            let name = format!("`{} {path}`", method.to_uppercase());
            vec![name, right_of(operation), text_of(operation, "summary").into()]
        });
        page.push_str(&format!("## {}\n\n{}\n", capitalized(text_of(tag, "name")), wrap(text_of(tag, "description"))));
        page.push_str(&format!("{}\n", table(&["address", "right", "what it does"], rows)));
        for (method, path, operation) in of_tag {
            page.push_str(&format!("### `{} {path}`\n\n", method.to_uppercase()));
            page.push_str(&format!("{}\n", wrap(text_of(operation, "summary"))));
            if let Some(body) = operation.get("requestBody") {
                let optional = if body["required"] == true { "Body" } else { "Optional body" };
                let what = format!("{optional}: {}. {}", contents(&body["content"]), text_of(body, "description"));
                page.push_str(&format!("{}\n", wrap(&what)));
            }
            let parameters: Vec<_> = items(&operation["parameters"]).filter(|parameter| !is_id(parameter)).collect();
            if !parameters.is_empty() {
                let mut rows: Vec<Vec<String>> = parameters.into_iter().map(parameter_row).collect();
                if items(&operation["parameters"]).any(|parameter| is_id(&parameter)) {
                    rows.push(vec!["[ids](#ids-for-facts)".into(), "query".into(), "id".into(), String::new()]);
                }
                page.push_str(&format!("{}\n", table(&["parameter", "in", "type", "meaning"], rows)));
            }
            let answers = members(&operation["responses"]).filter(|(status, _)| !status.starts_with(['4', '5']));
            let rows = answers.map(|(status, answer)| {
                vec![status.clone(), contents(&answer["content"]), text_of(answer, "description").into()]
            });
            let rows: Vec<_> = rows.collect();
            if !rows.is_empty() {
                page.push_str(&format!("{}\n", table(&["answer", "body", "meaning"], rows.into_iter())));
            }
            let problems: Vec<_> = problems_of(operation).into_iter().filter(|problem| !common.contains(problem)).collect();
            if !problems.is_empty() {
                page.push_str(&format!("{}\n", wrap(&format!("Problems: {}.", named(&problems)))));
            }
        }
    }
    let rows = ids.into_iter().map(|id| vec![format!("`{}`", text_of(id, "name")), text_of(id, "description").into()]);
    page.push_str(&format!("## Ids for facts\n\n{}", table(&["parameter", "meaning"], rows)));
    page
}

fn parameter_row(parameter: &Value) -> Vec<String> {
    let place = text_of(parameter, "in");
    let must = if parameter["required"] == true && place != "path" { ", required" } else { "" };
    let schema = &parameter["schema"];
    let kind = if schema["maxLength"] == 256 && place != "header" { "id".into() } else { type_of(schema) };
    let name = format!("`{}`", text_of(parameter, "name"));
    vec![name, format!("{place}{must}"), kind, text_of(parameter, "description").into()]
}

fn capitalized(name: &str) -> String {
    name.chars().take(1).flat_map(char::to_uppercase).chain(name.chars().skip(1)).collect()
}

/// The objects that bodies are made of.
fn objects() -> String {
    let description = schema("openapi.json");
    // These have pages of their own, or say nothing.
    let elsewhere = ["AgentUiEvent", "Frame", "Problem", "Any", "Description"];
    let mut page = String::new();
    for (name, shape) in members(&description["components"]["schemas"]).filter(|(name, _)| !elsewhere.contains(&name.as_str())) {
        page.push_str(&format!("### Object {name}\n\n{}\n", wrap(text_of(shape, "description"))));
        page.push_str(&match member_table(shape) {
            rows if rows.is_empty() => format!("{}\n", wrap(&format!("Type: {}.", type_of(shape)))),
            rows => format!("{rows}\n"),
        });
    }
    page
}

fn problems() -> String {
    let description = schema("openapi.json");
    let statuses: BTreeSet<u64> = items(&description["x-problems"]).filter_map(|problem| problem["status"].as_u64()).collect();
    let mut page = String::new();
    for status in statuses {
        let of_status = items(&description["x-problems"]).filter(|problem| problem["status"] == status);
        let row = |problem: &Value| {
            vec![format!("`{}`", text_of(problem, "code")), text_of(problem, "meaning").into(), text_of(problem, "remedy").into()]
        };
        page.push_str(&format!("## {status}\n\n{}\n", table(&["code", "what it means", "what to do"], of_status.map(row))));
    }
    page
}

fn activities() -> String {
    let mut kinds: Vec<String> = std::fs::read_dir(repository("schema/activities"))
        .expect("schema/activities")
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".schema.json")?.to_owned()))
        .collect();
    kinds.sort();
    let schemas: Vec<(&String, Value)> =
        kinds.iter().map(|kind| (kind, schema(&format!("activities/{kind}.schema.json")))).collect();
    let row = |(kind, schema): &(&String, Value)| vec![format!("[`{kind}`](#{kind})"), text_of(schema, "description").into()];
    let mut page = format!("{}\n", table(&["type", "what it is"], schemas.iter().map(row)));
    for (kind, schema) in &schemas {
        page.push_str(&format!("## {kind}\n\n{}\n", wrap(text_of(schema, "description"))));
        let rows = member_table(schema);
        page.push_str(&if rows.is_empty() { String::new() } else { format!("{rows}\n") });
    }
    page
}

fn frames() -> String {
    let document = schema("frames.schema.json");
    let mut page = String::new();
    for (name, frame) in members(&document["$defs"]) {
        page.push_str(&format!("### {name}\n\n{}\n", wrap(text_of(frame, "description"))));
        page.push_str(&format!("{}\n", member_table(frame)));
    }
    page
}

/// What the binary prints for these arguments, as wide as asked for. Its environment does not show.
pub fn printed(arguments: &[&str], columns: usize) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_proscenium"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PROSCENIUM_")) {
        command.env_remove(name);
    }
    let output = command.args(arguments).env("COLUMNS", columns.to_string()).output().expect("the binary starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("help is UTF-8")
}

fn commands() -> String {
    const COLUMNS: usize = 100;
    let help = |arguments: &[&str]| {
        let text = printed(arguments, COLUMNS);
        let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
        format!("```text\n{}\n```\n", lines.join("\n"))
    };
    let whole = printed(&["--help"], COLUMNS);
    let listed = whole.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    let mut page = format!("## proscenium\n\n{}\n", help(&["--help"]));
    for name in names {
        page.push_str(&format!("## proscenium {name}\n\n{}\n", help(&[name, "--help"])));
    }
    page
}

/// Sends one request and returns the answer's body.
fn ask(at: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(at).expect("the server accepts");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n");
    socket.write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes()).expect("the server reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("the server answers");
    answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

fn metrics() -> String {
    let server = Process::start();
    // A problem and a refused body, so that metrics with the label `code` have a sample.
    ask(server.at, "GET", "/v1/runs/absent", "");
    ask(server.at, "POST", "/v1/runs/r/facts", "[{}]");
    ask(server.at, "POST", "/v1/runs/s/facts", r#"[{"type":"run.started"},{"type":"run.finished"}]"#);
    let text = ask(server.at, "GET", "/metrics", "");
    let mut kinds = Map::new();
    for (name, kind) in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')) {
        kinds.insert(name.into(), kind.into());
    }
    let labels = |name: &str| {
        let samples = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once('}'));
        let names = samples.flat_map(|(labels, _)| labels.split(',').filter_map(|label| label.split_once('=')));
        let names: BTreeSet<String> = names.map(|(name, _)| format!("`{name}`")).collect();
        joined(names, ", ")
    };
    let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let rows = helps.map(|(name, help)| {
        vec![format!("`{name}`"), kinds[name].as_str().unwrap_or_default().into(), labels(name), help.into()]
    });
    table(&["metric", "type", "labels", "meaning"], rows)
}

/// Returns the first column of the table under this heading, without code marks.
fn first_column<'p>(page: &'p str, heading: &str) -> BTreeSet<&'p str> {
    let (_, section) = page.split_once(heading).unwrap_or_else(|| panic!("no heading {heading}"));
    let rows = section.lines().skip_while(|line| !line.starts_with("| ---")).skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').nth(1).unwrap().trim().trim_matches('`')).collect()
}

#[test]
fn the_page_of_the_web_socket_names_every_operation_and_every_close_code() {
    let page = std::fs::read_to_string(repository("docs/src/reference/websocket.md")).unwrap();
    assert_eq!(first_column(&page, "## Messages of a client"), SocketOperation::ALL.map(SocketOperation::as_str).into());
    let mut codes = BTreeSet::new();
    for file in std::fs::read_dir(repository("src/serve/socket")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let names = text.split("CloseCode::").skip(1).map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap());
        codes.extend(names.map(|name| match name {
            "Normal" => "1000",
            "Away" => "1001",
            "Protocol" => "1002",
            "Unsupported" => "1003",
            "Invalid" => "1007",
            "Policy" => "1008",
            "Size" => "1009",
            "Again" => "1013",
            "Library" => "4401",
            other => panic!("the test does not know the close code {other}"),
        }));
    }
    assert_eq!(first_column(&page, "## Errors and closing"), codes);
}
