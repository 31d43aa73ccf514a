#!/usr/bin/env python3
"""Writes families/NAME/ for each row of FAMILIES: a small random checkpoint of that family as
Hugging Face saves it, with a tokenizer trained here, and what transformers computes. Families that
this version of transformers lacks are in make_newer_families.py.

    make_families.py [NAME...]

Out: families/NAME/                config.json, model.safetensors, tokenizer.json, and, where that
                                   is not what the family's tokenizer class expects,
                                   tokenizer_config.json
     families/NAME/expected.json   texts, pairs, ids, the last hidden states of padded batches

Written with Python 3.11, torch 2.11.0, transformers 4.57.1, tokenizers 0.22.2, sentencepiece 0.2.3
and protobuf; none of them is needed to build or test Castor.
"""

import json
import pathlib
import sys
import tempfile

import sentencepiece
import torch
import transformers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers,
                        processors, trainers)

LENGTH = 32  # tokens that most models take

# The lines that tokenizers are trained on.
LINES = [
    "The river rises in the hills and runs past the old mill to the sea.",
    "A letter came on Tuesday; nobody had expected an answer so soon.",
    "Le vieux moulin au bord de la rivière n'a plus de roue, mais l'été on y danse.",
    "Der Fluss fließt an der Mühle vorbei, über die Brücke und weiter ans Meer.",
    "El molino viejo está cerrado desde hace años, ¿quién lo abrirá mañana?",
    "Старая мельница стоит у реки, и вода бежит мимо неё к морю.",
    "古い水車は川のそばにあり、水は海へ流れていく。",
    "In 1897 the mill ground 250 sacks a day, at 3.5 pence each.",
] * 4

# The texts that are encoded, with their pairs.
CASES = [
    ("The old mill by the river.", None),
    ("", None),
    ("answers", None),
    ("Der Müller fließt  nicht; el niño está aquí!", None),
    ("Ｆｕｌｌ ｗｉｄｔｈ, ﬁne ½ and 水車 — мельница…", None),
    ("emoji 🌊🌊 and\ttabs\nlines", None),
    ("A letter came", "nobody had expected it"),
    ("l'été", "on y danse près de la rivière, 1897"),
    ("the river runs past the mill to the sea and the mill runs past the river to the sea and "
     "on and on until nobody knows which of the two it was that moved", None),
]


# For models that take more: longer than any of them does.
LONG_CASE = (" ".join(f"{line} {i}" for i, line in enumerate(LINES[:8] * 3)), None)


def loose_ids(vocabulary, padding):
    """Ids that no text gives, tokens of padding among them."""
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(0, vocabulary, (12,), generator=generator).tolist()
    return ids[:3] + [padding, padding] + ids[3:9] + [padding] + ids[9:]


def byte_bpe():
    """RoBERTa's: byte-level BPE. Ids: <s> 0, <pad> 1, </s> 2, <unk> 3, <mask> the last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(
        vocab_size=360, special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def charsmap(rules=()):
    """The normalizer of sentencepiece's nmt_nfkc, which XLM-RoBERTa has; or one of `rules`, of code
    points in sentencepiece's notation."""
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder, "rules.tsv")
        table.write_text("".join(rule + "\n" for rule in rules))
        normalization = ({"normalization_rule_tsv": str(table)} if rules
                         else {"normalization_rule_name": "nmt_nfkc"})
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES), model_prefix=f"{folder}/m", vocab_size=120,
            character_coverage=0.98, minloglevel=2, **normalization)
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(pathlib.Path(f"{folder}/m.model").read_bytes())
        return proto.normalizer_spec.precompiled_charsmap


def unigram(specials, begin, end, normalizer):
    trained = Tokenizer(models.Unigram())
    trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    trained.train_from_iterator(LINES, trainers.UnigramTrainer(
        vocab_size=300, special_tokens=specials, unk_token="<unk>", show_progress=False))
    trained.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    trained.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A {end} {end} $B {end}",
        special_tokens=[(token, trained.token_to_id(token)) for token in (begin, end)])
    return trained


def xlm_unigram():
    """XLM-RoBERTa's: Unigram behind sentencepiece's characters."""
    return unigram(["<s>", "<pad>", "</s>", "<unk>"], "<s>", "</s>",
                   normalizers.Precompiled(charsmap()))


def camembert_unigram():
    """CamemBERT's: its special tokens lie behind four that fairseq left."""
    return unigram(["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<s>", "</s>"], "<s>", "</s>",
                   normalizers.Sequence([normalizers.NFKC(),
                                         normalizers.Replace(Regex(" {2,}"), " ")]))


