//! The agents to connect: `--connect NAME=PROTOCOL:TARGET` and the file of `--connect-file`.
//!
//! Credentials stand in the environment or in files, and only their names here. This module resolves them once, at the
//! start. Nothing prints them.

use super::{CONNECTORS, ConnectorKind, TargetKind};
use crate::guard::redact_value;
use crate::model::{AgentId, Audience};
use http::{HeaderName, HeaderValue};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An agent to connect, and how.
#[derive(Debug, Clone)]
pub struct AgentEntry {
    pub name: AgentId,
    pub connector: &'static ConnectorKind,
    pub target: AgentTarget,
    /// Whether an agent that was connected before has the same address.
    pub shares_target: bool,
    /// What of the conversation goes to the agent.
    pub history: Audience,
    pub limits: CallLimits,
    /// The values that come from the environment or from files, and others under names of secrets.
    pub credentials: Vec<HiddenText>,
    /// The turns that are at work at once; at least one.
    pub turns_max: usize,
    /// The headers of the user's request that go to the agent.
    pub forward_headers: Vec<HeaderName>,
    /// Settings of the protocol, under their names in the file.
    pub options: Map<String, Value>,
}

/// Where an agent is.
#[derive(Debug, Clone)]
pub enum AgentTarget {
    Url { url: Url, headers: http::HeaderMap },
    Command(AgentCommand),
}

/// A process that is an agent.
#[derive(Debug, Clone)]
pub struct AgentCommand {
    /// The program and its arguments. No shell reads them.
    pub words: Vec<String>,
    pub directory: Option<PathBuf>,
    /// The whole environment of the process.
    pub environment: BTreeMap<String, HiddenText>,
    /// The command that runs the program, and ends everything that it started. Empty: only the process group ends.
    pub supervisor: Vec<String>,
}

/// A text that debug output hides.
#[derive(Clone, PartialEq, Eq)]
pub struct HiddenText(pub String);

impl std::fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HiddenText")
    }
}

/// Limits on one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLimits {
    /// Time to the first byte of the answer.
    pub first_byte: Duration,
    /// Silence in the middle of an answer.
    pub silence: Duration,
    /// Further attempts of a call that the agent did not accept.
    pub retries: u32,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { first_byte: Duration::from_mins(2), silence: Duration::from_mins(10), retries: 3 }
    }
}

/// Turns of one agent at work at once, if its entry does not say. Each turn of a program is a process.
const ENDPOINT_TURNS_MAX: usize = 256;
const PROGRAM_TURNS_MAX: usize = 32;

impl TargetKind {
    const fn turns_max(self) -> usize {
        match self {
            Self::Url => ENDPOINT_TURNS_MAX,
            Self::Command => PROGRAM_TURNS_MAX,
        }
    }
}

/// The variables that a process inherits if its entry does not name them.
///
/// They say where programs and the user's files are, and hold no credentials.
const INHERITED: [&str; 6] = ["HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER"];

/// Headers of the user's request that one agent may get.
const FORWARDED_MAX: usize = 16;

/// Headers that describe one request or its connection. Those of the page's request would be wrong in the agent's.
#[rustfmt::skip]
const OF_THE_CONNECTION: [&str; 14] = [
    "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
    "keep-alive", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade",
];

/// Why an entry is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct EntryError {
    /// The flag, or the file with the agent's table.
    pub at: String,
    pub what: String,
}

/// The table of one agent in the file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct AgentTable {
    protocol: String,
    url: Option<String>,
    command: Option<Vec<String>>,
    directory: Option<PathBuf>,
    #[serde(default)]
    environment: BTreeMap<String, ValueSource>,
    #[serde(default)]
    headers: BTreeMap<String, ValueSource>,
    #[serde(default)]
    forward_headers: Vec<String>,
    history: Option<Audience>,
    first_byte_seconds: Option<u64>,
    silence_seconds: Option<u64>,
    retries: Option<u32>,
    turns_max: Option<NonZeroUsize>,
    #[serde(default)]
    options: Map<String, Value>,
}

/// Where a value stands: here, in the environment, or in a file.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ValueSource {
    Text(String),
    #[serde(rename_all = "kebab-case")]
    Env {
        env: String,
        #[serde(default)]
        prefix: String,
    },
    #[serde(rename_all = "kebab-case")]
    File {
        file: PathBuf,
        #[serde(default)]
        prefix: String,
    },
}

