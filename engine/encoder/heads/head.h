// Turns the rows of a model's body into the answer's numbers. One of the three parts of a model,
// with its body (body.h) and its input rules (text/prepare.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/run_control.h"
#include "engine/encoder/network/activations.h"
#include "engine/encoder/network/batch.h"
#include "engine/encoder/network/packing.h"
#include "engine/request.h"

namespace castor::encoder {

// A head's description.
struct HeadInfo {
  std::vector<EncodeOutput> outputs;  // that requests may ask for; the first is the default
  Pooling pooling = Pooling::kMean;   // unless the request says otherwise
  bool normalize = false;             // unless the request says otherwise
  // Elements of a kPooled row and of a kTokenEmbeddings row; 0: as wide as the body's rows.
  int64_t pooled_size = 0;
  int64_t token_size = 0;
  std::vector<std::string> labels = {};  // of a classifier
  bool token_labels = false;             // logits are per token, not per sequence
  bool lexical = false;                  // kSparse weighs the input's own token ids
};

// A batch's rows on the device, as a head reads them.
struct HeadInputs {
  at::Tensor rows;        // [tokens, hidden], in the weights' dtype
  at::Tensor ids = {};    // int64 [tokens]; 0 for tokens that come as embeddings
  at::Tensor offsets;     // int64 [sequences + 1]
  at::Tensor spans = {};  // int64 [2, spans]: first rows and lengths; see Packing
  const Batch& batch;
  const Packing& packing;
  RunControl& control;
};

// Immutable once built; ReadOut runs on the device's thread.
class Head {
 public:
  virtual ~Head() = default;
  virtual const HeadInfo& info() const = 0;

  // The memory that ReadOut allocates for rows of `hidden` elements, whatever else is in the batch.
  virtual HeadActivations activations(int64_t hidden, DType dtype) const = 0;

  // One tensor per item: float32, contiguous, [item.output_rows(), item.dimensions]. Tensors of
  // kSparse include the zeros. Tensors may be views of each other's storage. Checks the control
  // between steps of long work, as bodies do.
  virtual absl::StatusOr<std::vector<at::Tensor>> ReadOut(const HeadInputs& in) const = 0;
};

}  // namespace castor::encoder
