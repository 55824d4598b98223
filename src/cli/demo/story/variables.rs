//! The variables of a scene, and the texts that take their place.
//!
//! | text | its value |
//! | --- | --- |
//! | `{name}` | the variable; if it is the whole string, with its JSON type |
//! | `{body:name}` | the file that the variable names, with the viewer's headline |
//! | `{preview:name}`, `{bytes:name}` | its beginning, and its length |
//! | `{added:one:two}`, `{removed:one:two}` | the number of lines that only the second or only the first file has |

use serde_json::{Map, Value};
use std::collections::HashMap;

/// The files of the story.
const FILES: &[(&str, &str)] = &[
    ("links.html", include_str!("files/links.html")),
    ("migrate.py", include_str!("files/migrate.py")),
    ("page-1.md", include_str!("files/page-1.md")),
    ("page-2.md", include_str!("files/page-2.md")),
    ("page-3.md", include_str!("files/page-3.md")),
    ("start-time.png", include_str!("files/start-time.png.url")),
    ("start-times.csv", include_str!("files/start-times.csv")),
    ("tests.json", include_str!("files/tests.json")),
];

/// The number of characters of a file that its preview has.
const PREVIEW_CHARS: usize = 160;
/// The size of the generated test log. The server stores a value of this size outside its envelope.
const LOG_BYTES: usize = 5_000_000;

/// The values of a scene, by name.
#[derive(Debug, Clone, Default)]
pub struct Variables(Map<String, Value>);

impl Variables {
    pub fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    pub fn set_all(&mut self, values: Map<String, Value>) {
        self.0.extend(values);
    }

    /// Returns the text of a variable; empty if it has none.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the value with the variables in its strings.
    ///
    /// # Errors
    /// A text that names what does not exist.
    pub fn fill(&self, template: &Value) -> Result<Value, String> {
        Ok(match template {
            Value::String(text) => self.fill_text(text)?,
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect::<Result<_, _>>()?,
            Value::Object(members) => {
                let filled = members.iter().map(|(name, value)| Ok((name.clone(), self.fill(value)?)));
                Value::Object(filled.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }

    fn fill_text(&self, text: &str) -> Result<Value, String> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, (name, after))) = rest.split_once('{').and_then(|(a, b)| Some((a, b.split_once('}')?))) {
            let value = self.value(name)?;
            if before.len() + name.len() + 2 == text.len() && before.is_empty() {
                return Ok(value);
            }
            filled.push_str(before);
            filled.push_str(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            rest = after;
        }
        Ok((filled + rest).into())
    }

    /// Returns the value of the text between two braces.
    fn value(&self, name: &str) -> Result<Value, String> {
        let variable = |name: &str| self.0.get(name).ok_or_else(|| format!("no variable {{{name}}}"));
        let body = |name: &str| self.body(variable(name)?.as_str().unwrap_or_default());
        let changes = |names: &str| {
            let (one, two) = names.split_once(':').ok_or("a change has two files")?;
            Ok::<_, String>(count_changes(&body(one)?, &body(two)?))
        };
        Ok(match name.split_once(':') {
            None => variable(name)?.clone(),
            Some(("body", file)) => body(file)?.into(),
            Some(("bytes", file)) => body(file)?.len().into(),
            Some(("preview", file)) => body(file)?.chars().take(PREVIEW_CHARS).collect::<String>().into(),
            Some(("added", files)) => changes(files)?.0.into(),
            Some(("removed", files)) => changes(files)?.1.into(),
            Some((function, _)) => return Err(format!("no function {function}")),
        })
    }

    fn body(&self, file: &str) -> Result<String, String> {
        if file == "test.log" {
            return Ok(test_log());
        }
        let (_, body) = FILES.iter().find(|(name, _)| *name == file).ok_or_else(|| format!("no file {file}"))?;
        Ok(body.replace("{headline}", self.text("headline")))
    }
}

/// Returns the variables of each repetition of a scene: `n` and `share`, which count it, and its own.
pub fn repetitions(
    each: Vec<Map<String, Value>>,
    times: usize,
) -> impl Iterator<Item = (Map<String, Value>, Map<String, Value>)> {
    let count = times.max(each.len()).max(1);
    let own = each.into_iter().chain(std::iter::repeat_with(Map::new));
    (1..=count).zip(own).map(move |(n, own)| {
        let share = n as f64 / count as f64;
        (Map::from_iter([("n".to_owned(), n.into()), ("share".to_owned(), share.into())]), own)
    })
}

/// Generates the log of a test run, one line per test.
fn test_log() -> String {
    let line = |n: usize| format!("test aurora::suite_{:02}::case_{n:05} ... ok ({} ms)\n", n % 37, n * 7919 % 240);
    let mut log = String::with_capacity(LOG_BYTES + 100);
    let mut lines = (1..).map(line);
    while log.len() < LOG_BYTES {
        log.extend(lines.next());
    }
    log.truncate(LOG_BYTES);
    log
}

/// Counts the lines that only the second text has, and those that only the first has.
fn count_changes(before: &str, after: &str) -> (usize, usize) {
    let mut lines: HashMap<&str, i64> = HashMap::new();
    for line in after.lines() {
        *lines.entry(line).or_default() += 1;
    }
    for line in before.lines() {
        *lines.entry(line).or_default() -= 1;
    }
    let sum = |sign: i64| lines.values().map(|count| usize::try_from(count * sign).unwrap_or(0)).sum();
    (sum(1), sum(-1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_keep_their_type_and_are_not_filled_twice() {
        let mut variables = Variables::default();
        variables.set("count", 3.into());
        variables.set("words", "{count}".into());
        let filled = variables.fill(&json!({ "a": "{count}", "b": ["{words} of {count}"], "c": "} and {" })).unwrap();
        assert_eq!(filled, json!({ "a": 3, "b": ["{count} of 3"], "c": "} and {" }));
    }

    #[test]
    fn a_file_has_the_headline_and_differs_from_the_version_before() {
        let mut variables = Variables::default();
        for (name, value) in
            [("headline", "H"), ("one", "page-1.md"), ("two", "page-2.md"), ("three", "page-3.md"), ("log", "test.log")]
        {
            variables.set(name, value.into());
        }
        let number = |text: &str| variables.value(text).unwrap().as_u64().unwrap();
        assert!(variables.value("preview:two").unwrap().as_str().unwrap().starts_with("# H\n"));
        assert!(["added:one:two", "removed:one:two", "added:two:three", "removed:two:three"].iter().all(|of| number(of) > 0));
        assert_eq!(number("bytes:log"), 5_000_000);
        assert_eq!(count_changes("a\nb\nb\n", "a\nc\nb\nd\n"), (2, 1));
    }
}
