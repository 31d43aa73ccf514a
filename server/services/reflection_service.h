// gRPC's server reflection, in both of its versions: which services there are, and the descriptors
// that generic clients need to call them. gRPC's own plugin would not do: it asks no Authorizer,
// and gives a thread to each stream.
//
// A stream costs little and ends: there are at most kStreams of them, each has one answer in flight
// and reads on only when that has been sent; the table of calls ends one that asks nothing, or does
// not take its answer, within its transfer time; and Shutdown ends the rest.
//
// Any thread may call anything. One lock guards whose turn it is on each stream; nothing is called
// under it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "server/services/reflection_answers.h"
#include "server/transport/call_table.h"
#include "server/transport/message_call.h"

namespace castor::server {

class ReflectionService final : public MessageService {
 public:
  // `services` are the other services' full names. `calls` and `authorizer` must outlive the
  // service.
  ReflectionService(std::vector<std::string> services, CallTable& calls,
                    const Authorizer& authorizer);

  // Ends every stream that waits for its caller, and each other one after its answer. New ones are
  // refused.
  void Shutdown();

  static constexpr size_t kStreams = 128;

 private:
  class Stream;

  // Enters a stream, or says why it must be refused.
  absl::Status Add(Stream& stream) ABSL_LOCKS_EXCLUDED(mu_);

  CallTable& calls_;
  const ReflectionAnswers answers_;

  Mutex mu_;
  std::set<Stream*> streams_ ABSL_GUARDED_BY(mu_);  // those that have not been finished
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace castor::server
