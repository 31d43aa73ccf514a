//! Makes a tokenizer of the files of a model directory, as transformers 5 does.
//!
//! A tokenizer class with a pipeline of its own takes only the vocabulary, the merges, the added
//! tokens and what it cannot make itself from tokenizer.json. Its normalizer, pre-tokenizer and
//! post-processor follow from tokenizer_config.json, with the class's defaults for absent keys.
//! Every other class takes tokenizer.json as it is. Source: transformers 5.24,
//! tokenization_utils_base.py (`_from_pretrained`), tokenization_utils_tokenizers.py
//! (`convert_to_native_format`, `__init__`) and models/*/tokenization_*.py.

use crate::boundary::Error;
use serde::Deserialize;
use serde_json::{json, Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{AddedToken, Tokenizer};

/// A directory's files.
pub struct Files<'a> {
    pub tokenizer: Option<&'a [u8]>,  // tokenizer.json
    pub vocabulary: Option<&'a [u8]>, // vocab.txt or vocab.json
    pub merges: Option<&'a [u8]>,
    pub settings: &'a [u8], // a Settings, as JSON
}

/// The other settings that decide.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    class: String, // without "Fast"; an unknown name is the class that takes tokenizer.json as it is
    lowercase: bool, // put Lowercase before the normalizer: sentence-transformers' do_lower_case
    tokenizer_config: Map<String, Value>,
    #[serde(default)]
    special_tokens_map: Option<Map<String, Value>>,
    #[serde(default)]
    added_tokens: Option<BTreeMap<String, u32>>, // added_tokens.json
}

const CONFIG: &str = "tokenizer_config.json";
const FILE: &str = "tokenizer.json";

/// transformers' SPECIAL_TOKENS_ATTRIBUTES.
const NAMED: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

fn fail<T>(file: &str, problem: impl std::fmt::Display) -> Result<T, Error> {
    Err(format!("{file}: {problem}").into())
}

/// A token as a setting names it: with flags of its own, or by its text only.
#[derive(Clone)]
struct Named {
    token: AddedToken,
    flagged: bool,
}

impl Named {
    fn plain(content: &str) -> Named {
        Named {
            token: AddedToken::from(content, true),
            flagged: false,
        }
    }

    fn read(file: &str, key: &str, value: &Value, special: bool) -> Result<Named, Error> {
        match value {
            Value::String(content) => Ok(Named::plain(content)),
            Value::Object(object) => Ok(Named {
                token: read_added(file, key, object, special)?,
                flagged: true,
            }),
            _ => fail(file, format!("{key}: must be a string or an added token")),
        }
    }
}

/// `AddedToken(**object)`. `special`: the token is special, whatever the object says.
fn read_added(
    file: &str,
    key: &str,
    object: &Map<String, Value>,
    special: bool,
) -> Result<AddedToken, Error> {
    let Some(content) = object.get("content").and_then(Value::as_str) else {
        return fail(file, format!("{key}.content: must be a string"));
    };
    let flag = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(set)) => Ok(Some(*set)),
        Some(_) => fail(file, format!("{key}.{name}: must be true or false")),
    };
    let special = special || flag("special")?.unwrap_or(false);
    Ok(AddedToken::from(content, special)
        .single_word(flag("single_word")?.unwrap_or(false))
        .lstrip(flag("lstrip")?.unwrap_or(false))
        .rstrip(flag("rstrip")?.unwrap_or(false))
        .normalized(flag("normalized")?.unwrap_or(!special)))
}

/// The arguments that `_from_pretrained` gathers before it calls the class.
struct Arguments {
    named: HashMap<&'static str, Option<Named>>, // None: null in the file
    extra: Option<Vec<Named>>,                   // extra_special_tokens
    other: Vec<Named>,                           // other keys that end with _token
    added: BTreeMap<u32, AddedToken>,            // added_tokens_decoder
    config: Map<String, Value>,                  // the class's own settings
}

