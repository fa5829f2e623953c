"""All alerts, in the order of their files and of the documentation."""

from typing import Final

from monitoring.alerting.alert import Alert
from monitoring.alerting.operations import OPERATION_ALERTS
from monitoring.alerting.replicas import REPLICA_ALERTS
from monitoring.alerting.servers import SERVER_ALERTS
from monitoring.alerting.streams import STREAM_ALERTS

ALERTS: Final[tuple[Alert, ...]] = (*STREAM_ALERTS, *REPLICA_ALERTS, *SERVER_ALERTS, *OPERATION_ALERTS)
