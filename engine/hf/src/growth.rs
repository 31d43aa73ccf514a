//! Bounds how much longer a normalizer makes a text. The crate keeps some 20 bytes per byte of
//! normalized text and has no bound, so a tokenizer.json could make gigabytes of a short text.

use crate::boundary::Error;
use serde_json::Value;
use std::borrow::Cow;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper, Tokenizer};

/// A normalizer that may make more than this of a byte is refused at load. Unicode's forms make 11,
/// and consecutive steps multiply.
const MOST: f64 = 16384.0;

/// A text that may become longer than this is measured first, piece by piece.
const UNMEASURED: f64 = (4 << 20) as f64;
const PIECE: usize = 4 << 10; // bytes, or fewer if a piece itself could become too long

/// A text is refused if its normalized form is longer than LONGEST bytes and than TIMES its size.
const LONGEST: usize = 4 << 20;
const TIMES: usize = 8;

pub struct Growth {
    factor: f64, // the most bytes that a byte becomes
}

impl Growth {
    pub fn of(tokenizer: &Tokenizer) -> Result<Growth, Error> {
        let factor = match tokenizer.get_normalizer() {
            Some(normalizer) => factor(&serde_json::to_value(normalizer)?)?,
            None => 1.0,
        };
        if factor > MOST {
            return Err(format!(
                "normalizer: may make {factor:.0} bytes of one byte of text; at most {MOST} are allowed"
            )
            .into());
        }
        Ok(Growth { factor })
    }

    /// Whether the normalized `text` stays within the bounds.
    pub fn allows(&self, tokenizer: &Tokenizer, text: &str) -> Result<bool, Error> {
        if text.len() as f64 * self.factor <= UNMEASURED {
            return Ok(true);
        }
        let Some(normalizer) = tokenizer.get_normalizer() else {
            return Ok(true);
        };
        let most = LONGEST.max(TIMES * text.len());
        let piece = ((UNMEASURED / self.factor) as usize).min(PIECE);
        let mut total = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let mut size = rest.len().min(piece);
            while !rest.is_char_boundary(size) {
                size += 1;
            }
            let (piece, after) = rest.split_at(size);
            total += longest(normalizer, piece)?;
            if total > most {
                return Ok(false);
            }
            rest = after;
        }
        Ok(true)
    }
}

/// The most bytes that a text has after any step of a normalizer.
fn longest(normalizer: &NormalizerWrapper, text: &str) -> Result<usize, Error> {
    fn go(normalizer: &NormalizerWrapper, text: &mut Cow<str>) -> Result<usize, Error> {
        if let NormalizerWrapper::Sequence(sequence) = normalizer {
            let mut most = text.len();
            for step in sequence.as_ref() {
                most = most.max(go(step, text)?);
            }
            return Ok(most);
        }
        let mut normalized = NormalizedString::from(&**text);
        normalizer.normalize(&mut normalized)?;
        *text = Cow::Owned(normalized.get().to_owned());
        Ok(text.len())
    }
    go(normalizer, &mut Cow::Borrowed(text))
}

/// The most bytes that a normalizer, as tokenizer.json has it, makes of a byte.
fn factor(normalizer: &Value) -> Result<f64, Error> {
    let length = |value: &Value| value.as_str().map_or(0.0, |text| text.len() as f64);
    Ok(match normalizer["type"].as_str().unwrap_or_default() {
        "Sequence" => {
            // A Unicode form does not decompose what another form has decomposed.
            let (mut forms, mut others) = (1.0, 1.0);
            for step in normalizer["normalizers"].as_array().into_iter().flatten() {
                let of = factor(step)?;
                match step["type"].as_str() {
                    Some("NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "BertNormalizer") => {
                        forms = f64::max(forms, of)
                    }
                    _ => others *= of,
                }
            }
            2.0 * forms * others
        }
        "Replace" => {
            let content = length(&normalizer["content"]);
            match normalizer["pattern"]["String"].as_str() {
                Some(pattern) if !pattern.is_empty() => (content / pattern.len() as f64).max(1.0),
                _ => 1.0 + content, // a regular expression may match between any two bytes
            }
        }
        "Prepend" => 1.0 + length(&normalizer["prepend"]),
        "Precompiled" => longest_image(&normalizer["precompiled_charsmap"])?,
        "BertNormalizer" => 5.0, // a decomposed letter; a Chinese character and two spaces
        "NFC" | "NFD" => 3.0,
        "NFKC" | "NFKD" => 11.0,
        "Lowercase" | "ByteLevel" => 2.0,
        _ => 1.0, // these only remove characters
    })
}

/// The length of the longest replacement in sentencepiece's rules. The replacements follow a trie,
/// whose size comes first, and are separated by zero bytes.
fn longest_image(charsmap: &Value) -> Result<f64, Error> {
    let bytes = base64::decode(charsmap.as_str().unwrap_or_default())?;
    let size = bytes.get(..4).map_or(0, |size| {
        u32::from_le_bytes([size[0], size[1], size[2], size[3]])
    });
    let images = bytes.get(4 + size as usize..).unwrap_or_default();
    Ok(images
        .split(|&byte| byte == 0)
        .map(<[u8]>::len)
        .max()
        .unwrap_or(0)
        .max(1) as f64)
}
