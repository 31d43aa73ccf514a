"""Saves small random models of every family and head as the libraries of this Python save them, and
what the same libraries compute once they have loaded one again: for make_variations.py.

A model's name is FAMILY-HEAD, of FAMILIES and HEADS.
"""

import json
import pathlib
import shutil
import tempfile

import read_directory
import sentence_transformers
import torch
import transformers
from safetensors.torch import load_file, save_file
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
GEMMA_TOKENS = dict(tokenizer_class="GemmaTokenizer", bos_token="<bos>", eos_token="<eos>",
                    pad_token="<pad>", unk_token="<unk>", mask_token="<mask>")
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
    "gemma": ("Gemma3Text", gemma_bpe, GEMMA_TOKENS,
              dict(SIZES, num_hidden_layers=2, num_key_value_heads=1, head_dim=4,
                   query_pre_attn_scalar=6, sliding_window=10, use_bidirectional_attention=True,
                   layer_types=["sliding_attention", "full_attention"]), "lasttoken"),
    "gemma3": ("Gemma3Text", gemma_bpe, GEMMA_TOKENS,
               dict(SIZES, num_hidden_layers=2, num_key_value_heads=1, head_dim=6,
                    query_pre_attn_scalar=6, sliding_window=10,
                    layer_types=["sliding_attention", "full_attention"]), "lasttoken"),
    "gemma2": ("Gemma2", gemma_bpe, GEMMA_TOKENS,
               dict(SIZES, num_hidden_layers=2, num_key_value_heads=1, head_dim=6,
                    query_pre_attn_scalar=2, sliding_window=10, attn_logit_softcapping=0.7),
               "lasttoken"),
    "gemma1": ("Gemma", gemma_bpe, GEMMA_TOKENS,
               dict(SIZES, num_key_value_heads=1, head_dim=6, hidden_act="gelu"), "lasttoken"),
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
    "deberta_conv": ("DebertaV2", deberta_unigram,
                     dict(BERT_TOKENS, tokenizer_class="DebertaV2Tokenizer", do_lower_case=False),
                     dict(SIZES, num_hidden_layers=2, relative_attention=True, position_buckets=8,
                          position_biased_input=False, pos_att_type=["p2c", "c2p"],
                          conv_kernel_size=3, conv_act="gelu"), "mean"),
    "llama": ("Llama", llama_bpe,
              dict(GENERIC, bos_token="<s>", eos_token="</s>", pad_token="</s>",
                   unk_token="<unk>"),
              dict(SIZES, num_hidden_layers=2, num_key_value_heads=1, pad_token_id=2,
                   rope_parameters=dict(rope_type="llama3", rope_theta=100.0, factor=8.0,
                                        low_freq_factor=1.0, high_freq_factor=4.0,
                                        original_max_position_embeddings=16)), "lasttoken"),
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


@based("ForCausalLM")
def rerank(folder, _):
    return sentence_transformers.CrossEncoder(folder, max_length=LENGTH)


@based("ForMaskedLM")
def sparse(folder, _):
    return sentence_transformers.SparseEncoder(modules=[
        modules.Transformer(folder, transformer_task="fill-mask"),
        sparse_modules.SpladePooling("max")])


@based("ForMaskedLM")
def router(folder, _):
    """Queries by a table, documents by SPLADE."""
    document = modules.Transformer(folder, transformer_task="fill-mask")
    torch.manual_seed(9)
    table = sparse_modules.SparseStaticEmbedding(
        document.tokenizer, torch.rand(len(document.tokenizer)) * 3, frozen=True)
    return sentence_transformers.SparseEncoder(modules=[modules.Router.for_query_document(
        [table], [document, sparse_modules.SpladePooling("max", "log1p_relu")])],
        prompts={"query": "the river: ", "document": "mill "}, similarity_fn_name="dot")


@based("ForMaskedLM", tie_word_embeddings=False)
def sparse_untied(folder, family):
    return sparse(folder, family)


@based("Model")
def multi(folder, _):
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    return sentence_transformers.MultiVectorEncoder(modules=[
        modules.Transformer(folder),
        modules.Dense(HIDDEN, 6, bias=False, activation_function=torch.nn.Identity(),
                      module_input_name="token_embeddings"),
        MultiVectorMask(), modules.Normalize(module_input_name="token_embeddings")])


def stanford(family, out):
    """Stanford's ColBERT: one class, markers of the vocabulary, and artifact.metadata."""
    plain(family, "Model", out)
    weights = {f"{family}.{name}": tensor
               for name, tensor in load_file(out / "model.safetensors").items()}
    torch.manual_seed(5)
    save_file(weights | {"linear.weight": torch.randn(6, HIDDEN)}, out / "model.safetensors")
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"architectures": ["HF_ColBERT"]}))
    (out / "artifact.metadata").write_text(json.dumps(
        {"query_maxlen": 16, "doc_maxlen": 20, "query_token_id": "##s", "doc_token_id": "##e"}))


LABELS = dict(id2label={0: "calm", 1: "über", 2: "7"}, label2id={"calm": 0, "über": 1, "7": 2})

HEADS = {
    "sequences": lambda family, out: plain(family, "ForSequenceClassification", out, **LABELS),
    "tokens": lambda family, out: plain(family, "ForTokenClassification", out, num_labels=4),
    "embed": piped(embed),
    "embed_more": piped(embed_more),
    "cross": piped(cross),
    "rerank": piped(rerank),
    "sparse": piped(sparse),
    "sparse_untied": piped(sparse_untied),
    "router": piped(router),
    "multi": piped(multi),
    "stanford": stanford,
}


def save(out, name):
    family, head = name.split("-")
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    HEADS[head](family, folder)
    (folder / "README.md").unlink(missing_ok=True)


def write_expected(folder, name, cases):
    expected = read_directory.outcome(folder, cases) | {"versions": read_directory.VERSIONS}
    (folder / name).write_text(json.dumps(expected, separators=(",", ":"), ensure_ascii=False))
