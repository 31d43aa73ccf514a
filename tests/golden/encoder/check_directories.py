#!/usr/bin/env python3
"""Serves model directories with castor-server and compares its answers, over a socket, with what
the libraries computed (make_directories.py, make_variations.py).

    check_directories.py --server PATH [--variations FILE] [SAVED]

SAVED holds folders of directories, one for each pair of libraries that saved them; the expected rows
are those of the newest sentence-transformers that read them, or else of the one that saved them.
Prints a table in Markdown: how many directories agree within 2e-5, how many castor-server refuses
to start with, in its own words; ends with 1 where an answer differs or a refusal names neither file
nor key.
"""

import argparse
import collections
import importlib
import json
import pathlib
import re
import shutil
import struct
import sys
import tempfile

import edits
import grpc
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
from castor_server import CastorServer, StartError  # noqa: E402

TOLERANCE = 2e-5
OUTPUTS = ["POOLED", "TOKEN_EMBEDDINGS", "LOGITS", "SCORES", "SPARSE"]
TOGETHER = 12  # directories that one server serves: it starts anew for each that it refuses


def wire():
    """The modules of encoder.proto."""
    folder = tempfile.mkdtemp()
    protos = [str(path) for path in sorted((ROOT / "proto/castor/v1").glob("*.proto"))]
    protos.append(str(ROOT / "proto/google/rpc/status.proto"))
    if protoc.main(["", f"-I{ROOT / 'proto'}", f"--python_out={folder}",
                    f"--grpc_python_out={folder}", *protos]):
        raise SystemExit("protoc failed")
    sys.path.insert(0, folder)
    return (importlib.import_module("castor.v1.encoder_pb2"),
            importlib.import_module("castor.v1.encoder_pb2_grpc"))


messages, services = wire()


class Server:
    """Serves {name: directory}; `refusal` is why it does not."""

    def __init__(self, program, directories):
        models = [f"--model={name}={path}" for name, path in directories.items()]
        self.refusal = None
        try:
            self.server = CastorServer(program, *models)
        except StartError as error:
            self.refusal = str(error).strip().splitlines()[-1]
            return
        self.channel = grpc.insecure_channel(self.server.address, [
            ("grpc.max_receive_message_length", 1 << 28)])
        self.stub = services.EncoderServiceStub(self.channel)

    def stop(self):
        if self.refusal is None:
            self.channel.close()
            self.server.stop()


def rows_of(answer, output):
    if output == "SPARSE":
        return dict(zip(answer.sparse.indices, answer.sparse.values)), None
    values = struct.unpack(f"<{len(answer.output.raw) // 4}f", answer.output.raw)
    return values, list(answer.output.shape)


def difference(server, model, case, output, split):
    """The greatest one of a row, or what is wrong."""
    request = messages.EncodeRequest(model=model, output=output)
    request.texts.texts.append(case["text"])
    if case["pair"] is not None:
        request.texts.pairs.append(case["pair"])
    request.texts.allow_special_tokens = not split
    if "task" in case:
        request.prompt_name = case["task"]
    try:
        answer = server.stub.Encode(request, timeout=60)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    if "ids" in case and list(answer.token_counts) != [len(case["ids"])]:
        return f"{list(answer.token_counts)[0]} tokens, not {len(case['ids'])}"
    expected = [x for row in case[output] for x in row]
    got, shape = rows_of(answer, output)
    if "kept" in case and len(got) != len(expected):
        width = shape[-1]
        some = [x for row in case["kept"] for x in got[row * width:(row + 1) * width]]
        agree = len(some) == len(expected) and all(
            abs(x - y) <= TOLERANCE for x, y in zip(expected, some))
        return (f"{shape[0]} rows, not the {len(case['kept'])} that the library keeps"
                f" ({'which agree' if agree else 'and those differ'})")
    if output == "SPARSE":
        return max((abs(x - got.get(i, 0)) for i, x in enumerate(expected)), default=0.0)
    if len(got) != len(expected):
        return f"shape {shape}, not {[len(case[output]), len(case[output][0])]}"
    return max((abs(x - y) for x, y in zip(expected, got)), default=0.0)


def compare(server, model, expected, split, saver):
    """The greatest difference; what is wrong, of the first case where something is; whether some case
    is as `saver` has it, and not as `expected`."""
    worst, as_saved = 0.0, False
    for number, case in enumerate(expected["cases"]):
        for output in OUTPUTS:
            if output not in case:
                continue
            found = difference(server, model, case, output, split)
            if not is_small(found) and "cases" in saver:
                other = difference(server, model, saver["cases"][number], output, split)
                as_saved |= is_small(other)
                found = other if is_small(other) else found
            if not is_small(found):
                return worst, (f"{output} of {case['text'][:30]!r}"
                               f"{'' if case['pair'] is None else ' with a pair'}: "
                               f"{found if isinstance(found, str) else f'off by {found:.2g}'}"), False
            worst = max(worst, found)
    return worst, None, as_saved


def is_small(found):
    return not isinstance(found, str) and found <= TOLERANCE


