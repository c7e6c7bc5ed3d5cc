"""What may be installed, and copied, without what. (Which room may import which is checked by import-linter.)"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OPTIONAL = ("torch", "sklearn", "matplotlib", "scapy", "p4", "mininet")
NEEDS_AN_EXTRA = (
    "host.pytorch",
    "protocol.scapy_layer",
    "wiresum.demo",
    "wiresum.lab",
    "switch.p4runtime",
    "switch.controller",
)

IMPORT_ALL = """
import sys
from importlib import import_module
from pkgutil import walk_packages

for name in {optional}:
    sys.modules[name] = None  # any import of it fails
names = []
for room in ("protocol", "switch", "host", "wiresum"):
    names.append(room)
    names += [module.name for module in walk_packages(import_module(room).__path__, room + ".", onerror=lambda _: None)]
for name in names:
    if not name.startswith({extras}) and not name.endswith("__main__"):
        import_module(name)
        print(name)
"""


def test_switch_and_agent_need_none_of_the_extras() -> None:
    script = IMPORT_ALL.format(optional=OPTIONAL, extras=NEEDS_AN_EXTRA)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert {"switch.slots", "host.communicator", "wiresum.cli"} <= set(done.stdout.split())


@pytest.mark.parametrize("room", ["protocol", "switch", "host"])
def test_kernels_import_only_what_the_cache_is_stamped_with(room: str) -> None:
    files = sorted((ROOT / room).glob("*kernels.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            # `from room import module` names modules, `from room.module import name` one.
            whole = node.module in ("protocol", "switch", "host")
            modules = [f"{node.module}.{name.name}" for name in node.names] if whole else [node.module]
            for module in modules:
                if module.startswith(("protocol.", "switch.", "host.")):
                    assert module.endswith("kernels") or module in ("protocol.constants", "protocol.jit"), (
                        f"{path.name} imports {module}, whose changes would not recompile it"
                    )
