//! What an action decides: its subject, and a title for people.
//!
//! Both are read from the request and its call, as this audience sees them, so they are in no envelope. What the source
//! did not say stays absent. The arguments of a call decide the kind of its subject, because tool names are free; every
//! argument that the kind does not show by itself is one of `fields`, so that a card hides nothing.

use proscenium_model::ActionKind;
use serde_json::{Map, Value, json};

/// The most fields, and the most diffs, of a subject. Further ones set `clipped`.
const ITEMS_MAX: usize = 64;
/// The most subjects of an action. Further requests set `clipped` in the last one.
pub(super) const SUBJECTS_MAX: usize = 32;
/// The longest made title, in characters.
const TITLE_CHARS_MAX: usize = 160;
/// The longest argument in a title, in characters.
const ARGUMENT_CHARS_MAX: usize = 60;

/// The kinds of a subject.
const KINDS: &[&str] = &["command", "edit", "fields", "question", "plan", "tool"];

/// The schema of a subject.
pub(super) fn schema() -> Value {
    let string = |about: &str| json!({ "description": about, "type": "string" });
    json!({
        "type": "object",
        "properties": {
            "kind": { "description": "What kind of thing is decided.", "enum": KINDS },
            "toolName": string("The tool."),
            "text": string("What the source says about it."),
            "command": string("The command line."),
            "cwd": string("The directory of the command."),
            "path": string("The file."),
            "diffs": {
                "description": "The changes: { path, oldText?, newText?, patch? }.",
                "type": "array",
                "maxItems": ITEMS_MAX,
                "items": { "type": "object", "properties": { "path": string("The file.") }, "required": ["path"] },
            },
            "fields": {
                "description": "The arguments that nothing else shows.",
                "type": "array",
                "maxItems": ITEMS_MAX,
                "items": { "type": "object", "properties": { "name": string("The name."), "value": true }, "required": ["name", "value"] },
            },
            "question": string("The question."),
            "plan": { "description": "The plan." },
            "title": string("A title of one of several requests."),
            "clipped": { "description": "Whether something is left out." },
        },
        "required": ["kind"],
    })
}

/// Names of arguments by meaning. Runtimes and tools differ in them.
const COMMANDS: &[&str] = &["command", "cmd"];
const DIRECTORIES: &[&str] = &["cwd", "workdir", "working_directory", "workingDirectory"];
const PATHS: &[&str] = &["file_path", "filePath", "path", "notebook_path", "abs_path", "filename"];
const OLD_TEXTS: &[&str] = &["old_string", "old_str", "oldText", "oldString", "old_text"];
const NEW_TEXTS: &[&str] = &["new_string", "new_str", "newText", "newString", "new_text", "new_source"];
const WHOLE_TEXTS: &[&str] = &["content", "contents", "file_text", "text"];
const PATCHES: &[&str] = &["patch", "diff"];
/// Words in the name of a tool whose whole text is a file's new content.
const WRITERS: &[&str] = &["create", "edit", "notebook", "patch", "save", "update", "write"];
/// Arguments that name the object of a call in its title, with the word before it.
const OBJECTS: &[(&str, &str)] = &[
    ("to", " to "),
    ("path", " "),
    ("file_path", " "),
    ("filename", " "),
    ("url", " "),
    ("branch", " "),
    ("name", " "),
    ("id", " "),
    ("query", " "),
];

/// The subjects of an action and its title; `None` where the source said too little.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Description {
    /// One subject, or those of several requests.
    pub subjects: Vec<Value>,
    pub title: Option<String>,
}

/// One request: a tool with its arguments, or what stands in their place.
#[derive(Clone, Copy, Default)]
struct Request<'a> {
    tool: Option<&'a str>,
    input: Option<&'a Value>,
    /// What the source says about it, for people.
    text: Option<&'a str>,
    /// What the call says about itself.
    call_text: Option<&'a str>,
    /// The changes that the source states beside the arguments.
    diffs: Option<&'a Vec<Value>>,
}

