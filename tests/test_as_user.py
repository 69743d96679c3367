"""Everything once more as an ordinary user.

The user brings an interpreter of its own: root's may lie where nobody else can read it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

USER = "ringfence-test"
REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def user():
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", USER], check=True)
        return pwd.getpwnam(USER)


@pytest.fixture(scope="module")
def place(user):
    """A copy of the project, of its dependencies and of the interpreter, all of it the user's."""
    base = Path(tempfile.mkdtemp(prefix="ringfence-user-", dir="/var/tmp"))
    try:
        shutil.copytree(REPOSITORY / "src", base / "project" / "src", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(REPOSITORY / "tests", base / "project" / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPOSITORY / "pyproject.toml", base / "project")
        shutil.copytree(sysconfig.get_path("purelib"), base / "packages", symlinks=True)
        copy_interpreter(base / "python")
        subprocess.run(["chown", "-R", f"{USER}:", base], check=True)
        base.chmod(0o755)
        yield base
    finally:
        shutil.rmtree(base)


def copy_interpreter(to: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (to / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), to / "bin" / version)
    (to / "bin" / "python3").symlink_to(version)
    left_out = shutil.ignore_patterns(
        "__pycache__", "test", "tests", "site-packages", "idlelib", "tkinter", "ensurepip", "*.a"
    )
    shutil.copytree(sysconfig.get_path("stdlib"), to / "lib" / version, ignore=left_out, symlinks=True)


@pytest.mark.as_root
@pytest.mark.timeout(400)
def test_the_suite_passes_as_an_ordinary_user(user, place):
    out = subprocess.run(
        [
            place / "python" / "bin" / "python3",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--basetemp={place}/tmp",
            "tests",
        ],
        cwd=place / "project",
        user=USER,
        group=user.pw_gid,
        extra_groups=[],
        env={
            "HOME": user.pw_dir,
            "USER": USER,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": f"{place / 'project' / 'src'}:{place / 'packages'}",
            "LANG": "C.UTF-8",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.returncode == 0, out.stdout[-8000:] + out.stderr[-2000:]
    assert " passed" in out.stdout
    assert "skipped" not in out.stdout
