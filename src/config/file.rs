//! The file of `--config`: flags by their names, and tables.
//!
//! ```text
//! file ─▶ the flags that neither the command line nor the environment sets ─▶ one command line ─▶ clap
//! ```
//! So a value of the file is checked as that of a flag is, and everything that clap knows of flags holds for it.

use crate::connect::entry::{AgentEntry, AgentTable, EntryError, ReadVariable, ValueSource};
use crate::notify::subscription::SUBSCRIPTIONS_RECEIVER;
use crate::notify::webhook::{Webhook, WebhookSettings};
use crate::retention_rules::{RetentionRules, rule_shown};
use crate::waits::WaitRules;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource as Origin;
use clap::{Arg, ArgAction, Command};
use serde::Deserialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::{Spanned, Table, Value};

/// The id of the flag that names the file.
pub(super) const CONFIG: &str = "config_file";
/// The tables: agents, webhooks, rules for actions that wait, and rules of retention.
const AGENTS: &str = "agents";
const WEBHOOKS: &str = "webhooks";
const WAITS: &str = "waits";
const RETENTION: &str = "retention";
const TABLES: [&str; 4] = [AGENTS, WEBHOOKS, WAITS, RETENTION];

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", file.display())]
pub struct FileError {
    file: PathBuf,
    what: String,
}

/// Adds the flags of the file that a `serve` command line names. The flags of the command line and the environment win.
///
/// # Errors
/// [`FileError`], with the key that it is about.
pub fn expand(command: &Command, args: Vec<OsString>, variable: ReadVariable<'_>) -> Result<Vec<OsString>, FileError> {
    // A flag may be missing that the file has. The whole command line is checked afterwards.
    let Ok(given) = command.clone().ignore_errors(true).try_get_matches_from(&args) else { return Ok(args) };
    let Some(("serve", given)) = given.subcommand() else { return Ok(args) };
    let Some(file) = given.get_one::<PathBuf>(CONFIG) else { return Ok(args) };
    let serve = command.find_subcommand("serve").expect("the command line has this command");
    let mut expanded: Vec<OsString> = args.iter().take_while(|arg| *arg != "serve").cloned().collect();
    let rest = args.iter().skip(expanded.len() + 1);
    expanded.push("serve".into());
    for (key, value) in read(file)?.iter().filter(|(key, _)| !TABLES.contains(&key.as_str())) {
        let failed = |what: String| FileError { file: file.clone(), what: format!("{key}: {what}") };
        let flag = flag_of(serve, key).ok_or_else(|| failed("there is no such flag of `proscenium serve`".into()))?;
        let words = words(flag, value, variable).map_err(failed)?;
        check(serve, flag, &words).map_err(failed)?;
        let is_given = matches!(given.value_source(flag.get_id().as_str()), Some(Origin::CommandLine | Origin::EnvVariable));
        if !is_given {
            expanded.extend(words.into_iter().map(OsString::from));
        }
    }
    expanded.extend(rest.cloned());
    Ok(expanded)
}

/// The agents of the file.
///
/// # Errors
/// [`EntryError`] that names the file and the agent.
pub(super) fn agents(file: &Path, variable: ReadVariable<'_>) -> Result<Vec<AgentEntry>, EntryError> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
        #[serde(flatten)]
        table: Table,
    }
    let failed = |what: String| EntryError { at: file.display().to_string(), what };
    let whole = read(file).map_err(|error| failed(error.what))?;
    let Some(listed) = whole.get(AGENTS) else { return Ok(Vec::new()) };
    let listed: Vec<Named> = listed.clone().try_into().map_err(|error| failed(format!("[[agents]]: {}", short(&error))))?;
    let entry = |Named { name, table }: Named| {
        let failed = |what: String| EntryError { at: format!("{}: agent {name}", file.display()), what };
        let table: AgentTable = Value::Table(table).try_into().map_err(|error| failed(short(&error)))?;
        table.into_entry(&name, variable).map_err(failed)
    };
    listed.into_iter().map(entry).collect()
}

/// The webhooks of the file.
///
/// # Errors
/// [`FileError`] that names the webhook and the member.
pub(super) fn webhooks(file: &Path, variable: ReadVariable<'_>) -> Result<Vec<Webhook>, FileError> {
    let whole = read(file)?;
    let failed = |what: String| FileError { file: file.to_owned(), what };
    let Some(listed) = whole.get(WEBHOOKS) else { return Ok(Vec::new()) };
    let listed: Vec<Table> = listed.clone().try_into().map_err(|error| failed(format!("[[{WEBHOOKS}]]: {}", short(&error))))?;
    let mut webhooks: Vec<Webhook> = Vec::new();
    for (n, mut table) in listed.into_iter().enumerate() {
        let unnamed = || failed(format!("[[{WEBHOOKS}]] {}: name: it must be a text without `/`, unlike others", n + 1));
        let name = match table.remove("name") {
            Some(Value::String(name)) if !name.is_empty() && !name.contains('/') => name,
            _ => return Err(unnamed()),
        };
        if webhooks.iter().any(|known| *known.id == *name) {
            return Err(unnamed());
        }
        if name == SUBSCRIPTIONS_RECEIVER {
            return Err(failed(format!("[[{WEBHOOKS}]] {name}: name: it stands for people's devices; choose another")));
        }
        let failed = |what: String| failed(format!("webhook {name}: {what}"));
        if let Some(Value::Array(secrets)) = table.get_mut("secrets") {
            for secret in secrets {
                *secret = Value::String(text(secret, variable).map_err(|what| failed(format!("secrets: {what}")))?);
            }
        }
        let settings: WebhookSettings = Value::Table(table).try_into().map_err(|error| failed(short(&error)))?;
        webhooks.push(Webhook::new(&name, settings, true).map_err(|error| failed(error.to_string()))?);
    }
    Ok(webhooks)
}

