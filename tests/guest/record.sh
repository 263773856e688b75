#!/bin/sh
# Records a workload on every kernel that setup.sh got, in the layout of the recordings that the
# model is compared with: trace, and the state of all pages before and after.
#
#     tests/guest/record.sh DIRECTORY
set -eu
[ $# = 1 ] || { echo "usage: $0 DIRECTORY" >&2; exit 2; }
mkdir -p "$1"
HIGHORDER_RECORD_DIR=$(cd "$1" && pwd)
export HIGHORDER_RECORD_DIR
cd "$(dirname "$0")/../.."
sh tests/guest/setup.sh
cargo build -p highorder-snapshot --example guest_init
exec cargo test -p highorder-snapshot --test guest record -- --ignored --nocapture
