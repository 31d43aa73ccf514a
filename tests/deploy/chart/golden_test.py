"""Compares what each set of values renders to with the files in golden/.

golden_test.py [--update]: --update writes them anew. The whole of a dashboard is left out: it is
another folder's file, and what the chart does is to pass it on.
"""

import difflib
import sys

import rendering

GOLDEN = rendering.HERE / "golden"
MAX_DATA = 2048  # characters of a line that is shown whole; a dashboard is one of many more


def shortened(text):
    return "".join(
        line if len(line) <= MAX_DATA else f"{line[:80]}...\n"
        for line in text.splitlines(keepends=True))


def without_rules(text):
    """PrometheusRules end at their groups: those are files of deploy/monitoring."""
    documents = []
    for document in text.split("\n---\n"):
        if "kind: PrometheusRule" in document:
            document = document.split("\n  groups:")[0] + "\n  groups: of deploy/monitoring"
        documents.append(document)
    return "\n---\n".join(documents)


def main():
    update = "--update" in sys.argv[1:]
    GOLDEN.mkdir(exist_ok=True)
    names = rendering.value_sets()
    failed = False
    for name in names:
        text = shortened(without_rules(rendering.render(name)))
        file = GOLDEN / f"{name}.yaml"
        if update:
            file.write_text(text)
            continue
        expected = file.read_text() if file.exists() else ""
        if text != expected:
            failed = True
            sys.stdout.writelines(
                difflib.unified_diff(expected.splitlines(True), text.splitlines(True),
                                     f"golden/{name}.yaml", "rendered"))
    for file in GOLDEN.glob("*.yaml"):
        if file.stem not in names:
            failed = True
            print(f"golden/{file.name}: there is no such set of values")
    if failed:
        sys.exit("golden_test: what is rendered has changed; if rightly so: run.sh --update")
    print(f"golden_test: {len(names)} sets of values")


if __name__ == "__main__":
    main()
