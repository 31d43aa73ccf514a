//! One tokenizer.json.

use crate::assemble::{assemble, Files};
use crate::boundary::{bytes, guarded, Error};
use crate::cut::Cuts;
use crate::emitted::Emitted;
use crate::growth::Growth;
use crate::offsets::{Bytes, Cut, TextTokens, TokenOffsets};
use crate::progress::{compare, Failure, Progress, Reading, Stop};
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use tokenizers::tokenizer::{truncate_encodings, TruncationParams};
use tokenizers::{Encoding, ModelWrapper, Offsets, Tokenizer};

pub struct Handle {
    plain: Tokenizer, // reads special tokens in a text as text
    // Reads them as special tokens. The policy is part of the crate's tokenizer, so this is a second
    // one, made on first use.
    special: OnceLock<Tokenizer>,
    info: Info,
    cuts: Option<Cuts>,
    growth: Growth,
}

/// As castor_hf.h lays it out.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    emitted: Emitted,
    cuts_left: bool, // the side of the file's truncation
}

impl Handle {
    fn open(files: &Files) -> Result<Handle, Error> {
        let (plain, cuts_left) = assemble(files)?;
        Handle::of(plain, cuts_left).map_err(|e| format!("tokenizer.json: {e}").into())
    }

    fn of(mut plain: Tokenizer, cuts_left: bool) -> Result<Handle, Error> {
        check_model(plain.get_model())?;
        plain.with_padding(None);
        plain.with_truncation(None)?;
        plain.set_encode_special_tokens(true);
        Ok(Handle {
            growth: Growth::of(&plain)?,
            info: Info {
                emitted: Emitted::of(&plain)?,
                cuts_left,
            },
            cuts: Cuts::of(&plain),
            plain,
            special: OnceLock::new(),
        })
    }

    fn tokenizer(&self, allow_special_tokens: bool) -> &Tokenizer {
        if !allow_special_tokens {
            return &self.plain;
        }
        self.special.get_or_init(|| {
            let mut tokenizer = self.plain.clone();
            tokenizer.set_encode_special_tokens(false);
            tokenizer
        })
    }

    fn added_tokens(&self, pair: bool) -> usize {
        self.info.emitted.added_tokens[usize::from(pair)]
    }

    fn encode(
        &self,
        text: &str,
        pair: Option<&str>,
        how: EncodeSettings,
    ) -> Result<Encoded, Failure> {
        let room = how
            .max_tokens
            .checked_sub(match how.add_special_tokens {
                true => self.added_tokens(pair.is_some()),
                false => 0,
            })
            .ok_or("max_tokens leaves no room for the special tokens")?;
        let tokenizer = self.tokenizer(how.allow_special_tokens);
        let reading = Reading {
            tokenizer,
            cuts: self.cuts.as_ref(),
            growth: &self.growth,
            room,
            last: how.left,
            offsets: how.offsets != OffsetsKind::None,
        };
        let mut first = Progress::new(reading, text);
        let mut second = pair.map(|pair| Progress::new(reading, pair));
        first.fill(how.stop)?;
        if let Some(second) = second.as_mut() {
            second.fill(how.stop)?;
            if !how.left {
                compare(&mut first, second, how.stop)?;
            }
        }
        let tokens = first.tokens + second.as_ref().map_or(0, |second| second.tokens);
        let kept = match how.left {
            true => keep_last(first, second, room),
            false => keep_first(first, second, room)?,
        };
        let mut cuts = Vec::new();
        for ((encoding, next, previous), text) in kept.iter().zip([text, pair.unwrap_or_default()])
        {
            cuts.push(Cut {
                text,
                kept: encoding.len(),
                next: *next,
                previous: *previous,
            });
        }
        let mut kept = kept.into_iter().map(|(encoding, ..)| encoding);
        let first = kept.next().unwrap_or_default();
        let encoding = tokenizer.post_process(first, kept.next(), how.add_special_tokens)?;
        let offsets = match how.offsets {
            OffsetsKind::None => None,
            wanted => Some(TokenOffsets::of(
                &encoding,
                &cuts,
                wanted == OffsetsKind::WithoutSpaces,
            )?),
        };
        Ok(Encoded {
            encoding,
            truncated: tokens > room,
            offsets,
        })
    }
}