impl Arguments {
    fn gather(settings: &mut Settings, tokenizer: Option<&Value>) -> Result<Arguments, Error> {
        let mut config = std::mem::take(&mut settings.tokenizer_config);
        if let Some(Value::Array(_)) = config.get("extra_special_tokens") {
            config.remove("additional_special_tokens");
        } else if let Some(additional) = config.remove("additional_special_tokens") {
            config.insert("extra_special_tokens".into(), additional);
        }
        let mut arguments = Arguments {
            named: HashMap::new(),
            extra: None,
            other: Vec::new(),
            added: BTreeMap::new(),
            config,
        };
        match arguments.config.remove("added_tokens_decoder") {
            Some(decoder) => arguments.read_decoder(&decoder)?,
            None => {
                arguments.merge_special_tokens(settings.special_tokens_map.take())?;
                arguments.merge_added_tokens(settings.added_tokens.take());
                arguments.merge_listed(tokenizer)?;
            }
        }
        arguments.read_tokens()?;
        Ok(arguments)
    }

    fn read_decoder(&mut self, decoder: &Value) -> Result<(), Error> {
        let key = "added_tokens_decoder";
        let Value::Object(decoder) = decoder else {
            return fail(CONFIG, format!("{key}: must be an object"));
        };
        for (id, token) in decoder {
            let at = format!("{key}.{id}");
            let (Ok(id), Value::Object(token)) = (id.parse(), token) else {
                return fail(CONFIG, format!("{at}: must be an added token under its id"));
            };
            self.added
                .insert(id, read_added(CONFIG, &at, token, false)?);
        }
        Ok(())
    }

    /// special_tokens_map.json counts if tokenizer_config.json lists no added tokens.
    fn merge_special_tokens(&mut self, map: Option<Map<String, Value>>) -> Result<(), Error> {
        for (key, mut value) in map.unwrap_or_default() {
            if let (Value::Object(token), true) = (&mut value, key != "extra_special_tokens") {
                token.insert("special".into(), true.into());
                token.insert("__type".into(), "AddedToken".into());
            }
            let key = match key.as_str() {
                // The library ignores this key unless the class takes it.
                "additional_special_tokens" if self.config.contains_key("extra_special_tokens") => {
                    continue
                }
                "additional_special_tokens" => "extra_special_tokens".to_string(),
                _ => key,
            };
            self.config.insert(key, value);
        }
        Ok(())
    }

    fn merge_added_tokens(&mut self, added: Option<BTreeMap<String, u32>>) {
        let mut special = HashSet::new();
        let content = |value: &Value| match value {
            Value::String(content) => Some(content.clone()),
            Value::Object(token) => token.get("content")?.as_str().map(str::to_owned),
            _ => None,
        };
        for key in NAMED {
            special.extend(self.config.get(key).and_then(content));
        }
        if let Some(Value::Array(extra)) = self.config.get("extra_special_tokens") {
            special.extend(extra.iter().filter_map(content));
        }
        for (content, id) in added.unwrap_or_default() {
            let special = special.contains(&content);
            let token = AddedToken::from(content, special).normalized(!special);
            self.added.insert(id, token);
        }
    }

    fn merge_listed(&mut self, tokenizer: Option<&Value>) -> Result<(), Error> {
        let Some(listed) = tokenizer.and_then(|json| json.get("added_tokens")) else {
            return Ok(());
        };
        let Value::Array(listed) = listed else {
            return fail(FILE, "added_tokens: must be a list");
        };
        for (i, token) in listed.iter().enumerate() {
            let at = format!("added_tokens[{i}]");
            let id = token
                .get("id")
                .and_then(Value::as_u64)
                .and_then(|id| u32::try_from(id).ok());
            let (Some(id), Value::Object(token)) = (id, token) else {
                return fail(FILE, format!("{at}: must be an added token with its id"));
            };
            self.added.insert(id, read_added(FILE, &at, token, false)?);
        }
        Ok(())
    }

