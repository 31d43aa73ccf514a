// The Open Inference Protocol over HTTP, with the extension for binary tensors: its messages are
// those of gRPC in JSON, so a request becomes gRPC's bytes and takes the same way (server/oip).
// Binary tensors are not copied on their way in.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "inference/grpc_service.pb.h"
#include "server/codec/response.h"
#include "server/http/door.h"
#include "server/oip/wire.h"
#include "server/version.h"

namespace castor::server::http {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;

// The header field that gives the size of the JSON in front of binary tensors.
constexpr std::string_view kHeaderLength = "inference-header-content-length";
constexpr std::string_view kBinarySize = "binary_data_size";
constexpr std::string_view kBinaryData = "binary_data";
constexpr std::string_view kBinaryOutput = "binary_data_output";

absl::StatusOr<oip::ModelPtr> ModelAt(const Door& door, std::string_view path) {
  constexpr std::string_view kVersions = "/versions/";
  const size_t at = path.find(kVersions);
  const std::string_view version =
      at == path.npos ? std::string_view() : path.substr(at + kVersions.size());
  return door.catalogue.Find(path.substr(0, at), version);
}

// ---- a request

// Sets an InferParameter of the message's map from a JSON value. Others are left out.
template <typename Map>
void SetParameter(std::string_view key, const Value& value, Map* parameters) {
  inference::InferParameter& to = (*parameters)[std::string(key)];
  if (value.IsBool()) to.set_bool_param(value.GetBool());
  if (value.IsInt64()) to.set_int64_param(value.GetInt64());
  if (value.IsDouble()) to.set_double_param(value.GetDouble());
  if (value.IsString()) to.set_string_param(value.GetString(), value.GetStringLength());
}

template <typename Map>
void SetParameters(const Value* from, Map* parameters) {
  if (from == nullptr || !from->IsObject()) return;
  for (const auto& member : from->GetObject()) {
    const std::string_view key(member.name.GetString(), member.name.GetStringLength());
    if (key == kBinarySize || key == kBinaryData || key == kBinaryOutput) continue;
    SetParameter(key, member.value, parameters);
  }
}

template <typename T>
void AppendRaw(T value, std::string* raw) {
  raw->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The elements of a tensor in JSON, nested or flat, as raw contents.
absl::Status AppendData(const std::string& field, std::string_view datatype, const Value& data,
                        int depth, std::string* raw) {
  constexpr int kMaxDepth = 8;  // as many as a shape's dimensions
  if (data.IsArray()) {
    if (depth == kMaxDepth) return InvalidField(field, "has more than 8 levels of lists");
    for (const Value& one : data.GetArray()) {
      if (absl::Status s = AppendData(field, datatype, one, depth + 1, raw); !s.ok()) return s;
    }
    return absl::OkStatus();
  }
  if (datatype == "BYTES" && data.IsString()) {
    AppendRaw(static_cast<uint32_t>(data.GetStringLength()), raw);
    raw->append(data.GetString(), data.GetStringLength());
  } else if (datatype == "FP32" && data.IsNumber()) {
    AppendRaw(data.GetFloat(), raw);
  } else if (datatype == "INT64" && data.IsInt64()) {
    AppendRaw(data.GetInt64(), raw);
  } else if (datatype == "INT32" && data.IsInt()) {
    AppendRaw(data.GetInt(), raw);
  } else {
    return InvalidField(field, "JSON data must be BYTES, FP32, INT32 or INT64, as `datatype` says");
  }
  return absl::OkStatus();
}

// Which outputs are binary in the answer.
struct Binary {
  bool all = false;
  std::vector<std::pair<std::string, bool>> by_name;  // in place of `all`

  bool operator()(const std::string& name) const {
    for (const auto& [output, binary] : by_name) {
      if (output == name) return binary;
    }
    return all;
  }
};

// Gathers gRPC's bytes of a request: the small fields, then a raw content for each input.
class Transcoder {
 public:
  Transcoder(std::shared_ptr<const std::string> body, size_t json_size)
      : body_(std::move(body)), binary_at_(json_size) {}

  absl::Status AddInput(const Value& input, size_t i) {
    ObjectReader fields(input);
    const std::string name(fields.Text("name").value_or(FieldAt("inputs", i)));
    const auto datatype = fields.Text("datatype").value_or("");
    const auto shape = fields.Integers("shape").value_or(std::vector<int64_t>());
    if (!fields.status().ok()) return fields.status();
    auto* const to = message_.add_inputs();
    to->set_name(name);
    to->set_datatype(std::string(datatype));
    to->mutable_shape()->Assign(shape.begin(), shape.end());
    const Value* const parameters = fields.Find("parameters");
    SetParameters(parameters, to->mutable_parameters());
    if (const Value* const data = fields.Find("data")) {
      std::string raw;
      absl::Status s = AppendData(name, datatype, *data, 0, &raw);
      AddRaw(SliceOf(std::move(raw)));
      return s;
    }
    int64_t size = -1;
    if (parameters != nullptr) {
      ObjectReader inner(*parameters);
      size = inner.Integer(kBinarySize).value_or(-1);
      if (inner.Find("shared_memory_region") != nullptr) return absl::OkStatus();
    }
    if (size < 0) return InvalidField(name, "has neither data nor binary_data_size");
    if (static_cast<uint64_t>(size) > body_->size() - binary_at_) {
      return InvalidField(name, "the body ends before its binary data does");
    }
    auto* const owner = new std::shared_ptr<const std::string>(body_);
    AddRaw(grpc::Slice(
        const_cast<char*>(body_->data()) + binary_at_, static_cast<size_t>(size),
        [](void* it) { delete static_cast<std::shared_ptr<const std::string>*>(it); }, owner));
    binary_at_ += static_cast<size_t>(size);
    return absl::OkStatus();
  }

  ModelInferRequest& message() { return message_; }
  bool complete() const { return binary_at_ == body_->size(); }

  grpc::ByteBuffer Finish() {
    raws_.insert(raws_.begin(), SliceOf(message_.SerializeAsString()));
    return grpc::ByteBuffer(raws_.data(), raws_.size());
  }

 private:
  void AddRaw(grpc::Slice raw) {
    std::string tag;
    AppendTagAndLength(ModelInferRequest::kRawInputContentsFieldNumber, raw.size(), &tag);
    raws_.push_back(SliceOf(std::move(tag)));
    raws_.push_back(std::move(raw));
  }

  const std::shared_ptr<const std::string> body_;
  size_t binary_at_;
  ModelInferRequest message_;
  std::vector<grpc::Slice> raws_;
};

// ---- an answer

// A ModelInferResponse, read like the requests of gRPC (server/oip/wire.h): contents are not
// copied.
struct ResponseView {
  oip::wire::Text model_name, model_version, id;
  oip::wire::Repeated<oip::wire::ParameterEntry> parameters;
  oip::wire::Repeated<oip::wire::InferInputTensor> outputs;  // an output has the same fields
  oip::wire::Repeated<oip::wire::Bytes> contents;

  template <auto kMember, uint32_t kNumber>
  using Text = oip::wire::Field<"text", kNumber, kMember>;
  using Fields = oip::wire::FieldList<
      Text<&ResponseView::model_name, 1>, Text<&ResponseView::model_version, 2>,
      Text<&ResponseView::id, 3>,
      oip::wire::Field<"parameters", 4, &ResponseView::parameters, oip::wire::kParameters>,
      oip::wire::Field<"outputs", 5, &ResponseView::outputs, oip::wire::kTensors>,
      oip::wire::Field<"contents", 6, &ResponseView::contents, oip::wire::kTensors>>;
};

Json ParametersOf(const oip::wire::Repeated<oip::wire::ParameterEntry>& parameters) {
  Json json = Json::object();
  for (const auto& [key, value] : parameters) {
    Json& to = json[std::string(key)];
    if (const auto* is = std::get_if<bool>(&value.choice)) to = *is;
    if (const auto* number = std::get_if<int64_t>(&value.choice)) to = *number;
    if (const auto* text = std::get_if<std::string_view>(&value.choice)) to = std::string(*text);
  }
  return json;
}

template <typename T>
T Read(const char*& at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  at += sizeof(value);
  return value;
}

template <typename T>
void AppendInteger(const char*& at, std::string* out) {
  *out += std::to_string(Read<T>(at));
}

// Appends the next element as JSON, and moves to the one after it. Null: JSON has no such type.
using AppendElement = void (*)(const char*& at, std::string* out);
AppendElement AppenderOf(std::string_view datatype) {
  if (datatype == "FP32") {
    return [](const char*& at, std::string* out) { AppendFloat(Read<float>(at), out); };
  }
  if (datatype == "INT32") return AppendInteger<int32_t>;
  if (datatype == "INT64") return AppendInteger<int64_t>;
  if (datatype == "INT8") return AppendInteger<int8_t>;
  if (datatype == "UINT8") return AppendInteger<uint8_t>;
  if (datatype == "BOOL") {
    return [](const char*& at, std::string* out) { *out += *at++ != 0 ? "true" : "false"; };
  }
  if (datatype != "BYTES") return nullptr;
  return [](const char*& at, std::string* out) {
    const uint32_t size = Read<uint32_t>(at);
    *out += Dump(Json(std::string(at, size)));
    at += size;
  };
}

// A part of an answer's body: text, then the elements of a tensor.
struct Part {
  std::string text;
  std::string_view elements = {};
  AppendElement append = nullptr;  // null: the bytes themselves
};

// Writes parts piece by piece.
class PartWriter {
 public:
  PartWriter(std::shared_ptr<SliceView> owner, std::vector<Part> parts)
      : owner_(std::move(owner)), parts_(std::move(parts)) {}

  bool operator()(std::string* out) {
    for (; next_ < parts_.size(); ++next_, at_ = nullptr) {
      const Part& part = parts_[next_];
      const char* const begin = part.elements.data();
      const char* const end = begin + part.elements.size();
      if (at_ == nullptr) out->append(part.text);
      if (at_ == nullptr) at_ = begin;
      while (at_ < end) {
        if (out->size() >= kPieceBytes) return true;
        if (part.append != nullptr) {
          if (at_ > begin) out->push_back(',');
          part.append(at_, out);
        } else {
          const size_t bytes = std::min(kPieceBytes, static_cast<size_t>(end - at_));
          out->append(at_, bytes);
          at_ += bytes;
        }
      }
    }
    return false;
  }

 private:
  std::shared_ptr<SliceView> owner_;  // of the elements
  std::vector<Part> parts_;
  size_t next_ = 0;
  const char* at_ = nullptr;
};

absl::StatusOr<Answer> Transcode(const grpc::ByteBuffer& bytes, const Binary& binary,
                                 DecodeBudget& budget) {
  auto slices = std::make_shared<SliceView>(bytes, budget);
  ResponseView message;
  if (absl::Status s = server::wire::Parse(slices.get(), &message); !s.ok()) return s;
  Json head = {{"model_name", std::string(message.model_name)},
               {"model_version", std::string(message.model_version)}};
  if (!message.id.empty()) head["id"] = std::string(message.id);
  if (!message.parameters.empty()) head["parameters"] = ParametersOf(message.parameters);
  const std::string members = Dump(head);
  std::vector<Part> parts = {{members.substr(0, members.size() - 1) + ",\"outputs\":["}};
  std::vector<Part> contents;
  int64_t content_bytes = 0;
  for (size_t i = 0; i < message.outputs.size(); ++i) {
    const auto& from = message.outputs[i];
    std::string_view raw;
    if (i < message.contents.size() && !message.contents[i].empty()) {
      const auto& pieces = message.contents[i];
      raw = pieces.size() == 1 ? std::string_view(reinterpret_cast<const char*>(pieces[0].data()),
                                                  pieces[0].size())
                               : slices->Join(pieces);
      if (raw.data() == nullptr) return DecodeBudget::Full();
    }
    Json output = {{"name", std::string(from.name)},
                   {"datatype", std::string(from.datatype)},
                   {"shape", from.shape}};
    Json parameters = ParametersOf(from.parameters);
    const AppendElement append =
        binary(std::string(from.name)) ? nullptr : AppenderOf(from.datatype);
    if (append == nullptr) {
      parameters[std::string(kBinarySize)] = static_cast<int64_t>(raw.size());
      contents.push_back({"", raw});
      content_bytes += static_cast<int64_t>(raw.size());
    }
    if (!parameters.empty()) output["parameters"] = std::move(parameters);
    std::string text = (i == 0 ? "" : ",") + Dump(output);
    if (append != nullptr) {
      text.back() = ',';
      parts.push_back({text + "\"data\":[", raw, append});
      text = "]}";
    }
    parts.push_back({std::move(text)});
  }
  parts.push_back({"]}"});
  Answer answer;
  if (contents.empty()) {
    answer.more = PartWriter(std::move(slices), std::move(parts));
    return answer;
  }
  // The JSON's size comes first, so that it is made whole.
  PartWriter json(slices, std::move(parts));
  std::string& text = contents.front().text;
  for (bool more = true; more;) {
    std::string piece;
    more = json(&piece);
    text += piece;
  }
  answer.content_type = "application/octet-stream";
  answer.fields.emplace_back("Inference-Header-Content-Length", std::to_string(text.size()));
  answer.length = static_cast<int64_t>(text.size()) + content_bytes;
  answer.more = PartWriter(std::move(slices), std::move(contents));
  return answer;
}

// ---- routes

absl::StatusOr<Work> Infer(const Door& door, Asked& asked) {
  const auto body = std::make_shared<const std::string>(std::move(asked.raw));
  size_t json_size = body->size();
  for (const auto& [name, value] : asked.header.fields) {
    if (name != kHeaderLength) continue;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), json_size);
    if (read.ec != std::errc() || json_size > body->size()) {
      return InvalidField(kHeaderLength, "must be a number of bytes of the body");
    }
  }
  if (absl::Status s = asked.body.Parse(body->substr(0, json_size), door.services.decoding);
      !s.ok()) {
    return s;
  }
  // Elements in JSON take at most this much as raw contents.
  if (!asked.body.held().Hold(3 * static_cast<int64_t>(json_size))) return DecodeBudget::Full();
  ObjectReader fields(asked.body.root());
  const absl::StatusOr<oip::ModelPtr> model = ModelAt(door, asked.wildcard);
  if (!model.ok()) return model.status();
  Transcoder transcoder(body, json_size);
  ModelInferRequest& message = transcoder.message();
  message.set_model_name((*model)->name);
  message.set_id(std::string(fields.Text("id").value_or("")));
  const Value* const parameters = fields.Find("parameters");
  SetParameters(parameters, message.mutable_parameters());
  Binary binary;
  if (parameters != nullptr) {
    ObjectReader inner(*parameters);
    binary.all = inner.Bool(kBinaryOutput).value_or(false);
  }
  const Value* const inputs = fields.Find("inputs");
  if (inputs == nullptr || !inputs->IsArray()) fields.Fail("inputs", "missing: give a list");
  if (!fields.status().ok()) return fields.status();
  for (rapidjson::SizeType i = 0; i < inputs->Size(); ++i) {
    if (absl::Status s = transcoder.AddInput((*inputs)[i], i); !s.ok()) return s;
  }
  if (!transcoder.complete()) return InvalidField("inputs", "the body has more data than they say");
  const Value* const outputs = fields.Find("outputs");
  for (rapidjson::SizeType i = 0; outputs && outputs->IsArray() && i < outputs->Size(); ++i) {
    ObjectReader output((*outputs)[i]);
    const std::string name(output.Text("name").value_or(""));
    auto* const to = message.add_outputs();
    to->set_name(name);
    const Value* const own = output.Find("parameters");
    SetParameters(own, to->mutable_parameters());
    if (own != nullptr) {
      ObjectReader inner(*own);
      if (const auto is = inner.Bool(kBinaryData)) binary.by_name.emplace_back(name, *is);
    }
    if (!output.status().ok()) return output.status();
  }
  return InferWork{
      .message = transcoder.Finish(),
      .write = [binary = std::move(binary), &budget = door.services.decoding](
                   const grpc::ByteBuffer& answer) { return Transcode(answer, binary, budget); }};
}

