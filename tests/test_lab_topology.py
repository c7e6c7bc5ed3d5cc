import pytest

from wiresum.lab.topology import (
    Direction,
    HostSpec,
    LinkSpec,
    SwitchSpec,
    Topology,
    deep_tree,
    from_text,
    rack,
    tree,
)


def test_a_rack() -> None:
    up = Direction(rate=100)
    made = rack(3, up=up)
    assert [host.name for host in made.hosts] == ["h1", "h2", "h3"]
    assert [host.address for host in made.hosts] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert made.root.name == "s1"
    assert {(link.child, link.parent, link.up, link.down) for link in made.links} == {
        (f"h{i}", "s1", up, up) for i in (1, 2, 3)
    }


def test_directions_of_their_own() -> None:
    made = tree((1, 2), up=Direction(rate=1), down=Direction(rate=2), trunk_up=Direction(rate=3))
    hosts, trunks = made.link_of("h1"), made.link_of("s2")
    assert (hosts.up.rate, hosts.down.rate, trunks.up.rate, trunks.down.rate) == (1, 2, 3, 3)


def test_racks_of_unequal_size() -> None:
    made = tree((3, 1))
    assert [switch.name for switch in made.top_down()] == ["s1", "s2", "s3"]
    assert [len(made.hosts_of(name)) for name in ("s1", "s2", "s3")] == [0, 3, 1]
    assert {switch.parent for switch in made.switches} == {None, "s1"}


def test_a_deep_tree() -> None:
    made = deep_tree((2, 2, 3))
    assert len(made.switches) == 1 + 2 + 4
    assert len(made.hosts) == 12
    order = [switch.name for switch in made.top_down()]
    for switch in made.switches:
        assert switch.parent is None or order.index(switch.parent) < order.index(switch.name)
    assert [len(made.links_into(name)) for name in order] == [2, 2, 2, 3, 3, 3, 3]


@pytest.mark.parametrize(("text", "same"), [("2x4", deep_tree((2, 4))), ("3,1", tree((3, 1)))])
def test_trees_of_the_command_line(text: str, same: Topology) -> None:
    assert from_text(text) == same


@pytest.mark.parametrize("text", ["", "4", "2x", "x2", "2x0", "0,1", "two", "2x2,1", "-1,2", "100x100"])
def test_what_says_no_tree_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"tree|rack"):
        from_text(text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rate": 0}, "not 0"),
        ({"rate": float("nan")}, "not nan"),
        ({"delay": -1}, "not -1"),
        ({"queue": 0}, "not 0"),
        ({"loss": 1.5}, "loss must be a share from 0 to below 1, not 1.5"),
        ({"loss": 1}, "loss must be a share from 0 to below 1, not 1"),
        ({"reorder": -0.1}, "reorder .* not -0.1"),
    ],
)
def test_a_direction_that_cannot_be(values: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Direction(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("hosts", [0, -1, 33, 1000])
def test_racks_that_cannot_be(hosts: int) -> None:
    with pytest.raises(ValueError, match=str(hosts)):
        rack(hosts)


def test_links_that_make_no_tree() -> None:
    host = HostSpec(name="h1", address="10.0.0.1")
    root, other = SwitchSpec(name="s1", address="10.254.1.1"), SwitchSpec(name="s2", address="10.254.2.1")
    link = LinkSpec(child="h1", parent="s1")
    with pytest.raises(ValueError, match="one root, not 2"):
        Topology(name="t", hosts=(host,), switches=(root, other), links=(link,))
    with pytest.raises(ValueError, match="every host"):
        Topology(name="t", hosts=(host,), switches=(root,), links=())
    with pytest.raises(ValueError, match="must differ"):
        Topology(name="t", hosts=(host, host), switches=(root,), links=(link,))
    long = HostSpec(name="a-long-name", address="10.0.0.1")
    with pytest.raises(ValueError, match="'a-long-name'"):
        Topology(name="t", hosts=(long,), switches=(root,), links=(LinkSpec(child="a-long-name", parent="s1"),))
    two = SwitchSpec(name="s2", address="10.254.2.1", parent="s3")
    three = SwitchSpec(name="s3", address="10.254.3.1", parent="s2")
    links = (LinkSpec(child="h1", parent="s2"), LinkSpec(child="s2", parent="s3"), LinkSpec(child="s3", parent="s2"))
    with pytest.raises(ValueError, match=r"s1 has 0 links|not connected"):
        Topology(name="t", hosts=(host,), switches=(root, two, three), links=links)


def test_faults_as_our_injector_takes_them() -> None:
    plain = Direction(loss=0.1, duplicate=0.2, reorder=0.3).fault_rates()
    assert (plain.loss, plain.duplicate, plain.reorder, plain.delay) == (0.1, 0.2, 0.3, 0)
    slow = Direction(delay=0.02).fault_rates()
    assert (slow.delay, slow.delay_seconds, slow.reorder) == (1, 0.02, 0)
    both = Direction(delay=0.02, reorder=0.25).fault_rates()  # a quarter comes earlier than the rest
    assert (both.delay, both.reorder, both.reorder_seconds) == (0.75, 1, 0.02)
