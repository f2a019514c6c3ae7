"""Tests of the JVM options for Spark tests: the user's come first, and an unusable class archive prints no warning."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from petastore.spark.java import ensure_java
from tests.java_options import tell_java


def test_java_options_of_the_user_are_kept() -> None:
    environment = {"JDK_JAVA_OPTIONS": "-Xmx1g"}
    tell_java(environment)
    assert environment == {"JDK_JAVA_OPTIONS": "-Xmx1g"}


def test_java_without_a_class_archive_gets_no_archive_option(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    tell_java(environment, tmp_path / "classes.jsa")
    assert "SharedArchiveFile" not in environment["JDK_JAVA_OPTIONS"]


def test_java_with_an_unusable_class_archive_starts_silently(tmp_path: Path) -> None:
    classes = tmp_path / "two words" / "classes.jsa"
    classes.parent.mkdir()
    classes.write_bytes(bytes(5000))
    environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    tell_java(environment, classes)
    ran = subprocess.run(
        [Path(ensure_java().path, "bin", "java"), "-version"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    said = ran.stderr.splitlines()
    assert str(classes) in said[0]
    assert not [line for line in said[1:] if "archive" in line or "warning" in line]
