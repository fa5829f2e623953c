"""Builds the native core (``native/``) as ``lmerge._native`` where Rust is there, and leaves it out where it is not.

Run by pip and setuptools; everything else about the package stands in pyproject.toml. lmerge works without the native
core, on Python, so a missing compiler or a failed build ends no installation. ``lmerge/_native_build.json`` keeps what
happened, and ``lmerge info`` tells it. With LMERGE_REQUIRE_NATIVE in the environment a failure is an error.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.errors import BaseError, CCompilerError, PlatformError
from setuptools_rust import RustExtension, build_rust
from setuptools_rust.rustc_info import get_rust_version

RUST_MIN = "1.88"  # rust-version of native/Cargo.toml
RECORD = "_native_build.json"


class BuildNative(build_rust):
    """``build_rust`` for an extension that may be missing, with a record of what was built or why not."""

    def run(self) -> None:
        """Build; on failure, unless that is forbidden, go on as a package of pure Python."""
        (extension,) = self.extensions
        build_ext = self.get_finalized_command("build_ext")
        build_ext.inplace = self.inplace
        library = Path(self.get_dylib_ext_path(extension, extension.name))
        try:
            self._require_rust()
            super().run()
        except (BaseError, CCompilerError, subprocess.CalledProcessError, OSError) as problem:
            if os.environ.get("LMERGE_REQUIRE_NATIVE"):
                raise
            print(f"{problem}\nlmerge: the native core was not built; lmerge will run on Python", file=sys.stderr)
            library.unlink(missing_ok=True)  # of earlier sources
            self._become_pure()
            record: dict[str, Any] = {"problem": in_one_line(problem)}
        else:
            record = {"rust": str(get_rust_version(extension.env)), "crates": direct_dependencies(extension)}
        library.parent.mkdir(parents=True, exist_ok=True)
        library.with_name(RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")

    def _require_rust(self) -> None:
        for program in (self.cargo, "rustc"):
            if shutil.which(program) is None:
                raise PlatformError(f"no {program} on the PATH: the native core needs Rust {RUST_MIN} or newer")

    def _become_pure(self) -> None:
        """The wheel holds no machine code, so its tag says py3-none-any."""
        self.distribution.has_ext_modules = lambda: False
        self.get_finalized_command("bdist_wheel").root_is_pure = True


class StableAbiWheel(bdist_wheel):
    """One wheel for all versions of CPython; setuptools-rust asks this command, also when nothing becomes a wheel.

    Not an option given to ``setup``: an editable installation starts the command anew and forgets it.
    """

    def initialize_options(self) -> None:
        """As the base class, but for the stable ABI where the interpreter has one."""
        super().initialize_options()
        if sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
            self.py_limited_api = "cp310"


def in_one_line(problem: Exception) -> str:
    """The first line that says what is wrong: cargo's own error where there is one."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("error")), lines[0] if lines else repr(problem))


def direct_dependencies(extension: RustExtension) -> dict[str, str]:
    """The crates that ours name, with the versions that were built: name -> version."""
    packages = extension.metadata(quiet=True)["packages"]
    named = {
        dependency["name"]
        for package in packages if package["source"] is None
        for dependency in package["dependencies"] if dependency["kind"] is None
    }
    found = {package["name"]: package["version"] for package in packages if package["source"] is not None}
    return {name: found[name] for name in sorted(named & found.keys())}


setup(
    rust_extensions=[
        RustExtension(
            "lmerge._native", path="native/python/Cargo.toml", cargo_manifest_args=["--locked"],
            rust_version=f">={RUST_MIN}", debug=False, quiet=True,
        )
    ],
    cmdclass={"build_rust": BuildNative, "bdist_wheel": StableAbiWheel},
)
