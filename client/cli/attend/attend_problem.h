// The problem that `castor attend` sends: random tensors, or .npy files.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"

namespace castor::cli {

struct ProblemFlags {
  // A random problem: standard normal values, or structured ones, rounded to the type.
  std::vector<int64_t> lengths = {128, 77, 512};
  std::vector<int64_t> key_lengths{};  // empty: lengths
  int64_t heads = 8;
  int64_t head_dim = 64;
  int64_t kv_heads = 0;   // 0: heads
  int64_t value_dim = 0;  // 0: head_dim
  v1::DataType dtype = v1::FLOAT32;
  bool structured = false;  // rows around a few centres, like trained keys and queries
  uint64_t seed = 0;
  int64_t surrogate_tokens = 16;  // for kernel cast

  // A problem from files, with `lengths` if --lengths was given. Empty: a random problem.
  std::string query{}, key{}, value{};
  bool lengths_given = false;

  bool random() const { return query.empty(); }
};

// `lengths_given` is set when --lengths was parsed.
void AddProblemFlags(CLI::App* command, ProblemFlags* flags);

// Query, key, value and lengths of a request. Throws UsageError for files that cannot be read, and
// for random problems that exceed a message or this machine's memory; their size is checked before
// anything is allocated.
v1::AttendRequest MakeProblem(const ProblemFlags& flags);

// For kernel cast in a random problem: draws the surrogate tokens and the gate that the request
// does not have yet. Throws as above.
void DrawCastInputs(const ProblemFlags& flags, v1::AttendRequest* request);

}  // namespace castor::cli
