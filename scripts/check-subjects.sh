#!/usr/bin/env bash
# Checks that the subjects of new commits have at most 72 characters: of the last 20 commits that origin/main does not have, or if it
# has all, of the last 20. In a shallow clone it checks the commits that are there, and without a repository (a tarball) nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

characters_max=72
# In the locale C, bash would count bytes.
export LC_ALL=C.UTF-8

if ! have git || [ "$(git rev-parse --show-toplevel 2>/dev/null)" != "$(pwd -P)" ] || ! git rev-parse --quiet --verify HEAD >/dev/null; then
  say "No commits are here: their subjects are not checked."
  exit 0
fi
last=(git rev-list --no-merges --max-count 20 HEAD)
commits=$("${last[@]}" ^origin/main 2>/dev/null || true)
[ -n "$commits" ] || commits=$("${last[@]}")
failed=false
for commit in $commits; do
  subject=$(git show --no-patch --format=%s "$commit")
  if [ ${#subject} -gt $characters_max ]; then
    say "${commit:0:12} has a subject of ${#subject} characters, more than $characters_max: $subject"
    failed=true
  fi
done
! $failed
