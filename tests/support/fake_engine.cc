#include "tests/support/fake_engine.h"

#include <chrono>
#include <utility>

#include "engine/base/error.h"
#include "engine/tensor_reader.h"
#include "tests/support/sanitizer.h"

namespace castor {
namespace {

constexpr std::chrono::milliseconds kPatience = Patience(std::chrono::seconds(20));

WorkStats Work(const char* operation, const char* kernel, const char* model) {
  WorkStats work;
  work.operation = operation;
  work.kernel = kernel;
  work.model = model;
  work.requests = {{"vanilla", 0}};
  const HistogramSnapshot empty{{1.0}, {0, 0}, 0};
  work.queue_seconds = work.copy_in_seconds = work.compute_seconds = work.copy_out_seconds = empty;
  work.batch_requests = work.batch_tokens = empty;
  return work;
}

// A result that copies `input`, so that it outlives the request's tensors.
absl::StatusOr<TensorResult> CopyOf(const TensorInput& input, HostPool& pool) {
  TensorResult result;
  result.dtype = input.dtype;
  result.shape = input.shape;
  result.data = *pool.Allocate(static_cast<size_t>(input.size_bytes()));
  absl::Status read = TensorReader(input, "value").Read(result.data.size(), result.data.data());
  if (!read.ok()) return read;
  return result;
}

int64_t Sequences(const EncodeRequest& request) {
  if (const auto* texts = std::get_if<TextInput>(&request.input)) {
    return static_cast<int64_t>(texts->texts.size());
  }
  if (const auto* tokens = std::get_if<TokenInput>(&request.input)) {
    return tokens->lengths.empty() ? 1 : static_cast<int64_t>(tokens->lengths.size());
  }
  return 1;
}

}  // namespace

FakeEngine::FakeEngine() : pool_(MakeHostPool(SystemMemory(), 64 << 20)) {
  info_.device = {"fake", "no processor at all", 1 << 20, 1, "fake 1"};
  info_.kernels = {{KernelName::kVanilla, {DType::kFloat32}, "fake"}};
  ModelInfo model;
  model.name = "tiny";
  model.family = "bert";
  model.hidden_size = 2;
  model.layers = 1;
  model.heads = 1;
  model.max_tokens = 16;
  model.kernels = {KernelName::kVanilla};
  model.outputs = {EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings};
  SetModels({model});
  worker_ = std::thread([this] { Work(); });
}

namespace {

// A report's times, of a request that ran alone for the second half of its stay.
class Times {
 public:
  explicit Times(const CallContext& call)
      : submitted_(std::chrono::steady_clock::now()),
        received_(call.received.value_or(submitted_)) {}

  void Fill(ExecutionReport* report) const {
    static std::atomic<uint64_t> batches = 0;
    const TimePoint now = std::chrono::steady_clock::now();
    BatchReport& batch = report->batch;
    batch.id = ++batches;
    batch.begun = submitted_ + (now - submitted_) / 2;
    batch.ended = now;
    const double ran = Microseconds(batch.begun, now);
    report->timing = {.decode_us = Microseconds(received_, submitted_),
                      .queue_us = Microseconds(submitted_, batch.begun),
                      .copy_in_us = ran / 4,
                      .compute_us = ran / 2,
                      .copy_out_us = ran / 4};
  }

 private:
  TimePoint submitted_;
  TimePoint received_;
};

}  // namespace

FakeEngine::~FakeEngine() {
  Release();
  Drain(std::chrono::steady_clock::now() + kPatience);
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  worker_.join();
}

void FakeEngine::SetHeld(bool waiting, bool running) {
  MutexLock lock(mu_);
  waiting_held_ = waiting;
  running_held_ = running;
  changed_.NotifyAll();
}

void FakeEngine::RefuseWith(absl::Status status) {
  MutexLock lock(mu_);
  refusal_ = std::move(status);
}

void FakeEngine::FailWith(absl::Status status) {
  MutexLock lock(mu_);
  failure_ = std::move(status);
}

void FakeEngine::Break() {
  MutexLock lock(mu_);
  broken_ = true;
  failure_ = refusal_ = MakeError(Reason::kInternal, "the device is gone");
}

template <typename Condition>
bool FakeEngine::Await(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  MutexLock lock(mu_);
  while (!condition()) {
    if (!changed_.WaitUntil(mu_, deadline)) return condition();
  }
  return true;
}

bool FakeEngine::AwaitWaiting(int64_t requests) {
  return Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return static_cast<int64_t>(waiting_.size()) == requests;
  });
}

bool FakeEngine::AwaitRunning() {
  return Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return held_running_; });
}

bool FakeEngine::AwaitCancels(int64_t calls) {
  return Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return cancels_ >= calls; });
}

int64_t FakeEngine::admitted() const {
  MutexLock lock(mu_);
  return admitted_;
}

int64_t FakeEngine::answered() const {
  MutexLock lock(mu_);
  return answered_;
}

std::optional<CallContext> FakeEngine::last_call() const {
  MutexLock lock(mu_);
  return last_call_;
}

