"""Runs some of rdma-core's tests in this process, which `verbatim run` has started. Used by pyverbs.py.

usage: pyverbs_child.py FOLDER DEVICE RESULTS [NAME...]

FOLDER has the tests as a package of that name. Without names all of them run. For each test one line of JSON goes to
RESULTS when it starts, and one when it ends, so that the reader knows which one a crash or a hang belongs to.
"""
import json
import os
import random
import sys
import unittest


class Result(unittest.TestResult):
    def __init__(self, path):
        super().__init__()
        self.file = open(path, 'a', encoding='utf-8')

    def tell(self, test, outcome, why=''):
        self.file.write(json.dumps([test.id().removeprefix('tests.'), outcome, why]) + '\n')
        self.file.flush()

    def startTest(self, test):
        super().startTest(test)
        random.seed(test.id())  # many take a random choice of features, and skip where one is missing
        self.tell(test, 'start')

    def addSuccess(self, test):
        self.tell(test, 'pass')

    def addSkip(self, test, reason):
        self.tell(test, 'skip', reason)

    def addError(self, test, err):
        self.tell(test, 'fail', f'{err[0].__name__}: {err[1]}')

    def addFailure(self, test, err):
        self.addError(test, err)


def flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def main():
    folder, device, results, *names = sys.argv[1:]
    sys.path[:0] = [folder, os.path.join(folder, 'tests')]
    sys.argv = ['tests', '--dev', device]
    import args_parser
    args_parser.parser.parse_args()
    import tests
    result = Result(results)
    for test in flatten(unittest.defaultTestLoader.loadTestsFromModule(tests)):
        if not names or test.id().removeprefix('tests.') in names:
            test.run(result)


main()
