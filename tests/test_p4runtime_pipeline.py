import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from switch.p4runtime.errors import Code, P4RuntimeError
from switch.p4runtime.messages import p4info_pb2
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import (
    COMPILED,
    DEVICE,
    INSERT,
    Controller,
    Rig,
    arbitration,
    bits,
    config_of,
    frame,
    json_of,
    p4info_of,
    ports,
    updates,
)
from tests.p4runtime_samples import code_of, entry, fill


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def empty() -> Rig:
    return Rig(None)


# Configurations


def test_before_a_pipeline_there_is_nothing_to_read_or_write(empty: Rig) -> None:
    assert not empty.get_pipeline().HasField("config")
    assert code_of(lambda: empty.write((INSERT, entry(empty, 1)))) is Code.FAILED_PRECONDITION
    assert code_of(lambda: empty.read(pb.TableEntry())) is Code.FAILED_PRECONDITION
    empty.service.receive(empty.primary, pb.StreamMessageRequest(packet=pb.PacketOut()))
    assert empty.primary.take("error")[0].canonical_code == Code.FAILED_PRECONDITION


def test_a_committed_pipeline_is_given_back_as_it_came(empty: Rig) -> None:
    config = config_of(cookie=0x1234)
    empty.set_pipeline(config)
    assert empty.get_pipeline().config == config
    only_cookie = pb.ForwardingPipelineConfig(cookie=config.cookie)
    assert empty.get_pipeline("COOKIE_ONLY").config == only_cookie
    assert empty.get_pipeline("P4INFO_AND_COOKIE").config == pb.ForwardingPipelineConfig(
        p4info=config.p4info, cookie=config.cookie
    )
    assert empty.get_pipeline("DEVICE_CONFIG_AND_COOKIE").config == pb.ForwardingPipelineConfig(
        p4_device_config=config.p4_device_config, cookie=config.cookie
    )
    empty.set_pipeline(config_of())
    assert not empty.get_pipeline().config.HasField("cookie")


def test_a_response_type_that_is_not_known(rig: Rig) -> None:
    request = pb.GetForwardingPipelineConfigRequest(device_id=DEVICE, response_type=9)
    assert code_of(lambda: rig.service.get_pipeline(request)) is Code.INVALID_ARGUMENT


def test_verify_changes_nothing(rig: Rig) -> None:
    rig.insert(entry(rig, 1))
    rig.set_pipeline(config_of(cookie=5), "VERIFY")
    assert not rig.get_pipeline().config.HasField("cookie")
    assert ports(rig.ask(0, frame(0, key=1))) == [2]


def test_commit_clears_the_state(rig: Rig) -> None:
    rig.insert(entry(rig, 1))
    rig.set_pipeline(config_of())
    assert rig.read(rig.names.entry("exact_t")) == []
    assert rig.ask(0, frame(0, key=1)) == []


def test_a_saved_pipeline_is_written_before_it_runs(rig: Rig) -> None:
    rig.insert(entry(rig, 1, port=2))
    assert code_of(lambda: rig.set_pipeline(None, "COMMIT")) is Code.NOT_FOUND
    rig.set_pipeline(config_of(cookie=5), "VERIFY_AND_SAVE")
    assert rig.get_pipeline("COOKIE_ONLY").config.cookie.cookie == 5
    assert rig.read(rig.names.entry("exact_t")) == []
    rig.insert(entry(rig, 1, port=3))
    assert ports(rig.ask(0, frame(0, key=1))) == [2]
    assert code_of(lambda: rig.set_pipeline(config_of(), "COMMIT")) is Code.INVALID_ARGUMENT
    rig.set_pipeline(None, "COMMIT")
    assert ports(rig.ask(0, frame(0, key=1))) == [3]
    assert code_of(lambda: rig.set_pipeline(None, "COMMIT")) is Code.NOT_FOUND


def test_reconciling_keeps_the_state(rig: Rig) -> None:
    requests = fill(rig)
    before = rig.read(*requests)
    rig.set_pipeline(config_of(cookie=9), "RECONCILE_AND_COMMIT")
    assert rig.read(*requests) == before
    assert rig.get_pipeline("COOKIE_ONLY").config.cookie.cookie == 9
    assert ports(rig.ask(0, frame(5, key=1))) == [4]


