#!/usr/bin/env python3
"""Prints a random sample of the product's comments and error messages, to be read aloud.

    tests/checks/read_aloud.py [--seed N] [--comments 60] [--messages 20]

A native engineer should understand each one the first time: a named subject, the field's words,
one thought per sentence. The same seed and the same tree give the same sample.
"""

import argparse
import pathlib
import random
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("engine", "server", "client", "proto/castor")  # the other protos are their owners'
MARKS = {".h": "//", ".cc": "//", ".cu": "//", ".cuh": "//", ".rs": "//", ".proto": "//",
         ".py": "#"}

# A call whose text reaches users, up to the end of its statement.
ERROR_CALL = re.compile(r"\b(?:InvalidField|MakeError|QueueFull|Invalid|Fail|"
                        r"absl::\w+Error|LOG_\w+|spdlog::\w+)\((?P<arguments>[^;]*?)\)\s*;", re.S)
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def sources():
    listed = subprocess.run(["git", "ls-files", "-z", "--", *FOLDERS], cwd=ROOT, check=True,
                            capture_output=True).stdout.decode()
    for name in sorted(listed.split("\0")):
        if pathlib.Path(name).suffix in MARKS and "_pb2" not in name and "/tests/" not in name:
            yield name, (ROOT / name).read_text()


def comments(name, text):
    """(place, text) of each run of whole-line comments."""
    mark = MARKS[pathlib.Path(name).suffix]
    block, first = [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        line = line.strip()
        if line.startswith(mark) and not line.startswith("#!"):
            if not block:
                first = number
            block.append(line.lstrip("/#! "))
        elif block:
            said = "\n    ".join(block)
            if len(said.split()) >= 4 and not said.startswith("----"):
                yield f"{name}:{first}", said
            block = []


def messages(name, text):
    for call in ERROR_CALL.finditer(text):
        said = " … ".join(LITERAL.findall(call["arguments"]))
        if len(said.split()) >= 4:
            yield f"{name}:{text.count(chr(10), 0, call.start()) + 1}", said


def show(title, found, count, draw):
    print(f"\n==== {min(count, len(found))} of {len(found)} {title}")
    for place, said in draw.sample(found, min(count, len(found))):
        print(f"\n{place}\n    {said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--comments", type=int, default=60)
    parser.add_argument("--messages", type=int, default=20)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    files = list(sources())
    show("comments", [c for name, text in files for c in comments(name, text)], args.comments, draw)
    show("messages", [m for name, text in files for m in messages(name, text)], args.messages, draw)


if __name__ == "__main__":
    main()
