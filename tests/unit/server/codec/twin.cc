#include "tests/unit/server/codec/twin.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "google/protobuf/stubs/logging.h"
#include "server/codec/attention_codec.h"
#include "server/codec/encoder_codec.h"
#include "tests/unit/server/codec/describe.h"
#include "tests/unit/server/codec/twin_convert.h"

namespace castor::server::twin {
namespace {

std::string Outcome(const absl::Status& status) {
  if (status.ok()) return "OK";
  // For some refusals protobuf's parser gives no detail; then only reason and code are compared.
  const Reason reason = ReasonOf(status);
  std::string text(NameOf(reason));
  if (reason != Reason::kMalformedMessage) text += " at " + FieldOf(status).value_or("(no field)");
  return text + " " + absl::StatusCodeToString(status.code());
}

bool LiesIn(std::string_view view, const SliceView& slices) {
  const std::less_equal<const char*> before;
  return std::ranges::any_of(slices.slices(), [&](const grpc::Slice& slice) {
    return before(reinterpret_cast<const char*>(slice.begin()), view.data()) &&
           before(view.data() + view.size(), reinterpret_cast<const char*>(slice.end()));
  });
}

bool LiesIn(const TensorInput& tensor, const SliceView& slices) {
  return std::ranges::all_of(tensor.pieces, [&](ByteSpan piece) {
    return LiesIn({reinterpret_cast<const char*>(piece.data()), piece.size()}, slices);
  });
}

bool TensorsLieIn(const AttentionRequest& request, const SliceView& slices) {
  return LiesIn(request.query, slices) && LiesIn(request.key, slices) &&
         LiesIn(request.value, slices);
}

bool TensorsLieIn(const EncodeRequest& request, const SliceView& slices) {
  const auto* embeddings = std::get_if<EmbeddingInput>(&request.input);
  return embeddings == nullptr || LiesIn(embeddings->values, slices);
}

template <typename Request>
std::string Timeout(const Request& request) {
  return "timeout " +
         std::to_string(request.timeout.value_or(std::chrono::milliseconds(0)).count());
}

std::string Text(const DecodedAttend& decoded) {
  std::optional<FileRange> output;
  if (decoded.output.has_value()) output = decoded.output->file;
  return Describe(decoded.request) + Describe(output) + Timeout(decoded);
}
std::string Text(const Attend& converted) {
  return Describe(converted.request) + Describe(converted.output) + Timeout(converted);
}
std::string Text(const DecodedEncode& decoded) {
  return Describe(decoded.request) + Timeout(decoded);
}
std::string Text(const Encode& converted) {
  return Describe(converted.request) + Timeout(converted);
}

template <typename Message, typename Decoded>
Comparison Compare(std::string_view bytes, std::span<const size_t> slice_sizes,
                   absl::Status (*decode)(const grpc::ByteBuffer&, TenantRegions, Decoded*)) {
  Comparison comparison;
  Decoded fast;
  absl::Status fast_status;
  {
    // Destroyed before the result is read: the result must hold what it needs of the buffer.
    const grpc::ByteBuffer buffer = InSlices(bytes, slice_sizes);
    Decoded decoded;
    fast_status = decode(buffer, Regions(), &decoded);
    fast = std::move(decoded);
  }
  comparison.accepted = fast_status.ok();

  google::protobuf::LogSilencer quiet;  // about strings that are not UTF-8
  Message message;
  const bool parsed = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  auto slow = parsed ? ToEngine(message)
                     : MakeError(Reason::kMalformedMessage, "protobuf refuses these bytes");

  if (Outcome(fast_status) != Outcome(slow.status())) {
    comparison.difference = "fast: " + Outcome(fast_status) + " (" +
                            std::string(fast_status.message()) +
                            ")\nslow: " + Outcome(slow.status());
  } else if (fast_status.ok() && Text(fast) != Text(*slow)) {
    comparison.difference = "fast:\n" + Text(fast) + "\nslow:\n" + Text(*slow);
  } else if (fast_status.ok() && !TensorsLieIn(fast.request, fast.slices)) {
    comparison.difference = "a tensor was copied";
  }
  return comparison;
}

}  // namespace

TenantRegions Regions() {
  static const SharedMemory* const regions = [] {
    auto* made = new SharedMemory(std::size(kTwinRegions));
    for (const TwinRegion& region : kTwinRegions) {
      RegionInfo info{region.name, "/no-file", region.offset, region.size};
      made->Add(kTwinTenant, std::make_shared<const SharedRegion>(std::move(info), kTwinDescriptor))
          .IgnoreError();
    }
    return made;
  }();
  return {*regions, kTwinTenant};
}

grpc::ByteBuffer InSlices(std::string_view bytes, std::span<const size_t> sizes) {
  std::vector<grpc::Slice> slices;
  for (size_t size : sizes) {
    const std::string_view piece = bytes.substr(0, size);
    slices.emplace_back(piece.data(), piece.size());
    bytes.remove_prefix(piece.size());
  }
  if (!bytes.empty()) slices.emplace_back(bytes.data(), bytes.size());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

Comparison CompareAttend(std::string_view bytes, std::span<const size_t> slice_sizes) {
  return Compare<v1::AttendRequest>(bytes, slice_sizes, DecodeAttendRequest);
}

Comparison CompareEncode(std::string_view bytes, std::span<const size_t> slice_sizes) {
  return Compare<v1::EncodeRequest>(bytes, slice_sizes, DecodeEncodeRequest);
}

}  // namespace castor::server::twin
