//! One tokenizer.json.

use crate::boundary::{bytes, guarded, Error};
use crate::cut::Cuts;
use crate::emitted::Emitted;
use crate::offsets::{Bytes, Cut, TextTokens, TokenOffsets};
use crate::progress::{compare, Progress, Stop};
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use tokenizers::tokenizer::{truncate_encodings, TruncationParams};
use tokenizers::{Encoding, ModelWrapper, Offsets, Tokenizer};

pub struct Handle {
    plain: Tokenizer, // treats special tokens in a text as text
    // Treats them as special tokens. The crate keeps that policy in the tokenizer, so this is a
    // second one, made on first use.
    special: OnceLock<Tokenizer>,
    emitted: Emitted,
    cuts: Option<Cuts>,
}

impl Handle {
    fn open(json: &[u8]) -> Result<Handle, Error> {
        let mut plain = Tokenizer::from_bytes(json)?;
        check_model(plain.get_model())?;
        plain.with_padding(None);
        plain.with_truncation(None)?;
        plain.set_encode_special_tokens(true);
        Ok(Handle {
            emitted: Emitted::of(&plain)?,
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
        self.emitted.added_tokens[usize::from(pair)]
    }

    /// None: stopped.
    fn encode(
        &self,
        text: &str,
        pair: Option<&str>,
        max_tokens: usize,
        allow_special_tokens: bool,
        with_offsets: bool,
        stop: Stop,
    ) -> Result<Option<Encoded>, Error> {
        let room = max_tokens
            .checked_sub(self.added_tokens(pair.is_some()))
            .ok_or("max_tokens leaves no room for the special tokens")?;
        let tokenizer = self.tokenizer(allow_special_tokens);
        let cuts = self.cuts.as_ref();
        let part = |text| Progress::new(tokenizer, cuts, text, room, with_offsets);
        let mut first = part(text);
        let mut second = pair.map(part);
        if !first.fill(stop)? {
            return Ok(None);
        }
        if let Some(second) = second.as_mut() {
            if !second.fill(stop)? || !compare(&mut first, second, stop)? {
                return Ok(None);
            }
        }
        let tokens = first.tokens + second.as_ref().map_or(0, |second| second.tokens);
        let params = TruncationParams {
            max_length: room,
            ..Default::default() // the longest first, cut on the right
        };
        let (mut first, mut second) =
            truncate_encodings(first.encoding(), second.map(Progress::encoding), &params)?;
        // The overflow is of no further use, and post-processing would process it too.
        let mut cuts = vec![Cut {
            text,
            kept: first.len(),
            next: take_next(&mut first),
        }];
        if let (Some(second), Some(text)) = (second.as_mut(), pair) {
            cuts.push(Cut {
                text,
                kept: second.len(),
                next: take_next(second),
            });
        }
        let encoding = tokenizer.post_process(first, second, true)?;
        let offsets = match with_offsets {
            true => Some(TokenOffsets::of(&encoding, &cuts)?),
            false => None,
        };
        Ok(Some(Encoded {
            encoding,
            truncated: tokens > room,
            offsets,
        }))
    }
}

/// Refuses what would make one word take minutes, or tokens differ from call to call.
fn check_model(model: &ModelWrapper) -> Result<(), Error> {
    // WordPiece takes time by the square of a word's characters, or more.
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
            Err("model.dropout: is for training, and must be 0 or null".into())
        }
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Encoded {
    encoding: Encoding,
    truncated: bool,
    offsets: Option<TokenOffsets>, // if they were asked for
}

/// Drops what truncation cut off, and says where its first token comes from.
fn take_next(encoding: &mut Encoding) -> Option<Offsets> {
    let overflow = encoding.take_overflowing();
    let first = overflow.first()?;
    first.get_offsets().first().copied()
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_tokenizer_open(
    json: *const u8,
    size: usize,
    out: *mut *mut Handle,
) -> *mut c_char {
    guarded(|| {
        *out = Box::into_raw(Box::new(Handle::open(bytes(json, size))?));
        Ok(())
    })
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_tokenizer_close(tokenizer: *mut Handle) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_tokenizer_added_tokens(
    tokenizer: *const Handle,
    pair: bool,
) -> usize {
    (*tokenizer).added_tokens(pair)
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_tokenizer_id_limit(tokenizer: *const Handle) -> u64 {
    (*tokenizer).emitted.id_limit
}

/// # Safety
/// See castor_hf.h.
#[no_mangle]
pub unsafe extern "C" fn castor_hf_tokenizer_type_limit(tokenizer: *const Handle) -> u64 {
    (*tokenizer).emitted.type_limit
}

/// An encoding as castor_hf.h lays it out.
#[repr(C)]
pub struct EncodingView {
    ids: *const u32,
    type_ids: *const u32,
    size: usize,
    truncated: bool,
    stopped: bool,
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
    allow_special_tokens: bool,
    with_offsets: bool,
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
        let encoded = (*tokenizer).encode(
            text,
            pair,
            max_tokens,
            allow_special_tokens,
            with_offsets,
            &stop,
        )?;
        let stopped = encoded.is_none();
        let encoded = Box::new(encoded.unwrap_or_default());
        let offsets = encoded.offsets.as_ref();
        *out = EncodingView {
            ids: encoded.encoding.get_ids().as_ptr(),
            type_ids: encoded.encoding.get_type_ids().as_ptr(),
            size: encoded.encoding.len(),
            truncated: encoded.truncated,
            stopped,
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
