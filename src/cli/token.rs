//! `proscenium token`: makes tokens, and keys to sign them with.
//!
//! For a single machine, tests and first steps: whoever has a service that knows its users lets that one sign.

use super::{Audience, CliError};
use clap::builder::NonEmptyStringValueParser;
use proscenium::auth::keys::TokenSigner;
use proscenium::auth::rights::Verb;
use proscenium::ingest::Environment;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// What `token` is asked for.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Token {
    /// The key to sign with: a secret of 32 bytes or more (HS256), or PEM of a private Ed25519 (EdDSA) or RSA key (RS256).
    #[arg(long, env = "PROSCENIUM_AUTH_KEY", value_name = "FILE")]
    key: PathBuf,
    /// Make the key first: a secret, in a file that only you can read.
    #[arg(long)]
    generate: bool,
    /// Who this is: what a list of revoked tokens names.
    #[arg(long, env = "PROSCENIUM_SUB", value_name = "NAME", default_value = "cli", value_parser = NonEmptyStringValueParser::new())]
    sub: String,
    /// The widest audience that the holder may ask for.
    #[arg(long, env = "PROSCENIUM_AUDIENCE", value_enum, default_value_t = Audience::User)]
    audience: Audience,
    /// The sessions, with all of their runs; `*` for every session and run.
    #[arg(long, env = "PROSCENIUM_SESSIONS", value_name = "IDS", value_delimiter = ',')]
    sessions: Vec<String>,
    /// The runs, whatever session they are in; `*` for every run.
    #[arg(long, env = "PROSCENIUM_RUNS", value_name = "IDS", value_delimiter = ',')]
    runs: Vec<String>,
    /// The agents for which controls may be taken; `*` for every agent.
    #[arg(long, env = "PROSCENIUM_AGENTS", value_name = "IDS", value_delimiter = ',')]
    agents: Vec<String>,
    /// What the holder may do: read, publish, control, admin (which includes the others).
    #[arg(long, env = "PROSCENIUM_CAN", value_name = "VERBS", value_delimiter = ',', default_value = "read", value_parser = verb)]
    can: Vec<&'static str>,
    /// How long it is good, such as 90s, 15m, 12h or 30d; a year at most.
    #[arg(long, env = "PROSCENIUM_TTL", value_name = "TIME", default_value = "1h", value_parser = seconds)]
    ttl: u64,
    /// The name of the key in a key set (`kid`).
    #[arg(long, env = "PROSCENIUM_KID", value_name = "NAME")]
    kid: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  proscenium token --key secret --generate --sessions '*' --can read,publish      the secret, and a token of it
  proscenium serve --auth-key secret
  export PROSCENIUM_TOKEN=$(proscenium token --key secret --sub alice --sessions s1)
  proscenium tail my-run

  openssl genpkey -algorithm ed25519 -out private.pem         a server need not be able to make tokens:
  openssl pkey -in private.pem -pubout -out public.pem
  proscenium serve --auth-key public.pem
  proscenium token --key private.pem --runs my-run --can read

Standard output has the token and nothing else.";

/// Random bytes of a secret, twice what is demanded; as hexadecimal digits.
const SECRET_BYTES: usize = 64;
const TTL_MAX: u64 = 365 * 24 * 60 * 60;

fn verb(text: &str) -> Result<&'static str, String> {
    let known = Verb::ALL.into_iter().map(Verb::as_str);
    known.clone().find(|name| *name == text).ok_or_else(|| format!("it is one of {}", known.collect::<Vec<_>>().join(", ")))
}

fn seconds(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        other => return Err(format!("{other:?} is no unit of time; give s, m, h or d")),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    seconds.filter(|seconds| (1..=TTL_MAX).contains(seconds)).ok_or_else(|| "it must be 1s to 365d".into())
}

/// Prints a token.
///
/// # Errors
/// [`CliError`].
pub fn run(asked: &Token, environment: Environment) -> Result<(), CliError> {
    let is_good_for_nothing = asked.sessions.is_empty() && asked.runs.is_empty() && asked.agents.is_empty();
    if is_good_for_nothing && !asked.can.contains(&"admin") {
        let why = "the token would be good for nothing; say of what with --sessions, --runs or --agents ('*' for all)";
        return Err(CliError::Usage(why.into()));
    }
    if asked.generate {
        generate(&asked.key, environment)?;
    }
    let in_file = |why: String| CliError::File { file: asked.key.clone(), why };
    let bytes = std::fs::read(&asked.key).map_err(|error| in_file(error.to_string()))?;
    let token = TokenSigner::from_file(&bytes).and_then(|key| key.sign(&claims(asked, environment), asked.kid.as_deref()));
    let mut out = io::stdout().lock();
    writeln!(out, "{}", token.map_err(in_file)?)?;
    Ok(out.flush()?)
}

fn claims(asked: &Token, environment: Environment) -> Value {
    let now = u64::try_from((environment.now)().as_second()).unwrap_or(0);
    json!({
        "sub": asked.sub,
        "jti": Uuid::from_u128((environment.random)()).simple().to_string(),
        "iat": now,
        "exp": now + asked.ttl,
        "proscenium": {
            "audience": asked.audience.as_str(),
            "sessions": asked.sessions,
            "runs": asked.runs,
            "agents": asked.agents,
            "can": asked.can,
        },
    })
}

/// Writes a new secret where there is no file yet.
fn generate(file: &Path, environment: Environment) -> Result<(), CliError> {
    let in_file = |error: io::Error| CliError::File { file: file.to_owned(), why: error.to_string() };
    let mut digits = String::new();
    while digits.len() < 2 * SECRET_BYTES {
        digits += &format!("{:032x}", (environment.random)());
    }
    let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(in_file)?;
    writeln!(made, "{digits}").and_then(|()| made.sync_all()).map_err(in_file)?;
    // Whoever closed it does not want to know.
    let _ = writeln!(io::stderr(), "a new secret is in {}; start a server with --auth-key {0}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds_and_is_a_year_at_most() {
        assert_eq!(["90", "90s", "15m", "12h", "365d"].map(seconds), [90, 90, 900, 43_200, TTL_MAX].map(Ok));
        for text in ["0", "366d", "1w", "h", "", "-1s", "99999999999999999999d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
