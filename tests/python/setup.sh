#!/bin/sh
# Gets what the examples of docs/record.md need: a virtual environment in the build's folder (target/python) with the
# packages of requirements.txt. Installs only what is missing.
#
# Where something cannot be had it says so and ends with 0: the test then skips, naming it.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
environment=${CARGO_TARGET_DIR:-$here/../../target}/python

missing() {
    echo "setup.sh: $1; the test of docs/record.md's examples will be skipped" >&2
    exit 0
}

# What was installed is noted beside it, so that a change of the list is installed anew.
cmp -s "$here/requirements.txt" "$environment/installed.txt" && exit 0
command -v python3 >/dev/null 2>&1 || missing "there is no python3"
python3 -m venv --clear "$environment" >/dev/null 2>&1 ||
    missing "python3 makes no virtual environment (package python3-venv)"
timeout 900 "$environment/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
    --requirement "$here/requirements.txt" || missing "pip cannot install tests/python/requirements.txt"
cp "$here/requirements.txt" "$environment/installed.txt"
