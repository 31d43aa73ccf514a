#!/usr/bin/env python3
"""Makes texts for fidelity.sh: one of exactly TOKENS tokens, special ones included, from each
document that has enough prose, one per line.

    make_fidelity_texts.py TOKENIZER.json TOKENS COUNT DOCUMENT... > TEXTS

Prose is paragraphs that are nearly all letters. Needs the package tokenizers."""

import pathlib
import random
import re
import sys

import tokenizers


def prose(document):
    text = pathlib.Path(document).read_text(errors="ignore")
    paragraphs = (re.sub(r"\s+", " ", p).strip() for p in re.split(r"\n\s*\n", text))
    kept = (
        p
        for p in paragraphs
        if len(p) >= 120
        and p.isascii()
        and sum(c.isalpha() or c == " " for c in p) / len(p) > 0.93
    )
    return re.sub(r"[*|`]", "", " ".join(kept))


def cut(text, tokenizer, tokens):
    """Whole words of `text`, a third of it in, that are so many tokens, or None."""
    special = tokenizer.num_special_tokens_to_add(is_pair=False)
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    if len(offsets) < 400:
        return None
    inner = tokens - special
    for first in range(len(offsets) // 3, len(offsets) - inner - 1):
        begin, end = offsets[first][0], offsets[first + inner - 1][1]
        words = text[begin - 1 : begin] in ("", " ") and text[end : end + 1] in ("", " ")
        if words and len(tokenizer.encode(text[begin:end]).ids) == tokens:
            return text[begin:end]
    return None


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
    tokenizer.no_padding()
    tokenizer.no_truncation()
    texts = [cut(prose(document), tokenizer, int(sys.argv[2])) for document in sys.argv[4:]]
    texts = [text for text in texts if text is not None]
    random.Random(1).shuffle(texts)
    print("\n".join(texts[: int(sys.argv[3])]))


if __name__ == "__main__":
    main()
