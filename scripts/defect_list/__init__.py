"""The seeded defects, a module for each area. Each module has a tuple ``DEFECTS``; all modules here are loaded."""

import pkgutil
from importlib import import_module

from seeded import Defect


def defects_below(folder: str) -> list[Defect]:
    """Return all defects of files in ``folder``, a path from the project's root."""
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return [defect for module in modules for defect in module.DEFECTS if defect.file.startswith(folder)]
