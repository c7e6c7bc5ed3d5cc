"""`wiresum mininet`: builds a network of hosts and switches, and runs a command on every host of it."""

import argparse
import os
import shlex
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from protocol.constants import check_slots, size_code
from wiresum.arguments import loss, number, path, share, whole
from wiresum.lab.faults import MECHANISMS
from wiresum.lab.topology import Direction, Topology, from_text, rack

if TYPE_CHECKING:
    from wiresum.lab.interruption import Interruption
    from wiresum.lab.network import Lab
    from wiresum.lab.progress import Screen

_DAY: Final = 86_400.0  # seconds
_RATE: Final = number(0.01, 100_000, "a rate in Mbit/s")
_KINDS: Final = ("software", "model", "bmv2")


def add_parser(subparsers: Any) -> None:
    """Adds the command to the front end's parser."""
    parser = subparsers.add_parser(
        "mininet",
        help="run a command on hosts around a switch, in namespaces on this machine (root)",
        description=__doc__,
        usage="wiresum mininet [options] -- COMMAND ...",
        epilog="torchrun's variables, GLOO_SOCKET_IFNAME and WIRESUM_SWITCH are set for the command. The exit code is "
        "the first that was not 0.",
    )
    add = parser.add_argument
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--hosts", type=int, metavar="N", help="hosts around one switch (default: 4)")
    shape.add_argument(
        "--tree", metavar="FANOUTS", help="a tree: 2x4 is two racks of four, 3,1 a rack of three and one"
    )
    add("--switch", choices=_KINDS, default="software", help="kind of switch (default: %(default)s)")
    add("--rate", type=_RATE, metavar="MBIT", help="Mbit/s of every link (default: as fast as it goes)")
    add("--trunk-rate", type=_RATE, metavar="MBIT", help="of the links between switches (default: --rate)")
    add(
        "--delay",
        type=number(0, 10_000, "a delay in milliseconds"),
        default=0.0,
        metavar="MS",
        help="milliseconds that packets take, each way",
    )
    add(
        "--queue",
        type=whole(1, 1_000_000),
        default=1000,
        metavar="N",
        help="full frames that a link's queue holds (%(default)s)",
    )
    add("--loss", type=loss, default=0.0, metavar="SHARE", help="share of packets, from 0 to below 1, each way")
    for name in ("duplicate", "reorder"):
        add(f"--{name}", type=share, default=0.0, metavar="SHARE", help="share of packets, 0 to 1, each way")
    add("--trunk-loss", type=loss, metavar="SHARE", help="loss between switches (default: --loss)")
    add("--faults-by", choices=MECHANISMS, default="auto", help="what makes the faults (default: %(default)s)")
    add("--slots", type=int, metavar="N", help="WIRESUM_SLOTS: slots of a worker's pool, a power of two")
    add("--values", type=int, metavar="N", help="WIRESUM_VALUES_PER_PACKET: values in a packet")
    add("--seed", type=whole(0, 2**63 - 1, "seed"), default=0, help="of the faults (default: %(default)s)")
    add(
        "--pcap",
        nargs="?",
        const=Path(),
        type=path,
        metavar="DIR",
        help="capture every link (default: into the run, else into DIR/RUN)",
    )
    add("--out", type=path, default=Path("runs"), help="where a folder for the run is made (default: %(default)s)")
    add("--name", help="of the run")
    add(
        "--time-limit",
        type=number(0, 365 * _DAY, "a time in seconds", above=True),
        metavar="S",
        help="end the command after so many seconds, with exit code 124",
    )
    add(
        "--grace",
        type=number(0, _DAY, "a time in seconds"),
        default=10.0,
        metavar="S",
        help="for the others when one host fails (%(default)s)",
    )
    add("--quiet", action="store_true", help="do not show what the hosts write; it is in the logs anyway")
    add("--cli", action="store_true", help="Mininet's prompt, with commands to look into the switches")
    add("words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run on every host")


def run(args: argparse.Namespace) -> int:
    """Builds, runs, and takes away again."""
    command = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not command and not args.cli:
        raise ValueError("say what to run on every host, after --, or ask for the prompt with --cli")
    _check(args)
    topology = _topology(args)

    from wiresum.lab.kernel import check_machine

    check_machine(bmv2=args.switch == "bmv2", tools=("tcpdump",) if args.pcap is not None else ())
    from wiresum.lab.interruption import Interrupted, Interruption
    from wiresum.lab.marks import remove_leftovers
    from wiresum.lab.progress import Screen

    screen = Screen(quiet=args.quiet)
    with Interruption() as interruption:
        code = 1
        try:
            for gone in remove_leftovers():
                screen.tell(f"removed what {gone} had left behind: it was killed")
            code = _run(args, topology, command, screen, interruption)
        except Interrupted as error:
            screen.tell(f"interrupted by {error.number.name} while the network was built: nothing has run")
            code = 128 + error.number
        finally:
            screen.clear()
            if not screen.close():  # nobody reads what we write, and Python would wait for it at its end
                os._exit(code)
    return code


