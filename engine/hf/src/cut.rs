//! Where a text may be cut so that its parts, tokenized one after the other, give the same ids as
//! the whole. A model takes a limited number of tokens, and text far beyond them need not be read.
//!
//! A cut is made before a character that starts a word whatever precedes it, in pipelines for which
//! this can be shown:
//!
//! - The pre-tokenizer drops whitespace (and BertPreTokenizer makes a word of each punctuation
//!   character), so no word crosses the cut, and models see one word at a time.
//! - The normalizer maps character by character, or decomposes and composes as Unicode does. That
//!   looks across characters only as far as the next starter, with which nothing before it
//!   combines: each character that is cut at is one.
//! - No added token holds the character, so none crosses the cut. One that must stand alone as a
//!   word looks at its neighbours: then the cut is at whitespace, which is the end of a word as the
//!   end of a text is.
//!
//! For all other pipelines (byte-level, Metaspace, regular expressions) there are no cuts.

use crate::long_word::LongWords;
use std::borrow::Cow;
use tokenizers::{
    AddedToken, NormalizedString, Normalizer, NormalizerWrapper, PreTokenizerWrapper, Tokenizer,
};

pub struct Cuts {
    ascii: [bool; 128],
    chinese: bool, // BertNormalizer surrounds each of these with spaces
    long_words: Option<LongWords>,
}

const WHITESPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Punctuation that composes with no mark after it: with a stroke, these three become symbols, of
/// which BertPreTokenizer makes no words.
fn is_lasting_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() && !matches!(c, '<' | '=' | '>')
}

/// The characters that BertNormalizer takes for Chinese, limited to ranges whose both ends are
/// safe.
fn is_chinese(c: char) -> bool {
    matches!(c as u32, 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0x20000..=0x2A6DF)
}

fn is_local(normalizer: &NormalizerWrapper) -> bool {
    use NormalizerWrapper::*;
    match normalizer {
        BertNormalizer(_) | Lowercase(_) | StripAccents(_) => true,
        NFC(_) | NFD(_) | NFKC(_) | NFKD(_) => true,
        Sequence(sequence) => sequence.as_ref().iter().all(is_local),
        _ => false,
    }
}

fn normalize(text: &str, normalizer: Option<&NormalizerWrapper>) -> Option<String> {
    let mut normalized = NormalizedString::from(text);
    if let Some(normalizer) = normalizer {
        normalizer.normalize(&mut normalized).ok()?;
    }
    Some(normalized.get().to_owned())
}

impl Cuts {
    /// None if no place can be shown to be safe.
    pub fn of(tokenizer: &Tokenizer) -> Option<Cuts> {
        let normalizer = tokenizer.get_normalizer();
        if !normalizer.map_or(true, is_local) {
            return None;
        }
        let bert_words = match tokenizer.get_pre_tokenizer()? {
            PreTokenizerWrapper::BertPreTokenizer(_) => true,
            PreTokenizerWrapper::Whitespace(_) | PreTokenizerWrapper::WhitespaceSplit(_) => false,
            _ => return None,
        };
        let mut cuts = Cuts {
            ascii: [false; 128],
            chinese: matches!(normalizer, Some(NormalizerWrapper::BertNormalizer(bert))
                              if bert.handle_chinese_chars),
            long_words: None,
        };
        for code in 0..128u8 {
            let c = code as char;
            cuts.ascii[code as usize] =
                WHITESPACE.contains(&c) || (bert_words && is_lasting_punctuation(c));
        }
        let added = tokenizer.get_added_tokens_decoder();
        if added.len() != tokenizer.get_added_vocabulary().len() {
            return None; // two of one id: one of them is not listed
        }
        let mut contents = Vec::new();
        for token in added.values() {
            let normalized = normalize(&token.content, normalizer)?;
            cuts.spare(token, &normalized)?;
            contents.push(token.content.clone());
            contents.push(normalized);
        }
        cuts.long_words = LongWords::of(tokenizer, contents.iter().map(String::as_str));
        Some(cuts)
    }

    /// Drops the places where a cut could split `token` or hide its neighbours from it.
    fn spare(&mut self, token: &AddedToken, normalized: &str) -> Option<()> {
        // An empty pattern would match at every cut.
        if normalized.is_empty() {
            return None;
        }
        for c in token.content.chars().chain(normalized.chars()) {
            if c.is_whitespace() {
                return None;
            }
            if c.is_ascii() {
                self.ascii[c as usize] = false;
            } else {
                self.chinese = false;
            }
        }
        if token.single_word {
            self.chinese = false;
            for code in 0..128u8 {
                self.ascii[code as usize] &= WHITESPACE.contains(&(code as char));
            }
        }
        Some(())
    }

    fn is_cut(&self, c: char) -> bool {
        if c.is_ascii() {
            self.ascii[c as usize]
        } else {
            self.chinese && is_chinese(c)
        }
    }

    /// The length of the first part of `text`: the first cut that is not before `size` bytes, else
    /// all of it.
    pub fn first_part(&self, text: &str, size: usize) -> usize {
        let mut from = size.max(1);
        while from < text.len() && !text.is_char_boundary(from) {
            from += 1;
        }
        text.get(from..)
            .and_then(|rest| rest.char_indices().find(|&(_, c)| self.is_cut(c)))
            .map_or(text.len(), |(at, _)| from + at)
    }

    /// What is left of `text` without the whitespace at its start, which no part needs.
    pub fn skip_whitespace<'a>(&self, text: &'a str) -> &'a str {
        text.trim_start_matches(WHITESPACE)
    }
    /// A text with the same tokens as `part`, perhaps a shorter one.
    pub fn shorten<'a>(&self, part: &'a str) -> Cow<'a, str> {
        match &self.long_words {
            Some(long_words) => long_words.shorten(part),
            None => Cow::Borrowed(part),
        }
    }
}
