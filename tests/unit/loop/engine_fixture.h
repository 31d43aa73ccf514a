// An engine on a fake device, and helpers for its tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/assembly/internal.h"
#include "tests/unit/loop/fake_clock.h"
#include "tests/unit/loop/fake_device.h"

namespace castor {

// Collects answers by the id that the test gives each request. Thread-safe.
template <typename Result>
class Answers {
 public:
  auto Slot(int id) {
    return [this, id](absl::StatusOr<Result> result) {
      MutexLock lock(mu_);
      answers_.emplace(id, std::move(result));
      changed_.NotifyAll();
    };
  }

  // Blocks until `id` is answered. The reference is valid as long as this object.
  const absl::StatusOr<Result>& Get(int id) {
    MutexLock lock(mu_);
    while (answers_.count(id) == 0) changed_.Wait(mu_);
    return answers_.find(id)->second;
  }

  // Drops all answers, with the memory and the budget that they hold.
  void Clear() {
    MutexLock lock(mu_);
    answers_.clear();
  }

  // Drops the answer, with the memory and the budget that it holds.
  void Forget(int id) {
    Get(id);
    MutexLock lock(mu_);
    answers_.erase(id);
  }

  size_t count(int id) const {
    MutexLock lock(mu_);
    return answers_.count(id);
  }
  size_t size() const {
    MutexLock lock(mu_);
    return answers_.size();
  }

 private:
  mutable Mutex mu_;
  CondVar changed_;
  std::multimap<int, absl::StatusOr<Result>> answers_ ABSL_GUARDED_BY(mu_);
};

class EngineFixture : public testing::Test {
 protected:
  // Lets everything pending finish, so that the engine's destructor returns.
  ~EngineFixture() override { script_->Open(); }

  void Start() {
    auto engine = TryStart(options_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  absl::StatusOr<std::unique_ptr<Engine>> TryStart(const EngineOptions& options) {
    EngineParts parts;
    parts.open_device =
        [script = script_](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<Device>> {
      if (!script->open_status.ok()) return script->open_status;
      return std::make_unique<FakeDevice>(script);
    };
    parts.clock = clock_;
    parts.warm_up = warm_up_;
    parts.predict = predict_;
    return CreateEngineWithParts(options, std::move(parts));
  }

  // A self-attention request of one sequence, all elements `mark`. Lives until the test ends.
  AttentionRequest Request(int mark, int64_t tokens = 4, int64_t heads = 1, int64_t dim = 8) {
    auto& data = data_.emplace_back(std::make_unique<std::vector<float>>(
        static_cast<size_t>(tokens * heads * dim), static_cast<float>(mark)));
    const auto bytes = std::as_bytes(std::span(*data));
    AttentionRequest request;
    request.query = {DType::kFloat32, {tokens, heads, dim}, {bytes}};
    request.key = request.query;
    request.value = request.query;
    return request;
  }

  static EncodeRequest TextRequest(std::vector<std::string_view> texts) {
    EncodeRequest request;
    request.input = TextInput{std::move(texts), {}, false};
    return request;
  }

  Ticket Submit(AttentionRequest request, int id) {
    auto ticket = engine_->Submit(std::move(request), answers_.Slot(id));
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket.value_or(0);
  }

  // Keeps the device busy with an extra request (mark and id -1), so that others queue up.
  void Occupy() {
    const size_t batches = script_->batches().size();
    script_->Close();
    Submit(Request(-1, 1, 1, 4), -1);
    script_->WaitForBatches(batches + 1);
  }

  Reason ReasonOfAnswer(int id) { return ReasonOf(answers_.Get(id).status()); }

  uint64_t Refusals(Reason reason) const {
    for (const RefusalStats& row : engine_->stats().refusals) {
      if (row.reason == reason) return row.count;
    }
    return 0;
  }

  EngineOptions options_;
  bool warm_up_ = false;
  std::function<PredictedTime(int64_t tokens)> predict_;
  std::shared_ptr<FakeScript> script_ = std::make_shared<FakeScript>();
  std::shared_ptr<FakeClock> clock_ = std::make_shared<FakeClock>();
  Answers<AttentionResult> answers_;
  Answers<EncodeResult> encodings_;
  std::vector<std::unique_ptr<std::vector<float>>> data_;
  std::unique_ptr<Engine> engine_;  // last: its completions use the rest
};

using Marks = FakeScript::Marks;

}  // namespace castor
