//! Where a text may be cut so that its parts, tokenized one after the other, give the same ids as
//! the whole. A model takes a limited number of tokens, and text far beyond them need not be read.
//!
//! For pipelines of which neither kind of cut can be shown to be safe (regular expressions of their
//! own, normalizers with a memory) there are none.

use crate::long_word::Shortened;
use crate::space_cut::SpaceCuts;
use crate::word_cut::WordCuts;
use tokenizers::Tokenizer;

pub enum Cuts {
    Words(WordCuts),
    Spaces(SpaceCuts),
}

impl Cuts {
    /// None if no place can be shown to be safe.
    pub fn of(tokenizer: &Tokenizer) -> Option<Cuts> {
        WordCuts::of(tokenizer)
            .map(Cuts::Words)
            .or_else(|| SpaceCuts::of(tokenizer).map(Cuts::Spaces))
    }

    /// The length of the first part of `text`: the first cut that is not before `size` bytes, else
    /// all of it.
    pub fn first_part(&self, text: &str, size: usize) -> usize {
        if text.len() <= size {
            return text.len();
        }
        let mut from = size.max(1);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        match self {
            Cuts::Words(words) => words.next(text, from),
            Cuts::Spaces(spaces) => spaces.next(text, from),
        }
        .unwrap_or(text.len())
    }

    /// What is left of `text` without what no part needs at its start.
    pub fn skip<'a>(&self, text: &'a str) -> &'a str {
        match self {
            Cuts::Words(words) => words.skip_whitespace(text),
            Cuts::Spaces(_) => text,
        }
    }

    /// A text with the same tokens as `part`, perhaps a shorter one.
    pub fn shorten<'a>(&self, part: &'a str) -> Shortened<'a> {
        match self {
            Cuts::Words(words) => words.shorten(part),
            Cuts::Spaces(_) => Shortened::whole(part),
        }
    }
}