/// Describes an action by its content, and by that of its call.
pub(super) fn describe(action: &Map<String, Value>, call: Option<&Map<String, Value>>) -> Description {
    let text = |member: &str| action.get(member).and_then(Value::as_str).filter(|text| !text.is_empty());
    let stated = ["parameters", "input", "safeInput"].iter().find_map(|member| action.get(*member));
    let of_call = |member: &str| call.and_then(|call| call.get(member));
    let input = stated.or_else(|| of_call("input"));
    match ActionKind::from(text("kind").unwrap_or_default()) {
        ActionKind::PlanDecision | ActionKind::TeammatePlanDecision => {
            plan(action.get("plan").or_else(|| input.and_then(|input| input.get("plan"))), input)
        }
        ActionKind::StructuredInput | ActionKind::Clarification | ActionKind::CredentialRequest => {
            questions(text("message"), input, action.get("payload"))
        }
        // Its subject is the version of an artifact, which the content names.
        ActionKind::ArtifactReview => Description::default(),
        // Words alone do not say what a request of an unknown kind decides.
        ActionKind::Other(_) if input.is_none() && !action.contains_key("toolName") => Description::default(),
        _ => {
            let request = Request {
                tool: text("toolName").or_else(|| of_call("tool_name").and_then(Value::as_str).filter(|name| !name.is_empty())),
                input,
                text: text("message"),
                call_text: of_call("message").and_then(Value::as_str),
                diffs: action.get("payload").and_then(|payload| payload.get("diffs")).and_then(Value::as_array),
            };
            match input.and_then(several) {
                Some(list) => requests(list),
                None => one(request),
            }
        }
    }
}

fn plan(plan: Option<&Value>, input: Option<&Value>) -> Description {
    let mut subject = Map::from_iter([("kind".to_owned(), json!("plan"))]);
    subject.extend(plan.map(|plan| ("plan".to_owned(), plan.clone())));
    add_fields(&mut subject, input, |member, _| member == "plan");
    Description { subjects: vec![subject.into()], title: Some("Approve the plan?".into()) }
}

/// A question, or several where the input lists them.
fn questions(message: Option<&str>, input: Option<&Value>, payload: Option<&Value>) -> Description {
    let text = |question: &Value| question.get("question").and_then(Value::as_str).map(str::to_owned);
    let listed = input.and_then(|input| input.get("questions")).and_then(Value::as_array);
    let listed: Vec<String> = listed.into_iter().flatten().filter_map(text).take(SUBJECTS_MAX).collect();
    if listed.len() > 1 {
        let subjects = listed.iter().map(|question| json!({ "kind": "question", "question": question })).collect();
        return Description { subjects, title: Some(shortened(&listed[0], TITLE_CHARS_MAX)) };
    }
    let Some(question) = listed.first().map(String::as_str).or(message) else { return Description::default() };
    let mut subject = Map::from_iter([("kind".to_owned(), json!("question")), ("question".to_owned(), question.into())]);
    let own = payload.filter(|payload| is_question(payload, question));
    // A tool that asks by its own arguments has them beside the question.
    let about = own.or_else(|| input.filter(|input| input.get("questions").is_none()));
    add_fields(&mut subject, about, |member, value| {
        value.as_str() == Some(question) || own.is_some() && matches!(member, "options" | "schema" | "default" | "type" | "kind")
    });
    Description { subjects: vec![subject.into()], title: Some(shortened(question, TITLE_CHARS_MAX)) }
}

/// Whether the payload is the question itself, as a graph asks it, and not data of the protocol.
fn is_question(payload: &Value, question: &str) -> bool {
    payload.as_object().is_some_and(|members| members.values().any(|value| value.as_str() == Some(question)))
}

/// The requests of an action that asks about several calls at once, or lists the one.
fn several(input: &Value) -> Option<&Vec<Value>> {
    let names_tool = |request: &Value| request.get("name").is_some_and(Value::is_string) && request.get("args").is_some();
    input.as_array().filter(|list| !list.is_empty() && list.iter().all(names_tool))
}

