#!/usr/bin/env python3
"""Compares Tokenize and Detokenize over a socket with transformers' tokenizers of the same model
directories, which are those of the crate's Python package, `tokenizers`.

    venv/bin/pip install transformers grpcio protobuf sentencepiece
    PYTHONPATH=client/python/src venv/bin/python tests/clients/token_peers.py \\
        --server build/server/castor-server [--seed N] [DIRECTORY...]

By default those of tests/golden/encoder/directories. Texts are random, of several scripts, with
whitespace of all kinds, combining marks, emoji and marks of special tokens; some are longer than
what the server tokenizes at once. Not part of ctest: the packages come from the network.
"""

import argparse
import collections
import itertools
import pathlib
import random
import sys

import grpc
from castor.v1 import encoder_pb2, encoder_pb2_grpc
from transformers import AutoTokenizer

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
from castor_server import CastorServer  # noqa: E402

GOLDEN = TESTS / "golden/encoder/directories"
WORDS = ("a dam beaver builds Rates rose, Wasser über u\u0308ber 水 плотина ? !! and the river 12,5 x' "
         "don't naïve \U0001f9ab\u200d\U0001f4a7 ﬁne Å \u0130 ß <x> [y] \u0e17\u0e35\u0e48 한국어 \ufffd "
         "\u200b \ufdfa \u3347 \u0390 \u2460 \u00ad \u0001 \U0001242b [SEP] [MASK] </s> <s> <mask> "
         "<|endoftext|> <unk> [UNK] <0x0A> ▁ Ġ ## \u0915\u094d\u0937 مرحبا").split(" ")
SPACES = [" ", " ", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", ""]
KEPT = 9  # tokens of a text that is cut


def random_text(draw: random.Random, most: int) -> str:
    pieces = []
    for _ in range(draw.randrange(most)):
        pieces += [draw.choice(WORDS), draw.choice(SPACES)]
    return "".join(pieces)


def texts_of(draw: random.Random) -> list:
    long = draw.choice(["ab" * 20_000, "x " * 20_000, random_text(draw, 3000)])
    return (["", " ", " \n\t", "\u3000", "\ufeff", "\ufdfa", long] +
            [random_text(draw, 40) for _ in range(20)])


class Comparison:
    """Of one model."""

    def __init__(self, stub, directory: pathlib.Path, draw: random.Random):
        self.stub, self.model = stub, directory.name
        # A Router's tokenizer lies with its modules.
        at = min(directory.glob("**/tokenizer.json"), key=lambda file: len(file.parts)).parent
        self.peer = AutoTokenizer.from_pretrained(at, trust_remote_code=False)
        self.differs, self.first = collections.Counter(), {}
        self.inputs = self.tokens = 0
        for paired, special, split, side in itertools.product(
                (False, True), (False, True), (False, True), (None, "right", "left")):
            texts = texts_of(draw)
            # transformers takes an empty text of a pair for none.
            pairs = [random_text(draw, 20) + "a" for _ in texts] if paired else []
            self.tokenize(texts, pairs, special, split, side)
        limit = len(self.peer)
        self.detokenize([[draw.randrange(limit) for _ in range(draw.randrange(1, 40))]
                         for _ in range(200)])

    def compare(self, what: str, got, expected, of) -> None:
        if got != expected:
            self.differs[what] += 1
            self.first.setdefault(what, f"{of!r:.200}: {got!r:.300}, not {expected!r:.300}")

    def tokenize(self, texts, pairs, special, split, side) -> None:
        request = encoder_pb2.TokenizeRequest(
            model=self.model, add_special_tokens=special, return_tokens=True, prompt_name="",
            texts=encoder_pb2.TextBatch(texts=texts, pairs=pairs, allow_special_tokens=not split))
        if side is not None:
            request.truncate, request.max_tokens = True, KEPT
            request.truncation_side = encoder_pb2.TruncationSide.Value(side.upper())
        got = self.stub.Tokenize(request)
        at, back = 0, []
        for i, text in enumerate(texts):
            pair = pairs[i] if pairs else None
            whole, made = (self.peer_of(text, pair, special, split, s) for s in (None, side))
            end = at + got.lengths[i]
            of = (text, pair, special, split, side)
            sources = [pair if second else text for second in got.pair[at:end]]
            characters = [tuple(r) for r in made["offset_mapping"]]
            self.compare("ids", got.ids[at:end], made["input_ids"], of)
            self.compare("type ids", got.type_ids[at:end], made.encodings[0].type_ids, of)
            self.compare("special", [int(s) for s in got.special[at:end]],
                         made["special_tokens_mask"], of)
            self.compare("pair", got.pair[at:end], [s == 1 for s in made.sequence_ids(0)], of)
            self.compare("characters", list(zip(got.character_begins[at:end],
                                                got.character_ends[at:end])), characters, of)
            self.compare("bytes", list(zip(got.byte_begins[at:end], got.byte_ends[at:end])),
                         [(len(s[:a].encode()), len(s[:b].encode()))
                          for s, (a, b) in zip(sources, characters)], of)
            self.compare("tokens", got.tokens[at:end],
                         self.peer.convert_ids_to_tokens(made["input_ids"]), of)
            self.compare("truncated", got.truncated[i],
                         len(whole["input_ids"]) > len(made["input_ids"]), of)
            back.append(made["input_ids"])
            at = end
        self.compare("lengths", at, len(got.ids), texts)
        self.inputs += len(texts)
        self.tokens += at
        self.detokenize(back)

    def peer_of(self, text, pair, special, split, side):
        self.peer.truncation_side = side or "right"
        return self.peer(text, pair, add_special_tokens=special, split_special_tokens=split,
                         truncation=side is not None, max_length=KEPT if side else None,
                         return_offsets_mapping=True, return_special_tokens_mask=True,
                         verbose=False)

    def detokenize(self, sequences) -> None:
        batch = encoder_pb2.TokenBatch(ids=itertools.chain(*sequences),
                                       lengths=[len(s) for s in sequences])
        for skip in (False, True):
            got = self.stub.Detokenize(encoder_pb2.DetokenizeRequest(
                model=self.model, tokens=batch, skip_special_tokens=skip))
            expected = [self.peer.decode(s, skip, clean_up_tokenization_spaces=False)
                        for s in sequences]
            self.compare("how many texts", len(got.texts), len(expected), self.model)
            for text, other, ids in zip(got.texts, expected, sequences):
                self.compare("text", text, other, (ids, skip))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="the castor-server to ask")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("directories", type=pathlib.Path, nargs="*")
    arguments = parser.parse_args()
    directories = arguments.directories or sorted(d for d in GOLDEN.iterdir() if d.is_dir())
    models = [f"--model={d.name}={d}" for d in directories]
    server = CastorServer(arguments.server, *models)
    stub = encoder_pb2_grpc.EncoderServiceStub(grpc.insecure_channel(
        server.address, [("grpc.max_receive_message_length", 1 << 28)]))
    failed = False
    try:
        for directory in directories:
            one = Comparison(stub, directory, random.Random(arguments.seed))
            failed |= bool(one.differs)
            print(f"{one.model}: {one.inputs} inputs, {one.tokens} tokens: "
                  f"{dict(one.differs) or 'equal'}", *one.first.items(), sep="\n  ", flush=True)
    finally:
        server.stop()
    return failed


if __name__ == "__main__":
    sys.exit(main())