def word_piece():
    """DistilBERT's: BERT's, cased here."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(LINES, trainers.WordPieceTrainer(
        vocab_size=260, special_tokens=specials, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def mpnet_word_piece():
    """MPNet's: BERT's vocabulary behind RoBERTa's special tokens."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(LINES, trainers.WordPieceTrainer(
        vocab_size=260, special_tokens=specials, show_progress=False))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def modern_bpe():
    """ModernBERT's: byte-level BPE of composed characters, with BERT's special tokens."""
    specials = ["[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(
        vocab_size=360, special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    return tokenizer


def deberta_unigram():
    """DeBERTa's, of version 3."""
    trained = Tokenizer(models.Unigram())
    trained.normalizer = normalizers.Sequence([
        normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(),
        normalizers.Strip(left=False, right=True)])
    trained.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    trained.train_from_iterator(LINES, trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["[PAD]", "[CLS]", "[SEP]", "[UNK]"], unk_token="[UNK]",
        show_progress=False))
    trained.add_special_tokens(["[MASK]"])
    trained.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return trained


def qwen_bpe():
    """Qwen's: byte-level BPE of words as its class cuts them, with a mark at the end."""
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(LINES + ["yes", "no"] * 8, trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tokenizer.add_special_tokens(specials)
    end = tokenizer.token_to_id(specials[0])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="$A <|endoftext|>:0",
                                      pair="$A $B:0 <|endoftext|>:0",
                                      special_tokens=[(specials[0], end)])])
    return tokenizer


def bytes_bpe(specials):
    """BPE of characters, of bytes for those it lacks; spaces are letters."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    trained.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    learned = json.loads(trained.to_str())["model"]
    vocabulary = {token: i for i, token in enumerate(
        specials + [f"<0x{byte:02X}>" for byte in range(256)] + list(learned["vocab"]))}
    tokenizer = Tokenizer(models.BPE(
        vocabulary, [tuple(merge) for merge in learned["merges"]], byte_fallback=True,
        fuse_unk=True, unk_token="<unk>"))
    tokenizer.add_special_tokens(specials)
    return tokenizer


def llama_bpe():
    """Mistral's."""
    tokenizer = bytes_bpe(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
                                                 normalizers.Replace(" ", "▁")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> <s>:1 $B:1 </s>:1",
        special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


BERT_SIZES = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                  intermediate_size=40, layer_norm_eps=1e-5, initializer_range=0.3)
DISTIL_SIZES = dict(dim=24, n_layers=2, n_heads=3, hidden_dim=40, initializer_range=0.3,
                    max_position_embeddings=LENGTH)

MODERN_SIZES = dict(hidden_size=24, num_hidden_layers=4, num_attention_heads=3,
                    intermediate_size=36, initializer_range=0.3, initializer_cutoff_factor=3.0,
                    bos_token_id=0, cls_token_id=0, eos_token_id=1, sep_token_id=1, pad_token_id=3)

# Directory: the class that saves it (a head's class puts the family's prefix before the names),
# its tokenizer, its config. Options of the configs vary among them.
FAMILIES = {
    "roberta": (transformers.RobertaModel, byte_bpe,
                dict(BERT_SIZES, type_vocab_size=1, max_position_embeddings=LENGTH + 2)),
    "roberta_padding_0": (transformers.RobertaForMaskedLM, byte_bpe,
                          dict(BERT_SIZES, type_vocab_size=2, pad_token_id=0, hidden_act="silu",
                               max_position_embeddings=LENGTH + 1)),
    "xlm_roberta": (transformers.XLMRobertaForSequenceClassification, xlm_unigram,
                    dict(BERT_SIZES, type_vocab_size=1, hidden_act="gelu_new",
                         max_position_embeddings=LENGTH + 2)),
    "camembert": (transformers.CamembertModel, camembert_unigram,
                  dict(BERT_SIZES, type_vocab_size=1, bos_token_id=5, eos_token_id=6,
                       max_position_embeddings=LENGTH + 2)),
    "distilbert": (transformers.DistilBertModel, word_piece, DISTIL_SIZES),
    "distilbert_sinusoidal": (transformers.DistilBertForSequenceClassification, word_piece,
                              dict(DISTIL_SIZES, sinusoidal_pos_embds=True, activation="relu")),
    "mpnet": (transformers.MPNetModel, mpnet_word_piece,
              dict(BERT_SIZES, max_position_embeddings=LENGTH + 2)),
    "mpnet_long": (transformers.MPNetForMaskedLM, mpnet_word_piece,
                   dict(BERT_SIZES, hidden_act="gelu_new", num_attention_heads=2,
                        max_position_embeddings=280 + 2)),
    "modernbert": (transformers.ModernBertModel, modern_bpe,
                   dict(MODERN_SIZES, local_attention=10, max_position_embeddings=LENGTH)),
    "modernbert_biases": (transformers.ModernBertForMaskedLM, modern_bpe,
                          dict(MODERN_SIZES, local_attention=7, global_attn_every_n_layers=2,
                               norm_bias=True, attention_bias=True, mlp_bias=True,
                               hidden_activation="silu", num_attention_heads=2,
                               global_rope_theta=5000.0, local_rope_theta=None, norm_eps=1e-4,
                               max_position_embeddings=LENGTH)),
    "modernbert_long": (transformers.ModernBertForSequenceClassification, modern_bpe,
                        dict(MODERN_SIZES, local_attention=128, num_hidden_layers=5,
                             max_position_embeddings=300)),
}

