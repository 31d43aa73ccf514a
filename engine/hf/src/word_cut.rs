//! Cuts (cut.rs) between words, in pipelines that drop the whitespace between them.
//!
//! A cut is made before a character that starts a word whatever precedes it, in pipelines for which
//! this can be shown:
//!
//! - The pre-tokenizer drops whitespace (and BertPreTokenizer makes a word of each punctuation
//!   character), so no word crosses the cut, and models see one word at a time.
//! - The normalizer maps character by character, or decomposes and composes as Unicode does. That
//!   looks across characters only as far as the next starter, with which nothing before it
//!   combines: each character that is cut at is one.
//! - No added token holds the character or what it becomes, so none crosses the cut. One that must
//!   stand alone as a word looks at its neighbours: then the cut is at whitespace, which is the end
//!   of a word as the end of a text is.

use crate::characters::{Characters, Rules, Words};
use crate::long_word::{LongWords, Shortened};
use tokenizers::{
    AddedToken, NormalizedString, Normalizer, NormalizerWrapper, PreTokenizerWrapper, Tokenizer,
};

pub struct WordCuts {
    characters: &'static Characters,
    ascii: [bool; 128],
    others: bool, // all that characters.rs knows to start words
    long_words: Option<LongWords>,
}

const WHITESPACE: [char; 4] = [' ', '\t', '\n', '\r'];

pub fn is_local(normalizer: &NormalizerWrapper) -> bool {
    use NormalizerWrapper::*;
    match normalizer {
        BertNormalizer(_) | Lowercase(_) | StripAccents(_) => true,
        NFC(_) | NFD(_) | NFKC(_) | NFKD(_) => true,
        Sequence(sequence) => sequence.as_ref().iter().all(is_local),
        _ => false,
    }
}

/// What the normalizer adds to the rules of `words`.
fn rules(words: Words, normalizer: Option<&NormalizerWrapper>) -> Rules {
    let mut rules = Rules {
        words,
        chinese: false,
        compatible: false,
        composes: false,
    };
    if let Some(normalizer) = normalizer {
        add_rules(normalizer, &mut rules);
    }
    rules
}

fn add_rules(normalizer: &NormalizerWrapper, rules: &mut Rules) {
    use NormalizerWrapper::*;
    match normalizer {
        BertNormalizer(bert) => rules.chinese |= bert.handle_chinese_chars,
        NFC(_) => rules.composes = true,
        NFKC(_) => (rules.composes, rules.compatible) = (true, true),
        NFKD(_) => rules.compatible = true,
        Sequence(sequence) => {
            for normalizer in sequence.as_ref() {
                add_rules(normalizer, rules);
            }
        }
        _ => {}
    }
}

pub fn normalize(text: &str, normalizer: Option<&NormalizerWrapper>) -> Option<String> {
    let mut normalized = NormalizedString::from(text);
    if let Some(normalizer) = normalizer {
        normalizer.normalize(&mut normalized).ok()?;
    }
    Some(normalized.get().to_owned())
}

impl WordCuts {
    /// None if no place can be shown to be safe.
    pub fn of(tokenizer: &Tokenizer) -> Option<WordCuts> {
        let normalizer = tokenizer.get_normalizer();
        if !normalizer.map_or(true, is_local) {
            return None;
        }
        let words = match tokenizer.get_pre_tokenizer()? {
            PreTokenizerWrapper::BertPreTokenizer(_) => Words::Bert,
            PreTokenizerWrapper::Whitespace(_) => Words::OfLetters,
            PreTokenizerWrapper::WhitespaceSplit(_) => Words::Spaced,
            _ => return None,
        };
        let characters = Characters::of(rules(words, normalizer));
        let mut cuts = WordCuts {
            characters,
            ascii: std::array::from_fn(|code| characters.is_start(code as u8 as char)),
            others: true,
            long_words: None,
        };
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
        cuts.long_words = LongWords::of(tokenizer, characters, contents.iter().map(String::as_str));
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
                self.others = false;
            }
        }
        if token.single_word {
            self.others = false;
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
            self.others && self.characters.is_start(c)
        }
    }

    /// The first cut of `text` that is not before `from`, a boundary of characters.
    pub fn next(&self, text: &str, from: usize) -> Option<usize> {
        let mut rest = text[from..].char_indices();
        rest.find(|&(_, c)| self.is_cut(c)).map(|(at, _)| from + at)
    }

    /// What is left of `text` without the whitespace at its start, which no part needs.
    pub fn skip_whitespace<'a>(&self, text: &'a str) -> &'a str {
        text.trim_start_matches(WHITESPACE)
    }

    /// A text with the same tokens as `part`, perhaps a shorter one.
    pub fn shorten<'a>(&self, part: &'a str) -> Shortened<'a> {
        match &self.long_words {
            Some(long_words) => long_words.shorten(part),
            None => Shortened::whole(part),
        }
    }
}