/// Reads a variable of the environment.
pub type ReadVariable<'e> = &'e dyn Fn(&str) -> Option<String>;

impl ValueSource {
    /// The value under this name. If it is a credential, that is noted without its prefix.
    pub fn resolve(&self, name: &str, variable: ReadVariable<'_>, credentials: &mut Vec<HiddenText>) -> Result<String, String> {
        let (prefix, value) = match self {
            Self::Text(text) => {
                if redact_value(&mut json!({ name: text })) {
                    let after_scheme = text.split_once(' ').map(|(_, credential)| credential);
                    credentials.extend(
                        [Some(text.as_str()), after_scheme].into_iter().flatten().map(|text| HiddenText(text.to_owned())),
                    );
                }
                return Ok(text.clone());
            }
            Self::Env { env, prefix } => {
                let value = variable(env).ok_or_else(|| format!("the variable {env} is not set; set it, or remove the entry"))?;
                (prefix, value)
            }
            Self::File { file, prefix } => {
                let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
                (prefix, text.trim().to_owned())
            }
        };
        let whole = format!("{prefix}{value}");
        credentials.push(HiddenText(value));
        Ok(whole)
    }
}

impl AgentEntry {
    /// Reads a `--connect` flag: `NAME=PROTOCOL:TARGET`.
    ///
    /// # Errors
    /// [`EntryError`] that names the flag.
    pub fn parse(flag: &str, variable: ReadVariable<'_>) -> Result<Self, EntryError> {
        let at = format!("--connect {flag:?}");
        let failed = |what: String| EntryError { at: at.clone(), what };
        let shape = "give NAME=PROTOCOL:TARGET, such as support=ag-ui:http://127.0.0.1:8000/agent";
        let (name, rest) = flag.split_once('=').ok_or_else(|| failed(shape.into()))?;
        let (protocol, target) = rest.split_once(':').ok_or_else(|| failed(shape.into()))?;
        let kind = connector(protocol).map_err(failed)?;
        let (url, command) = match kind.target {
            TargetKind::Url => (Some(target.to_owned()), None),
            TargetKind::Command => {
                let words = shlex::split(target).ok_or_else(|| failed("the command has an open quotation mark".into()))?;
                (None, Some(words))
            }
        };
        let table = AgentTable {
            protocol: protocol.into(),
            url,
            command,
            directory: None,
            environment: BTreeMap::new(),
            headers: BTreeMap::new(),
            forward_headers: Vec::new(),
            history: None,
            first_byte_seconds: None,
            silence_seconds: None,
            retries: None,
            turns_max: None,
            options: Map::new(),
        };
        table.into_entry(name, variable).map_err(failed)
    }

    /// Reads a file of agents: TOML, one table for each agent.
    ///
    /// # Errors
    /// [`EntryError`] that names the file and the agent.
    pub fn read_file(path: &Path, variable: ReadVariable<'_>) -> Result<Vec<Self>, EntryError> {
        let failed = |at: String, what: String| EntryError { at, what };
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| failed(file.clone(), error.to_string()))?;
        let tables: BTreeMap<String, AgentTable> =
            toml::from_str(&text).map_err(|error| failed(file.clone(), error.to_string().trim_end().to_owned()))?;
        let entry = |(name, table): (String, AgentTable)| {
            table.into_entry(&name, variable).map_err(|what| failed(format!("{file}: agent {name}"), what))
        };
        tables.into_iter().map(entry).collect()
    }
}

impl AgentEntry {
    /// Runs the program under this command, if the agent is a program.
    #[must_use]
    pub fn with_supervisor(mut self, command: &[&str]) -> Self {
        if let AgentTarget::Command(program) = &mut self.target {
            program.supervisor = command.iter().map(|word| (*word).to_owned()).collect();
        }
        self
    }

    /// A setting of the protocol that is text.
    ///
    /// # Errors
    /// It has another type.
    pub(super) fn text_option(&self, name: &str) -> Result<Option<&str>, String> {
        match self.options.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("the option {name} is {}; it must be text", crate::source::kind_of(other))),
        }
    }
}

/// Finds the connector of this protocol.
fn connector(protocol: &str) -> Result<&'static ConnectorKind, String> {
    CONNECTORS.iter().find(|kind| kind.name == protocol).ok_or_else(|| {
        let known: Vec<_> = CONNECTORS.iter().map(|kind| kind.name).collect();
        format!("the protocol is {protocol:?}; it must be one of {}", known.join(", "))
    })
}