    /// Takes every special token out of the settings.
    fn read_tokens(&mut self) -> Result<(), Error> {
        if let Some(Value::Object(tokens)) = self.config.remove("model_specific_special_tokens") {
            for (name, token) in tokens {
                self.other.push(Named::read(CONFIG, &name, &token, false)?);
            }
        }
        let by_content: HashMap<&str, &AddedToken> = self
            .added
            .values()
            .map(|token| (token.content.as_str(), token))
            .collect();
        let keys: Vec<String> = self.config.keys().cloned().collect();
        for key in keys {
            let named = NAMED.iter().find(|&&name| name == key);
            let is_extra = key == "extra_special_tokens";
            if named.is_none() && !is_extra && !key.ends_with("_token")
                || key == "add_bos_token"
                || key == "add_eos_token"
            {
                continue;
            }
            let value = self.config.remove(&key).unwrap_or_default();
            // In tokenizer_config.json, an object must say that it is an added token.
            if value.is_object() && !is_extra && value.get("__type").is_none() {
                return fail(
                    CONFIG,
                    format!("{key}: must be a string, or have a \"__type\""),
                );
            }
            if let Some(&name) = named {
                let mut token = match &value {
                    Value::Null => None,
                    value => Some(Named::read(CONFIG, &key, value, false)?),
                };
                // An added token with the same text decides its flags.
                if let Some(token) = &mut token {
                    if let Some(&added) = by_content.get(token.token.content.as_str()) {
                        *token = Named {
                            token: added.clone(),
                            flagged: true,
                        };
                    }
                }
                self.named.insert(name, token);
            } else if is_extra {
                match &value {
                    Value::Null => {}
                    Value::Array(tokens) => {
                        let read = |token| Named::read(CONFIG, &key, token, false);
                        self.extra = Some(tokens.iter().map(read).collect::<Result<_, _>>()?);
                    }
                    Value::Object(tokens) => {
                        for (name, token) in tokens {
                            self.other.push(Named::read(
                                CONFIG,
                                &format!("{key}.{name}"),
                                token,
                                false,
                            )?);
                        }
                    }
                    _ => {
                        return fail(
                            CONFIG,
                            format!("{key}: must be a list or an object of tokens"),
                        )
                    }
                }
            } else if value.is_string() || value.is_object() {
                self.other.push(Named::read(CONFIG, &key, &value, false)?);
            }
        }
        Ok(())
    }

    /// A named token that the class needs: the file's, or the class's own.
    fn token(&mut self, name: &'static str, own: &str) -> Result<String, Error> {
        match self
            .named
            .entry(name)
            .or_insert_with(|| Some(Named::plain(own)))
        {
            Some(named) => Ok(named.token.content.clone()),
            None => fail(
                CONFIG,
                format!("{name}: must not be null, since the tokenizer class needs it"),
            ),
        }
    }

    /// A named token that may be null.
    fn optional(&mut self, name: &'static str, own: &str) {
        self.named
            .entry(name)
            .or_insert_with(|| Some(Named::plain(own)));
    }

    /// A mask that takes the space before it, unless the file sets its flags.
    fn spaced_mask(&mut self) {
        self.optional("mask_token", "<mask>");
        if let Some(Some(mask)) = self.named.get_mut("mask_token") {
            if !mask.flagged {
                mask.token = mask.token.clone().lstrip(true);
            }
        }
    }

    fn bool(&self, key: &str, own: bool) -> Result<bool, Error> {
        match self.config.get(key) {
            None => Ok(own),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => fail(CONFIG, format!("{key}: must be true or false")),
        }
    }

    /// A setting that may be null, true or false.
    fn choice(&self, key: &str) -> Result<Option<bool>, Error> {
        match self.config.get(key) {
            Some(Value::Null) => Ok(None),
            _ => self
                .config
                .get(key)
                .map(|_| self.bool(key, false))
                .transpose(),
        }
    }
}

/// The model's part of tokenizer.json, or of the older files.
struct Source<'a> {
    json: Option<Value>,
    files: &'a Files<'a>,
    class: &'a str,
}

