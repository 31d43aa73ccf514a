#include "server/oip/decode.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "engine/base/error.h"
#include "google/protobuf/stubs/common.h"
#include "server/codec/convert.h"
#include "server/oip/parameters.h"
#include "server/services/message.h"

namespace castor::server::oip {
namespace {

constexpr std::string_view kRegion = "shared_memory_region";
constexpr std::string_view kRegionSize = "shared_memory_byte_size";
constexpr std::string_view kRegionOffset = "shared_memory_offset";

struct DatatypeRow {
  std::string_view name;
  v1::DataType dtype;
};
constexpr DatatypeRow kDatatypes[] = {{"FP32", v1::FLOAT32},
                                      {"FP16", v1::FLOAT16},
                                      {"BF16", v1::BFLOAT16},
                                      {"INT32", v1::INT32},
                                      {"INT64", v1::INT64}};

absl::Status GetRegion(const Parameters& parameters, std::string_view tensor,
                       std::optional<server::wire::SharedMemoryRef>* out) {
  const auto* region = FindParameter(parameters, kRegion);
  if (region == nullptr) return absl::OkStatus();
  const auto* name = std::get_if<wire::Text>(&region->choice);
  if (name == nullptr) return InvalidField(tensor, std::string(kRegion) + " is not a text");
  server::wire::SharedMemoryRef& ref = out->emplace();
  ref.region = *name;
  for (const auto& [key, value] :
       {std::pair{kRegionSize, &ref.size}, {kRegionOffset, &ref.offset}}) {
    const auto* given = FindParameter(parameters, key);
    if (given == nullptr && value == &ref.offset) continue;
    const auto* number = given == nullptr ? nullptr : std::get_if<int64_t>(&given->choice);
    if (number == nullptr) return InvalidField(tensor, std::string(key) + " is not an int64");
    *value = *number;
  }
  return absl::OkStatus();
}

template <typename T>
ByteSpan BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// The inputs of one message by name. A tensor's bytes are those of its contents, or the next raw
// entry, or in shared memory.
class Inputs {
 public:
  Inputs(wire::ModelInferRequest& message, SliceView& slices)
      : message_(message), slices_(slices) {}

  absl::Status Read(const Model& model) {
    size_t raw = 0;
    for (wire::InferInputTensor& input : message_.inputs) {
      const bool known =
          std::any_of(model.inputs.begin(), model.inputs.end(),
                      [&](const TensorRow& row) { return row.name == input.name; }) ||
          input.name == "passages" || input.name == "truncate" || input.name == "modality";
      if (!known) {
        return InvalidField(input.name, "is not an input of \"" + model.name + "\"");
      }
      Entry entry{.input = &input};
      if (absl::Status s = GetRegion(input.parameters, input.name, &entry.region); !s.ok()) {
        return s;
      }
      if (!message_.raw_input_contents.empty() && input.contents.has_value()) {
        return InvalidField(input.name, "has contents beside raw_input_contents");
      }
      if (!entry.region.has_value() && !message_.raw_input_contents.empty()) {
        if (raw == message_.raw_input_contents.size()) {
          return InvalidField("raw_input_contents", "has no entry for " + std::string(input.name));
        }
        entry.pieces = std::move(message_.raw_input_contents[raw++]);
      }
      if (!entries_.emplace(input.name, std::move(entry)).second) {
        return InvalidField(input.name, "is there twice");
      }
    }
    if (raw < message_.raw_input_contents.size()) {
      return InvalidField("raw_input_contents", "has more entries than inputs need");
    }
    return absl::OkStatus();
  }

  bool Has(std::string_view name) const { return entries_.contains(name); }

  // Leaves *out unset if there is no such input.
  absl::Status Tensor(std::string_view name, std::optional<server::wire::Tensor>* out) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return absl::OkStatus();
    Entry& entry = found->second;
    const wire::InferInputTensor& input = *entry.input;
    const auto* row = std::find_if(std::begin(kDatatypes), std::end(kDatatypes),
                                   [&](const auto& r) { return r.name == input.datatype; });
    if (row == std::end(kDatatypes)) {
      return InvalidField(name, "cannot be of datatype \"" + std::string(input.datatype) + "\"");
    }
    server::wire::Tensor& tensor = out->emplace();
    tensor.dtype = row->dtype;
    tensor.shape = input.shape;
    if (entry.region.has_value()) {
      tensor.data = *entry.region;
      return absl::OkStatus();
    }
    if (input.contents.has_value()) {
      const wire::InferTensorContents& contents = *input.contents;
      const ByteSpan bytes = row->dtype == v1::FLOAT32 ? BytesOf(contents.fp32_contents)
                             : row->dtype == v1::INT32 ? BytesOf(contents.int_contents)
                             : row->dtype == v1::INT64 ? BytesOf(contents.int64_contents)
                                                       : ByteSpan();
      entry.pieces = {bytes};
    }
    tensor.data = std::move(entry.pieces);
    return absl::OkStatus();
  }

