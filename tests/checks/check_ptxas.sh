#!/usr/bin/env bash
# Prints what the assembler reports for every CUDA kernel, as a table. Fails when a kernel could not
# be launched or spills more registers than was accepted. Needs no GPU.
#   check_ptxas.sh SOURCES FOLDER   FOLDER holds the *.ptxas that keep_ptxas_report.sh left
set -euo pipefail

sources=$1 folder=$2
most_spilled=44    # bytes of spill stores per kernel; raise it only with a measurement
most_static=49152  # bytes of static shared memory that a block may have

# With launch bounds the assembler fits the registers to the block; without them a launch may fail.
unbounded=$(grep -rnE --include='*.cu' --include='*.cuh' '__global__' "$sources" |
  grep -v '__launch_bounds__' || true)
if [ -n "$unbounded" ]; then
  printf 'check_ptxas: kernels without __launch_bounds__:\n%s\n' "$unbounded" >&2
  exit 1
fi

find "$folder" -name '*.ptxas' -print0 | sort -z | xargs -0 --no-run-if-empty cat |
  awk -v most_spilled="$most_spilled" -v most_static="$most_static" '
    /Compiling entry function/ { split($0, part, "\047"); name = part[2]; arch = part[4] }
    /bytes stack frame/ { stack = $1; spilled = $5 }
    /Used [0-9]+ registers/ {
      if (name == "") next  # a function that is not a kernel
      match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
      shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
      verdict = ""
      if (spilled + 0 > most_spilled) verdict = "  SPILLS TOO MUCH"
      if (shared > most_static) verdict = verdict "  TOO MUCH SHARED MEMORY"
      if (verdict != "") bad++
      printf "%9d %8d %7d %9d  %s %s%s\n", registers, spilled, stack, shared, arch, name, verdict
      kernels++
      if (registers + 0 > most) most = registers + 0
      if (spilled + 0 > worst) worst = spilled + 0
      name = ""
    }
    BEGIN { print "registers  spilled   stack    shared  kernel" }
    END {
      printf "check_ptxas: %d kernels, at most %d registers and %d bytes spilled\n", kernels, most, worst
      if (kernels == 0) { print "check_ptxas: found no report"; exit 1 }
      if (bad > 0) exit 1
    }' | c++filt
