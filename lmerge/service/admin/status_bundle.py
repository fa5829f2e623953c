"""The files of the status page (``page/``): read once, compressed once, with an ETag of their content.

The bundle is made by hand: no build step, nothing from other hosts. It contains no data, so it is open to all; what it
shows comes from ``status_page`` through the guard. The headers forbid everything that the page does not use.
"""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

from aiohttp import web

#: The folder of the page on the HTTP port. Its files have their own names below it, ``index.html`` has none.
FOLDER: Final = "/status/"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Only files and data of this server. No script in the document, no text that becomes markup, no frame around the page.
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
#: The headers of every answer of the page, whether bundle or data.
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Asset(NamedTuple):
    """One file of the bundle."""

    body: bytes
    compressed: bytes
    content_type: str
    etag: str

    def answer(self, request: web.Request) -> web.Response:
        """Answer a request for it: compressed if that is accepted, nothing but the headers if it has not changed."""
        accepted = request.headers.get("Accept-Encoding", "")
        is_compressed = any(_is_gzip(one) for one in accepted.split(","))
        etag = f'"{self.etag}-gzip"' if is_compressed else f'"{self.etag}"'
        headers = {
            **HEADERS,
            "Content-Type": self.content_type,
            "Cache-Control": "no-cache",  # may be kept, and is compared by the ETag each time
            "ETag": etag,
            "Vary": "Accept-Encoding",
        }
        if etag in (one.strip().removeprefix("W/") for one in request.headers.get("If-None-Match", "").split(",")):
            return web.Response(status=304, headers=headers)
        if is_compressed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=self.compressed if is_compressed else self.body, headers=headers)


def read_bundle() -> dict[str, Asset]:
    """Return the files of the bundle, by their paths on the HTTP port."""
    found = {}
    for file in files("lmerge.service.admin").joinpath("page").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            etag = hashlib.sha256(body).hexdigest()[:32]
            path = FOLDER + ("" if file.name == "index.html" else file.name)
            found[path] = Asset(body, gzip.compress(body, 9, mtime=0), kind, etag)
    return found


def _is_gzip(accepted: str) -> bool:
    """Whether one entry of Accept-Encoding accepts gzip: not with ``q=0``."""
    coding, _, quality = accepted.replace(" ", "").lower().partition(";q=")
    return coding in ("gzip", "*") and (not quality or quality.strip("0.") != "")