  // INT32 or INT64, in any shape; leaves *out empty if there is no such input.
  absl::Status Integers(std::string_view name, std::vector<int64_t>* out) {
    std::optional<server::wire::Tensor> tensor;
    if (absl::Status s = Tensor(name, &tensor); !s.ok() || !tensor.has_value()) return s;
    const bool wide = tensor->dtype == v1::INT64;
    if (!wide && tensor->dtype != v1::INT32) return InvalidField(name, "must be INT64 or INT32");
    const auto* pieces = std::get_if<server::wire::Bytes>(&tensor->data);
    if (pieces == nullptr) return InvalidField(name, "cannot be in shared memory");
    size_t bytes = 0;
    for (const ByteSpan piece : *pieces) bytes += piece.size();
    const size_t size = wide ? 8 : 4;
    const std::optional<int64_t> needed =
        NumBytes(wide ? DType::kInt64 : DType::kInt32, tensor->shape);
    if (!needed.has_value() || static_cast<size_t>(*needed) != bytes) {
      return InvalidField(name, "has " + std::to_string(bytes) + " bytes, but the shape " +
                                    ShapeString(tensor->shape));
    }
    const std::string_view joined = slices_.Join(*pieces);
    out->resize(bytes / size);
    for (size_t i = 0; i < out->size(); ++i) {
      int32_t narrow = 0;
      if (wide) std::memcpy(&(*out)[i], joined.data() + i * size, size);
      if (!wide) std::memcpy(&narrow, joined.data() + i * size, size), (*out)[i] = narrow;
    }
    return absl::OkStatus();
  }