/// The settings of one encoding; castor_hf.h documents them.
struct EncodeSettings<'a> {
    max_tokens: usize,
    left: bool,
    allow_special_tokens: bool,
    add_special_tokens: bool,
    offsets: OffsetsKind,
    stop: Stop<'a>,
}

/// castor_hf_offsets_kind.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code)] // C makes them
pub enum OffsetsKind {
    None,
    WithoutSpaces,
    AsTokenized,
}

/// The tokens kept of a text, and the offsets of the tokens cut off right after and before them.
type Kept = (Encoding, Option<Offsets>, Option<Offsets>);

fn keep_first(first: Progress, second: Option<Progress>, room: usize) -> Result<Vec<Kept>, Error> {
    let params = TruncationParams {
        max_length: room,
        ..Default::default() // cut the longest first, on the right
    };
    let (first, second) =
        truncate_encodings(first.encoding(), second.map(Progress::encoding), &params)?;
    // The overflow is not used any more, and post-processing would process it too.
    let keep = |mut encoding: Encoding| {
        let next = take_next(&mut encoding);
        (encoding, next, None)
    };
    Ok([Some(first), second]
        .into_iter()
        .flatten()
        .map(keep)
        .collect())
}

/// Keeps as many tokens as the crate's strategy "longest first".
fn keep_last(first: Progress, second: Option<Progress>, room: usize) -> Vec<Kept> {
    let keep = |text: Progress, tokens: usize| {
        let (encoding, previous) = text.last(tokens);
        (encoding, None, previous)
    };
    let Some(second) = second else {
        let tokens = first.tokens.min(room);
        return vec![keep(first, tokens)];
    };
    let (a, b) = (first.tokens, second.tokens);
    let (mut less, mut more) = (a.min(b), a.max(b));
    if a + b > room {
        more = less.max(room.saturating_sub(less));
        if less + more > room {
            less = room / 2;
            more = room - less;
        }
    }
    let (a, b) = if a > b { (more, less) } else { (less, more) };
    vec![keep(first, a), keep(second, b)]
}

