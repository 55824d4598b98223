//! What the server read lately for the entries of sessions and of runs.
//!
//! A title that the server makes, and a highlight, cost a read of a log. So lists and their readers share what they read.
//! Each piece has the version of then, of its session ([`SessionOverview::version`]) or its run
//! ([`IndexedRun::version`]): after any commit to it the server reads again. What one person marked is not here.
//!
//! [`SessionOverview::version`]: crate::log::sessions::SessionOverview::version
//! [`IndexedRun::version`]: crate::log::run_index::IndexedRun::version

use super::session_entry::{EntryTexts, FoundHighlight};
use crate::log::run_index::RunIndex;
use crate::log::sessions::Sessions;
use crate::model::{Audience, SessionId};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::hash::Hash;
use std::sync::Arc;

/// Bytes of the texts of entries, and of their highlights, that are kept.
pub const ENTRY_TEXTS_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// What one piece takes besides its texts, and about what it takes with them.
const PIECE_BYTES: u64 = 192;
const PIECE_BYTES_USUAL: u64 = 512;

/// The version of a piece that no later commit changes.
pub const FINAL: u64 = u64::MAX;

/// The pieces of entries, by session or run, and audience.
pub struct EntryCache {
    pub texts: Pieces<SessionId, Arc<EntryTexts>>,
    pub highlights: Pieces<SessionId, FoundHighlight>,
    /// The titles that the server makes of runs, by their places in the order of creation.
    pub run_titles: Pieces<u64, Option<Box<str>>>,
    pub run_highlights: Pieces<u64, FoundHighlight>,
}

impl Default for EntryCache {
    fn default() -> Self {
        Self {
            texts: Pieces::new(|session, texts| session.as_str().len() + texts.bytes()),
            highlights: Pieces::new(|session, highlight| session.as_str().len() + highlight_bytes(highlight)),
            run_titles: Pieces::new(|_, title| title.as_ref().map_or(0, |title| title.len())),
            run_highlights: Pieces::new(|_, highlight| highlight_bytes(highlight)),
        }
    }
}

fn highlight_bytes(highlight: &FoundHighlight) -> usize {
    highlight.as_ref().map_or(0, |(_, text)| text.len())
}

impl EntryCache {
    /// Drops the pieces of sessions and runs that have changed or were erased.
    pub fn sweep(&self, sessions: &Sessions, runs: &RunIndex) {
        let is_of_session = |session: &SessionId, version| sessions.version(session) == Some(version);
        self.texts.sweep(is_of_session);
        self.highlights.sweep(is_of_session);
        let is_of_run = |created: &u64, version| {
            runs.with(*created, |run| run.version()).is_some_and(|now| version == now || version == FINAL)
        };
        self.run_titles.sweep(is_of_run);
        self.run_highlights.sweep(is_of_run);
    }
}

/// Pieces of one kind, each with a version of what it is of.
pub struct Pieces<K, T>(Cache<(K, Audience), (u64, T), PieceWeighter<K, T>>);

/// Tells the bytes of a key and a piece.
#[derive(Clone)]
struct PieceWeighter<K, T>(fn(&K, &T) -> usize);

impl<K, T> Weighter<(K, Audience), (u64, T)> for PieceWeighter<K, T> {
    fn weight(&self, (of, _): &(K, Audience), (_, piece): &(u64, T)) -> u64 {
        PIECE_BYTES + (self.0)(of, piece) as u64
    }
}

impl<K: Clone + Eq + Hash, T: Clone> Pieces<K, T> {
    fn new(bytes: fn(&K, &T) -> usize) -> Self {
        let items = usize::try_from(ENTRY_TEXTS_BYTES_MAX / PIECE_BYTES_USUAL).expect("a number of items fits");
        Self(Cache::with_weighter(items, ENTRY_TEXTS_BYTES_MAX, PieceWeighter(bytes)))
    }

    /// What was read at this version, or is final.
    pub fn get(&self, of: &K, audience: Audience, version: u64) -> Option<T> {
        let (known, piece) = self.0.get(&(of.clone(), audience))?;
        (known == version || known == FINAL).then_some(piece)
    }

    /// Keeps what was read after its session or run had this version. Of version 0 it keeps nothing: it is of one reader
    /// alone.
    pub fn keep(&self, of: K, audience: Audience, version: u64, piece: T) {
        if version == 0 {
            return;
        }
        self.0.insert((of, audience), (version, piece));
    }

    fn sweep(&self, is_current: impl Fn(&K, u64) -> bool) {
        self.0.retain(|(of, _), (version, _)| is_current(of, *version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_of_one_version_and_one_audience_and_all_of_them_have_a_limit() {
        let pieces: Pieces<SessionId, Box<str>> = Pieces::new(|_, text| text.len());
        let id = |n: usize| SessionId::new(&format!("s{n}")).unwrap();
        pieces.keep(id(0), Audience::User, 7, "a".into());
        assert_eq!(pieces.get(&id(0), Audience::User, 7).as_deref(), Some("a"));
        assert_eq!((pieces.get(&id(0), Audience::User, 8), pieces.get(&id(0), Audience::Internal, 7)), (None, None));
        pieces.keep(id(0), Audience::User, 8, "b".into());
        assert_eq!(pieces.get(&id(0), Audience::User, 7), None);
        let text = "x".repeat(4096);
        for n in 0..4096 {
            pieces.keep(id(n), Audience::User, 9, text.as_str().into());
        }
        assert!(pieces.0.weight() <= ENTRY_TEXTS_BYTES_MAX && pieces.0.len() > 1000, "{} pieces", pieces.0.len());
        pieces.keep(id(1), Audience::User, FINAL, "c".into());
        assert_eq!(pieces.get(&id(1), Audience::User, 3).as_deref(), Some("c"));
        pieces.sweep(|session, version| *session == id(1) && version == FINAL);
        assert_eq!(pieces.0.len(), 1, "no other session exists");
    }
}
