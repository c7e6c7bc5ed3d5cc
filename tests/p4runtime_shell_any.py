"""Steps with p4runtime-shell that go with any program whose keys are exact."""

import p4runtime_sh.shell as sh

from tests.p4runtime_shell_tools import Steps, count

step = Steps()


@step
def every_table_takes_an_entry() -> None:
    taken = 0
    for table in sh.context.p4info.tables:
        if table.is_const_table or not table.match_fields:
            continue
        entry = sh.TableEntry(table.preamble.name)
        for field in table.match_fields:
            entry.match[field.name] = "1"
        number = next(ref.id for ref in table.action_refs if ref.scope != ref.DEFAULT_ONLY)
        entry.action = sh.Action(sh.context.get_name_from_id(number))
        for param in entry.action._action_info.params:
            entry.action[param.name] = "1"
        entry.insert()
        (found,) = sh.TableEntry(table.preamble.name).read()
        assert found.action.action_name == entry.action.action_name
        entry.delete()
        assert count(sh.TableEntry(table.preamble.name)) == 0
        taken += 1
    assert taken > 3, taken


@step
def every_counter_is_read() -> None:
    for counter in sh.context.p4info.counters:
        assert count(sh.CounterEntry(counter.preamble.name)) == counter.size


@step
def a_group_and_a_digest() -> None:
    sh.MulticastGroupEntry(1).add(1, 1).add(2, 2).insert()
    assert count(sh.MulticastGroupEntry()) == 1
    sh.MulticastGroupEntry(1).delete()
    for digest in sh.context.p4info.digests:
        entry = sh.DigestEntry(digest.preamble.name)
        entry.max_list_size = 1
        entry.insert()
        entry.delete()
