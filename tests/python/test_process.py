# SPDX-License-Identifier: Apache-2.0
"""The process around a store: Ctrl-C, fork, exit, import. Each in an interpreter of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from api_support import run_python

HEAD = """
import asyncio, gc, os, signal, sys, threading, time
import numpy as np
from api_support import *
import ucmstore
"""

# Sends Ctrl-C when the main thread has arrived in a function of one of these names.
INTERRUPT = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job of the background has it ignored

def interrupt_in(*names):
    main = threading.main_thread().ident
    started = threading.Event()
    def run():
        started.wait()
        until(lambda: sys._current_frames()[main].f_code.co_name in names, "it waits")
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=run).start()
    started.set()
"""

CTRL_C = (
    HEAD
    + INTERRUPT
    + """
with faulty() as (store, fault):
    ids, rows = make_ids(1), make_rows(1)
    store.dump(ids, rows).wait()
    rule = fault.arm("load hold")
    into = np.zeros_like(rows)
    task = store.load(ids, into)

    fault.wait_held(rule, 1)
    interrupt_in("wait", "select")
    try:
        WAIT
        print("was not interrupted")
    except KeyboardInterrupt:
        print("interrupted")
    assert not task.done()
    fault.disarm(rule)
    fault.release(rule)
    task.wait(30)  # nothing was lost
    assert (into == rows).all()
    print("and went on")
"""
)


@pytest.mark.parametrize(
    "wait", ["task.wait()", "task.wait(60)", "asyncio.run(asyncio.wait_for(task, 60))"]
)
def test_ctrl_c_ends_a_wait_and_loses_nothing(wait: str) -> None:
    done = run_python(CTRL_C.replace("WAIT", wait))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["interrupted", "and went on"]


def test_ctrl_c_ends_a_close_that_still_goes_on() -> None:
    done = run_python(
        HEAD
        + INTERRUPT
        + """
with faulty() as (store, fault):
    ids, rows = make_ids(1), make_rows(1)
    store.dump(ids, rows).wait()
    rule = fault.arm("load stuck")
    task = store.load(ids, np.zeros_like(rows))
    fault.wait_held(rule, 1)
    interrupt_in("_wait_for_tstate_lock", "join")
    try:
        store.close(timeout=30)
        print("was not interrupted")
    except KeyboardInterrupt:
        print("interrupted")
    try:
        store.lookup(ids)
    except ucmstore.ClosedError:
        print("closed")
    fault.disarm(rule)
    fault.release(rule)
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["interrupted", "closed"]


FORK = (
    HEAD
    + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of what is tried here
with faulty() as (store, fault):
    ids, rows = make_ids(4), make_rows(4)
    store.dump(ids, rows).wait()
    store.fileno()
    store.lookup_prefix_async(ids).result()
    rule = fault.arm("load hold")
    task = store.load(ids, np.zeros_like(rows))
    fault.wait_held(rule, 1)
    stop = threading.Event()

    def traffic():
        i = 0
        while not stop.is_set():
            i += 1
            store.dump(make_ids(1, seed=i), rows[:1]).wait()
            store.lookup(ids)

    threads = [threading.Thread(target=traffic) for _ in range(3)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            CHILD
        children.append(child)
    for child in children:
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
    stop.set()
    for thread in threads:
        thread.join()
    fault.disarm(rule)
    fault.release(rule)
    task.wait(30)
    assert store.lookup_prefix(ids) == 4
    print("parent went on")
"""
)

CHILD_CALLS = """
            calls = [
                lambda: store.lookup(ids), lambda: store.lookup_prefix(ids),
                lambda: store.lookup_prefix_async(ids).result(10),
                lambda: store.load(ids, rows.copy()), lambda: store.dump(ids, rows),
                lambda: store.prefetch(ids), lambda: task.wait(), lambda: task.cancel(),
                lambda: asyncio.run(asyncio.wait_for(task, 10)), lambda: store.fileno(),
                lambda: store.poll(), lambda: store.stats(),
            ]
            refused = 0
            for call in calls:
                try:
                    call()
                except ucmstore.ClosedError as error:
                    refused += "fork" in str(error)
            task.done(), task.results, repr(task), repr(store)
            del task
            gc.collect()
            store.close()
            os._exit(0 if refused == len(calls) else 1)
"""

CHILD_OPENS_ITS_OWN = """
            with open_store() as mine:
                mine.dump(ids, rows).wait(30)
                os._exit(0 if mine.lookup_prefix(ids) == 4 else 1)
"""

CHILD_EXITS = "sys.exit(0)"


@pytest.mark.parametrize("child", [CHILD_CALLS, CHILD_OPENS_ITS_OWN, CHILD_EXITS])
def test_p01_a_forked_child_is_told_so_and_never_hangs(child: str) -> None:
    done = run_python(FORK.replace("CHILD", child.strip()), PYTHONWARNINGS="default")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-7:-1] == ["0"] * 5 + ["parent went on"], done.stdout


