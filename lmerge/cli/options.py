"""Groups of options: each is defined once and added to the signatures of the commands that take it.

typer reads the options of a command from its signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

# name, type with its typer.Option, default
Option: TypeAlias = tuple[str, Any, Any]


def with_options(
    command: Callable[..., None], keyword: str, options: tuple[Option, ...], convert: Callable[[dict[str, Any]], Any]
) -> Callable[..., None]:
    """Return ``command`` with ``options`` added to its own.

    ``command`` must take the keyword argument ``keyword``. It gets what ``convert`` returns for the values of the
    added options, by name.
    """

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        values = {name: kwargs.pop(name) for name, _, _ in options}
        command(*args, **{keyword: convert(values)}, **kwargs)

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != keyword]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in options
    ]
    run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)} | {"return": None}
    return run
