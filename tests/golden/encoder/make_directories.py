#!/usr/bin/env python3
"""Saves small random models of every family and head as the libraries of this Python save them.

    make_directories.py save OUT [NAME...]    OUT/NAME/, and in it expected.json: what the same
                                              libraries compute once they have loaded it again
    make_directories.py read OUT              OUT/NAME/expected-VERSION.json: what these libraries
                                              compute of directories that others saved
    make_directories.py real PACKAGES OUT     the same of checkpoints that Python packages contain,
                                              which become OUT/NAME

NAME is FAMILY-HEAD, of FAMILIES and HEADS. check_directories.sh runs this with several versions of
sentence-transformers and transformers; those that are committed (directories/) and their variations
come from make_variations.py.
"""

import importlib.util
import json
import pathlib
import shutil
import sys
import tempfile

import read_directory
import sentence_transformers
import torch
import transformers
from make_families import (byte_bpe, bytes_bpe, charsmap, deberta_unigram, llama_bpe, modern_bpe, mpnet_word_piece,
                           qwen_bpe, unigram, word_piece)
from sentence_transformers import models as modules
from sentence_transformers.sparse_encoder import models as sparse_modules
from tokenizers import normalizers, pre_tokenizers, processors

T = transformers
LENGTH = 32
CASES = [
    ("The old mill by the river.", None),
    ("", None),
    ("answers", None),
    ("Der MÜLLER fließt  nicht; el niño está aquí!", None),
    ("Ｆｕｌｌ ｗｉｄｔｈ, ﬁne ½ and 水車 — мельница…", None),
    ("emoji 🌊🌊 and\ttabs\nlines", None),
    ("  spaces at both ends ", None),
    ("the river runs past the mill to the sea and the mill runs past the river to the sea and "
     "on and on until nobody knows which of the two it was that moved", None),
    ("A letter came", "nobody had expected it"),
    ("l'été", "on y danse près de la rivière, 1897"),
    ("", "the mill"),
    ("The sacks of grain", "the river runs past the mill to the sea and the mill runs past the "
     "river to the sea and on and on until nobody knows which of the two it was that moved"),
]


def sentencepieces():
    """XLM-RoBERTa's kind, behind a table of characters that is small."""
    return unigram(["<s>", "<pad>", "</s>", "<unk>"], "<s>", "</s>",
                   normalizers.Precompiled(charsmap(["FF26\t46", "00BD\t31 2044 32", "2026\t2E"])))


def camembert_sentencepieces():
    return unigram(["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"],
                   "<s>", "</s>",
                   normalizers.Precompiled(charsmap(["FF26\t46", "00BD\t31 2044 32"])))


def gemma_bpe():
    tokenizer = bytes_bpe(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", pair="<bos> $A <eos> <bos>:1 $B:1 <eos>:1",
        special_tokens=[("<bos>", 2), ("<eos>", 1)])
    return tokenizer


HIDDEN = 8
SIZES = dict(hidden_size=HIDDEN, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
             initializer_range=0.4, max_position_embeddings=LENGTH)
ROBERTA = dict(SIZES, type_vocab_size=1, max_position_embeddings=LENGTH + 2)
BERT_TOKENS = dict(cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]",
                   mask_token="[MASK]")
ROBERTA_TOKENS = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>",
                      pad_token="<pad>", unk_token="<unk>", mask_token="<mask>")

GENERIC = dict(tokenizer_class="PreTrainedTokenizerFast",
               model_input_names=["input_ids", "attention_mask"])
QWEN_TOKENS = dict(tokenizer_class="Qwen2Tokenizer", eos_token="<|endoftext|>",
                   pad_token="<|endoftext|>",
                   additional_special_tokens=["<|im_start|>", "<|im_end|>"])
QWEN_PADDING = qwen_bpe().token_to_id("<|endoftext|>")