absl::StatusOr<Work> ServerMetadata(const Door&, Asked&) {
  return JsonAnswer({{"name", "castor"},
                     {"version", std::string(Version())},
                     {"extensions", {"binary_tensor_data", "parameters"}}});
}

Answer ReadyAnswer(std::string_view name, bool ready) {
  Answer answer = JsonAnswer({{std::string(name), ready}});
  if (!ready) answer.status = 503;
  return answer;
}

absl::StatusOr<Work> Live(const Door&, Asked&) { return ReadyAnswer("live", true); }
absl::StatusOr<Work> Ready(const Door& door, Asked&) { return ReadyAnswer("ready", door.ready()); }
absl::StatusOr<Work> ModelReady(const Door& door, Asked& asked) {
  const auto model = ModelAt(door, asked.wildcard);
  if (!model.ok()) return model.status();
  return ReadyAnswer("ready", door.ready());
}

absl::StatusOr<Work> Metadata(const Door& door, Asked& asked) {
  const auto model = ModelAt(door, asked.wildcard);
  if (!model.ok()) return model.status();
  const auto rows = [](const std::vector<oip::TensorRow>& tensors) {
    Json json = Json::array();
    for (const oip::TensorRow& tensor : tensors) {
      json.push_back({{"name", std::string(tensor.name)},
                      {"datatype", std::string(tensor.datatype)},
                      {"shape", tensor.shape}});
    }
    return json;
  };
  return JsonAnswer({{"name", (*model)->name},
                     {"versions", {std::string(oip::kVersion)}},
                     {"platform", "castor"},
                     {"inputs", rows((*model)->inputs)},
                     {"outputs", rows((*model)->outputs)}});
}