fn requests(list: &[Value]) -> Description {
    let request = |request: &Value| -> Description {
        let text = |member: &str| request.get(member).and_then(Value::as_str);
        let (tool, input, text) = (text("name"), request.get("args"), text("description"));
        one(Request { tool, input, text, ..Request::default() })
    };
    let mut described: Vec<Description> = list.iter().take(SUBJECTS_MAX).map(request).collect();
    if described.len() == 1 {
        return described.remove(0);
    }
    let titled = |description: Description| {
        let mut subject = description.subjects.into_iter().next().unwrap_or_else(|| json!({ "kind": "tool" }));
        if let (Some(title), Some(members)) = (description.title, subject.as_object_mut()) {
            members.insert("title".into(), title.into());
        }
        subject
    };
    let mut subjects: Vec<Value> = described.into_iter().map(titled).collect();
    if let (true, Some(last)) = (list.len() > SUBJECTS_MAX, subjects.last_mut()) {
        last["clipped"] = true.into();
    }
    Description { subjects, title: Some(format!("Approve {} requests?", list.len())) }
}

fn one(request: Request<'_>) -> Description {
    let Request { tool, text, call_text, .. } = request;
    let described = edit(request).or_else(|| command(request)).or_else(|| fields(request));
    let (mut subject, title) = described.unwrap_or_else(|| (Map::from_iter([("kind".to_owned(), json!("tool"))]), None));
    let is_bare = tool.is_none() && text.or(call_text).is_none();
    if is_bare && subject.len() == 1 {
        return Description::default();
    }
    let said = text.or_else(|| call_text.filter(|_| title.is_none()));
    for (member, value) in [("toolName", tool), ("text", said)] {
        if let (Some(value), false) = (value, subject.contains_key(member)) {
            subject.insert(member.into(), value.into());
        }
    }
    let by_text = || said.map(|said| question_of(&shortened(said, TITLE_CHARS_MAX)));
    let by_tool = || tool.map(|tool| format!("{}?", sentence(tool)));
    let by_words = || if call_text.is_some() { by_text().or_else(by_tool) } else { by_tool().or_else(by_text) };
    Description { subjects: vec![subject.into()], title: title.or_else(by_words) }
}

/// A change of files: what the source states, or what the arguments of an editing tool say.
fn edit(request: Request<'_>) -> Option<(Map<String, Value>, Option<String>)> {
    let mut diffs: Vec<Value> = request.diffs.into_iter().flatten().filter(|diff| diff["path"].is_string()).cloned().collect();
    let stated = request.input.and_then(|input| text_of(input, PATHS));
    let path = stated.or_else(|| diffs.first()?["path"].as_str()).map(str::to_owned)?;
    if let (Some(input), true) = (request.input, diffs.is_empty()) {
        let is_writer = request.tool.is_some_and(|tool| words(tool).iter().any(|word| WRITERS.contains(&word.as_str())));
        diffs = match input.get("edits").and_then(Value::as_array) {
            Some(edits) => edits.iter().filter_map(|edit| diff(&path, edit, is_writer)).collect(),
            None => diff(&path, input, is_writer).into_iter().collect(),
        };
    }
    if diffs.is_empty() {
        return None;
    }
    let mut subject = Map::from_iter([("kind".to_owned(), json!("edit")), ("path".to_owned(), json!(path))]);
    add_fields(&mut subject, request.input, |member, value| match value {
        Value::String(text) => *text == path || diffs.iter().any(|diff| DIFF_TEXTS.iter().any(|part| diff[*part] == **text)),
        Value::Array(edits) => member == "edits" && edits.iter().all(is_plain_edit),
        _ => false,
    });
    let others = diffs.iter().filter(|diff| diff["path"] != *path).count();
    let shown = shortened(short_path(&path, request.call_text), TITLE_CHARS_MAX);
    let title = match others {
        0 => format!("Edit {shown}?"),
        1 => format!("Edit {shown} and 1 more file?"),
        more => format!("Edit {shown} and {more} more files?"),
    };
    clip(&mut subject, "diffs", diffs);
    Some((subject, Some(title)))
}

/// The texts of a diff.
const DIFF_TEXTS: [&str; 3] = ["oldText", "newText", "patch"];

fn text_of<'v>(value: &'v Value, names: &[&str]) -> Option<&'v str> {
    names.iter().find_map(|name| value.get(*name)?.as_str())
}

