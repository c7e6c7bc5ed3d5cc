"""Runs a folder of compiled P4 programs, each with an STF file of packet tests beside it.

    python -m switch.model.stf FOLDER [--only NAME ...] [--verbose NAME]

A test is NAME.stf with NAME.json, as p4c-bm2-ss compiled it. If the folder has a file bmv2_results.tsv (NAME, tab, PASS
or FAIL), the totals also say how many of the tests that BMv2 passes pass here. The exit code is 0 if all those pass
(without the file: all), 1 if not, 2 if there is nothing to run.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from switch.model.core import ModelSwitch
from switch.model.errors import ModelError, ProgramError, UnsupportedError
from switch.model.stf_run import Outcome, StfRun
from switch.model.stf_syntax import StfError, parse_stf


@dataclass(frozen=True, slots=True)
class Result:
    """Of one test.

    Attributes:
        verdict: passed, failed (packets or counters differ), refused (the program cannot be loaded), crashed, or
            bad test (the STF file does not fit the program).
        reason: why it is not passed; one line.
    """

    name: str
    verdict: str
    reason: str
    seconds: float
    outcome: Outcome | None = None


def run_test(program: Path, test: Path, *, trace: bool = False) -> Result:
    """Runs one STF file against one compiled program."""
    start = time.perf_counter()
    outcome: Outcome | None = None
    verdict, reason = "passed", ""
    try:
        run = StfRun(ModelSwitch.load(program), trace=trace)
        outcome = run.outcome
        run.run(parse_stf(test.read_text()))
        if not outcome.passed:
            verdict, reason = "failed", outcome.failures[0]
    except StfError as error:
        verdict, reason = "bad test", str(error)
    except UnsupportedError as error:
        verdict, reason = "refused", str(error)
    except ProgramError as error:
        verdict, reason = "refused", f"damaged: {error}"
    except ModelError as error:
        verdict, reason = "failed", str(error)
    except Exception as error:  # a fault of the switch; the other tests must still run
        verdict, reason = "crashed", f"{type(error).__name__}: {error}"
    return Result(test.stem, verdict, " ".join(reason.split()), time.perf_counter() - start, outcome)


def run_folder(folder: Path, names: Sequence[str] = ()) -> list[Result]:
    """Runs all tests of a folder that have a compiled program, or some of them, in the order of their names."""
    tests = [folder / f"{name}.stf" for name in names] or sorted(folder.glob("*.stf"))
    return [run_test(test.with_suffix(".json"), test) for test in tests if test.with_suffix(".json").exists()]


def read_reference(path: Path) -> dict[str, bool]:
    """Which tests another switch passes: NAME, tab, PASS or FAIL, whatever comes after."""
    found = {}
    for line in path.read_text().splitlines():
        words = re.split(r"\t+|\s{2,}", line.strip())
        if len(words) >= 2 and not line.startswith("#"):
            found[words[0].removesuffix(".stf")] = words[1].strip().lower() in ("pass", "passed", "ok")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs tests and writes a line for each; see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=(), help="run these tests")
    parser.add_argument("--verbose", metavar="NAME", help="run this test and show what every packet does")
    args = parser.parse_args(arguments)
    if args.verbose is not None:
        return _show(args.folder, args.verbose)
    results = run_folder(args.folder, args.only)
    if not results:
        sys.stderr.write(f"{args.folder} holds no NAME.stf with NAME.json beside it\n")
        return 2
    reference_path = args.folder / "bmv2_results.tsv"
    reference = read_reference(reference_path) if reference_path.exists() else {}
    width = max(len(result.name) for result in results)
    for result in results:
        known = ("BMv2 passes" if reference[result.name] else "BMv2 fails") if result.name in reference else ""
        line = f"{result.verdict:<8} {result.name:<{width}} {known:<11} {result.seconds:6.2f} s  {result.reason}"
        sys.stdout.write(line.rstrip() + "\n")
    return _totals(results, reference)


def _totals(results: list[Result], reference: dict[str, bool]) -> int:
    counts = Counter(result.verdict for result in results)
    sys.stdout.write(f"\n{counts['passed']} of {len(results)} passed")
    others = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()) if verdict != "passed")
    sys.stdout.write(f" ({others})\n" if others else "\n")
    counted = results
    if reference:
        counted = [result for result in results if reference.get(result.name)]
        passed = sum(result.verdict == "passed" for result in counted)
        share = 100 * passed / len(counted) if counted else 0.0
        sys.stdout.write(f"{passed} of {len(counted)} that BMv2 passes passed ({share:.1f} %)\n")
    return 0 if all(result.verdict == "passed" for result in counted) else 1


def _show(folder: Path, name: str) -> int:
    test = folder / f"{name}.stf"
    program = test.with_suffix(".json")
    for path in (test, program):
        if not path.exists():
            sys.stderr.write(f"{path} does not exist\n")
            return 2
    result = run_test(program, test, trace=True)
    if result.outcome is not None:
        for part in (result.outcome.traces, result.outcome.notes, result.outcome.failures):
            sys.stdout.writelines(f"{line}\n" for line in part)
    sys.stdout.write(f"{name}: {result.verdict} {result.reason}\n")
    return 0 if result.verdict == "passed" else 1


if __name__ == "__main__":
    sys.exit(main())
