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
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for attempt in range(1000):
        folder = parent / (f"{stamp}-{name}" + (f"-{attempt + 1}" if attempt else ""))
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise LabError(f"cannot make the run's folder {folder}: {error.strerror}") from None
        return folder
    raise LabError(f"there are a thousand runs named {stamp}-{name} in {parent}")


def hand_over(folder: Path) -> None:
    """Gives a folder and all in it to the user who called sudo, if one did."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if os.geteuid() or not user or not group:
        return
    # The folder of runs as well, or that user could not start the next one there; but nothing that was there before.
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(OSError):
            os.chown(path, int(user), int(group), follow_symlinks=False)


def drop_if_empty(folder: Path) -> None:
    """Removes the folder of a run of which there is nothing to keep."""
    with contextlib.suppress(OSError):
        folder.rmdir()
