"""Alerts about servers: do they run, can they persist, are their security files in force."""

from typing import Final

from monitoring.alerting.alert import Alert, AlertExample, Severity

_SERVER: Final = {"instance": "s1", "job": "lmerge"}
_ROOM_BYTES: Final = 2**30
_AHEAD_S: Final = 4 * 3600
_OF_SERVER: Final = 'instance="s1", job="lmerge"'

SERVER_ALERTS: Final = (
    Alert(
        name="LmergeServerDown",
        topic="servers",
        severity=Severity.CRITICAL,
        condition='up{job=~".*lmerge.*", job!~".*controller.*"} == 0',
        for_s=60,
        summary="Prometheus cannot reach {{ $labels.instance }}.",
        description="{{ $labels.instance }} of {{ $labels.job }} does not answer scrapes. If it is a server, its "
        "readers use the other servers, and the next loss of a server is one more.",
        fires=AlertExample({f"up{{{_OF_SERVER}}}": "1x4 0x20"}, at_s=180, labels=_SERVER),
        stays_silent=AlertExample(
            {
                f"up{{{_OF_SERVER}}}": "1x4 0 0 1x20",
                'up{instance="x", job="another"}': "0x24",
                'up{instance="c", job="lmerge-controller"}': "0x24",
            },
            at_s=180,
        ),
    ),
    Alert(
        name="LmergeStoreFailing",
        topic="servers",
        severity=Severity.CRITICAL,
        condition="lmerge_store_stopped_bool == 1",
        for_s=0,
        summary="The store of merge {{ $labels.merge }} cannot be written.",
        description="{{ $labels.instance }} cannot commit the output of merge {{ $labels.merge }}, so it delivers "
        "nothing and holds its publishers. Readers depend on the other servers.",
        fires=AlertExample(
            {f'lmerge_store_stopped_bool{{{_OF_SERVER}, merge="flights"}}': "0x4 1x20"},
            at_s=120,
            labels={**_SERVER, "merge": "flights"},
        ),
        stays_silent=AlertExample(
            {f'lmerge_store_stopped_bool{{{_OF_SERVER}, merge="flights"}}': "1x4 0x20"}, at_s=120
        ),
    ),
    Alert(
        name="LmergeStoreFilling",
        topic="servers",
        severity=Severity.WARNING,
        condition=f"lmerge_store_free_bytes < {_ROOM_BYTES} "
        f"or predict_linear(lmerge_store_free_bytes[{{window}}], {_AHEAD_S}) < 0",
        for_s=60,
        window_s=3600,
        summary="The volume of the store of {{ $labels.instance }} fills.",
        description="{{ $labels.instance }} has less than 1 GiB left for its store, or will have none in four hours. "
        "A server that cannot persist its output delivers nothing.",
        fires=AlertExample(
            {f"lmerge_store_free_bytes{{{_OF_SERVER}}}": f"{2 * _ROOM_BYTES}x4 {_ROOM_BYTES - 1}x20"},
            at_s=180,
            labels=_SERVER,
        ),
        stays_silent=AlertExample({f"lmerge_store_free_bytes{{{_OF_SERVER}}}": f"{50 * _ROOM_BYTES}-1000x40"}, 600),
    ),
    Alert(
        name="LmergeSecurityFileBroken",
        topic="servers",
        severity=Severity.WARNING,
        condition="lmerge_security_file_broken_bool == 1",
        for_s=60,
        summary="A security file of {{ $labels.instance }} is not in force.",
        description="{{ $labels.instance }} cannot read its {{ $labels.file }} file as it is on disk and uses the "
        "version before. A certificate that was renewed so is not in use.",
        fires=AlertExample(
            {f'lmerge_security_file_broken_bool{{{_OF_SERVER}, file="tls"}}': "0x4 1x20"},
            at_s=180,
            labels={**_SERVER, "file": "tls"},
        ),
        stays_silent=AlertExample(
            {f'lmerge_security_file_broken_bool{{{_OF_SERVER}, file="tls"}}': "0x4 1 1 0x20"}, at_s=180
        ),
    ),
)
