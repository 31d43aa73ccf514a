// The transformer of a model: what differs between families. A family is a pair of files (bert.h,
// bert.cc) and one row in families.cc; nothing else knows its name.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/encoder/config_reader.h"
#include "engine/encoder/model.h"
#include "engine/encoder/packing.h"
#include "engine/encoder/weights.h"
#include "engine/request.h"

namespace castor::encoder {

// What every family says about itself. The head size is hidden / heads.
struct BodyInfo {
  std::string_view family;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t max_tokens = 0;  // of one sequence
  int64_t vocabulary = 0;
  int64_t type_vocabulary = 0;
};

// A packed batch on the device, as a body reads it.
struct BodyInputs {
  at::Tensor ids;        // int64 [tokens]
  at::Tensor type_ids;   // int64 [tokens]
  at::Tensor positions;  // int64 [tokens], from 0
  const Batch& batch;
  const Packing& packing;
  const Inputs& inputs;  // for the rows that come as embeddings
  const AttentionFn& attention;
};

// Immutable once built; Forward runs on the device's thread.
class Body {
 public:
  virtual ~Body() = default;
  virtual const BodyInfo& info() const = 0;

  // The last layer's rows, [tokens, hidden] in the weights' dtype.
  virtual absl::StatusOr<at::Tensor> Forward(const BodyInputs& in) const = 0;
};

// One row of the table of families.
struct Family {
  std::string_view model_type;  // as in config.json
  absl::StatusOr<std::unique_ptr<Body>> (*build)(ConfigReader& config, WeightReader& weights);
};

// nullptr for a type that is not known.
const Family* FindFamily(std::string_view model_type);

// "bert, ...": for messages.
std::string KnownFamilies();

}  // namespace castor::encoder
