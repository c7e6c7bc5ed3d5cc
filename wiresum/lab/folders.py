"""The folders of runs."""

import contextlib
import os
import time
from pathlib import Path

from wiresum.lab.programs import LabError


def new_folder(parent: Path, name: str) -> Path:
    """Makes PARENT/TIME-NAME, which no other run has.

    Raises:
        LabError: it cannot be made.
    """
    return own_folder(parent, f"{time.strftime('%Y%m%d-%H%M%S')}-{name}")


def own_folder(parent: Path, name: str) -> Path:
    """Makes PARENT/NAME or, if somebody has that, PARENT/NAME-N; what it makes is the user's who called sudo.

    Raises:
        LabError: it cannot be made.
    """
    try:
        make_folder(parent)
    except OSError as error:
        raise LabError(f"cannot make the run's folder in {parent}: {error.strerror}") from None
    for attempt in range(1000):
        folder = parent / (name + (f"-{attempt + 1}" if attempt else ""))
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise LabError(f"cannot make the run's folder {folder}: {error.strerror}") from None
        _give(folder)
        return folder
    raise LabError(f"there are a thousand runs named {name} in {parent}")


def make_folder(folder: Path) -> None:
    """Makes a folder, unless it is there, with those above it; what it makes is the user's who called sudo.

    Raises:
        OSError: it cannot be made.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in made:
        _give(path)


def hand_over(folder: Path) -> None:
    """Gives a folder and all in it to the user who called sudo, if one did."""
    for path in (folder, *folder.rglob("*")):
        _give(path)


def _give(path: Path) -> None:
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if os.geteuid() or not user or not group:
        return
    with contextlib.suppress(OSError):
        os.chown(path, int(user), int(group), follow_symlinks=False)


def drop_if_empty(folder: Path) -> None:
    """Removes the folder of a run of which there is nothing to keep."""
    with contextlib.suppress(OSError):
        folder.rmdir()
