from __future__ import annotations

from murho.model.checkpoint.object_store import highest_number, references_of, stored_versions
from murho.model.checkpoint.objects import StoredObject

OBJECTS = {
    path: StoredObject(1, ())
    for path in (
        "README.md",
        "cars/notes.txt",
        "cars/10/manifest.json",
        "cars/10/report/facts.json",
        "cars/9/manifest.json",
        "cars/11/model.json",
        "cars/12/.claim",
        "cars/latest/manifest.json",
        "b@d/1/manifest.json",
        ".trash/cars/1/manifest.json",
    )
}


def test_versions_are_listed_by_rising_number_and_a_manifest_makes_them_complete() -> None:
    versions = stored_versions(OBJECTS)
    assert [(each.name, each.version, each.complete) for each in versions.values()] == [
        ("b@d", "1", True),
        ("cars", "9", True),
        ("cars", "10", True),
        ("cars", "11", False),
        ("cars", "latest", True),
    ]
    assert set(versions["cars", "10"].files) == {"manifest.json", "report/facts.json"}


def test_what_can_be_no_version_has_a_problem() -> None:
    problems = {(each.name, each.version): each.problem for each in references_of(stored_versions(OBJECTS))}
    assert "breaks the rule" in str(problems["b@d", "1"])
    assert problems["cars", "latest"] == "a version is a whole number from 1"
    assert problems["cars", "10"] is None


def test_a_claim_takes_a_number() -> None:
    assert highest_number(OBJECTS, "cars") == 12
    assert highest_number(OBJECTS, "boats") == 0