impl Source<'_> {
    /// The vocabulary of a tokenizer.json whose model is of this type.
    fn take(&mut self, kind: &str, key: &str) -> Result<Option<Value>, Error> {
        let Some(model) = self.json.as_mut().and_then(|json| json.get_mut("model")) else {
            return Ok(None);
        };
        if model
            .get("type")
            .and_then(Value::as_str)
            .is_some_and(|given| given != kind)
        {
            return fail(
                CONFIG,
                format!(
                    "tokenizer_class: {} makes a {kind}, but the model of tokenizer.json is a {}; \
                     \"PreTrainedTokenizerFast\" takes tokenizer.json as it is",
                    self.class, model["type"]
                ),
            );
        }
        Ok(model.get_mut(key).map(Value::take))
    }

    fn word_piece(&mut self, unknown: &str) -> Result<Value, Error> {
        let vocabulary = match self.take("WordPiece", "vocab")? {
            Some(vocabulary) => vocabulary,
            None => {
                let text = self.files.vocabulary.ok_or("vocab.txt: is missing")?;
                let read = WordPiece::read_bytes(text).map_err(|e| format!("vocab.txt: {e}"))?;
                json!(read.into_iter().collect::<HashMap<_, _>>())
            }
        };
        Ok(
            json!({"type": "WordPiece", "unk_token": unknown, "vocab": vocabulary,
                  "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}),
        )
    }

    fn bpe(&mut self, more: Value) -> Result<Value, Error> {
        let mut model = json!({"type": "BPE", "dropout": null, "unk_token": null,
                               "continuing_subword_prefix": null, "end_of_word_suffix": null,
                               "fuse_unk": false, "byte_fallback": false});
        let vocabulary = self.take("BPE", "vocab")?;
        let merges = self.take("BPE", "merges")?;
        (model["vocab"], model["merges"]) = match (vocabulary, merges) {
            (Some(vocabulary), merges) => (vocabulary, merges.unwrap_or_else(|| json!([]))),
            (None, _) => {
                let vocabulary = self.files.vocabulary.ok_or("vocab.json: is missing")?;
                let merges = self.files.merges.ok_or("merges.txt: is missing")?;
                let merges = std::str::from_utf8(merges).map_err(|e| format!("merges.txt: {e}"))?;
                let rows = merges.lines().filter(|row| !row.starts_with("#version"));
                let vocabulary: Value =
                    serde_json::from_slice(vocabulary).map_err(|e| format!("vocab.json: {e}"))?;
                (vocabulary, json!(rows.collect::<Vec<_>>()))
            }
        };
        if let (Value::Object(model), Value::Object(more)) = (&mut model, more) {
            model.extend(more);
        }
        Ok(model)
    }

    fn unigram(&mut self) -> Result<Value, Error> {
        let Some(vocabulary) = self.take("Unigram", "vocab")? else {
            return fail("sentencepiece.bpe.model", "cannot be read");
        };
        Ok(json!({"type": "Unigram", "unk_id": 3, "vocab": vocabulary, "byte_fallback": false}))
    }

    /// The normalizer that sentencepiece's rules were converted to.
    fn precompiled(&mut self) -> Option<Value> {
        let normalizer = self.json.as_mut()?.get_mut("normalizer")?.take();
        let is = |part: &Value| part.get("type").and_then(Value::as_str) == Some("Precompiled");
        match normalizer.get("normalizers") {
            Some(Value::Array(parts)) => parts.iter().find(|&part| is(part)).cloned(),
            _ => Some(normalizer).filter(is),
        }
    }

    /// Parses the rest of tokenizer.json after its vocabulary was taken, as the library does: an error
    /// in a part that the class does not use is still an error.
    fn check_rest(&self) -> Result<(), Error> {
        let Some(mut rest) = self.json.clone() else {
            return Ok(());
        };
        rest["added_tokens"] = json!([]);
        let model = &mut rest["model"];
        match model["type"].as_str() {
            Some("Unigram") => {
                model["vocab"] = json!([["", 0.0]]);
                model["unk_id"] = Value::Null;
            }
            Some("BPE") => (model["vocab"], model["merges"]) = (json!({}), json!([])),
            Some(_) => model["vocab"] = json!({}),
            None => return Ok(()),
        }
        match serde_json::from_value::<Tokenizer>(rest) {
            Ok(_) => Ok(()),
            Err(error) => fail(FILE, error),
        }
    }

    fn post_processor(&mut self) -> Option<Value> {
        let processor = self.json.as_mut()?.get_mut("post_processor")?.take();
        Some(processor).filter(|processor| !processor.is_null())
    }
}

/// A class's pipeline without its tokens, and the post-processor that is made once tokens have ids.
struct Pipeline {
    normalizer: Option<Value>,
    pre_tokenizer: Value,
    model: Value,
    decoder: Value,
    processor: Processor,
}

enum Processor {
    Bert {
        cls: String,
        sep: String,
    },
    Roberta {
        cls: String,
        sep: String,
        trim_offsets: bool,
        add_prefix_space: bool,
    },
    Doubled {
        bos: String,
        eos: String,
    }, // a pair's texts have two of `eos` between them
    File(Option<Value>),
}

/// A pre-tokenizer and a decoder.
fn metaspace(scheme: &str) -> Value {
    json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": true})
}

/// models/qwen2/tokenization_qwen2.py, PRETOKENIZE_REGEX.
const QWEN2_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

fn byte_level(add_prefix_space: bool, use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true,
           "use_regex": use_regex})
}

