"""The system call filter against libseccomp's: made from the same rules by other hands, it answers the same."""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import struct
from functools import lru_cache

import pytest
from test_seccomp import ALLOW, KILL, PROFILES, refused

from ringfence.sandbox.linux import seccomp

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
BAD_ARCHITECTURE, MASKED_EQUAL, UNKNOWN = 2, 7, -1  # SCMP_FLTATR_ACT_BADARCH, SCMP_CMP_MASKED_EQ, __NR_SCMP_ERROR
SHARED_NUMBERS = 424  # from here on, system calls have one number on all architectures
ONES = 0xFFFFFFFF


class Comparison(ctypes.Structure):
    _fields_ = (("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


@lru_cache
def library():
    """Load libseccomp; a machine without it fails these tests."""
    loaded = ctypes.CDLL("libseccomp.so.2")
    loaded.seccomp_init.restype = ctypes.c_void_p
    return loaded


def resolve(name: str, machine: str) -> int:
    return library().seccomp_syscall_resolve_name_arch(ctypes.c_uint32(MACHINES[machine][1]), name.encode())


def narrowed(mask: int, value: int, test: seccomp.Test) -> list[tuple[int, int]]:
    """Split what a masked comparison matches by a test, into disjoint masked comparisons."""
    assert not test.value & ~test.mask
    if (value ^ test.value) & mask & test.mask:
        return [] if test.equal else [(mask, value)]
    if test.equal:
        return [(mask | test.mask, value | test.value)]
    found = []
    for bit in (1 << at for at in range(32) if test.mask & ~mask & 1 << at):
        found.append((mask | bit, value | ~test.value & bit))
        mask, value = mask | bit, value | test.value & bit
    return found


def comparisons(argument: int, tests: tuple[seccomp.Test, ...]) -> list[Comparison]:
    """Rewrite tests that must all hold: libseccomp has no masked inequality, and one comparison for an argument."""
    found = [(0, 0)]
    for test in tests:
        if test.argument == argument:
            found = [part for mask, value in found for part in narrowed(mask, value, test)]
    shift = 32 if any(test.upper for test in tests if test.argument == argument) else 0
    return [Comparison(argument, MASKED_EQUAL, mask << shift, value << shift) for mask, value in found]


def oracle(profile: seccomp.Profile, machine: str) -> bytes:
    """Return libseccomp's program for a profile."""
    architecture = MACHINES[machine][1]
    context = ctypes.c_void_p(library().seccomp_init(ctypes.c_uint32(ALLOW)))

    def call(function: str, *arguments) -> None:
        answer = getattr(library(), function)(context, *arguments)
        assert answer == 0, (function, arguments, os.strerror(-answer))

    native = ctypes.c_uint32(library().seccomp_arch_native())
    if native.value != architecture:
        call("seccomp_arch_add", ctypes.c_uint32(architecture))
        call("seccomp_arch_remove", native)
    call("seccomp_attr_set", BAD_ARCHITECTURE, ctypes.c_uint32(KILL))
    for name, (errno, alternatives) in seccomp.answers(profile).items():
        if resolve(name, machine) < 0:
            continue
        # The number is this machine's, whatever the filter is for: libseccomp translates it by way of the name.
        number = library().seccomp_syscall_resolve_name(name.encode())
        for tests in alternatives or ((),):
            arguments = sorted({test.argument for test in tests})
            for rule in itertools.product(*(comparisons(argument, tests) for argument in arguments)):
                array = (Comparison * len(rule))(*rule)
                call("seccomp_rule_add_exact_array", ctypes.c_uint32(refused(errno)), number, len(rule), array)
    with open(os.memfd_create("oracle"), "rb") as file:
        call("seccomp_export_bpf", file.fileno())
        library().seccomp_release(context)
        file.seek(0)
        return file.read()


def decode(code: bytes) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", code))


def evaluate(program: list[tuple[int, int, int, int]], words: tuple[int, ...]) -> int:
    """Run a program that is decoded already, with all that libseccomp uses."""
    accumulator = at = 0
    while True:
        operation, if_true, if_false, value = program[at]
        at += 1
        match operation:
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x20:
                accumulator = words[value // 4]
            case 0x54:
                accumulator &= value
            case 0x06:
                return value
            case 0x05:
                at += value
            case 0x25:
                at += if_true if accumulator > value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case _:
                raise AssertionError(hex(operation))


def vectors(alternatives: tuple[tuple[seccomp.Test, ...], ...], chance: random.Random):
    """Give arguments around what the tests look for: first the values themselves in all combinations."""
    tests = [test for alternative in alternatives for test in alternative]
    exact = [{0, 1, ONES} for _ in range(6)]
    near = [{0, 1, ONES} for _ in range(6)]
    for test in tests:
        exact[test.argument] |= {test.value, test.mask ^ test.value}
        near[test.argument] |= {test.value ^ 1 << bit for bit in range(32)} | {ONES ^ test.mask, ONES ^ test.value}
    used = sorted({test.argument for test in tests})
    for values in itertools.product(*(sorted(exact[argument]) for argument in used)):
        chosen = dict(zip(used, values, strict=True))
        yield [chosen.get(argument, chance.getrandbits(32)) for argument in range(6)]
    for argument in used:
        for value in sorted(near[argument]):
            yield [value if other == argument else chance.choice(sorted(exact[other])) for other in range(6)]
    for _ in range(200 if used else 1):
        yield [chance.choice([*sorted(near[other]), chance.getrandbits(32)]) for other in range(6)]


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_libseccomps(machine):
    for name, numbers in seccomp.SYSCALLS.items():
        ours, theirs = numbers[MACHINES[machine][0]], resolve(name, machine)
        if ours is None:
            assert theirs < 0, name
        elif theirs == UNKNOWN:  # too new for it
            assert numbers[0] == numbers[1] >= SHARED_NUMBERS, name
        else:
            assert theirs == ours, name


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_the_answers_are_libseccomps(profile, machine):
    column, architecture = MACHINES[machine]
    ours, theirs = decode(seccomp.program(profile, machine)), decode(oracle(profile, machine))
    rules = {seccomp.SYSCALLS[name][column]: (name, *rule) for name, rule in seccomp.answers(profile).items()}
    chance = random.Random(4711)  # noqa: S311  # the same vectors every time
    for number in range(seccomp.HIGHEST + 1):
        name, errno, alternatives = rules.get(number, ("unlisted", 0, ()))
        known = number not in rules or resolve(name, machine) != UNKNOWN
        assert known or not alternatives, f"libseccomp is too old for {name}"
        for arguments in vectors(alternatives, chance):
            # The upper halves are noise, at which neither the kernel nor a filter looks, except of pointers.
            halves = (half for low in arguments for half in (low, chance.choice((0, ONES, chance.getrandbits(32)))))
            words = (number, architecture, 0, 0, *halves)
            expected = evaluate(theirs, words) if known else refused(errno)
            assert evaluate(ours, words) == expected, f"{name}: {' '.join(map(hex, words))}"
    for other in (0x40000003, *(token for _, token in MACHINES.values() if token != architecture)):
        words = (0, other, *[0] * 14)
        assert evaluate(ours, words) == evaluate(theirs, words) == KILL
