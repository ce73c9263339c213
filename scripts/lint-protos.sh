#!/usr/bin/env bash
# Checks the protocol files with `buf lint` by the rules of proto/buf.yaml. npm installs buf, in the version that
# proto/package.json pins, below target/. Where npm is missing and apt-get cannot install it, nothing is checked; in CI (the variable
# CI is set) that is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

if ! have npm && ! { can_apt && apt_install npm; }; then
  say "npm is missing: the protocol files are not checked with buf lint."
  [ -z "${CI:-}" ] || exit 1
  exit 0
fi
mkdir -p "${CARGO_TARGET_DIR:-target}/proto-tools"
tools=$(cd "${CARGO_TARGET_DIR:-target}/proto-tools" && pwd)
if ! cmp --silent proto/package.json "$tools/installed.json"; then
  cp proto/package.json "$tools/package.json"
  # buf's program is in the package itself; its install script only moves it.
  npm install --prefix "$tools" --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel=error >&2
  cp proto/package.json "$tools/installed.json"
fi
cd proto
"$tools/node_modules/.bin/buf" lint
say "buf lint: no findings."
