#include "engine/encoder/families/static_embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/network/layers.h"
#include "engine/kernel_table.h"

namespace castor::encoder {
namespace {

class Table final : public Body {
 public:
  explicit Table(at::Tensor rows) : rows_(std::move(rows)) {
    info_ = {.hidden = rows_.size(1), .heads = 1, .kernels = SoftmaxKernels()};
  }

  const BodyInfo& info() const override { return info_; }
  BodyActivations activations() const override {
    return {.rows = {.token = kernels::Count(info_.hidden) *
                              static_cast<int64_t>(rows_.element_size())}};
  }
  absl::StatusOr<at::Tensor> Forward(const BodyInputs& in) const override {
    at::Tensor rows = TokenRows(rows_, in);
    if (absl::Status status = in.control.Checkpoint(); !status.ok()) return status;
    return rows;
  }

 private:
  const at::Tensor rows_;  // [vocabulary, hidden]
  BodyInfo info_;          // constant once built
};

absl::Status Invalid(const std::string& where, std::string_view problem) {
  return absl::InvalidArgumentError(where + ": " + std::string(problem));
}

// A copy of a stored vector of numbers, in its own type.
absl::StatusOr<at::Tensor> Vector(const hf::StoredTensor& stored, const std::string& where) {
  const std::optional<at::ScalarType> type = stored.dtype == "I64"   ? at::kLong
                                             : stored.dtype == "I32" ? at::kInt
                                             : stored.dtype == "F64" ? at::kDouble
                                             : stored.dtype == "F32" ? at::kFloat
                                             : stored.dtype == "F16" ? std::optional(at::kHalf)
                                                                     : std::nullopt;
  if (!type.has_value()) {
    return Invalid(where, absl::StrCat("dtype ", std::string(stored.dtype), " is not supported"));
  }
  if (stored.shape.size() != 1) return Invalid(where, "is not a vector");
  at::Tensor copy = at::empty(stored.shape, *type);
  std::memcpy(copy.mutable_data_ptr(), stored.data.data(), stored.data.size());
  return copy;
}

// model2vec's rows by token.
absl::StatusOr<at::Tensor> Fold(const hf::Safetensors& files, at::Tensor rows) {
  if (const hf::StoredTensor* stored = files.Find("mapping")) {
    const std::string where = std::string(stored->file) + ": mapping";
    const absl::StatusOr<at::Tensor> mapping = Vector(*stored, where);
    if (!mapping.ok()) return mapping;
    if (at::isFloatingType(mapping->scalar_type())) return Invalid(where, "holds no integers");
    const bool within = mapping->numel() > 0 && mapping->min().item<int64_t>() >= 0 &&
                        mapping->max().item<int64_t>() < rows.size(0);
    if (!within) return Invalid(where, "names rows that \"embeddings\" lacks");
    rows = at::index_select(rows, 0, *mapping);
  }
  if (const hf::StoredTensor* stored = files.Find("weights")) {
    const std::string where = std::string(stored->file) + ": weights";
    const absl::StatusOr<at::Tensor> weights = Vector(*stored, where);
    if (!weights.ok()) return weights;
    if (weights->size(0) != rows.size(0)) {
      return Invalid(where, absl::StrCat("holds ", weights->size(0), " weights for ", rows.size(0),
                                         " tokens"));
    }
    rows = rows.mul(weights->to(at::kFloat).unsqueeze(1));
    if (!rows.isfinite().all().item<bool>())
      return Invalid(where, "makes rows that are not finite");
  }
  return rows;
}

StaticEmbedding FromTable(at::Tensor rows) {
  InputRules rules{.vocabulary = rows.size(0),
                   .text_types = false,
                   .special_tokens = false,
                   .max_tokens = kMaxSize};
  const int64_t elements = rows.numel();
  return {{std::make_unique<Table>(std::move(rows)), std::move(rules)}, elements};
}

}  // namespace

absl::StatusOr<StaticEmbedding> BuildStaticEmbedding(const hf::Safetensors& files,
                                                     const std::string& folder,
                                                     at::ScalarType dtype, at::Device device) {
  const bool own = files.Find("embedding.weight") != nullptr;
  const char* const name = own ? "embedding.weight" : "embeddings";
  const hf::StoredTensor* stored = files.Find(name);
  if (stored == nullptr) {
    return Invalid(folder, "the weights hold neither \"embedding.weight\" nor \"embeddings\"");
  }
  if (stored->shape.size() != 2 || stored->shape[0] < 1 || stored->shape[1] < 1) {
    return Invalid(std::string(stored->file) + ": " + name, "is not a matrix");
  }
  WeightReader weights(files, folder, at::kFloat, at::kCPU);
  at::Tensor table = weights.Take(name, stored->shape);
  if (!weights.status().ok()) return weights.status();
  if (!own) {
    absl::StatusOr<at::Tensor> folded = Fold(files, std::move(table));
    if (!folded.ok()) return folded.status();
    table = *std::move(folded);
  }
  return FromTable(table.to(dtype).to(device));
}

absl::StatusOr<StaticEmbedding> BuildTokenWeights(const hf::Safetensors& files,
                                                  const std::string& folder, at::Device device) {
  const hf::StoredTensor* stored = files.Find("weight");
  if (stored == nullptr || stored->shape.size() != 1 || stored->shape[0] < 1) {
    return Invalid(folder, "the weights hold no vector \"weight\"");
  }
  WeightReader weights(files, folder, at::kFloat, at::kCPU);
  const at::Tensor table = weights.Take("weight", stored->shape);
  if (!weights.status().ok()) return weights.status();
  if (table.min().item<float>() < 0) {
    return Invalid(std::string(stored->file) + ": weight", "is below zero for a token");
  }
  return FromTable(table.unsqueeze(1).to(device));
}

}  // namespace castor::encoder
