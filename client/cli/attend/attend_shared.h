// The tensors of a request and of its answer in shared memory, for castor attend --shared-memory.
#pragma once

#include "castor/v1/attention.pb.h"
#include "client/client.h"
#include "client/shared_memory.h"

namespace castor::cli {

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
