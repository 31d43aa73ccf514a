#include "server/oip/decode.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "engine/base/error.h"
#include "grpcpp/support/slice.h"
#include "server/codec/convert.h"
#include "server/codec/rerank_codec.h"
#include "server/oip/inputs.h"
#include "server/oip/parameters.h"

namespace castor::server::oip {
namespace {

constexpr std::string_view kIds = "input_ids", kMask = "attention_mask";

absl::Status ReadOutputs(const wire::ModelInferRequest& message, const RequestRegions& regions,
                         RequestedOutputs* requested) {
  for (const wire::InferRequestedOutputTensor& output : message.outputs) {
    const auto& rows = requested->model->outputs;
    if (std::none_of(rows.begin(), rows.end(),
                     [&](const TensorRow& row) { return row.name == output.name; })) {
      return InvalidField(output.name, "is not an output of \"" + requested->model->name + "\"");
    }
    if (FindParameter(output.parameters, "classification") != nullptr) {
      return InvalidField(output.name, "classification is not served");
    }
    if (requested->Includes(output.name)) return InvalidField(output.name, "is requested twice");
    RequestedOutputs::Output& added = requested->outputs.emplace_back();
    added.name = output.name;
    std::optional<server::wire::SharedMemoryRef> region;
    if (absl::Status s = ReadRegion(output.parameters, output.name, &region); !s.ok()) return s;
    if (!region.has_value()) continue;
    absl::Status s = regions.Resolve(*region, output.name, &added.range.emplace());
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

// A castor.v1 message of scalar fields as the codec's type: serialised, and parsed again.
template <typename Wire>
absl::Status ParseAsWire(const google::protobuf::Message& fields, DecodeBudget& budget,
                         SliceView* slices, Wire* out) {
  const grpc::Slice bytes(fields.SerializeAsString());
  *slices = SliceView(grpc::ByteBuffer(&bytes, 1), budget);
  return server::wire::Parse(slices, out);
}

// Sets castor.v1's fields from the parameters that NIM's clients send, and removes these.
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
      absl::Status set =
          value == "float" ? absl::OkStatus() : SetField(parameter, "output_type", fields);
      if (!set.ok()) return set;
    } else {
      rest.push_back(parameter);
    }
  }
  *parameters = std::move(rest);
  return absl::OkStatus();
}

// Removes the ids where the mask is 0. Padding is allowed only at the end of a row: ids after it
// would get other positions than the model's own code gives them.
absl::Status RemoveMasked(const std::vector<int64_t>& mask, server::wire::TokenBatch* tokens) {
  size_t kept = 0, row_end = 0;
  for (int64_t& length : tokens->lengths) {
    const size_t begin = row_end, kept_before = kept;
    row_end += static_cast<size_t>(length);
    for (size_t i = begin; i < row_end; ++i) {
      const bool follows_padding = kept - kept_before < i - begin;
      if ((mask[i] != 0 && mask[i] != 1) || (mask[i] == 1 && follows_padding)) {
        return InvalidField(FieldAt(kMask, i), "must be 0 or 1, with a row's padding at its end");
      }
      if (mask[i] == 1) tokens->ids[kept++] = tokens->ids[i];
    }
    length = static_cast<int64_t>(kept - kept_before);
    if (length == 0) return InvalidField(FieldAt(kMask, begin), "begins a row without tokens");
  }
  tokens->ids.resize(kept);
  return absl::OkStatus();
}

// Reads the ids of one sequence, of several packed sequences with `lengths`, or of one sequence in
// each row.
absl::Status ReadTokens(Inputs& inputs, const DecodeBudget& budget, RequestedOutputs* requested,
                        server::wire::TokenBatch* tokens) {
  const bool ragged = inputs.Has("lengths");
  requested->inputs = {{"tokens.ids", kIds}, {"tokens.lengths", ragged ? "lengths" : kIds}};
  requested->masked = inputs.Has(kMask);
  const std::vector<int64_t> shape = inputs.ShapeOf(kIds);
  if (shape.size() != 1 && (ragged || shape.size() != 2)) {
    return InvalidField(kIds, "must have the shape [tokens], or, without lengths, [rows, tokens]");
  }
  if (requested->masked && (ragged || inputs.ShapeOf(kMask) != shape)) {
    return InvalidField(
        kMask, ragged ? "cannot be given with lengths" : "must have the shape of input_ids");
  }
  const int64_t rows = shape.size() == 1 ? 1 : shape.front();
  if (rows > budget.max_sequences) {
    return InvalidField(kIds, "has more rows than one request may have");
  }
  std::vector<int64_t> mask;
  absl::Status status = inputs.Integers(kIds, budget.max_tokens, &tokens->ids);
  if (status.ok()) status = inputs.Integers("lengths", budget.max_sequences, &tokens->lengths);
  if (status.ok()) status = inputs.Integers(kMask, budget.max_tokens, &mask);
  if (!status.ok() || ragged) return status;
  tokens->lengths.assign(static_cast<size_t>(rows), shape.back());
  return requested->masked ? RemoveMasked(mask, tokens) : absl::OkStatus();
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

// The engine's outputs for the requested ones.
absl::Status ChooseOutputs(const RequestedOutputs& requested,
                           server::wire::Repeated<int32_t>* out) {
  const auto add = [&](int32_t output) {
    if (std::ranges::find(*out, output) == out->end()) out->push_back(output);
  };
  if (requested.rerank) add(v1::LOGITS);
  for (const OutputRow& row : kOutputs) {
    if (!requested.Includes(row.name)) continue;
    if ((row.name == "index" || row.name == "logit") && !requested.rerank) {
      return InvalidField(row.name, "needs the inputs query and passage");
    }
    add(row.output);
  }
  if (out->empty()) add(ToWire(kEncodeOutputs, requested.model->info.outputs.front()));
  return absl::OkStatus();
}

}  // namespace

bool RequestedOutputs::Includes(std::string_view output) const {
  return std::ranges::find(outputs, output, &Output::name) != outputs.end();
}

absl::Status DecodeAttend(wire::ModelInferRequest& message, DecodedAttend* out,
                          RequestedOutputs* requested) {
  Inputs inputs(message, out->slices, out->regions);
  if (absl::Status s = inputs.Read(*requested->model); !s.ok()) return s;
  if (absl::Status s = ReadOutputs(message, out->regions, requested); !s.ok()) return s;
  v1::AttendRequest fields;
  if (absl::Status s = SetFields(message.parameters, &fields); !s.ok()) return s;
  SliceView slices;
  server::wire::AttendRequest request;
  if (absl::Status s = ParseAsWire(fields, out->slices.budget(), &slices, &request); !s.ok())
    return s;
  for (const auto& [name, tensor] : {std::pair{"query", &request.query},
                                     {"key", &request.key},
                                     {"value", &request.value},
                                     {"key_bias", &request.key_bias}}) {
    if (absl::Status s = inputs.Tensor(name, tensor); !s.ok()) return s;
  }
  const int64_t most = out->slices.budget().max_sequences;
  for (const auto& [name, lengths] : {std::pair{"query_lengths", &request.query_lengths},
                                      {"key_lengths", &request.key_lengths}}) {
    if (absl::Status s = inputs.Integers(name, most, lengths); !s.ok()) return s;
  }
  request.return_log_sum_exp = request.return_log_sum_exp || requested->Includes("log_sum_exp");
  return ConvertAttendRequest(std::move(request), out);
}

absl::Status DecodeEncode(wire::ModelInferRequest& message, DecodedEncode* out,
                          RequestedOutputs* requested) {
  Inputs inputs(message, out->slices, out->regions);
  if (absl::Status s = inputs.Read(*requested->model); !s.ok()) return s;
  if (absl::Status s = ReadOutputs(message, out->regions, requested); !s.ok()) return s;
  v1::EncodeRequest fields;
  if (inputs.Has("truncate")) {
    std::vector<std::string_view> values;
    if (absl::Status s = inputs.Texts("truncate", &values); !s.ok()) return s;
    if (values.empty()) return InvalidField("truncate", "is empty");
    wire::ParameterEntry entry{.key = "truncate", .value = {}};
    entry.value.choice = values.front();
    message.parameters.push_back(entry);
  }
  absl::Status set = SetNimFields(&message.parameters, *requested->model, &fields);
  set.Update(SetFields(message.parameters, &fields));
  if (!set.ok()) return set;
  SliceView slices;
  server::wire::EncodeRequest request;
  if (absl::Status s = ParseAsWire(fields, out->slices.budget(), &slices, &request); !s.ok())
    return s;
  request.model = requested->model->name;
  const std::string_view passages = inputs.Has("passages") ? "passages" : "passage";
  requested->rerank = inputs.Has("query") || inputs.Has(passages);
  if (absl::Status s = ChooseOutputs(*requested, &request.outputs); !s.ok()) return s;
  if (absl::Status s = inputs.Tensor("ranges", &request.ranges); !s.ok()) return s;
  if (inputs.Has(kIds)) {
    for (const std::string_view other : {"text", "query", "passage", "passages"}) {
      if (inputs.Has(other)) return InvalidField(other, "cannot be given with input_ids");
    }
    auto& tokens = request.input.emplace<server::wire::TokenBatch>();
    if (absl::Status s = ReadTokens(inputs, out->slices.budget(), requested, &tokens); !s.ok()) {
      return s;
    }
    return ConvertEncodeRequest(std::move(request), out);
  }
  for (const std::string_view other : {std::string_view("lengths"), kMask}) {
    if (inputs.Has(other)) return InvalidField(other, "requires input_ids");
  }
  auto& batch = request.input.emplace<server::wire::TextBatch>();
  requested->inputs = {{"documents", passages}, {"texts.texts", "text"}};
  if (!requested->rerank && !requested->model->reranker) {
    if (absl::Status s = inputs.Texts("text", &batch.texts); !s.ok()) return s;
    return ConvertEncodeRequest(std::move(request), out);
  }
  if (absl::Status s = inputs.Texts("query", &batch.texts); !s.ok()) return s;
  if (absl::Status s = inputs.Texts(passages, &batch.pairs); !s.ok()) return s;
  if (batch.texts.size() == 1) batch.texts.resize(batch.pairs.size(), batch.texts.front());
  return ConvertEncodeRequest(std::move(request), out);
}

absl::Status RenameFields(const absl::Status& error, bool submitted,
                          const RequestedOutputs& requested) {
  const absl::Status named =
      requested.rerank ? RenameTextFields(error, {}, false, submitted) : error;
  const std::optional<std::string> field = castor::FieldOf(named);
  for (const auto& [theirs, ours] : requested.inputs) {
    if (!field.has_value() || !field->starts_with(theirs)) continue;
    const std::string place = requested.masked ? "" : field->substr(theirs.size());
    return RenameField(named, std::string(ours) + place);
  }
  return named;
}

}  // namespace castor::server::oip