def _run(
    args: argparse.Namespace, topology: Topology, command: Sequence[str], screen: "Screen", interruption: "Interruption"
) -> int:
    from wiresum.lab.captures import Captures
    from wiresum.lab.folders import drop_if_empty, hand_over, make_folder, new_folder, own_folder
    from wiresum.lab.network import Lab, LabSettings
    from wiresum.lab.pictures import RunTrace
    from wiresum.lab.progress import Progress
    from wiresum.lab.run import CommandResult, lost_shells, run_command
    from wiresum.lab.summary import save, show, summarize

    settings = LabSettings(
        topology=topology,
        kind=args.switch,
        values=args.values if args.switch != "software" else None,
        seed=args.seed,
        mechanism=args.faults_by,
        frames_are_packets=args.pcap is not None,
    )
    if args.pcap is not None:
        make_folder(args.pcap)
    folder = new_folder(args.out, args.name or f"{topology.name}-{args.switch}")
    with ExitStack() as undo:
        undo.callback(drop_if_empty, folder)
        undo.callback(hand_over, folder)
        trace = undo.enter_context(RunTrace(folder, tell=screen.tell, stop=interruption.pending))
        screen.tell(f"building {topology.name} of kind {args.switch}; logs in {folder}")
        progress = Progress(screen)
        lab = undo.enter_context(Lab(settings, logs=folder, on_step=progress.step))
        screen.tell(f"faults: {lab.plan.what}")
        for text in lab.plan.missing:
            screen.tell(f"warning: {text}")
        captures = None
        if args.pcap is not None:
            where = folder
            if args.pcap != Path():
                where = own_folder(args.pcap, folder.name)
                undo.callback(drop_if_empty, where)
                undo.callback(hand_over, where)
            progress.step("starting captures")
            captures = undo.enter_context(Captures(lab, where))
            trace.follow(captures)
        # Whatever comes from here on, there will be a summary.
        interruption.hold()
        start = time.monotonic()
        result = CommandResult(code=0, hosts=(), problems=())
        if command and interruption.number is None:
            screen.tell(f"running on {len(topology.hosts)} hosts: {shlex.join(command)}")
            progress.watch(lab)
            result = run_command(
                lab,
                command,
                logs=folder,
                environment=_worker_variables(args),
                on_line=lambda host, text: screen.line(host, text, partial(_runs, lab, host)),
                on_tick=progress.tick,
                time_limit=args.time_limit,
                grace=args.grace,
                stop=interruption.pending,
            )
        if args.cli and interruption.number is None:
            from wiresum.lab.prompt import prompt

            screen.clear()
            prompt(lab, _worker_variables(args), interruption)
        gone = lab.lost_nodes()
        if gone and lost_shells(gone) not in result.problems:
            result = replace(result, problems=(*result.problems, lost_shells(gone)))
        result = result.ended_by(interruption.number)
        seconds = time.monotonic() - start
        progress.step("gathering what switches and links have counted")
        files, problems = ({}, []) if captures is None else captures.stop()
        problems = [*result.problems, *problems]
        summary = summarize(
            lab,
            name=folder.name,
            command=command,
            result=result,
            seconds=seconds,
            captures=files,
            problems=problems,
        )
        unread = [child for child, ways in summary["links"].items() if len(ways) < 2]
        summary["problems"] += [f"what has passed the link of {child} cannot be read" for child in unread]
        code = result.code or (1 if summary["problems"] else 0)
        summary["exit_code"] = code
        try:
            save(summary, folder)
        except OSError as error:
            screen.tell(f"the summary could not be written: {error}")
            code = code or 1
        known = {child: ways for child, ways in summary["links"].items() if child not in unread}
        screen.show(lambda console: show({**summary, "links": known}, console))
        progress.step("taking the network away")
        return code


def _runs(lab: "Lab", host: str) -> bool:
    """Whether the command still runs on a host; also while it is about to be known there."""
    return all(program.poll() is None for program in lab.host(host).programs)


def _topology(args: argparse.Namespace) -> Topology:
    way = Direction(
        rate=args.rate,
        delay=args.delay / 1000,
        queue=args.queue,
        loss=args.loss,
        duplicate=args.duplicate,
        reorder=args.reorder,
    )
    other = {"rate": args.trunk_rate, "loss": args.trunk_loss}
    trunk = replace(way, **{name: value for name, value in other.items() if value is not None})
    if args.tree is not None:
        return from_text(args.tree, up=way, trunk_up=trunk)
    return rack(4 if args.hosts is None else args.hosts, up=way)


def _check(args: argparse.Namespace) -> None:
    """What would fail only when everything is built."""
    if args.slots is not None:
        check_slots(args.slots)
    if args.values is not None:
        size_code(args.values)
    for option, value in (("--trunk-rate", args.trunk_rate), ("--trunk-loss", args.trunk_loss)):
        if value is not None and args.tree is None:
            raise ValueError(f"{option} is for links between switches, which only a --tree has")
    if args.name is not None and (Path(args.name).name != args.name or args.name in ("", ".", "..")):
        raise ValueError(f"the name of a run is that of a folder, not {args.name!r}")


def _worker_variables(args: argparse.Namespace) -> dict[str, str]:
    chosen = {"WIRESUM_SLOTS": args.slots, "WIRESUM_VALUES_PER_PACKET": args.values}
    return {name: str(value) for name, value in chosen.items() if value is not None}
