//! `proscenium verify`: checks that an export with proofs is what the server stored.
//!
//! The exit code is 0 if all rows fit, 1 if one does not, and 2 if the command could not check the file.

use super::screen::sanitize;
use super::{CliError, Endpoint, Secret};
use proscenium::record::signing::{PublicKey, SignedHead};
use proscenium::record::verify::{Known, Verified, VerifyError, verify};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The arguments of `verify`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Verify {
    /// The file to check, as `proscenium export --proof` wrote it; `-` for standard input.
    file: PathBuf,
    /// The server's public keys, to check the signatures: a JSON Web Key Set or a PEM file, or the server's address.
    #[arg(long, env = "PROSCENIUM_VERIFY_KEY", value_name = "FILE|URL")]
    key: Option<String>,
    /// A signed head of the log that was kept, as JSON: the rows up to it must still be the same.
    #[arg(long, env = "PROSCENIUM_HEAD", value_name = "FILE")]
    head: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, env = "PROSCENIUM_JSON", value_parser = clap::builder::BoolishValueParser::new())]
    json: bool,
    /// The PEM file of the certificate authority for an https address; by default the system's authorities.
    #[arg(long, env = "PROSCENIUM_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The access token for the address. Prefer the variable: other users of this machine can see flags.
    #[arg(long, env = "PROSCENIUM_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<Secret>,
}

const EXAMPLES: &str = "\
Examples:
  proscenium export my-run --proof -o my-run.ndjson
  proscenium verify my-run.ndjson --key http://127.0.0.1:8787  the keys of a server
  curl http://127.0.0.1:8787/v1/keys > keys.json
  proscenium verify my-run.ndjson --key keys.json              without a server
  proscenium verify my-run.ndjson --key keys.json --head kept-head.json

Without --key the signatures are not checked: then a forger can make a file that fits in itself.
The exit code is 0 if all rows fit, 1 if a row or a signature does not, and 2 if the file could not be checked.";

/// The largest file of keys, or of a head, in bytes.
const SMALL_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Checks an export, prints the result, and returns whether all of it fits.
///
/// # Errors
/// [`CliError`] if the file or the keys cannot be read.
pub async fn run(args: Verify) -> Result<bool, CliError> {
    let keys = match &args.key {
        Some(key) => Some(read_keys(key, &args).await?),
        None => None,
    };
    let head = args.head.as_deref().map(read_head).transpose()?;
    let (file, from): (_, Box<dyn Read>) = match args.file.as_os_str() == "-" {
        true => (PathBuf::from("standard input"), Box::new(io::stdin())),
        false => (args.file.clone(), Box::new(File::open(&args.file).map_err(|error| file_error(&args.file, &error))?)),
    };
    let mut out = io::stdout().lock();
    match verify(from, &Known { keys, head }) {
        Ok(verified) => {
            match args.json {
                true => writeln!(out, "{}", json!({ "verified": true, "export": verified }))?,
                false => print(&mut out, &verified)?,
            }
            out.flush()?;
            Ok(true)
        }
        Err(VerifyError::Misfit { line, sequence, why }) => {
            let error = VerifyError::Misfit { line, sequence, why: why.clone() };
            match args.json {
                true => writeln!(out, "{}", json!({ "verified": false, "line": line, "sequence": sequence, "why": why }))?,
                false => writeln!(out, "{}: {}", file.display(), sanitize(&error.to_string()))?,
            }
            out.flush()?;
            Ok(false)
        }
        Err(error) => Err(file_error(&file, &error)),
    }
}

fn file_error(file: &Path, reason: &dyn std::fmt::Display) -> CliError {
    CliError::File { file: file.to_owned(), reason: reason.to_string() }
}

fn print(out: &mut impl Write, verified: &Verified) -> io::Result<()> {
    let Verified { run_id, session_id, audience, checked_in_text, checked_by_leaf, outside_of_chain, removed, head, .. } =
        verified;
    let (kind, id) = if run_id.is_some() { ("Run", run_id) } else { ("Session", session_id) };
    writeln!(out, "{kind} {} for {}: all rows fit.", sanitize(id.as_deref().unwrap_or_default()), audience.as_str())?;
    writeln!(out, "  {checked_in_text} rows checked in text")?;
    writeln!(out, "  {checked_by_leaf} rows checked by their leaf only: this export does not show them as they were written")?;
    if *removed > 0 {
        writeln!(out, "  {removed} rows were removed by compaction; the chain has both ends of each gap")?;
    }
    if *outside_of_chain > 0 {
        writeln!(out, "  {outside_of_chain} rows are outside of the chain: an earlier version wrote or compacted them")?;
    }
    match head {
        Some(head) => writeln!(out, "  the chain ends at row {} with {}", head.sequence, head.chain)?,
        None => writeln!(out, "  the log has no chain yet")?,
    }
    if verified.kept_head_checked {
        writeln!(out, "  the head that was kept fits")?;
    }
    match (verified.signatures_checked, head) {
        (true, Some(head)) => writeln!(out, "  signed at {} with key {}", sanitize(&head.at), sanitize(&head.kid)),
        (true, None) => writeln!(out, "  signed with a key of --key"),
        (false, _) => writeln!(out, "  the signatures were not checked; pass --key"),
    }
}

async fn read_keys(key: &str, args: &Verify) -> Result<Vec<PublicKey>, CliError> {
    if !key.starts_with("http://") && !key.starts_with("https://") {
        let file = PathBuf::from(key);
        let bytes = read_small(&file)?;
        return PublicKey::read_all(&bytes).map_err(|reason| CliError::File { file, reason });
    }
    let server = Endpoint { url: key.to_owned(), ca: args.ca.clone(), token: args.token.clone() };
    let base = key.trim_end_matches('/').trim_end_matches("/v1/keys");
    let answer = server.client()?.get(format!("{base}/v1/keys")).send().await.map_err(|error| server.request_error(&error))?;
    let bytes = server.require_success(answer).await?.bytes().await.map_err(|error| server.request_error(&error))?;
    PublicKey::read_all(&bytes).map_err(|reason| CliError::Usage(format!("the keys of {key}: {reason}")))
}

fn read_head(file: &Path) -> Result<SignedHead, CliError> {
    serde_json::from_slice(&read_small(file)?).map_err(|error| file_error(file, &format_args!("it is no signed head: {error}")))
}

fn read_small(file: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(SMALL_FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| file_error(file, &error))?;
    Ok(bytes)
}
