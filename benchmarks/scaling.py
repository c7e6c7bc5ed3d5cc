"""How the time of one all_reduce grows with the number of workers, beside Gloo.

On a machine with fewer cores than processes this shows how the work grows, not what a network would do.

    python -m benchmarks.scaling
"""

import argparse
import sys
from typing import Final

from benchmarks.allreduce import measure_speed
from benchmarks.common import add_common_options, as_record, console, frame, new_table, positive, save, short
from benchmarks.figures import draw_scaling

_WORKERS: Final = (2, 3, 4, 6, 8, 12, 16)


def main() -> int:
    """Measures, prints, saves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, runs=5)
    parser.add_argument("--workers", nargs="+", type=positive, default=_WORKERS, help="default: 2 3 4 6 8 12 16")
    parser.add_argument("--elements", type=positive, default=1 << 22, help="default: 4Mi")
    parser.add_argument("--values", type=positive, default=256, help="values in a packet (default: %(default)s)")
    parser.add_argument("--slots", type=positive, help="slots of a pool; left to the agent if not given")
    args = parser.parse_args()
    if args.quick:
        args.workers, args.elements, args.runs = (2, 3), 1 << 18, min(args.runs, 3)
    content = frame("scaling", {k: v for k, v in vars(args).items() if k not in ("out", "quick")})
    args.sizes, args.backend = (args.elements,), False
    results, _ = measure_speed(args)
    content["samples"] = [as_record(one) for one in results]
    table = new_table(
        f"Time of one all_reduce of {short(args.elements)} float32, ms", "workers", "wiresum", "Gloo", "ratio"
    )
    for ours, gloo in zip(results[::2], results[1::2], strict=True):
        row = (f"{ours.time * 1e3:.1f}", f"{gloo.time * 1e3:.1f}", f"{ours.time / gloo.time:.2f}")
        table.add_row(str(ours.workers), *row)
    out = console()
    out.print(table)
    written = (save(args.out, "scaling", content), draw_scaling(results, args.out / "scaling.png"))
    out.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
