"""Checks that each set of values in refusals.yaml is refused, with a message that says why."""

import re
import sys

import yaml

import rendering


def main():
    cases = yaml.safe_load((rendering.HERE / "refusals.yaml").read_text())
    failed = False
    for case in cases:
        flags = [flag for value in case["set"] for flag in ("--set", value)]
        try:
            rendering.render("default", *flags)
            problem = "was not refused"
        except RuntimeError as refused:
            said = str(refused)
            problem = None if re.search(case["says"], said) else f"said: {said}"
        if problem:
            failed = True
            print(f"{' '.join(case['set'])}: {problem}")
    if failed:
        sys.exit(1)
    print(f"refusals_test: {len(cases)} sets of values were refused")


if __name__ == "__main__":
    main()
