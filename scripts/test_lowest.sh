#!/usr/bin/env bash
# Tests what runs on a robot, and datasets, with the lowest versions that pyproject.toml allows (constraints-lowest.txt).
#
# Arguments: Python for a new environment, its folder. Learning and simulators are left out: their lowest versions are
# those of constraints.txt, which all other tests run with.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3.11}"
venv="${2:-.venv-lowest}"

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then "$python" -m venv --clear "$venv"; fi
# What only tests need: networks, other namespaces, drawings, and a simulated robot.
"$venv/bin/python" -m pip install --quiet --no-compile -c constraints-lowest.txt -e '.[robot,signing,data,gym,serve,leapp]' \
    pytest pytest-timeout pytest-xdist onnx torch matplotlib pillow mujoco==3.11.0
exec "$venv/bin/python" -m pytest -n 2 --dist loadfile tests/hardware tests/deploy tests/mapping \
    --ignore=tests/mapping/learn -m "not slow"
