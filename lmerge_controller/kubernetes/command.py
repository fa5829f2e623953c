"""``lmerge controller``: operates the ReplicatedQueries of a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from typing import Annotated, Any, Final

import typer

from lmerge import terminal
from lmerge.cli.arguments import DEFAULT_HTTP_PORT
from lmerge.cli.connection import secured
from lmerge.errors import UsageError

DEFAULT_IMAGE: Final = "docker.io/local/lmerge:dev"


@secured
def controller(
    namespace: Annotated[
        str | None, typer.Option(help="Operate the queries of this namespace.", envvar="POD_NAMESPACE")
    ] = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", help="Operate the queries of all.")] = False,
    lease_namespace: Annotated[
        str | None, typer.Option(help="Where the Lease of the leader is. Default: POD_NAMESPACE, or the namespace.")
    ] = None,
    image: Annotated[
        str, typer.Option(envvar="LMERGE_IMAGE", help="The image of replicas that name none; it has lmerge.")
    ] = DEFAULT_IMAGE,
    ca_secret: Annotated[str, typer.Option(help="A Secret with ca.crt, by which replicas check servers.")] = "",
    token_secret: Annotated[str, typer.Option(help="A Secret with the token by which replicas publish.")] = "",
    token_key: Annotated[str, typer.Option(help="The key of that token in its Secret.")] = "token",
    http_host: Annotated[str, typer.Option(help="Address of the HTTP port.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="/metrics, /healthz, /readyz; 0: any free port.")] = DEFAULT_HTTP_PORT,
    kubeconfig: Annotated[str | None, typer.Option(metavar="FILE", help="Default: as kubectl, or as the pod.")] = None,
    context: Annotated[str | None, typer.Option(help="A context of the kubeconfig.")] = None,
    *,
    security: Any,
) -> None:
    """Operate the ReplicatedQueries of a cluster. Several may run: one leads. Ctrl-C or SIGTERM hands over.

    Example: lmerge controller --namespace streams
    """
    try:
        import kubernetes.aio  # noqa: F401 - only to report clearly that it is missing
    except ImportError:
        raise UsageError("lmerge controller needs the client of Kubernetes: pip install 'lmerge[kubernetes]'") from None
    from lmerge_controller.kubernetes.controller import ControllerSettings
    from lmerge_controller.kubernetes.manifests import PodSettings

    own = os.environ.get("POD_NAMESPACE") or "default"
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    settings = ControllerSettings(
        namespace=None if all_namespaces else namespace or own,
        lease_namespace=lease_namespace or (own if all_namespaces else namespace or own),
        identity=f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.urandom(6).hex()}",
        pods=PodSettings(image, ca_secret=ca_secret, token_secret=token_secret, token_key=token_key),
        security=security,
    )
    asyncio.run(_run(settings, kubeconfig, context, http_host, http_port))


async def _run(settings: Any, kubeconfig: str | None, context: str | None, host: str, port: int) -> None:
    from lmerge_controller.kubernetes.api import connect
    from lmerge_controller.kubernetes.controller import Controller
    from lmerge_controller.kubernetes.controller_http import ControllerPages

    async with await connect(kubeconfig, context) as api, await connect(kubeconfig, context) as election_api:
        found = Controller(api, election_api, settings)
        async with ControllerPages(host, port, found.metrics.registry, found.why_not_ready) as pages:
            scope = settings.namespace or "all namespaces"
            terminal.error(f"operates {scope}; http://{host}:{pages.port}/metrics; Ctrl-C hands over")
            loop = asyncio.get_running_loop()
            stopping = False

            def on_signal() -> None:
                nonlocal stopping
                if stopping:
                    os._exit(130)  # the second signal ends it at once
                stopping = True
                found.stop()

            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, on_signal)
            await found.run()
