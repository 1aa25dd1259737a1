"""What all tests share: the project on the import path, and ``--update-golden``."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import foreground
import pytest
import warm_python

ROOT = Path(__file__).resolve().parents[1]
# Modules and folders whose tests start processes or compile: one takes seconds.
LONG = (
    "faults/", "kernels/test_kernel_command", "kernels/test_agreement", "kernels/test_bad_kernels", "doors/",
    "compile/", "hosts/", "end_to_end/", "measure/test_launch", "languages/", "interpreter/", "launch/",
)  # fmt: skip
# Tests whose subject is how processes start and end: nothing is left out of that.
COLD = (
    "tests/faults/test_faults_on_gpu", "tests/system/", "tests/gpu/", "tests/end_to_end/test_install",
    "tests/end_to_end/test_without_gpu.py::test_script", "tests/compile/test_compile_pool",
)  # fmt: skip
WARM = pytest.StashKey[str]()
sys.path.insert(0, str(ROOT))


def pytest_configure(config: pytest.Config) -> None:
    """Gives the tests one cache of compiled kernels for the session, whatever processes they run in: not the user's.

    Python keeps the byte code of what is imported, also where the environment says otherwise: some hundred processes
    that the tests start import the package. And libraries compute with one thread: others would wait in a loop.
    """
    foreground.take_interrupts()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False  # multiprocess hands it on to the processes that it spawns
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="gemm_tuner_tests_", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["GEMM_TUNER_CACHE_DIR"] = folder.name
        if "COLD_START" not in os.environ:
            warm_python.start(Path(folder.name))
    elif warm_python.FOLDER in os.environ:
        warm_python.install()
    if warm_python.FOLDER in os.environ:
        warm_python.install_workers()
    config.stash[WARM] = os.environ.get(warm_python.FOLDER, "")


@pytest.fixture(scope="session")
def warm_folder(pytestconfig: pytest.Config) -> str:
    """What names the servers of warm processes, also for the tests that start cold; empty where there are none."""
    return pytestconfig.stash[WARM]


def pytest_collection_finish() -> None:
    """What thousands of tests are made of lives as long as the process: the garbage collector need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Children of most tests are forks of a process that has imported what they would."""
    with pytest.MonkeyPatch.context() as here:
        if item.nodeid.startswith(COLD):
            here.delenv(warm_python.FOLDER, raising=False)
        return (yield)


def is_long(item: pytest.Item) -> bool:
    return item.path.relative_to(ROOT / "tests").as_posix().startswith(LONG)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first in each part, which is what each worker begins with: none ends alone with one."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    modules = [list(group) for _, group in itertools.groupby(items, key=lambda item: item.path)]
    long = [module for module in modules if is_long(module[0])]
    short = [item for module in modules if not is_long(module[0]) for item in module]
    parts: list[pytest.Item] = []
    for turn in range(workers):
        parts += [item for module in long[turn::workers] for item in module]
        cut = max(0, len(items) * (turn + 1) // workers - len(parts))
        parts += short[:cut]
        del short[:cut]
    items[:] = [*parts, *short]


def pytest_unconfigure() -> None:
    """Else Triton's bindings count what is frozen as leaked, and print it."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew, compare nothing")


@pytest.fixture(scope="session", autouse=True)
def locks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """GPUs that are stood in for have locks of their own; real ones keep those of the machine."""
    if request.config.option.markexpr == "gpu":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEMM_TUNER_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def templates() -> Path:
    """The project's templates."""
    return ROOT / "templates"
