// gRPC's server reflection, in both of its versions: which services there are, and the descriptors
// that generic clients need to call them. gRPC's own plugin would not do: it asks no Authorizer,
// and gives a thread to each stream.
//
// A stream costs little and ends: there are at most kStreams of them, each has one answer in flight
// and reads on only when that has been sent; otherwise it is a MessageStream like others. Only the
// drain does not wait for it. Any thread may call anything.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "server/services/call.h"
#include "server/services/reflection_answers.h"
#include "server/transport/message_call.h"

namespace castor::server {

class ReflectionService final : public MessageService {
 public:
  // `names` are the other services' full names.
  ReflectionService(std::vector<std::string> names, const ServiceContext& services);

  static constexpr size_t kStreams = 128;

 private:
  class Stream;

  const ReflectionAnswers answers_;
  std::atomic<size_t> streams_ = 0;
};

}  // namespace castor::server
