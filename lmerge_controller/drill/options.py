"""The options of ``lmerge drill run``, with their help. Called by the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ScenarioFile = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="Scenarios of your own instead of those of lmerge.")
]
ReportFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report in this form.")]
DrillNames = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Scenarios; without any, all that can run.")
]
ServersOption = Annotated[
    str | None,
    typer.Option("--server", "-s", metavar="HOST:PORT,...", help="Servers that run; without, a sandbox is made."),
]
TargetFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Servers that run, and the commands that break them: YAML.")
]
ProtectedMerges = Annotated[
    list[str] | None,
    typer.Option(metavar="MERGE", help="Refuse faults that this merge would not survive; by default all merges."),
]
QueryOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="A query of lmerge up, or with --kube of the namespace: broken too.")
]
StateFolderOption = Annotated[Path, typer.Option(metavar="DIR", help="With --query: the state folder of lmerge up.")]
WatchedMerges = Annotated[
    list[str] | None,
    typer.Option(metavar="MERGE", help="Read this merge too, and report its pauses; with --query its own."),
]
KubeOption = Annotated[bool, typer.Option("--kube", help="A release of the chart: its pods and nodes are broken.")]
NamespaceOption = Annotated[
    str, typer.Option(metavar="NAME", envvar="POD_NAMESPACE", help="With --kube: the namespace of the release.")
]
ReleaseOption = Annotated[str, typer.Option(metavar="NAME", help="With --kube: the name of the release.")]
KubeconfigOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="With --kube: by default as kubectl, or as the pod.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]
TimeLimit = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=1.0, help="End each drill after so long; it has failed then.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="The report as one JSON object.")]
TextFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Metrics for node_exporter's textfile collector; earlier counts go on."),
]
PushGateway = Annotated[
    str | None, typer.Option(metavar="URL", help="Push metrics to this Pushgateway, where nothing can scrape them.")
]
KeptFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Keep recordings and logs here, a folder for each drill.")
]