  // BYTES, in any shape.
  absl::Status Texts(std::string_view name, std::vector<std::string_view>* out) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return InvalidField(name, "missing");
    const Entry& entry = found->second;
    const wire::InferInputTensor& input = *entry.input;
    if (input.datatype != "BYTES") return InvalidField(name, "must be BYTES");
    if (entry.region.has_value()) return InvalidField(name, "cannot be in shared memory");
    if (input.contents.has_value()) {
      for (const wire::Bytes& element : input.contents->bytes_contents) {
        out->push_back(slices_.Join(element));
      }
    } else {
      std::string_view rest = slices_.Join(entry.pieces);
      while (!rest.empty()) {
        uint32_t size = 0;
        if (rest.size() < sizeof(size)) return InvalidField(name, "ends within a length");
        std::memcpy(&size, rest.data(), sizeof(size));
        rest.remove_prefix(sizeof(size));
        if (size > rest.size()) return InvalidField(name, "ends within an element");
        if (out->size() == WireReader::kMaxElements) {
          return MakeError(Reason::kTooLarge, "too many elements");
        }
        out->push_back(rest.substr(0, size));
        rest.remove_prefix(size);
      }
    }
    const std::optional<int64_t> needed = NumElements(input.shape);
    if (!needed.has_value() || static_cast<size_t>(*needed) != out->size()) {
      return InvalidField(name, "has " + std::to_string(out->size()) + " elements, but the shape " +
                                    ShapeString(input.shape));
    }
    for (const std::string_view text : *out) {
      if (!google::protobuf::internal::IsStructurallyValidUTF8(text.data(),
                                                               static_cast<int>(text.size()))) {
        return InvalidField(name, "has an element that is not valid UTF-8");
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Entry {
    wire::InferInputTensor* input;
    server::wire::Bytes pieces = {};
    std::optional<server::wire::SharedMemoryRef> region = std::nullopt;
  };

  wire::ModelInferRequest& message_;
  SliceView& slices_;
  std::map<std::string_view, Entry> entries_;
};

absl::Status ReadOutputs(const wire::ModelInferRequest& message, Wanted* wanted) {
  for (const wire::InferRequestedOutputTensor& output : message.outputs) {
    const auto& rows = wanted->model->outputs;
    if (std::none_of(rows.begin(), rows.end(),
                     [&](const TensorRow& row) { return row.name == output.name; })) {
      return InvalidField(output.name, "is not an output of \"" + wanted->model->name + "\"");
    }
    if (FindParameter(output.parameters, "classification") != nullptr) {
      return InvalidField(output.name, "classification is not served");
    }
    const bool twice = std::find(wanted->outputs.begin(), wanted->outputs.end(), output.name) !=
                       wanted->outputs.end();
    if (twice) return InvalidField(output.name, "is asked for twice");
    wanted->outputs.emplace_back(output.name);
  }
  return absl::OkStatus();
}

// Reads a castor.v1 message of scalar fields back as the codec's.
template <typename Wire>
absl::Status Reread(const google::protobuf::Message& fields, SliceView* slices, Wire* out) {
  *slices = SliceView(SerializeMessage(fields));
  return server::wire::Parse(slices, out);
}

// NIM's parameters, as castor.v1 has them.
absl::Status SetNimFields(Parameters* parameters, const Model& model, v1::EncodeRequest* fields) {
  Parameters rest;
  for (const wire::ParameterEntry& parameter : *parameters) {
    const auto* text = std::get_if<wire::Text>(&parameter.value.choice);
    const std::string_view value = text == nullptr ? std::string_view() : *text;
    if (parameter.key == "input_type") {
      const auto& prompts = model.info.prompts.all;
      const auto has = [&](std::string_view name) {
        return std::any_of(prompts.begin(), prompts.end(),
                           [&](const Prompt& prompt) { return prompt.name == name; });
      };
      if (value != "query" && value != "passage") {
        return InvalidField("parameters.input_type", "must be query or passage");
      }
      const std::string_view prompt = value == "passage" && !has("passage") ? "document" : value;
      if (has(prompt)) fields->set_prompt_name(std::string(prompt));
    } else if (parameter.key == "truncate" && text != nullptr) {
      if (value != "END" && value != "START" && value != "NONE") {
        return InvalidField("parameters.truncate", "must be END, START or NONE");
      }
      fields->set_truncate(value != "NONE");
      if (value != "NONE") fields->set_truncation_side(value == "END" ? v1::RIGHT : v1::LEFT);
    } else if (parameter.key == "embedding_type") {
      if (value != "float") return InvalidField("parameters.embedding_type", "must be float");
    } else {
      rest.push_back(parameter);
    }
  }
  *parameters = std::move(rest);
  return absl::OkStatus();
}

struct OutputRow {
  std::string_view name;
  v1::EncodeOutput output;
};
constexpr OutputRow kOutputs[] = {
    {"embeddings", v1::POOLED},     {"token_embeddings", v1::TOKEN_EMBEDDINGS},
    {"index", v1::LOGITS},          {"logit", v1::LOGITS},
    {"logits", v1::LOGITS},         {"scores", v1::SCORES},
    {"sparse_indices", v1::SPARSE}, {"sparse_values", v1::SPARSE},
    {"sparse_lengths", v1::SPARSE}};

// What the engine must compute for the outputs, of which it computes one kind.
absl::Status ChooseOutput(const Wanted& wanted, int32_t* out) {
  if (wanted.rerank) *out = v1::LOGITS;
  for (const OutputRow& row : kOutputs) {
    const bool asked =
        std::find(wanted.outputs.begin(), wanted.outputs.end(), row.name) != wanted.outputs.end();
    if (!asked) continue;
    if ((row.name == "index" || row.name == "logit") && !wanted.rerank) {
      return InvalidField(row.name, "needs the inputs query and passage");
    }
    if (*out != 0 && *out != row.output) {
      return InvalidField(row.name, "cannot be computed together with the other outputs");
    }
    *out = row.output;
  }
  return absl::OkStatus();
}

absl::Status Convert(server::wire::EncodeRequest request, DecodedEncode* out, Wanted* wanted) {
  absl::Status status = ConvertEncodeRequest(std::move(request), out);
  wanted->output = out->request.output.value_or(wanted->model->info.outputs.front());
  return status;
}

}  // namespace

bool Wanted::Wants(std::string_view output) const {
  return outputs.empty() || std::find(outputs.begin(), outputs.end(), output) != outputs.end();
}

absl::Status DecodeAttend(wire::ModelInferRequest& message, DecodedAttend* out, Wanted* wanted) {
  Inputs inputs(message, out->slices);
  if (absl::Status s = inputs.Read(*wanted->model); !s.ok()) return s;
  if (absl::Status s = ReadOutputs(message, wanted); !s.ok()) return s;
  v1::AttendRequest fields;
  if (absl::Status s = SetFields(message.parameters, &fields); !s.ok()) return s;
  SliceView slices;
  server::wire::AttendRequest request;
  if (absl::Status s = Reread(fields, &slices, &request); !s.ok()) return s;
  for (const auto& [name, tensor] : {std::pair{"query", &request.query},
                                     {"key", &request.key},
                                     {"value", &request.value},
                                     {"key_bias", &request.key_bias}}) {
    if (absl::Status s = inputs.Tensor(name, tensor); !s.ok()) return s;
  }
  if (absl::Status s = inputs.Integers("query_lengths", &request.query_lengths); !s.ok()) return s;
  if (absl::Status s = inputs.Integers("key_lengths", &request.key_lengths); !s.ok()) return s;
  for (const wire::InferRequestedOutputTensor& output : message.outputs) {
    std::optional<server::wire::SharedMemoryRef> region;
    if (absl::Status s = GetRegion(output.parameters, output.name, &region); !s.ok()) return s;
    if (output.name == "log_sum_exp") request.return_log_sum_exp = true;
    if (!region.has_value()) continue;
    if (output.name != "output") return InvalidField(output.name, "cannot be in shared memory");
    request.output = region;
  }
  return ConvertAttendRequest(std::move(request), out);
}

absl::Status DecodeEncode(wire::ModelInferRequest& message, DecodedEncode* out, Wanted* wanted) {
  Inputs inputs(message, out->slices);
  if (absl::Status s = inputs.Read(*wanted->model); !s.ok()) return s;
  if (absl::Status s = ReadOutputs(message, wanted); !s.ok()) return s;
  for (const wire::InferRequestedOutputTensor& output : message.outputs) {
    if (FindParameter(output.parameters, kRegion) != nullptr) {
      return InvalidField(output.name, "cannot be in shared memory");
    }
  }
  v1::EncodeRequest fields;
  if (inputs.Has("truncate")) {
    std::vector<std::string_view> values;
    if (absl::Status s = inputs.Texts("truncate", &values); !s.ok()) return s;
    if (values.empty()) return InvalidField("truncate", "is empty");
    wire::ParameterEntry entry{.key = "truncate", .value = {}};
    entry.value.choice = values.front();
    message.parameters.push_back(entry);
  }
  absl::Status set = SetNimFields(&message.parameters, *wanted->model, &fields);
  set.Update(SetFields(message.parameters, &fields));
  if (!set.ok()) return set;
  SliceView slices;
  server::wire::EncodeRequest request;
  if (absl::Status s = Reread(fields, &slices, &request); !s.ok()) return s;
  request.model = wanted->model->name;
  wanted->rerank = inputs.Has("query");
  if (absl::Status s = ChooseOutput(*wanted, &request.output); !s.ok()) return s;
  if (inputs.Has("input_ids")) {
    auto& tokens = request.input.emplace<server::wire::TokenBatch>();
    if (absl::Status s = inputs.Integers("input_ids", &tokens.ids); !s.ok()) return s;
    if (absl::Status s = inputs.Integers("lengths", &tokens.lengths); !s.ok()) return s;
    return Convert(std::move(request), out, wanted);
  }
  auto& batch = request.input.emplace<server::wire::TextBatch>();
  if (!wanted->rerank) {
    if (absl::Status s = inputs.Texts("text", &batch.texts); !s.ok()) return s;
    return Convert(std::move(request), out, wanted);
  }
  if (absl::Status s = inputs.Texts("query", &batch.texts); !s.ok()) return s;
  const std::string_view passages = inputs.Has("passages") ? "passages" : "passage";
  if (absl::Status s = inputs.Texts(passages, &batch.pairs); !s.ok()) return s;
  if (batch.texts.size() == 1) batch.texts.resize(batch.pairs.size(), batch.texts.front());
  return Convert(std::move(request), out, wanted);
}

}  // namespace castor::server::oip
