#include "tests/bench/load/closed_loop.h"

#include <atomic>
#include <cstdint>
#include <thread>

namespace castor::bench {

double MeasureCapacity(Caller& caller, const char* method,
                       const std::vector<grpc::ByteBuffer>& requests, int window,
                       std::chrono::duration<double> length) {
  std::atomic<size_t> next = 0;
  std::atomic<int64_t> ok = 0;
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(length);
  std::vector<std::thread> clients;
  for (int i = 0; i < window; ++i) {
    clients.emplace_back([&] {
      while (Clock::now() < end) {
        const grpc::ByteBuffer& request = requests[next.fetch_add(1) % requests.size()];
        const Answer answer =
            caller.CallAndWait(method, request, {.deadline = end + std::chrono::seconds(10)});
        if (answer.code == grpc::StatusCode::OK && answer.ended < end) ok.fetch_add(1);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  return static_cast<double>(ok.load()) / length.count();
}

}  // namespace castor::bench
