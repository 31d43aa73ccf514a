// The head of an embedding model: pools the last layer's rows, applies the dense layers that
// follow, and cuts and normalises rows as requests ask. It gives token rows likewise; a
// multi-vector model such as ColBERT has no others. Other heads contain this one for requests that
// want the body's rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/run_control.h"
#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/head.h"
#include "engine/request.h"

namespace castor::encoder {

// [sequences, hidden], float32. Sums are in float32.
at::Tensor Pool(Pooling pooling, const at::Tensor& rows, const at::Tensor& offsets);

class PoolingHead final : public Head {
 public:
  // `poolings` and `normalize`: the defaults of requests. Several poolings, each `hidden` wide, are
  // concatenated; without any, the head gives token rows only. `dense` follows pooled rows,
  // `of_tokens` token rows.
  PoolingHead(std::vector<Pooling> poolings, int64_t hidden, bool normalize, DenseStack dense = {},
              DenseStack of_tokens = {});
  explicit PoolingHead(Pooling pooling, bool normalize) : PoolingHead({pooling}, 0, normalize) {}

  const HeadInfo& info() const override { return info_; }
  HeadActivations activations(int64_t hidden, DType dtype) const override;

  // Takes rows of any floating dtype. Items that want the same share the work; no item changes
  // another's result. Items that want neither pooled rows nor token rows get no tensor.
  absl::StatusOr<std::vector<at::Tensor>> ReadOut(const HeadInputs& in) const override;

 private:
  absl::StatusOr<at::Tensor> PoolAll(Pooling pooling, bool spans, const HeadInputs& in) const;
  absl::StatusOr<at::Tensor> PoolOnce(Pooling pooling, bool spans, const HeadInputs& in) const;

  const std::vector<Pooling> poolings_;
  HeadInfo info_;  // constant once built
  const DenseStack dense_;
  const DenseStack of_tokens_;
};

// Pooling of spans: any ranges of a batch's rows, which may overlap. A row is read once per span
// that covers it, so this can be most of a batch's work.

// [spans, hidden], float32; zeros for an empty span. rows: [tokens, hidden]. spans: int64 [2,
// spans], first rows and lengths; `span_rows` is the sum of lengths. Sums of many rows are in
// double precision on a CPU. Checks the control between steps.
absl::StatusOr<at::Tensor> PoolSpans(Pooling pooling, const at::Tensor& rows,
                                     const at::Tensor& spans, int64_t span_rows,
                                     RunControl& control);

}  // namespace castor::encoder
