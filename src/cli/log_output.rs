//! Where log lines go: standard error.
//!
//! A full disk or a closed pipe costs lines, not the server: tracing would print such an error to standard error as well,
//! which panics.

use proscenium::meter::Counter;
use std::io::{self, Write};
use std::sync::Arc;

/// Standard error, as a writer that never fails. It counts the lines that were lost.
#[derive(Clone, Default)]
pub struct LogOutput {
    pub lost_lines: Arc<Counter>,
}

impl Write for LogOutput {
    /// Writes a line: the subscriber passes each one whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if io::stderr().write_all(line).is_err() {
            self.lost_lines.add(1);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