# Seeds of random weights. Each directory keeps its own, so that a new one changes none.
SEEDS = {name: seed for seed, name in enumerate([
    "camembert", "distilbert", "distilbert_sinusoidal", "roberta", "roberta_padding_0",
    "xlm_roberta", "mpnet", "mpnet_long", "modernbert", "modernbert_biases", "modernbert_long"])}

# Tokens that a model takes, where not LENGTH.
LENGTHS = {"mpnet_long": 280, "modernbert_long": 300}


def expect(model, tokenizer, padding, cases, types=False, batch=3):
    """Every case, in padded batches. `types`: the model has token types, and takes the tokenizer's."""
    rows = []
    encodings = [tokenizer.encode(text, pair) for text, pair in cases]
    sequences = [(text, pair, each.ids, each.type_ids)
                 for (text, pair), each in zip(cases, encodings)]
    loose = loose_ids(tokenizer.get_vocab_size(), padding)
    sequences.append((None, None, loose, [0] * len(loose)))
    for first in range(0, len(sequences), batch):
        some = sequences[first:first + batch]
        longest = max(len(ids) for _, _, ids, _ in some)
        padded = lambda values, with_what: values + [with_what] * (longest - len(values))
        inputs = dict(
            input_ids=torch.tensor([padded(ids, padding) for _, _, ids, _ in some]),
            attention_mask=torch.tensor([padded([1] * len(ids), 0) for _, _, ids, _ in some]))
        if types:
            inputs["token_type_ids"] = torch.tensor([padded(kinds, 0) for _, _, _, kinds in some])
        with torch.no_grad():
            states = model(**inputs).last_hidden_state
        for (text, pair, ids, _), state in zip(some, states):
            rows.append({"text": text, "pair": pair, "ids": ids,
                         "rows": [[round(x, 7) for x in row] for row in state[:len(ids)].tolist()]})
    return rows


def shake(name, parameter):
    """Makes of a fresh norm or bias one that matters."""
    if name.endswith("bias") or "norm" in name.lower():
        parameter.add_(0.2 * torch.randn_like(parameter))


def save(out, tokenizer, length):
    """Writes the tokenizer, and makes it cut texts to `length` tokens."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    path = out / "tokenizer.json"
    path.unlink(missing_ok=True)  # a link, once share_tokenizers.py has run
    tokenizer.save(str(path))
    tokenizer.encode_special_tokens = True
    tokenizer.enable_truncation(length)


def generic_tokenizer(out, types=False):
    """Says that tokenizer.json counts as it is: else the family's own class would replace parts of
    it, and lower what is cased here. `types`: the model takes the tokenizer's token types."""
    names = ["input_ids"] + (["token_type_ids"] if types else []) + ["attention_mask"]
    (out / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": names}) + "\n")


def write_expected(out, expected):
    (out / "expected.json").write_text(
        json.dumps(expected, separators=(",", ":"), ensure_ascii=False))


def make(name):
    kind, make_tokenizer, settings = FAMILIES[name]
    out = pathlib.Path(__file__).parent / "families" / name
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    length = LENGTHS.get(name, LENGTH)
    torch.manual_seed(SEEDS[name])
    config = kind.config_class(vocab_size=tokenizer.get_vocab_size(), **settings)
    config._attn_implementation = "eager"
    whole = kind(config).eval().float()
    with torch.no_grad():
        for parameter_name, parameter in whole.named_parameters():
            shake(parameter_name, parameter)
            if "relative_attention_bias" in parameter_name:
                parameter.add_(torch.randn_like(parameter))
    whole.save_pretrained(out)
    save(out, tokenizer, length)
    if make_tokenizer is word_piece or make_tokenizer is camembert_unigram:
        generic_tokenizer(out)
    cases = CASES if length == LENGTH else CASES + [LONG_CASE]
    expected = expect(whole.base_model, tokenizer, config.pad_token_id, cases)
    write_expected(out, expected)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or FAMILIES:
        make(wanted)
        print(wanted)
