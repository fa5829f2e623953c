"""The installation is whole: the wheel's contents, the entry points, the imports between packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from lmerge.core.engines.selection import native_problem

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("lmerge", "lmerge_replicas", "lmerge_controller")


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_the_arrows_between_packages_hold() -> None:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


# A setting without Rust, so that every machine tests it.
NO_NATIVE = "import sys; sys.modules['lmerge._native'] = None\n"


def loaded_by(module: str, *, without_native: bool = False) -> tuple[set[str], set[str]]:
    """Return the top-level packages outside the standard library that are loaded with ``module`` and all modules below
    it, and the modules that cannot be loaded because there is no native core.
    """
    loaded, _, missing = printed(
        (NO_NATIVE if without_native else "") + "import importlib, pkgutil, sys\n"
        "before, missing = set(sys.modules), set()\n"
        f"package = importlib.import_module({module!r})\n"
        f"for found in pkgutil.walk_packages(getattr(package, '__path__', []), {module + '.'!r}):\n"
        "    try:\n"
        "        importlib.import_module(found.name)\n"
        "    except ImportError as problem:\n"  # `from lmerge import _native` names lmerge, and the rest as text
        "        if '_native' not in str(problem):\n"
        "            raise\n"
        "        missing.add(found.name)\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(loaded - sys.stdlib_module_names), '|', *sorted(missing))"
    ).partition("|")
    return set(loaded.split()), set(missing.split())


@pytest.mark.parametrize("without_native", [False, True], ids=["as-it-is", "without-native"])
def test_the_core_loads_nothing_but_itself_and_sortedcontainers(without_native: bool) -> None:
    loaded, missing = loaded_by("lmerge.core", without_native=without_native)
    assert loaded == {"lmerge", "sortedcontainers"}
    assert all(name.rpartition(".")[2].startswith("native") for name in missing)
    assert bool(missing) == (without_native or native_problem() is not None)


@pytest.mark.parametrize("package", ["lmerge.client", "lmerge.service", "lmerge.wire", "lmerge.testing", "lmerge.cli"])
def test_without_the_native_core_only_what_binds_it_is_missing(package: str) -> None:
    _, missing = loaded_by(package, without_native=True)
    assert all(name.rpartition(".")[2].startswith("native") for name in missing)


def test_what_a_package_loads_is_seen() -> None:
    assert {"grpc", "google", "lmerge"} <= loaded_by("lmerge.client")[0]
    assert "rich" in loaded_by("lmerge.cli.top")[0]


@pytest.mark.parametrize("module", ["lmerge", "lmerge.cli.main", "lmerge.cli.replay", "lmerge.cli.tdb"])
def test_the_package_and_the_command_line_load_no_network(module: str) -> None:
    program = f"import sys, {module}; print({{'grpc', 'google.protobuf', 'aiohttp'}} & sys.modules.keys())"
    assert printed(program) == "set()"


def test_the_public_names_are_there() -> None:
    assert printed("import lmerge; print([getattr(lmerge, n) is not None for n in lmerge.__all__].count(False))") == "0"


def test_python_m_lmerge_is_the_command_line() -> None:
    result = subprocess.run([sys.executable, "-m", "lmerge", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("lmerge ")


@pytest.mark.parametrize(
    ("recipe", "exit_code", "shown"),
    [
        ("true || $(call quietly,echo never; false)", 0, ""),  # a step that is not needed
        ("false || $(call quietly,echo hidden)", 0, ""),
        ("$(call quietly,echo found; false)", 2, "found"),
        ("$(call quietly,echo found; false) || echo instead", 0, "instead"),
        ("true && $(call quietly,true) && false || $(call quietly,true) && echo after", 0, "after"),
    ],
)
def test_the_makefiles_quiet_steps_are_one_command_each(recipe: str, exit_code: int, shown: str) -> None:
    command = ["make", "--no-print-directory", f"--eval=the-step: ; @{recipe}", "the-step"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, shown in done.stdout + done.stderr) == (exit_code, True), done.stderr
    assert exit_code or "No such file" not in done.stderr


def test_ci_runs_the_readmes_test_command() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()
    targets = (ROOT / "Makefile").read_text()
    assert "\ndemo:" in targets
    assert "\ntest:" in targets


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Build a wheel of the project's files where there is no Rust, as every machine can; return the names in it."""
    folder = tmp_path_factory.mktemp("wheel")
    kept = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in kept.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name)
    environment = {name: value for name, value in os.environ.items() if name != "LMERGE_REQUIRE_NATIVE"}
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            str(folder),
            str(folder / "source"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"PATH": str(Path(sys.executable).parent)},
    )
    assert result.returncode == 0, result.stderr
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built).namelist()


def test_the_wheel_holds_everything_that_runs(wheel: list[str]) -> None:
    paths = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    modules = {str(path.relative_to(ROOT)) for path in paths}
    assert len(modules) > 60
    assert modules <= set(wheel)
    assert {"lmerge/py.typed", "lmerge/wire/generated/lmerge_pb2.pyi"} <= set(wheel)


def test_the_wheel_holds_the_files_of_the_status_page(wheel: list[str]) -> None:
    folder = ROOT / "lmerge" / "service" / "admin" / "page"
    files = {str(path.relative_to(ROOT)) for path in folder.iterdir()}
    assert len(files) > 8
    assert files <= set(wheel)


def test_the_wheel_holds_the_licence(wheel: list[str]) -> None:
    assert [name for name in wheel if fnmatch(name, "lmerge-*.dist-info/licenses/LICENSE")]


def test_the_wheel_holds_nothing_else(wheel: list[str]) -> None:
    assert {name.partition("/")[0].partition("-")[0] for name in wheel} == {*PACKAGES}
