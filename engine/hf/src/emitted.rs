//! The greatest ids that a tokenizer can emit, and the tokens that its post-processor adds. They are
//! found by running the pipeline, which covers every kind of post-processor.

use crate::boundary::Error;
use serde_json::Value;
use tokenizers::{Encoding, Model, ModelWrapper, NormalizedString, Normalizer, Tokenizer};

/// Ordinary text, and characters that few vocabularies have.
const PROBE: &str = "A probe: 1 word, or 2. \u{A66E} \u{1242B} \u{16FE4} \u{10FFFF}";

/// As castor_hf.h lays it out.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Emitted {
    pub id_limit: u64, // one more than the greatest id of texts without special tokens
    pub type_limit: u64, // one more than the greatest type id
    pub added_tokens: [usize; 2], // by the post-processor: to a text, to a pair
    pub longest_token: usize, // in bytes
}

impl Emitted {
    /// An error if the tokenizer cannot encode every text.
    pub fn of(tokenizer: &Tokenizer) -> Result<Emitted, Error> {
        check_unknown_token(tokenizer.get_model())?;
        check_added_tokens(tokenizer)?;
        check_expansion(tokenizer)?;
        tokenizer.encode_fast(PROBE, false)?;
        let vocabulary = tokenizer.get_vocab(false);
        let added = tokenizer.get_added_tokens_decoder();
        let plain = added
            .iter()
            .filter(|(_, token)| !token.special)
            .map(|(id, _)| id);
        let greatest = vocabulary.values().chain(plain).max();
        let mut emitted = Emitted {
            id_limit: greatest.map_or(0, |&id| u64::from(id) + 1),
            type_limit: 0,
            added_tokens: [0; 2],
            longest_token: tokenizer
                .get_vocab(true)
                .keys()
                .map(String::len)
                .max()
                .unwrap_or(0),
        };
        emitted.added_tokens[0] = emitted.probe(tokenizer, 1, None)?;
        emitted.added_tokens[1] = emitted.probe(tokenizer, 1, Some(1))?;
        let more = [
            emitted.probe(tokenizer, 2, None)?,
            emitted.probe(tokenizer, 2, Some(1))?,
            emitted.probe(tokenizer, 1, Some(2))?,
        ];
        let once = [0, 1, 1].map(|pair| emitted.added_tokens[pair]);
        if more != once {
            return Err("the post-processor does not keep every token exactly once".into());
        }
        Ok(emitted)
    }

    /// The number of tokens that the post-processor adds to this many. Records all ids.
    fn probe(
        &mut self,
        tokenizer: &Tokenizer,
        first: usize,
        second: Option<usize>,
    ) -> Result<usize, Error> {
        let given = first + second.unwrap_or(0);
        let encoding = tokenizer.post_process(stand_in(first), second.map(stand_in), true)?;
        let limit = |ids: &[u32]| ids.iter().max().map_or(0, |&id| u64::from(id) + 1);
        self.id_limit = self.id_limit.max(limit(encoding.get_ids()));
        self.type_limit = self.type_limit.max(limit(encoding.get_type_ids()));
        let added = encoding.len().checked_sub(given);
        Ok(added.ok_or("the post-processor drops tokens of the text")?)
    }
}

/// Tokens of id 0, as `encode_fast` lays them out.
fn stand_in(tokens: usize) -> Encoding {
    (0..tokens)
        .map(|_| (0, String::new(), (0, 0), None, 0))
        .collect()
}

/// Called before anything is processed, so that a few lines of a file cannot become gigabytes.
fn check_expansion(tokenizer: &Tokenizer) -> Result<(), Error> {
    const MOST: usize = 4096;
    match expansion(&serde_json::to_value(tokenizer.get_post_processor())?) {
        0..=MOST => Ok(()),
        tokens => Err(format!(
            "post_processor: may make {tokens} tokens of one; at most {MOST} are allowed"
        )
        .into()),
    }
}

/// The most tokens that a post-processor, as tokenizer.json has it, makes of one. Processors of a
/// sequence multiply. 64 bytes of a special token count as one more token.
fn expansion(processor: &Value) -> usize {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let of_piece = |piece: &Value| match piece["SpecialToken"]["id"].as_str() {
        Some(id) => {
            let token = &processor["special_tokens"][id];
            let texts = token["tokens"].as_array().into_iter().flatten();
            let bytes: usize = texts.map(|text| text.as_str().map_or(0, str::len)).sum();
            token["ids"].as_array().map_or(0, Vec::len) + bytes / 64
        }
        None => 1,
    };
    match processor["type"].as_str() {
        Some("Sequence") => list(&processor["processors"])
            .iter()
            .fold(1, |all, one| all.saturating_mul(expansion(one))),
        Some("TemplateProcessing") => ["single", "pair"]
            .map(|kind| list(&processor[kind]).iter().map(of_piece).sum())
            .into_iter()
            .fold(1, usize::max),
        Some("BertProcessing" | "RobertaProcessing") => 3,
        _ => 1,
    }
}

/// An added token that the normalizer makes empty matches everywhere, even inside characters.
fn check_added_tokens(tokenizer: &Tokenizer) -> Result<(), Error> {
    let listed = tokenizer.get_added_tokens_decoder(); // a copy
    for (content, id) in tokenizer.get_added_vocabulary().get_vocab() {
        let mut normalized = NormalizedString::from(content.as_str());
        if let Some(normalizer) = tokenizer.get_normalizer() {
            normalizer.normalize(&mut normalized)?;
        }
        let as_it_is = listed.get(id).is_some_and(|token| !token.normalized);
        if normalized.get().is_empty() && !as_it_is {
            return Err(format!("the normalizer makes the added token {id} empty").into());
        }
    }
    Ok(())
}

/// Without its unknown token, a model fails at the first unknown word.
fn check_unknown_token(model: &ModelWrapper) -> Result<(), Error> {
    let unknown = match model {
        ModelWrapper::WordPiece(model) => &model.unk_token,
        ModelWrapper::WordLevel(model) => &model.unk_token,
        // These may know every byte or character and need no unknown token. PROBE shows whether they
        // do.
        ModelWrapper::BPE(_) | ModelWrapper::Unigram(_) => return Ok(()),
    };
    match model.token_to_id(unknown) {
        Some(_) => Ok(()),
        None => Err(format!("the vocabulary lacks the model's unknown token \"{unknown}\"").into()),
    }
}
