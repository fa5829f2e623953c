"""All dashboards, in the order of the documentation."""

from typing import Final

from monitoring.boards.drills import DRILLS
from monitoring.boards.merge import MERGE
from monitoring.boards.overview import OVERVIEW
from monitoring.boards.panel import Board
from monitoring.boards.replica import REPLICA
from monitoring.boards.servers import SERVERS
from monitoring.boards.spark import SPARK

BOARDS: Final[tuple[Board, ...]] = (OVERVIEW, MERGE, REPLICA, SERVERS, SPARK, DRILLS)