impl AgentTable {
    pub fn into_entry(self, name: &str, variable: ReadVariable<'_>) -> Result<AgentEntry, String> {
        let connector = connector(&self.protocol)?;
        let name = AgentId::new(name).map_err(|error| format!("the agent's name: {error}"))?;
        if let Some(unknown) = self.options.keys().find(|option| !connector.options.contains(&option.as_str())) {
            let known = connector.options.join(", ");
            return Err(format!(
                "the option is {unknown:?}; {} has {}",
                connector.name,
                if known.is_empty() { "none" } else { &known }
            ));
        }
        let defaults = CallLimits::default();
        let seconds = |given: Option<u64>, default| given.map_or(default, |seconds| Duration::from_secs(seconds.max(1)));
        let limits = CallLimits {
            first_byte: seconds(self.first_byte_seconds, defaults.first_byte),
            silence: seconds(self.silence_seconds, defaults.silence),
            retries: self.retries.unwrap_or(defaults.retries),
        };
        let mut credentials = Vec::new();
        let target = match (connector.target, &self.url, &self.command) {
            (TargetKind::Url, Some(url), None) => {
                AgentTarget::Url { url: parse_url(url)?, headers: headers(&self.headers, variable, &mut credentials)? }
            }
            (TargetKind::Command, None, Some(words)) if !words.is_empty() => AgentTarget::Command(AgentCommand {
                words: words.clone(),
                directory: self.directory,
                environment: environment(&self.environment, variable, &mut credentials)?,
                supervisor: Vec::new(),
            }),
            (TargetKind::Url, ..) => return Err(format!("{} calls an address; give url, and no command", connector.name)),
            (TargetKind::Command, ..) => return Err(format!("{} runs a program; give command, and no url", connector.name)),
        };
        let turns_max = self.turns_max.map_or(connector.target.turns_max(), NonZeroUsize::get);
        let history = self.history.unwrap_or(Audience::Internal);
        let forward_headers = forwarded(&self.forward_headers, &target)?;
        let (shares_target, options) = (false, self.options);
        Ok(AgentEntry {
            name,
            connector,
            target,
            shares_target,
            history,
            limits,
            credentials,
            turns_max,
            forward_headers,
            options,
        })
    }
}

fn parse_url(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("the url is {text:?}: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the url is {text:?}; it must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the url holds a name or a password; put them into headers, from the environment or a file".into());
    }
    Ok(url)
}

