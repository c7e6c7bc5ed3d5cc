"""The files of an experiment: complete ones appear together, and until then rows are kept in files called partial."""

import contextlib
import csv
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from wiresum.lab.folders import hand_over

_PARTIAL: Final = (".partial.csv", ".partial.json")


class ResultFiles:
    """NAME.csv, .json and .png in a folder, and until there is a picture NAME.partial.csv and .json.

    Files of an earlier run stay as they are until all of the new ones have been written.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._made = False

    def path(self, suffix: str) -> Path:
        """One of the files."""
        return self.folder / f"{self.name}{suffix}"

    @property
    def partial(self) -> Path:
        """The table of a run that has not ended in order."""
        return self.path(_PARTIAL[0])

    def prepare(self) -> None:
        """Makes the folder, and finds out whether files can be made in it.

        Raises:
            OSError: they cannot.
        """
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            self._made = True
        with tempfile.TemporaryFile(dir=self.folder):
            pass

    def keep(self, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
        """Writes the rows so far.

        Raises:
            OSError: they cannot be written; what was kept before is still there.
        """
        writers = (lambda path: _write_table(path, rows), lambda path: _write_json(path, about))
        self._replace(dict(zip(_PARTIAL, writers, strict=True)))

    def complete(
        self, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], draw: Callable[[Path], object]
    ) -> None:
        """Writes table, parameters and, by `draw`, the picture; partial files have had their time then.

        Raises:
            OSError: they cannot be written, and none was.
        """
        self._replace(
            {
                ".csv": lambda path: _write_table(path, rows),
                ".json": lambda path: _write_json(path, about),
                ".png": draw,
            }
        )
        for suffix in _PARTIAL:
            self.path(suffix).unlink(missing_ok=True)

    def drop_if_unused(self) -> None:
        """Removes the folder if it was made here and nothing is in it."""
        if self._made:
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def _replace(self, writers: Mapping[str, Callable[[Path], object]]) -> None:
        fresh = {suffix: self.folder / f".{self.name}.new{suffix}" for suffix in writers}
        try:
            for suffix, write in writers.items():
                write(fresh[suffix])
            for suffix, path in fresh.items():
                path.replace(self.path(suffix))
                hand_over(self.path(suffix))
        finally:
            for path in fresh.values():
                path.unlink(missing_ok=True)
        if self._made:
            hand_over(self.folder)


def _write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def _write_json(path: Path, about: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(about, indent=2) + "\n")
