"""The suite's figures are drawn from the environments."""

import pytest

from agentic_gym.families import FAMILIES
from plots import families, style


@pytest.fixture(autouse=True)
def few_rollouts(monkeypatch):
    monkeypatch.setattr(families, "ROLLOUTS", 64)
    monkeypatch.setattr(families, "LINES", 4)
    families.rollouts.cache_clear()
    yield
    families.rollouts.cache_clear()


def test_every_family_has_a_panel_and_a_line():
    assert set(families.WORKLOADS) == set(FAMILIES)
    figure = families.draw_families()
    assert {axis.get_title(loc="left").strip() for axis in figure.axes} == set(FAMILIES)
    left, right = families.draw_mismatch().axes
    assert {label.get_text() for label in left.get_yticklabels()} == set(FAMILIES)
    assert left.get_ylim() == right.get_ylim()


def test_captions_count_what_is_drawn():
    course, sides = (" ".join(text.split()) for text in (families.describe_families(), families.describe_mismatch()))
    assert "4 test rollouts each" in course and "Of 64 rollouts each" in course
    assert "Returns and turns of 64 test rollouts" in sides and "1.0 turns in Reason" in sides


def test_equal_data_give_equal_files(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "FIGURES", tmp_path)
    files = [[path.read_bytes() for path in style.save(families.draw_mismatch(), "mismatch")] for _ in range(2)]
    assert files[0] == files[1]


def test_messages_are_shortened_where_there_is_no_room():
    assert families.shorten(["one", "two"], 20) == "one  two"
    assert families.shorten(["one", "two", "three"], 12) == "one  two ..."
    assert families.shorten(["one", "two", "three"], 15) == "one  two  three"
