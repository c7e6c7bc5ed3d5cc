"""Where the compiled wiresum program is."""

import sys
from pathlib import Path

from switch.controller.errors import ProgramError


def find(values: int) -> tuple[Path, Path]:
    """The files of the program for `values` values per packet: the one compiled for BMv2, and its p4info.

    They stand in p4/compiled of a source checkout, or in share/wiresum/p4 of the environment.

    Raises:
        ProgramError: there is none; the text says where it was looked for, and for how many values there are some.
    """
    places = (Path(__file__).resolve().parents[2] / "p4" / "compiled", Path(sys.prefix) / "share" / "wiresum" / "p4")
    for place in places:
        files = place / f"wiresum_{values}.json", place / f"wiresum_{values}.p4info.txtpb"
        if all(file.is_file() for file in files):
            return files
    numbers = (path.stem.removeprefix("wiresum_") for place in places for path in place.glob("wiresum_*.json"))
    there = ", ".join(map(str, sorted({int(number) for number in numbers if number.isdecimal()})))
    raise ProgramError(
        f"no P4 program for {values} values per packet in {' or '.join(map(str, places))}; "
        f"{f'there are some for {there}' if there else 'there is none at all'}"
    )