/// The change that the arguments of an editing tool state.
fn diff(path: &str, change: &Value, is_writer: bool) -> Option<Value> {
    let whole = || text_of(change, WHOLE_TEXTS).filter(|_| is_writer);
    let patch = text_of(change, PATCHES).filter(|_| is_writer);
    let texts = [text_of(change, OLD_TEXTS), text_of(change, NEW_TEXTS).or_else(whole), patch];
    let mut diff = Map::from_iter([("path".to_owned(), json!(path))]);
    for (member, text) in DIFF_TEXTS.into_iter().zip(texts) {
        diff.extend(text.map(|text| (member.to_owned(), text.into())));
    }
    (diff.len() > 1).then(|| diff.into())
}

/// Whether a diff shows all that an edit of a list says.
fn is_plain_edit(edit: &Value) -> bool {
    let is_shown = |member: &String| OLD_TEXTS.contains(&member.as_str()) || NEW_TEXTS.contains(&member.as_str());
    edit.as_object().is_some_and(|members| members.keys().all(is_shown))
}

fn command(request: Request<'_>) -> Option<(Map<String, Value>, Option<String>)> {
    let members = request.input?.as_object()?;
    // An editor's tool names its operation so, beside a path.
    if PATHS.iter().any(|path| members.contains_key(*path)) {
        return None;
    }
    let command = COMMANDS.iter().find_map(|name| command_line(members.get(*name)?))?;
    let directory = DIRECTORIES.iter().find_map(|name| members.get(*name)?.as_str());
    let mut subject = Map::from_iter([("kind".to_owned(), json!("command")), ("command".to_owned(), json!(command))]);
    subject.extend(directory.map(|directory| ("cwd".to_owned(), directory.into())));
    let text = request.text.or_else(|| members.get("description").and_then(Value::as_str));
    subject.extend(text.map(|text| ("text".to_owned(), text.into())));
    add_fields(&mut subject, request.input, |member, value| {
        COMMANDS.contains(&member)
            || value.is_string() && DIRECTORIES.contains(&member)
            || member == "description" && value.as_str() == text
    });
    Some((subject, Some(format!("Run `{}`?", shortened(&command, TITLE_CHARS_MAX)))))
}

/// A command as one line. A list of words is quoted, so that its words stay apart.
fn command_line(command: &Value) -> Option<String> {
    match command {
        Value::String(command) if !command.trim().is_empty() => Some(command.clone()),
        Value::Array(words) if !words.is_empty() => {
            let words: Option<Vec<String>> = words.iter().map(|word| word.as_str().map(quoted)).collect();
            Some(words?.join(" "))
        }
        _ => None,
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn fields(request: Request<'_>) -> Option<(Map<String, Value>, Option<String>)> {
    let input = request.input.filter(|input| !input.is_null() && **input != json!({}))?;
    let mut subject = Map::from_iter([("kind".to_owned(), json!("fields"))]);
    match input {
        Value::Object(_) => add_fields(&mut subject, Some(input), |_, _| false),
        other => drop(subject.insert("fields".into(), json!([{ "name": "input", "value": other }]))),
    }
    let object = OBJECTS.iter().find_map(|(name, before)| {
        let value =
            input.get(*name)?.as_str().filter(|value| !value.contains('\n') && value.chars().count() <= ARGUMENT_CHARS_MAX)?;
        Some(format!("{before}{value}"))
    });
    let title = request.tool.map(|tool| format!("{}{}?", sentence(tool), object.unwrap_or_default()));
    Some((subject, title))
}

/// Adds the members that the subject does not show by itself.
fn add_fields(subject: &mut Map<String, Value>, members: Option<&Value>, is_shown: impl Fn(&str, &Value) -> bool) {
    let members = members.and_then(Value::as_object).into_iter().flatten();
    let rest = members.filter(|(member, value)| !is_shown(member, value));
    let fields: Vec<Value> = rest.map(|(member, value)| json!({ "name": member, "value": value })).collect();
    if !fields.is_empty() {
        clip(subject, "fields", fields);
    }
}

/// Sets a list of at most [`ITEMS_MAX`] items.
fn clip(subject: &mut Map<String, Value>, member: &str, mut items: Vec<Value>) {
    if items.len() > ITEMS_MAX {
        items.truncate(ITEMS_MAX);
        subject.insert("clipped".into(), true.into());
    }
    subject.insert(member.into(), items.into());
}

/// The end of a path that the call's own words name ("Edit src/app.txt"), else the whole path.
fn short_path<'p>(path: &'p str, call_text: Option<&str>) -> &'p str {
    let named: Vec<&str> = call_text.unwrap_or_default().split_whitespace().collect();
    let mut ends = path.match_indices(['/', '\\']).map(|(at, _)| &path[at + 1..]);
    ends.find(|end| !end.is_empty() && named.contains(end)).unwrap_or(path)
}

