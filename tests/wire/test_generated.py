"""The committed generated code is that of the protocol document."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc

ROOT = Path(__file__).resolve().parents[2]


def test_generated_code_matches_the_proto_file() -> None:
    pytest.importorskip("grpc_tools")
    script = ROOT / "scripts" / "generate_wire.py"
    checked = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_generated_package_does_not_demand_the_generators_own_release() -> None:
    for path in (ROOT / "lmerge" / "wire" / "generated").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "ValidateProtobufRuntimeVersion" not in text
        assert "GRPC_GENERATED_VERSION" not in text


def test_the_service_is_the_documented_one() -> None:
    service = pb.DESCRIPTOR.services_by_name["Lmerge"]
    assert service.full_name == "lmerge.v1.Lmerge"
    document = (ROOT / "proto" / "lmerge" / "v1" / "lmerge.proto").read_text(encoding="utf-8")
    methods = re.findall(r"^  rpc (\w+)\(", document, re.MULTILINE)
    assert {"Publish", "Subscribe", "ListMerges", "DescribeMerge", "DescribeServer"} <= set(methods)
    assert [method.name for method in service.methods] == methods
    assert all(hasattr(pb_grpc.LmergeServicer, name) for name in methods)


def test_the_infinities_fit_the_wire() -> None:
    progress = pb.SubscribeResponse.Progress(stable_point=-(2**63))
    assert pb.SubscribeResponse.Progress.FromString(progress.SerializeToString()).stable_point == -(2**63)
    attach = pb.Attach(join_at=2**63 - 1)
    assert pb.Attach.FromString(attach.SerializeToString()).join_at == 2**63 - 1
    assert not pb.Attach().HasField("join_at")
