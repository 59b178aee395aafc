#!/usr/bin/env bash
# Tests runs and actors on Ray in an environment of its own, which sees that of the project and has Ray beside it.
#
# Arguments: tests, if not those of Ray. The environment stays; later runs of the tests find it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=".venv-ray"

if ! "$venv/bin/python" -c 'import ray' 2>/dev/null; then
    .venv/bin/python -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --no-compile 'ray>=2.50,<3'
    site="$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')"
    # Through site.addsitedir, so that the project itself, which is installed as editable, is found as well.
    own="$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')"
    echo "import site; site.addsitedir('$own')" >"$site/project.pth"
fi
tests=(tests/sim/test_ray_runs.py tests/sim/test_ray_fleet.py)
if [ $# -gt 0 ]; then tests=("$@"); fi
exec "$venv/bin/python" -m pytest -rs "${tests[@]}"
