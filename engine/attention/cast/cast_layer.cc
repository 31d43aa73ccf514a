#include "engine/attention/cast/cast_layer.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>
#include <string>

#include "engine/base/error.h"

namespace castor::attention {
namespace {

template <typename Element>
void Convert(const float* from, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    const Element element(from[i]);
    std::memcpy(to + i * sizeof(Element), &element, sizeof(Element));
  }
}

}  // namespace

CastLayer::CastLayer(const float* surrogates, int64_t surrogate_tokens, int64_t heads,
                     int64_t head_dim)
    : surrogate_tokens_(surrogate_tokens), heads_(heads), head_dim_(head_dim) {
  const auto count = static_cast<size_t>(elements());
  float16_at_ = AlignUp(count * sizeof(float));
  bfloat16_at_ = float16_at_ + AlignUp(count * sizeof(c10::Half));
  const size_t size = bfloat16_at_ + AlignUp(count * sizeof(c10::BFloat16));
  memory_ = AllocateAligned<std::byte>(static_cast<int64_t>(size));
  Convert<float>(surrogates, elements(), memory_.get());
  Convert<c10::Half>(surrogates, elements(), memory_.get() + float16_at_);
  Convert<c10::BFloat16>(surrogates, elements(), memory_.get() + bfloat16_at_);
}

const std::byte* CastLayer::data(DType dtype) const {
  switch (dtype) {
    case DType::kFloat16:
      return memory_.get() + float16_at_;
    case DType::kBFloat16:
      return memory_.get() + bfloat16_at_;
    default:
      return memory_.get();
  }
}

absl::StatusOr<std::shared_ptr<const CastLayer>> NoCastLayer(std::string_view name) {
  return MakeError(Reason::kModelNotFound, "no CAST layer is named \"" + std::string(name) +
                                               "\": no model with such layers is loaded");
}

}  // namespace castor::attention
