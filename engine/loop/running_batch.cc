#include "engine/loop/running_batch.h"

#include <utility>

#include "engine/base/guarded.h"

namespace castor {

RunningBatch::RunningBatch(JobList jobs) noexcept : jobs_(std::move(jobs)) {
  if (jobs_.front()->operation == Operation::kAttend) {
    attention_.spec = std::get<AttentionWork>(jobs_.front()->work).resolved.spec;
    attention_.requests.reserve(jobs_.size());
    for (const auto& job : jobs_) {
      attention_.requests.push_back(std::get<AttentionWork>(job->work).problem);
    }
  } else {
    const auto& first = std::get<EncodeWork>(jobs_.front()->work);
    encode_.model = first.model->encoder;
    encode_.kernel = first.kernel;
    encode_.items.reserve(jobs_.size());
    for (const auto& job : jobs_) {
      for (const OutputWork& output : std::get<EncodeWork>(job->work).outputs) {
        encode_.items.push_back(output.item);
      }
    }
  }
}

absl::Status RunningBatch::Start(Device& device, RunControl& control) {
  auto execution = Guarded([&] {
    return jobs_.front()->operation == Operation::kAttend ? device.Launch(attention_, control)
                                                          : device.Launch(encode_, control);
  });
  if (!execution.ok()) return execution.status();
  execution_ = *std::move(execution);
  return absl::OkStatus();
}

absl::StatusOr<ExecutionTimes> RunningBatch::Wait() {
  return Guarded([&] { return execution_->Wait(); });
}

}  // namespace castor
