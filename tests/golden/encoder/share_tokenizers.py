#!/usr/bin/env python3
"""Keeps each tokenizer.json once, on one line: in tokenizers/, by its digest, with links to it from
the directories that have the same one. Run it after what makes directories."""

import collections
import hashlib
import json
import os
import pathlib

HERE = pathlib.Path(__file__).parent
SHARED = HERE / "tokenizers"

users = collections.defaultdict(list)
for path in sorted(HERE.rglob("tokenizer.json")):
    content = json.dumps(json.loads(path.read_text()), separators=(",", ":"), ensure_ascii=False)
    users[content.encode()].append(path)
for path in SHARED.glob("*.json"):
    path.unlink()
SHARED.mkdir(exist_ok=True)
for content, paths in users.items():
    if len(paths) == 1:
        paths[0].unlink()
        paths[0].write_bytes(content)
        continue
    shared = SHARED / (hashlib.sha256(content).hexdigest()[:12] + ".json")
    shared.write_bytes(content)
    for path in paths:
        path.unlink()
        path.symlink_to(os.path.relpath(shared, path.parent))