def test_reconciling_with_a_program_that_has_no_place_for_the_state(rig: Rig) -> None:
    rig.insert(entry(rig, 1))
    small = json.loads(json_of())
    for pipeline in small["pipelines"]:
        for table in pipeline["tables"]:
            if table["name"] == "MyIngress.exact_t":
                table["max_size"] = 0
    config = config_of()
    config.p4_device_config = json.dumps(small).encode()
    with pytest.raises(P4RuntimeError, match=r"the state cannot be kept: table MyIngress\.exact_t is full") as caught:
        rig.set_pipeline(config, "RECONCILE_AND_COMMIT")
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert ports(rig.ask(0, frame(0, key=1))) == [2]


def test_only_the_primary_sets_the_pipeline(empty: Rig) -> None:
    request = pb.SetForwardingPipelineConfigRequest(device_id=DEVICE, config=config_of())
    assert code_of(lambda: empty.service.set_pipeline(request)) is Code.PERMISSION_DENIED
    request.election_id.low = 2
    assert code_of(lambda: empty.service.set_pipeline(request)) is Code.PERMISSION_DENIED
    request.device_id = 4
    assert code_of(lambda: empty.service.set_pipeline(request)) is Code.NOT_FOUND
    assert code_of(lambda: empty.set_pipeline(config_of(), "UNSPECIFIED")) is Code.INVALID_ARGUMENT
    assert code_of(lambda: empty.set_pipeline(None)) is Code.INVALID_ARGUMENT
    assert code_of(lambda: empty.service.get_pipeline(pb.GetForwardingPipelineConfigRequest())) is Code.NOT_FOUND


def test_a_configuration_without_device_data_means_the_program_that_runs(empty: Rig) -> None:
    config = pb.ForwardingPipelineConfig(p4info=p4info_of())
    with pytest.raises(P4RuntimeError, match="no p4_device_config"):
        empty.set_pipeline(config)
    empty.service.run_program(json_of())
    assert ports(empty.ask(5, frame(8, key=1))) == [5]
    assert not empty.get_pipeline().HasField("config")
    empty.set_pipeline(config)
    empty.insert(entry(empty, 1))
    assert ports(empty.ask(0, frame(0, key=1))) == [2]
    empty.set_pipeline(config)  # the one that runs by now
    assert empty.read(empty.names.entry("exact_t")) == []


def action_in(p4info: Any, name: str) -> Any:
    return next(action for action in p4info.actions if action.preamble.alias == name)


def set_first(kind: str, path: str, value: Any) -> Callable[[Any], None]:
    def apply(p4info: Any) -> None:
        found = getattr(p4info, kind)[0]
        *parts, last = path.split(".")
        for part in parts:
            found = getattr(found, part)
        setattr(found, last, value)

    return apply


DAMAGE: list[tuple[Callable[[Any], object], str]] = [
    (set_first("tables", "preamble.name", "MyIngress.other"), "table MyIngress.other, which the program has not"),
    (set_first("tables", "preamble.id", 0), "MyIngress.exact_t has no id"),
    (lambda i: i.tables.add().CopyFrom(i.tables[0]), "have the same id"),
    (lambda i: i.tables[0].match_fields.__delitem__(0), "table MyIngress.exact_t: its key is src in p4info, hdr"),
    (
        lambda i: setattr(i.tables[0].match_fields[0], "bitwidth", 7),
        "hdr.probe.key has 7 bits in p4info, 8 in the",
    ),
    (lambda i: setattr(i.tables[0].match_fields[0], "match_type", 3), "hdr.probe.key is LPM in p4info, exact in the"),
    (lambda i: setattr(i.tables[0].match_fields[0], "match_type", 0), "hdr.probe.key is UNSPECIFIED in p4info"),
    (lambda i: i.tables[0].action_refs.add(id=5), "table MyIngress.exact_t: p4info has no action with id 5"),
    (
        lambda i: i.tables[1].action_refs.add(id=action_in(i, "mark").preamble.id),
        "table MyIngress.lpm_t: p4info has action MyIngress.mark; the program has MyIngress.drop, MyIngress.forward",
    ),
    (lambda i: setattr(i.tables[0], "implementation_id", 5), "has an action profile in p4info, which is not so"),
    (
        lambda i: action_in(i, "use_label").params.add(id=9, name="x", bitwidth=1),
        "its parameters are label, x in p4info, label in",
    ),
    (lambda i: setattr(i.actions[2].params[0], "bitwidth", 8), "port has 8 bits in p4info, 9 in the program"),
    (set_first("counters", "size", 4), "counter MyIngress.by_port has size 4 in p4info, 8 in the program"),
    (set_first("registers", "type_spec.bitstring.bit.bitwidth", 8), "MyIngress.last has cells of 8 bits in p4info, 16"),
    (lambda i: i.registers.__delitem__(0), "the program has register MyIngress.last, which p4info has not"),
    (lambda i: i.digests.__delitem__(0), "the program has digest learned_t, which p4info has not; it has none"),
    (set_first("digests", "type_spec.struct.name", "other_t"), "digest learned_t: type other_t is not described"),
    (
        lambda i: i.type_info.structs["learned_t"].members.__delitem__(0),
        "digest learned_t has 1 fields in p4info, 2 in the program",
    ),
    (lambda i: setattr(i.value_sets[0].match[0], "bitwidth", 8), "MyParser.special_types has 8 bits in p4info"),
    (set_first("action_profiles", "with_selector", True), "MyIngress.plain has a selector in p4info only"),
    (lambda i: setattr(i.controller_packet_metadata[0].metadata[0], "bitwidth", 0), "ingress_port has no bit width"),
]


