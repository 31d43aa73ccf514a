#include "server/oip/inputs.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/tensor_reader.h"
#include "google/protobuf/stubs/common.h"
#include "server/codec/convert.h"

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

template <typename T>
ByteSpan BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// The most that texts or integers in shared memory may take: they are copied before the engine's
// budgets count them. As much as integers on the wire can.
constexpr int64_t kMostCopied = WireReader::kMaxElements * sizeof(int64_t);

}  // namespace

absl::Status ReadRegion(const Parameters& parameters, std::string_view tensor,
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

absl::Status Inputs::Read(const Model& model) {
  size_t raw = 0;
  for (wire::InferInputTensor& input : message_.inputs) {
    const bool known = std::any_of(model.inputs.begin(), model.inputs.end(),
                                   [&](const TensorRow& row) { return row.name == input.name; }) ||
                       input.name == "passages" || input.name == "truncate" ||
                       input.name == "modality";
    if (!known) {
      return InvalidField(input.name, "is not an input of \"" + model.name + "\"");
    }
    std::optional<server::wire::SharedMemoryRef> region;
    if (absl::Status s = ReadRegion(input.parameters, input.name, &region); !s.ok()) return s;
    const bool is_raw = !message_.raw_input_contents.empty();
    if (input.contents.has_value() && (is_raw || region.has_value())) {
      return InvalidField(input.name, "has contents beside raw_input_contents or shared memory");
    }
    Entry entry{.input = &input, .data = server::wire::Bytes()};
    if (region.has_value()) {
      entry.data = *region;
    } else if (is_raw) {
      if (raw == message_.raw_input_contents.size()) {
        return InvalidField("raw_input_contents", "has no entry for " + std::string(input.name));
      }
      entry.data = std::move(message_.raw_input_contents[raw++]);
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

absl::Status Inputs::Tensor(std::string_view name, std::optional<server::wire::Tensor>* out) {
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
  if (input.contents.has_value()) {
    const wire::InferTensorContents& contents = *input.contents;
    const ByteSpan bytes = row->dtype == v1::FLOAT32 ? BytesOf(contents.fp32_contents)
                           : row->dtype == v1::INT32 ? BytesOf(contents.int_contents)
                           : row->dtype == v1::INT64 ? BytesOf(contents.int64_contents)
                                                     : ByteSpan();
    entry.data = server::wire::Bytes{bytes};
  }
  tensor.data = std::move(entry.data);
  return absl::OkStatus();
}

absl::Status Inputs::Join(const Data& data, std::string_view name, std::string_view* out) {
  if (const auto* pieces = std::get_if<server::wire::Bytes>(&data)) {
    *out = slices_.Join(*pieces);
    return absl::OkStatus();
  }
  TensorInput input;
  FileRange& range = input.file.emplace();
  const auto& ref = std::get<server::wire::SharedMemoryRef>(data);
  if (absl::Status s = regions_.Resolve(ref, name, &range); !s.ok()) return s;
  if (range.size > kMostCopied) {
    return InvalidField(name, "takes more than " + std::to_string(kMostCopied) + " bytes");
  }
  const auto size = static_cast<size_t>(range.size);
  char* const bytes = slices_.Allocate(size);
  *out = {bytes, size};
  return TensorReader(input, name).Read(size, reinterpret_cast<std::byte*>(bytes));
}

absl::Status Inputs::Integers(std::string_view name, std::vector<int64_t>* out) {
  std::optional<server::wire::Tensor> tensor;
  if (absl::Status s = Tensor(name, &tensor); !s.ok() || !tensor.has_value()) return s;
  const bool wide = tensor->dtype == v1::INT64;
  if (!wide && tensor->dtype != v1::INT32) return InvalidField(name, "must be INT64 or INT32");
  std::string_view joined;
  if (absl::Status s = Join(tensor->data, name, &joined); !s.ok()) return s;
  const size_t size = wide ? 8 : 4;
  const std::optional<int64_t> needed =
      NumBytes(wide ? DType::kInt64 : DType::kInt32, tensor->shape);
  if (!needed.has_value() || static_cast<size_t>(*needed) != joined.size()) {
    return InvalidField(name, "has " + std::to_string(joined.size()) + " bytes, but the shape " +
                                  ShapeString(tensor->shape));
  }
  out->resize(joined.size() / size);
  for (size_t i = 0; i < out->size(); ++i) {
    int32_t narrow = 0;
    if (wide) std::memcpy(&(*out)[i], joined.data() + i * size, size);
    if (!wide) std::memcpy(&narrow, joined.data() + i * size, size), (*out)[i] = narrow;
  }
  return absl::OkStatus();
}

absl::Status Inputs::Texts(std::string_view name, std::vector<std::string_view>* out) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return InvalidField(name, "missing");
  const Entry& entry = found->second;
  const wire::InferInputTensor& input = *entry.input;
  if (input.datatype != "BYTES") return InvalidField(name, "must be BYTES");
  if (input.contents.has_value()) {
    for (const wire::Bytes& element : input.contents->bytes_contents) {
      out->push_back(slices_.Join(element));
    }
  } else {
    std::string_view rest;
    if (absl::Status s = Join(entry.data, name, &rest); !s.ok()) return s;
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

}  // namespace castor::server::oip
