"""A replica's process gets its work by its environment and by the placeholders of its command."""

from __future__ import annotations

from lmerge_controller.model.invocation import ReplicaWork, invocation
from lmerge_controller.model.query import MergeSpec, ReplicatedQuery, RunSpec, ServersSpec, VersionSpec

WORK = ReplicaWork(("h1:7171", "h2:7171"), "prices", "q-v1-0", "observe", 12.5)


def query_with(version: VersionSpec, folder: str = "/srv") -> ReplicatedQuery:
    return ReplicatedQuery("q", MergeSpec("prices"), ServersSpec(count=2), (version,), version.name, folder=folder)


def test_a_command_has_its_placeholders_replaced_and_keeps_other_braces() -> None:
    version = VersionSpec(
        "v1", RunSpec(command=("run", "{servers}", "{merge}/{replica}", '{"a": {role}}', "{x}"), args=("{started}",))
    )
    made = invocation(query_with(version), version, 0, WORK)
    expected = ("run", "h1:7171,h2:7171", "prices/q-v1-0", '{"a": observe}', "{x}", "12.500")
    assert made.command == expected


def test_a_replica_of_lmerge_gets_its_work_as_options() -> None:
    version = VersionSpec("v1", RunSpec(replica="aggressive", args=("--speed", "2")))
    made = invocation(query_with(version), version, 0, WORK, lmerge=("python", "-m", "lmerge"))
    assert made.command[:6] == ("python", "-m", "lmerge", "replica", "run", "aggressive")
    assert made.command[-4:] == ("--role", "observe", "--speed", "2")
    assert "h1:7171,h2:7171" in made.command


def test_a_program_is_relative_to_the_file_of_the_query() -> None:
    version = VersionSpec("v1", RunSpec(program="jobs/a.py"))
    assert invocation(query_with(version), version, 0, WORK, python=("py",)).command == ("py", "/srv/jobs/a.py")
    absolute = VersionSpec("v1", RunSpec(program="/jobs/a.py"))
    assert invocation(query_with(absolute), absolute, 0, WORK).command == ("python", "/jobs/a.py")
    assert invocation(query_with(version, folder=""), version, 0, WORK).command == ("python", "jobs/a.py")


def test_the_environment_describes_the_work_and_has_the_versions_own_variables() -> None:
    version = VersionSpec("v1", RunSpec(command=("x",)), env=(("LMERGE_ROLE", "mine"), ("WHO", "{replica}")))
    env = dict(invocation(query_with(version), version, 0, WORK).env)
    assert env == {
        "LMERGE_SERVERS": "h1:7171,h2:7171",
        "LMERGE_MERGE": "prices",
        "LMERGE_REPLICA": "q-v1-0",
        "LMERGE_ROLE": "observe",
        "LMERGE_STARTED": "12.500",
        "WHO": "q-v1-0",
    }


def test_replicas_take_turns_with_the_plans_of_their_version() -> None:
    runs = [RunSpec(command=(name,)) for name in "abc"]
    version = VersionSpec("v1", runs[0], alternatives=tuple(runs[1:]))
    made = [invocation(query_with(version), version, index, WORK).command for index in range(4)]
    assert made == [("a",), ("b",), ("c",), ("a",)]
