"""Options that are defined once, in groups, and added to the commands that want them.

typer reads the options of a command from its signature, so a group is added to that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

# name, type with its typer.Option, default
Option: TypeAlias = tuple[str, Any, Any]


def with_options(
    command: Callable[..., None], keyword: str, options: tuple[Option, ...],
    understood: Callable[[dict[str, Any]], Any],
) -> Callable[..., None]:
    """``command`` with ``options`` added to its own; it must take ``keyword``: what was ``understood`` of them."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        said = {name: kwargs.pop(name) for name, _, _ in options}
        command(*args, **{keyword: understood(said)}, **kwargs)

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != keyword]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in options
    ]
    run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)} | {"return": None}
    return run
