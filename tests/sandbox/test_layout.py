from __future__ import annotations

import pytest

from ringfence import Capabilities, Limits, Network, SessionError
from ringfence.sandbox.backend import PlanRequest
from ringfence.sandbox.layout import lay_out
from ringfence.sandbox.plan import Plan
from ringfence.sandbox.survey import Place, Survey

SURVEY = Survey(
    home="/home/u",
    as_root=False,
    system=(Place("/usr", "dir", "/usr"), Place("/etc", "dir", "/etc"), Place("/bin", "link", "usr/bin")),
    toolchains=(
        Place("/home/u/.pyenv", "dir", "/home/u/.pyenv"),
        Place("/home/u/.local/bin", "dir", "/home/u/.local/bin"),
    ),
    hidden=(Place("/home/u/.ssh", "dir", "/home/u/.ssh"), Place("/home/u/.netrc", "file", "/home/u/.netrc")),
    emptied=(Place("/etc/ssh", "dir", "/etc/ssh"),),
    concealed=(Place("/home/u/.config/ringfence", "dir"), Place("/home/u/.local/state/ringfence", "dir")),
    guarded=(Place("/home/u/p/.venv", "dir", "/home/u/p/.venv"),),
)


def view(caps, workspace="/home/u/p", **named):
    request = PlanRequest(
        workspace=workspace,
        capabilities=caps,
        survey=named.pop("survey", SURVEY),
        private_home=named.pop("private_home", "/state/homes/p"),
        scratch=named.pop("scratch", "/state/scratch/s"),
    )
    return {mount.target: mount for mount in lay_out(request)}


def default(workspace="/home/u/p"):
    return Capabilities.for_tier("workspace-write", workspace)


def test_the_default_view():
    mounts = view(default())
    assert mounts["/usr"].source == "/usr"
    assert not mounts["/usr"].writable
    assert mounts["/bin"].kind == "link"
    assert mounts["/home/u"].source == "/state/homes/p"
    assert mounts["/tmp"].source == "/state/scratch/s"
    assert mounts["/home/u/p"].writable
    assert mounts["/home/u/.pyenv"].why == "on PATH"
    assert mounts["/etc/ssh"].kind == "tmpfs"
    assert not mounts["/proc/sys"].writable
    assert "/run" not in mounts
    assert "/" not in mounts
    assert "/home/u/.ssh" not in mounts  # the private home has none to hide


def test_mounts_are_shallowest_first():
    targets = list(view(default()))
    for index, target in enumerate(targets):
        assert not any(later != "/" and target.startswith(later + "/") for later in targets[index + 1 :])


def test_a_workspace_below_tmp_comes_after_tmp():
    targets = list(view(default("/tmp/a/ws"), "/tmp/a/ws"))
    assert targets.index("/tmp") < targets.index("/tmp/a") < targets.index("/tmp/a/ws")


def test_a_workspace_below_var_tmp_does_not_lie_behind_a_link():
    assert view(default())["/var/tmp"].kind == "link"
    mounts = view(default("/var/tmp/ws"), "/var/tmp/ws")
    assert mounts["/var/tmp"].kind == "tmpfs"
    assert list(mounts).index("/var/tmp") < list(mounts).index("/var/tmp/ws")


def test_directories_between_a_writable_mount_and_a_mount_are_held():
    mounts = view(default())
    assert mounts["/home/u/.local"].source == "/state/homes/p/.local"
    assert mounts["/home/u/.local"].within == "/state/homes/p"
    assert mounts["/home/u/.local"].writable
    assert mounts["/home/u/.local/bin"].source == "/home/u/.local/bin"


def test_ringfence_itself_is_read_only_in_the_workspace():
    mounts = view(default())
    assert not mounts["/home/u/p/.venv"].writable
    assert mounts["/home/u/p/.venv"].within == "/home/u/p"


def test_a_workspace_inside_the_installation_is_refused():
    with pytest.raises(SessionError, match="own installation"):
        view(default("/home/u/p/.venv/lib"), "/home/u/p/.venv/lib")
    view(Capabilities(read=("/home/u/p/.venv/lib",), spawn=True), "/home/u/p/.venv/lib")


def test_read_only_tier_shows_a_read_only_workspace():
    mounts = view(Capabilities.for_tier("read-only", "/home/u/p"))
    assert not mounts["/home/u/p"].writable


def test_a_grant_on_the_home_shows_it_without_credentials():
    mounts = view(default().with_read("/home/u"))
    assert mounts["/home/u"].source == "/home/u"
    assert not mounts["/home/u"].writable
    assert mounts["/home/u/.ssh"].kind == "tmpfs"
    assert mounts["/home/u/.netrc"].kind == "mask"
    assert mounts["/home/u/.config/ringfence"].kind == "tmpfs"
    assert "/home/u/.pyenv" not in mounts


def test_a_grant_on_the_credential_itself_shows_it():
    mounts = view(default().with_read("/home/u").with_read("/home/u/.ssh"))
    assert mounts["/home/u/.netrc"].kind == "mask"
    assert "/home/u/.ssh" not in mounts
    alone = view(default().with_read("/home/u/.ssh"))
    assert alone["/home/u/.ssh"].source == "/home/u/.ssh"


def test_our_state_stays_hidden_under_full_access():
    mounts = view(Capabilities.for_tier("full-access", "/home/u/p"))
    assert mounts["/"].writable
    assert mounts["/home/u/.local/state/ringfence"].kind == "tmpfs"
    assert mounts["/home/u/.config/ringfence"].kind == "tmpfs"
    assert not mounts["/home/u/p/.venv"].writable
    assert "/tmp" not in mounts
    assert mounts["/home/u/.ssh"].kind == "tmpfs"


def test_reading_everything_still_has_a_private_home():
    mounts = view(default().with_read("/"))
    assert not mounts["/"].writable
    assert mounts["/home/u"].source == "/state/homes/p"
    assert mounts["/home/u/.pyenv"].source == "/home/u/.pyenv"


def test_single_use_lives_in_memory():
    mounts = view(default().with_limits(Limits(scratch_mb=7)), private_home=None, scratch=None)
    assert mounts["/tmp"].kind == mounts["/home/u"].kind == "tmpfs"
    assert mounts["/tmp"].size_mb == 7


def test_a_plan_prints_and_maps_paths():
    mounts = tuple(view(default()).values())
    plan = Plan("b", "/home/u/p", "/home/u", mounts, Network.none(), Limits())
    assert plan.host_path("/bin/ls") == "/usr/bin/ls"
    assert plan.host_path("/home/u/x") == "/state/homes/p/x"
    assert plan.host_path("/home/u/p/x") == "/home/u/p/x"
    assert plan.host_path("/home/u/.pyenv/bin/python") == "/home/u/.pyenv/bin/python"
    assert plan.host_path("/nowhere") is None
    assert plan.host_path("/dev/shm/x") is None
    text = str(plan)
    for part in ("write  /home/u/p", "read   /usr", "link   /bin -> usr/bin", "network   none"):
        assert part in text
    assert plan.as_dict()["workspace"] == "/home/u/p"
