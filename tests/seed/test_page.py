"""docs/seeds.md and the tests of the rows name the same rows, and its keys exist."""

import re
from pathlib import Path

from bareagent.config import SEED_PROFILE, Compaction

FOLDER = Path(__file__).parent
PAGE = (FOLDER.parents[1] / "docs" / "seeds.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| \d", line)
]


def rows_with_tests() -> set[int]:
    sources = (path.read_text(encoding="utf-8") for path in FOLDER.glob("test_*_rows.py"))
    names = re.findall(r"def test_row_(\w+)\(", "\n".join(sources))
    found: set[int] = set()
    for name in names:
        numbers = re.match(r"(\d\d)(?:_(to|and)_(\d\d))?", name)
        assert numbers, name
        first, last = int(numbers[1]), int(numbers[3] or numbers[1])
        found |= set(range(first, last + 1)) if numbers[2] == "to" else {first, last}
        found |= {int(number) for number in re.findall(r"_row_(\d\d)", name)}
    return found


def test_every_row_is_on_the_page_and_has_a_test() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 69))
    assert set(range(1, 69)) - rows_with_tests() == set()


def test_a_row_that_differs_says_why_and_names_its_key() -> None:
    for number, _, where, why, key in ROWS:
        assert where in {"both", "seed", "default", "option"}, number
        if where in {"seed", "option"}:
            assert why, number
            assert key, number


def test_keys_on_the_page_exist() -> None:
    known = set(Compaction.__struct_fields__)
    for row in ROWS:
        for key in re.findall(r"`(\w+) = ", row[4]):
            assert key in known, row[0]
    assert set(SEED_PROFILE["compaction"]) <= known
