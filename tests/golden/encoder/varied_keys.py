"""The changes that make_variations.py makes to saved directories, one after another: keys of each file
with values that real files have, and some that none should have. A variation is a list of edits, as
edits.py applies them."""

import json

from make_directories import HIDDEN

GONE = object()  # the value of a key that is taken out


def at(file, pointer, value):
    """An edit of one key. `pointer` without its leading slash."""
    edit = {"file": file, "pointer": "/" + pointer}
    return [edit if value is GONE else edit | {"value": value}]


def keys(file, values):
    """One variation for each value of each key."""
    return [at(file, key, value) for key, several in values.items() for value in several]


def text(file, content):
    return [{"file": file, "text": content}]


def whole(file, content):
    return text(file, json.dumps(content, ensure_ascii=False))


def delete(file):
    return [{"file": file, "delete": True}]


TOKENIZER, SETTINGS, CONFIG = "tokenizer.json", "tokenizer_config.json", "config.json"
PIPELINE, SENTENCES = "config_sentence_transformers.json", "sentence_bert_config.json"

# Settings of every tokenizer class.
TOKENIZER_SETTINGS = keys(SETTINGS, {
    "model_max_length": [8, 1000000000000000019884624838656, GONE, None],
    "truncation_side": ["left", "middle"],
    "padding_side": ["left"],
    "model_input_names": [["input_ids", "attention_mask"],
                          ["input_ids", "token_type_ids", "attention_mask"]],
    "split_special_tokens": [True],
    "additional_special_tokens": [["e"], ["never seen"]],
    "extra_special_tokens": [["e"], {"image_token": "e"}],
    "clean_up_tokenization_spaces": [True],
    "add_bos_token": [False], "add_eos_token": [False], "add_prefix_space": [True, False],
    "chat_template": ["{{ messages }}"],
    "unk_token": [GONE], "mask_token": ["e"],
    "added_tokens_decoder": [
        {"7": {"content": "e", "lstrip": True, "rstrip": False, "normalized": False,
               "single_word": False, "special": False}}],
}) + [
    at(SETTINGS, "model_max_length", GONE) + at(SETTINGS, "max_len", 8),
    at(SETTINGS, "model_max_length", 9) + at(TOKENIZER, "truncation", {
        "direction": "Left", "max_length": 5, "strategy": "OnlyFirst", "stride": 2}),
    at(TOKENIZER, "truncation", {"direction": "Left", "max_length": 5, "strategy": "LongestFirst",
                                 "stride": 0}),
    at(TOKENIZER, "truncation", {"direction": "Left", "max_length": 5, "strategy": "LongestFirst",
                                 "stride": 0}) + at(SETTINGS, "truncation_side", "right"),
    at(TOKENIZER, "padding", {"strategy": {"Fixed": 12}, "direction": "Left", "pad_id": 0,
                              "pad_to_multiple_of": 8, "pad_type_id": 0, "pad_token": "[PAD]"}),
    at(TOKENIZER, "normalizer", None),
    at(TOKENIZER, "normalizer", {"type": "Lowercase"}),
    at(TOKENIZER, "pre_tokenizer", {"type": "Whitespace"}),
    at(TOKENIZER, "added_tokens/0/normalized", True),
    at(TOKENIZER, "model/dropout", None),
    at(TOKENIZER, "post_processor", None),
    delete(SETTINGS),
    whole("special_tokens_map.json", {"cls_token": "a", "bos_token": "a"}),
    whole("added_tokens.json", {"e": 7}),
]

