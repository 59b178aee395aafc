#!/usr/bin/env bash
# Tests `gantry serve` with openpi's own client, in an environment of its own: openpi-client 0.1.2 asks for numpy 1.
#
# Arguments: tests, if not all of tests/deploy/openpi. The environment stays; later runs of the tests find it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=".venv-openpi"

if ! "$venv/bin/python" -c 'import openpi_client.websocket_client_policy' 2>/dev/null; then
    .venv/bin/python -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --no-compile openpi-client==0.1.2 typing_extensions
fi
tests=(tests/deploy/openpi)
if [ $# -gt 0 ]; then tests=("$@"); fi
exec .venv/bin/python -m pytest -rs "${tests[@]}"
