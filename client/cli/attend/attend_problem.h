// The problem that `castor attend` sends: random tensors, or .npy files.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "client/client.h"
#include "client/shared_memory.h"

namespace castor::cli {

struct ProblemFlags {
  // Random: standard normal values, or structured ones, rounded to the type.
  std::vector<int64_t> lengths = {128, 77, 512};
  std::vector<int64_t> key_lengths{};  // empty: lengths
  int64_t heads = 8;
  int64_t head_dim = 64;
  int64_t kv_heads = 0;   // 0: heads
  int64_t value_dim = 0;  // 0: head_dim
  v1::DataType dtype = v1::FLOAT32;
  bool structured = false;  // rows around a few centres, as trained keys and queries lie
  uint64_t seed = 0;
  int64_t surrogate_tokens = 16;  // for kernel cast

  bool value_is_key_prefix = false;  // no values: the first value_dim elements of keys

  // From files, with `lengths` if given on the command line; empty: random.
  std::string query{}, key{}, value{};
  bool lengths_given = false;

  bool random() const { return query.empty(); }
};

// `lengths_given` is set when --lengths was parsed.
void AddProblemFlags(CLI::App* command, ProblemFlags* flags);

// Query, key, value and lengths of a request. Throws UsageError for files that cannot be read, and
// for random problems that are too large for a message (unless they go through shared memory) or
// for this machine's memory; this is checked before anything is allocated.
v1::AttendRequest MakeProblem(const ProblemFlags& flags, bool shared_memory);

// For kernel cast in a random problem: draws the surrogate tokens and the gate that the request
// does not have yet. Throws as above.
void DrawCastInputs(const ProblemFlags& flags, bool shared_memory, v1::AttendRequest* request);

// The tensors of a request and of its answer in shared memory, for castor attend --shared-memory.

// What the keys of this caller's objects must begin with.
client::Result<std::string> SharedKeyPrefix(client::Client& client);

class SharedProblem {
 public:
  // Copies the tensors of `request`, which has them inline, to shared memory under a key with this
  // beginning, with room for the output behind them. Throws UsageError when the system has no room.
  SharedProblem(const v1::AttendRequest& request, const std::string& key_prefix);

  const client::SharedMemory& memory() const { return memory_; }

  // The request with references for its tensors and for the output.
  const v1::AttendRequest& request() const { return request_; }

  // Copies the output that the server wrote into its answer, as if the message had carried it.
  void TakeOutput(v1::AttendResponse* response) const;

 private:
  v1::AttendRequest request_;
  client::SharedMemory memory_;
};

}  // namespace castor::cli
