#!/usr/bin/env python3
"""An independent checker of spec/vectors. It shares no code with the implementation
and needs nothing but Python 3.9 and its standard library.

    python3 spec/vectors/checker/check.py [folder of the vectors]

A layer is a file beside this one, LAYER.py, with a function for each `function` of the
layer's vectors, dashes written as underscores: it takes the input and returns the output,
or raises Refuse(code). A function marked wants_output is handed the output too, because there is
more than one right answer and it checks the one given. Folders whose layer has no file here are named and passed over.
Exit status: 0 all checked cases agree, 1 some differ, 2 the folder cannot be read.
"""
import importlib
import json
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from refuse import Refuse  # noqa: E402


def run(path, case, module):
    try:
        function = getattr(module, case["function"].replace("-", "_"))
    except AttributeError:
        return None
    try:
        if getattr(function, "wants_output", False):
            got, refused = function(case["input"], case.get("output")), None
        else:
            got, refused = function(case["input"]), None
    except Refuse as r:
        got, refused = None, r.code
    want, want_refused = case.get("output"), case.get("refuse")
    if (got, refused) == (want, want_refused):
        return True
    print(f"{path}: {case['about']}\n  got  {refused or json.dumps(got)}\n  want {want_refused or json.dumps(want)}")
    return False


def cases(folder):
    """The cases of a folder: one a .json file, one a line of a .jsonl file."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith(".json"):
            with open(path, encoding="utf-8") as f:
                yield path, json.load(f)
        elif name.endswith(".jsonl"):
            with open(path, encoding="utf-8") as f:
                for n, line in enumerate(f, 1):
                    yield f"{path}:{n}", json.loads(line)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(HERE)
    agreed = differed = skipped = 0
    try:
        layers = sorted(d for d in os.listdir(root) if os.path.isdir(os.path.join(root, d)) and d != "checker")
    except OSError as e:
        print(e)
        return 2
    for layer in layers:
        here = list(cases(os.path.join(root, layer)))
        if not os.path.exists(os.path.join(HERE, layer + ".py")):
            print(f"{layer}: not checked here ({len(here)} cases)")
            skipped += len(here)
            continue
        module = importlib.import_module(layer)
        verdicts = [run(path, case, module) for path, case in here]
        agreed += verdicts.count(True)
        differed += verdicts.count(False)
        skipped += verdicts.count(None)
        print(f"{layer}: {verdicts.count(True)} of {len(here)} agree")
    print(f"{agreed} agree, {differed} differ, {skipped} not checked")
    return 1 if differed or not agreed else 0


if __name__ == "__main__":
    sys.exit(main())
