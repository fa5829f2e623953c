"""Alerts about servers: do they run, can they persist, are their security files in force."""

from typing import Final

from monitoring.alerting.alert import Alert, AlertExample, Severity

_SERVER: Final = {"instance": "s1", "job": "lmerge"}
_OF_SERVER: Final = 'instance="s1", job="lmerge"'

SERVER_ALERTS: Final = (
    Alert(
        name="LmergeServerDown",
        topic="servers",
        severity=Severity.CRITICAL,
        condition='up{job=~".*lmerge.*"} == 0',
        for_s=60,
        summary="Prometheus cannot reach {{ $labels.instance }}.",
        description="{{ $labels.instance }} of {{ $labels.job }} does not answer scrapes. If it is a server, its "
        "readers use the other servers, and the next loss of a server is one more.",
        fires=AlertExample({f"up{{{_OF_SERVER}}}": "1x4 0x20"}, at_s=180, labels=_SERVER),
        stays_silent=AlertExample(
            {f"up{{{_OF_SERVER}}}": "1x4 0 0 1x20", 'up{instance="x", job="another"}': "0x24"}, at_s=180
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
