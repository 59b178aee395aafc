#!/usr/bin/env bash
# Tests LEAPP folders with the package leapp itself, in an environment of its own.
#
# Arguments: tests, if not all of tests/policies/leapp. The environment stays; later runs of the tests find it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=".venv-leapp"

if ! "$venv/bin/python" -c 'import leapp' 2>/dev/null; then
    .venv/bin/python -m venv --clear "$venv"
    # Our own versions of torch and onnx, so that only leapp is new.
    "$venv/bin/python" -m pip install --quiet --no-compile -c constraints.txt leapp==0.7.2
fi
tests=(tests/policies/leapp)
if [ $# -gt 0 ]; then tests=("$@"); fi
exec .venv/bin/python -m pytest -rs "${tests[@]}"