absl::StatusOr<Work> Index(const Door& door, Asked&) {
  Json models = Json::array();
  for (const oip::IndexRow& row : door.catalogue.Index()) {
    models.push_back({{"name", row.name},
                      {"version", std::string(oip::kVersion)},
                      {"state", std::string(row.state)},
                      {"reason", row.reason}});
  }
  return JsonAnswer(models);
}

// The bodies of these two have options that only other servers know.
absl::StatusOr<Work> Load(const Door& door, Asked& asked) {
  return ModelWork{
      [&engine = door.services.engine, name = std::string(asked.wildcard)](ModelCompletion done) {
        engine.LoadModel(name, "", /*replace=*/true, std::move(done));
      }};
}

absl::StatusOr<Work> Unload(const Door& door, Asked& asked) {
  return ModelWork{[&engine = door.services.engine, name = std::string(asked.wildcard)](
                       ModelCompletion done) { engine.UnloadModel(name, std::move(done)); }};
}

constexpr auto kInferRoutes = std::to_array<Route>({
    {"GET", "/v2", kMayGetMetadata, ErrorForm::kPlain, ServerMetadata,
     "Open Inference Protocol: the server"},
    {"GET", "/v2/health/live", kMayCheck, ErrorForm::kPlain, Live, "Liveness"},
    {"GET", "/v2/health/ready", kMayCheck, ErrorForm::kPlain, Ready, "Readiness"},
    {"GET", "/v2/models/*/ready", kMayGetMetadata, ErrorForm::kPlain, ModelReady,
     "A model's readiness"},
    {"POST", "/v2/models/*/infer", kMayInfer, ErrorForm::kPlain, Infer,
     "Inference, with tensors in JSON or binary; castor_attention is attention itself"},
    {"POST", "/v2/repository/index", kMayGetMetadata, ErrorForm::kPlain, Index,
     "The models and their states"},
    {"POST", "/v2/repository/models/*/load", kMayLoad, ErrorForm::kPlain, Load, "Load a model"},
    {"POST", "/v2/repository/models/*/unload", kMayUnload, ErrorForm::kPlain, Unload,
     "Unload a model"},
    {"GET", "/v2/models/*", kMayGetMetadata, ErrorForm::kPlain, Metadata, "A model's tensors"},
});

}  // namespace

std::span<const Route> InferRoutes() { return kInferRoutes; }

}  // namespace castor::server::http
