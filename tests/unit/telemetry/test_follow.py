"""Files that grow, are rotated, truncated and deleted, while they are read."""

import os
from pathlib import Path

import pytest

from holdfast import InvalidValue
from holdfast.telemetry import follow
from holdfast.telemetry.follow import FileFollower, LineSplitter


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "emf.log"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def texts(follower: FileFollower) -> list[str]:
    return [line.decode() for line in follower.read()]


def wait_until_rotated_files_are_closed(follower: FileFollower) -> list[str]:
    return [line for _ in range(follow._IDLE_READS + 1) for line in texts(follower)]


def test_lines_are_returned_once_and_only_when_they_are_complete(log: Path) -> None:
    append(log, "old\nhalf")
    with FileFollower([str(log)]) as follower:
        assert texts(follower) == []
        append(log, " a line\r\nnext\nun")
        assert texts(follower) == ["half a line\r", "next"]
        assert texts(follower) == []
        append(log, "finished\n\n")
        assert texts(follower) == ["unfinished", ""]
    follower.close()


def test_a_file_that_appears_later_is_read_from_its_start(log: Path) -> None:
    with FileFollower([str(log)]) as follower:
        assert texts(follower) == []
        assert follower.problems == {str(log): "No such file or directory"}
        append(log, "one\n")
        assert texts(follower) == ["one"]
        assert follower.problems == {}


def test_from_the_start_if_asked(log: Path) -> None:
    append(log, "one\ntwo\n")
    with FileFollower([str(log)], from_start=True) as follower:
        assert texts(follower) == ["one", "two"]


def test_a_renamed_file_is_read_to_its_end_and_then_the_new_one(log: Path) -> None:
    append(log, "one\n")
    with FileFollower([str(log)]) as follower:
        texts(follower)
        append(log, "two\n")
        rotated = log.rename(log.with_suffix(".1"))
        append(rotated, "three\n")
        append(log, "four\n")
        assert texts(follower) == ["two", "three", "four"]
        append(rotated, "five\nsix without an end")
        append(log, "seven\n")
        assert texts(follower) == ["five", "seven"]
        assert wait_until_rotated_files_are_closed(follower) == ["six without an end"]
        append(rotated, "too late\n")
        append(log, "eight\n")
        assert texts(follower) == ["eight"]


def test_a_truncated_file_is_read_from_its_start(log: Path) -> None:
    append(log, "one\ntwo\n")
    with FileFollower([str(log)]) as follower:
        texts(follower)
        append(log, "three\nfour")
        assert texts(follower) == ["three"]
        os.truncate(log, 0)
        append(log, "five\n")
        assert texts(follower) == ["five"]


def test_a_file_replaced_by_a_smaller_one_is_read_from_its_start(log: Path) -> None:
    append(log, "one\ntwo\nthree\n")
    with FileFollower([str(log)]) as follower:
        texts(follower)
        other = log.with_suffix(".new")
        append(other, "x\n")
        other.replace(log)
        assert texts(follower) == ["x"]


def test_a_deleted_file_is_read_to_its_end_and_again_when_it_is_back(log: Path) -> None:
    append(log, "one\n")
    with FileFollower([str(log)]) as follower:
        texts(follower)
        append(log, "two\n")
        log.unlink()
        assert texts(follower) == ["two"]
        assert wait_until_rotated_files_are_closed(follower) == []
        append(log, "three\n")
        assert texts(follower) == ["three"]


def test_a_pattern_matches_files_that_appear_later_and_reads_a_renamed_file_once(tmp_path: Path) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    append(first, "old\n")
    with FileFollower([f"{tmp_path}/*.log*"]) as follower:
        assert texts(follower) == []
        append(first, "a1\n")
        append(second, "b1\n")
        assert texts(follower) == ["a1", "b1"]
        renamed = first.rename(tmp_path / "a.log.1")
        append(renamed, "a2\n")
        append(first, "a3\n")
        assert sorted(texts(follower)) == ["a2", "a3"]
        append(renamed, "a4\n")
        assert wait_until_rotated_files_are_closed(follower) == ["a4"]
        earlier = second.rename(tmp_path / "0.log")  # a name that sorts before the old one
        append(earlier, "b2\n")
        assert texts(follower) == ["b2"]
        renamed.unlink()
        assert wait_until_rotated_files_are_closed(follower) == []


def test_two_names_of_a_file_are_read_once(tmp_path: Path, log: Path) -> None:
    log.touch()
    os.link(log, tmp_path / "other.log")
    with FileFollower([str(log), str(tmp_path / "other.log"), str(log)]) as follower:
        texts(follower)
        append(log, "one\n")
        assert texts(follower) == ["one"]