# Family: the start of its classes' names; its tokenizer and what tokenizer_config.json says of it;
# config.json; the pooling of its embedding model. Some are not in transformers 4.
FAMILIES = {
    "bert": ("Bert", word_piece, dict(BERT_TOKENS, tokenizer_class="BertTokenizer",
                                      do_lower_case=False), SIZES, "mean"),
    "roberta": ("Roberta", byte_bpe, dict(ROBERTA_TOKENS, tokenizer_class="RobertaTokenizer"),
                ROBERTA, "cls"),
    "xlm_roberta": ("XLMRoberta", sentencepieces,
                    dict(ROBERTA_TOKENS, tokenizer_class="XLMRobertaTokenizer"), ROBERTA, "max"),
    "camembert": ("Camembert", camembert_sentencepieces,
                  dict(ROBERTA_TOKENS, tokenizer_class="CamembertTokenizer"),
                  dict(ROBERTA, bos_token_id=5, eos_token_id=6), "mean"),
    "distilbert": ("DistilBert", word_piece,
                   dict(BERT_TOKENS, tokenizer_class="DistilBertTokenizer", do_lower_case=True),
                   dict(dim=HIDDEN, n_layers=1, n_heads=2, hidden_dim=16, initializer_range=0.4,
                        max_position_embeddings=LENGTH), "mean_sqrt_len_tokens"),
    "mpnet": ("MPNet", mpnet_word_piece,
              dict(ROBERTA_TOKENS, unk_token="[UNK]", tokenizer_class="MPNetTokenizer",
                   do_lower_case=True),
              dict(SIZES, max_position_embeddings=LENGTH + 2), "mean"),
    "modernbert": ("ModernBert", modern_bpe,
                   dict(BERT_TOKENS, **GENERIC),
                   dict(SIZES, num_hidden_layers=2, global_attn_every_n_layers=2,
                        local_attention=10, bos_token_id=0, cls_token_id=0, eos_token_id=1,
                        sep_token_id=1, pad_token_id=3), "mean"),
    "nomic_bert": ("NomicBert", word_piece, dict(BERT_TOKENS, tokenizer_class="BertTokenizer",
                                                 do_lower_case=True), SIZES, "weightedmean"),
    "gte": ("Gte", sentencepieces, dict(ROBERTA_TOKENS, tokenizer_class="XLMRobertaTokenizer"),
            dict(SIZES, type_vocab_size=1), "cls"),
    "eurobert": ("EuroBert", modern_bpe,
                 dict(BERT_TOKENS, **GENERIC),
                 dict(SIZES, pad_token_id=3, bos_token_id=0, eos_token_id=1, mask_token_id=4),
                 "mean"),
    "jina_v3": ("JinaEmbeddingsV3", sentencepieces,
                dict(ROBERTA_TOKENS, tokenizer_class="XLMRobertaTokenizer"), SIZES, "mean"),
    "gemma": ("Gemma3Text", gemma_bpe,
              dict(tokenizer_class="GemmaTokenizer", bos_token="<bos>", eos_token="<eos>",
                   pad_token="<pad>", unk_token="<unk>", mask_token="<mask>"),
              dict(SIZES, num_hidden_layers=2, num_key_value_heads=1, head_dim=4,
                   query_pre_attn_scalar=6, sliding_window=10, use_bidirectional_attention=True,
                   layer_types=["sliding_attention", "full_attention"]), "lasttoken"),
    "qwen3": ("Qwen3", qwen_bpe, QWEN_TOKENS,
              dict(SIZES, num_key_value_heads=1, head_dim=6, num_hidden_layers=2,
                   use_sliding_window=True, sliding_window=6, max_window_layers=1,
                   pad_token_id=QWEN_PADDING), "lasttoken"),
    "qwen2": ("Qwen2", qwen_bpe, QWEN_TOKENS,
              dict(SIZES, num_hidden_layers=2, num_key_value_heads=1,
                   pad_token_id=QWEN_PADDING), "lasttoken"),
    "electra": ("Electra", word_piece, dict(BERT_TOKENS, tokenizer_class="ElectraTokenizer",
                                            do_lower_case=True),
                dict(SIZES, embedding_size=6), "cls"),
    "deberta": ("DebertaV2", deberta_unigram,
                dict(BERT_TOKENS, tokenizer_class="DebertaV2Tokenizer", do_lower_case=False),
                dict(SIZES, relative_attention=True, position_buckets=8, share_att_key=True,
                     norm_rel_ebd="layer_norm", position_biased_input=False,
                     pos_att_type=["p2c", "c2p"]), "mean"),
    "mistral": ("Mistral", llama_bpe,
                dict(tokenizer_class="LlamaTokenizer", bos_token="<s>", eos_token="</s>",
                     pad_token="</s>", unk_token="<unk>"),
                dict(SIZES, num_hidden_layers=2, num_key_value_heads=1, sliding_window=6,
                     pad_token_id=2), "lasttoken"),
}


