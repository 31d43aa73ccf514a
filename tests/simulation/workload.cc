#include "tests/simulation/workload.h"

namespace castor::simulation {

Duration AttentionTime(int64_t tokens) {
  const auto n = static_cast<double>(tokens);
  return Duration(static_cast<int64_t>(1000 * n + 6 * n * n));
}

std::function<Request(std::mt19937&)> Attention(int64_t low, int64_t high, int keys,
                                                std::optional<Duration> deadline) {
  return [=](std::mt19937& random) {
    Request request;
    request.tokens = std::uniform_int_distribution<int64_t>(low, high)(random);
    request.work = AttentionTime(request.tokens);
    request.batch_key = std::to_string(random() % static_cast<uint32_t>(keys));
    request.deadline = deadline;
    return request;
  };
}

}  // namespace castor::simulation