/// The rules of the file for actions that wait. [`WaitRules::new`] tells what the arguments are.
///
/// # Errors
/// [`FileError`] that names the rule and its key.
pub(super) fn waits(file: &Path, is_receiver: impl Fn(&str) -> bool, has_tokens: bool) -> Result<WaitRules, FileError> {
    let failed = |what: String| FileError { file: file.to_owned(), what };
    let Some(listed) = read(file)?.remove(WAITS) else { return Ok(WaitRules::default()) };
    let Value::Array(listed) = listed else { return Err(failed("[[waits]]: it must be a list of tables".into())) };
    let table = |(index, table): (usize, Value)| {
        let name = table.get("name").and_then(Value::as_str).map(|name| format!(" ({name})")).unwrap_or_default();
        table.try_into().map_err(|error| failed(format!("[[waits]] {}{name}: {}", index + 1, short(&error))))
    };
    let tables = listed.into_iter().enumerate().map(table).collect::<Result<Vec<_>, _>>()?;
    WaitRules::new(tables, is_receiver, has_tokens).map_err(|error| failed(error.to_string()))
}

/// The rules of retention of the file, checked, and as the file has them. `acts`: they are to act.
///
/// # Errors
/// [`FileError`] that names the rule, its line and its key.
pub fn retention(file: &Path, acts: bool) -> Result<(RetentionRules, Vec<Table>), FileError> {
    #[derive(Deserialize)]
    struct Whole {
        #[serde(default)]
        retention: Vec<Spanned<Table>>,
    }
    let failed = |what: String| FileError { file: file.to_owned(), what };
    let text = text_of(file)?;
    let whole: Whole = toml::from_str(&text).map_err(|error| failed(format!("[[{RETENTION}]]: {}", short(&error))))?;
    let (mut rules, mut tables) = (Vec::new(), Vec::new());
    for (index, spanned) in whole.retention.into_iter().enumerate() {
        let line = text[..spanned.span().start].matches('\n').count() + 1;
        let table = spanned.into_inner();
        let name = table.get("name").and_then(Value::as_str);
        let shown = rule_shown(index + 1, name, Some(line));
        let rule = table.clone().try_into().map_err(|error| failed(format!("[[{RETENTION}]] {shown}: {}", short(&error))))?;
        rules.push((rule, Some(line)));
        tables.push(table);
    }
    let rules = RetentionRules::new(rules, acts).map_err(|error| failed(error.to_string()))?;
    Ok((rules, tables))
}

fn text_of(file: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(file).map_err(|error| FileError { file: file.to_owned(), what: error.to_string() })
}

fn read(file: &Path) -> Result<Table, FileError> {
    let failed = |what: String| FileError { file: file.to_owned(), what };
    text_of(file)?.parse().map_err(|error| failed(short(&error)))
}

fn short(error: &toml::de::Error) -> String {
    error.to_string().trim_end().to_owned()
}

/// The flag of this name, but for the one that names the file.
fn flag_of<'c>(serve: &'c Command, key: &str) -> Option<&'c Arg> {
    serve.get_arguments().find(|flag| flag.get_long() == Some(key) && flag.get_id() != CONFIG && key != "help")
}

/// The words of a flag on the command line.
fn words(flag: &Arg, value: &Value, variable: ReadVariable<'_>) -> Result<Vec<String>, String> {
    let name = format!("--{}", flag.get_long().unwrap_or_default());
    let is_repeatable = matches!(flag.get_action(), ArgAction::Append);
    match (flag.get_action(), value) {
        (ArgAction::SetTrue, Value::Boolean(true)) => Ok(vec![name]),
        (ArgAction::SetTrue, Value::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err("it must be true or false".into()),
        (_, Value::Array(values)) if is_repeatable => {
            let word = |value| Ok(format!("{name}={}", text(value, variable)?));
            values.iter().map(word).collect()
        }
        (_, Value::Array(_)) => Err("it takes one value, not a list".into()),
        _ => Ok(vec![format!("{name}={}", text(value, variable)?)]),
    }
}

/// The text of a value: as it stands there, or, of `{env = …}` and `{file = …}`, what they name.
fn text(value: &Value, variable: ReadVariable<'_>) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(flag) => Ok(flag.to_string()),
        Value::Table(_) => {
            let source: ValueSource =
                value.clone().try_into().map_err(|_| "it must be a value, {env = \"NAME\"} or {file = \"PATH\"}".to_owned())?;
            source.resolve("", variable, &mut Vec::new())
        }
        Value::Array(_) | Value::Datetime(_) => Err("it must be text, a number, true or false".into()),
    }
}

/// Checks the words of one flag, without what it requires.
fn check(serve: &Command, flag: &Arg, words: &[String]) -> Result<(), String> {
    let Err(error) = serve.clone().no_binary_name(true).try_get_matches_from(words) else { return Ok(()) };
    let name = format!("--{}", flag.get_long().unwrap_or_default());
    let is_about_it = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(about)) => about.split_whitespace().next() == Some(&*name),
        _ => false,
    };
    if !is_about_it || !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return Ok(());
    }
    let message = error.render().to_string();
    Err(message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
}
