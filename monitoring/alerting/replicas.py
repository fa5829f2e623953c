"""Alerts about replicas: does each keep up, stay attached, and agree with the others."""

from typing import Final

from monitoring.alerting.alert import Alert, AlertExample, Severity

_FLIGHTS: Final = {"instance": "s1", "job": "lmerge", "merge": "flights"}
_OF_FLIGHTS: Final = 'instance="s1", job="lmerge", merge="flights"'

REPLICA_ALERTS: Final = (
    Alert(
        name="LmergeReplicaLagging",
        topic="replicas",
        severity=Severity.WARNING,
        condition="lmerge_input_lag_seconds > {seconds}",
        for_s=60,
        window_s=60,
        summary="Replica {{ $labels.input }} of merge {{ $labels.merge }} does not keep up.",
        description="On {{ $labels.instance }} the output of merge {{ $labels.merge }} passed the stable point of "
        "{{ $labels.input }} {{ $value | humanizeDuration }} ago.",
        fires=AlertExample(
            {
                f'lmerge_input_lag_seconds{{{_OF_FLIGHTS}, input="a"}}': "0x4 0+15x40",
                f'lmerge_input_lag_seconds{{{_OF_FLIGHTS}, input="b"}}': "0x44",
            },
            at_s=240,
            labels={**_FLIGHTS, "input": "a"},
            value="2m 45s",
        ),
        stays_silent=AlertExample(
            {
                f'lmerge_input_lag_seconds{{{_OF_FLIGHTS}, input="a"}}': "50x44",  # it trails by a constant distance
                f'lmerge_input_lag_seconds{{{_OF_FLIGHTS}, input="b"}}': "0x4 90x3 0x40",  # it has caught up
            },
            at_s=480,
        ),
    ),
    Alert(
        name="LmergeReplicaFlapping",
        topic="replicas",
        severity=Severity.WARNING,
        condition='sum without (reason) (increase(lmerge_detached_inputs_total{reason!~"left|detached|reset"}'
        "[{window}])) > 3",
        for_s=0,
        window_s=600,
        summary="Replicas of merge {{ $labels.merge }} come and go.",
        description="On {{ $labels.instance }} inputs of merge {{ $labels.merge }} have ended again and again, other "
        "than by leaving. A replica that crashes, or a network that fails, takes the redundancy with it.",
        fires=AlertExample(
            {f'lmerge_detached_inputs_total{{{_OF_FLIGHTS}, reason="connection-ended"}}': "0x4 0+1x20 20x20"},
            at_s=360,
            labels=_FLIGHTS,
        ),
        stays_silent=AlertExample(
            {
                f'lmerge_detached_inputs_total{{{_OF_FLIGHTS}, reason="connection-ended"}}': "0x4 1x40",
                f'lmerge_detached_inputs_total{{{_OF_FLIGHTS}, reason="left"}}': "0+1x44",
            },
            at_s=360,
        ),
    ),
    Alert(
        name="LmergeReplicaQuarantined",
        topic="replicas",
        severity=Severity.WARNING,
        condition="lmerge_quarantined_inputs > 0",
        for_s=0,
        summary="A replica of merge {{ $labels.merge }} is in quarantine.",
        description="{{ $labels.instance }} refuses {{ $value }} names of inputs of merge {{ $labels.merge }} until an "
        "operator releases them. A replica contradicted the majority, was expelled, or was replaced in a cutover.",
        fires=AlertExample(
            {f"lmerge_quarantined_inputs{{{_OF_FLIGHTS}}}": "0x4 1x20"}, at_s=120, labels=_FLIGHTS, value="1"
        ),
        stays_silent=AlertExample({f"lmerge_quarantined_inputs{{{_OF_FLIGHTS}}}": "1x4 0x20"}, at_s=120),
    ),
)
