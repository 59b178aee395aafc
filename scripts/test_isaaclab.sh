#!/usr/bin/env bash
# Tests tasks of Isaac Lab with Isaac Lab itself, in an environment of its own, which sees that of the project.
#
# Arguments: tests, if not all of Isaac Lab's. The environment stays, and so do the kernels that Warp compiles in the
# first run, which then takes minutes longer.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=".venv-isaaclab"

if ! "$venv/bin/python" -c 'import isaaclab_tasks, mujoco_usd_converter' 2>/dev/null; then
    .venv/bin/python -m venv --clear "$venv"
    site="$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')"
    # Through site.addsitedir, so that the project itself, which is installed as editable, is found as well.
    own="$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')"
    echo "import site; site.addsitedir('$own')" >"$site/project.pth"
    # Not by their own lists of requirements, which name other versions of torch, MuJoCo, Warp and Python.
    "$venv/bin/python" -m pip install --quiet --no-compile --no-deps --ignore-requires-python \
        isaaclab==3.0.0 mujoco-usd-converter==0.8.0
    "$venv/bin/python" -m pip install --quiet --no-compile -c constraints.txt newton==1.6.1 newton-usd-schemas==0.6.0 \
        usd-exchange==3.0.1 hydra-core==1.3.8 h5py==3.16.0 lazy_loader==0.6 numpy-stl==4.1.1 tinyobjloader==2.0.0rc13
fi
if ! "$venv/bin/python" -c 'import leapp' 2>/dev/null; then  # It writes the folders that Isaac Lab exports.
    "$venv/bin/python" -m pip install --quiet --no-compile -c constraints.txt leapp==0.7.2
fi
tests=(tests/sim/isaaclab)
if [ $# -gt 0 ]; then tests=("$@"); fi
exec "$venv/bin/python" -m pytest -rs "${tests[@]}"
