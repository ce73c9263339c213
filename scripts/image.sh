#!/usr/bin/env bash
# Builds the container image: scripts/image.sh [NAME], by default `tallystone`.
# TALLYSTONE_PROGRAM sets a program that is already built, CONTAINER_ENGINE an engine other than podman.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=${TALLYSTONE_PROGRAM:-}
if [ -z "$program" ]; then
  cargo build --release --locked -p tallystone
  program=${CARGO_TARGET_DIR:-target}/release/tallystone
fi
context=$(mktemp -d)
trap 'rm -r "$context"' EXIT
# The symbols of the program are three quarters of it.
strip -o "$context/tallystone" "$program"
engine=${CONTAINER_ENGINE:-podman}
format=()
# Podman's own format has no health check.
[ "$engine" != podman ] || format=(--format docker)
"$engine" build "${format[@]}" --file deploy/Containerfile --tag "${1:-tallystone}" "$context"