BERT_SETTINGS = TOKENIZER_SETTINGS + keys(SETTINGS, {
    "tokenizer_class": ["PreTrainedTokenizerFast", "TokenizersBackend", "BertTokenizerFast",
                        "DistilBertTokenizer", "MPNetTokenizer", "ElectraTokenizerFast",
                        "PreTrainedTokenizer", "NoSuchTokenizer", GONE, None],
    "do_lower_case": [True, GONE], "strip_accents": [True, False],
    "tokenize_chinese_chars": [False, GONE],
    "cls_token": ["[SEP]", "[NEW]", {"content": "[SEP]", "lstrip": False, "normalized": False,
                                     "rstrip": False, "single_word": False},
                  {"__type": "AddedToken", "content": "[SEP]", "lstrip": False,
                   "normalized": False, "rstrip": False, "single_word": False}],
    "sep_token": ["[PAD]"], "pad_token": ["a"],
    "never_split": [["mill"]], "do_basic_tokenize": [False], "wordpieces_prefix": ["@@"],
    "use_fast": [False], "encode": [1], "auto_map": [{"AutoTokenizer": ["a.B", None]}],
    "fast_tokenizer_files": [["tokenizer.json", "tokenizer.4.0.0.json"]],
    "processor_class": ["NoSuchProcessor"], "tokenizer_file": ["other.json"],
    "model_specific_special_tokens": [{"image_token": "e"}], "image_token": ["e"],
}) + [
    at(SETTINGS, "do_lower_case", True) + at(SETTINGS, "strip_accents", False),
    at(TOKENIZER, "model/max_input_chars_per_word", 3),
    at(TOKENIZER, "model/continuing_subword_prefix", "@@"),
    at(TOKENIZER, "model/unk_token", "[PAD]"),
    at(TOKENIZER, "model/type", GONE),
    at(SETTINGS, "tokenizer_class", "PreTrainedTokenizerFast") +
    at(TOKENIZER, "model/max_input_chars_per_word", 3),
    at(SETTINGS, "tokenizer_class", "PreTrainedTokenizerFast") +
    at(TOKENIZER, "normalizer/lowercase", True),
    at(SETTINGS, "tokenizer_class", "PreTrainedTokenizerFast") + at(SETTINGS, "cls_token", "[SEP]"),
    at(SETTINGS, "tokenizer_class", GONE) + at(CONFIG, "tokenizer_class", "PreTrainedTokenizerFast")
    + at(TOKENIZER, "normalizer/lowercase", True),
    at(CONFIG, "tokenizer_class", "PreTrainedTokenizerFast"),
    at(TOKENIZER, "post_processor", {"type": "BertProcessing", "sep": ["[SEP]", 3],
                                     "cls": ["[MASK]", 4]}),
    whole("special_tokens_map.json", {"cls_token": {
        "content": "[SEP]", "lstrip": False, "normalized": False, "rstrip": False,
        "single_word": False}}),
    whole("special_tokens_map.json", {"sep_token": "[PAD]"}) +
    at(SETTINGS, "added_tokens_decoder", {"0": {
        "content": "[PAD]", "lstrip": False, "normalized": False, "rstrip": False,
        "single_word": False, "special": True}}),
    whole("added_tokens.json", {"brand": 260, "new": 261}),
]

