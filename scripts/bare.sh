#!/usr/bin/env bash
# scripts/bare.sh COMMAND...: runs COMMAND in the environment that README requires: Python, git and a C toolchain, but
# no cargo, no Rust and no Java, whatever this machine has.
#
# The PATH is one folder of links to the tools listed below. The environment holds only the variables of the user, the
# terminal, the network and pip. COMMAND runs in a copy of this project's files (those that git tracks or would add),
# which is a repository of its own, with a virtual environment of its own. The copy is in $BARE_DIR if that is set, and is
# kept there for the next call. Otherwise it is in a temporary folder that is deleted after the command.
#
#   scripts/bare.sh make demo
#   BARE_DIR=/tmp/bare scripts/bare.sh make test TESTS=tests/core
set -euo pipefail

# Python and git are named below. `file` and `ps` are for people. make, pip or a compiler uses all others.
TOOLS="bash sh env make cc gcc g++ c++ cpp as ld ar nm ranlib strip objdump readelf pkg-config
  sed grep egrep fgrep awk gawk mawk find xargs tar gzip gunzip xz bzip2 unzip zip diff cmp patch which file ps kill less
  taskset nproc uname hostname id whoami date sleep timeout true false test [ expr seq tee cat head tail wc sort uniq cut tr
  cp mv rm ln ls mkdir rmdir mktemp touch chmod chown stat dirname basename readlink realpath pwd echo printf env nohup nice
  df du sync dd od md5sum sha256sum install"
KEPT="HOME USER LOGNAME LANG LC_ALL TERM TMPDIR TZ COLUMNS http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY
  SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE"

[ $# -gt 0 ] || { sed -n '2,/^set/p' "$0" | sed '$d;s/^# \{0,1\}//' >&2; exit 2; }

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -n "${BARE_DIR:-}" ]; then
  mkdir -p "$BARE_DIR"
  folder=$(cd "$BARE_DIR" && pwd)
else
  folder=$(mktemp -d "${TMPDIR:-/tmp}/lmerge-bare-XXXXXX")
  trap 'rm -rf "$folder"' EXIT
fi

# Links to the tools. Python and git get a script instead, because they find their own files by the path of the call.
tools=$folder/bin
rm -rf "$tools"
mkdir -p "$tools"
for tool in $TOOLS; do
  found=$(type -P "$tool") && ln -sf "$found" "$tools/$tool"
done
python=$("${PYTHON:-python3}" -c 'import sys; print(sys._base_executable)')
for tool in python3 git; do
  [ $tool = python3 ] && program=$python || program=$(type -P $tool)
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$program" > "$tools/$tool"
  chmod 755 "$tools/$tool"
done

# The present files of the project. Other files of an earlier call, such as the virtual environment, stay.
mkdir -p "$folder/lmerge"
git_here() { git -c safe.directory='*' -C "$project" "$@"; }
[ ! -d "$folder/lmerge/.git" ] || git -C "$folder/lmerge" ls-files -z | (cd "$folder/lmerge" && xargs -0 rm -f --)
git_here ls-files -z --cached --others --exclude-standard | (
  cd "$project" && while IFS= read -r -d '' name; do [ ! -e "$name" ] || printf '%s\0' "$name"; done
) | tar -C "$project" --null -T - -cf - | tar -C "$folder/lmerge" -xf -
cd "$folder/lmerge"
git init --quiet .
git add --all
git -c user.name=bare -c user.email=bare@localhost commit --quiet --allow-empty --message "The project as it is now"

environment=(PATH="$tools")
for name in $KEPT $(compgen -e PIP_ || true); do
  [ -z "${!name+set}" ] || environment+=("$name=${!name}")
done
status=0
env -i "${environment[@]}" "$@" || status=$?
exit $status
