// ModelInferRequest: what protobuf's parser accepts the decoder reads alike, and all of its way to
// the engine's requests does no harm. An input is as in compare.h.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "google/protobuf/stubs/logging.h"
#include "inference/grpc_service.pb.h"
#include "server/oip/decode.h"
#include "tests/fuzz/compare.h"
#include "tests/support/fake_engine.h"

namespace castor::server::oip {
namespace {

ModelInfo ModelOf(const std::string& name, std::vector<EncodeOutput> outputs) {
  ModelInfo model;
  model.name = name;
  model.hidden_size = 8;
  model.max_tokens = 16;
  model.outputs = std::move(outputs);
  return model;
}

const Catalogue& Models() {
  static FakeEngine& engine = *new FakeEngine;
  static const Catalogue catalogue = [] {
    ModelInfos models = {ModelOf("embed", {EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings}),
                         ModelOf("rank", {EncodeOutput::kLogits, EncodeOutput::kScores})};
    models[0].prompts.all = {{"query", "q: "}, {"document", ""}};
    models[1].labels = {"relevant"};
    engine.SetModels(std::move(models));
    return Catalogue(engine);
  }();
  return catalogue;
}

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

size_t SizeOf(const server::wire::Bytes& pieces) {
  size_t size = 0;
  for (const ByteSpan piece : pieces) size += piece.size();
  return size;
}

void ExpectAlike(const wire::ModelInferRequest& ours, const inference::ModelInferRequest& theirs) {
  Require(ours.model_name == theirs.model_name() && ours.id == theirs.id(), "texts differ");
  Require(std::ssize(ours.inputs) == theirs.inputs_size() &&
              std::ssize(ours.outputs) == theirs.outputs_size() &&
              std::ssize(ours.raw_input_contents) == theirs.raw_input_contents_size(),
          "counts differ");
  for (int i = 0; i < theirs.inputs_size(); ++i) {
    const auto& input = ours.inputs[static_cast<size_t>(i)];
    Require(std::ranges::equal(input.shape, theirs.inputs(i).shape()), "shapes differ");
    if (!input.contents.has_value()) continue;
    Require(std::ranges::equal(input.contents->int64_contents,
                               theirs.inputs(i).contents().int64_contents()),
            "contents differ");
  }
  for (int i = 0; i < theirs.raw_input_contents_size(); ++i) {
    Require(SizeOf(ours.raw_input_contents[static_cast<size_t>(i)]) ==
                theirs.raw_input_contents(i).size(),
            "raw contents differ");
  }
}

template <typename Decoded, typename Decode>
void Run(wire::ModelInferRequest& message, SliceView slices, ModelPtr model, Decode decode) {
  Decoded decoded;
  decoded.slices = std::move(slices);
  decoded.regions = RequestRegions(twin::Regions());
  RequestedOutputs requested;
  requested.model = std::move(model);
  (void)decode(message, &decoded, &requested);
}

twin::Comparison Decode(std::string_view bytes, std::span<const size_t> slice_sizes) {
  google::protobuf::LogSilencer quiet;  // about strings that are not UTF-8
  inference::ModelInferRequest theirs;
  const bool accepted = theirs.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  SliceView slices(twin::InSlices(bytes, slice_sizes), twin::Regions().budget);
  wire::ModelInferRequest ours;
  const absl::Status parsed = server::wire::Parse(&slices, &ours);
  if (!parsed.ok()) {
    // Too many elements are no malformed message.
    Require(!accepted || ReasonOf(parsed) != Reason::kMalformedMessage, "protobuf accepts it");
    return {};
  }
  if (accepted) ExpectAlike(ours, theirs);
  const auto model = Models().Find(ours.model_name, ours.model_version);
  if (!model.ok()) return {};
  if ((*model)->attention) {
    Run<DecodedAttend>(ours, std::move(slices), *model, DecodeAttend);
  } else {
    Run<DecodedEncode>(ours, std::move(slices), *model, DecodeEncode);
  }
  return {.accepted = true, .difference = {}};
}

}  // namespace
}  // namespace castor::server::oip

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  castor::server::twin::CompareInput({data, size}, castor::server::oip::Decode);
  return 0;
}
