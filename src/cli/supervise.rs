//! `proscenium supervise`: runs an agent's program for the server. No user calls it.

use proscenium::connect::supervisor;
use std::ffi::OsString;
use std::process::ExitCode;

/// The arguments of `supervise`.
#[derive(Debug, Clone, clap::Args)]
pub struct Supervise {
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Runs the program, and ends everything that it started once it ends or standard input does.
pub fn run(args: &Supervise) -> ExitCode {
    supervisor::run(&args.words)
}
