"""``make dist``: builds what is shipped, installs each into an empty place, and tries it there.

    python scripts/dist.py [--parts NAME,NAME...] [--output DIR] [--require] [--twice]

| part  | what                                            | needs               |
|-------|-------------------------------------------------|---------------------|
| sdist | the source                                      |                     |
| wheel | with the native core, for every CPython >= 3.10 | cargo               |
| pure  | the wheel without it                            |                     |
| sbom  | what an installation consists of (CycloneDX)    | the wheel           |
| image | the container image                             | a Docker engine     |
| chart | the Helm chart                                  | helm                |

A part that cannot be built here is reported with the reason. With --require, and in CI, that is a failure.

Everything is built from a copy of the files that git tracks. Times in it are SOURCE_DATE_EPOCH, by default that of the
commit. With --twice, sdist, wheels and chart are built a second time in another folder, and must be the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SMOKE: Final = ROOT / "scripts/smoke.py"
IMAGE: Final = "lmerge:dist"
MB: Final = 1_000_000


class Failed(Exception):
    """A part could not be built, or does not work. The message has the output of the command."""


class NotHere(Exception):
    """A part cannot be built on this machine. The message has the reason."""


@dataclass
class Place:
    """Where things are built. ``output``: the folder of what is shipped. ``work``: a temporary one.

    ``epoch_s``: the time of everything in it, in seconds since 1970. ``is_twice``: build twice and compare.
    """

    output: Path
    work: Path
    epoch_s: int
    is_twice: bool = False

    def made(self, make: Callable[[Place], Path]) -> Path:
        """Make a file in the output folder. Raises Failed if a second one, made elsewhere, is not the same bytes."""
        file = make(self)
        if self.is_twice:
            work = self.work / "second time"
            second = make(replace(self, work=work, output=work / f"output-{file.name}"))
            if second.read_bytes() != file.read_bytes():
                raise Failed(f"two builds of {file.name} differ")
        return file

    def source(self) -> Path:
        """Return a folder with a copy of the files that git tracks, all of one time."""
        source = self.work / "source"
        if not source.exists():
            source.mkdir(parents=True)
            files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
            pack = ["tar", "-c", f"--mtime=@{self.epoch_s}", "--null", "-T", "-"]
            packed = subprocess.run(pack, cwd=ROOT, input=files, capture_output=True, check=True)
            subprocess.run(["tar", "-x", "-C", str(source)], input=packed.stdout, check=True)
        return source

    def python_with(self, package: Path) -> Path:
        """Install ``package`` into an environment of its own. Return its interpreter."""
        folder = self.work / f"installed-{package.name}"
        venv.create(folder, with_pip=True)
        python = folder / "bin/python"
        run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(package)], self.work)
        return python

    def try_installed(self, package: Path, engine: str) -> str:
        """Install ``package`` and run the smoke test in an empty folder. Return what it found."""
        empty = self.work / f"empty-{package.name}"
        empty.mkdir()
        return engine_of(run([str(self.python_with(package)), str(SMOKE), "--engine", engine], empty))


def sdist(place: Place) -> str:
    built = place.made(lambda place: repacked(build(place, "--sdist", "*.tar.gz"), place.epoch_s))
    return (
        f"{size(built)}; built from it: {place.try_installed(built, 'native' if shutil.which('cargo') else 'python')}"
    )


def wheel(place: Place) -> str:
    if shutil.which("cargo") is None:
        raise NotHere("no cargo on the PATH")
    built = place.made(lambda place: build(place, "--wheel", "*abi3*.whl", {"LMERGE_REQUIRE_NATIVE": "1"}))
    return f"{size(built)}; {place.try_installed(built, 'native')}"


def pure(place: Place) -> str:
    tools = place.work / "tools"  # a PATH without cargo
    tools.mkdir()
    built = place.made(lambda place: build(place, "--wheel", "*none-any.whl", {"PATH": str(tools)}))
    return f"{size(built)}; {place.try_installed(built, 'python')}"


def sbom(place: Place) -> str:
    wheels = sorted(place.output.glob("*.whl"))
    if not wheels:
        raise NotHere("it describes a wheel, and none was built")
    native = [found for found in wheels if "abi3" in found.name]
    written = place.output / "lmerge.cdx.json"
    python = place.work / f"installed-{(native or wheels)[0].name}/bin/python"
    without = [] if native else ["--without-crates"]
    run([sys.executable, "scripts/sbom.py", str(python), str(written), *without], ROOT)
    components = json.loads(written.read_text())["components"]
    if not any(component["name"] == "grpcio" for component in components):
        raise Failed(f"{written} does not list grpcio")
    return f"{size(written)}; {len(components)} components"


def image(place: Place) -> str:
    if shutil.which("docker") is None or silent(["docker", "info"]):
        raise NotHere("no Docker engine answers")
    network = os.environ.get("LMERGE_BUILD_NETWORK", "default")
    run(["docker", "build", "--quiet", "--network", network, "--tag", IMAGE, "."], ROOT)
    container = ["docker", "run", "--rm", "--interactive", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
    user = run([*container, "--entrypoint", "id", IMAGE, "-u"], ROOT).strip()
    if user == "0":
        raise Failed("the image runs as root")
    found = run([*container, "--entrypoint", "python", IMAGE, "-", "--engine", "native"], ROOT, SMOKE.read_text())
    saved = place.output / "lmerge-image.tar.gz"
    with saved.open("wb") as file:
        archive = subprocess.Popen(["docker", "save", IMAGE], stdout=subprocess.PIPE)
        packed = subprocess.run(["gzip", "-n"], stdin=archive.stdout, stdout=file, check=False).returncode
    if archive.wait() or packed:
        raise Failed("docker save failed")
    return f"{size(saved)} compressed; user {user}; {engine_of(found)}"


def chart(place: Place) -> str:
    helm = os.environ.get("LMERGE_HELM") or shutil.which("helm")
    if helm is None:
        raise NotHere("no helm on the PATH")

    def pack(place: Place) -> Path:
        run([helm, "package", "charts/lmerge", "--destination", str(place.output)], place.source())
        (package,) = place.output.glob("lmerge-*.tgz")
        return package

    package = place.made(pack)
    run([helm, "lint", "--strict", str(package)], place.work)
    documents = run([helm, "template", "release", str(package), "--namespace", "elsewhere"], place.work)
    if "kind: StatefulSet" not in documents:
        raise Failed("the packaged chart renders no StatefulSet")
    return f"{size(package)}; {documents.count('kind: ')} objects"


PARTS: Final[dict[str, Callable[[Place], str]]] = {
    part.__name__: part for part in (sdist, wheel, pure, sbom, image, chart)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--require", action="store_true", default=bool(os.environ.get("CI")))
    parser.add_argument("--twice", action="store_true", help="build again, and compare the bytes")
    options = parser.parse_args()
    names = options.parts.split(",")
    if unknown := sorted({*names} - PARTS.keys()):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    shutil.rmtree(options.output, ignore_errors=True)
    options.output.mkdir(parents=True)
    failed = False
    with tempfile.TemporaryDirectory(prefix="lmerge-dist-") as work:
        for name in names:
            print(f"{name:<6} ", end="", flush=True)
            try:
                print(PARTS[name](Place(options.output.resolve(), Path(work), epoch_s(), options.twice)))
            except NotHere as reason:
                failed |= options.require
                print(f"not built here: {reason}")
            except Failed as problem:
                failed = True
                print(f"FAILED: {problem}")
    return 1 if failed else 0


def build(place: Place, kind: str, pattern: str, environment: dict[str, str] | None = None) -> Path:
    """Build a distribution. Return its path in the output folder."""
    source = place.source()
    paths = {source: ".", os.environ.get("CARGO_HOME", Path.home() / ".cargo"): "cargo"}  # not into machine code
    fixed = {
        "SOURCE_DATE_EPOCH": str(place.epoch_s),
        # Like RUSTFLAGS, for paths with spaces.
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(f"--remap-path-prefix={path}={name}" for path, name in paths.items()),
    }
    command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(place.output), str(source)]
    run(command, ROOT, environment=fixed | (environment or {}))
    (built,) = place.output.glob(pattern)
    return built


def repacked(sdist: Path, epoch_s: int) -> Path:
    """Pack a source distribution again, in order of name, with one time and no owner. Return its path.

    setuptools packs generated files with the time of the build, and all with the name of the user.
    """
    with tarfile.open(sdist) as archive:
        members = [(member, archive.extractfile(member)) for member in archive.getmembers()]
        contents = {member.name: file.read() if file else b"" for member, file in members}
    with (
        sdist.open("wb") as out,
        gzip.GzipFile("", "wb", fileobj=out, mtime=epoch_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for old, _ in sorted(members, key=lambda found: found[0].name):
            new = tarfile.TarInfo(old.name)
            new.type, new.size, new.mtime = old.type, len(contents[old.name]), epoch_s
            new.mode = 0o755 if old.isdir() or old.mode & 0o100 else 0o644
            archive.addfile(new, io.BytesIO(contents[old.name]))
    return sdist


def epoch_s() -> int:
    """Return the time of what is built, in seconds since 1970."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or run(["git", "log", "-1", "--format=%ct"], ROOT))


def run(command: list[str], folder: Path, text: str = "", environment: dict[str, str] | None = None) -> str:
    """Run a command. Return what it printed; raise Failed with all of its output if it failed."""
    hidden = ("PYTHONPATH", "LMERGE_REQUIRE_NATIVE")
    variables = {name: value for name, value in os.environ.items() if name not in hidden} | (environment or {})
    done = subprocess.run(command, cwd=folder, env=variables, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def silent(command: list[str]) -> int:
    """Run a command without its output. Return its exit code."""
    return subprocess.run(command, capture_output=True, check=False).returncode


def engine_of(found: str) -> str:
    return f"tried on the {json.loads(found)['engine']} engine"


def size(path: Path) -> str:
    size_mb = path.stat().st_size / MB
    return f"{path.name}, {size_mb:.1f} MB" if size_mb >= 1 else f"{path.name}, {size_mb * 1000:.0f} kB"


if __name__ == "__main__":
    sys.exit(main())