@pytest.mark.parametrize(
    "ending",
    [
        "pass",
        "threading.Thread(target=task.wait, daemon=True).start()",
        "threading.Thread(target=lambda: [store.lookup(ids) for _ in iter(int, 1)],"
        " daemon=True).start()",
        "del store; gc.collect()",
        "sys.exit(0)",
        "keep.append(keep)",
        "fault.arm('load stuck'); keep += [store.load(ids, rows.copy()) for _ in range(3)]",
    ],
)
def test_an_interpreter_ends_with_a_store_open(ending: str) -> None:
    done = run_python(
        HEAD
        + f"""
import warnings
warnings.simplefilter("ignore", ResourceWarning)
store = open_store("Fault|Dram", fault={{"name": "exit"}}, plugin_path=[fault_folder()])
fault = Fault("exit")
ids, rows = make_ids(1), make_rows(1)
store.dump(ids, rows).wait()
rule = fault.arm("load hold")
task = store.load(ids, np.zeros_like(rows))
fault.wait_held(rule, 1)
keep = [store, task]
print("ready", flush=True)
{ending}
""",
        PYTHONWARNINGS="default",
    )
    assert done.stdout == "ready\n", done.stderr
    assert done.returncode == 0, done.stderr


def test_p02_exit_waits_for_no_child() -> None:
    done = run_python(
        HEAD
        + """
import subprocess
with open_store() as store:
    child = subprocess.Popen(["sleep", "600"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(child.pid, flush=True)
    child.returncode = 0  # so that Popen does not complain of it
"""
    )
    child = int(done.stdout)
    try:
        assert done.returncode == 0, done.stderr
    finally:
        subprocess.run(["kill", "-KILL", str(child)], check=True)


def test_sigkill_leaves_what_was_confirmed(tmp_path: Path) -> None:
    done = run_python(
        HEAD
        + """
store = open_store("Posix", posix={"roots": [sys.argv[1]]})
store.dump(make_ids(20), make_rows(20)).wait()
os.kill(os.getpid(), signal.SIGKILL)
""",
        str(tmp_path),
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    again = run_python(
        HEAD
        + """
with open_store("Posix", posix={"roots": [sys.argv[1]]}) as store:
    assert store.lookup_prefix(make_ids(20)) == 20
    into = np.zeros_like(make_rows(20))
    store.load(make_ids(20), into).wait()
    assert (into == make_rows(20)).all()
""",
        str(tmp_path),
    )
    assert again.returncode == 0, again.stderr


# ---- import --------------------------------------------------------------------------------------


def test_o01_import_needs_no_framework() -> None:
    done = run_python(
        """
import sys
import ucmstore
from ucmstore import _core
heavy = {"torch", "asyncio", "concurrent.futures", "multiprocessing", "rich", "typer"}
print(*(heavy & set(sys.modules)))
print(ucmstore.__version__, _core.version)
"""
    )
    assert done.returncode == 0, done.stderr
    loaded, versions = done.stdout.splitlines()
    assert loaded == ""
    assert len(set(versions.split())) == 1


def test_o01_the_core_needs_only_the_system() -> None:
    from ucmstore import _core

    listing = subprocess.run(
        ["readelf", "-d", _core.core_path()], capture_output=True, text=True, check=True
    ).stdout
    needed = {line.split("[")[1].rstrip("]") for line in listing.splitlines() if "NEEDED" in line}
    assert needed <= {
        "libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6", "libpthread.so.0",
        "libdl.so.2", "ld-linux-x86-64.so.2", "libpython3.so",
    }  # fmt: skip


@pytest.mark.parametrize(
    "order",
    [
        "import torch, ucmstore",
        "import ucmstore, torch",
        "import ucmstore._core, numpy",
        "import ucmstore.errors, ucmstore.memory, ucmstore.waiters, ucmstore.prefix_lookup",
    ],
)
def test_o03_import_order_does_not_matter(order: str) -> None:
    done = run_python(
        f"""
{order}
import threading, ucmstore
from api_support import *
def use():
    with open_store() as store:
        store.dump(make_ids(1), make_rows(1)).wait()
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("ok")
""",
        PYTHONWARNINGS="default",
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_o05_a_missing_core_is_explained(tmp_path: Path) -> None:
    import ucmstore

    package = tmp_path / "ucmstore"
    package.mkdir()
    for source in Path(ucmstore.__file__).parent.glob("*.py"):
        (package / source.name).write_bytes(source.read_bytes())
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path = [{str(tmp_path)!r}] + sys.path\n"
         "import ucmstore"],
        capture_output=True, text=True, check=False, timeout=60, cwd="/",
        env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "ucmstore's compiled core cannot be loaded" in done.stderr
    assert "pip install" in done.stderr
