//! One text being tokenized, read only as far as its tokens are used.

use crate::boundary::Error;
use crate::cut::Cuts;
use crate::long_word::Shortened;
use tokenizers::{Encoding, Offsets, Tokenizer};

/// Called between the parts of a long text; true: the result is no longer needed.
pub type Stop<'a> = &'a dyn Fn() -> bool;

// The first part is large enough for ordinary text. Later parts grow, so that few are needed, but
// to no more than some milliseconds of work, so that a stop is soon noticed.
const BYTES_PER_TOKEN: usize = 8;
const MIN_PART: usize = 1 << 10;
const MAX_PART: usize = 1 << 14;

// A part that is longer for want of a place to cut.
const LONG_PART: usize = 1 << 15;

type Token = (u32, u32, Offsets); // id, type id, bytes of the text

pub struct Progress<'a> {
    tokenizer: &'a Tokenizer,
    cuts: Option<&'a Cuts>,
    room: usize,
    offsets: bool, // whether tokens say where they come from; else all say 0 to 0
    text: &'a str,
    rest: &'a str,
    started: bool,
    part: usize,             // bytes to take next, at least
    kept: Vec<Token>,        // room + 2 at most
    whole: Option<Encoding>, // for a text of one part that fits, instead of `kept`
    pub tokens: usize,       // of what was read
}

impl<'a> Progress<'a> {
    /// At most `room` tokens will be kept of `text`.
    pub fn new(
        tokenizer: &'a Tokenizer,
        cuts: Option<&'a Cuts>,
        text: &'a str,
        room: usize,
        offsets: bool,
    ) -> Progress<'a> {
        Progress {
            tokenizer,
            cuts,
            room,
            offsets,
            text,
            rest: text,
            started: false,
            part: room
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

    /// Reads one part. False: stopped.
    fn read(&mut self, stop: Stop) -> Result<bool, Error> {
        if self.started && stop() {
            return Ok(false);
        }
        let size = match self.cuts {
            Some(cuts) => cuts.first_part(self.rest, self.part),
            None => self.rest.len(),
        };
        let before = self.text.len() - self.rest.len();
        let (part, rest) = self.rest.split_at(size);
        let short = match self.cuts {
            Some(cuts) if size > LONG_PART => cuts.shorten(part),
            _ => Shortened::whole(part),
        };
        let encoding = if self.offsets {
            self.tokenizer.encode(&*short.text, false)?
        } else {
            self.tokenizer.encode_fast(&*short.text, false)?
        };
        self.rest = match self.cuts {
            Some(cuts) => cuts.skip(rest),
            None => rest,
        };
        self.part = (2 * self.part).min(MAX_PART);
        self.tokens += encoding.len();
        let all = !self.started && self.rest.is_empty() && self.tokens <= self.room;
        if all && !self.offsets {
            self.whole = Some(encoding);
        } else {
            let room = (self.room + 2).saturating_sub(self.kept.len());
            for token in 0..encoding.len().min(room) {
                let mut bytes = (0, 0);
                if self.offsets {
                    let (begin, end) = encoding.get_offsets()[token];
                    bytes = (before + short.before(begin), before + short.before(end));
                }
                let type_id = encoding.get_type_ids()[token];
                self.kept.push((encoding.get_ids()[token], type_id, bytes));
            }
        }
        self.started = true;
        Ok(true)
    }

    /// Reads on until more than `tokens` were found, or all. False: stopped.
    fn read_beyond(&mut self, tokens: usize, stop: Stop) -> Result<bool, Error> {
        while !self.at_end() && self.tokens <= tokens {
            if !self.read(stop)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads until it is known whether the text fits; if it does not, reads all that is kept of it.
    /// False: stopped.
    pub fn fill(&mut self, stop: Stop) -> Result<bool, Error> {
        self.read_beyond(self.room, stop)
    }

    /// What was read, as far as truncation to `room` uses it.
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

/// Makes the lengths of two filled texts compare as they would if both were read to the end. That
/// matters where neither fits and the room is odd: then the longer one keeps the odd token. False:
/// stopped.
pub fn compare<'a>(a: &mut Progress<'a>, b: &mut Progress<'a>, stop: Stop) -> Result<bool, Error> {
    if a.room % 2 == 0 || a.tokens <= a.room || b.tokens <= b.room {
        return Ok(true);
    }
    while !a.at_end() && !b.at_end() {
        let behind = if a.tokens <= b.tokens {
            &mut *a
        } else {
            &mut *b
        };
        if !behind.read(stop)? {
            return Ok(false);
        }
    }
    let (shorter, longer) = if a.at_end() { (a, b) } else { (b, a) };
    if !longer.read_beyond(shorter.tokens, stop)? {
        return Ok(false);
    }
    if shorter.tokens > longer.tokens {
        longer.kept.truncate(longer.room + 1);
    } else if shorter.tokens < longer.tokens {
        shorter.kept.truncate(shorter.room + 1);
    }
    Ok(true)
}
