"""``lmerge replay``: the format of docs/session-format.md, in real processes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lmerge.cli.replay import IncompatibleError, InconsistentError, SessionReplay
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.merge import Merge, Outcome

LMERGE = [sys.executable, "-m", "lmerge"]
TABLE_1 = [
    '{"op":"attach","input":"1","properties":["key"],"join_at":null,"role":"active"}',
    '{"op":"attach","input":"2","properties":["key"]}',
    '{"op":"insert","input":"2","payload":"A","vs":6,"ve":7}',
    '{"op":"insert","input":"2","payload":"B","vs":8,"ve":15}',
    '{"op":"insert","input":"1","payload":"B","vs":8,"ve":"inf"}',
    '{"op":"adjust","input":"2","payload":"A","vs":6,"vold":7,"ve":12}',
    '{"op":"insert","input":"1","payload":"A","vs":6,"ve":12}',
    '{"op":"adjust","input":"1","payload":"B","vs":8,"vold":"inf","ve":10}',
    '{"op":"adjust","input":"2","payload":"B","vs":8,"vold":15,"ve":10}',
    '{"op":"stable","input":"1","vc":11}',
    '{"op":"stable","input":"1","vc":"inf"}',
    '{"op":"stable","input":"2","vc":"inf"}',
]
OUTPUT_1 = [
    '{"op":"insert","payload":"A","vs":6,"ve":7}',
    '{"op":"insert","payload":"B","vs":8,"ve":15}',
    '{"op":"adjust","payload":"A","vs":6,"vold":7,"ve":12}',
    '{"op":"adjust","payload":"B","vs":8,"vold":15,"ve":10}',
    '{"op":"stable","vc":11}',
    '{"op":"stable","vc":"inf"}',
]


def replay(lines: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LMERGE, "replay", "-", *options], input="\n".join(lines), capture_output=True, text=True, check=False
    )


def test_example_1_of_the_paper_is_printed_exactly() -> None:
    result = replay(TABLE_1)
    assert result.stdout.splitlines() == OUTPUT_1
    assert (result.returncode, result.stderr) == (0, "")


def test_a_file_and_a_pipe_give_the_same_output(tmp_path: Path) -> None:
    lines = [
        *TABLE_1[:2],
        *(
            f'{{"op":"insert","input":"{at // 7 % 2 + 1}","payload":"p{at}","vs":{at},"ve":{at + 3}}}'
            for at in range(300)
        ),
        '{"op":"stable","input":"1","vc":200}',
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(lines) + "\n")
    from_file = subprocess.run([*LMERGE, "replay", str(path)], capture_output=True, text=True, check=True).stdout
    assert from_file == replay(lines).stdout
    assert len(from_file) > 5_000


def test_stats_are_one_json_object_on_standard_error() -> None:
    result = replay(TABLE_1, "--stats")
    stats = json.loads(result.stderr)
    assert stats["algorithm"] == "r3"
    assert "key" in stats["reason"]
    assert stats["in"] == {"inserts": 4, "adjusts": 3, "stables": 3}
    assert stats["out"] == {"inserts": 2, "adjusts": 2, "stables": 2}
    assert stats["stable_point"] == "inf"
    assert [(i["name"], i["inserts"], i["adjusts"]) for i in stats["inputs"]] == [("1", 2, 1), ("2", 2, 2)]


@pytest.mark.parametrize("options", [(), ("--algorithm", "r4"), ("--policy", "eager")])
def test_a_file_and_a_pipe_give_the_same_stats_also_where_an_input_breaks_its_promise(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    lines = [
        *TABLE_1[:5],
        '{"op":"stable","input":"2","vc":7}',
        '{"op":"insert","input":"2","payload":"late","vs":1,"ve":9}',
        *(f'{{"op":"insert","input":"2","payload":"refused","vs":{at},"ve":{at + 3}}}' for at in range(9, 12)),
        '{"op":"insert","input":"1","payload":"C","vs":9,"ve":10}',
        '{"op":"stable","input":"2","vc":8}',
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(lines) + "\n")
    from_file = subprocess.run(
        [*LMERGE, "replay", str(path), "--stats", *options], capture_output=True, text=True, check=True
    )
    from_pipe = replay(lines, "--stats", *options)
    assert (from_file.stdout, from_file.stderr) == (from_pipe.stdout, from_pipe.stderr)
    assert json.loads(from_file.stderr.splitlines()[-1])["refused"] == 4


def test_check_passes_on_consistent_inputs_and_fails_on_others() -> None:
    assert replay(TABLE_1, "--check").returncode == 0
    contradiction = [
        *TABLE_1[:2],
        '{"op":"insert","input":"1","payload":"A","vs":1,"ve":3}',
        '{"op":"stable","input":"1","vc":9}',
        '{"op":"insert","input":"2","payload":"A","vs":1,"ve":4}',
        '{"op":"stable","input":"2","vc":9}',
    ]
    result = replay(contradiction, "--check")
    assert result.returncode == 1
    assert "line 6: the inputs contradict each other" in result.stderr


def test_check_distinguishes_a_wrong_output_from_inputs_that_contradict_each_other() -> None:
    """B is contradicted and A is lost: because of A the output is wrong, whatever the inputs publish of B."""

    def lines(*of_a: str) -> list[str]:
        return [
            '{"op":"attach","input":"1","properties":["key"]}',
            '{"op":"attach","input":"2","properties":["key"]}',
            *of_a,
            *(
                line
                for name, ve in (("1", 3), ("2", 4))
                for line in (
                    f'{{"op":"insert","input":"{name}","payload":"B","vs":1,"ve":{ve}}}',
                    f'{{"op":"stable","input":"{name}","vc":9}}',
                )
            ),
        ]

    with pytest.raises(InconsistentError, match=r"\(B, Vs 1\): 1 that end at 4 or later by input '2', 0 by input '1'"):
        checked(lines())
    of_a = [f'{{"op":"insert","input":"{name}","payload":"A","vs":1,"ve":5}}' for name in "12"]
    with pytest.raises(InconsistentError):
        checked(lines(*of_a))
    with pytest.raises(IncompatibleError, match=r"C3: \(A, Vs 1\) is fully frozen with end 5 in an input"):
        checked(lines(*of_a), lost=b"A")


def checked(lines: list[str], lost: bytes = b"") -> None:
    """Replay with ``--check``, of an output in which the payload ``lost`` is not emitted."""

    class Losing(Merge):
        def apply(self, name: str, batch: AnyBatch, incarnation: int | None = None) -> Outcome:
            outcome = super().apply(name, batch, incarnation)
            kept = BatchBuilder()
            kept.rows = [row for row in outcome.batch.rows() if not lost or row[4] != lost]
            return outcome._replace(batch=kept.build())

    SessionReplay(Losing(), io.StringIO(), io.StringIO(), check=True).run(line.encode() for line in lines)


def test_check_does_not_hold_against_the_output_what_a_late_input_has_wrong_before_its_join_at() -> None:
    """What the late input has right, from its join_at on, is still demanded."""
    late = [
        '{"op":"attach","input":"early","properties":["key"]}',
        '{"op":"attach","input":"late","properties":["key"],"join_at":20}',
        '{"op":"insert","input":"early","payload":"A","vs":1,"ve":30}',
        '{"op":"stable","input":"early","vc":5}',
        '{"op":"insert","input":"late","payload":"A","vs":1,"ve":8}',
        '{"op":"stable","input":"late","vc":15}',
        '{"op":"adjust","input":"early","payload":"A","vs":1,"vold":30,"ve":9}',
        '{"op":"stable","input":"early","vc":12}',
    ]
    result = replay(late, "--check")
    assert (result.returncode, result.stderr) == (0, "")


ADMITTED_EARLY = [
    '{"op":"attach","input":"late","properties":["key"],"join_at":20}',
    '{"op":"admit","input":"late"}',
    '{"op":"attach","input":"lags","properties":["key"]}',
    '{"op":"insert","input":"lags","payload":"A","vs":1,"ve":50}',
    '{"op":"stable","input":"lags","vc":5}',
    '{"op":"stable","input":"late","vc":30}',
]


def test_an_admitted_input_counts_and_what_ends_before_its_join_at_is_not_held_against_the_output() -> None:
    result = replay(ADMITTED_EARLY, "--check")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-2:] == [
        '{"op":"adjust","payload":"A","vs":1,"vold":50,"ve":5}',
        '{"op":"stable","vc":30}',
    ]
    waits = replay([line for line in ADMITTED_EARLY if '"admit"' not in line], "--check")
    assert waits.stdout.splitlines()[-1] == '{"op":"stable","vc":5}'


def test_an_admit_of_an_input_that_has_ended_is_ignored_like_its_elements() -> None:
    lines = [ADMITTED_EARLY[0], '{"op":"insert","input":"late","payload":"A","vs":3,"ve":1}', ADMITTED_EARLY[1]]
    result = replay(lines, "--check")
    assert (result.returncode, result.stdout) == (0, "")
    assert json.loads(result.stderr)["op"] == "detached"


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
@pytest.mark.parametrize("policy", ["lazy", "eager", "final-only", "quorum:2", "leading-input-only", "lazy+lag:3"])
def test_every_policy_means_the_same_table(policy: str, algorithm: str) -> None:
    output = replay(TABLE_1, "--policy", policy, "--algorithm", algorithm, "--check")
    assert output.returncode == 0, output.stderr
    table = subprocess.run(
        [*LMERGE, "tdb", "-"], input=output.stdout, capture_output=True, text=True, check=True
    ).stdout
    assert table.splitlines() == ['{"payload":"A","vs":6,"ve":12}', '{"payload":"B","vs":8,"ve":10}']


def test_an_input_that_breaks_its_promise_ends_and_the_rest_goes_on() -> None:
    result = replay(
        [
            *TABLE_1[:2],
            '{"op":"insert","input":"1","payload":"A","vs":6,"ve":7}',
            '{"op":"adjust","input":"1","payload":"A","vs":6,"vold":9,"ve":12}',
            '{"op":"insert","input":"1","payload":"never","vs":6,"ve":7}',
            '{"op":"detach","input":"1"}',
            '{"op":"insert","input":"2","payload":"B","vs":8,"ve":9}',
            '{"op":"attach","input":"1","properties":["key"]}',
            '{"op":"insert","input":"1","payload":"again","vs":9,"ve":10}',
        ]
    )
    assert result.returncode == 0
    assert [json.loads(line)["payload"] for line in result.stdout.splitlines()] == ["A", "B", "again"]
    (line,) = result.stderr.splitlines()
    notice = json.loads(line)
    assert (notice["op"], notice["input"]) == ("detached", "1")
    assert "adjust(A, 6, 9, 12)" in notice["reason"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ('{"op":"insert","input":"1","payload":"A","vs":6}', 'needs "ve"'),
        ('{"op":"insert","input":"1","payload":"A","vs":6.5,"ve":7}', "whole number"),
        ('{"op":"insert","input":"1","payload":"A","vs":6,"ve":7,"x":1}', "unknown key"),
        ('{"op":"insert","payload":"A","vs":6,"ve":7}', 'needs "input"'),
        ('{"op":"insert","input":"absent","payload":"A","vs":6,"ve":7}', "'absent' was never attached"),
        ('{"op":"attach","input":"1"}', "incarnation 1 of it is attached"),
        ('{"op":"detach","input":"absent"}', "not attached"),
        ('{"op":"admit","input":"absent"}', "not attached"),
        ('{"op":"attach","input":"3","properties":["fast"]}', "unknown property 'fast'"),
        ('{"op":"attach","input":"3","role":"boss"}', '"role" must be'),
    ],
)
def test_a_malformed_line_is_named_and_what_came_before_it_stands(line: str, problem: str) -> None:
    result = replay([*TABLE_1[:4], line, *TABLE_1[4:]])
    assert result.returncode == 2
    assert result.stdout.splitlines() == OUTPUT_1[:2]
    assert result.stderr.startswith("lmerge: line 5: ")
    assert problem in result.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--policy", "loud"), "unknown policy 'loud'"),
        (("--closing", "never"), "unknown closing 'never'"),
        (("--algorithm", "r1", "--policy", "final-only"), "needs r3 or r4"),
        (("--algorithm", "r3", "--allow-downgrade"), "downgraded"),
    ],
)
def test_options_that_cannot_be_are_refused(options: tuple[str, ...], problem: str) -> None:
    result = replay(TABLE_1, *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert problem in result.stderr


def test_a_missing_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    result = subprocess.run([*LMERGE, "replay", str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1


def test_a_driving_program_reads_each_answer_before_it_writes_the_next_line() -> None:
    with subprocess.Popen(
        [*LMERGE, "replay", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = iter(OUTPUT_1)
        for line in TABLE_1[:4]:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            if "insert" in line:
                assert process.stdout.readline().rstrip() == next(answers)
        process.stdin.close()
        assert process.wait() == 0


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    rows = (f'{{"op":"insert","input":"1","payload":"{at}","vs":{at},"ve":{at + 1}}}\n' for at in range(20_000))
    path.write_text(TABLE_1[0] + "\n" + "".join(rows))
    with subprocess.Popen(
        [*LMERGE, "replay", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""


def test_memory_is_that_of_the_live_events_whatever_the_length(tmp_path: Path) -> None:
    """Peak memory of the process over 20,000 and over 120,000 lines with the same number of live events."""
    program = (
        "import resource, sys\n"
        "from lmerge.cli.replay import SessionReplay\n"
        "from lmerge.core.merge import Merge\n"
        "def lines(count):\n"
        '    yield b\'{"op":"attach","input":"a","properties":["key"]}\'\n'
        "    for at in range(count):\n"
        '        insert = b\'{"op":"insert","input":"a","payload":"%d","vs":%d,"ve":%d}\'\n'
        "        yield insert % (at, at, at + 50)\n"
        "        if at % 20 == 0:\n"
        '            yield b\'{"op":"stable","input":"a","vc":%d}\' % at\n'
        "class Nowhere:\n"
        "    write = flush = lambda *_: None\n"
        "for count in (20_000, 120_000):\n"
        "    SessionReplay(Merge(), Nowhere(), sys.stderr).run(lines(count))\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    short, long = (int(line) for line in printed.split())
    assert long - short < 2_000, "kilobytes"


def test_the_core_commands_do_not_load_grpc() -> None:
    program = "import sys, lmerge.cli.main, lmerge.cli.replay, lmerge.cli.tdb; print('grpc' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
