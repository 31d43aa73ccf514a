#!/usr/bin/env python3
"""Writes prompts.json: what sentence-transformers makes of texts with prompts, on tiny_bert/.

    make_prompts.py

Every prompt, with its tokens pooled and left out (1_Pooling/config.json, include_prompt), for means,
maxima and the first token. Versions: see make_minilm.py.
"""

import json
import pathlib
import shutil
import tempfile

from sentence_transformers import SentenceTransformer

PROMPTS = {"dog": "the dog: ", "joined": "away", "none": "", "spaced": "a b  "}
MODES = {"mean": "mean_tokens", "max": "max_tokens", "cls": "cls_token"}
TEXTS = ["the cat sat on the mat.", "dogs", "", "cat " * 40]


def main():
    here = pathlib.Path(__file__).parent
    cases = []
    for mode in ("mean", "max", "cls"):
        for include in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                model = pathlib.Path(folder) / "model"
                shutil.copytree(here / "tiny_bert", model)
                (model / "1_Pooling" / "config.json").write_text(json.dumps(
                    {"word_embedding_dimension": 24, f"pooling_mode_{MODES[mode]}": True,
                     "include_prompt": include}))
                (model / "config_sentence_transformers.json").write_text(
                    json.dumps({"prompts": PROMPTS, "default_prompt_name": "dog"}))
                encoder = SentenceTransformer(str(model), device="cpu")
                for name in [None, *PROMPTS]:
                    rows = encoder.encode(TEXTS, prompt_name=name)
                    cases.append({"pooling": f"pooling_mode_{MODES[mode]}", "include_prompt": include, "prompt": name,
                                  "rows": [[round(float(x), 7) for x in row] for row in rows]})
    (here / "prompts.json").write_text(json.dumps(
        {"prompts": PROMPTS, "default": "dog", "texts": TEXTS, "cases": cases},
        separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
