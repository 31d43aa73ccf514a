"""Makes an encoder of base size with random weights, in a directory as Hugging Face lays it out.

    make_model.py KIND TOKENIZER_DIRECTORY OUT MAX_TOKENS

KIND is xlm-roberta (learned positions, every layer sees all tokens) or modernbert (rotated
positions, every third layer sees all, the others 64 to each side). The tokenizer is another
model's, WordPiece.
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers

VOCABULARY = 30522


def make(kind, tokens):
    if kind == "xlm-roberta":
        return transformers.XLMRobertaModel(transformers.XLMRobertaConfig(
            vocab_size=VOCABULARY, max_position_embeddings=tokens + 2, type_vocab_size=1),
            add_pooling_layer=False)
    return transformers.ModernBertModel(transformers.ModernBertConfig(
        vocab_size=VOCABULARY, max_position_embeddings=tokens, pad_token_id=0, cls_token_id=101,
        sep_token_id=102, bos_token_id=101, eos_token_id=102, reference_compile=False))


def main():
    kind, tokenizer, out, tokens = sys.argv[1:5]
    out = pathlib.Path(out)
    torch.manual_seed(0)
    make(kind, int(tokens)).eval().save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        if (pathlib.Path(tokenizer) / name).exists():
            shutil.copy(pathlib.Path(tokenizer) / name, out / name)
    config = out / "tokenizer_config.json"
    if config.exists():
        settings = json.loads(config.read_text())
        settings["model_max_length"] = int(tokens)
        settings["max_length"] = int(tokens)
        config.write_text(json.dumps(settings))


if __name__ == "__main__":
    main()