/// Refuses models for which a word takes minutes, or whose tokens differ from call to call.
fn check_model(model: &ModelWrapper) -> Result<(), Error> {
    // WordPiece's time grows with the square of a word's characters, or faster.
    const MOST_CHARACTERS: usize = 1000;
    match model {
        ModelWrapper::WordPiece(model) if model.max_input_chars_per_word > MOST_CHARACTERS => {
            Err(format!(
                "model.max_input_chars_per_word: is {}, and must be at most {MOST_CHARACTERS}",
                model.max_input_chars_per_word
            )
            .into())
        }
        ModelWrapper::BPE(model) if model.dropout.is_some_and(|dropout| dropout != 0.0) => {
            Err("model.dropout: must be 0 or null, since it is for training".into())
        }
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Encoded {
    encoding: Encoding,
    truncated: bool,
    offsets: Option<TokenOffsets>, // if asked for
}

/// Drops the tokens that truncation cut off, and returns the offsets of the first.
fn take_next(encoding: &mut Encoding) -> Option<Offsets> {
    let overflow = encoding.take_overflowing();
    let first = overflow.first()?;
    first.get_offsets().first().copied()
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_tokenizer_open(
    files: *const FilesView,
    out: *mut *mut Handle,
    info: *mut Info,
) -> *mut c_char {
    guarded(|| {
        let given = |view: View| (!view.data.is_null()).then(|| bytes(view.data, view.size));
        let files = Files {
            tokenizer: given((*files).tokenizer),
            vocabulary: given((*files).vocabulary),
            merges: given((*files).merges),
            settings: given((*files).settings).unwrap_or_default(),
        };
        let handle = Handle::open(&files)?;
        *info = handle.info;
        *out = Box::into_raw(Box::new(handle));
        Ok(())
    })
}

/// The caller's bytes; null: there is no such file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const u8,
    size: usize,
}

/// A directory's files as castor_hf.h lays them out.
#[repr(C)]
pub struct FilesView {
    tokenizer: View,
    vocabulary: View,
    merges: View,
    settings: View,
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_tokenizer_close(tokenizer: *mut Handle) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// An encoding as castor_hf.h lays it out.
#[repr(C)]
pub struct EncodingView {
    ids: *const u32,
    type_ids: *const u32,
    size: usize,
    truncated: bool,
    stopped: bool,
    too_long: bool,
    offsets: *const Bytes,
    texts: [TextTokens; 2],
    owner: *mut c_void,
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_tokenizer_encode(
    tokenizer: *const Handle,
    text: *const u8,
    text_size: usize,
    pair: *const u8,
    pair_size: usize,
    max_tokens: usize,
    left: bool,
    allow_special_tokens: bool,
    add_special_tokens: bool,
    offsets: OffsetsKind,
    stop: Option<unsafe extern "C" fn(*mut c_void) -> bool>,
    stop_context: *mut c_void,
    out: *mut EncodingView,
) -> *mut c_char {
    guarded(|| {
        let text = std::str::from_utf8(bytes(text, text_size))?;
        let pair = if pair.is_null() {
            None
        } else {
            Some(std::str::from_utf8(bytes(pair, pair_size))?)
        };
        let stop = || stop.is_some_and(|stop| stop(stop_context));
        let how = EncodeSettings {
            max_tokens,
            left,
            allow_special_tokens,
            add_special_tokens,
            offsets,
            stop: &stop,
        };
        let (mut stopped, mut too_long) = (false, false);
        let encoded = match (*tokenizer).encode(text, pair, how) {
            Ok(encoded) => encoded,
            Err(Failure::Other(error)) => return Err(error),
            Err(failure) => {
                stopped = matches!(failure, Failure::Stopped);
                too_long = !stopped;
                Encoded::default()
            }
        };
        let encoded = Box::new(encoded);
        let offsets = encoded.offsets.as_ref();
        *out = EncodingView {
            ids: encoded.encoding.get_ids().as_ptr(),
            type_ids: encoded.encoding.get_type_ids().as_ptr(),
            size: encoded.encoding.len(),
            truncated: encoded.truncated,
            stopped,
            too_long,
            offsets: offsets.map_or(std::ptr::null(), |offsets| offsets.bytes.as_ptr()),
            texts: offsets.map_or([TextTokens::NONE; 2], |offsets| offsets.texts),
            owner: Box::into_raw(encoded).cast(),
        };
        Ok(())
    })
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_encoding_free(encoding: *mut EncodingView) {
    let owner = std::mem::replace(&mut (*encoding).owner, std::ptr::null_mut());
    if !owner.is_null() {
        drop(Box::from_raw(owner.cast::<Encoded>()));
    }
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_is_utf8(data: *const u8, size: usize) -> bool {
    std::str::from_utf8(bytes(data, size)).is_ok()
}

/// A text as castor_hf.h lays it out.
#[repr(C)]
pub struct TextView {
    data: *const u8,
    size: usize,
    owner: *mut c_void,
}

fn give(text: String, out: &mut TextView) {
    let text = Box::new(text);
    *out = TextView {
        data: text.as_ptr(),
        size: text.len(),
        owner: Box::into_raw(text).cast(),
    };
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_tokenizer_token(
    tokenizer: *const Handle,
    id: u32,
    out: *mut TextView,
) -> *mut c_char {
    guarded(|| {
        give(
            (*tokenizer).plain.id_to_token(id).unwrap_or_default(),
            &mut *out,
        );
        Ok(())
    })
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_tokenizer_decode(
    tokenizer: *const Handle,
    ids: *const u32,
    size: usize,
    skip_special_tokens: bool,
    out: *mut TextView,
) -> *mut c_char {
    guarded(|| {
        let ids = match size {
            0 => &[],
            _ => std::slice::from_raw_parts(ids, size),
        };
        give(
            (*tokenizer).plain.decode(ids, skip_special_tokens)?,
            &mut *out,
        );
        Ok(())
    })
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_text_free(text: *mut TextView) {
    let owner = std::mem::replace(&mut (*text).owner, std::ptr::null_mut());
    if !owner.is_null() {
        drop(Box::from_raw(owner.cast::<String>()));
    }
}