def serve(program, directories):
    """Yields (name, server or None, refusal) of each of `directories`."""
    left = dict(directories)
    while left:
        some = dict(list(left.items())[:TOGETHER])
        server = Server(program, some)
        if server.refusal is None:
            for name in some:
                yield name, server, None
                del left[name]
            server.stop()
            continue
        # The line names the directory that it is about; where it does not, try each alone.
        blamed = [name for name, path in some.items()
                  if re.search(re.escape(str(path)) + r"(?![\w.-])", server.refusal)]
        if len(some) == 1:
            blamed = list(some)
        if len(blamed) == 1:
            yield blamed[0], None, server.refusal.replace(str(some[blamed[0]]), "DIR")
            del left[blamed[0]]
        else:
            for name, path in some.items():
                alone = Server(program, {name: path})
                yield (name, None, alone.refusal) if alone.refusal else (name, alone, None)
                alone.stop()
                del left[name]


def names_its_reason(refusal):
    """Whether a refusal says which file it is about."""
    return bool(re.search(r"[\w.-]+\.(json|txt|safetensors|model|bin)\b", refusal))


class Tally:
    def __init__(self):
        self.agree = self.refused = self.served_by_library = 0
        self.worst = 0.0
        self.refusals = collections.Counter()
        self.wrong = []
        self.disagree = []  # libraries, of each other
        self.as_saved = []  # where the newest library answers otherwise than the one that saved it

    def add(self, name, server, refusal, expected, split=False, saver=None):
        before = len(self.wrong)
        self.compare(name, server, refusal, expected, split, saver)
        print(name, *(self.wrong[before:] or ["refused: " + refusal if refusal else "agrees"]),
              file=sys.stderr, flush=True)

    def compare(self, name, server, refusal, expected, split, saver):
        if server is None:
            self.refused += 1
            self.served_by_library += "error" not in expected
            reason = re.sub(r"^.*?(error|critical)\S*\s+", "", refusal)
            self.refusals[reason] += 1
            if not names_its_reason(refusal):
                self.wrong.append(f"{name}: its refusal names no file: {refusal}")
            return
        if "error" in expected:
            self.wrong.append(f"{name}: serves what the library refuses: {expected['error']}")
            return
        worst, wrong, as_saved = compare(server, name, expected, split, saver or {})
        self.as_saved += [name] if as_saved else []
        if wrong is None:
            self.agree += 1
            self.worst = max(self.worst, worst)
        else:
            self.wrong.append(f"{name}: {wrong}")


def agree(one, other):
    """Whether two libraries computed the same."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(agree, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return all(agree(one.get(key), other.get(key)) for key in OUTPUTS + ["cases", "error"])
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= TOLERANCE
    return one == other


def check_saved(program, folder):
    directories, expectations = {}, {}
    tally = Tally()
    for path in sorted(folder.iterdir()):
        # By the newest library; and by the one that saved it.
        found = [json.loads(file.read_text()) for file in sorted(path.glob("expected*.json"))]
        if path.is_dir() and found:
            directories[path.name], expectations[path.name] = path, found
            if not agree(found[0], found[-1]):
                tally.disagree.append(path.name)
    for name, server, refusal in serve(program, directories):
        newest, *others = expectations[name]
        tally.add(name, server, refusal, newest, saver=others[-1] if others else None)
    return tally


def check_variations(program, file):
    """Each of variations.json, of the directories beside it."""
    tallies = {}
    with tempfile.TemporaryDirectory() as temporary:
        for base, told in json.loads(file.read_text())["bases"].items():
            tally = tallies[base] = Tally()
            directories = {"0": file.parent / base}
            rows = {"0": {"result": 0, "edits": []}}
            for number, row in enumerate(told["variations"], 1):
                if row.get("apart"):
                    continue
                folder = pathlib.Path(temporary, base, str(number))
                shutil.copytree(file.parent / base, folder)
                for edit in row["edits"]:
                    edits.apply(folder, edit)
                directories[str(number)], rows[str(number)] = folder, row
            for name, server, refusal in serve(program, directories):
                row = rows[name]
                before = len(tally.wrong)
                tally.add(name, server, refusal, told["results"][row["result"]],
                          row.get("split", False))
                tally.wrong[before:] = [f"{base} {edits.told(row['edits'])}: {line}"
                                        for line in tally.wrong[before:]]
    return tallies


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--variations", type=pathlib.Path)
    parser.add_argument("saved", type=pathlib.Path, nargs="?")
    arguments = parser.parse_args()
    tallies = {}
    if arguments.saved:
        for folder in sorted(path for path in arguments.saved.iterdir() if path.is_dir()):
            tallies[folder.name] = check_saved(arguments.server, folder)
    if arguments.variations:
        for base, tally in check_variations(arguments.server, arguments.variations).items():
            tallies[f"variations of {base}"] = tally

    print("| directories | agree | greatest difference | refused | of them, the library serves |"
          " wrong |\n|---|---|---|---|---|---|")
    for name, tally in tallies.items():
        print(f"| {name} | {tally.agree} | {tally.worst:.1e} | {tally.refused} | "
              f"{tally.served_by_library} | {len(tally.wrong)} |")
    for name, tally in tallies.items():
        if tally.disagree:
            print(f"\nThe newest library computes other rows than {name} of: "
                  f"{', '.join(tally.disagree)}.")
        if tally.as_saved:
            print(f"castor-server answers as {name} of: {', '.join(tally.as_saved)}.")
    refusals = sum((tally.refusals for tally in tallies.values()), collections.Counter())
    print("\nRefusals:\n")
    for reason, times in refusals.most_common():
        print(f"- {times} x {reason}")
    wrong = [f"{name}: {line}" for name, tally in tallies.items() for line in tally.wrong]
    print("\nWrong:\n" if wrong else "\nNothing is wrong.")
    for line in wrong:
        print(f"- {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
