"""A task like those of the Long Range Arena, from what a Debian machine has anyway: of which kind
is a file, by its bytes? Python, Perl, C, C++, Vim script, CMake, licences, manuals of commands and
of functions.

What would give a file away is taken out: its first lines (interpreter, modeline, licence), markup
of manuals, and what is not ASCII. What remains is cut to `longest` bytes. Files, not pieces of
them, are for training or held out, and of files that share their text only one is taken.
"""

import gzip
import hashlib
import pathlib
import random

# Kind: folders, endings ("" is none), names.
KINDS = {
    "c": (["/usr/include/linux", "/usr/include/x86_64-linux-gnu", "/usr/include/X11",
           "/usr/include/openssl"], [".h"]),
    "c++": (["/usr/include/c++", "/usr/include/absl", "/usr/include/boost"],
            ["", ".h", ".hpp", ".tcc"]),
    "cmake": (["/usr/share/cmake-3.25", "/usr/share/cmake-3.31", "/usr/lib/cmake"], [".cmake"]),
    "commands": (["/usr/share/man/man1", "/usr/share/man/man8"], [".gz"]),
    "functions": (["/usr/share/man/man2", "/usr/share/man/man3"], [".gz"]),
    "licence": (["/usr/share/doc"], ["copyright"]),
    "perl": (["/usr/share/perl", "/usr/share/perl5", "/usr/lib/x86_64-linux-gnu/perl"],
             [".pm", ".pl"]),
    "python": (["/usr/lib/python3", "/usr/lib/python3.11", "/usr/lib/python3.13"], [".py"]),
    "vim": (["/usr/share/vim"], [".vim"]),
}
MOST = 400     # files of a kind
LEAST = 60     # or the kind is left out
HEADER = 600   # bytes at a file's start that are not shown
SHORTEST = 300  # bytes of a document


def text_of(path):
    data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    lines = data.decode("utf-8", "replace").splitlines()
    if path.suffix == ".gz":  # a manual's requests
        lines = [line.replace("\\f", "").replace("\\", "") for line in lines
                 if line and line[0] not in ".'"]
    text = "\n".join(line.rstrip() for line in lines)
    return text.encode("ascii", "replace").decode()[HEADER:]


def files_of(folders, endings, chance):
    found = []
    for folder in folders:
        for path in pathlib.Path(folder).rglob("*"):
            named = path.name if "." not in path.name else path.suffix
            if (named in endings or ("" in endings and "." not in path.name)) and path.is_file():
                found.append(path)
    found = sorted({path.resolve() for path in found})
    chance.shuffle(found)
    return found


def collect(longest, seed=0, held_out=0.2):
    """(labels, training, held out): each of the last two a list of (text, label)."""
    labels, training, testing = [], [], []
    seen = set()
    for kind, (folders, endings) in KINDS.items():
        chance = random.Random(f"{seed} {kind}")
        taken = []
        for path in files_of(folders, endings, chance):
            if len(taken) == MOST:
                break
            try:
                text = text_of(path)
            except OSError:
                continue
            first = hashlib.sha256(text[:SHORTEST].encode()).digest()
            if len(text) < SHORTEST or first in seen:
                continue
            seen.add(first)
            taken.append(text)
        if len(taken) < LEAST:
            continue
        label = len(labels)
        labels.append(kind)
        cut = round(len(taken) * held_out)
        # Of those held out one piece each, so that they count alike; training cuts its own pieces.
        testing += [(text[:longest], label) for text in taken[:cut]]
        training += [(text[:8 * longest], label) for text in taken[cut:]]
    return labels, training, testing
