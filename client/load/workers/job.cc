#include "client/load/workers/job.h"

#include <stdexcept>
#include <variant>

namespace castor::load {

Workload ShareOf(const Workload& workload, uint32_t index, uint32_t workers) {
  Workload share = workload;
  int64_t* cap = nullptr;
  if (auto* open = std::get_if<OpenLoop>(&share.load)) cap = &open->max_in_flight;
  if (auto* replay = std::get_if<Replay>(&share.load)) cap = &replay->max_in_flight;
  if (cap == nullptr || *cap == 0) return share;
  if (*cap < workers) {
    throw std::invalid_argument("a cap of " + std::to_string(*cap) +
                                " requests in flight cannot be divided among " +
                                std::to_string(workers) + " workers: use fewer workers");
  }
  *cap = *cap / workers + (index < *cap % workers ? 1 : 0);
  return share;
}

}  // namespace castor::load
