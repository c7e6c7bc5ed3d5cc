"""Steps with p4runtime-shell on p4rt_all: tables, counters and meters."""

from collections.abc import Callable
from typing import Any

import p4runtime_sh.shell as sh

from tests.p4runtime_shell_tools import Steps, count, entry, exact, frame, nothing_out, out_of, send, value_of

step = Steps()


@step
def version() -> None:
    assert sh.APIVersion().startswith("1."), sh.APIVersion()


@step
def table_entries() -> None:
    exact().insert()
    send(frame(key=1))
    assert out_of(1) == frame(key=1)
    changed = exact("mark", value="0x1234", port="1")
    changed.modify()
    send(frame(key=1))
    assert value_of(out_of(1)) == 0x1234
    (found,) = exact(None).read()
    assert found.action.action_name == "MyIngress.mark"
    assert count(sh.TableEntry("MyIngress.exact_t")) == 1
    exact(None).delete()
    send(frame(key=1))
    nothing_out(1)
    assert count(sh.TableEntry("MyIngress.exact_t")) == 0


def ternary_entries() -> list[Any]:
    match = {"hdr.probe.value": "0x0100&&&0xff00", "key": "7"}
    high = entry("ternary_t", "mark", match, value="2", port="1")(priority=9)
    low = entry("ternary_t", "mark", {"hdr.probe.value": "0x0000&&&0xf000"}, value="3", port="1")(priority=3)
    return [high, low]


@step
def all_kinds_of_matches() -> None:
    entries = [
        entry("lpm_t", "forward", {"hdr.ethernet.dst": "0x0a0000000000/8"}, port="1"),
        entry("lpm_t", "forward", {}, port="0"),
        entry("range_t", "paced", {"hdr.probe.value": "10..20", "hdr.probe.key": "1"}, port="1")(priority=1),
        *ternary_entries(),
    ]
    for each in entries:
        each.insert()
    send(frame(1, dst=0x0A0000000001))
    out_of(1)
    send(frame(1))
    out_of(0)
    send(frame(2, key=7, value=0x0101))
    assert value_of(out_of(1)) == 2
    send(frame(2, key=8, value=0x0101))
    assert value_of(out_of(1)) == 3
    send(frame(3, key=1, value=20))
    out_of(1)
    send(frame(3, key=1, value=21))
    nothing_out(1)
    assert count(sh.TableEntry("MyIngress.lpm_t")) == 2
    (one,) = entry("ternary_t", None, {"hdr.probe.value": "0x0100&&&0xff00", "key": "7"})(priority=9).read()
    assert one.action.action_name == "MyIngress.mark"
    for each in entries:
        each.delete()
    assert count(sh.TableEntry("MyIngress.const_t")) == 2


@step
def reads_by_priority() -> None:
    for each in ternary_entries():
        each.insert()
    (best,) = sh.TableEntry("MyIngress.ternary_t")(priority=9).read()
    assert best.priority == 9
    for each in ternary_entries():
        each.delete()


@step
def metadata() -> None:
    found = exact()
    found.metadata = b"note"
    found.insert()
    assert [each.metadata for each in exact(None).read()] == [b"note"]
    found.delete()


@step
def default_entries() -> None:
    default = sh.TableEntry("MyIngress.exact_t")(is_default=True, action="MyIngress.forward")
    default.action["port"] = "1"
    default.modify()
    send(frame(key=99))
    out_of(1)
    asked = sh.TableEntry("MyIngress.exact_t")
    asked.is_default = True
    (found,) = asked.read()
    assert found.action.action_name == "MyIngress.forward"
    asked.modify()  # reset
    send(frame(key=99))
    nothing_out(1)


@step
def errors() -> None:
    def refused(change: Callable[[], None], code: str) -> None:
        text = ""
        try:
            change()
        except Exception as error:
            text = str(error)
        assert code in text, f"{code} was expected, got {text or 'none'}"

    refused(exact().delete, "NOT_FOUND")
    refused(exact().modify, "NOT_FOUND")
    exact().insert()
    refused(exact().insert, "ALREADY_EXISTS")
    exact().delete()
    ternary = entry("ternary_t", "drop", {"hdr.probe.value": "1&&&1"})
    refused(ternary.insert, "INVALID_ARGUMENT")


@step
def direct_counters() -> None:
    exact().insert()
    send(frame(key=1))
    out_of(1)
    asked = exact(None)
    asked.counter_data  # noqa: B018  (asking for it sets it in the request)
    (found,) = asked.read()
    assert (found.counter_data.packet_count, found.counter_data.byte_count) == (1, 60)
    direct = sh.DirectCounterEntry("MyIngress.hits")
    direct.table_entry.match["hdr.probe.key"] = "1"
    direct.table_entry.match["src"] = "10"
    (counter,) = direct.read()
    assert counter.data.packet_count == 1
    direct.data.packet_count = 7
    direct.modify()
    (counter,) = direct.read()
    assert counter.data.packet_count == 7
    assert count(sh.DirectCounterEntry("MyIngress.hits")) == 1
    exact().delete()


@step
def counters() -> None:
    send(frame(9))
    out_of(0)
    asked = sh.CounterEntry("MyIngress.by_port")
    assert count(asked) == 8
    asked.index = 0
    (found,) = asked.read()
    assert found.packet_count > 0
    asked.packet_count = 3
    asked.byte_count = 4
    asked.modify()
    (found,) = asked.read()
    assert (found.packet_count, found.byte_count) == (3, 4)


@step
def meters() -> None:
    asked = sh.MeterEntry("MyIngress.by_op")
    asked.index = 1
    asked.cir, asked.cburst, asked.pir, asked.pburst = 1, 2, 3, 4
    asked.modify()
    (found,) = asked.read()
    assert (found.cir, found.cburst, found.pir, found.pburst) == (1, 2, 3, 4)


@step
def all_meters_of_an_array() -> None:
    assert count(sh.MeterEntry("MyIngress.by_op")) == 4


@step
def direct_meters() -> None:
    match = {"hdr.probe.value": "10..20", "hdr.probe.key": "1"}
    written = entry("range_t", "paced", match, port="1")(priority=1)
    written.meter_config.cir, written.meter_config.cburst = 1, 1
    written.meter_config.pir, written.meter_config.pburst = 2, 2
    written.insert()
    colours = []
    for _ in range(3):
        send(frame(3, key=1, value=15))
        colours.append(value_of(out_of(1)))
    assert colours[0] == 0, colours
    assert colours[-1] > 0, colours
    direct = sh.DirectMeterEntry("MyIngress.pace")
    direct.table_entry.match["hdr.probe.value"] = "10..20"
    direct.table_entry.match["hdr.probe.key"] = "1"
    direct.table_entry.priority = 1
    (found,) = direct.read()
    assert (found.cir, found.pburst) == (1, 2)
    direct.cir, direct.cburst, direct.pir, direct.pburst = 1000, 1000, 1000, 1000
    direct.modify()
    (found,) = direct.read()
    assert found.cir == 1000
    written.delete()