def test_of_a_line_that_is_too_long_nothing_is_returned(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_LINE_BYTES", 10)
    monkeypatch.setattr(follow, "MAX_READ_BYTES", 8)
    log.touch()
    with FileFollower([str(log)]) as follower:
        texts(follower)
        append(log, "a" * 50 + "\nshort\n" + "b" * 11 + "\nlast\n")
        found = [line for _ in range(12) for line in texts(follower)]
        assert (found, follower.overlong_lines) == (["short", "last"], 2)


def test_a_splitter_skips_long_lines_wherever_the_data_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_LINE_BYTES", 4)
    data = b"ab\nabcde\nabcdefghijkl\nabcd\n\nxyz"
    for size in range(1, len(data) + 1):
        splitter = LineSplitter()
        parts = [data[start : start + size] for start in range(0, len(data), size)]
        found = [line for part in parts for line in splitter.split(part)] + splitter.finish()
        assert (found, splitter.overlong_lines) == ([b"ab", b"abcd", b"", b"xyz"], 2), size
        assert splitter.finish() == []


def test_a_file_that_cannot_be_read_keeps_no_other_from_being_read(tmp_path: Path, log: Path) -> None:
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    locked = folder / "locked"
    log.touch()
    with FileFollower([str(folder), str(pipe), f"{log}/below", str(log), str(locked)]) as follower:
        texts(follower)
        append(log, "one\n")
        assert texts(follower) == ["one"]
        assert follower.problems == {
            str(folder): "not a regular file",
            str(pipe): "not a regular file",
            f"{log}/below": "Not a directory",
            str(locked): "No such file or directory",
        }


def test_a_file_that_its_user_may_not_read_is_tried_again(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, "one\n")
    real, allowed = os.open, False

    def guarded(path: str, flags: int) -> int:  # root may read everything, so the permission is simulated
        if not allowed:
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags)

    monkeypatch.setattr(os, "open", guarded)
    with FileFollower([str(log)]) as follower:
        assert texts(follower) == []
        assert follower.problems == {str(log): "Permission denied"}
        allowed = True
        assert texts(follower) == ["one"]


def test_only_so_many_files_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}.log").touch()
    with FileFollower([f"{tmp_path}/*.log"]) as follower:
        texts(follower)
        assert [Path(path).name for path in follower.problems] == ["3.log", "4.log"]
        assert "more than 3 files" in follower.problems[str(tmp_path / "3.log")]
        for number in range(5):
            append(tmp_path / f"{number}.log", f"{number}\n")
        assert texts(follower) == ["0", "1", "2"]


def test_files_with_much_to_read_are_read_in_several_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_TOTAL_BYTES", 5)
    for number in range(3):
        append(tmp_path / f"{number}.log", f"{number}\nlong\n")
    with FileFollower([f"{tmp_path}/*.log"], from_start=True) as follower:
        assert [texts(follower) for _ in range(4)] == [["0", "long"], ["1", "long"], ["2", "long"], []]


def test_hundreds_of_files_are_followed(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number:03}.log" for number in range(300)]
    with FileFollower([f"{tmp_path}/*.log"]) as follower:
        texts(follower)
        for path in paths:
            append(path, f"{path.name}\n")
        assert texts(follower) == [path.name for path in paths]


class TestState:
    def test_a_follower_continues_where_the_last_one_ended(self, log: Path) -> None:
        append(log, "one\n")
        with FileFollower([str(log)]) as first:
            texts(first)
            append(log, "two\nthr")
            assert texts(first) == ["two"]
            state = first.state
        append(log, "ee\nfour\n")
        with FileFollower([str(log)], state=state) as second:
            assert texts(second) == ["three", "four"]

    def test_a_file_that_was_rotated_meanwhile_is_read_from_its_start(self, log: Path) -> None:
        append(log, "one\n")
        with FileFollower([f"{log}*"]) as first:
            texts(first)
            state = first.state
        append(log, "two\n")
        log.rename(f"{log}.1")
        append(log, "three\n")
        with FileFollower([f"{log}*"], state=state) as second:
            assert texts(second) == ["three", "two"]

    def test_a_file_that_was_written_anew_meanwhile_is_read_from_its_start(self, log: Path) -> None:
        append(log, "one\n")
        with FileFollower([str(log)]) as first:
            texts(first)
            state = first.state
        log.write_text("another\n")  # the same number, but no line ends at the position
        with FileFollower([str(log)], state=state) as second:
            assert texts(second) == ["another"]
        log.write_text("x\n")
        with FileFollower([str(log)], state=state) as third:
            assert texts(third) == ["x"]

    @pytest.mark.parametrize("state", ["x", '{"a": 1}', "[1]"])
    def test_a_damaged_state_is_refused(self, state: str) -> None:
        with pytest.raises(InvalidValue, match="position"):
            FileFollower([], state=state)


def test_a_file_without_a_line_end_in_its_last_mebibyte_is_followed_from_there(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MAX_LINE_BYTES", 10)
    append(log, "one\n" + "x" * 50)
    with FileFollower([str(log)]) as follower:
        texts(follower)
        append(log, "\ntwo\n")
        assert texts(follower) == ["two"]
