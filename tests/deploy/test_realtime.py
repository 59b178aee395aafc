"""Real-time scheduling of a process's threads, where the machine allows it."""

import os
import threading

import pytest

from gantry_deploy.process.realtime import realtime_thread
from gantry_hardware.errors import GantryError


def schedule(thread=0):
    return os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority


def test_the_loop_comes_first_and_the_threads_that_may_hold_its_lock_right_after_it():
    ready, done = threading.Event(), threading.Event()
    found = {}

    def other():
        found["thread"] = threading.get_native_id()
        ready.set()
        done.wait()

    helper = threading.Thread(target=other, daemon=True)
    helper.start()
    ready.wait()
    before = schedule(), schedule(found["thread"])
    try:
        with realtime_thread(20):
            assert schedule() == (os.SCHED_FIFO, 20)
            assert schedule(found["thread"]) == (os.SCHED_FIFO, 19)
    except GantryError as error:
        pytest.skip(str(error))
    finally:
        after = schedule(), schedule(found["thread"])
        done.set()
        helper.join()
    assert after == before


def test_zero_leaves_the_scheduler_alone():
    before = schedule()
    with realtime_thread(0):
        assert schedule() == before