def shaken(model):
    """Biases and norms are zeros and ones at first."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name.lower():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval().float()


def plain(family, head, out, **settings):
    """As transformers writes it: a class of `family` that ends in `head`, and its tokenizer."""
    prefix, make_tokenizer, described, config, _ = FAMILIES[family]
    kind = getattr(T, prefix + head)
    tokenizer = make_tokenizer()
    tokenizer.no_padding()
    tokenizer.no_truncation()
    torch.manual_seed(sum(map(ord, family + head)))
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder)
        config = kind.config_class(vocab_size=tokenizer.get_vocab_size(), **config, **settings)
        shaken(kind(config)).save_pretrained(source)
        tokenizer.save(str(source / "tokenizer.json"))
        (source / "tokenizer_config.json").write_text(
            json.dumps(dict(described, model_max_length=LENGTH)))
        getattr(T, prefix + head).from_pretrained(source, dtype=torch.float32).save_pretrained(out)
        T.AutoTokenizer.from_pretrained(source).save_pretrained(out)


def piped(build):
    """A head that sentence-transformers saves: build(directory of transformers, family)."""
    def make(family, out):
        with tempfile.TemporaryDirectory() as folder:
            build.base(family, folder)
            model = build(folder, family).eval()
            for module in list(model.children())[1:]:
                shaken(module)
            model.save(str(out))
    return make


def based(head, **settings):
    def mark(build):
        build.base = lambda family, folder: plain(family, head, folder, **settings)
        return build
    return mark


@based("Model")
def embed(folder, family):
    return sentence_transformers.SentenceTransformer(modules=[
        modules.Transformer(folder), modules.Pooling(HIDDEN, FAMILIES[family][-1])])


@based("Model")
def embed_more(folder, family):
    """Everything that may stand behind the Transformer, with prompts and a cut."""
    poolings = dict(pooling_mode_cls_token=True, pooling_mode_max_tokens=True,
                    pooling_mode_mean_tokens=True)
    return sentence_transformers.SentenceTransformer(
        modules=[modules.Transformer(folder, max_seq_length=20, do_lower_case=True),
                 modules.Pooling(HIDDEN, **poolings), modules.LayerNorm(3 * HIDDEN),
                 modules.Dense(3 * HIDDEN, 20, activation_function=torch.nn.Tanh()),
                 modules.Dropout(0.3),
                 modules.Dense(20, 12, bias=False, activation_function=torch.nn.GELU()),
                 modules.Normalize()],
        prompts={"query": "the river: ", "document": ""}, default_prompt_name="query",
        truncate_dim=8, similarity_fn_name="dot")


@based("ForSequenceClassification", num_labels=1)
def cross(folder, _):
    return sentence_transformers.CrossEncoder(folder, max_length=LENGTH)


@based("ForSequenceClassification", num_labels=1)
def cross_identity(folder, _):
    return sentence_transformers.CrossEncoder(folder, activation_fn=torch.nn.Identity(),
                                              max_length=24)


@based("ForSequenceClassification", num_labels=3)
def cross_labels(folder, _):
    return sentence_transformers.CrossEncoder(folder)


@based("ForCausalLM")
def rerank(folder, _):
    return sentence_transformers.CrossEncoder(folder, max_length=LENGTH)


def masked_transformer(folder):
    try:
        return modules.Transformer(folder, transformer_task="fill-mask")
    except TypeError:  # before 5.4
        return sparse_modules.MLMTransformer(folder)


@based("ForMaskedLM")
def sparse(folder, _):
    return sentence_transformers.SparseEncoder(modules=[
        masked_transformer(folder), sparse_modules.SpladePooling("max")])


@based("ForMaskedLM", tie_word_embeddings=False)
def sparse_untied(folder, family):
    return sparse(folder, family)


@based("ForMaskedLM")
def sparse_sum(folder, _):
    return sentence_transformers.SparseEncoder(modules=[
        masked_transformer(folder),
        sparse_modules.SpladePooling("sum", activation_function="log1p_relu")])


@based("Model")
def multi(folder, _):
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    return sentence_transformers.MultiVectorEncoder(modules=[
        modules.Transformer(folder),
        modules.Dense(HIDDEN, 6, bias=False, activation_function=torch.nn.Identity(),
                      module_input_name="token_embeddings"),
        MultiVectorMask(), modules.Normalize(module_input_name="token_embeddings")])


@based("Model")
def pylate(folder, _):
    from pylate.models import ColBERT
    return ColBERT(folder, embedding_size=6, query_length=16, document_length=LENGTH)


@based("Model")
def pylate_plain(folder, _):
    """As castor-server wants it: a row for each token of the text, and no other."""
    from pylate.models import ColBERT
    return ColBERT(folder, embedding_size=6, query_length=16, document_length=LENGTH,
                   do_query_expansion=False, skiplist_words=[])


LABELS = dict(id2label={0: "calm", 1: "über", 2: "7"}, label2id={"calm": 0, "über": 1, "7": 2})

# Head: how it is made; the families that show all there is to see of it (None: every one).
HEADS = {
    "sequences": (lambda family, out: plain(family, "ForSequenceClassification", out, **LABELS),
                  None),
    "tokens": (lambda family, out: plain(family, "ForTokenClassification", out, num_labels=4), None),
    "embed": (piped(embed), None),
    "embed_more": (piped(embed_more), ["bert", "roberta", "xlm_roberta", "mpnet"]),
    "cross": (piped(cross), None),
    "cross_identity": (piped(cross_identity), ["bert", "xlm_roberta", "modernbert"]),
    "cross_labels": (piped(cross_labels), ["bert", "roberta", "distilbert"]),
    "rerank": (piped(rerank), ["qwen2", "qwen3"]),
    "sparse": (piped(sparse), None),
    "sparse_sum": (piped(sparse_sum), ["bert", "distilbert"]),
    "sparse_untied": (piped(sparse_untied), ["bert", "nomic_bert", "gte"]),
    "multi": (piped(multi), None),
    "pylate": (piped(pylate), ["bert", "xlm_roberta", "modernbert"]),
    "pylate_plain": (piped(pylate_plain), ["bert", "xlm_roberta", "modernbert"]),
}
LATE = importlib.util.find_spec("pylate") is not None


def names():
    """Every directory that these libraries can save."""
    for head, (_, some) in HEADS.items():
        if LATE != head.startswith("pylate") or (
                head == "multi" and not hasattr(sentence_transformers, "MultiVectorEncoder")):
            continue
        ending = {"sequences": "ForSequenceClassification", "cross": "ForSequenceClassification",
                  "tokens": "ForTokenClassification", "sparse": "ForMaskedLM",
                  "rerank": "ForCausalLM"}.get(
                      head.split("_")[0], "Model")
        for family in some or FAMILIES:
            if hasattr(T, FAMILIES[family][0] + ending):
                yield f"{family}-{head}"


def save(out, name):
    family, head = name.split("-")
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    HEADS[head][0](family, folder)
    (folder / "README.md").unlink(missing_ok=True)


def write_expected(folder, name, cases=None):
    expected = read_directory.outcome(folder, cases or CASES) | {"versions": read_directory.VERSIONS}
    (folder / name).write_text(json.dumps(expected, separators=(",", ":"), ensure_ascii=False))
    return expected


def read(out):
    version = read_directory.VERSIONS["sentence_transformers"]
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        expected = write_expected(folder, f"expected-{version}.json")
        print(folder.name, expected.get("error", ""), flush=True)


def take(packages, out):
    """Checkpoints as they are; a masked language model also as the SPLADE model that it is for."""
    for config in sorted(packages.rglob("config.json")):
        if not (config.parent / "model.safetensors").exists():
            continue
        folder = out / config.relative_to(packages).parts[0]
        shutil.copytree(config.parent, folder, dirs_exist_ok=True)
        if "ForMaskedLM" in config.read_text():
            sentence_transformers.SparseEncoder(str(folder)).save(str(folder) + "-sparse")


def main():
    task, out, wanted = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    if task == "save":
        for name in wanted or names():
            save(out, name)
            print(name, write_expected(out / name, "expected.json").get("error", ""), flush=True)
    elif task == "read":
        read(out)
    else:
        take(out, pathlib.Path(wanted[0]))
        read(pathlib.Path(wanted[0]))


if __name__ == "__main__":
    main()
