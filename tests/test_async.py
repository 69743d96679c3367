from __future__ import annotations

import asyncio
import os
import time

import pytest

from ringfence import Answer, AsyncFence, Denied
from ringfence.testing import ListRecorder


def test_the_same_names_awaited(workspace):
    async def main():
        async with AsyncFence() as fence, fence.session("a", workspace) as session:
            out = await session.run("cat; exit 3", stdin="hello")
            assert (out.exit_code, out.stdout) == (3, "hello")
            outs = await asyncio.gather(*(session.run(f"sleep 0.3; echo {n}") for n in range(6)))
            assert [o.stdout.strip() for o in outs] == [str(n) for n in range(6)]
            async with session.stream("echo a; sleep 0.2; echo b") as stream:
                chunks = [data async for _, data in stream]
            assert b"".join(chunks) == b"a\nb\n"
            assert stream.output.ok

    asyncio.run(main())


def test_an_async_approver(workspace):
    async def yes(request):
        await asyncio.sleep(0.01)
        return Answer.once()

    async def never(request):
        await asyncio.sleep(100)

    async def main():
        async with AsyncFence(approver=yes) as fence, fence.session(workspace=workspace) as session:
            assert (await session.run("true", capabilities=session.capabilities.with_network("all"))).ok
        async with AsyncFence(approver=never) as fence, fence.session(workspace=workspace) as session:
            fence.config = fence.config.replace(approval_wait=0.1)
            with pytest.raises(Denied, match="nobody answered"):
                await session.run("true", capabilities=session.capabilities.with_network("all"))

    asyncio.run(main())


@pytest.mark.parametrize("moment", [0.0, 0.002, 0.005, 0.01, 0.02, 0.3])
def test_cancelling_kills_the_tree_whenever_it_comes(workspace, moment):
    recorder = ListRecorder()
    marker = workspace / "alive"

    async def main():
        async with AsyncFence(recorder=recorder) as fence, fence.session(workspace=workspace) as session:
            task = asyncio.create_task(session.run("while :; do date +%N > alive; sleep 0.05; done"))
            await asyncio.sleep(moment)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    stamp = marker.read_text() if marker.exists() else None
    time.sleep(0.3)
    assert (marker.read_text() if marker.exists() else None) == stamp
    assert len(os.listdir("/proc/self/fd")) == before
    if "decision" in recorder.events():
        assert recorder.events()[-1] == "failure"


def test_cancelling_again_and_again_leaves_nothing(workspace):
    marker = workspace / "alive"

    async def main():
        async with AsyncFence() as fence, fence.session(workspace=workspace) as session:
            for pause in (0, 0.001, 0.004, 0.008, 0.05):
                task = asyncio.create_task(session.run("while :; do date +%N > alive; sleep 0.02; done"))
                await asyncio.sleep(pause)
                for _ in range(5):
                    task.cancel()
                    await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await task

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    stamp = marker.read_text() if marker.exists() else None
    time.sleep(0.3)
    assert (marker.read_text() if marker.exists() else None) == stamp
    assert len(os.listdir("/proc/self/fd")) == before


def test_waiting_questions_do_not_stop_others(workspace):
    def slow(request):
        time.sleep(1.5)
        return Answer.deny()

    async def main():
        async with AsyncFence(approver=slow) as fence, fence.session(workspace=workspace) as session:
            wide = session.capabilities.with_network("all")
            waiting = [asyncio.create_task(session.run("true", capabilities=wide)) for _ in range(40)]
            await asyncio.sleep(0.1)
            out = await asyncio.wait_for(session.run("echo hi"), 1.2)
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert out.stdout == "hi\n"
            assert all(isinstance(r, Denied) for r in results)

    asyncio.run(main())
