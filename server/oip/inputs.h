// The inputs of a ModelInferRequest by name. Their elements are in contents, in the next raw entry,
// or in shared memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/codec/messages.h"
#include "server/codec/regions.h"
#include "server/codec/slice_view.h"
#include "server/oip/catalogue.h"
#include "server/oip/parameters.h"
#include "server/oip/wire.h"

namespace castor::server::oip {

// The region that a tensor's parameters name, if any. INVALID_FIELD at `tensor`.
absl::Status ReadRegion(const Parameters& parameters, std::string_view tensor,
                        std::optional<server::wire::SharedMemoryRef>* out);

// Errors are INVALID_FIELD at the input's name and those of RequestRegions::Resolve there.
class Inputs {
 public:
  // All must outlive this object. `slices` keeps copied texts, and counts them and copied integers
  // against the DecodeBudget.
  Inputs(wire::ModelInferRequest& message, SliceView& slices, RequestRegions& regions)
      : message_(message), slices_(slices), regions_(regions) {}

  absl::Status Read(const Model& model);

  bool Has(std::string_view name) const { return entries_.contains(name); }

  // The bytes are not copied. Leaves *out unset if there is no such input.
  absl::Status Tensor(std::string_view name, std::optional<server::wire::Tensor>* out);

  // Its dimensions; none if there is no such input.
  std::vector<int64_t> ShapeOf(std::string_view name) const;

  // INT32 or INT64, in any shape; leaves *out empty if there is no such input. INVALID_FIELD for
  // more than `most`, before they are read.
  absl::Status Integers(std::string_view name, int64_t most, std::vector<int64_t>* out);

  // BYTES in UTF-8, in any shape. There must be such an input. Likewise, of max_sequences. Copies
  // only what is in shared memory or straddles slices.
  absl::Status Texts(std::string_view name, std::vector<std::string_view>* out);

 private:
  using Data = decltype(server::wire::Tensor::data);
  struct Entry {
    wire::InferInputTensor* input;
    Data data;  // empty: in contents
  };

  // How many elements the input has by its shape. INVALID_FIELD for more than `most`.
  absl::StatusOr<int64_t> Count(const Entry& entry, int64_t most) const;
  // Finds its bytes; returns how many.
  absl::StatusOr<int64_t> Find(const Data& data, std::string_view name, TensorInput* out);

  wire::ModelInferRequest& message_;
  SliceView& slices_;
  RequestRegions& regions_;
  std::map<std::string_view, Entry> entries_;
};

}  // namespace castor::server::oip
