"""Drives p4runtime-shell, unmodified, against a server, and prints how each step went as JSON.

    python -m tests.p4runtime_shell_script DEVICE ADDRESS P4INFO PROGRAM

It is a process of its own because the shell keeps one connection for the process, which it exits when that fails.
"""

import json
import os
import sys
from pathlib import Path

import p4runtime_sh.shell as sh

from tests import p4runtime_shell_any, p4runtime_shell_others, p4runtime_shell_tables

DEVICE, ADDRESS, P4INFO, PROGRAM = int(sys.argv[1]), *sys.argv[2:5]


def clean() -> None:
    """Removes what a step that failed has left in tables."""
    for table in sh.context.p4info.tables:
        if not table.is_const_table and table.match_fields:
            for each in list(sh.TableEntry(table.preamble.name).read()):
                each.delete()


def main() -> None:
    sh.setup(
        device_id=DEVICE,
        grpc_addr=ADDRESS,
        election_id=(0, 1),
        config=sh.FwdPipeConfig(P4INFO, PROGRAM),
        verbose=False,
    )
    known = [*p4runtime_shell_tables.step, *p4runtime_shell_others.step]
    steps = known if Path(PROGRAM).stem == "p4rt_all" else p4runtime_shell_any.step
    results = {}
    for function in steps:
        try:
            function()
        except Exception as error:
            results[function.__name__] = f"{type(error).__name__}: {error}"
            clean()
        else:
            results[function.__name__] = "ok"
    sys.stdout.write(json.dumps(results) + "\n")
    sys.stdout.flush()
    sh.teardown()
    os._exit(0)  # readers of the shell's streams wait for ever


main()
