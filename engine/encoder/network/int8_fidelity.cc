#include "engine/encoder/network/int8_fidelity.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "engine/base/run_control.h"
#include "engine/encoder/network/batch.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/text/output_types.h"

namespace castor::encoder {
namespace {

// Short and long, a question, a list, code, and some languages.
constexpr std::string_view kTexts[] = {
    "hello",
    "How do I reset the password of my account?",
    "The committee approved the budget for the coming year.",
    "Heat oil in a pan, add onions and garlic, and cook them until they are golden brown.",
    "for (int i = 0; i < n; ++i) sum += values[i];",
    "Error 404: the requested resource was not found on this server.",
    "Paris, Rome, Cairo, Lagos, Lima, Quito, Oslo, Delhi, Tokyo, Sydney",
    "A patient with a fever of 39.5 degrees and a persistent cough was admitted on Tuesday.",
    "Die Sitzung beginnt um neun Uhr, und alle Unterlagen liegen bereits auf dem Tisch.",
    "La biblioteca abre a las diez de la ma\u00f1ana y cierra a las ocho de la tarde.",
    "The quick brown fox jumps over the lazy dog. Sphinx of black quartz, judge my vow. Pack my "
    "box "
    "with five dozen liquor jugs. How vexingly quick daft zebras jump!",
    "When the ship left the harbour the sea was calm, but before the evening a wind rose from the "
    "north and drove it towards the rocks, where the crew cut the mast, lowered the boats and "
    "rowed "
    "through the night until they saw the light of a village and the people who came to meet them.",
};

double CosineOf(const float* a, const float* b, int64_t hidden) {
  double product = 0, squares_a = 0, squares_b = 0;
  for (int64_t e = 0; e < hidden; ++e) {
    product += double{a[e]} * b[e];
    squares_a += double{a[e]} * a[e];
    squares_b += double{b[e]} * b[e];
  }
  return product / std::sqrt(squares_a * squares_b);
}

}  // namespace

absl::StatusOr<SampleVectors> EncodeSampleTexts(std::shared_ptr<const Model> model) {
  EncodeRequest request;
  TextInput input;
  input.texts.assign(std::begin(kTexts), std::end(kTexts));
  request.input = std::move(input);
  absl::StatusOr<Prepared> prepared = Prepare(request, *model);
  if (!prepared.ok()) return prepared.status();
  const ModelInfo& info = model->info();
  BatchItem item{
      .cu_seqlens = prepared->cu_seqlens, .ids = prepared->ids, .type_ids = prepared->type_ids};
  const auto pooled = std::find(info.outputs.begin(), info.outputs.end(), EncodeOutput::kPooled);
  if (pooled == info.outputs.end()) item.output_kind = EncodeOutput::kTokenEmbeddings;
  if (info.pooling == Pooling::kSeveral) item.pooling = Pooling::kSeveral;
  item.dimensions = WidthOf(info, item.output_kind);
  SampleVectors vectors{
      .values = std::vector<float>(static_cast<size_t>(item.output_rows() * item.dimensions)),
      .width = item.dimensions};
  item.output = vectors.values.data();
  const Batch batch{.model = std::move(model), .kernel = Vanilla{}, .items = {item}};
  if (absl::Status status = RunOnHost(batch, RunToEnd()); !status.ok()) return status;
  return vectors;
}

Int8Fidelity CompareVectors(const std::vector<float>& exact, const std::vector<float>& int8,
                            int64_t hidden) {
  const auto count = static_cast<int64_t>(exact.size()) / hidden;
  Int8Fidelity fidelity{.mean_cosine = 0, .least_cosine = 1};
  for (int64_t i = 0; i < count; ++i) {
    const double cosine = CosineOf(exact.data() + i * hidden, int8.data() + i * hidden, hidden);
    fidelity.mean_cosine += cosine / static_cast<double>(count);
    // NaN, from values that are not finite, is worse than any number and stays.
    if (std::isnan(cosine) || cosine < fidelity.least_cosine) fidelity.least_cosine = cosine;
  }
  return fidelity;
}

}  // namespace castor::encoder
