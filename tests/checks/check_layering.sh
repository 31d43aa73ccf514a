#!/usr/bin/env bash
# Fails when a file includes a header that its layer must not include. engine/DESIGN.md explains the
# layers.
#   check_layering.sh [ROOT]    the tree to check (default: this checkout)
# Tests and benchmarks are outside the layers and include what they test.
set -euo pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

# folder | folders of ours that it may include, besides itself | outside libraries it may include
# Any folder may include libraries that have no name here (the standard library, nlohmann-json,
# OpenSSL). A file's layer is the longest folder in the table that contains it. Only folders named
# `cuda` may include CUDA, whatever their layer.
table='
engine/base      | -                                                                                                                                                         | absl
engine           | engine/base                                                                                                                                               | absl
engine/kernels   | -                                                                                                                                                         | -
engine/hf        | engine/base                                                                                                                                               | absl
engine/attention | engine/base engine engine/kernels                                                                                                                         | absl torch
engine/encoder   | engine/base engine engine/kernels engine/attention engine/hf                                                                                              | absl torch
engine/device    | engine/base engine engine/kernels engine/attention engine/encoder                                                                                         | absl torch
engine/residents | engine/base engine engine/attention engine/encoder                                                                                                        | absl
engine/requests  | engine/base engine engine/attention engine/encoder engine/residents                                                                                          | absl
engine/automatic | engine/base engine engine/kernels engine/attention engine/requests                                                                                        | absl torch
engine/ledger    | engine/base engine engine/attention engine/encoder engine/device engine/residents engine/requests engine/automatic                                           | absl
engine/forecast  | engine/base engine engine/attention engine/encoder engine/kernels engine/device engine/residents engine/requests engine/automatic engine/ledger              | absl
engine/loop      | engine/base engine engine/attention engine/encoder engine/device engine/residents engine/requests engine/automatic engine/ledger engine/forecast             | absl
engine/assembly  | engine/base engine engine/attention engine/encoder engine/device engine/residents engine/requests engine/automatic engine/ledger engine/forecast engine/loop | absl
server           | engine/base engine proto                                                                                                                                  | absl grpc prometheus log
client           | proto                                                                                                                                                     | absl grpc log
'

find engine server client -type f \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z |
  xargs -0 --no-run-if-empty grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]' |
  awk -v table="$table" '
    BEGIN {
      rows = split(table, row, "\n")
      for (i = 1; i <= rows; i++) {
        if (split(row[i], cell, "|") < 3) continue
        gsub(/^ +| +$/, "", cell[1])
        layers[cell[1]] = " " cell[1] cell[2] " "
        vendors[cell[1]] = " " cell[3] " "
      }
      layers["proto"] = " "
    }
    # The longest folder in the table that contains the path, or "".
    function LayerOf(path,   folder) {
      folder = path
      while (sub(/\/[^\/]*$/, "", folder)) if (folder in layers) return folder
      return ""
    }
    function VendorOf(header) {
      if (header ~ /^(ATen\/cuda|ATen\/native\/cuda|c10\/cuda|cuda|cub\/|cooperative_groups)/) return "cuda"
      if (header ~ /^(ATen|c10|caffe2|torch)\//) return "torch"
      if (header ~ /^(grpc|grpcpp|google\/protobuf)\//) return "grpc"
      if (header ~ /^(prometheus\/|boost\/beast|boost\/asio|rapidjson\/)/) return "prometheus"
      if (header ~ /^absl\//) return "absl"
      if (header ~ /^(spdlog|CLI|toml\+\+)\//) return "log"
      return ""
    }
    {
      match($0, /:[0-9]+:/)
      file = substr($0, 1, RSTART - 1)
      line = substr($0, RSTART + 1, RLENGTH - 2)
      header = $0
      sub(/^[^<"]*[<"]/, "", header)
      sub(/[>"].*/, "", header)
      from = LayerOf(file)
      includes++

      to = LayerOf(header)
      if (header ~ /^(castor\/v1|google\/rpc|grpc\/health|opentelemetry\/proto|xds\/data)\//) to = "proto"
      vendor = to == "" ? VendorOf(header) : ""
      bad = ""
      if (from == "") bad = "is in no layer that this check knows"
      else if (to != "" && index(layers[from], " " to " ") == 0) bad = "must not include " to "/"
      else if (to == "" && header ~ /^(tests|deploy)\//) bad = "must not include tests"
      else if (vendor == "cuda") { if (file !~ /\/cuda\//) bad = "must not include CUDA outside a cuda folder" }
      else if (vendor != "" && index(vendors[from], " " vendor " ") == 0) bad = "must not include " vendor
      if (bad != "") {
        printf "%s:%s: %s %s: \"%s\"\n", file, line, from, bad, header
        breaches++
      }
    }
    END {
      if (includes == 0) { print "check_layering: found no include to check"; exit 1 }
      if (breaches > 0) { printf "check_layering: %d breaches\n", breaches; exit 1 }
      printf "check_layering: %d includes, none against the table\n", includes
    }'
