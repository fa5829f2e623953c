"""``make check``: which tests a change touches, in which order, and what is left out."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import check
import pytest
from check import ALWAYS, Budget, choose
from import_graph import graph_of, module_of, modules_in

FILES = {
    "lmerge/core/merge.py": "",
    "lmerge/client/__init__.py": "from lmerge.client.link import Link",
    "lmerge/client/link.py": "from lmerge.core.merge import Merge",
    "lmerge/service/hub.py": "from lmerge.core import merge",
    "tests/core/conftest.py": "",
    "tests/core/test_merge.py": "from lmerge.core.merge import Merge",
    "tests/core/test_merge_again.py": "",
    "tests/core/test_laws.py": "",
    "tests/client/test_link.py": "from lmerge.client import Link",
    "tests/client/test_other.py": "",
    "tests/service/test_hub.py": "import hub_world",
    "tests/sim/test_runs.py": "from lmerge.core.merge import Merge",
    "tests/worlds/hub_world.py": "from lmerge.service.hub import Hub",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def near(project: Path, *changed: str) -> list[str]:
    """Return what is chosen beside the tests that always run."""
    choice = choose(changed, graph_of(project), modules_in(project))
    assert choice.near[-len(ALWAYS) :] == ALWAYS
    return list(choice.near[: -len(ALWAYS)])


def test_the_nearest_tests_come_first_and_slow_ones_last_of_their_kind(project: Path) -> None:
    assert near(project, "lmerge/core/merge.py") == [
        "tests/core/test_merge.py",
        "tests/core/test_merge_again.py",  # by name
        "tests/sim/test_runs.py",  # imports it
        "tests/core/test_laws.py",  # stands in its folder
    ]


def test_a_test_that_changed_comes_first(project: Path) -> None:
    assert near(project, "lmerge/core/merge.py", "tests/sim/test_runs.py")[0] == "tests/sim/test_runs.py"


def test_names_that_a_package_passes_on_are_no_detour(project: Path) -> None:
    assert near(project, "lmerge/client/link.py") == ["tests/client/test_link.py", "tests/client/test_other.py"]


def test_what_reaches_a_change_through_others_is_left_out_and_listed(project: Path) -> None:
    choice = choose(["lmerge/core/merge.py"], graph_of(project), modules_in(project))
    assert choice.far == ("tests/client/test_link.py", "tests/service/test_hub.py")


def test_a_helper_touches_the_tests_that_use_it(project: Path) -> None:
    assert near(project, "tests/worlds/hub_world.py") == ["tests/service/test_hub.py"]


def test_fixtures_touch_the_tests_below_them(project: Path) -> None:
    assert near(project, "tests/core/conftest.py") == [
        "tests/core/test_laws.py",
        "tests/core/test_merge.py",
        "tests/core/test_merge_again.py",
    ]


def test_files_that_are_no_modules_have_tests_too(project: Path) -> None:
    assert near(project, "proto/lmerge/v1/lmerge.proto") == ["tests/wire/test_generated.py"]
    assert near(project, "deploy/image.txt") == []


def test_a_module_that_is_gone_touches_the_tests_of_its_name(project: Path) -> None:
    (project / "lmerge/core/merge.py").unlink()
    assert "tests/core/test_merge.py" in near(project, "lmerge/core/merge.py")


def test_every_test_named_for_other_files_is_there() -> None:
    named = {test for _, tests in check.OTHERS for test in tests} | set(ALWAYS)
    assert [test for test in named if not (check.ROOT / test).exists()] == []


def test_each_module_of_the_library_has_a_test_near_it() -> None:
    modules = modules_in(check.ROOT)
    graph = graph_of(check.ROOT)
    library = [path for path in modules.values() if path.startswith("lmerge/") and path.count("/") > 1]
    assert len(library) > 200
    assert [path for path in library if choose([path], graph, modules).near == ALWAYS] == []


def test_modules_are_named_as_they_are_imported() -> None:
    assert module_of("lmerge/core/merge.py") == "lmerge.core.merge"
    assert module_of("lmerge/core/__init__.py") == "lmerge.core"
    assert module_of("tests/worlds/hub_world.py") == "hub_world"
    assert module_of("scripts/defect_list/core.py") == "defect_list.core"


@pytest.mark.parametrize(
    "code",
    [
        "import lmerge.core.merge",
        "from lmerge.core import merge",
        "from lmerge.core.merge import Merge",
        "def f():\n    from lmerge.core.merge import Merge",
        "patch('lmerge.core.merge.LIMIT', 1)",
        "load(f'lmerge.core.{name}')",
        "from .merge import Merge",
        "from . import merge",
        "MODULES = {'Merge': 'other.merge'}",
    ],
)
def test_a_dependency_is_found_in_every_form(code: str, tmp_path: Path) -> None:
    (tmp_path / "lmerge/core/other").mkdir(parents=True)
    (tmp_path / "lmerge/core/merge.py").touch()
    (tmp_path / "lmerge/core/other/merge.py").touch()
    (tmp_path / "lmerge/core/user.py").write_text(code)
    assert {"lmerge.core.merge", "lmerge.core.other.merge"} & graph_of(tmp_path)["lmerge.core.user"]


def test_what_a_docstring_names_is_no_dependency(project: Path) -> None:
    (project / "lmerge/core/user.py").write_text('"""See ``lmerge.core.merge``."""\n')
    assert graph_of(project)["lmerge.core.user"] == frozenset()


def test_a_clean_tree_is_compared_with_the_commit_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "ROOT", tmp_path)
    run = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]

    def commit(name: str) -> None:
        (tmp_path / name).touch()
        for arguments in (["add", "-A"], ["commit", "-q", "-m", name]):
            subprocess.run([*run, *arguments], cwd=tmp_path, check=True, capture_output=True)

    subprocess.run([*run, "init", "-q"], cwd=tmp_path, check=True, capture_output=True)
    commit("first.py")
    commit("second.py")
    assert check.changed_since(None) == ["second.py"]
    (tmp_path / "third.py").touch()
    assert check.changed_since(None) == ["third.py"]
    assert check.changed_since("HEAD~1") == ["second.py", "third.py"]


def test_tests_after_the_time_are_counted_and_not_run() -> None:
    item = SimpleNamespace(nodeid="tests/core/test_merge.py::test_it[a::b]")
    assert Budget(60.0).pytest_runtest_protocol(item) is None
    budget = Budget(0.0)
    assert budget.pytest_runtest_protocol(item) is True
    assert budget.left == {"tests/core/test_merge.py": 1}
