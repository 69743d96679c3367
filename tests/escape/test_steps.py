"""The suite itself: with one step of the confinement left out, the attacks that it stops succeed."""

from __future__ import annotations

import json
import os
import sys

import pytest
from steps import BUBBLEWRAP, LANDLOCK, REST_ON, fence_with, keep_root
from world import IS_ROOT, PYTHON, World

CASES = [
    pytest.param((backend, step, attack, kept), id=f"{backend} without {step}: {attack}")
    for (backend, step), by_user in REST_ON.items()
    for user, attacks in by_user.items()
    for attack in attacks.split()
    for kept in [user == "as root"]
    if user in {"any", "root" if IS_ROOT else "user", "as root" if IS_ROOT else ""}
]


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    yield world
    world.close()


@pytest.mark.parametrize("left_out", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_the_attack_rests_on_the_step(world, monkeypatch, case, left_out):
    backend, step, attack, kept = case
    if kept:
        keep_root(monkeypatch)
    if left_out:
        (BUBBLEWRAP if backend == "bubblewrap" else LANDLOCK)[step](monkeypatch)
    network = "all" if "host's network" in step else ""
    found = world.try_inside(attack, fence=fence_with(backend), network=network)
    assert bool(found) is left_out


ON_A_TERMINAL = """
import json, sys
import pytest, steps
patch = pytest.MonkeyPatch()
if sys.argv[1]:
    steps.BUBBLEWRAP[sys.argv[1]](patch)
with steps.fence_with("bubblewrap") as fence, fence.session(workspace=".") as session:
    print(session.run(sys.argv[2:]).stdout)
"""


@pytest.mark.parametrize("left_out", [True, False])
def test_the_terminal_rests_on_the_session_of_its_own(world, monkeypatch, left_out):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    step = "session of its own" if left_out else ""
    attack = [PYTHON, "arsenal.py", "write-to-the-terminal", json.dumps(world.facts)]
    world._on_a_terminal(sys.executable, "-c", ON_A_TERMINAL, step, *attack)
    assert ("succeeded" in (world.workspace / "said").read_text()) is left_out


def test_every_step_is_in_the_table_or_justified():
    from steps import JUSTIFIED

    for backend, steps in (("bubblewrap", BUBBLEWRAP), ("landlock", LANDLOCK)):
        for step in steps:
            assert ((backend, step) in REST_ON) != ((backend, step) in JUSTIFIED), step