/// None: the class takes tokenizer.json as it is.
fn pipeline(
    class: &str,
    arguments: &mut Arguments,
    source: &mut Source,
) -> Result<Option<Pipeline>, Error> {
    let made = match class {
        "BertTokenizer" | "DistilBertTokenizer" | "MPNetTokenizer" => {
            let mpnet = class == "MPNetTokenizer";
            let (cls, sep) = if mpnet {
                ("<s>", "</s>")
            } else {
                ("[CLS]", "[SEP]")
            };
            let unknown = arguments.token("unk_token", "[UNK]")?;
            let (cls, sep) = (
                arguments.token("cls_token", cls)?,
                arguments.token("sep_token", sep)?,
            );
            arguments.optional("pad_token", if mpnet { "<pad>" } else { "[PAD]" });
            if mpnet {
                arguments.optional("bos_token", "<s>");
                arguments.optional("eos_token", "</s>");
                arguments.spaced_mask();
            } else {
                arguments.optional("mask_token", "[MASK]");
            }
            Pipeline {
                normalizer: Some(json!({
                    "type": "BertNormalizer", "clean_text": true,
                    "handle_chinese_chars": arguments.bool("tokenize_chinese_chars", true)?,
                    "strip_accents": arguments.choice("strip_accents")?,
                    "lowercase": arguments.bool("do_lower_case", true)?})),
                pre_tokenizer: json!({"type": "BertPreTokenizer"}),
                model: source.word_piece(&unknown)?,
                decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
                processor: match mpnet {
                    true => Processor::Roberta {
                        cls,
                        sep,
                        trim_offsets: true,
                        add_prefix_space: false,
                    },
                    false => Processor::Bert { cls, sep },
                },
            }
        }
        "RobertaTokenizer" => {
            let (cls, sep) = (
                arguments.token("cls_token", "<s>")?,
                arguments.token("sep_token", "</s>")?,
            );
            for (name, own) in [
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
                ("pad_token", "<pad>"),
                ("mask_token", "<mask>"),
            ] {
                arguments.optional(name, own);
            }
            let add_prefix_space = arguments.bool("add_prefix_space", false)?;
            Pipeline {
                normalizer: None,
                pre_tokenizer: byte_level(add_prefix_space, true),
                model: source
                    .bpe(json!({"continuing_subword_prefix": "", "end_of_word_suffix": ""}))?,
                decoder: byte_level(true, true),
                processor: Processor::Roberta {
                    cls,
                    sep,
                    add_prefix_space,
                    trim_offsets: arguments.bool("trim_offsets", true)?,
                },
            }
        }
        "XLMRobertaTokenizer" | "CamembertTokenizer" => {
            let (bos, eos) = (
                arguments.token("bos_token", "<s>")?,
                arguments.token("eos_token", "</s>")?,
            );
            let unknown = arguments.token("unk_token", "<unk>")?;
            for (name, own) in [
                ("sep_token", "</s>"),
                ("cls_token", "<s>"),
                ("pad_token", "<pad>"),
            ] {
                arguments.optional(name, own);
            }
            let mut model = source.unigram()?;
            if class == "CamembertTokenizer" {
                arguments.spaced_mask();
                let own = ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"];
                arguments
                    .extra
                    .get_or_insert_with(|| own.map(Named::plain).to_vec());
                let rows = model["vocab"].as_array().map_or(&[][..], Vec::as_slice);
                let id = rows
                    .iter()
                    .position(|row| row.get(0).and_then(Value::as_str) == Some(&unknown));
                model["unk_id"] = json!(id.unwrap_or(0));
            } else {
                arguments.optional("mask_token", "<mask>");
            }
            let scheme = match arguments.bool("add_prefix_space", true)? {
                true => "always",
                false => "never",
            };
            Pipeline {
                normalizer: source.precompiled(),
                pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [
                    {"type": "WhitespaceSplit"}, metaspace(scheme)]}),
                model,
                decoder: metaspace(scheme),
                processor: Processor::Doubled { bos, eos },
            }
        }
        "DebertaV2Tokenizer" => {
            let (cls, sep) = (
                arguments.token("cls_token", "[CLS]")?,
                arguments.token("sep_token", "[SEP]")?,
            );
            let unknown = arguments.token("unk_token", "[UNK]")?;
            for (name, own) in [
                ("bos_token", "[CLS]"),
                ("eos_token", "[SEP]"),
                ("pad_token", "[PAD]"),
                ("mask_token", "[MASK]"),
            ] {
                arguments.optional(name, own);
            }
            let mut model = source.unigram()?;
            let rows = model["vocab"].as_array().map_or(&[][..], Vec::as_slice);
            let id = rows.iter().position(|row| {
                row.get(0).and_then(Value::as_str) == Some(&unknown)
                    && row.get(1).and_then(Value::as_f64) == Some(0.0)
            });
            let named = arguments.config.get("unk_id").and_then(Value::as_u64);
            model["unk_id"] = json!(id.unwrap_or(named.unwrap_or(1) as usize));
            let mut normalizers = vec![
                json!({"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "}),
                json!({"type": "NFC"}),
                json!({"type": "Strip", "strip_left": false, "strip_right": true}),
            ];
            if arguments.bool("do_lower_case", false)? {
                normalizers.insert(0, json!({"type": "Lowercase"}));
            }
            let scheme = if arguments.bool("add_prefix_space", true)? {
                "always"
            } else {
                "first"
            };
            let mut words = vec![metaspace(scheme)];
            if arguments.bool("split_by_punct", false)? {
                words.insert(0, json!({"type": "Punctuation", "behavior": "Isolated"}));
            }
            Pipeline {
                normalizer: Some(json!({"type": "Sequence", "normalizers": normalizers})),
                pre_tokenizer: json!({"type": "Sequence", "pretokenizers": words}),
                model,
                decoder: metaspace(scheme),
                processor: Processor::Bert { cls, sep },
            }
        }
        "GemmaTokenizer" => {
            let unknown = arguments.token("unk_token", "<unk>")?;
            for (name, own) in [
                ("bos_token", "<bos>"),
                ("eos_token", "<eos>"),
                ("pad_token", "<pad>"),
                ("mask_token", "<mask>"),
            ] {
                arguments.optional(name, own);
            }
            Pipeline {
                normalizer: Some(
                    json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}),
                ),
                pre_tokenizer: json!({"type": "Split", "pattern": {"String": " "},
                                      "behavior": "MergedWithPrevious", "invert": false}),
                model: source
                    .bpe(json!({"fuse_unk": true, "unk_token": unknown, "byte_fallback": true}))?,
                decoder: json!({"type": "Sequence", "decoders": [
                    {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
                    {"type": "ByteFallback"}, {"type": "Fuse"}]}),
                processor: Processor::File(source.post_processor()),
            }
        }
        "Qwen2Tokenizer" => {
            for name in ["unk_token", "eos_token", "pad_token"] {
                arguments.optional(name, "<|endoftext|>");
            }
            let add_prefix_space = arguments.choice("add_prefix_space")?.unwrap_or(false);
            Pipeline {
                normalizer: Some(json!({"type": "NFC"})),
                pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": QWEN2_WORDS}, "behavior": "Isolated", "invert": false},
                    byte_level(add_prefix_space, false)]}),
                model: source
                    .bpe(json!({"continuing_subword_prefix": "", "end_of_word_suffix": ""}))?,
                decoder: byte_level(true, true),
                processor: Processor::File(source.post_processor()),
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(made))
}

