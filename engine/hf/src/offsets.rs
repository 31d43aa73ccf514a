//! The bytes of its text that each token was made of.

use crate::boundary::Error;
use tokenizers::{Encoding, Offsets};

/// The tokens of one text within an encoding, as castor_hf.h lays them out.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TextTokens {
    begin: usize,
    end: usize,
    cut: usize,  // tokens were cut off from this byte on; MAX: none
    head: usize, // tokens were cut off up to this byte
}

impl TextTokens {
    pub const NONE: TextTokens = TextTokens {
        begin: 0,
        end: 0,
        cut: usize::MAX,
        head: 0,
    };
}

/// Bytes of a text.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Bytes {
    begin: usize,
    end: usize,
}

/// A tokenized text and its truncation.
pub struct Cut<'a> {
    pub text: &'a str,
    pub kept: usize,               // tokens
    pub next: Option<Offsets>,     // of the first token that was cut off after them
    pub previous: Option<Offsets>, // of the last token that was cut off before them
}

/// The offsets of every token of an encoding, and the place of each text's tokens.
pub struct TokenOffsets {
    pub bytes: Vec<Bytes>, // 0 to 0 for special tokens and, if trimmed, whitespace only
    pub texts: [TextTokens; 2],
}

impl TokenOffsets {
    /// `encoding`: post-processed, of these texts.
    pub fn of(encoding: &Encoding, texts: &[Cut], trim: bool) -> Result<TokenOffsets, Error> {
        let mut offsets = TokenOffsets {
            bytes: vec![Bytes::default(); encoding.len()],
            texts: [TextTokens::NONE; 2],
        };
        let owners = encoding.get_sequence_ids();
        for (i, cut) in texts.iter().enumerate() {
            let begin = owners.iter().position(|&owner| owner == Some(i));
            let begin = begin.unwrap_or(0);
            let end = begin + cut.kept;
            let own = owners.get(begin..end).ok_or(SCATTERED)?;
            let all = owners.iter().filter(|&&owner| owner == Some(i)).count();
            if all != cut.kept || own.iter().any(|&owner| owner != Some(i)) {
                return Err(SCATTERED.into());
            }
            offsets.texts[i] = TextTokens {
                begin,
                end,
                cut: cut
                    .next
                    .map_or(usize::MAX, |next| behind_spaces(cut.text, next.0)),
                head: cut
                    .previous
                    .map_or(0, |token| before_spaces(cut.text, token.1)),
            };
            for token in begin..end {
                let (begin, end) = encoding.get_offsets()[token];
                offsets.bytes[token] = match trim {
                    true => trimmed(cut.text, (begin, end)),
                    false => Bytes { begin, end },
                };
            }
        }
        Ok(offsets)
    }
}

const SCATTERED: &str = "the post-processor does not keep a text's tokens together";

/// Removes whitespace at either end. Some pipelines leave it with the neighbouring word; others
/// remove it in ways that depend on where a text begins.
fn trimmed(text: &str, (begin, end): Offsets) -> Bytes {
    let part = text.get(begin..end).unwrap_or_default();
    let kept = part.trim().len();
    if kept == 0 {
        return Bytes::default();
    }
    let begin = begin + part.len() - part.trim_start().len();
    Bytes {
        begin,
        end: begin + kept,
    }
}

/// The first byte from `at` on that is not whitespace, or the text's end.
fn behind_spaces(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    text.len() - rest.trim_start().len()
}

/// The end of the text before `at`, without the whitespace there.
fn before_spaces(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().trim_end().len()
}
