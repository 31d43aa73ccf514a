// An engine with an answer cache, and a model whose answers have rows.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/unit/loop/engine_fixture.h"

namespace castor {

inline constexpr int64_t kCacheRoom = int64_t{1} << 20;

// Has rows of some width, and reads lengths, types and spans of ids as the real one does.
class RowsModel : public FakeModel {
 public:
  RowsModel(std::string name, int64_t width)
      : FakeModel(std::move(name)), info_(FakeModel::info()) {
    info_.hidden_size = width;
    info_.outputs = {EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings};
    info_.tasks = {"one", "two"};
  }

  const ModelInfo& info() const override { return info_; }

  absl::StatusOr<bool> PrepareSome(const EncodeRequest& request, const encoder::Slice& slice,
                                   encoder::Prepared* prepared) const override {
    const auto* const tokens = std::get_if<TokenInput>(&request.input);
    if (tokens == nullptr) return FakeModel::PrepareSome(request, slice, prepared);
    prepared->ids = tokens->ids;
    prepared->type_ids = tokens->type_ids;
    for (const int64_t length : encoder::LengthsOf(tokens->lengths, std::ssize(tokens->ids))) {
      prepared->cu_seqlens.push_back(prepared->cu_seqlens.back() + static_cast<int32_t>(length));
      prepared->truncated.push_back(false);
    }
    for (const Spans::Range& range : request.spans.ranges) {
      prepared->spans.push_back(
          {static_cast<int32_t>(range.begin), static_cast<int32_t>(range.end), false});
    }
    return true;
  }

 private:
  ModelInfo info_;
};

class AnswerCacheTest : public EngineFixture {
 protected:
  AnswerCacheTest() { options_.answer_cache = kCacheRoom; }
  ~AnswerCacheTest() override {
    script_->Open();
    engine_.reset();
  }

  void StartWithModel(int64_t width = 4) {
    script_->make_model = [width](const ModelSource& source) {
      return std::make_shared<RowsModel>(source.name, width);
    };
    options_.models.push_back({"m", "present"});
    Start();
  }

  static EncodeRequest Ids(std::vector<int64_t> ids, std::string tenant = "") {
    EncodeRequest request;
    request.input = TokenInput{std::move(ids), {}, {}};
    request.call.tenant = std::move(tenant);
    return request;
  }

  absl::StatusOr<EncodeResult> Run(EncodeRequest request) {
    std::promise<absl::StatusOr<EncodeResult>> told;
    auto ticket = engine_->Submit(std::move(request), [&](absl::StatusOr<EncodeResult> result) {
      told.set_value(std::move(result));
    });
    if (!ticket.ok()) return ticket.status();
    return told.get_future().get();
  }
  bool Hits(EncodeRequest request) {
    const auto result = Run(std::move(request));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() && result->report.batch.cached;
  }

  AnswerCacheStats Stats(const std::string& model = "m") const {
    for (const WorkStats& work : engine_->stats().work) {
      if (work.model == model) return work.cache;
    }
    return {};
  }

  static std::vector<std::byte> BytesOf(const TensorResult& tensor) {
    return {tensor.data.bytes().begin(), tensor.data.bytes().end()};
  }
};

}  // namespace castor
