"""Ctrl-C and SIGTERM in a process of its own: the first is a wish, the second an end."""

from __future__ import annotations

import fcntl
import io
import os
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest
from process_samples import ends
from samples import ROOT

from gemm_tuner.core.errors import EXIT_INTERRUPTED
from gemm_tuner.system import interruption, module_start
from gemm_tuner.system.interruption import NOTICE, SIGNALS, Interruption

LISTEN = """
import signal
from gemm_tuner.system import interruption, module_start
from gemm_tuner.system.interruption import Interruption
interruption.LAST_RESORT_S = 1000.0  # it ends by itself, however long that takes
asked = Interruption()
before = signal.getsignal(signal.SIGTERM)
try:
    with asked.listening():
        print("listening", flush=True)
        while not asked.requested:
            signal.sigtimedwait([], 0.05)
        print("asked", flush=True)
        while True:
            signal.sigtimedwait([], 0.05)
except KeyboardInterrupt:
    print("ended", signal.getsignal(signal.SIGTERM) == before, flush=True)
"""


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize(("first", "second"), [("SIGINT", "SIGINT"), ("SIGTERM", "SIGINT"), ("SIGINT", "SIGTERM")])
def test_the_first_signal_asks_and_the_second_ends(first: str, second: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", LISTEN], cwd=ROOT, text=True, stdout=-1, stderr=-1)
    try:
        assert line(process) == "listening"
        process.send_signal(signal.Signals[first])
        assert line(process) == "asked"
        process.send_signal(signal.Signals[second])
        assert line(process) == "ended True"  # and the handlers are those of before
    finally:
        process.kill()
        _, said = process.communicate()
    assert said.strip() == f"tune_gemm.py: {first}: finishing what runs and saving it; once more to stop at once"


def test_on_a_terminal_the_notice_ends_its_lines_between_words() -> None:
    ours, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    process = subprocess.Popen([sys.executable, "-c", LISTEN], cwd=ROOT, text=True, stdout=-1, stderr=terminal)
    try:
        assert line(process) == "listening"
        process.send_signal(signal.SIGTERM)
        assert line(process) == "asked"
        text = ""
        while not " ".join(text.split()).endswith(NOTICE):  # a terminal may hand it on in parts
            text += os.read(ours, 4096).decode()
        said = text.splitlines()
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
        os.close(terminal)
    assert said[0] == "" and max(map(len, said)) <= 80
    assert " ".join(said).endswith(NOTICE)


STUCK = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from gemm_tuner.system.interruption import Interruption
from gemm_tuner.system.processes import run_watched
asked = Interruption()
child = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"]
def watch():
    run_watched(child, dict(os.environ), Path(sys.argv[1]), heartbeat=lambda: 0, stall_limit_s=600)
with asked.listening(), ThreadPoolExecutor() as pool:
    waiting = pool.submit(watch)
    print("listening", flush=True)
    waiting.result()
"""


def test_the_second_signal_ends_what_does_not_listen(tmp_path: Path) -> None:
    """A thread that looks at nothing holds up the end of the run, with a child in a session of its own."""
    log = tmp_path / "log"
    process = subprocess.Popen([sys.executable, "-c", STUCK, str(log)], cwd=ROOT, text=True, stdout=-1, stderr=-1)
    try:
        assert line(process) == "listening"
        while not (log.exists() and log.read_text().strip()):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        # Two signals at once may reach two threads, and Python handles what another thread took when the main thread
        # wakes: a second signal is one that follows the notice of the first.
        assert process.stderr is not None
        while "SIGINT" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=240) == EXIT_INTERRUPTED
    finally:
        process.kill()
        process.communicate()
    assert ends(int(log.read_text()))


LEFT_BEHIND = """
import os, subprocess, sys, threading
from gemm_tuner.cli import main as cli
from gemm_tuner.system.interruption import Interruption
def run(*_, **__):
    program = "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True)"
    command = [sys.executable, "-c", program + "; signal.pause()"]
    child = subprocess.Popen(command, stdout=-1, stderr=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=child.wait).start()
    with Interruption().listening():
        print(child.stdout.readline().decode(), end="", flush=True)
        threading.Event().wait()
cli.run = run
sys.argv[0] = "tune_gemm.py"
sys.exit(cli.main())
"""


def test_a_command_that_was_interrupted_waits_for_no_thread(tmp_path: Path) -> None:
    """Its run is over, and so is the limit of the run; the interpreter waits for a thread, which waits for a process
    that does not end on SIGTERM."""
    process = subprocess.Popen([sys.executable, "-c", LEFT_BEHIND], cwd=ROOT, text=True, stdout=-1, stderr=-1)
    try:
        child = int(line(process))
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "SIGINT" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=240) == EXIT_INTERRUPTED
        assert process.stderr.read() == "tune_gemm.py: interrupted\n"
        assert ends(child)
    finally:
        process.kill()
        process.communicate()
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


SLOW = """
import signal, threading
from gemm_tuner.system import interruption, module_start
interruption.own_pids = threading.Event().wait
interruption.LAST_RESORT_S = 0.0
with interruption.Interruption().listening():
    signal.raise_signal(signal.SIGINT)
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        threading.Event().wait()
"""


def test_a_search_for_processes_does_not_hold_up_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW], cwd=ROOT, timeout=240, capture_output=True)
    assert done.returncode == EXIT_INTERRUPTED


def test_a_run_that_ends_by_itself_is_not_ended_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(interruption, "end_now", lambda last_words: ended.set())
    monkeypatch.setattr(interruption, "LAST_RESORT_S", 100.0)
    with pytest.raises(KeyboardInterrupt), Interruption().listening() as asked:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert asked._last_resort is not None
    assert not asked._last_resort.is_alive() and not ended.is_set()


def test_a_run_that_is_being_ended_does_not_end_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of its children would let it go on."""
    begun, ended = threading.Event(), threading.Event()

    def end(last_words: str) -> None:
        begun.set()
        time.sleep(0.05)
        ended.set()

    monkeypatch.setattr(interruption, "end_now", end)
    monkeypatch.setattr(interruption, "LAST_RESORT_S", 0.0)
    with pytest.raises(KeyboardInterrupt), Interruption().listening():
        signal.raise_signal(signal.SIGINT)
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            assert begun.wait(240)
    assert ended.is_set()


def test_a_signal_within_a_write_to_standard_error_is_only_a_wish(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(io.TextIOWrapper):
        """As a stream whose write the signal interrupts."""

        def write(self, text: str) -> int:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    monkeypatch.setattr(sys, "stderr", Interrupted(io.BytesIO()))
    with Interruption().listening() as asked:
        signal.raise_signal(signal.SIGTERM)
        assert asked.requested
    assert f"SIGTERM: {NOTICE}\n" in capfd.readouterr().err


def test_a_second_signal_at_any_point_of_the_first_ones_handler_is_a_second_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interruption, "end_now", lambda last_words: None)
    interrupted_at = 0
    while True:
        lines = 0

        def follow(frame: FrameType, event: str, argument: object, at: int = interrupted_at) -> object:
            nonlocal lines
            lines += event == "line"
            if event == "line" and lines == at + 1:
                signal.raise_signal(signal.SIGTERM)
            return follow

        def heard(number: int, frame: object) -> None:
            sys.settrace(follow)
            try:
                asked._on_signal(number, frame)
            finally:
                sys.settrace(None)

        before = sys.gettrace()
        try:
            with Interruption().listening() as asked:
                signal.signal(signal.SIGINT, heard)
                signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            interrupted_at += 1
        else:
            break  # the handler has no such line
        finally:
            sys.settrace(before)
    assert interrupted_at == lines > 0


def test_a_run_that_is_asked_to_end_ends_where_it_checks() -> None:
    asked = Interruption()
    asked.check()
    with asked.listening():
        signal.raise_signal(signal.SIGTERM)
        assert asked.requested
        with pytest.raises(KeyboardInterrupt):
            asked.check()


def test_outside_the_main_thread_nothing_is_taken() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    seen: list[object] = []

    def listen() -> None:
        with Interruption().listening() as asked:
            seen.extend([asked.requested, [signal.getsignal(number) for number in SIGNALS] == before])

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert seen == [False, True]


def test_an_interruption_while_the_program_is_imported_is_no_traceback(tmp_path: Path) -> None:
    hook = """
        import os, signal, sys
        class Interrupts:
            def find_spec(self, name, path=None, target=None):
                if name == "gemm_tuner.cli.main":
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Interrupts())
    """
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(hook))
    command = [sys.executable, str(ROOT / "tune_gemm.py"), "--help"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (EXIT_INTERRUPTED, "")


def test_a_server_of_processes_ignores_an_interruption_from_its_first_line() -> None:
    source = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('goes on')"
    done = subprocess.run(
        [sys.executable, module_start.__file__, "-c", source], capture_output=True, text=True, timeout=60
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr
