"""Builds the native core (``native/``) as ``lmerge._native`` if Rust is installed, and leaves it out otherwise.

Run by pip and setuptools. All other properties of the package are in pyproject.toml. lmerge runs on Python without the
native core, so a missing compiler or a failed build does not fail an installation. ``lmerge/_native_build.json`` holds
the result, and ``lmerge info`` shows it. With LMERGE_REQUIRE_NATIVE in the environment a failure is an error.
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
        """Build. After a failure continue as a package of pure Python, unless LMERGE_REQUIRE_NATIVE is set."""
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
            library.unlink(missing_ok=True)  # built from earlier sources
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
        """Tag the wheel py3-none-any, because it holds no machine code."""
        self.distribution.has_ext_modules = lambda: False
        self.get_finalized_command("bdist_wheel").root_is_pure = True


class StableAbiWheel(bdist_wheel):
    """Makes one wheel for all versions of CPython. setuptools-rust queries this command also when it makes no wheel.

    It is a command and not an option of ``setup``, because an editable installation creates the command again and loses
    the option.
    """

    def initialize_options(self) -> None:
        """Initialize as the base class does, with the stable ABI if the interpreter has one."""
        super().initialize_options()
        if sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
            self.py_limited_api = "cp310"


def in_one_line(problem: Exception) -> str:
    """Return the first line that states the problem: cargo's error if there is one."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("error")), lines[0] if lines else repr(problem))


def direct_dependencies(extension: RustExtension) -> dict[str, str]:
    """Return the direct dependencies of our crates, with the versions that were built: name -> version."""
    packages = extension.metadata(quiet=True)["packages"]
    named = {
        dependency["name"]
        for package in packages
        if package["source"] is None
        for dependency in package["dependencies"]
        if dependency["kind"] is None
    }
    found = {package["name"]: package["version"] for package in packages if package["source"] is not None}
    return {name: found[name] for name in sorted(named & found.keys())}


setup(
    rust_extensions=[
        RustExtension(
            "lmerge._native",
            path="native/python/Cargo.toml",
            cargo_manifest_args=["--locked"],
            rust_version=f">={RUST_MIN}",
            debug=False,
            quiet=True,
        )
    ],
    cmdclass={"build_rust": BuildNative, "bdist_wheel": StableAbiWheel},
)
