#!/usr/bin/env bash
# Creates the virtual environment named by the first argument and installs Gantry with everything into it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${1:-.venv}"

say() { printf '%s\n' "$*" >&2; }

# 3.11 first, because it is what the tests ran with; newer ones as far as ROS 2 wheels exist for them.
find_python() {
    local name
    for name in ${PYTHON:-} python3.11 python3.12 python3.13 python3; do
        if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            printf '%s' "$name"
            return 0
        fi
    done
    return 1
}

# A venv without a working pip is what an interrupted run leaves behind.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    if ! python="$(find_python)"; then
        say "Gantry needs Python 3.11, 3.12 or 3.13, and there is none on PATH (python3: $(python3 --version 2>/dev/null || printf 'not found'))."
        say "On Debian 12 or Ubuntu 24.04:  sudo apt install python3 python3-venv"
        say "Or name an interpreter:        make setup PYTHON=/path/to/python3.11"
        exit 1
    fi
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        say "$python cannot create virtual environments: its 'venv' or 'ensurepip' module is missing."
        say "On Debian or Ubuntu:  sudo apt install $("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
        exit 1
    fi
    say "Creating $venv with $("$python" --version)."
    "$python" -m venv --clear "$venv"
fi

if ! "$venv/bin/python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'; then
    say "$venv has $("$venv/bin/python" --version), and Gantry needs Python 3.11, 3.12 or 3.13."
    say "Remove it (rm -r $venv) and start again, or name another folder: scripts/setup.sh FOLDER"
    exit 1
fi
version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }
if [ -n "${PYTHON:-}" ] && [ "$(version "$PYTHON")" != "$(version "$venv/bin/python")" ]; then
    say "$venv was made with Python $(version "$venv/bin/python"), and PYTHON names $(version "$PYTHON")."
    say "Remove it (rm -r $venv) and start again, or name another folder: scripts/setup.sh FOLDER"
    exit 1
fi

say "Installing Gantry and what it needs into $venv (about 3 GB; a minute or a few, once)."
# Python compiles what it imports; compiling all that is installed, most of it never imported, takes half a minute.
"$venv/bin/python" -m pip install --quiet --no-compile -c constraints.txt -e '.[all]'
if ! "$venv/bin/python" -c 'import ctypes; ctypes.CDLL("libEGL.so.1"); ctypes.CDLL("libGL.so.1")' 2>/dev/null; then
    say "Note: videos are rendered with libEGL and libGL, and they are not installed; the rest works without."
    say "On Debian or Ubuntu:  sudo apt install libegl1 libgl1 libgl1-mesa-dri"
fi
say "Done. '$venv/bin/gantry --help' lists the commands."
