"""The order of steps: first come first served, as chosen, or as drawn; the same again from what was written down."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit_members import Echo, Index, Reader, Writer

from broker.errors import UsageError
from broker.testing import Interleaving, MemoryHost, SeededSchedule
from broker.testing.schedule import Schedule, StepQueue


def taken(schedule: Schedule, *moments: Sequence[str]) -> list[str | None]:
    queue = StepQueue(schedule)
    return [queue.take(moment) for moment in moments]


def everything(host: MemoryHost) -> list[str]:
    """What happens when three extensions are started together and one of them is told to write."""
    with host, host.open_session() as session:
        for member in (Writer, Index, Reader):
            session.add(member)
        session.start()
        session.call("writer", "write", {"n": 1})
    return [f"{one.source} {one.target} {one.what}" for one in session.recorder.entries]


def test_who_waited_longest_goes_first() -> None:
    assert taken(Interleaving(), ["a", "b"], ["c", "b"], ["a", "c"], ["a"], []) == ["a", "b", "c", "a", None]


def test_who_went_waits_behind_all_others() -> None:
    assert taken(Interleaving(), ["a", "b"], ["a", "b"], ["a", "b"]) == ["a", "b", "a"]


def test_a_choice_overtakes() -> None:
    assert taken(Interleaving([1]), ["a", "b"], ["a", "b"]) == ["b", "a"]
    assert taken(Interleaving([5]), ["a", "b"]) == ["b"]  # modulo


def test_where_there_is_no_choice_none_is_used_up() -> None:
    assert taken(Interleaving([1]), ["a"], ["a", "b"]) == ["a", "b"]


def test_choices_are_written_down_and_say_what_was_overtaken() -> None:
    queue = StepQueue(Interleaving([0, 2]))
    for moment in (["a", "b"], ["b", "c", "d"]):
        queue.take(moment)
    assert [str(choice) for choice in queue.choices] == ["a", "d, before b, c"]
    assert repr(queue.interleaving) == "Interleaving([0, 2])"


def test_trailing_zeros_say_nothing() -> None:
    assert Interleaving([1, 0, 0]).choices == (1,)
    for wrong in ([-1], [True], ["a"]):
        with pytest.raises(UsageError, match="choices: expected whole numbers from 0, got"):
            Interleaving(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_a_seeded_run_is_the_same_again_from_its_seed_and_from_its_choices(seed: int) -> None:
    host = MemoryHost(seed=seed)
    first = everything(host)
    assert everything(MemoryHost(seed=seed)) == first
    assert everything(MemoryHost(schedule=host.interleaving.choices)) == first
    assert host.replay == f"MemoryHost(seed={seed})"
    again = MemoryHost(schedule=host.interleaving)
    assert everything(again) == first
    assert again.replay == f"MemoryHost(schedule={list(host.interleaving.choices)})"


def test_seeds_differ_and_none_is_the_fixed_order() -> None:
    fixed = everything(MemoryHost())
    assert everything(MemoryHost()) == fixed
    assert len({tuple(everything(MemoryHost(schedule=SeededSchedule(seed)))) for seed in range(6)}) == 6


@given(st.lists(st.integers(0, 5), max_size=40))
@settings(max_examples=30)
def test_every_order_keeps_what_each_process_says_and_hears_in_its_order(choices: list[int]) -> None:
    fixed = MemoryHost().open_session()
    chosen = MemoryHost(schedule=choices).open_session()
    for session in (fixed, chosen):
        session.add(Echo)
        session.add(Writer)
        session.start()
        calls = [session.begin("echo", "echo", {"text": str(number)}) for number in range(3)]
        session.call("writer", "write", {"n": 1})
        assert [call.result().content[0].text for call in calls] == ["0", "1", "2"]
    for name in ("echo", "writer"):
        said, also = (
            [one.what for one in session.recorder.entries if one.kind == "frame" and one.source == name]
            for session in (fixed, chosen)
        )
        assert said == also


def test_extensions_that_never_rest_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.testing.memory.MAX_MEMORY_MOVES", 500)

    class Chatty(Echo):
        def tick(self, now_ms: int) -> None:
            self.send_stderr(b"and on\n")

    for seed in (None, 1):
        session = MemoryHost(seed=seed).open_session()
        session.add(Chatty)
        with pytest.raises(AssertionError, match="the extensions never come to rest"):
            session.start()
