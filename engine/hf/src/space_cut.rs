//! Cuts (cut.rs) before single spaces, in pipelines that keep a space with the word behind it:
//! byte-level and Metaspace.
//!
//! A cut is made before a space that has two plain characters before it and one behind, and the
//! part behind begins with the space. A plain character is a letter or digit that forms no grapheme
//! with the one before it. What this cannot change:
//!
//! - Words. GPT-2's expression matches nothing that has a space behind a letter or digit, and looks
//!   back at nothing; Metaspace begins a word at each space, and puts none before a part that has
//!   one already.
//! - What a normalizer makes of either side. Those that map character by character, or decompose
//!   and compose, do not look across a space. Sentencepiece's maps graphemes: the space is one, and
//!   so is the plain character before it, which must not end in whitespace when it is mapped. So
//!   spaces that are put together afterwards are on one side.
//! - Added tokens. None holds whitespace, so none crosses the cut; none takes the whitespace behind
//!   it. One that takes that before it finds it in its own part.

use crate::word_cut::{is_local, normalize};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

pub struct SpaceCuts;

/// Of alphabets that are written with spaces. None of these extends a grapheme, or is extended by
/// the next of them.
fn is_plain(c: char) -> bool {
    match c {
        '0'..='9' | 'A'..='Z' | 'a'..='z' => true,
        '\u{c0}'..='\u{24f}' | '\u{388}'..='\u{3ff}' | '\u{400}'..='\u{481}' => c.is_alphabetic(),
        '\u{48a}'..='\u{52f}' | '\u{ac00}'..='\u{d7a3}' => true,
        _ => false,
    }
}

fn is_safe(normalizer: &NormalizerWrapper) -> bool {
    match normalizer {
        NormalizerWrapper::Precompiled(_) => true,
        NormalizerWrapper::Replace(_) => joins_spaces(normalizer),
        NormalizerWrapper::Sequence(sequence) => sequence.as_ref().iter().all(is_safe),
        _ => is_local(normalizer),
    }
}

/// Whether it makes one space of several, as sentencepiece does.
fn joins_spaces(normalizer: &NormalizerWrapper) -> bool {
    let joining = serde_json::json!(
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "});
    serde_json::to_value(normalizer).is_ok_and(|value| value == joining)
}

fn keeps_spaces(words: &PreTokenizerWrapper) -> bool {
    use PreTokenizerWrapper::*;
    match words {
        ByteLevel(bytes) => bytes.use_regex,
        Metaspace(metaspace) => metaspace.split,
        Sequence(sequence) => match sequence.as_ref() {
            [one] => keeps_spaces(one),
            [WhitespaceSplit(_), Metaspace(_)] => true,
            _ => false,
        },
        _ => false,
    }
}

impl SpaceCuts {
    /// None if spaces cannot be shown to be safe.
    pub fn of(tokenizer: &Tokenizer) -> Option<SpaceCuts> {
        let normalizer = tokenizer.get_normalizer();
        if !keeps_spaces(tokenizer.get_pre_tokenizer()?) || !normalizer.map_or(true, is_safe) {
            return None;
        }
        if normalize(" ", normalizer)? != " " {
            return None;
        }
        for c in ('\0'..='\u{d7a3}').filter(|&c| is_plain(c)) {
            let mapped = normalize(c.encode_utf8(&mut [0; 4]), normalizer)?;
            if mapped.ends_with(char::is_whitespace) {
                return None;
            }
        }
        let added = tokenizer.get_added_tokens_decoder();
        if added.len() != tokenizer.get_added_vocabulary().len() {
            return None; // two of one id: one of them is not listed
        }
        for token in added.values() {
            let normalized = normalize(&token.content, normalizer)?;
            if token.rstrip || normalized.is_empty() {
                return None;
            }
            if (token.content.chars().chain(normalized.chars())).any(char::is_whitespace) {
                return None;
            }
        }
        Some(SpaceCuts)
    }

    /// The first cut of `text` that is not before `from`, a boundary of characters.
    pub fn next(&self, text: &str, from: usize) -> Option<usize> {
        let plain = |c: Option<char>| c.is_some_and(is_plain);
        let is_cut = |&at: &usize| {
            let mut before = text[..at].chars().rev();
            plain(text[at + 1..].chars().next()) && plain(before.next()) && plain(before.next())
        };
        let mut spaces = text[from..].match_indices(' ').map(|(at, _)| from + at);
        spaces.find(is_cut)
    }
}
