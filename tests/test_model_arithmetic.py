"""Operators of P4 against the same in Python."""

from hypothesis import given
from hypothesis import strategies as st

from tests.model_programs import load, one

SWITCH = load("arithmetic")
OPERANDS = (  # a name and a width in bits, negative if signed
    *(("a8", 8), ("b8", 8), ("s8", -8), ("t8", -8), ("a72", 72), ("b72", 72), ("s33", -33), ("amount", 7)),
    *(("s40", -40), ("a128", 128), ("b128", 128)),
)
RESULTS = (
    *((name, 8) for name in ("add8", "sub8", "mul8", "and8", "or8", "xor8", "not8", "neg8", "left8", "right8")),
    *((name, 8) for name in ("add_sat8", "sub_sat8")),
    *((name, -8) for name in ("sadd8", "ssub8", "smul8", "sright8", "sneg8", "sadd_sat8", "ssub_sat8", "from_bit8")),
    ("from_int8", 8),
    *((name, 72) for name in ("add72", "mul72", "left72", "right72")),
    ("sright33", -33),
    ("pad", 7),
    ("joined", 16),
    ("low_slice", 4),
    ("high_slice", 4),
    ("extended", 72),
    ("sign_extended", -40),
    ("add128", 128),
    ("xor128", 128),
    ("compares", 8),
    ("chosen", 8),
)


def unsigned(value: int, width: int) -> int:
    return value % (1 << width)


def signed(value: int, width: int) -> int:
    half = 1 << (width - 1)
    return (value + half) % (1 << width) - half


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def expected(v: dict[str, int]) -> dict[str, int]:
    a, b, s, t, n = v["a8"], v["b8"], v["s8"], v["t8"], v["amount"]
    bits = [a < b, a <= b, a > b, a >= b, s < t, s <= t, a == b, s != t]
    return {
        "add8": unsigned(a + b, 8),
        "sub8": unsigned(a - b, 8),
        "mul8": unsigned(a * b, 8),
        "and8": a & b,
        "or8": a | b,
        "xor8": a ^ b,
        "not8": 255 - a,
        "neg8": unsigned(-a, 8),
        "left8": unsigned(a << n, 8),
        "right8": a >> n,
        "add_sat8": clamp(a + b, 0, 255),
        "sub_sat8": clamp(a - b, 0, 255),
        "sadd8": signed(s + t, 8),
        "ssub8": signed(s - t, 8),
        "smul8": signed(s * t, 8),
        "sright8": s >> n,
        "sneg8": signed(-s, 8),
        "sadd_sat8": clamp(s + t, -128, 127),
        "ssub_sat8": clamp(s - t, -128, 127),
        "from_bit8": signed(a, 8),
        "from_int8": unsigned(s, 8),
        "add72": unsigned(v["a72"] + v["b72"], 72),
        "mul72": unsigned(v["a72"] * v["b72"], 72),
        "left72": unsigned(v["a72"] << n, 72),
        "right72": v["a72"] >> n,
        "sright33": v["s33"] >> n,
        "pad": 0,
        "joined": a << 8 | b,
        "low_slice": v["a72"] & 15,
        "high_slice": v["a72"] >> 68,
        "extended": a,
        "sign_extended": s,
        "add128": unsigned(v["a128"] + v["b128"], 128),
        "xor128": v["a128"] ^ v["b128"],
        "compares": sum(128 >> place for place, bit in enumerate(bits) if bit),
        "chosen": (unsigned(max(s, t), 8)) if (a > 100 and b != 7) or a == 3 else b,
    }


def pack(layout: tuple[tuple[str, int], ...], values: dict[str, int]) -> bytes:
    number = bits = 0
    for name, width in layout:
        number = number << abs(width) | unsigned(values[name], abs(width))
        bits += abs(width)
    return number.to_bytes(bits // 8, "big")


def unpack(layout: tuple[tuple[str, int], ...], data: bytes) -> dict[str, int]:
    number, values = int.from_bytes(data, "big"), {}
    for name, width in reversed(layout):
        value = number & ((1 << abs(width)) - 1)
        values[name] = signed(value, -width) if width < 0 else value
        number >>= abs(width)
    assert number == 0
    return values


def operands() -> st.SearchStrategy[dict[str, int]]:
    def numbers(width: int) -> st.SearchStrategy[int]:
        if width > 0:
            return st.integers(0, (1 << width) - 1)
        return st.integers(-(1 << (-width - 1)), (1 << (-width - 1)) - 1)

    return st.fixed_dictionaries({name: numbers(width) for name, width in OPERANDS})


@given(operands())
def test_operators(values: dict[str, int]) -> None:
    size = sum(abs(width) for _, width in RESULTS) // 8
    data = one(SWITCH, pack(OPERANDS, values) + b"payload")
    assert data[size:] == b"payload"
    found, wanted = unpack(RESULTS, data[:size]), expected(values)
    assert {name: found[name] for name in wanted} == wanted


@given(operands())
def test_the_traced_program_is_the_same(values: dict[str, int]) -> None:
    packet = pack(OPERANDS, values)
    assert SWITCH.trace(1, packet, 0.0).out == SWITCH.receive(1, packet, 0.0)
