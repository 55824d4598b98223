//! Server-sent events, read as the HTML standard says (§9.2.6): bytes in, however they were cut; messages out.
//!
//! A message counts once its blank line has come. One that a broken connection left unfinished is forgotten together with
//! its id, so that whoever comes back with [`Parser::last_id`] gets it whole.

use std::time::Duration;

/// The longest line and the largest message, in bytes: a fact at the server's largest bound, with room for its frame.
const MESSAGE_BYTES_MAX: usize = 272 * 1024 * 1024;

/// A stream's reader, over all of its connections.
#[derive(Debug, Default)]
pub struct Parser {
    block: Block,
    last_id: String,
    retry: Option<Duration>,
}

/// What is known of the message that is being read. Every connection begins with an empty one.
#[derive(Debug, Default)]
struct Block {
    line: Vec<u8>,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    has_first_line: bool,
    data: Option<String>,
    id: Option<String>,
}

/// A message is larger than any server of ours sends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message is larger than {MESSAGE_BYTES_MAX} bytes: this is no stream of ours")]
pub struct TooLarge;

impl Parser {
    /// Takes the next bytes of a connection and gives the data of every message that they complete.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn take(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLarge> {
        let mut messages = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' if self.block.after_cr => self.block.after_cr = false,
                b'\n' | b'\r' => {
                    self.block.after_cr = byte == b'\r';
                    messages.extend(self.end_line());
                }
                _ => {
                    self.block.after_cr = false;
                    self.block.line.push(byte);
                    if self.block.line.len() + self.block.data.as_ref().map_or(0, String::len) > MESSAGE_BYTES_MAX {
                        return Err(TooLarge);
                    }
                }
            }
        }
        Ok(messages)
    }

    /// Forgets what a broken connection left unfinished.
    pub fn reconnect(&mut self) {
        self.block = Block::default();
    }

    /// The id of the last whole message that had one; empty before it.
    #[must_use]
    pub fn last_id(&self) -> &str {
        &self.last_id
    }

    /// How long the server asks a reader to wait before it comes back.
    #[must_use]
    pub const fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.block.line);
        let line = String::from_utf8_lossy(&line);
        let line = if self.block.has_first_line { &*line } else { line.strip_prefix('\u{feff}').unwrap_or(&line) };
        self.block.has_first_line = true;
        if line.is_empty() {
            if let Some(id) = self.block.id.take() {
                self.last_id = id;
            }
            return self.block.data.take();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.block.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            "id" if !value.contains('\0') => self.block.id = Some(value.to_owned()),
            "retry" if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            // A comment has an empty name. Event names and unknown fields mean nothing here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a stream whole, byte by byte, and cut in two at every place: it must not matter.
    fn check(stream: &str, messages: &[&str], last_id: &str) {
        let read = |pieces: &[&[u8]]| {
            let mut parser = Parser::default();
            let read: Vec<String> = pieces.iter().flat_map(|piece| parser.take(piece).unwrap()).collect();
            assert_eq!(
                (read.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), parser.last_id()),
                (messages, last_id),
                "{pieces:?}"
            );
        };
        let bytes = stream.as_bytes();
        read(&[bytes]);
        read(&bytes.chunks(1).collect::<Vec<_>>());
        for at in 0..=bytes.len() {
            read(&[&bytes[..at], &bytes[at..]]);
        }
    }

    #[test]
    fn a_message_is_told_at_its_blank_line_whatever_ends_the_lines() {
        for end in ["\n", "\r\n", "\r"] {
            check(&":\nretry: 5\ndata: one\nid: e:1\n\n:\ndata: two\nid: e:2\n\n".replace('\n', end), &["one", "two"], "e:2");
        }
    }

    #[test]
    fn data_of_several_lines_is_joined_and_only_one_space_is_dropped() {
        check("data: a\ndata:b\ndata:  c\ndata\n\n", &["a\nb\n c\n"], "");
        check("data\n\ndata:\n\n", &["", ""], "");
    }

    #[test]
    fn text_survives_being_cut_inside_a_character() {
        check("data: Grüße 走 🎭\n\n", &["Grüße 走 🎭"], "");
    }

    #[test]
    fn a_block_without_data_is_no_message_but_its_id_counts() {
        check("id: 7\n\n: comment\n\nevent: x\n\n", &[], "7");
        check("data: x\nid: 1\n\nid\n\n", &["x"], "");
    }

    #[test]
    fn an_id_with_a_nul_and_unknown_fields_are_ignored() {
        check("id: a\0b\nname: x\nDATA: no\ndata: yes\n\n", &["yes"], "");
    }

    #[test]
    fn a_byte_order_mark_before_the_first_line_is_none_of_it() {
        check("\u{feff}data: x\n\n", &["x"], "");
    }

    #[test]
    fn what_a_broken_connection_left_unfinished_is_forgotten_with_its_id() {
        let mut parser = Parser::default();
        assert_eq!(parser.take(b"data: one\nid: 1\n\ndata: tw\nid: 2\n").unwrap(), ["one"]);
        parser.reconnect();
        assert_eq!(parser.take(b"data: two\nid: 2\n\n").unwrap(), ["two"]);
        assert_eq!(parser.last_id(), "2");
    }

    #[test]
    fn retry_takes_whole_milliseconds_and_keeps_the_last_good_one() {
        let mut parser = Parser::default();
        parser.take(b"retry: 1500\nretry: soon\nretry:\nretry: -1\ndata: x\n\n").unwrap();
        assert_eq!(parser.retry(), Some(Duration::from_millis(1500)));
    }
}
