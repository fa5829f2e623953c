"""Puts Mermaid into the documentation site, so that its figures need no other server. A hook of MkDocs: see mkdocs.yml.

Material for MkDocs loads Mermaid from a public server unless the page has it already. Then a reader without that server
sees the source of a figure in place of the figure. The file is 3 MB, so it is not kept in the project: the first
``make docs`` fetches the package, checks its SHA-512, and keeps the file in ``build/``. Where npm cannot be reached,
the site is built without it, and a line on standard error reports that.
"""

from __future__ import annotations

import base64
import hashlib
import io
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any, Final

VERSION: Final = "11.9.0"
URL: Final = f"https://registry.npmjs.org/mermaid/-/mermaid-{VERSION}.tgz"
# As npm lists it.
SHA512: Final = "YdPXn9slEwO0omQfQIsW6vS84weVQftIyyTGAZCwM//MGhPzL1+l6vO6bkf0wnP4tHigH1alZ5Ooy3HXI2gOag=="
MEMBER: Final = "package/dist/mermaid.min.js"
PAGE: Final = "assets/mermaid.min.js"  # in the site; extra_javascript of mkdocs.yml names it
KEPT: Final = Path(__file__).resolve().parent.parent / "build" / f"mermaid-{VERSION}.min.js"
TIMEOUT_S: Final = 60.0


def on_files(files: Any, config: Any) -> Any:
    """Add Mermaid to the files of the site. Called by MkDocs."""
    from mkdocs.structure.files import File

    if not KEPT.is_file():
        try:
            with urllib.request.urlopen(URL, timeout=TIMEOUT_S) as answer:
                script = script_of(answer.read())
        except OSError as problem:  # URLError, or a time-out
            print(f"    without Mermaid: {URL} cannot be read ({problem}); figures load it online", file=sys.stderr)
            return files
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_bytes(script)
    files.append(File.generated(config, PAGE, content=KEPT.read_bytes()))
    return files


def script_of(package: bytes, sha512: str = SHA512) -> bytes:
    """Return Mermaid's script from its npm package. Raises ValueError if that has another SHA-512."""
    found = base64.b64encode(hashlib.sha512(package).digest()).decode()
    if found != sha512:
        raise ValueError(f"the package of Mermaid at {URL} has the SHA-512 {found}, not {sha512}")
    with tarfile.open(fileobj=io.BytesIO(package)) as members:
        member = members.extractfile(MEMBER)
        assert member is not None
        return member.read()
