//! Names of counted streams: what `x-workflow-run-id` says to a client of the AI SDK.
//!
//! The client puts the name into the path with which it resumes by the number of chunks that it has. So the name says
//! all that decides these chunks: the run, and, unless they are the defaults, the client's version, its audience, and
//! the pause after which the stream continues. To clients it is opaque.
//!
//! ```text
//! run-7                                      the run from its start, for version 5 and users
//! run-7~7~user                               for version 7
//! run-7~7~user~5f1c0a88e1b2c3d4:42           after the pause at this cursor
//! ```

use crate::encode::ai_sdk::supported_version;
use crate::model::{Audience, Cursor, RunId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::fmt;

/// The header with the name.
pub const HEADER: &str = "x-workflow-run-id";

/// What a header and a path segment cannot contain as it is, and the character between the parts of a name.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':');

/// The name of a counted stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamName {
    pub run: RunId,
    /// `None`: those that the request states, or the defaults.
    pub form: Option<StreamForm>,
}

/// What decides the chunks of a run's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamForm {
    pub version: u8,
    pub audience: Audience,
    /// The pause after which the stream continues. `None`: it begins with the run.
    pub after: Option<Cursor>,
}

impl StreamName {
    /// Reads a name that states its form. `None`: the text is the id of a chat or a run.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('~');
        let run = percent_decode_str(parts.next()?).decode_utf8().ok()?;
        let (version, audience) = (supported_version(parts.next()?)?, Audience::parse(parts.next()?)?);
        let after = parts.next().map(str::parse).transpose().ok()?;
        let form = Some(StreamForm { version, audience, after });
        Some(Self { run: RunId::new(&run).ok()?, form }).filter(|_| parts.next().is_none())
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        utf8_percent_encode(self.run.as_str(), ENCODED).fmt(f)?;
        let Some(StreamForm { version, audience, after }) = self.form else { return Ok(()) };
        write!(f, "~{version}~{}", audience.as_str())?;
        after.map_or(Ok(()), |after| write!(f, "~{after}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_the_wire() {
        let cursor = "000000000000feed:84".parse().unwrap();
        for run in ["r", "größe ~/% 7", "a~7~user"] {
            for after in [None, Some(cursor)] {
                let form = Some(StreamForm { version: 7, audience: Audience::Dashboard, after });
                let name = StreamName { run: RunId::new(run).unwrap(), form };
                let text = name.to_string();
                assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'), "{text}");
                assert_eq!(StreamName::parse(&text), Some(name), "{text}");
            }
        }
        assert_eq!(StreamName { run: RunId::new("r-1").unwrap(), form: None }.to_string(), "r-1");
    }

    #[test]
    fn other_texts_are_ids() {
        for text in
            ["r", "a~b", "r~7", "r~x~user", "r~4~user", "r~7~all", "r~7~user~now", "r~7~user~000000000000feed:84~", "~7~user"]
        {
            assert_eq!(StreamName::parse(text), None, "{text}");
        }
    }
}
