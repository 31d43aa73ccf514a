#!/usr/bin/python3
"""Runs the tests of castor fetch against a hub on loopback.

    tests/fetch/fetch_test.py --castor build/client/castor [CLASS.NAME_OF_TEST ...]
"""

import argparse
import os
import subprocess
import sys
import unittest

import fetch_faults
import fetch_files
from fetch_case import FetchCase


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--castor", required=True, type=os.path.abspath)
    flags, names = parser.parse_known_args()
    loader = unittest.TestLoader()
    tests = {test.id().partition(".")[2]: test
             for module in (fetch_files, fetch_faults)
             for group in loader.loadTestsFromModule(module) for test in group}
    if not names:
        # Tests wait for most of their time: a process for every fourth.
        running = [subprocess.Popen([*sys.argv, *list(tests)[i::4]]) for i in range(4)]
        sys.exit(any([process.wait() for process in running]))
    FetchCase.castor = flags.castor
    suite = unittest.TestSuite(tests[name] for name in names)
    sys.exit(not unittest.TextTestRunner().run(suite).wasSuccessful())


if __name__ == "__main__":
    main()