/// The words of a tool's name, in lower case. The name of an MCP tool begins with its server.
fn words(tool: &str) -> Vec<String> {
    let own = tool.rsplit("__").next().and_then(|own| own.rsplit('/').next()).unwrap_or(tool);
    let mut words: Vec<String> = vec![String::new()];
    let mut was_lower = false;
    for c in own.chars() {
        let starts = !c.is_alphanumeric() || c.is_uppercase() && was_lower;
        if starts && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A tool's name as the beginning of a sentence: `send_mail` is "Send mail". One word alone is no sentence.
fn sentence(tool: &str) -> String {
    match &*words(tool) {
        [] | [_] => format!("Run {}", shortened(tool, ARGUMENT_CHARS_MAX)),
        several => {
            let mut sentence = several.join(" ");
            if let Some(first) = sentence.get(..1) {
                sentence.replace_range(..1, &first.to_uppercase());
            }
            shortened(&sentence, TITLE_CHARS_MAX)
        }
    }
}

fn question_of(text: &str) -> String {
    if text.ends_with(['?', '!', '.', '…']) { text.to_owned() } else { format!("{text}?") }
}

/// The first line of a text, with an ellipsis where something is left out.
fn shortened(text: &str, chars_max: usize) -> String {
    let text = text.trim();
    let line = text.lines().next().unwrap_or_default().trim_end();
    let end = line.char_indices().nth(chars_max).map_or(line.len(), |(at, _)| at);
    let is_whole = end == text.len();
    format!("{}{}", &line[..end], if is_whole { "" } else { "…" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(action: &Value) -> (Value, String) {
        let description = describe(action.as_object().unwrap(), None);
        assert_eq!(description.subjects.len(), 1, "{action}");
        (description.subjects[0].clone(), description.title.unwrap_or_default())
    }

    fn tool(name: &str, input: &Value) -> (Value, String) {
        described(&json!({"kind": "tool_approval", "toolName": name, "parameters": input}))
    }

    #[test]
    fn a_command_is_shown_with_its_directory_and_every_other_argument() {
        let (subject, title) =
            tool("Bash", &json!({"command": "rm -r src\necho", "cwd": "/srv", "description": "d", "timeout": 5}));
        let fields = json!([{"name": "timeout", "value": 5}]);
        let expected = json!({
            "kind": "command", "command": "rm -r src\necho", "cwd": "/srv", "text": "d", "fields": fields, "toolName": "Bash",
        });
        assert_eq!((subject, title.as_str()), (expected, "Run `rm -r src…`?"));
        let (subject, title) = tool("shell", &json!({"command": ["bash", "-lc", "echo $A"]}));
        assert_eq!((&subject["command"], title.as_str()), (&json!("bash -lc 'echo $A'"), "Run `bash -lc 'echo $A'`?"));
    }

    #[test]
    fn an_edit_is_shown_as_its_diff_whatever_the_tool_calls_its_arguments() {
        let expected = json!([{"path": "a.txt", "oldText": "x", "newText": "y"}]);
        for input in [
            json!({"file_path": "a.txt", "old_string": "x", "new_string": "y"}),
            json!({"path": "a.txt", "old_str": "x", "new_str": "y"}),
            json!({"path": "a.txt", "edits": [{"oldText": "x", "newText": "y"}]}),
        ] {
            let (subject, title) = tool("Change", &input);
            assert_eq!((&subject["kind"], &subject["diffs"], title.as_str()), (&json!("edit"), &expected, "Edit a.txt?"));
            assert_eq!(subject.get("fields"), None);
        }
        let (subject, _) = tool("Write", &json!({"file_path": "a.txt", "content": "y", "mode": 7}));
        assert_eq!(subject["diffs"], json!([{"path": "a.txt", "newText": "y"}]));
        assert_eq!(subject["fields"], json!([{"name": "mode", "value": 7}]));
        let editor = json!({"command": "create", "path": "a.txt", "file_text": "y"});
        assert_eq!(tool("str_replace_based_edit_tool", &editor).0["kind"], "edit");
        let several = json!({"path": "a", "edits": [{"old_str": "x", "new_str": "y", "replace_all": true}]});
        assert_eq!(tool("MultiEdit", &several).0["fields"][0]["value"], several["edits"], "nothing is hidden");
    }

    #[test]
    fn other_arguments_are_fields_and_the_title_names_their_object() {
        let (subject, title) = tool("send_mail", &json!({"to": "a@example.com", "body": "Hi"}));
        let fields = json!([{"name": "to", "value": "a@example.com"}, {"name": "body", "value": "Hi"}]);
        assert_eq!(subject, json!({"kind": "fields", "fields": fields, "toolName": "send_mail"}));
        assert_eq!(title, "Send mail to a@example.com?");
        for (name, input, expected) in [
            ("deleteFile", json!({"path": "a.txt"}), "Delete file a.txt?"),
            ("mcp__hub__create_issue", json!({"n": 1}), "Create issue?"),
            ("deploy", json!({"env": "prod"}), "Run deploy?"),
            ("deploy", Value::Null, "Run deploy?"),
            ("view", json!({"command": "view", "path": "a"}), "Run view a?"),
            ("send_mail", json!({"to": "x\ny"}), "Send mail?"),
        ] {
            assert_eq!(tool(name, &input).1, expected);
        }
    }

    #[test]
    fn a_question_is_its_own_title_and_its_other_members_are_fields() {
        let payload = json!({"question": "Delete a.txt?", "path": "a.txt", "options": ["approve"]});
        let (subject, title) = described(&json!({"kind": "clarification", "message": "Delete a.txt?", "payload": payload}));
        let fields = json!([{"name": "path", "value": "a.txt"}]);
        assert_eq!(subject, json!({"kind": "question", "question": "Delete a.txt?", "fields": fields}));
        assert_eq!(title, "Delete a.txt?");
        let (subject, _) = described(&json!({"kind": "clarification", "message": "Why?", "payload": {"requestId": 1}}));
        assert_eq!(subject, json!({"kind": "question", "question": "Why?"}), "the protocol's own data is no fact");
        let (subject, _) = described(&json!({"kind": "structured_input", "message": "Sure?", "parameters": {"branch": "x"}}));
        assert_eq!(subject["fields"], json!([{"name": "branch", "value": "x"}]), "nothing is hidden");
    }

    #[test]
    fn what_the_source_did_not_say_stays_absent() {
        assert_eq!(describe(&Map::new(), None), Description::default());
        let bare = json!({"kind": "artifact_review", "message": "m"});
        assert_eq!(describe(bare.as_object().unwrap(), None), Description::default());
        let (subject, title) = described(&json!({"kind": "plan_decision"}));
        assert_eq!((subject, title.as_str()), (json!({"kind": "plan"}), "Approve the plan?"));
        let (subject, title) = described(&json!({"kind": "tool_approval", "message": "May I"}));
        assert_eq!((subject, title.as_str()), (json!({"kind": "tool", "text": "May I"}), "May I?"));
    }

    #[test]
    fn several_requests_are_several_subjects_with_titles_of_their_own() {
        let request = |to: &str| json!({"name": "send_mail", "args": {"to": to}, "description": "Please"});
        let action = json!({"kind": "tool_approval", "parameters": [request("a"), request("b")]});
        let Description { subjects, title } = describe(action.as_object().unwrap(), None);
        assert_eq!(title.as_deref(), Some("Approve 2 requests?"));
        assert_eq!((&subjects[1]["title"], &subjects[1]["text"]), (&json!("Send mail to b?"), &json!("Please")));
        let many = json!({"kind": "tool_approval", "parameters": vec![request("a"); SUBJECTS_MAX + 1]});
        let many = describe(many.as_object().unwrap(), None).subjects;
        assert_eq!((many.len(), &many[SUBJECTS_MAX - 1]["clipped"]), (SUBJECTS_MAX, &json!(true)));
    }
}
