//! One tokenizer.json.

use crate::boundary::{bytes, guarded, Error};
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use tokenizers::tokenizer::{truncate_encodings, PostProcessor, TruncationParams};
use tokenizers::{Encoding, Tokenizer};

pub struct Handle {
    plain: Tokenizer, // reads special tokens in a text as text
    // Reads them as special tokens. The crate keeps that policy in the tokenizer, so it takes a
    // second one, made when first asked for.
    special: OnceLock<Tokenizer>,
    id_limit: u32,
}

impl Handle {
    fn open(json: &[u8]) -> Result<Handle, Error> {
        let mut plain = Tokenizer::from_bytes(json)?;
        plain.with_padding(None);
        plain.with_truncation(None)?;
        plain.set_encode_special_tokens(true);
        let id_limit = plain.get_vocab(true).values().max().map_or(0, |&id| id + 1);
        Ok(Handle {
            plain,
            special: OnceLock::new(),
            id_limit,
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
        self.plain
            .get_post_processor()
            .map_or(0, |processor| processor.added_tokens(pair))
    }

    fn encode(
        &self,
        text: &str,
        pair: Option<&str>,
        max_tokens: usize,
        allow_special_tokens: bool,
    ) -> Result<(Encoding, bool), Error> {
        let tokenizer = self.tokenizer(allow_special_tokens);
        let first = tokenizer.encode_fast(text, false)?;
        let second = match pair {
            Some(pair) => Some(tokenizer.encode_fast(pair, false)?),
            None => None,
        };
        let room = max_tokens
            .checked_sub(self.added_tokens(pair.is_some()))
            .ok_or("max_tokens leaves no room for the special tokens")?;
        let tokens = first.len() + second.as_ref().map_or(0, Encoding::len);
        let params = TruncationParams {
            max_length: room,
            ..Default::default() // the longest first, cut on the right
        };
        let (mut first, mut second) = truncate_encodings(first, second, &params)?;
        // What was cut off is of no use, and post-processing would go over it.
        first.take_overflowing();
        if let Some(second) = second.as_mut() {
            second.take_overflowing();
        }
        let encoding = tokenizer.post_process(first, second, true)?;
        Ok((encoding, tokens > room))
    }
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
pub unsafe extern "C" fn castor_hf_tokenizer_id_limit(tokenizer: *const Handle) -> u32 {
    (*tokenizer).id_limit
}

/// An encoding as castor_hf.h lays it out.
#[repr(C)]
pub struct EncodingView {
    ids: *const u32,
    type_ids: *const u32,
    size: usize,
    truncated: bool,
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
    out: *mut EncodingView,
) -> *mut c_char {
    guarded(|| {
        let text = std::str::from_utf8(bytes(text, text_size))?;
        let pair = if pair.is_null() {
            None
        } else {
            Some(std::str::from_utf8(bytes(pair, pair_size))?)
        };
        let (encoding, truncated) =
            (*tokenizer).encode(text, pair, max_tokens, allow_special_tokens)?;
        let encoding = Box::new(encoding);
        *out = EncodingView {
            ids: encoding.get_ids().as_ptr(),
            type_ids: encoding.get_type_ids().as_ptr(),
            size: encoding.len(),
            truncated,
            owner: Box::into_raw(encoding).cast(),
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
        drop(Box::from_raw(owner.cast::<Encoding>()));
    }
}