/// The tokens that the class adds to its backend, in order.
fn tokens_to_add(arguments: &Arguments, tokenizer: &Tokenizer) -> Vec<AddedToken> {
    let mut present: HashSet<String> = tokenizer
        .get_added_vocabulary()
        .get_vocab()
        .keys()
        .cloned()
        .collect();
    let named: Vec<&Named> = NAMED
        .iter()
        .filter_map(|name| arguments.named.get(name)?.as_ref())
        .chain(&arguments.other)
        .collect();
    let names: HashSet<&str> = named
        .iter()
        .map(|named| named.token.content.as_str())
        .collect();
    let special = |token: &AddedToken| {
        let mut token = token.clone();
        token.special |= names.contains(token.content.as_str());
        token
    };
    let mut tokens: Vec<AddedToken> = arguments.added.values().map(special).collect();
    present.extend(tokens.iter().map(|token| token.content.clone()));
    for one in named.into_iter().chain(arguments.extra.iter().flatten()) {
        if present.insert(one.token.content.clone()) {
            tokens.push(special(&one.token));
        }
    }
    tokens
}

/// A template of these pieces, with their type ids: special tokens, "$A" and "$B".
fn template(
    single: &[(&str, u32)],
    pair: &[(&str, u32)],
    tokenizer: &Tokenizer,
) -> Result<Value, Error> {
    let mut special = Map::new();
    let mut pieces = |pieces: &[(&str, u32)]| -> Result<Value, Error> {
        let mut row = Vec::new();
        for &(piece, type_id) in pieces {
            if piece == "$A" || piece == "$B" {
                row.push(json!({"Sequence": {"id": &piece[1..], "type_id": type_id}}));
                continue;
            }
            let id = tokenizer
                .token_to_id(piece)
                .ok_or_else(|| format!("{CONFIG}: \"{piece}\" has no id"))?;
            special.insert(
                piece.into(),
                json!({"id": piece, "ids": [id], "tokens": [piece]}),
            );
            row.push(json!({"SpecialToken": {"id": piece, "type_id": type_id}}));
        }
        Ok(Value::Array(row))
    };
    let (single, pair) = (pieces(single)?, pieces(pair)?);
    Ok(
        json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}),
    )
}

