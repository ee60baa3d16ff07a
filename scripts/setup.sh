#!/bin/sh
# Makes .venv hold Murho and its development tools, and does nothing when it does already. `make` runs it.
#
#   scripts/setup.sh            Murho with all extras and the development tools
#   scripts/setup.sh --serving  what `make serve` needs; all of it where the development tools were installed before
#
#   PYTHON           the interpreter to make .venv with; by default the first suitable one that is found
#   TORCH_VARIANT    cpu or cuda; by default what .venv was last set up with, cpu the first time
#   TORCH_INDEX_URL  see scripts/install.py
set -eu
cd "$(dirname "$0")/.."
here=$(pwd -P)
# What was installed and where; written last, so a set-up that broke off is taken up again.
all=.venv/.set-up serving=.venv/.set-up-serving
stamp=$all
if [ "${1:-}" = --serving ] && ! [ -e "$all" ]; then stamp=$serving; fi
variant=${TORCH_VARIANT:-$(cut -d ' ' -f 1 "$all" 2>/dev/null || cut -d ' ' -f 1 "$serving" 2>/dev/null || echo cpu)}

up_to_date() {
    [ "$(cat "$stamp" 2>/dev/null)" = "$variant $here" ] && [ -x .venv/bin/murho ] && .venv/bin/python -c '' 2>/dev/null &&
        [ -z "$(find pyproject.toml client/pyproject.toml constraints.txt scripts/setup.sh scripts/install.py -newer "$stamp")" ]
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
makes_environments() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# Scripts in an environment name its Python by an absolute path: one that was moved or copied is no use.
environment_works() {
    grep -qF "$here/.venv" .venv/bin/activate 2>/dev/null && new_enough .venv/bin/python &&
        .venv/bin/python -m pip --version >/dev/null 2>&1
}

find_python() {
    python='' without_venv=''
    # 3.11 first: the version that the pins are tested with.
    set -- python3.11 python3.12 python3.13 python3 python3.14 python
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; fi
    for candidate in "$@"; do
        new_enough "$candidate" || continue
        if makes_environments "$candidate"; then python=$candidate && return; fi
        without_venv=${without_venv:-$candidate}
    done
    if [ -n "$without_venv" ]; then
        version=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "$without_venv cannot make virtual environments: its venv or ensurepip module is missing." >&2
        echo "On Debian and Ubuntu: sudo apt install python$version-venv, then run the same command again." >&2
    elif [ -n "${PYTHON:-}" ]; then
        echo "PYTHON=$PYTHON is no Python 3.11 or newer." >&2
    else
        echo "Murho needs Python 3.11 or newer, and none was found (found: $(python3 --version 2>&1 || true))." >&2
        echo "Install one (https://www.python.org/downloads/), or name it: make setup PYTHON=/path/to/python3.12" >&2
    fi
    exit 1
}

if up_to_date; then exit 0; fi
if ! environment_works; then
    find_python
    if [ -e .venv ]; then echo "Replacing .venv: it does not work (it was moved, or its Python is gone)."; fi
    echo "Set-up, step 1 of 2: creating .venv with $("$python" --version) ..."
    "$python" -m venv --clear .venv
fi
rm -f "$all" "$serving"
echo "Set-up, step 2 of 2: installing into .venv (the first time this downloads about 400 MB) ..."
if [ "$stamp" = "$serving" ]; then set -- --serving; else set --; fi
TORCH_VARIANT=$variant .venv/bin/python scripts/install.py "$@"
echo "$variant $here" >"$stamp"
echo "Set-up done."
