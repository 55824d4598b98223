//! `proscenium erase`: the permanent removal of a run, a session, or all that an owner has.

use super::{Api, Output};
use crate::cli::screen::one_line;
use crate::cli::{CliError, Endpoint, encoded};
use reqwest::Method;
use serde_json::json;

/// The arguments of `erase`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium erase my-run --yes
  proscenium erase --session my-session --children --yes
  proscenium erase --owner acme --yes

The data cannot be restored. The command ends once no reader can get any of it, even after a crash.")]
pub struct Erase {
    /// The run.
    #[arg(required_unless_present_any = ["session", "owner"])]
    run: Option<String>,
    /// A session with its runs, instead of a run.
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["run", "owner"])]
    session: Option<String>,
    /// All sessions and runs of an owner, instead of a run.
    #[arg(long, value_name = "OWNER", conflicts_with = "run")]
    owner: Option<String>,
    /// With a session, also the sessions that it delegated to.
    #[arg(long, requires = "session")]
    children: bool,
    /// With a session, also its branches.
    #[arg(long, requires = "session")]
    branches: bool,
    /// Erase. Without it, the command says what it would erase.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    server: Endpoint,
    #[command(flatten)]
    output: Output,
}

/// Erases what the arguments name.
///
/// # Errors
/// [`CliError`] without `--yes`, or if the server does not answer, or refuses.
pub async fn run(args: Erase) -> Result<(), CliError> {
    let (what, id, path) = match (&args.owner, &args.session, &args.run) {
        (Some(owner), ..) => ("owner", owner, format!("/v1/owners/{}", encoded(owner))),
        (None, Some(session), _) => {
            let flags = [("children", args.children), ("branches", args.branches)];
            let wanted: Vec<_> =
                flags.iter().filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| format!("{name}=true")).collect();
            let query = if wanted.is_empty() { String::new() } else { format!("?{}", wanted.join("&")) };
            ("session", session, format!("/v1/sessions/{}{query}", encoded(session)))
        }
        (None, None, run) => {
            let run = run.as_ref().expect("clap demands one of the three");
            ("run", run, format!("/v1/runs/{}", encoded(run)))
        }
    };
    if !args.yes {
        return Err(CliError::Usage(format!("this would erase {what} {} permanently; repeat it with --yes", one_line(id))));
    }
    let erased = Api::new(&args.server)?.request(Method::DELETE, &path, None).await?;
    let left = erased["sessions"].as_u64();
    let answer = if erased.is_null() { json!({ "erased": true, what: id }) } else { erased };
    args.output.print(&answer, |out| match left {
        Some(left) => writeln!(out, "The erasure of {what} {} goes on: {left} sessions are left.", one_line(id)),
        None => writeln!(out, "Erased {what} {}.", one_line(id)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        erase: Erase,
    }

    #[tokio::test]
    async fn without_yes_nothing_is_erased_and_the_error_says_what_it_would_be() {
        // No server listens there.
        let line = Line::try_parse_from(["erase", "r1", "--url", "http://127.0.0.1:9"]).ok().unwrap();
        let refused = run(line.erase).await.unwrap_err().to_string();
        assert_eq!(refused, "this would erase run r1 permanently; repeat it with --yes");
    }

    #[test]
    fn one_thing_is_named() {
        for arguments in [&["erase"][..], &["erase", "r1", "--session", "s"], &["erase", "--owner", "o", "--session", "s"]] {
            assert!(Line::try_parse_from(arguments).is_err(), "{arguments:?}");
        }
    }
}
