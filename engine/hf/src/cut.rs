//! Where a text may be cut so that its parts, tokenized one after the other, give the same ids as
//! the whole. A model takes a limited number of tokens, and text far beyond them need not be read.
//!
//! Pipelines that drop the whitespace between words are cut before whitespace, and before Chinese
//! characters where each becomes a word. Pipelines that keep a space with the word after it
//! (byte-level and Metaspace) are cut before a space that follows two plain characters and precedes
//! one. A plain character is a letter or digit that forms no grapheme with the one before it. A cut
//! changes none of these:
//!
//! - Words, which are what models see. No word crosses whitespace that is dropped, or a Chinese
//!   character that the normalizer surrounds with spaces. GPT-2's expression matches nothing that
//!   has a space after a letter or digit, and does not look back. Metaspace begins a word at
//!   each space, and puts none before a part that has one already.
//! - The normalized text of either side. Normalizers that map character by character, or decompose
//!   and compose, do not look across a cut: nothing before it combines with it. Sentencepiece's maps
//!   graphemes: the space is one, and so is the plain character before it, whose image must not end
//!   in whitespace. So spaces that are joined afterwards are on one side.
//! - Added tokens. None contains the character at a cut, as it is or normalized, so none crosses a
//!   cut. A token that must stand alone as a word looks at its neighbours: whitespace ends a word as
//!   the end of a text does. Where spaces are kept, no token takes those after it. A token that
//!   takes those before it finds them in its own part.
//!
//! Other pipelines (regular expressions of their own, normalizers with a memory) are not cut.

use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

pub struct Cuts {
    keeps_spaces: bool,
    chinese: bool, // before Chinese characters too
}

const WHITESPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Whether a character is Chinese and unchanged by every Unicode normalization form.
fn is_chinese(c: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&c)
}

/// Whether a character is a letter or digit of a script that is written with spaces. None of these
/// extends a grapheme, or is extended by another.
fn is_plain(c: char) -> bool {
    match c {
        '0'..='9' | 'A'..='Z' | 'a'..='z' => true,
        '\u{c0}'..='\u{24f}' | '\u{388}'..='\u{3ff}' | '\u{400}'..='\u{481}' => c.is_alphabetic(),
        '\u{48a}'..='\u{52f}' | '\u{ac00}'..='\u{d7a3}' => true,
        _ => false,
    }
}

/// Whether `is` holds for each step of a normalizer.
fn all_steps(normalizer: &NormalizerWrapper, is: fn(&NormalizerWrapper) -> bool) -> bool {
    match normalizer {
        NormalizerWrapper::Sequence(steps) => steps.as_ref().iter().all(|one| all_steps(one, is)),
        one => is(one),
    }
}

fn is_local(normalizer: &NormalizerWrapper) -> bool {
    use NormalizerWrapper::*;
    matches!(
        normalizer,
        BertNormalizer(_) | Lowercase(_) | StripAccents(_) | NFC(_) | NFD(_) | NFKC(_) | NFKD(_)
    )
}

fn is_safe_at_spaces(normalizer: &NormalizerWrapper) -> bool {
    matches!(normalizer, NormalizerWrapper::Precompiled(_))
        || joins_spaces(normalizer)
        || is_local(normalizer)
}

/// Whether it joins several spaces to one, as sentencepiece does.
fn joins_spaces(normalizer: &NormalizerWrapper) -> bool {
    let joining = serde_json::json!(
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "});
    serde_json::to_value(normalizer).is_ok_and(|value| value == joining)
}

fn surrounds_chinese(normalizer: &NormalizerWrapper) -> bool {
    matches!(normalizer, NormalizerWrapper::BertNormalizer(bert) if bert.handle_chinese_chars)
}

/// Whether spaces stay in words; None: unknown.
fn keeps_spaces(words: &PreTokenizerWrapper) -> Option<bool> {
    use PreTokenizerWrapper::*;
    match words {
        BertPreTokenizer(_) | Whitespace(_) | WhitespaceSplit(_) => Some(false),
        ByteLevel(bytes) => bytes.use_regex.then_some(true),
        Metaspace(metaspace) => metaspace.split.then_some(true),
        Sequence(sequence) => match sequence.as_ref() {
            [one] => keeps_spaces(one),
            [WhitespaceSplit(_), Metaspace(_)] => Some(true),
            _ => None,
        },
        _ => None,
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
    /// None if no cut can be shown to be safe.
    pub fn of(tokenizer: &Tokenizer) -> Option<Cuts> {
        let normalizer = tokenizer.get_normalizer();
        let words = tokenizer.get_pre_tokenizer()?;
        let keeps_spaces = keeps_spaces(words)?;
        let safe = if keeps_spaces {
            is_safe_at_spaces
        } else {
            is_local
        };
        if !normalizer.map_or(true, |normalizer| all_steps(normalizer, safe)) {
            return None;
        }
        if keeps_spaces {
            if normalize(" ", normalizer)? != " " {
                return None;
            }
            for c in ('\0'..='\u{d7a3}').filter(|&c| is_plain(c)) {
                let mapped = normalize(c.encode_utf8(&mut [0; 4]), normalizer)?;
                if mapped.ends_with(char::is_whitespace) {
                    return None;
                }
            }
        }
        let surrounds = |normalizer| !all_steps(normalizer, |step| !surrounds_chinese(step));
        let mut chinese = !keeps_spaces && normalizer.is_some_and(surrounds);
        let added = tokenizer.get_added_tokens_decoder();
        if added.len() != tokenizer.get_added_vocabulary().len() {
            return None; // two tokens share an id, and one of them is not listed
        }
        for token in added.values() {
            let normalized = normalize(&token.content, normalizer)?;
            // An empty pattern would match at every cut.
            if normalized.is_empty() || keeps_spaces && token.rstrip {
                return None;
            }
            if (token.content.chars().chain(normalized.chars())).any(char::is_whitespace) {
                return None;
            }
            chinese &= !token.single_word;
        }
        Some(Cuts {
            keeps_spaces,
            chinese,
        })
    }

    /// The length of the first part of `text`: up to the first cut at or after `size` bytes, else all
    /// of it.
    pub fn first_part(&self, text: &str, size: usize) -> usize {
        let mut from = size.max(1).min(text.len());
        while !text.is_char_boundary(from) {
            from += 1;
        }
        let mut rest = text[from..].char_indices();
        rest.find(|&(at, c)| self.is_cut(text, from + at, c))
            .map_or(text.len(), |(at, _)| from + at)
    }

    /// Whether the text may be cut before `c`, which is at this byte.
    fn is_cut(&self, text: &str, at: usize, c: char) -> bool {
        if !self.keeps_spaces {
            return WHITESPACE.contains(&c) || self.chinese && is_chinese(c);
        }
        let plain = |c: Option<char>| c.is_some_and(is_plain);
        let mut before = text[..at].chars().rev();
        c == ' '
            && plain(text[at + 1..].chars().next())
            && plain(before.next())
            && plain(before.next())
    }

    /// `text` without leading whitespace that no part needs.
    pub fn skip<'a>(&self, text: &'a str) -> &'a str {
        match self.keeps_spaces {
            true => text,
            false => text.trim_start_matches(WHITESPACE),
        }
    }
}
