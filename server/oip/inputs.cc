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

using server::wire::Text;

constexpr std::string_view kRegion = "shared_memory_region";
constexpr std::string_view kRegionSize = "shared_memory_byte_size";
constexpr std::string_view kRegionOffset = "shared_memory_offset";

struct DatatypeRow {
  std::string_view name;
  v1::DataType dtype;
  std::string_view contents;  // where else its elements may be
};
constexpr DatatypeRow kDatatypes[] = {{"FP32", v1::FLOAT32, " or fp32_contents"},
                                      {"FP16", v1::FLOAT16, ""},
                                      {"BF16", v1::BFLOAT16, ""},
                                      {"INT32", v1::INT32, " or int_contents"},
                                      {"INT64", v1::INT64, " or int64_contents"}};

template <typename T>
ByteSpan BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

Text AsText(ByteSpan bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Removes `size` bytes from the front of pieces, which must have that many. Returns a view, or a
// copy if they are in several pieces; its data is null if the budget has no room for the copy.
Text TakeText(size_t size, std::span<ByteSpan>& pieces, SliceView& slices) {
  if (size == 0) return "";
  std::vector<ByteSpan> taken;
  while (size > pieces.front().size()) {
    taken.push_back(pieces.front());
    size -= pieces.front().size();
    pieces = pieces.subspan(1);
  }
  const ByteSpan last = pieces.front().first(size);
  pieces.front() = pieces.front().subspan(size);
  if (taken.empty()) return AsText(last);
  taken.push_back(last);
  return slices.Join(taken);
}

absl::Status Differs(std::string_view name, int64_t count, std::string_view what,
                     const std::vector<int64_t>& shape) {
  return InvalidField(name, "has " + std::to_string(count) + " " + std::string(what) +
                                ", but the shape " + ShapeString(shape));
}

}  // namespace

absl::Status ReadRegion(const Parameters& parameters, std::string_view tensor,
                        std::optional<server::wire::SharedMemoryRef>* out) {
  const auto* region = FindParameter(parameters, kRegion);
  if (region == nullptr) return absl::OkStatus();
  const auto* name = std::get_if<wire::Text>(&region->choice);
  if (name == nullptr) return InvalidField(tensor, std::string(kRegion) + " must be a string");
  server::wire::SharedMemoryRef& ref = out->emplace();
  ref.region = *name;
  for (const auto& [key, value] :
       {std::pair{kRegionSize, &ref.size}, {kRegionOffset, &ref.offset}}) {
    const auto* given = FindParameter(parameters, key);
    if (given == nullptr && value == &ref.offset) continue;
    const auto* number = given == nullptr ? nullptr : std::get_if<int64_t>(&given->choice);
    if (number == nullptr) return InvalidField(tensor, std::string(key) + " must be an int64");
    *value = *number;
  }
  return absl::OkStatus();
}

