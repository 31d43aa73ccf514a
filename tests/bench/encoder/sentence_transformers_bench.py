#!/usr/bin/env python3
"""Times sentence-transformers on encoder_texts.txt and prints tokens per second as JSON.

    sentence_transformers_bench.py MODEL_DIRECTORY [--threads N] [--batch-size N] [--seconds S]

Tokens are counted without padding but with special tokens, as Castor reports them.
Needs sentence-transformers and torch (tests/golden/encoder/make_minilm.py says which versions
and how to install them).
"""

import argparse
import json
import pathlib
import time

import sentence_transformers
import torch
from sentence_transformers import SentenceTransformer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--texts", default=pathlib.Path(__file__).parent / "encoder_texts.txt")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    model = SentenceTransformer(args.model, device="cpu")
    texts = pathlib.Path(args.texts).read_text(encoding="utf-8").splitlines()
    tokens = sum(len(model.tokenizer(text, truncation=True, max_length=model.max_seq_length)
                     ["input_ids"]) for text in texts)

    def run():
        start = time.perf_counter()
        model.encode(texts, batch_size=args.batch_size, show_progress_bar=False)
        return time.perf_counter() - start

    run()  # warm up
    times = []
    while not times or sum(times) < args.seconds:
        times.append(run())
    times.sort()
    median = times[len(times) // 2]
    print(json.dumps({
        "what": f"sentence-transformers {sentence_transformers.__version__}",
        "torch": torch.__version__, "threads": args.threads, "batch_size": args.batch_size,
        "texts": len(texts), "tokens": tokens, "runs": len(times),
        "tokens_per_second": round(tokens / median), "best": round(tokens / times[0]),
    }))


if __name__ == "__main__":
    main()
