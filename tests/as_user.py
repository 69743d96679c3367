"""The suite as an ordinary user: started by root's run when it begins, and waited for when it ends.

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

USER = "ringfence-test"
TEST = "test_the_suite_passes_as_an_ordinary_user"
REPOSITORY = Path(__file__).resolve().parents[1]
_running: list[tuple[subprocess.Popen[bytes], Path]] = []


def start() -> None:
    """Copy the project, its dependencies and the interpreter, all of it the user's, and begin."""
    base = Path(tempfile.mkdtemp(prefix="ringfence-user-", dir="/var/tmp"))
    for name in ("src", "tests"):
        shutil.copytree(REPOSITORY / name, base / "project" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", base / "project")
    shutil.copytree(sysconfig.get_path("purelib"), base / "packages", symlinks=True)
    copy_interpreter(base / "python")
    user = _user()
    subprocess.run(["chown", "-R", f"{USER}:", base], check=True)
    base.chmod(0o755)
    command = [base / "python" / "bin" / "python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    with (base / "printed").open("wb") as printed:
        run = subprocess.Popen(
            [*command, f"--basetemp={base}/tmp", "tests"],
            cwd=base / "project",
            user=USER,
            group=user.pw_gid,
            extra_groups=[],
            env={
                "HOME": user.pw_dir,
                "USER": USER,
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "PYTHONPATH": f"{base / 'project' / 'src'}:{base / 'packages'}",
                "LANG": "C.UTF-8",
            },
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
    _running.append((run, base))


def result() -> tuple[int, str]:
    """Wait for its end; return its exit code and what it printed."""
    (run, base), *_ = _running
    return run.wait(), (base / "printed").read_text(errors="replace")


def other_children() -> list[int]:
    """Return the children of this process besides that run; those that have ended and were not waited for too."""
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        found += map(int, Path(f"/proc/self/task/{task}/children").read_text().split())
    return [pid for pid in found if pid not in {run.pid for run, _ in _running}]


def clean() -> None:
    """End it if it still runs, and remove what was copied."""
    while _running:
        run, base = _running.pop()
        run.kill()
        run.wait()
        shutil.rmtree(base, ignore_errors=True)


def _user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", USER], check=True)
        return pwd.getpwnam(USER)


def copy_interpreter(to: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (to / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), to / "bin" / version)
    (to / "bin" / "python3").symlink_to(version)
    left_out = shutil.ignore_patterns(
        "__pycache__", "test", "tests", "site-packages", "idlelib", "tkinter", "ensurepip", "*.a"
    )
    shutil.copytree(sysconfig.get_path("stdlib"), to / "lib" / version, ignore=left_out, symlinks=True)