std::optional<std::map<std::string, TenantTerms>> FakeEngine::tenants() const {
  MutexLock lock(mu_);
  return tenants_;
}

void FakeEngine::SetTenants(std::map<std::string, TenantTerms> tenants) {
  MutexLock lock(mu_);
  tenants_ = std::move(tenants);
}

absl::StatusOr<Ticket> FakeEngine::Admit(const CallContext& call,
                                         absl::AnyInvocable<void(const absl::Status&) &&> answer) {
  MutexLock lock(mu_);
  if (!refusal_.ok()) return refusal_;
  if (draining_) return MakeError(Reason::kDraining, "draining");
  last_call_ = call;
  const Ticket ticket = static_cast<Ticket>(++admitted_);
  waiting_.push_back({ticket, std::move(answer)});
  changed_.NotifyAll();
  return ticket;
}

absl::StatusOr<Ticket> FakeEngine::Submit(AttentionRequest request, AttentionCompletion done) {
  AttentionResult result;
  auto output = CopyOf(request.value, *pool_);
  if (!output.ok()) return output.status();
  result.output = *std::move(output);
  result.report.kernel.device = "fake";
  result.report.kernel.backend = "fake";
  result.report.batch.requests = 1;
  return Admit(request.call, [done = std::move(done), result = std::move(result),
                              times = Times(request.call)](const absl::Status& status) mutable {
    if (status.ok()) {
      times.Fill(&result.report);
      std::move(done)(std::move(result));
    } else {
      std::move(done)(status);
    }
  });
}

absl::StatusOr<Ticket> FakeEngine::Submit(EncodeRequest request, EncodeCompletion done) {
  const int64_t rows = Sequences(request);
  EncodeResult result;
  result.model = "tiny";
  result.output.shape = {rows, 2};
  result.output.data = *pool_->Allocate(static_cast<size_t>(rows) * 2 * sizeof(float));
  for (int64_t i = 0; i < 2 * rows; ++i) result.output.data.as<float>()[i] = static_cast<float>(i);
  result.lengths.assign(static_cast<size_t>(rows), 1);
  result.token_counts.assign(static_cast<size_t>(rows), 3);
  result.truncated.assign(static_cast<size_t>(rows), false);
  return Admit(request.call, [done = std::move(done), result = std::move(result),
                              times = Times(request.call)](const absl::Status& status) mutable {
    if (status.ok()) {
      times.Fill(&result.report);
      std::move(done)(std::move(result));
    } else {
      std::move(done)(status);
    }
  });
}

void FakeEngine::Cancel(Ticket ticket) {
  std::optional<Entry> cancelled;
  {
    MutexLock lock(mu_);
    ++cancels_;
    for (auto entry = waiting_.begin(); entry != waiting_.end(); ++entry) {
      if (entry->ticket != ticket) continue;
      cancelled = std::move(*entry);
      waiting_.erase(entry);
      ++answered_;
      break;
    }
    changed_.NotifyAll();
  }
  if (cancelled) std::move(cancelled->answer)(MakeError(Reason::kCancelled, "cancelled"));
}

EngineStats FakeEngine::stats() const {
  if (stats_.has_value()) return *stats_;
  EngineStats stats;
  stats.work = {castor::Work("attend", "vanilla", ""), castor::Work("encode", "", "tiny")};
  MutexLock lock(mu_);
  stats.load.inflight_requests = admitted_ - answered_;
  stats.device_healthy = !broken_;
  return stats;
}

Progress FakeEngine::progress() const {
  MutexLock lock(mu_);
  return {running_, static_cast<uint64_t>(answered_)};
}

bool FakeEngine::healthy() const {
  MutexLock lock(mu_);
  return !broken_;
}

bool FakeEngine::Drain(TimePoint deadline) {
  std::deque<Entry> left;
  {
    MutexLock lock(mu_);
    draining_ = true;
    while (!waiting_.empty() || running_) {
      if (!changed_.WaitUntil(mu_, deadline)) break;
    }
    if (waiting_.empty() && !running_) return true;
    left.swap(waiting_);
    answered_ += static_cast<int64_t>(left.size());
  }
  for (Entry& entry : left) std::move(entry.answer)(MakeError(Reason::kDraining, "too late"));
  return false;
}

void FakeEngine::Work() {
  for (;;) {
    Entry entry;
    absl::Status failure;
    {
      MutexLock lock(mu_);
      while (!stopping_ && (waiting_.empty() || waiting_held_)) changed_.Wait(mu_);
      if (stopping_) return;
      entry = std::move(waiting_.front());
      waiting_.pop_front();
      running_ = true;
      held_running_ = running_held_;
      changed_.NotifyAll();
      while (running_held_) changed_.Wait(mu_);
      held_running_ = false;
      failure = failure_;
    }
    std::move(entry.answer)(failure);
    MutexLock lock(mu_);
    ++answered_;
    running_ = false;
    changed_.NotifyAll();
  }
}

}  // namespace castor
