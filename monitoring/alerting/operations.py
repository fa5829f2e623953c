"""Alerts about what keeps an installation as described, and trusted: controllers, certificates, drills."""

from typing import Final

from monitoring.alerting.alert import EVERY, Alert, AlertExample, Severity

_DAY_S: Final = 86_400
_OF_NODE: Final = 'instance="n1", job="node", drill="kill-winner"'
_DRILL: Final = {"instance": "n1", "job": "node", "drill": "kill-winner"}
_LAST_RUN: Final = "lmerge_drill_last_run_timestamp_seconds"
_LAST_SUCCESS: Final = "lmerge_drill_last_success_timestamp_seconds"

_LEADER: Final = "lmerge_controller_leader_bool"
_OF_CONTROLLERS: Final = {"namespace": "n", "job": "controller"}


def _leaders(first: str, second: str) -> dict[str, str]:
    """Return what two controllers of one installation report."""
    labels = 'namespace="n", job="controller"'
    return {f'{_LEADER}{{instance="c1", {labels}}}': first, f'{_LEADER}{{instance="c2", {labels}}}': second}


OPERATION_ALERTS: Final = (
    Alert(
        name="LmergeControllerWithoutLeader",
        topic="operations",
        severity=Severity.WARNING,
        condition=f"max by ({EVERY}) (last_over_time({_LEADER}[{{window}}])) "
        f"unless max by ({EVERY}) ({_LEADER}) == 1",  # also when no controller answers
        for_s=60,
        window_s=6 * 3600,
        summary="No controller of {{ $labels.job }} leads.",
        description="No controller of {{ $labels.job }} leads. Streams go on, but a replica that ends on Kubernetes is "
        "not replaced, and no version is cut over.",
        fires=AlertExample(_leaders("1x4 _x60", "0x4 _x60"), at_s=780, labels=_OF_CONTROLLERS),
        stays_silent=AlertExample(_leaders("1x4 0x20", "0x6 1x18"), at_s=150),  # it has taken over
    ),
    Alert(
        name="LmergeControllerTwoLeaders",
        topic="operations",
        severity=Severity.CRITICAL,
        condition=f"sum by ({EVERY}) ({_LEADER}) > 1",
        for_s=60,
        summary="{{ $value }} controllers of {{ $labels.job }} lead at the same time.",
        description="{{ $value }} controllers of {{ $labels.job }} lead at the same time: they use different Leases. "
        "If they operate the same queries, each undoes what the other one does.",
        fires=AlertExample(_leaders("1x24", "0x4 1x20"), at_s=150, labels=_OF_CONTROLLERS, value="2"),
        stays_silent=AlertExample(_leaders("1x5 0x19", "0x4 1x20"), at_s=75),  # one was scraped before it stopped
    ),
    Alert(
        name="LmergeCertificateExpiring",
        topic="operations",
        severity=Severity.WARNING,
        condition="lmerge_certificate_expiry_timestamp_seconds - time() < {seconds}",
        for_s=60,
        window_s=14 * _DAY_S,
        summary="A certificate of {{ $labels.instance }} expires soon.",
        description="The first certificate in the {{ $labels.file }} file of {{ $labels.instance }} expires in "
        "{{ $value | humanizeDuration }}. From then on clients refuse the server, or the server refuses them.",
        fires=AlertExample(
            {'lmerge_certificate_expiry_timestamp_seconds{instance="s1", job="lmerge", file="tls_cert"}': "3720x20"},
            at_s=120,
            labels={"instance": "s1", "job": "lmerge", "file": "tls_cert"},
            value="1h 0m 0s",
        ),
        stays_silent=AlertExample(
            {
                'lmerge_certificate_expiry_timestamp_seconds{instance="s1", job="lmerge", file="tls_cert"}': (
                    f"3720x4 {20 * _DAY_S}x16"  # it was renewed
                )
            },
            at_s=120,
        ),
    ),
    Alert(
        name="LmergeDrillFailed",
        topic="operations",
        severity=Severity.WARNING,
        condition=f"{_LAST_RUN} > {_LAST_SUCCESS} or {_LAST_RUN} unless {_LAST_SUCCESS}",
        for_s=0,
        summary="The drill {{ $labels.drill }} did not pass.",
        description="The last run of {{ $labels.drill }} failed or was refused. Until it passes, nothing proves that "
        "the installation survives this fault.",
        fires=AlertExample(
            {f"{_LAST_RUN}{{{_OF_NODE}}}": "100x4 180x20", f"{_LAST_SUCCESS}{{{_OF_NODE}}}": "100x24"},
            at_s=120,
            labels=_DRILL,
        ),
        stays_silent=AlertExample(
            {f"{_LAST_RUN}{{{_OF_NODE}}}": "100x4 180x20", f"{_LAST_SUCCESS}{{{_OF_NODE}}}": "100x4 180x20"}, at_s=120
        ),
    ),
    Alert(
        name="LmergeDrillOverdue",
        topic="operations",
        severity=Severity.WARNING,
        condition=f"time() - {_LAST_RUN} > {{seconds}}",
        for_s=0,
        window_s=26 * 3600,
        summary="The drill {{ $labels.drill }} has not run today.",
        description="{{ $labels.drill }} last ran {{ $value | humanizeDuration }} ago. What it proved may not hold "
        "any more.",
        fires=AlertExample({f"{_LAST_RUN}{{{_OF_NODE}}}": "0x6500"}, 27 * 3600, _DRILL, "1d 3h 0m 0s"),
        stays_silent=AlertExample({f"{_LAST_RUN}{{{_OF_NODE}}}": "0x4000 60000x2500"}, 27 * 3600),
    ),
)
