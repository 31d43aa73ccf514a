"""One runtime with one model, which measures itself when asked.

    contender.py RUNTIME TYPE MODEL_DIRECTORY TEXTS WORK_DIRECTORY THREADS

Reads commands from standard input, a line each, and answers each with a line of JSON:
    tokens SECONDS   tokens per second over all texts, without tokenizing, with the best batch
    one SECONDS      the median time of one text of 12 tokens, in milliseconds
    vectors FILE     writes the texts' mean-pooled, normalised vectors as .npy
    memory           the most memory that the process has had, in MiB
Texts are sorted by length and cut into batches, padded to each batch's longest. The first `tokens`
tries several batch sizes, and later ones use the best.
"""

import json
import pathlib
import sys
import time

import numpy as np

import runtimes

BATCHES = (4, 8, 16, 32, 64, 128)
ONE = "how do i reset the password of my work account"  # 12 tokens with [CLS] and [SEP]


def make_batches(sequences, size):
    """Padded ids and masks of texts in order of length, with their indices."""
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    batches = []
    for begin in range(0, len(order), size):
        indices = order[begin:begin + size]
        longest = max(len(sequences[i]) for i in indices)
        ids = np.zeros((len(indices), longest), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, i in enumerate(indices):
            ids[row, :len(sequences[i])] = sequences[i]
            mask[row, :len(sequences[i])] = 1
        batches.append((indices, ids, mask))
    return batches


def pool(rows, mask):
    """Mean over real tokens, to unit length."""
    weights = mask[:, :, None].astype(np.float32)
    means = (rows * weights).sum(1) / weights.sum(1)
    return means / np.linalg.norm(means, axis=1, keepdims=True)


class Contender:
    def __init__(self, run, sequences, one):
        self.run, self.sequences = run, sequences
        self.tokens = sum(len(ids) for ids in sequences)
        self.one_ids = np.array([one], dtype=np.int64)
        self.size = None

    def _seconds(self, size):
        start = time.perf_counter()
        for _, ids, mask in make_batches(self.sequences, size):
            pool(self.run(ids, mask), mask)
        return time.perf_counter() - start

    def measure_tokens(self, seconds):
        if self.size is None:
            self._seconds(32)
            self.size = min(BATCHES, key=self._seconds)
        passes, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            self._seconds(self.size)
            passes += 1
        elapsed = time.perf_counter() - start
        padded = sum(ids.size for _, ids, _ in make_batches(self.sequences, self.size))
        return {"tokens_per_s": passes * self.tokens / elapsed, "batch": self.size,
                "padded": 1 - self.tokens / padded}

    def measure_one(self, seconds):
        mask, times = np.ones_like(self.one_ids), []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            pool(self.run(self.one_ids, mask), mask)
            times.append(time.perf_counter() - start)
        return {"p50_ms": 1e3 * float(np.median(times))}

    def write_vectors(self, path):
        vectors = None
        for indices, ids, mask in make_batches(self.sequences, 32):
            pooled = pool(self.run(ids, mask), mask)
            if vectors is None:
                vectors = np.zeros((len(self.sequences), pooled.shape[1]), dtype=np.float32)
            vectors[indices] = pooled
        np.save(path, vectors)
        return {}


def peak_mib():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return {"mib": int(line.split()[1]) / 1024}
    return {}


def main():
    runtime, dtype, model, texts, work, threads = sys.argv[1:7]
    answers = sys.stdout
    sys.stdout = sys.stderr  # what runtimes print is no answer
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(model + "/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    lines = pathlib.Path(texts).read_text(encoding="utf-8").splitlines()
    sequences = [tokenizer.encode(line).ids for line in lines]
    run = runtimes.LOADERS[runtime](dtype, model, pathlib.Path(work), int(threads), sequences)
    contender = Contender(run, sequences, tokenizer.encode(ONE).ids)
    commands = {"tokens": lambda s: contender.measure_tokens(float(s)),
                "one": lambda s: contender.measure_one(float(s)),
                "vectors": contender.write_vectors, "memory": peak_mib}
    print(json.dumps({"version": runtimes.VERSIONS[runtime]()}), file=answers, flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        print(json.dumps(commands[name](*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