@pytest.mark.parametrize(("damage", "text"), DAMAGE)
def test_p4info_that_does_not_fit_is_refused_by_name(empty: Rig, damage: Callable[[Any], object], text: str) -> None:
    config = config_of()
    damage(config.p4info)
    with pytest.raises(P4RuntimeError) as caught:
        empty.set_pipeline(config)
    assert (caught.value.code, text in caught.value.message) == (Code.INVALID_ARGUMENT, True), caught.value.message
    assert not empty.get_pipeline().HasField("config")


def test_programs_that_are_none(empty: Rig) -> None:
    for data in (b"{", b"{}", b"nonsense", b'{"program": 3}'):
        config = pb.ForwardingPipelineConfig(p4info=p4info_of(), p4_device_config=data)
        with pytest.raises(P4RuntimeError, match=r"^p4_device_config") as caught:
            empty.set_pipeline(config)
        assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(P4RuntimeError, match="no p4info"):
        empty.set_pipeline(pb.ForwardingPipelineConfig(p4_device_config=json_of()))
    with pytest.raises(P4RuntimeError, match="which p4info has not"):
        empty.set_pipeline(pb.ForwardingPipelineConfig(p4info=p4info_pb2.P4Info(), p4_device_config=json_of()))


# Who may write


def test_a_new_primary_takes_over(rig: Rig) -> None:
    new = Controller()
    rig.service.receive(new, arbitration(5))
    assert new.take("arbitration")[0].status.code == Code.OK
    (notice,) = rig.primary.take("arbitration")
    assert (notice.status.code, notice.election_id.low) == (Code.ALREADY_EXISTS, 5)
    assert code_of(lambda: rig.insert(entry(rig, 1))) is Code.PERMISSION_DENIED
    request = pb.WriteRequest(device_id=DEVICE, election_id=bits(5), updates=updates((INSERT, entry(rig, 1))))
    rig.service.write(request)
    rig.service.disconnect(new)
    assert rig.primary.take("arbitration")[0].status.code == Code.NOT_FOUND
    assert code_of(lambda: rig.service.write(request)) is Code.PERMISSION_DENIED
    assert len(rig.read(rig.names.entry("exact_t"))) == 1


def test_election_ids_have_128_bits(rig: Rig) -> None:
    new = Controller()
    rig.service.receive(new, arbitration(1 << 127))
    (notice,) = new.take("arbitration")
    assert (notice.election_id.high, notice.election_id.low, notice.device_id) == (1 << 63, 0, DEVICE)


def test_capabilities(rig: Rig) -> None:
    assert rig.service.capabilities(pb.CapabilitiesRequest()).p4runtime_api_version == "1.4.1"


@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
def test_what_is_committed_is_the_program_compiled(tmp_path: Path) -> None:
    compiled, p4info = tmp_path / "x.json", tmp_path / "x.p4info.txtpb"
    command = ("p4c-bm2-ss", "--arch", "v1model", "--p4runtime-files", str(p4info), "-o", str(compiled), "p4rt_all.p4")
    subprocess.run(command, cwd=COMPILED, check=True, capture_output=True, timeout=100)
    assert text_format.Parse(p4info.read_text(), p4info_pb2.P4Info()) == p4info_of()
    fresh, committed = json.loads(compiled.read_bytes()), json.loads(json_of())
    assert {**fresh, "program": ""} == {**committed, "program": ""}
