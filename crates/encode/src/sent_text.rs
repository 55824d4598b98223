//! Texts that a reader has, of which a dialect keeps the length and a hash: enough to know whether another text starts
//! with one, however it was cut into chunks.

/// The length of a sent text, and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentText {
    /// The length in bytes.
    len: usize,
    /// FNV-1a.
    hash: u64,
}

impl Default for SentText {
    fn default() -> Self {
        Self { len: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }
}

impl SentText {
    pub fn of(text: &str) -> Self {
        let mut digest = Self::default();
        digest.push(text);
        digest
    }

    pub fn push(&mut self, text: &str) {
        self.len += text.len();
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The remainder of a text after the sent part; `None` if the text does not start with the sent part.
    pub fn rest<'t>(&self, whole: &'t str) -> Option<&'t str> {
        let (sent, rest) = whole.split_at_checked(self.len)?;
        (Self::of(sent) == *self).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_that_starts_with_the_sent_text_has_a_rest() {
        let mut digest = SentText::of("Zug");
        digest.push(" nach ");
        assert_eq!(digest, SentText::of("Zug nach "));
        assert_eq!(digest.rest("Zug nach Köln"), Some("Köln"));
        assert_eq!(digest.rest("Zug nach "), Some(""));
        assert_eq!(digest.rest("Zug"), None);
        assert_eq!(digest.rest("Bus nach Köln"), None);
        assert_eq!(SentText::of("K\u{f6}").rest("Ko\u{308}ln"), None, "cut within a character");
        assert_eq!(SentText::default().rest("all"), Some("all"));
    }
}
