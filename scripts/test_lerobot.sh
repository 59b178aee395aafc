#!/usr/bin/env bash
# Tests teachers of the real LeRobot in an environment of its own: its pins exclude the torch that Gantry trains with.
#
# Arguments: Python 3.12 or later, for LeRobot 0.6; its environment, if not .venv-lerobot (6 GB, with CUDA).
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3.12}"
venv="${2:-.venv-lerobot}"

if ! "$venv/bin/python" -c 'import lerobot, pytest, gantry_policies' 2>/dev/null; then
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --no-compile -e '.[serve]' 'lerobot[smolvla,diffusion]>=0.4.4' pytest pytest-timeout
fi
# The other tests of the folder's parents want the learning libraries.
exec "$venv/bin/python" -m pytest -rs --confcutdir=tests/policies/teachers tests/policies/teachers/test_lerobot_policy.py \
    tests/policies/teachers/test_lerobot_folder.py