absl::Status Inputs::Read(const Model& model) {
  size_t raw = 0;
  for (wire::InferInputTensor& input : message_.inputs) {
    const bool known = std::any_of(model.inputs.begin(), model.inputs.end(),
                                   [&](const TensorRow& row) { return row.name == input.name; }) ||
                       (model.reranker && input.name == "passages") ||
                       (!model.attention && (input.name == "truncate" || input.name == "modality"));
    if (!known) {
      return InvalidField(input.name, "is not an input of \"" + model.name + "\"");
    }
    std::optional<server::wire::SharedMemoryRef> region;
    if (absl::Status s = ReadRegion(input.parameters, input.name, &region); !s.ok()) return s;
    const bool is_raw = !message_.raw_input_contents.empty();
    if (input.contents.has_value() && (is_raw || region.has_value())) {
      return InvalidField(input.name,
                          "cannot combine contents with raw_input_contents or shared memory");
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
      return InvalidField(input.name, "is given twice");
    }
  }
  if (raw < message_.raw_input_contents.size()) {
    return InvalidField("raw_input_contents",
                        "has more entries than there are inputs without contents");
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
  const auto* const pieces = std::get_if<server::wire::Bytes>(&entry.data);
  if (pieces != nullptr && (pieces->empty() || pieces->front().empty()) &&
      NumElements(input.shape) != 0) {
    return InvalidField(
        name, "has no elements in raw_input_contents, shared memory" + std::string(row->contents));
  }
  tensor.data = std::move(entry.data);
  return absl::OkStatus();
}

std::vector<int64_t> Inputs::ShapeOf(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? std::vector<int64_t>() : found->second.input->shape;
}

absl::StatusOr<int64_t> Inputs::Count(const Entry& entry, int64_t most) const {
  const wire::InferInputTensor& input = *entry.input;
  const std::optional<int64_t> count = NumElements(input.shape);
  if (!count.has_value()) return InvalidField(input.name, "has an invalid shape");
  if (*count <= most) return *count;
  return InvalidField(input.name, "has " + std::to_string(*count) + " elements; at most " +
                                      std::to_string(most) + " are allowed");
}

absl::StatusOr<int64_t> Inputs::Find(const Data& data, std::string_view name, TensorInput* out) {
  if (const auto* pieces = std::get_if<server::wire::Bytes>(&data)) {
    out->pieces = *pieces;
    return out->size_bytes();
  }
  const auto& ref = std::get<server::wire::SharedMemoryRef>(data);
  if (absl::Status s = regions_.Resolve(ref, name, &out->file.emplace()); !s.ok()) return s;
  return out->file->size;
}

absl::Status Inputs::Integers(std::string_view name, int64_t most, std::vector<int64_t>* out) {
  std::optional<server::wire::Tensor> tensor;
  if (absl::Status s = Tensor(name, &tensor); !s.ok() || !tensor.has_value()) return s;
  const bool wide = tensor->dtype == v1::INT64;
  if (!wide && tensor->dtype != v1::INT32) return InvalidField(name, "must be INT64 or INT32");
  const absl::StatusOr<int64_t> count = Count(entries_.at(name), most);
  if (!count.ok()) return count.status();
  TensorInput input;
  const absl::StatusOr<int64_t> size = Find(tensor->data, name, &input);
  if (!size.ok()) return size.status();
  const int64_t needed = *count * (wide ? 8 : 4);
  if (*size != needed) return Differs(name, *size, "bytes", tensor->shape);
  if (!slices_.Hold(*count * 8)) return DecodeBudget::Full();
  out->resize(static_cast<size_t>(*count));
  // INT32 is read into the upper half of the array, then widened from the front.
  auto* const bytes = reinterpret_cast<std::byte*>(out->data()) + (wide ? 0 : needed);
  absl::Status read = TensorReader(input, name).Read(static_cast<size_t>(needed), bytes);
  for (size_t i = 0; !wide && i < out->size(); ++i) {
    int32_t narrow = 0;
    std::memcpy(&narrow, bytes + i * sizeof(narrow), sizeof(narrow));
    (*out)[i] = narrow;
  }
  return read;
}

absl::Status Inputs::Texts(std::string_view name, std::vector<std::string_view>* out) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return InvalidField(name, "missing");
  const Entry& entry = found->second;
  const wire::InferInputTensor& input = *entry.input;
  if (input.datatype != "BYTES") return InvalidField(name, "must be BYTES");
  const absl::StatusOr<int64_t> count = Count(entry, slices_.budget().max_sequences);
  if (!count.ok()) return count.status();
  if (!slices_.Hold(*count * static_cast<int64_t>(sizeof(Text)))) return DecodeBudget::Full();
  out->reserve(static_cast<size_t>(*count));
  if (input.contents.has_value()) {
    const auto& elements = input.contents->bytes_contents;
    if (std::ssize(elements) != *count) {
      return Differs(name, std::ssize(elements), "elements in bytes_contents", input.shape);
    }
    for (const server::wire::Bytes& pieces : elements) {
      out->push_back(pieces.size() == 1 ? AsText(pieces[0]) : slices_.Join(pieces));
    }
  } else {
    TensorInput bytes;
    const absl::StatusOr<int64_t> size = Find(entry.data, name, &bytes);
    if (!size.ok()) return size.status();
    if (bytes.file.has_value()) {
      if (*size / (slices_.budget().max_text_bytes + 4) > *count) {
        return Differs(name, *size, "bytes", input.shape);
      }
      auto* const copy = reinterpret_cast<std::byte*>(slices_.Allocate(static_cast<size_t>(*size)));
      if (copy == nullptr) return DecodeBudget::Full();
      absl::Status read = TensorReader(bytes, name).Read(static_cast<size_t>(*size), copy);
      if (!read.ok()) return read;
      bytes.pieces = {ByteSpan(copy, static_cast<size_t>(*size))};
    }
    std::span<ByteSpan> pieces(bytes.pieces);
    auto left = static_cast<size_t>(*size);
    for (int64_t i = 0; i < *count && left > 0; ++i) {
      uint32_t length = 0;
      if (left < sizeof(length)) return InvalidField(name, "ends within a length");
      const Text prefix = TakeText(sizeof(length), pieces, slices_);
      if (prefix.data() == nullptr) return DecodeBudget::Full();
      std::memcpy(&length, prefix.data(), sizeof(length));
      left -= sizeof(length);
      if (length > left) return InvalidField(name, "ends within an element");
      out->push_back(TakeText(length, pieces, slices_));
      left -= length;
    }
    if (left > 0) return InvalidField(name, "has more bytes than its shape has elements");
    if (std::ssize(*out) != *count) return Differs(name, std::ssize(*out), "elements", input.shape);
  }
  for (const Text text : *out) {
    if (text.data() == nullptr) return DecodeBudget::Full();
    if (!google::protobuf::internal::IsStructurallyValidUTF8(text.data(),
                                                             static_cast<int>(text.size()))) {
      return InvalidField(name, "has an element that is not valid UTF-8");
    }
  }
  return absl::OkStatus();
}

}  // namespace castor::server::oip
