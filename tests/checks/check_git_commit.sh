#!/usr/bin/env bash
# Shows that the header with the commit follows the checkout and is not rewritten needlessly.
# $1: WriteGitCommit.cmake
set -euo pipefail

script=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
header=$work/generated/git_commit.h
export GIT_CEILING_DIRECTORIES=$work GIT_CONFIG_GLOBAL=/dev/null
unset CASTOR_GIT_COMMIT GIT_DIR GIT_WORK_TREE

write() { cmake "-DSOURCE_DIR=$tree" "-DOUTPUT=$header" -P "$script"; }
commit() {
  git -C "$tree" -c user.name=test -c user.email=test@localhost commit -q --allow-empty -m "$1"
}
expect() { # $1: the commit that the header should name; $2: when
  [ "$(cat "$header")" = "#define CASTOR_GIT_COMMIT \"$1\"" ] && return
  printf 'check_git_commit: %s: wanted %s, got: %s\n' "$2" "$1" "$(cat "$header")"
  exit 1
}
head_of_tree() { git -C "$tree" rev-parse --short=12 HEAD; }

mkdir "$tree"
write
expect unknown "outside a checkout"

git -C "$tree" init -q
write
expect unknown "before the first commit"

commit first
write
expect "$(head_of_tree)" "after the first commit"

touch -d '2001-01-01' "$header"
write
if [ "$(date -r "$header" +%Y)" != 2001 ]; then
  echo "check_git_commit: the same commit was written again"
  exit 1
fi

commit second
write
expect "$(head_of_tree)" "after the second commit"

CASTOR_GIT_COMMIT=0123456789ab write
expect 0123456789ab "with CASTOR_GIT_COMMIT"