fn processor(of: Processor, tokenizer: &Tokenizer) -> Result<Value, Error> {
    let id = |token: &str| {
        tokenizer
            .token_to_id(token)
            .ok_or_else(|| format!("{CONFIG}: \"{token}\" has no id"))
    };
    match of {
        Processor::Bert { cls, sep } => template(
            &[(&cls, 0), ("$A", 0), (&sep, 0)],
            &[(&cls, 0), ("$A", 0), (&sep, 0), ("$B", 1), (&sep, 1)],
            tokenizer,
        ),
        Processor::Doubled { bos, eos } => template(
            &[(&bos, 0), ("$A", 0), (&eos, 0)],
            &[
                (&bos, 0),
                ("$A", 0),
                (&eos, 0),
                (&eos, 0),
                ("$B", 0),
                (&eos, 0),
            ],
            tokenizer,
        ),
        Processor::Roberta {
            cls,
            sep,
            trim_offsets,
            add_prefix_space,
        } => Ok(json!({
            "type": "RobertaProcessing", "sep": [sep, id(&sep)?], "cls": [cls, id(&cls)?],
            "trim_offsets": trim_offsets, "add_prefix_space": add_prefix_space})),
        Processor::File(Some(processor)) => Ok(processor),
        Processor::File(None) => template(&[("$A", 0)], &[("$A", 0), ("$B", 1)], tokenizer),
    }
}

