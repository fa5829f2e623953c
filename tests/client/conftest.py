"""Makes ``client_world`` importable, and ``secure_world`` of the service's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "service"))