BERT_CONFIG = keys(CONFIG, {
    "hidden_act": ["relu", "gelu_new", "silu", "swish", "gelu_python", "gelu_pytorch_tanh",
                   "gelu_fast", "quick_gelu", "nonsense", GONE],
    "layer_norm_eps": [0.01, 1, "1e-3", GONE], "is_decoder": [True],
    "add_cross_attention": [True],
    "position_embedding_type": ["absolute", "relative_key"], "chunk_size_feed_forward": [2],
    "type_vocab_size": [1], "max_position_embeddings": [GONE, 16], "vocab_size": [GONE],
    "pad_token_id": [5, None], "num_attention_heads": [4, 3, GONE], "num_hidden_layers": [2],
    "hidden_size": [24], "intermediate_size": [10],
    "model_type": ["roberta", "distilbert", "nonsense", GONE],
    "architectures": [["BertForMaskedLM"], None, GONE, ["Nonsense"], []],
    "dtype": ["float16", GONE, "nonsense"], "torch_dtype": ["float16"],
    "attention_probs_dropout_prob": [0.9], "hidden_dropout_prob": [0.9], "initializer_range": [9.0],
    "use_cache": [False], "output_hidden_states": [True], "output_attentions": [True],
    "pruned_heads": [{"0": [1]}], "tie_word_embeddings": [False],
    "transformers_version": ["3.0.0"], "gradient_checkpointing": [True], "torchscript": [True],
    "is_encoder_decoder": [True], "return_dict": [False],
    "auto_map": [{"AutoModel": "modeling.Own"}], "tokenizer_class": ["BertTokenizer"],
    "quantization_config": [{"quant_method": "gptq", "bits": 4}], "rope_theta": [5],
    "num_labels": [7], "id2label": [{"0": "a"}], "problem_type": ["nonsense"], "unheard_of": [1],
    "max_length": [5], "temperature": [0.5], "prefix": ["the "],
}) + [
    whole("adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "base"}),
    whole("processor_config.json", {}), whole("preprocessor_config.json", {}),
    whole("generation_config.json", {"max_length": 5}),
    at(CONFIG, "dtype", GONE) + at(CONFIG, "torch_dtype", "float32"),
]


def replace(file, old, new):
    return [{"file": file, "replace": [old, new]}]


VOCABULARY = "vocab.txt"

BARE = delete(TOKENIZER)
WITHOUT_TOKENIZER = [
    BARE, BARE + delete(VOCABULARY), BARE + delete(SETTINGS),
    BARE + replace(VOCABULARY, "\nthe\n", "\nthe\r\n"),
    BARE + replace(VOCABULARY, "\nthe\n", "\nthe \t\n"),
    BARE + replace(VOCABULARY, "\nthe\n", "\n the\n"),
    BARE + replace(VOCABULARY, "\nthe\n", "\nthe\n\n"),
    BARE + replace(VOCABULARY, "\nthe\n", "\nthe\nthe\n"),
    BARE + replace(VOCABULARY, "\nthe\n", "\nnothe\n"),
    BARE + replace(VOCABULARY, "[PAD]", "\ufeff[PAD]"),
    BARE + replace(VOCABULARY, "[MASK]", "[XMASK]"),
    replace(VOCABULARY, "\nthe\n", "\nnothe\n"),
    *(BARE + at(SETTINGS, key, value) for key, value in [
        ("do_lower_case", GONE), ("do_lower_case", True), ("strip_accents", True),
        ("tokenize_chinese_chars", False), ("tokenizer_class", "PreTrainedTokenizerFast"),
        ("tokenizer_class", "BertTokenizerFast"), ("tokenizer_class", GONE),
        ("unk_token", "[MASK]"), ("cls_token", "[SEP]"), ("add_bos_token", True),
        ("truncation_side", "left"), ("model_max_length", 8)]),
    BARE + whole("added_tokens.json", {"e": 50}),
    BARE + whole("special_tokens_map.json", {"unk_token": "[MASK]"}),
]
WITHOUT_TOKENIZER_BPE = [
    BARE, BARE + delete(SETTINGS), BARE + delete("merges.txt"), BARE + delete("vocab.json"),
    BARE + replace("merges.txt", "#version: 0.2\n", ""),
    BARE + replace("merges.txt", "#version: 0.2\n", "#version: 0.2\n\n"),
    *(BARE + at(SETTINGS, key, value) for key, value in [
        ("add_prefix_space", True), ("cls_token", "<pad>"), ("tokenizer_class", GONE),
        ("tokenizer_class", "PreTrainedTokenizerFast"), ("add_bos_token", False),
        ("add_eos_token", True), ("trim_offsets", False)]),
    BARE + whole("added_tokens.json", {"e": 50}),
]


def end(file, more):
    return replace(file, "}", f", {more}}}")


# JSON that parsers differ on.
JSON_TEXTS = [
    end(CONFIG, '"unheard_of": NaN, "more": -Infinity'), end(CONFIG, '"hidden_act": "relu"'),
    end(CONFIG, '"layer_norm_eps": NaN'), replace(CONFIG, "}", "},"),
    replace(CONFIG, "}", "} // comment"), replace(CONFIG, "}", ",}"),
    *(replace(file, "{", "\ufeff{") for file in (CONFIG, SETTINGS, "1_Pooling/config.json")),
    replace("modules.json", "[", "\ufeff["),
    end(PIPELINE, '"truncate_dim": 3, "truncate_dim": 5'), end(PIPELINE, '"truncate_dim": NaN'),
    end(PIPELINE, '"truncate_dim": Infinity'),
    end(SETTINGS, '"model_max_length": Infinity'), end(SETTINGS, '"model_max_length": NaN'),
    end(SETTINGS, '"do_lower_case": false, "do_lower_case": true'),
    end(TOKENIZER, '"version": "1.0"'), end(TOKENIZER, '"version": "2.0"'),
    end(TOKENIZER, '"unheard_of": 1'), end(TOKENIZER, '"padding": null'),
    text("1_Pooling/config.json", '{"embedding_dimension": 8, "pooling_mode": "cls", '
         '"pooling_mode": "max"}'),
    text("1_Pooling/config.json", "[]"),
    text("modules.json", "{}"), text("modules.json", "[]"),
    text(PIPELINE, "[]"), text(SENTENCES, ""), delete(PIPELINE), delete(SENTENCES),
    delete("modules.json"), delete("1_Pooling/config.json"), delete(CONFIG),
]


POOLING = "1_Pooling/config.json"
FLAGS = ["cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens",
         "lasttoken"]
POOLINGS = [whole(POOLING, content) for content in [
    {"embedding_dimension": HIDDEN}, {"word_embedding_dimension": HIDDEN},
    {"word_embedding_dimension": HIDDEN, "embedding_dimension": HIDDEN}, {"pooling_mode": "mean"},
    {"embedding_dimension": 7, "pooling_mode": "max"},
    *({"embedding_dimension": HIDDEN, "pooling_mode": mode} for mode in [
        "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", "median", "CLS",
        None, [], ["cls"], ["max", "cls", "max"], ["lasttoken", "weightedmean"],
        ["mean", "nonsense"], [["mean"]]]),
    *({"word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": False,
       f"pooling_mode_{flag}": True} for flag in FLAGS),
    {"word_embedding_dimension": HIDDEN} | {f"pooling_mode_{flag}": True for flag in FLAGS[::-1]},
    {"word_embedding_dimension": HIDDEN} | {f"pooling_mode_{flag}": False for flag in FLAGS},
    {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": 1, "pooling_mode_mean_tokens": 0},
    {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": True, "pooling_mode": "max"},
    {"embedding_dimension": HIDDEN, "include_prompt": False},
    {"embedding_dimension": HIDDEN, "unheard_of": 1}]]

OLD = "sentence_transformers.models."
NEW = "sentence_transformers."


def modules(*rows):
    return whole("modules.json", [dict(zip(("idx", "name", "path", "type"), row)) for row in rows])


MODULES = [
    modules((0, "0", "", OLD + "Transformer"), (1, "1", "1_Pooling", OLD + "Pooling")),
    modules((1, "0", "", OLD + "Transformer"), (0, "1", "1_Pooling", OLD + "Pooling")),
    modules((0, "0", "", NEW + "base.modules.transformer.Transformer"),
            (1, "1", "1_Pooling", NEW + "models.Pooling.Pooling")),
    modules((0, "a", "", OLD + "Transformer"), (1, "b", "1_Pooling", OLD + "Pooling"),
            (2, "c", "2_Normalize", OLD + "Normalize")),
    modules((0, "a", "", OLD + "Transformer"), (1, "b", "1_Pooling", OLD + "Pooling"),
            (2, "c", "2_Normalize", NEW + "sentence_transformer.modules.normalize.Normalize"))
    + whole("2_Normalize/config.json", {"unheard_of": 1}),
    modules((0, "a", "", OLD + "Transformer"), (1, "b", "1_Pooling", OLD + "Pooling"),
            (2, "b", "2_Normalize", OLD + "Normalize")),
    modules((0, "0", "", OLD + "Transformer")),
    modules((0, "0", "", OLD + "Transformer"), (1, "1", "1_Pooling", OLD + "Nonsense")),
    modules((0, "0", "", OLD + "Transformer"), (1, "1", "1_Pooling", "mine.Pooling")),
    modules((0, "0", "", OLD + "Transformer"), (1, "1", "../1_Pooling", OLD + "Pooling")),
    modules((0, "0", "", OLD + "Transformer"), (1, "1", "./1_Pooling/", OLD + "Pooling")),
    modules((0, "0", "", OLD + "Transformer"), (1, "1", "1_Pooling", OLD + "Pooling"),
            (2, "2", "2_Dropout", OLD + "Dropout")) + whole("2_Dropout/config.json", {"dropout": .5}),
    at("modules.json", "0/idx", GONE), at("modules.json", "1/name", GONE),
    at("modules.json", "1/path", GONE), at("modules.json", "1/type", GONE),
    at("modules.json", "0/kwargs", ["task"]), at("modules.json", "1/unheard_of", 1),
]

SENTENCE_KEYS = keys(SENTENCES, {
    "max_seq_length": [8, 100, None, "8", 8.0], "do_lower_case": [True, False],
    "transformer_task": [GONE, "nonsense", "text-generation", "sequence-classification"],
    "module_output_name": [GONE, "sentence_embedding"],
    "modality_config": [
        GONE, {}, {"text": {"method": "forward", "method_output_name": ["hidden_states", 0]}},
        {"text": {"method": "forward", "method_output_name": "pooler_output"}},
        {"text": {"method": "nonsense", "method_output_name": "last_hidden_state"}},
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}, "smell": {}}],
    "model_args": [{"dtype": "float32"}, {"attn_implementation": "eager"}],
    "tokenizer_args": [{"do_lower_case": True}, {"model_max_length": 9},
                       {"truncation_side": "left"}],
    "config_args": [{"hidden_act": "relu"}], "config_kwargs": [{"hidden_act": "relu"}],
    "processor_kwargs": [{"do_lower_case": True}],
    "processing_kwargs": [{"text": {"max_length": 9}}, {"common": {"truncation": False}},
                          {"text": {"add_special_tokens": False}}],
    "query_length": [9], "document_length": [9], "unpad_inputs": [False], "unheard_of": [1],
}) + [
    whole(SENTENCES, {"max_seq_length": 512, "do_lower_case": True}),
    whole(SENTENCES, {"max_seq_length": 32, "do_lower_case": True}),
    at(SENTENCES, "modality_config", {"message": {
        "method": "forward", "method_output_name": "last_hidden_state", "format": "flat"}}) +
    at(SETTINGS, "chat_template", "say {% for m in messages %}{{ m['content'] }}{% endfor %}"),
    at(SENTENCES, "modality_config", {
        "text": {"method": "forward", "method_output_name": "last_hidden_state"},
        "message": {"method": "forward", "method_output_name": "last_hidden_state",
                    "format": "flat"}}) +
    text("chat_template.jinja", "say {% for m in messages %}{{ m['content'] }}{% endfor %}"),
    text("chat_template.jinja", "say {% for m in messages %}{{ m['content'] }}{% endfor %}"),
    whole(SENTENCES, {}),
    at(SENTENCES, "do_lower_case", True) + at(SETTINGS, "tokenizer_class", "TokenizersBackend"),
    at(SENTENCES, "do_lower_case", True) + at(SETTINGS, "tokenizer_class", "TokenizersBackend") +
    at(TOKENIZER, "normalizer", {"type": "Sequence", "normalizers": [
        {"type": "NFC"}, {"type": "Lowercase"}]}),
    at(SENTENCES, "max_seq_length", 9) + at(SETTINGS, "model_max_length", 12),
    at(SENTENCES, "tokenizer_args", {"do_lower_case": True}) +
    at(SENTENCES, "processor_kwargs", {"strip_accents": True}),
    whole(SENTENCES, {}) + whole("sentence_roberta_config.json", {"max_seq_length": 9}),
    delete(SENTENCES) + whole("sentence_distilbert_config.json", {"max_seq_length": 9}),
    whole(SENTENCES, {"max_seq_length": 12}) + whole("sentence_roberta_config.json",
                                                     {"max_seq_length": 9}),
    *(delete(SENTENCES) + whole(f"sentence_{name}_config.json", {"max_seq_length": 9})
      for name in ("camembert", "albert", "xlm-roberta", "xlnet", "mpnet")),
    modules((0, "0", "0_Transformer", OLD + "Transformer"), (1, "1", "1_Pooling", OLD + "Pooling"))
    + [{"file": name, "rename": "0_Transformer/" + name}
       for name in (CONFIG, TOKENIZER, SETTINGS, SENTENCES, "model.safetensors")],
]

PIPELINE_KEYS = keys(PIPELINE, {
    "truncate_dim": [5, 0, 100, -2, 5.0, "5", None],
    "prompts": [{"query": None, "x": "the mill: "}, None, {}, {"x": None}, []],
    "default_prompt_name": ["query", "document", "nonsense", None],
    "similarity_fn_name": ["dot", "nonsense", None],
    "model_type": ["CrossEncoder", "SparseEncoder", "nonsense", None, GONE],
    "requirements": [{"transformers": ">=99"}, {"transformers": ">=4"}],
    "__version__": [{"sentence_transformers": "99.0.0"}, GONE], "unheard_of": [1],
    "activation_fn": ["torch.nn.modules.activation.Sigmoid"],
}) + [
    at(PIPELINE, "prompts", {"x": "the mill: ", "y": ""}) + at(PIPELINE, "default_prompt_name", "x"),
    at(PIPELINE, "prompts", {"x": "the mill: "}) + at(PIPELINE, "default_prompt_name", "x") +
    at(POOLING, "include_prompt", False),
    at(PIPELINE, "prompts", {"x": None}) + at(PIPELINE, "default_prompt_name", "x"),
]

DENSE = "3_Dense/config.json"
DENSE_KEYS = keys(DENSE, {
    "activation_function": [
        GONE, None, "torch.nn.modules.linear.Identity", "torch.nn.ReLU",
        "torch.nn.modules.activation.GELU", "torch.nn.functional.relu", "mine.Activation",
        "torch.nn.modules.activation.Nonsense", "torch.nn.modules.activation.Softmax"],
    "bias": [False, GONE], "in_features": [7, GONE], "out_features": [7],
    "module_input_name": [GONE, "token_embeddings"], "module_output_name": [GONE, "other"],
    "use_residual": [True], "unheard_of": [1],
}) + keys("6_Normalize/config.json", {
    "module_input_name": [GONE, "token_embeddings", "nothing"], "module_output_name": ["other"]}) + \
    keys("2_LayerNorm/config.json", {"dimension": [7, GONE], "unheard_of": [1]}) + \
    keys("4_Dropout/config.json", {"dropout": [0.0, GONE], "unheard_of": [1]}) + \
    keys(PIPELINE, {"truncate_dim": [GONE, 3], "default_prompt_name": [None]}) + \
    keys(POOLING, {"pooling_mode": [["mean", "max", "cls"], "mean"], "include_prompt": [False]})

LABELS = keys(CONFIG, {
    "id2label": [{"0": "a", "1": "b", "2": "c"}, {"0": 1, "1": 2, "2": 3.5}, {"2": "c", "0": "a", "1": "b"},
                 {"0": "a"}, {"0": "a", "1": "a", "2": "a"}, {"x": "a"}, ["a", "b", "c"], GONE],
    "label2id": [GONE, {}], "num_labels": [3, 2],
    "problem_type": ["regression", "single_label_classification", "multi_label_classification",
                     None, "nonsense"],
    "architectures": [["BertForTokenClassification"], ["BertModel"]],
    "classifier_dropout": [0.5], "function_to_apply": ["none"],
    "sbert_ce_default_activation_function": ["torch.nn.modules.linear.Identity"],
}) + [at(CONFIG, "id2label", GONE) + at(CONFIG, "num_labels", 3)]

CROSS_KEYS = keys(PIPELINE, {
    "activation_fn": ["torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh",
                      "torch.nn.Softmax", "mine.Activation", "torch.nn.Nonsense", None, GONE],
    "model_type": ["SentenceTransformer", GONE], "prompts": [{"x": "the mill: "}],
    "keep_in_fp32_modules": [[]], "unheard_of": [1],
}) + keys(SENTENCES, {
    "transformer_task": ["feature-extraction", GONE], "module_output_name": ["token_embeddings"],
    "max_seq_length": [9], "do_lower_case": [True]}) + keys(CONFIG, {
        "problem_type": ["regression"], "id2label": [GONE],
        "sbert_ce_default_activation_function": ["torch.nn.modules.linear.Identity"],
        "sentence_transformers": [{"activation_fn": "torch.nn.modules.linear.Identity"}],
        "architectures": [["BertModel"], GONE, ["BertForTokenClassification"]],
    }) + keys(SETTINGS, {"model_max_length": [9], "truncation_side": ["left"],
                         "model_input_names": [["input_ids", "attention_mask"]]}) + [
    at(PIPELINE, "prompts", {"x": "the mill: "}) + at(PIPELINE, "default_prompt_name", "x"),
    at(PIPELINE, "activation_fn", GONE) +
    at(CONFIG, "sentence_transformers", {"activation_fn": "torch.nn.modules.linear.Identity"}),
    at(PIPELINE, "activation_fn", GONE) +
    at(CONFIG, "sbert_ce_default_activation_function", "torch.nn.modules.linear.Identity"),
    at(PIPELINE, "activation_fn", GONE) + at(CONFIG, "sentence_transformers", {"version": "4.0.1"}),
    delete("modules.json"), delete("modules.json") + delete(PIPELINE) +
    at(CONFIG, "sentence_transformers", {"activation_fn": "torch.nn.modules.activation.Tanh"}),
    delete("modules.json") + delete(PIPELINE) + delete(SENTENCES) +
    at(CONFIG, "sbert_ce_default_activation_function", "torch.nn.modules.linear.Identity"),
]

SPARSE = "1_SpladePooling/config.json"
ROUTER, TABLE = "router_config.json", "query_0_SparseStaticEmbedding/"
SPLADE = "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"
ROUTER_KEYS = keys(ROUTER, {
    "parameters/default_route": ["query", None, "nonsense", GONE],
    "parameters/allow_empty_key": [False, GONE],
    "parameters/route_mappings": [{"('query', 'text')": "document"}, {"(None, None)": "query"}, GONE],
    "structure/query": [["document_0_Transformer", "document_1_SpladePooling"], [], GONE],
    "structure/document": [["query_0_SparseStaticEmbedding"], ["document_0_Transformer"],
                           ["../document_0_Transformer"]],
    "structure/other": [["query_0_SparseStaticEmbedding"]],
    "types/query_0_SparseStaticEmbedding": [GONE, "my.own.Table", SPLADE],
    "types": [GONE], "structure": [GONE], "parameters": [GONE], "unheard_of": [1],
}) + keys(PIPELINE, {
    "prompts": [{}, {"query": "[SEP] a", "document": ""}, {"other": "the mill "}],
    "default_prompt_name": ["query"], "max_active_dims": [3], "model_type": ["SentenceTransformer"],
}) + keys(TABLE + CONFIG, {"frozen": [False, GONE], "path": ["idf.json"], "unheard_of": [1]}) + keys(
    TABLE + SETTINGS, {"do_lower_case": [False], "model_max_length": [9], "truncation_side": ["left"],
                       "tokenizer_class": ["PreTrainedTokenizerFast", GONE]}) + keys(
    "document_0_Transformer/" + SETTINGS, {"do_lower_case": [False], "model_max_length": [8]}) + keys(
    "document_1_SpladePooling/" + CONFIG, {"pooling_strategy": ["sum"]}) + [
    delete(ROUTER), delete(TABLE + "model.safetensors"), delete(TABLE + CONFIG), delete(TABLE + TOKENIZER),
    whole("modules.json", [
        {"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.base.modules." + kind}
        for i, (path, kind) in enumerate([("", "router.Router"), ("1_N", "normalize.Normalize")])])]

SPARSE_KEYS = keys(SPARSE, {
    "pooling_strategy": ["sum", "mean", GONE], "activation_function": ["log1p_relu", "gelu", GONE],
    "embedding_dimension": [260, 7, GONE], "chunk_size": [2], "unheard_of": [1]}) + keys(SENTENCES, {
        "transformer_task": [GONE, "feature-extraction"], "module_output_name": ["other"]}) + [
    at(SPARSE, "embedding_dimension", GONE) + at(SPARSE, "word_embedding_dimension", 260),
    delete(SENTENCES) + at("modules.json", "0/type", NEW + "sparse_encoder.models.MLMTransformer"),
    at(CONFIG, "tie_word_embeddings", False), at(CONFIG, "architectures", ["BertModel"]),
    at("modules.json", "1/type", NEW + "sparse_encoder.models.SpladePooling"),
    at(PIPELINE, "model_type", GONE), at(CONFIG, "hidden_act", "relu"),
]

MASKED_KEYS = keys(CONFIG, {"tie_word_embeddings": [True, False, GONE]}) + keys(SPARSE, {
    "pooling_strategy": ["sum"], "activation_function": ["log1p_relu"]})

MASK = "2_MultiVectorMask/config.json"
MULTI_KEYS = keys(MASK, {
    "skiplist_words": [[",", "the"], ["no such word"]], "skiplist_tasks": [["query"], "document", GONE],
    "keep_only_token_ids": [[2, 3]], "unheard_of": [1]}) + keys(SENTENCES, {
        "query_length": [6], "document_length": [6],
        "query_expansion": [{"strategy": "fixed", "length": 14},
                            {"strategy": "fixed", "length": 14, "attend": True},
                            {"strategy": "min", "length": 14, "token": "[PAD]"},
                            {"strategy": "nonsense", "length": 8}]}) + keys(PIPELINE, {
        "prompts": [{"query": "the river: ", "document": "a "}, {"query": "[MASK]the ", "document": "[SEP] a"},
                    {"query": "the [MASK]"}],
        "similarity_fn_name": ["meanmaxsim"],
        "model_type": ["SentenceTransformer", "ColBERT"]}) + keys("1_Dense/config.json", {
            "module_input_name": [GONE], "module_output_name": [GONE]}) + \
    keys("3_Normalize/config.json", {"module_input_name": [GONE, "sentence_embedding"]}) + [
    at(MASK, "skiplist_words", [",", "the"]) + at(MASK, "skiplist_tasks", ["query", "document"]),
    at("modules.json", "2", GONE), at("modules.json", "3", GONE),
    at(SENTENCES, "query_expansion", {"strategy": "fixed", "length": 14}) + at("modules.json", "2", GONE),
    at(SENTENCES, "query_expansion", {"strategy": "min", "length": 9}) + at(SENTENCES, "query_length", 11),
    at(SENTENCES, "query_expansion", {"strategy": "min", "length": 9}) + at(SENTENCES, "query_length", 5),
    at(SENTENCES, "query_expansion", {"strategy": "fixed", "length": 14, "token": "no such token"}),
    at(SENTENCES, "query_expansion", {"strategy": "fixed", "length": 14}) +
    at(MASK, "skiplist_words", [",", "[MASK]"]) + at(MASK, "skiplist_tasks", ["query"]),
    # As PyLate saves them.
    at(PIPELINE, "model_type", "ColBERT") + at(PIPELINE, "query_prefix", "the") +
    at(PIPELINE, "document_prefix", "a ") + at(PIPELINE, "query_length", 14),
    at(PIPELINE, "model_type", "ColBERT") + at(PIPELINE, "do_query_expansion", False) +
    at(PIPELINE, "skiplist_words", ["the"]),
    at(PIPELINE, "attend_to_expansion_tokens", True) + at(PIPELINE, "query_length", 12),
]
