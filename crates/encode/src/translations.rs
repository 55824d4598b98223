//! Translations that readers share.
//!
//! ```text
//!   reader ─▶ its translator ─┬─ is known here (the same one, or an equal one) ─▶ its text, and the next translator
//!                             └─ is new ─▶ a copy translates ─▶ known here from now on
//! ```
//!
//! A translation is a function of a translator and frames. So a reader may take the text that another one got from an
//! equal translator, and the translator that follows. From then on both have the same translator, and find each other's
//! translations without a comparison. No rule says which readers may share.

use super::Flow;
use super::chunk::{Chunk, ChunkBuffer};
use super::frames::DecodedFrame;
use super::placeholders::Placeholders;
use super::translator::Translator;
use std::ops::Range;
use std::sync::Arc;

/// The most translations of the newest frames of one view that its readers share.
pub const SHARED_TRANSLATIONS_MAX: usize = 8;

/// The text that frames became, and how the stream continues after it.
#[derive(Debug, Clone)]
pub struct Translated {
    /// The text, ready to send.
    pub chunk: Chunk,
    /// What the dialect wants next.
    pub flow: Flow,
    /// Whether this reader made it, and did not get it from another one.
    pub is_own: bool,
}

/// The translator of a reader, which it may have in common with others.
#[derive(Debug, Clone)]
pub struct ReaderTranslator {
    translator: Arc<Translator>,
    /// The translations in a row that this reader made itself.
    own_in_row: u32,
}

impl ReaderTranslator {
    /// The translator of a new reader.
    #[must_use]
    pub fn new(translator: Translator) -> Self {
        Self { translator: Arc::new(translator), own_in_row: 0 }
    }

    /// The translator.
    #[must_use]
    pub fn get(&self) -> &Translator {
        &self.translator
    }

    /// The translator, to be changed for this reader alone.
    pub fn own(&mut self) -> &mut Translator {
        self.own_in_row = 0;
        Arc::make_mut(&mut self.translator)
    }

    /// Translates for this reader alone.
    pub(super) fn translate(&mut self, frames: &[DecodedFrame], placeholders: &Placeholders) -> Translated {
        let mut out = ChunkBuffer::new(TEXT_BYTES);
        let flow = Arc::make_mut(&mut self.translator).translate(frames, placeholders, &mut out.text);
        self.own_in_row = self.own_in_row.saturating_add(1);
        Translated { chunk: out.finish(Some(placeholders)), flow, is_own: true }
    }

    /// Whether it is compared with the translators of others: a new one, and from time to time one that is alone.
    const fn is_compared(&self) -> bool {
        (self.own_in_row.saturating_add(1)).is_power_of_two()
    }
}

/// The room for the text of a few events.
const TEXT_BYTES: usize = 512;

/// One translation that readers share.
#[derive(Debug)]
struct Translation {
    /// The frames, by their places in the block.
    of: Range<usize>,
    from: Arc<Translator>,
    to: Arc<Translator>,
    chunk: Chunk,
    flow: Flow,
    /// Whether a reader that is not compared itself is compared with `from`.
    is_compared: bool,
}

/// The translations of a block.
#[derive(Debug, Default)]
pub(super) struct Translations(Vec<Translation>);

impl Translations {
    /// The translation of these frames that another reader has made; advances the reader.
    pub fn find(&mut self, reader: &mut ReaderTranslator, of: &Range<usize>) -> Option<Translated> {
        let from = reader.translator.clone();
        let of_these = || self.0.iter().filter(|known| known.of == *of);
        let same = of_these().find(|known| Arc::ptr_eq(&known.from, &from));
        let is_compared = reader.is_compared();
        let equal = || of_these().find(|known| (is_compared || known.is_compared) && *known.from == *from);
        let (known, is_same) = (same.or_else(equal)?, same.is_some());
        let translated = Translated { chunk: known.chunk.clone(), flow: known.flow, is_own: false };
        let to = known.to.clone();
        *reader = ReaderTranslator { translator: to.clone(), own_in_row: 0 };
        // Other readers with this translator need no comparison.
        if !is_same && Arc::strong_count(&from) > 1 {
            let (chunk, flow) = (translated.chunk.clone(), translated.flow);
            self.add(Translation { of: of.clone(), from, to, chunk, flow, is_compared: false });
        }
        Some(translated)
    }

    /// Translates frames for a reader, and for those with an equal translator, of which none has done so.
    pub fn translate(
        &mut self,
        reader: &mut ReaderTranslator,
        of: &Range<usize>,
        frames: &[DecodedFrame],
        placeholders: &Placeholders,
    ) -> Translated {
        let (is_compared, from) = (reader.is_compared(), reader.translator.clone());
        let translated = reader.translate(&frames[of.clone()], placeholders);
        let (to, chunk, flow) = (reader.translator.clone(), translated.chunk.clone(), translated.flow);
        self.add(Translation { of: of.clone(), from, to, chunk, flow, is_compared });
        translated
    }

    fn add(&mut self, translation: Translation) {
        if self.0.len() < SHARED_TRANSLATIONS_MAX {
            self.0.push(translation);
        }
    }
}
