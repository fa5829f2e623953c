"""Alerts about merged streams: is each alive, would it survive a loss, is what it delivers right."""

from typing import Final

from monitoring.alerting.alert import EVERY, Alert, AlertExample, Severity

_SERVER: Final = {"instance": "s1", "job": "lmerge"}
_FLIGHTS: Final = {**_SERVER, "merge": "flights"}
_FLIGHTS_TEXT: Final = 'instance="s1", job="lmerge", merge="flights"'
_OF_FLIGHTS: Final = f"{{{_FLIGHTS_TEXT}}}"
_ENDED: Final = "Inf " * 40  # the stable point of a stream that has ended; promtool repeats numbers only
_OF_SECOND: Final = '{instance="s2", job="lmerge", merge="flights"}'

STREAM_ALERTS: Final = (
    Alert(
        name="LmergeRedundancyLost",
        topic="streams",
        severity=Severity.CRITICAL,
        condition="lmerge_survivable_losses < 1 unless lmerge_stable_point_time == +Inf",
        for_s=60,
        summary="Merge {{ $labels.merge }} survives no further loss.",
        description="On {{ $labels.instance }} at most one input of merge {{ $labels.merge }} could carry the output. "
        "The loss of that replica stops the stream.",
        fires=AlertExample(
            {
                f"lmerge_survivable_losses{_OF_FLIGHTS}": "1x4 0x20",
                f"lmerge_stable_point_time{_OF_FLIGHTS}": "100+5x24",
            },
            at_s=180,
            labels=_FLIGHTS,
        ),
        stays_silent=AlertExample(
            {
                f"lmerge_survivable_losses{_OF_FLIGHTS}": "1x4 0x20",
                f"lmerge_stable_point_time{_OF_FLIGHTS}": f"100x4 {_ENDED}",
                f"lmerge_survivable_losses{_OF_SECOND}": "1 1 0 0 1x20",  # a replica was restarted
                f"lmerge_stable_point_time{_OF_SECOND}": "100+5x24",
            },
            at_s=180,
        ),
    ),
    Alert(
        name="LmergeStreamStalled",
        topic="streams",
        severity=Severity.CRITICAL,
        condition=f"min by ({EVERY}, merge) (lmerge_stable_pause_seconds) > {{seconds}} "
        f"and max by ({EVERY}, merge) (lmerge_stable_point_time) < +Inf "
        f"and max by ({EVERY}, merge) (lmerge_stable_point_time) > -Inf",
        for_s=60,
        window_s=300,
        summary="The output of merge {{ $labels.merge }} stands still.",
        description="On no server of {{ $labels.job }} has the stable point of merge {{ $labels.merge }} moved. "
        "Readers receive nothing final.",
        fires=AlertExample(
            {
                f"lmerge_stable_pause_seconds{_OF_FLIGHTS}": "0x4 0+15x40",
                f"lmerge_stable_pause_seconds{_OF_SECOND}": "0x4 0+15x40",
                f"lmerge_stable_point_time{_OF_FLIGHTS}": "120x44",
                f"lmerge_stable_point_time{_OF_SECOND}": "120x44",
            },
            at_s=600,
            labels={"job": "lmerge", "merge": "flights"},
        ),
        stays_silent=AlertExample(
            {
                f"lmerge_stable_pause_seconds{_OF_FLIGHTS}": "0+15x44",
                f"lmerge_stable_pause_seconds{_OF_SECOND}": "0x44",  # the other server goes on
                f"lmerge_stable_point_time{_OF_FLIGHTS}": "120x44",
                f"lmerge_stable_point_time{_OF_SECOND}": "100+5x44",
                'lmerge_stable_pause_seconds{instance="s1", job="lmerge", merge="ended"}': "0+15x44",
                'lmerge_stable_point_time{instance="s1", job="lmerge", merge="ended"}': f"7x4 {_ENDED}",
                'lmerge_stable_pause_seconds{instance="s1", job="lmerge", merge="not-begun"}': "0+15x44",
                'lmerge_stable_point_time{instance="s1", job="lmerge", merge="not-begun"}': "-Inf " * 44,
            },
            at_s=600,
        ),
    ),
    Alert(
        name="LmergeDivergence",
        topic="streams",
        severity=Severity.WARNING,
        condition="increase(lmerge_divergent_intervals_total[{window}]) > 0",
        for_s=0,
        window_s=600,
        summary="Inputs of merge {{ $labels.merge }} contradict each other.",
        description="{{ $labels.instance }} has found an interval in which inputs of merge {{ $labels.merge }} that "
        "promise the same froze different events. At least one replica is wrong.",
        fires=AlertExample({f"lmerge_divergent_intervals_total{_OF_FLIGHTS}": "0x8 1x40"}, at_s=240, labels=_FLIGHTS),
        stays_silent=AlertExample(
            {
                f"lmerge_divergent_intervals_total{_OF_FLIGHTS}": "0 1x80",  # long ago
                f"lmerge_divergent_intervals_total{_OF_SECOND}": "5x10 0x70",  # the server was restarted
            },
            at_s=1200,
        ),
    ),
    Alert(
        name="LmergeGap",
        topic="streams",
        severity=Severity.CRITICAL,
        condition="increase(lmerge_output_gaps_total[{window}]) > 0",
        for_s=0,
        window_s=600,
        summary="The output of merge {{ $labels.merge }} has a gap.",
        description="On {{ $labels.instance }} the output of merge {{ $labels.merge }} has skipped a stretch of time "
        "that no input could deliver any more. What belongs there is missing on this server.",
        fires=AlertExample({f"lmerge_output_gaps_total{_OF_FLIGHTS}": "0x8 1x40"}, at_s=240, labels=_FLIGHTS),
        stays_silent=AlertExample({f"lmerge_output_gaps_total{_OF_FLIGHTS}": "0 2x80"}, at_s=1200),
    ),
    Alert(
        name="LmergeSubscriberBehind",
        topic="streams",
        severity=Severity.WARNING,
        condition="lmerge_subscriber_lag_seconds > {seconds}",
        for_s=60,
        window_s=30,
        summary="Subscriber {{ $labels.subscriber }} of merge {{ $labels.merge }} is behind.",
        description="At {{ $labels.instance }} output of merge {{ $labels.merge }} has waited "
        "{{ $value | humanizeDuration }} for {{ $labels.subscriber }}. When its queue is full, it is cut off.",
        fires=AlertExample(
            {f'lmerge_subscriber_lag_seconds{{{_FLIGHTS_TEXT}, subscriber="board"}}': "0x4 0+15x40"},
            at_s=240,
            labels={**_FLIGHTS, "subscriber": "board"},
            value="2m 45s",
        ),
        stays_silent=AlertExample(
            {f'lmerge_subscriber_lag_seconds{{{_FLIGHTS_TEXT}, subscriber="board"}}': "1x4 45x3 1x40"}, at_s=120
        ),
    ),
    Alert(
        name="LmergeSubscriberCutOff",
        topic="streams",
        severity=Severity.WARNING,
        condition="increase(lmerge_cut_off_subscribers_total[{window}]) > 0",
        for_s=0,
        window_s=600,
        summary="A subscriber of merge {{ $labels.merge }} was too slow and was cut off.",
        description="{{ $labels.instance }} has ended a subscription to merge {{ $labels.merge }} because its queue "
        "was full. The reader resumes from its token, and is behind.",
        fires=AlertExample({f"lmerge_cut_off_subscribers_total{_OF_FLIGHTS}": "0x8 1x40"}, at_s=240, labels=_FLIGHTS),
        stays_silent=AlertExample({f"lmerge_cut_off_subscribers_total{_OF_FLIGHTS}": "3x80"}, at_s=600),
    ),
)
