//! A parser for server-sent events (HTML standard §9.2.6).
//!
//! It accepts the bytes in pieces of any size.
//!
//! A message is complete at its blank line. If the connection breaks before, the parser drops the partial message with
//! its id. A client that reconnects with [`SseParser::last_id`] then receives the whole message.

use std::time::Duration;

/// A complete message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseMessage {
    /// The name of the event; empty if it has none.
    pub event: String,
    pub data: String,
    /// Its own id, if it has one.
    pub id: Option<String>,
}

/// Parses one stream over all of its connections.
#[derive(Debug)]
pub struct SseParser {
    partial: PartialMessage,
    /// The most bytes of a message.
    bytes_max: usize,
    last_id: String,
    retry: Option<Duration>,
}

/// The message under construction. Every connection begins with an empty one.
#[derive(Debug, Default)]
struct PartialMessage {
    line: Vec<u8>,
    /// The last byte was a CR; a following LF belongs to the same line end.
    after_cr: bool,
    has_first_line: bool,
    event: String,
    data: Option<String>,
    id: Option<String>,
}

/// A message is larger than the parser's limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of the stream is larger than {limit} bytes, the limit")]
pub struct MessageTooLarge {
    pub limit: usize,
}

impl SseParser {
    /// A parser of messages of up to `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { partial: PartialMessage::default(), bytes_max, last_id: String::new(), retry: None }
    }

    /// Reads the next bytes of a connection and returns every message that they complete.
    ///
    /// # Errors
    /// [`MessageTooLarge`] for a message above the size limit.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseMessage>, MessageTooLarge> {
        let mut messages = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' if self.partial.after_cr => self.partial.after_cr = false,
                b'\n' | b'\r' => {
                    self.partial.after_cr = byte == b'\r';
                    messages.extend(self.end_line());
                }
                _ => {
                    self.partial.after_cr = false;
                    self.partial.line.push(byte);
                    if self.partial.line.len() + self.partial.data.as_ref().map_or(0, String::len) > self.bytes_max {
                        return Err(MessageTooLarge { limit: self.bytes_max });
                    }
                }
            }
        }
        Ok(messages)
    }

    /// Drops the partial message of a broken connection.
    pub fn reconnect(&mut self) {
        self.partial = PartialMessage::default();
    }

    /// Returns the id of the last complete message that had one; empty if none had.
    #[must_use]
    pub fn last_id(&self) -> &str {
        &self.last_id
    }

    /// Returns the delay that the server requests before a client reconnects.
    #[must_use]
    pub const fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn end_line(&mut self) -> Option<SseMessage> {
        let line = std::mem::take(&mut self.partial.line);
        let line = String::from_utf8_lossy(&line);
        let line = if self.partial.has_first_line { &*line } else { line.strip_prefix('\u{feff}').unwrap_or(&line) };
        self.partial.has_first_line = true;
        if line.is_empty() {
            let id = self.partial.id.take();
            if let Some(id) = &id {
                self.last_id.clone_from(id);
            }
            let event = std::mem::take(&mut self.partial.event);
            return self.partial.data.take().map(|data| SseMessage { event, data, id });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.partial.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            "event" => value.clone_into(&mut self.partial.event),
            "id" if !value.contains('\0') => self.partial.id = Some(value.to_owned()),
            "retry" if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            // The parser ignores comments, which have an empty name, and unknown fields.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_of(parser: &mut SseParser, bytes: &[u8]) -> Vec<String> {
        parser.push(bytes).unwrap().into_iter().map(|message| message.data).collect()
    }

    /// Asserts the result of a stream in one piece, byte by byte, and split in two at every position.
    fn check(stream: &str, messages: &[&str], last_id: &str) {
        let read = |pieces: &[&[u8]]| {
            let mut parser = SseParser::new(1024);
            let read: Vec<String> = pieces.iter().flat_map(|piece| data_of(&mut parser, piece)).collect();
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
    fn a_blank_line_completes_a_message_with_any_line_end() {
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
    fn text_may_be_split_inside_a_character() {
        check("data: Grüße 走 🎭\n\n", &["Grüße 走 🎭"], "");
    }

    #[test]
    fn a_block_without_data_is_not_a_message_but_sets_the_id() {
        check("id: 7\n\n: comment\n\nevent: x\n\n", &[], "7");
        check("data: x\nid: 1\n\nid\n\n", &["x"], "");
    }

    #[test]
    fn an_id_with_a_nul_and_unknown_fields_are_ignored() {
        check("id: a\0b\nname: x\nDATA: no\ndata: yes\n\n", &["yes"], "");
    }

    #[test]
    fn a_byte_order_mark_before_the_first_line_is_skipped() {
        check("\u{feff}data: x\n\n", &["x"], "");
    }

    #[test]
    fn reconnecting_drops_a_partial_message_with_its_id() {
        let mut parser = SseParser::new(1024);
        assert_eq!(data_of(&mut parser, b"data: one\nid: 1\n\ndata: tw\nid: 2\n"), ["one"]);
        parser.reconnect();
        assert_eq!(data_of(&mut parser, b"data: two\nid: 2\n\n"), ["two"]);
        assert_eq!(parser.last_id(), "2");
    }

    #[test]
    fn a_message_has_the_name_of_its_event_and_the_next_one_does_not() {
        let mut parser = SseParser::new(1024);
        let read = parser.push(b"event: end\ndata: x\n\ndata: y\n\n").unwrap();
        assert_eq!(read.iter().map(|message| (&*message.event, &*message.data)).collect::<Vec<_>>(), [("end", "x"), ("", "y")]);
    }

    #[test]
    fn a_message_larger_than_the_limit_is_refused_before_it_is_complete() {
        let mut parser = SseParser::new(8);
        assert_eq!(parser.push(b"data: 12345678").unwrap_err(), MessageTooLarge { limit: 8 });
    }

    #[test]
    fn retry_accepts_whole_milliseconds_and_keeps_the_last_valid_value() {
        let mut parser = SseParser::new(1024);
        parser.push(b"retry: 1500\nretry: soon\nretry:\nretry: -1\ndata: x\n\n").unwrap();
        assert_eq!(parser.retry(), Some(Duration::from_millis(1500)));
    }
}
