//! `proscenium token`: creates tokens, and keys that sign them.
//!
//! It is meant for a single machine, tests and first steps. In production, the service that knows the users signs the
//! tokens.

use super::{Audience, CliError};
use clap::builder::NonEmptyStringValueParser;
use proscenium::auth::keys::TokenSigner;
use proscenium::auth::rights::Verb;
use proscenium::environment::Environment;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The arguments of `token`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Token {
    /// The signing key: a secret of 32 bytes or more (HS256), or a PEM file with a private Ed25519 (EdDSA), RSA (RS256)
    /// or P-256 key (ES256).
    #[arg(long, env = "PROSCENIUM_AUTH_KEY", value_name = "FILE")]
    key: PathBuf,
    /// Create the key first: a secret, in a file that only you can read.
    #[arg(long)]
    generate: bool,
    /// The name of the holder (`sub`). A list of revoked tokens refers to it.
    #[arg(long, env = "PROSCENIUM_SUB", value_name = "NAME", default_value = "cli", value_parser = NonEmptyStringValueParser::new())]
    sub: String,
    /// The widest audience that the holder may request.
    #[arg(long, env = "PROSCENIUM_AUDIENCE", value_enum, default_value_t = Audience::User)]
    audience: Audience,
    /// The permitted sessions with all of their runs: ids, `acme/*` for those that begin with `acme/`, `*` for every session
    /// and run.
    #[arg(long, env = "PROSCENIUM_SESSIONS", value_name = "IDS", value_delimiter = ',')]
    sessions: Vec<String>,
    /// The permitted runs of any session; `*` for every run.
    #[arg(long, env = "PROSCENIUM_RUNS", value_name = "IDS", value_delimiter = ',')]
    runs: Vec<String>,
    /// The agents that the holder may name in a control, and whose controls it may claim; `*` for every agent.
    #[arg(long, env = "PROSCENIUM_AGENTS", value_name = "IDS", value_delimiter = ',')]
    agents: Vec<String>,
    /// Whose the sessions are that the holder begins.
    #[arg(long, env = "PROSCENIUM_OWNER", value_name = "NAME")]
    owner: Option<String>,
    /// The owners whose sessions the holder may use; `*` for every owner.
    #[arg(long, env = "PROSCENIUM_OWNERS", value_name = "NAMES", value_delimiter = ',')]
    owners: Vec<String>,
    /// The permissions: read, publish, control, erase, share, admin, which includes them, or impersonate.
    #[arg(long, env = "PROSCENIUM_CAN", value_name = "VERBS", value_delimiter = ',', default_value = "read", value_parser = verb)]
    can: Vec<&'static str>,
    /// The lifetime, such as 90s, 15m, 12h or 30d; at most 365d.
    #[arg(long, env = "PROSCENIUM_TTL", value_name = "TIME", default_value = "1h", value_parser = seconds)]
    ttl: u64,
    /// The name of the key in a key set (`kid`).
    #[arg(long, env = "PROSCENIUM_KID", value_name = "NAME")]
    kid: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  proscenium token --key secret --generate --sessions '*' --can read,publish      a secret, and a token that it signs
  proscenium serve --auth-key secret
  export PROSCENIUM_TOKEN=$(proscenium token --key secret --sub alice --sessions s1)
  proscenium tail my-run

  openssl genpkey -algorithm ed25519 -out private.pem         a server that cannot create tokens:
  openssl pkey -in private.pem -pubout -out public.pem
  proscenium serve --auth-key public.pem
  proscenium token --key private.pem --runs my-run --can read

Standard output has only the token.";

/// The random bytes of a secret, twice the required minimum. The file holds them as hexadecimal digits.
const SECRET_BYTES: usize = 64;
const TTL_SECS_MAX: u64 = 365 * 24 * 60 * 60;

fn verb(text: &str) -> Result<&'static str, String> {
    let known = Verb::ALL.into_iter().map(Verb::as_str);
    known.clone().find(|name| *name == text).ok_or_else(|| format!("it must be one of {}", known.collect::<Vec<_>>().join(", ")))
}

fn seconds(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        other => return Err(format!("{other:?} is not a unit of time; use s, m, h or d")),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    seconds.filter(|seconds| (1..=TTL_SECS_MAX).contains(seconds)).ok_or_else(|| "it must be 1s to 365d".into())
}

/// Prints a token.
///
/// # Errors
/// [`CliError`] if the arguments grant nothing, or if the key file cannot be used.
pub fn run(args: &Token, environment: Environment) -> Result<(), CliError> {
    let grants_nothing = [&args.sessions, &args.runs, &args.agents, &args.owners].into_iter().all(Vec::is_empty);
    if grants_nothing && !args.can.contains(&"admin") {
        let reason = "the token grants access to nothing; pass --sessions, --owners, --runs or --agents ('*' for all)";
        return Err(CliError::Usage(reason.into()));
    }
    if args.generate {
        generate(&args.key, environment)?;
    }
    let file_error = |reason: String| CliError::File { file: args.key.clone(), reason };
    let bytes = std::fs::read(&args.key).map_err(|error| file_error(error.to_string()))?;
    let token = TokenSigner::from_file(&bytes).and_then(|key| key.sign(&claims(args, environment), args.kid.as_deref()));
    let mut out = io::stdout().lock();
    writeln!(out, "{}", token.map_err(file_error)?)?;
    Ok(out.flush()?)
}

fn claims(args: &Token, environment: Environment) -> Value {
    let now = u64::try_from((environment.now)().as_second()).unwrap_or(0);
    let mut here = json!({
        "audience": args.audience.as_str(),
        "sessions": args.sessions,
        "runs": args.runs,
        "agents": args.agents,
        "can": args.can,
    });
    if let Some(owner) = &args.owner {
        here["owner"] = owner.as_str().into();
    }
    // A server of an earlier version refuses a token with a member that it does not know.
    if !args.owners.is_empty() {
        here["owners"] = json!(args.owners);
    }
    json!({
        "sub": args.sub,
        "jti": Uuid::from_u128((environment.random)()).simple().to_string(),
        "iat": now,
        "exp": now + args.ttl,
        "proscenium": here,
    })
}

/// Writes a new secret to a file; fails if the file exists.
fn generate(file: &Path, environment: Environment) -> Result<(), CliError> {
    let file_error = |error: io::Error| CliError::File { file: file.to_owned(), reason: error.to_string() };
    let mut digits = String::new();
    while digits.len() < 2 * SECRET_BYTES {
        digits += &format!("{:032x}", (environment.random)());
    }
    let mut created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(file_error)?;
    writeln!(created, "{digits}").and_then(|()| created.sync_all()).map_err(file_error)?;
    // A closed standard error only loses the notice.
    let _ = writeln!(io::stderr(), "created a new secret in {}; start a server with --auth-key {0}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_in_seconds_or_has_a_unit_and_is_at_most_a_year() {
        assert_eq!(["90", "90s", "15m", "12h", "365d"].map(seconds), [90, 90, 900, 43_200, TTL_SECS_MAX].map(Ok));
        for text in ["0", "366d", "1w", "h", "", "-1s", "99999999999999999999d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
