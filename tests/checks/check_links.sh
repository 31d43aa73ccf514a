#!/usr/bin/env bash
# Fails when a tracked Markdown file links to a file, folder or heading that the checkout does not
# have, or has a line of prose longer than 100 columns.
#   check_links.sh [ROOT]
# Links with a scheme are not checked. Tables, headings, code, lines that are one long link, and
# benchmark logs may be wider.
set -euo pipefail
export LC_ALL=C # awk counts bytes, whichever awk it is

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
mapfile -t files < <(git ls-files '*.md')
[ ${#files[@]} -gt 0 ] || { echo "check_links: no file to check" >&2; exit 1; }

git ls-files | awk '
  # GitHub'"'"'s anchor for a heading; letters beyond ASCII keep their case.
  function Anchor(heading) {
    sub(/^#+ +/, "", heading)
    heading = tolower(heading)
    gsub(/[]!-,.\/:-@[\\^`{|}~]/, "", heading)
    gsub(/ /, "-", heading)
    return heading
  }
  # Resolves `target`, a link in `file`, without "." and "..".
  function Resolve(file, target,   parts, kept, n, i, path) {
    if (!sub(/[^\/]*$/, "", file)) file = ""
    n = split(file target, parts, "/")
    for (i = 1; i <= n; i++) {
      if (parts[i] == "" || parts[i] == ".") continue
      if (parts[i] == "..") kept--
      else path[++kept] = parts[i]
    }
    file = kept > 0 ? path[1] : ""
    for (i = 2; i <= kept; i++) file = file "/" path[i]
    return file
  }
  function Complain(at, problem) { print at ": " problem; faults++ }

  NR == FNR {  # the files that git tracks, and the folders above them
    known[$0]
    for (folder = $0; sub(/\/[^\/]*$/, "", folder);) known[folder]
    next
  }
  FNR == 1 { fenced = 0 }
  /^ *```/ { fenced = !fenced; next }
  fenced { next }
  /^#+ / { headings[FILENAME "#" Anchor($0)] }
  !/^ *[|#]/ && / [^ ]/ && FILENAME !~ /^tests\/bench\/logs\// {
    columns = $0
    gsub(/[\200-\277]/, "", columns)  # continuation bytes of UTF-8
    if (length(columns) > 100) Complain(FILENAME ":" FNR, length(columns) " columns")
  }
  {
    line = $0
    gsub(/`[^`]*`/, "", line)
    while (match(line, /\]\([^() ]+\)/)) {
      target = substr(line, RSTART + 2, RLENGTH - 3)
      line = substr(line, RSTART + RLENGTH)
      if (target ~ /^[a-z]+:/) continue
      at[++links] = FILENAME ":" FNR
      from[links] = FILENAME
      to[links] = target
    }
  }
  END {
    for (i = 1; i <= links; i++) {
      split(to[i], part, "#")
      path = part[1] == "" ? from[i] : Resolve(from[i], part[1])
      if (!(path in known)) Complain(at[i], "no " to[i])
      else if (part[2] != "" && !((path "#" part[2]) in headings)) Complain(at[i], "no heading " to[i])
    }
    if (faults > 0) exit 1
    printf "check_links: %d links\n", links
  }' - "${files[@]}"
