//! Words that are unknown for their length alone, shortened before they are tokenized. A text may
//! be one word of a megabyte, which has no place to cut.
//!
//! WordPiece makes one unknown token of a word of more than `max_input_chars_per_word` characters,
//! whatever they are. So where characters follow each other that never end a word (characters.rs
//! calls them inner, and tells which of them are letters), those in the middle can be left out, if
//! what is left of the word is as unknown, and nothing else notices:
//!
//! - What is left out begins at a letter and ends before one. Nothing before a letter combines with
//!   it or with anything after it, so the two ends normalize to the same as before.
//! - Enough letters are left at both ends. Each leaves at least one character, and only the last
//!   one's could combine with what follows and become the end of a word.
//! - No added token is found among them: each has a punctuation character of ASCII, as it is and
//!   normalized. One that ends or begins with letters reaches no further into them than it is long.

use crate::characters::Characters;
use std::borrow::Cow;
use tokenizers::{ModelWrapper, Tokenizer};

pub struct LongWords {
    characters: &'static Characters,
    kept: usize, // letters at either end
}

impl LongWords {
    /// None if no letter may be left out. `added`: the added tokens, as they are and normalized.
    pub fn of<'a>(
        tokenizer: &Tokenizer,
        characters: &'static Characters,
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
        // The word is as unknown when added tokens have taken letters from both of its ends, and
        // what follows has taken the last one.
        let kept = (model.max_input_chars_per_word / 2 + 2).checked_add(longest)?;
        Some(LongWords { characters, kept })
    }

    /// A text with the same tokens.
    pub fn shorten<'a>(&self, text: &'a str) -> Shortened<'a> {
        let mut short = Shortened::default();
        let mut copied = 0; // bytes of `text`
        let mut letters = Letters::default();
        for (at, c) in text.char_indices() {
            if self.characters.is_letter(c) {
                letters.add(at, self.kept);
            } else if !self.characters.is_inner(c) {
                self.leave_out(text, &mut copied, &mut short, &letters, at);
                letters = Letters::default();
            }
        }
        self.leave_out(text, &mut copied, &mut short, &letters, text.len());
        if copied == 0 {
            return Shortened::whole(text);
        }
        short.text.to_mut().push_str(&text[copied..]);
        short
    }

    /// Of letters that end at `end`, those in the middle.
    fn leave_out(
        &self,
        text: &str,
        copied: &mut usize,
        short: &mut Shortened,
        letters: &Letters,
        end: usize,
    ) {
        if letters.count <= 2 * self.kept {
            return;
        }
        short.text.to_mut().push_str(&text[*copied..letters.middle]);
        *copied = text[..end]
            .char_indices()
            .rev()
            .filter(|&(_, c)| self.characters.is_letter(c))
            .nth(self.kept - 1)
            .map_or(end, |(at, _)| at);
        let already = short.gaps.last().map_or(0, |gap| gap.1);
        let left_out = already + *copied - letters.middle;
        short.gaps.push((short.text.len(), left_out));
    }
}

/// A text of which parts were left out.
#[derive(Default)]
pub struct Shortened<'a> {
    pub text: Cow<'a, str>,
    gaps: Vec<(usize, usize)>, // where bytes are missing in `text`, and how many up to there
}

impl<'a> Shortened<'a> {
    pub fn whole(text: &'a str) -> Shortened<'a> {
        Shortened {
            text: Cow::Borrowed(text),
            gaps: Vec::new(),
        }
    }

    /// Where the byte `at` of `text` was before.
    pub fn before(&self, at: usize) -> usize {
        let passed = self.gaps.partition_point(|gap| gap.0 <= at);
        at + passed.checked_sub(1).map_or(0, |last| self.gaps[last].1)
    }
}

/// Letters that follow each other, perhaps with other inner characters between them.
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
