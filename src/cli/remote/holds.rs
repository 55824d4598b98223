//! `proscenium holds`: legal holds, which keep sessions and owners against every erasure.

use super::table::Table;
use super::{Api, Output, age, text};
use crate::cli::screen::one_line;
use crate::cli::{CliError, Endpoint, encoded};
use reqwest::Method;
use serde_json::{Value, json};

/// More holds than a server may have.
const LISTED_MAX: usize = 65_536;

/// The arguments of `holds`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium holds
  proscenium holds set --session my-session --reason 'Case 2026-17'
  proscenium holds set --owner acme --reason 'Audit until March'
  proscenium holds lift --owner acme

All of these need a token with the verb `admin` and the audience `dashboard`.")]
pub struct Holds {
    #[command(subcommand)]
    command: Option<HoldsCommand>,
    #[command(flatten)]
    server: Endpoint,
    #[command(flatten)]
    output: Output,
}

/// What a hold is on.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
struct On {
    /// The session, with those below it.
    #[arg(long)]
    session: Option<String>,
    /// The owner, with all that it has.
    #[arg(long)]
    owner: Option<String>,
}

impl On {
    fn path(&self) -> String {
        match (&self.session, &self.owner) {
            (Some(session), _) => format!("/v1/sessions/{}/hold", encoded(session)),
            (None, owner) => format!("/v1/owners/{}/hold", encoded(owner.as_deref().unwrap_or_default())),
        }
    }

    fn shown(&self) -> String {
        match (&self.session, &self.owner) {
            (Some(session), _) => format!("session {}", one_line(session)),
            (None, owner) => format!("owner {}", one_line(owner.as_deref().unwrap_or_default())),
        }
    }
}

#[derive(Debug, Clone, clap::Subcommand)]
enum HoldsCommand {
    /// Set a hold. It replaces the one that is there.
    Set {
        #[command(flatten)]
        on: On,
        /// Why. The audit has it, too.
        #[arg(long)]
        reason: String,
    },
    /// Lift a hold.
    Lift {
        #[command(flatten)]
        on: On,
    },
}

/// Lists, sets or lifts holds.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn run(args: Holds) -> Result<(), CliError> {
    let Holds { command, server, output } = args;
    let api = Api::new(&server)?;
    match command {
        None => {
            let listed = api.list("/v1/holds", &[], "holds", LISTED_MAX).await?;
            let row = |hold: &Value| {
                let session = text(hold, "sessionId");
                let on =
                    if session.is_empty() { format!("owner {}", text(hold, "ownerId")) } else { format!("session {session}") };
                let by = [text(&hold["by"], "name"), text(&hold["by"], "sub"), text(&hold["by"], "via")];
                let by = by.into_iter().find(|by| !by.is_empty()).unwrap_or_default();
                [on, age(&hold["by"], "at"), by, text(hold, "reason")]
            };
            let holds = listed["holds"].as_array().map_or(&[][..], Vec::as_slice);
            output.print(&listed, |out| match holds {
                [] => writeln!(out, "No holds"),
                _ => Table::new(["ON", "SINCE", "BY", "REASON"], holds.iter().map(row)).print(out),
            })
        }
        Some(HoldsCommand::Set { on, reason }) => {
            let set = api.request(Method::PUT, &on.path(), Some(&json!({ "reason": reason }))).await?;
            output.print(&set, |out| writeln!(out, "The {} is held.", on.shown()))
        }
        Some(HoldsCommand::Lift { on }) => {
            api.request(Method::DELETE, &on.path(), None).await?;
            let answer = json!({ "lifted": true, "sessionId": on.session, "ownerId": on.owner });
            output.print(&answer, |out| writeln!(out, "The hold on {} is lifted.", on.shown()))
        }
    }
}