fn headers(
    given: &BTreeMap<String, ValueSource>,
    variable: ReadVariable<'_>,
    credentials: &mut Vec<HiddenText>,
) -> Result<http::HeaderMap, String> {
    let mut headers = http::HeaderMap::new();
    for (name, source) in given {
        let bad = |what: &str| format!("the header {name:?} {what}");
        let value = source.resolve(name, variable, credentials).map_err(|what| bad(&format!("has no value: {what}")))?;
        let header: HeaderName = name.parse().map_err(|_| bad("has no valid name"))?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| bad("has characters that a header cannot have"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

/// The names of the headers that go from the page to the agent.
fn forwarded(names: &[String], target: &AgentTarget) -> Result<Vec<HeaderName>, String> {
    let own = match target {
        AgentTarget::Url { headers, .. } => headers,
        AgentTarget::Command(_) if names.is_empty() => return Ok(Vec::new()),
        AgentTarget::Command(_) => return Err("a program gets no headers; remove forward-headers".into()),
    };
    if names.len() > FORWARDED_MAX {
        return Err(format!("forward-headers has {} names; the limit is {FORWARDED_MAX}", names.len()));
    }
    let read = |name: &String| {
        let bad = |what: &str| format!("forward-headers names {name:?}, {what}");
        let header: HeaderName = name.parse().map_err(|_| bad("which is no header's name"))?;
        match header.as_str() {
            name if OF_THE_CONNECTION.contains(&name) => Err(bad("which describes the page's own request; remove it")),
            _ if own.contains_key(&header) => Err(bad("which headers sets, too; remove one of the two")),
            _ => Ok(header),
        }
    };
    names.iter().map(read).collect()
}

fn environment(
    given: &BTreeMap<String, ValueSource>,
    variable: ReadVariable<'_>,
    credentials: &mut Vec<HiddenText>,
) -> Result<BTreeMap<String, HiddenText>, String> {
    let inherited = INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), HiddenText(variable(name)?))));
    let mut environment: BTreeMap<_, _> = inherited.collect();
    for (name, source) in given {
        let value =
            source.resolve(name, variable, credentials).map_err(|what| format!("the variable {name:?} has no value: {what}"))?;
        environment.insert(name.clone(), HiddenText(value));
    }
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Option<String> {
        match name {
            "TOKEN" => Some("plain-value".into()),
            "PATH" => Some("/bin".into()),
            _ => None,
        }
    }

    fn read(text: &str) -> Result<Vec<AgentEntry>, EntryError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        AgentEntry::read_file(file.path(), &variable)
    }

    #[test]
    fn a_flag_names_the_agent_its_protocol_and_where_it_is() {
        let entry = AgentEntry::parse("support=ag-ui:http://127.0.0.1:8000/agent", &variable).unwrap();
        assert_eq!((entry.name.as_str(), entry.connector.name), ("support", "ag-ui"));
        assert!(matches!(entry.target, AgentTarget::Url { url, .. } if url.as_str() == "http://127.0.0.1:8000/agent"));
        let entry = AgentEntry::parse("coder=acp:codex-acp --mode 'two words'", &variable).unwrap();
        let AgentTarget::Command(command) = entry.target else { panic!("a program") };
        assert_eq!(command.words, ["codex-acp", "--mode", "two words"]);
    }

    #[test]
    fn a_file_has_credentials_by_their_names_and_nothing_prints_them() {
        let table = "[a]\nprotocol = \"ag-ui\"\nurl = \"http://h/\"\nheaders = { x = { env = \"TOKEN\", prefix = \"Bearer \" } }\n\
                     [b]\nprotocol = \"acp\"\ncommand = [\"x\"]\nenvironment = { KEY = { env = \"TOKEN\" } }\n";
        let entries = read(table).unwrap();
        let AgentTarget::Url { headers, .. } = &entries[0].target else { panic!("an address") };
        assert_eq!(headers["x"], "Bearer plain-value");
        let AgentTarget::Command(command) = &entries[1].target else { panic!("a program") };
        let environment: Vec<_> = command.environment.iter().map(|(name, value)| (name.as_str(), value.0.as_str())).collect();
        assert_eq!(environment, [("KEY", "plain-value"), ("PATH", "/bin")]);
        assert!(!format!("{entries:?}").contains("plain-value"), "{entries:?}");
    }

    #[test]
    fn an_entry_that_is_not_valid_names_the_place_and_the_remedy() {
        let flag = |text: &str| AgentEntry::parse(text, &variable).unwrap_err().to_string();
        for (text, part) in [
            ("support", "NAME=PROTOCOL:TARGET"),
            ("support=http://h", "must be one of ag-ui"),
            ("support=ag-ui:localhost:8000", "http:// or https://"),
            ("support=ag-ui:http://me:secret@h/", "from the environment or a file"),
            ("coder=acp:'x", "quotation mark"),
            ("=ag-ui:http://h", "the agent's name"),
        ] {
            let error = flag(text);
            assert!(error.contains(part) && error.starts_with("--connect"), "{error}");
        }
        for (text, part) in [
            ("protocol = \"ag-ui\"\nurl = \"http://h\"\nmodel = 1", "unknown field `model`"),
            ("protocol = \"ag-ui\"\nurl = \"http://h\"\noptions = { model = 1 }", "ag-ui has none"),
            ("protocol = \"ag-ui\"\ncommand = [\"x\"]", "give url"),
            ("protocol = \"acp\"\nurl = \"http://h\"", "give command"),
            ("protocol = \"acp\"\ncommand = [\"x\"]\nforward-headers = [\"x\"]", "a program gets no headers"),
            ("protocol = \"ag-ui\"\nurl = \"http://h\"\nforward-headers = [\"a b\"]", "no header's name"),
            ("protocol = \"ag-ui\"\nurl = \"http://h\"\nforward-headers = [\"Host\"]", "the page's own request"),
            (
                "protocol = \"ag-ui\"\nurl = \"http://h\"\nheaders = { x = \"1\" }\nforward-headers = [\"X\"]",
                "remove one of the two",
            ),
            ("protocol = \"ag-ui\"\nurl = \"http://h\"\nheaders = { x = { env = \"NONE\" } }", "the variable NONE is not set"),
            ("protocol = \"ag-ui\"\nurl = \"http://h\"\nheaders = { x = { file = \"/nowhere/at/all\" } }", "/nowhere/at/all"),
        ] {
            let error = read(&format!("[a]\n{text}\n")).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
