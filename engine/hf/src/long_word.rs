//! Words that are unknown for their length alone, shortened before they are tokenized. A text may
//! be one word of a megabyte, which has no place to cut.
//!
//! WordPiece makes one unknown token of a word of more than `max_input_chars_per_word` characters,
//! whatever they are. So where more letters than that follow each other, those in the middle can be
//! left out, if what is left of the word is as unknown, and nothing else notices:
//!
//! - Each of these letters normalizes to at least one character, none of which ends a word; and
//!   none of them combines with another.
//! - No added token is found among them: each has a punctuation character of ASCII. One that ends
//!   or begins with letters reaches no further into them than it is long.

use std::borrow::Cow;
use tokenizers::{ModelWrapper, Tokenizer};

pub struct LongWords {
    kept: usize, // letters at either end
}

/// Letters of which the above is true with every normalizer that cut.rs takes for local: Latin,
/// Cyrillic, kana, Hangul.
fn is_letter(c: char) -> bool {
    match c as u32 {
        0..=0x7F => c.is_ascii_alphanumeric(),
        // Some Latin letters are compatible with sequences that have punctuation.
        0xC0..=0x24F => !matches!(c as u32, 0xD7 | 0xF7 | 0x13F | 0x140 | 0x149),
        0x400..=0x481 | 0x48A..=0x52F => true,
        0x3041..=0x3096 | 0x30A1..=0x30FA => true,
        0xAC00..=0xD7A3 => true,
        _ => false,
    }
}

impl LongWords {
    /// None if no letter may be left out. `added`: the added tokens, as they are and normalized.
    pub fn of<'a>(
        tokenizer: &Tokenizer,
        added: impl Iterator<Item = &'a str>,
    ) -> Option<LongWords> {
        let ModelWrapper::WordPiece(model) = tokenizer.get_model() else {
            return None;
        };
        let mut longest = 0;
        for token in added {
            if !token.chars().any(|c| c.is_ascii_punctuation()) {
                return None;
            }
            longest = longest.max(token.chars().count());
        }
        // The word is as unknown when added tokens have taken letters from both of its ends.
        let kept = (model.max_input_chars_per_word / 2 + 1).checked_add(longest)?;
        Some(LongWords { kept })
    }

    /// A text with the same tokens.
    pub fn shorten<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut short = String::new();
        let mut copied = 0; // bytes of `text`
        let mut letters = Letters::default();
        for (at, c) in text.char_indices() {
            if is_letter(c) {
                letters.add(at, self.kept);
            } else {
                self.leave_out(text, &mut copied, &mut short, &letters, at);
                letters = Letters::default();
            }
        }
        self.leave_out(text, &mut copied, &mut short, &letters, text.len());
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        short.push_str(&text[copied..]);
        Cow::Owned(short)
    }

    /// Of letters that end at `end`, those in the middle.
    fn leave_out(
        &self,
        text: &str,
        copied: &mut usize,
        short: &mut String,
        letters: &Letters,
        end: usize,
    ) {
        if letters.count <= 2 * self.kept {
            return;
        }
        short.push_str(&text[*copied..letters.middle]);
        *copied = text[..end]
            .char_indices()
            .nth_back(self.kept - 1)
            .map_or(end, |(at, _)| at);
    }
}

/// Letters that follow each other.
#[derive(Default)]
struct Letters {
    count: usize,
    middle: usize, // where those begin that are not kept at the start
}

impl Letters {
    fn add(&mut self, at: usize, kept: usize) {
        if self.count == kept {
            self.middle = at;
        }
        self.count += 1;
    }
}
