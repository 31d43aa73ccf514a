#!/usr/bin/env python3
"""Tokenize and Detokenize against transformers on the same model directories.

  token_peers.py peer DIRECTORY... > expected.json           in the library's environment
  token_peers.py check SERVER expected.json                  with client/python on PYTHONPATH

Servers name each model by its directory's name. Texts are random, of several scripts, with
whitespace of all kinds, combining marks and emoji. Pairs are not empty: transformers takes an empty
one for none.
"""

import json
import os
import random
import sys


def problems(count=150):
    draw = random.Random(11)
    words = (
        "a dam beaver builds Rates rose, Wasser über u\u0308ber 水 плотина ? !! and the river 12,5 x' "
        "don't naïve \U0001f9ab\u200d\U0001f4a7 ﬁne Å \u0130 ß <x> [y] \u0e17\u0e35\u0e48 한국어 \ufffd \u200b"
    ).split(" ")
    spaces = [" ", " ", " ", "  ", "\t", "\n", "\u00a0", "\u3000", ""]

    def text(most):
        pieces = []
        for _ in range(draw.randrange(most)):
            pieces += [draw.choice(words), draw.choice(spaces)]
        return "".join(pieces)

    for i in range(count):
        yield dict(
            text=text(40), pair=text(20) + "a" if i % 3 == 0 else None, special=i % 4 != 1, cut=i % 5 == 2
        )


def peer(directories):
    from transformers import AutoTokenizer

    everything = {}
    for directory in directories:
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        rows = everything[os.path.basename(os.path.normpath(directory))] = []
        for one in problems():
            made = tokenizer(
                one["text"],
                one["pair"],
                add_special_tokens=one["special"],
                truncation=one["cut"],
                max_length=9 if one["cut"] else None,
                return_offsets_mapping=True,
                return_special_tokens_mask=True,
                verbose=False,
            )
            ids = made["input_ids"]
            rows.append(
                dict(
                    one,
                    ids=ids,
                    special_mask=made["special_tokens_mask"],
                    offsets=made["offset_mapping"],
                    tokens=tokenizer.convert_ids_to_tokens(ids),
                    texts=[
                        tokenizer.decode(ids, skip, clean_up_tokenization_spaces=False)
                        for skip in (False, True)
                    ],
                )
            )
    json.dump(everything, sys.stdout)


def check(server, expected):
    import grpc
    from castor.v1 import encoder_pb2, encoder_pb2_grpc

    stub = encoder_pb2_grpc.EncoderServiceStub(grpc.insecure_channel(server))
    failed = False
    for model, rows in json.load(open(expected)).items():
        differs = dict.fromkeys(
            ("ids", "special", "characters", "bytes", "tokens", "text", "without special"), 0
        )
        tokens = 0
        for one in rows:
            pairs = [one["pair"]] if one["pair"] is not None else []
            cut = dict(truncate=True, max_tokens=9) if one["cut"] else {}
            got = stub.Tokenize(
                encoder_pb2.TokenizeRequest(
                    model=model,
                    texts=encoder_pb2.TextBatch(
                        texts=[one["text"]], pairs=pairs, allow_special_tokens=True
                    ),
                    add_special_tokens=one["special"],
                    return_tokens=True,
                    prompt_name="",
                    **cut,
                )
            )
            tokens += len(got.ids)
            characters = list(map(list, zip(got.character_begins, got.character_ends)))
            sources = [one["pair"] if second else one["text"] for second in got.pair]
            ends = zip(sources, one["offsets"])
            as_bytes = [[len(s[:a].encode()), len(s[:b].encode())] for s, (a, b) in ends]
            differs["ids"] += list(got.ids) != one["ids"]
            differs["special"] += [int(s) for s in got.special] != one["special_mask"]
            differs["characters"] += characters != one["offsets"]
            differs["bytes"] += list(map(list, zip(got.byte_begins, got.byte_ends))) != as_bytes
            differs["tokens"] += list(got.tokens) != one["tokens"]
            if not one["ids"]:
                continue
            for skip, name in ((False, "text"), (True, "without special")):
                back = stub.Detokenize(
                    encoder_pb2.DetokenizeRequest(
                        model=model,
                        tokens=encoder_pb2.TokenBatch(ids=one["ids"]),
                        skip_special_tokens=skip,
                    )
                )
                differs[name] += back.texts[0] != one["texts"][skip]
        wrong = {name: count for name, count in differs.items() if count}
        failed |= bool(wrong)
        print(f"{model}: {len(rows)} inputs, {tokens} tokens: {wrong or 'equal'}")
    return failed


if sys.argv[1] == "peer":
    peer(sys.argv[2:])
else:
    sys.exit(check(*sys.argv[2:]))
