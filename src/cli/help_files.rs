//! `proscenium completions` and `proscenium man`: files that shells and `man` read.
//!
//! Both commands generate their output from the definition of the command line, so it always matches the binary.

use super::CliError;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::Write;
use std::path::PathBuf;

/// The arguments of `completions`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct Completions {
    /// The shell that reads the script.
    shell: Shell,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  proscenium completions bash > ~/.local/share/bash-completion/completions/proscenium
  proscenium completions zsh > ~/.zfunc/_proscenium      $fpath must have ~/.zfunc
  proscenium completions fish > ~/.config/fish/completions/proscenium.fish

A new shell completes commands, flags and their values.";

/// The arguments of `man`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManPages {
    /// Write the pages of all commands into this directory instead, one file per command.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const MAN_EXAMPLES: &str = "\
Examples:
  proscenium man | man -l -
  proscenium man --dir ~/.local/share/man/man1           then `man proscenium-serve`";

/// Prints a completion script.
///
/// # Errors
/// [`CliError`] if standard output is closed.
pub fn completions(args: &Completions, mut command: Command) -> Result<(), CliError> {
    // The generator panics if it cannot write, so it does not write to standard output itself.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "proscenium", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}

/// Prints the page of `proscenium`, or writes the pages of all commands.
///
/// # Errors
/// [`CliError`] if the output cannot be written.
pub fn man(args: &ManPages, command: Command) -> Result<(), CliError> {
    // `proscenium help COMMAND` prints what the page of the command says.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(dir) = &args.dir else {
        return Ok(std::io::stdout().write_all(page(&command).1.as_bytes())?);
    };
    let named = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut pages = std::iter::once(&command).chain(named).map(page);
    let written =
        std::fs::create_dir_all(dir).and_then(|()| pages.try_for_each(|(name, text)| std::fs::write(dir.join(name), text)));
    written.map_err(|error| CliError::File { file: dir.clone(), reason: error.to_string() })
}

/// Returns the file name and the text of a command's page.
fn page(command: &Command) -> (String, String) {
    let page = Man::new(command.clone()).source(concat!("proscenium ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text).expect("a vector accepts everything");
    let text = String::from_utf8(text).expect("the page is made of strings");
    // `man` would fill the lines of the examples, and hyphenate them: what a reader copies would not run.
    (page.get_filename(), text.replacen(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n.nf\n", 1))
}
