#!/usr/bin/env bash
# Checks that the subjects of commits have at most 72 characters: of all commits after the base, except those that were longer before
# this was checked of all. In a shallow clone without the base it checks the commits that are there, and without a repository (a
# tarball) nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

characters_max=72
base=1edf7bb4a0095251e426a257d929c929de7b02f2
# Their hashes are in clones and in documents, so they stay as they are.
excepted="
a2b2617b68d241e59776e285c658dbf43ba0b0de
5ced36cfac8e625001164b6205e3e4684cea7d2e
0c04fbba1eff94783dc16cb5d5717f97e06868d9
fcd481fbd28e8cf954eac3927414ff0446b3d8ca
e251d8663694fee0136d1d6cb1952de44c19b37e
b31b9d98abfecb82e9319a55ab1dbfc6340dc327
cbda4eb13ded98e777f153d4a9c2bba30598c211
f2bbf0a058448ccf401e1688b71a470cc9bccdf9
650e6170986b1e6104cfb588179e9388853b8754
"
# In the locale C, bash would count bytes.
export LC_ALL=C.UTF-8

if ! have git || [ "$(git rev-parse --show-toplevel 2>/dev/null)" != "$(pwd -P)" ] || ! git rev-parse --quiet --verify HEAD >/dev/null; then
  say "No commits are here: their subjects are not checked."
  exit 0
fi
range=(HEAD)
if git cat-file -e "$base^{commit}" 2>/dev/null; then
  range+=("^$base")
fi
commits=$(git log --no-merges --format='%H %s' "${range[@]}")
failed=false
while read -r commit subject; do
  if [ ${#subject} -gt $characters_max ] && [[ $excepted != *"$commit"* ]]; then
    say "${commit:0:12} has a subject of ${#subject} characters, more than $characters_max: $subject"
    failed=true
  fi
done <<<"$commits"
! $failed
