//! The tokenizing of one text, which is read only as far as its tokens are used.

use crate::boundary::Error;
use crate::cut::Cuts;
use crate::growth::Growth;
use tokenizers::{Encoding, Offsets, Tokenizer};

/// Called between the parts of a long text. True: the result is no longer needed.
pub type Stop<'a> = &'a dyn Fn() -> bool;

// The first part is large enough for ordinary text. Later parts grow, so that few are needed, up to
// a few milliseconds of work, so that a stop is noticed soon.
const BYTES_PER_TOKEN: usize = 8;
const MIN_PART: usize = 1 << 10;
const MAX_PART: usize = 1 << 14;

type Token = (u32, u32, Offsets); // id, type id, bytes of the text

/// How a text is read.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    pub tokenizer: &'a Tokenizer,
    pub cuts: Option<&'a Cuts>,
    pub growth: &'a Growth,
    pub room: usize,   // the most tokens kept
    pub last: bool,    // keep the last tokens; then all of the text is read
    pub offsets: bool, // compute offsets; else all are 0 to 0
}

/// Why there are no tokens.
pub enum Failure {
    Stopped,
    TooLong, // the normalizer makes the text too long
    Other(Error),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Other(error.into())
    }
}

pub struct Progress<'a> {
    how: Reading<'a>,
    text: &'a str,
    rest: &'a str,
    started: bool,
    part: usize,             // the least bytes to read next
    kept: Vec<Token>,        // at most room + 2, or twice that of the last tokens
    whole: Option<Encoding>, // replaces `kept` for a text of one part that fits
    pub tokens: usize,       // read so far
}

impl<'a> Progress<'a> {
    pub fn new(how: Reading<'a>, text: &'a str) -> Progress<'a> {
        Progress {
            how,
            text,
            rest: text,
            started: false,
            part: how
                .room
                .saturating_mul(BYTES_PER_TOKEN)
                .clamp(MIN_PART, MAX_PART),
            kept: Vec::new(),
            whole: None,
            tokens: 0,
        }
    }

    fn at_end(&self) -> bool {
        self.started && self.rest.is_empty()
    }

    /// Reads one part.
    fn read(&mut self, stop: Stop) -> Result<(), Failure> {
        if self.started && stop() {
            return Err(Failure::Stopped);
        }
        let how = self.how;
        let size = match how.cuts {
            Some(cuts) => cuts.first_part(self.rest, self.part),
            None => self.rest.len(),
        };
        let before = self.text.len() - self.rest.len();
        let (part, rest) = self.rest.split_at(size);
        if !how.growth.allows(how.tokenizer, part)? {
            return Err(Failure::TooLong);
        }
        // Post-processors that trim offsets count characters, so they get offsets in characters.
        let by_character = how.offsets && !part.is_ascii();
        let encoding = match (how.offsets, by_character) {
            (false, _) => how.tokenizer.encode_fast(part, false)?,
            (true, false) => how.tokenizer.encode(part, false)?,
            (true, true) => how.tokenizer.encode_char_offsets(part, false)?,
        };
        let characters: Vec<usize> = match by_character {
            true => part.char_indices().map(|(at, _)| at).collect(),
            false => Vec::new(),
        };
        let byte = |at: usize| match by_character {
            true => *characters.get(at).unwrap_or(&part.len()),
            false => at,
        };
        self.rest = match how.cuts {
            Some(cuts) => cuts.skip(rest),
            None => rest,
        };
        self.part = (2 * self.part).min(MAX_PART);
        self.tokens += encoding.len();
        let all = !self.started && self.rest.is_empty() && self.tokens <= how.room;
        if all && !how.offsets && !how.last {
            self.whole = Some(encoding);
        } else {
            let most = how.room + 2;
            let room = match how.last {
                true => usize::MAX,
                false => most.saturating_sub(self.kept.len()),
            };
            for token in 0..encoding.len().min(room) {
                let mut bytes = (0, 0);
                if how.offsets {
                    let (begin, end) = encoding.get_offsets()[token];
                    bytes = (before + byte(begin), before + byte(end));
                }
                let type_id = encoding.get_type_ids()[token];
                self.kept.push((encoding.get_ids()[token], type_id, bytes));
            }
            if how.last && self.kept.len() > 2 * most {
                self.kept.drain(..self.kept.len() - most);
            }
        }
        self.started = true;
        Ok(())
    }

    /// Reads until there are more than `tokens`, or to the end.
    fn read_beyond(&mut self, tokens: usize, stop: Stop) -> Result<(), Failure> {
        while !self.at_end() && self.tokens <= tokens {
            self.read(stop)?;
        }
        Ok(())
    }

    /// Reads until it is known whether the text fits, and until all tokens to keep are read.
    pub fn fill(&mut self, stop: Stop) -> Result<(), Failure> {
        let enough = if self.how.last {
            usize::MAX
        } else {
            self.how.room
        };
        self.read_beyond(enough, stop)
    }

    /// The last `tokens` tokens, and the offsets of the token before them. Requires `last`.
    pub fn last(mut self, tokens: usize) -> (Encoding, Option<Offsets>) {
        let kept = self.kept.split_off(self.kept.len() - tokens);
        let before = self.kept.last().map(|token| token.2);
        self.kept = kept;
        (self.encoding(), before)
    }

    /// The tokens read, as far as truncation to `room` uses them.
    pub fn encoding(self) -> Encoding {
        match self.whole {
            Some(encoding) => encoding,
            None => self
                .kept
                .into_iter()
                .map(|(id, type_id, bytes)| (id, String::new(), bytes, None, type_id))
                .collect(),
        }
    }
}

/// Makes the lengths of two filled texts compare as if both were read to the end. That matters if
/// neither fits and the room is odd: the longer text keeps the odd token.
pub fn compare<'a>(a: &mut Progress<'a>, b: &mut Progress<'a>, stop: Stop) -> Result<(), Failure> {
    let room = a.how.room;
    if room % 2 == 0 || a.tokens <= room || b.tokens <= room {
        return Ok(());
    }
    while !a.at_end() && !b.at_end() {
        let fewer = if a.tokens <= b.tokens {
            &mut *a
        } else {
            &mut *b
        };
        fewer.read(stop)?;
    }
    let (shorter, longer) = if a.at_end() { (a, b) } else { (b, a) };
    longer.read_beyond(shorter.tokens, stop)?;
    if shorter.tokens > longer.tokens {
        longer.kept.truncate(room + 1);
    } else if shorter.tokens < longer.tokens {
        shorter.kept.truncate(room + 1);
    }
    Ok(())
}