/// sentence-transformers' `do_lower_case`: a Lowercase before the normalizer, unless it has one.
fn with_lowercase(normalizer: Option<Value>) -> Value {
    let lowers = |part: &Value| part.get("type").and_then(Value::as_str) == Some("Lowercase");
    let mut parts = match normalizer {
        None => vec![],
        Some(mut whole) => match whole.get_mut("normalizers") {
            Some(Value::Array(parts)) => std::mem::take(parts),
            _ => vec![whole],
        },
    };
    if !parts.iter().any(lowers) {
        parts.insert(0, json!({"type": "Lowercase"}));
    }
    json!({"type": "Sequence", "normalizers": parts})
}

/// Makes the tokenizer. Also returns whether tokenizer.json's truncation is on the left.
pub fn assemble(files: &Files) -> Result<(Tokenizer, bool), Error> {
    let mut settings: Settings =
        serde_json::from_slice(files.settings).map_err(|e| format!("{CONFIG}: {e}"))?;
    let json = match files.tokenizer {
        Some(text) => {
            let json: Value = serde_json::from_slice(text).map_err(|e| format!("{FILE}: {e}"))?;
            if !json.get("model").is_some_and(Value::is_object) {
                return fail(FILE, "model: is missing");
            }
            Some(json)
        }
        None => None,
    };
    let left = json
        .as_ref()
        .is_some_and(|json| json["truncation"]["direction"].as_str() == Some("Left"));
    let mut arguments = Arguments::gather(&mut settings, json.as_ref())?;
    let class = std::mem::take(&mut settings.class);
    let mut source = Source {
        json,
        files,
        class: &class,
    };
    let made = pipeline(&class, &mut arguments, &mut source)?;
    let (mut json, processing) = match made {
        Some(made) => {
            source.check_rest()?;
            let json = json!({"version": "1.0", "added_tokens": [], "normalizer": made.normalizer,
                              "pre_tokenizer": made.pre_tokenizer, "model": made.model,
                              "decoder": made.decoder});
            (json, Some(made.processor))
        }
        None => {
            let json = source
                .json
                .take()
                .ok_or_else(|| format!("{FILE}: is missing"))?;
            // transformers sets a template where the file has no post-processor.
            let none = json.get("post_processor").map_or(true, Value::is_null);
            (json, none.then_some(Processor::File(None)))
        }
    };
    if settings.lowercase {
        let normalizer = json["normalizer"].take();
        json["normalizer"] = with_lowercase(Some(normalizer).filter(|whole| !whole.is_null()));
    }
    let mut tokenizer: Tokenizer =
        serde_json::from_value(json).map_err(|e| format!("{FILE}: {e}"))?;
    let tokens = tokens_to_add(&arguments, &tokenizer);
    tokenizer
        .add_tokens(tokens)
        .map_err(|e| format!("{FILE}: {e}"))?;
    if let Some(processing) = processing {
        let processor = processor(processing, &tokenizer)?;
        tokenizer.with_post_processor(Some(
            serde_json::from_value::<tokenizers::PostProcessorWrapper>(processor)
                .map_err(|e| format!("{FILE}: post_processor: {e}"))?,
        ));
    }
    Ok((tokenizer, left))
}
