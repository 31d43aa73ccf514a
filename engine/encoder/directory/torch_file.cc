#include "engine/encoder/directory/torch_file.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/base/regular_file.h"

namespace castor::encoder {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;

class Memory final : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit Memory(std::string_view bytes) : bytes_(bytes) {}

  size_t size() const override { return bytes_.size(); }
  size_t read(uint64_t at, void* out, size_t count, const char* /*what*/) const override {
    if (at >= bytes_.size()) return 0;
    count = std::min(count, bytes_.size() - static_cast<size_t>(at));
    std::memcpy(out, bytes_.data() + at, count);
    return count;
  }

 private:
  const std::string_view bytes_;
};

// A zip archive whose records are stored as they are.
class Archive {
 public:
  explicit Archive(std::string_view bytes)
      : size_(bytes.size()), reader_(std::make_shared<Memory>(bytes)) {}

  // Throws where there is none.
  std::string Record(const std::string& name, size_t most) {
    const size_t size = reader_.getRecordSize(name);
    TORCH_CHECK(size <= std::min(most, size_), name, " has ", size, " bytes, which is too much");
    const auto [data, read] = reader_.getRecord(name);
    return {static_cast<const char*>(data.get()), read};
  }
  bool Has(const std::string& name) { return reader_.hasRecord(name); }

 private:
  const size_t size_;
  caffe2::serialize::PyTorchStreamReader reader_;
};

struct StorageType {
  std::string_view name;  // in Python
  std::string_view dtype;
  int64_t size;
};
constexpr StorageType kStorages[] = {
    {"FloatStorage", "F32", 4}, {"HalfStorage", "F16", 2}, {"BFloat16Storage", "BF16", 2}};

bool IsContiguous(const PickledTensor& tensor) {
  int64_t expected = 1;
  if (tensor.strides.size() != tensor.shape.size()) return false;
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
    const auto next = CheckedMultiply(expected, tensor.shape[d]);
    if (!next.has_value()) return false;
    expected = *next;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TorchFile>> TorchFile::Open(const std::string& path) {
  const auto problem = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(what)));
  };
  absl::StatusOr<std::string> bytes = ReadRegularFile(path, kMostBytes);
  if (!bytes.ok()) return bytes.status();
  std::unique_ptr<TorchFile> file(new TorchFile);
  file->path_ = path;
  try {
    Archive archive(*bytes);
    if (archive.Has("byteorder") && archive.Record("byteorder", 16) != "little") {
      return problem("is of a big-endian machine");
    }
    const auto tensors = ReadPickledTensors(archive.Record("data.pkl", kMostPickleBytes));
    if (!tensors.ok()) return problem(std::string(tensors.status().message()));
    for (const auto& [name, tensor] : *tensors) {
      const auto* type = std::ranges::find(kStorages, tensor.storage, &StorageType::name);
      if (type == std::end(kStorages)) {
        return problem(name + ": is a " + tensor.storage + ", which is not supported");
      }
      if (!IsContiguous(tensor)) return problem(name + ": is not contiguous");
      const auto [found, fresh] = file->records_.try_emplace(tensor.key);
      std::string& record = found->second;
      if (fresh) record = archive.Record("data/" + tensor.key, kMostBytes);
      const auto count = NumElements(tensor.shape);
      const auto begin = CheckedMultiply(tensor.offset, type->size);
      const auto length = count ? CheckedMultiply(*count, type->size) : std::nullopt;
      const auto end = begin && length ? CheckedAdd(*begin, *length) : std::nullopt;
      if (!end || *end > static_cast<int64_t>(record.size())) {
        return problem(name + ": its storage is too small");
      }
      file->tensors_[name] = {.dtype = type->dtype,
                              .shape = tensor.shape,
                              .data = std::as_bytes(std::span(record)).subspan(*begin, *length),
                              .file = file->path_};
    }
  } catch (const c10::Error& error) {
    return problem("is not what torch.save writes: " + std::string(error.msg()));
  }
  return file;
}

namespace {

struct Mark {};
struct Global {
  std::string name;
};
struct Dict;
struct Tuple;
// None, booleans and the like are all monostate.
using Value = std::variant<std::monostate, Mark, int64_t, std::string, Global, PickledTensor,
                           std::shared_ptr<const Tuple>, std::shared_ptr<Dict>>;
struct Tuple {
  std::vector<Value> items;
};
struct Dict {
  std::map<std::string, PickledTensor> tensors;
};

class Machine {
 public:
  explicit Machine(std::string_view code) : code_(code) {}

  absl::StatusOr<std::map<std::string, PickledTensor>> Run() {
    while (problem_.empty()) {
      const char instruction = Take<char>();
      if (instruction == '.') break;
      Step(instruction);
    }
    const auto* dict = std::get_if<std::shared_ptr<Dict>>(&Top());
    if (problem_.empty() && dict == nullptr) problem_ = "holds no state dict";
    if (!problem_.empty()) return absl::InvalidArgumentError(problem_);
    return (*dict)->tensors;
  }

 private:
  void Fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  std::string_view TakeBytes(size_t count) {
    if (count > code_.size()) {
      Fail("its pickle ends too early");
      code_ = {};
      return {};
    }
    const std::string_view bytes = code_.substr(0, count);
    code_.remove_prefix(count);
    return bytes;
  }
  template <typename T>
  T Take() {
    T value{};
    const std::string_view bytes = TakeBytes(sizeof(T));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::string TakeLine() {
    const size_t end = code_.find('\n');
    const std::string line(TakeBytes(end == std::string_view::npos ? code_.size() + 1 : end));
    TakeBytes(1);
    return line;
  }

  const Value& Top() {
    static const Value kNothing;
    return stack_.empty() ? kNothing : stack_.back();
  }
  Value Pop() {
    if (stack_.empty()) {
      Fail("its pickle takes more values than it has");
      return {};
    }
    Value value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }
  template <typename T>
  std::optional<T> PopA() {
    Value value = Pop();
    if (auto* it = std::get_if<T>(&value)) return std::move(*it);
    Fail("its pickle is not one of tensors");
    return std::nullopt;
  }
  // The values above the last mark, which goes with them.
  std::vector<Value> PopToMark() {
    size_t at = stack_.size();
    while (at > 0 && !std::holds_alternative<Mark>(stack_[at - 1])) --at;
    if (at == 0) {
      Fail("its pickle lacks a mark");
      return {};
    }
    std::vector<Value> values(stack_.begin() + static_cast<int64_t>(at), stack_.end());
    stack_.resize(at - 1);
    return values;
  }
  void PushTuple(std::vector<Value> items) {
    stack_.emplace_back(std::make_shared<const Tuple>(std::move(items)));
  }
  void PushTupleOf(size_t count) {
    std::vector<Value> items(count);
    for (size_t i = count; i-- > 0;) items[i] = Pop();
    PushTuple(std::move(items));
  }

  void SetItems(const std::vector<Value>& items) {
    const auto* dict = std::get_if<std::shared_ptr<Dict>>(&Top());
    if (dict == nullptr || items.size() % 2 != 0) return Fail("its pickle is not a state dict");
    for (size_t i = 0; i < items.size(); i += 2) {
      const auto* name = std::get_if<std::string>(&items[i]);
      if (name == nullptr) return Fail("its state dict has keys that are no names");
      // Others are those of _metadata, which the tensors do not depend on.
      if (const auto* tensor = std::get_if<PickledTensor>(&items[i + 1])) {
        (*dict)->tensors[*name] = *tensor;
      }
    }
  }

  static std::optional<std::vector<int64_t>> Ints(const Value& value) {
    const auto* tuple = std::get_if<std::shared_ptr<const Tuple>>(&value);
    if (tuple == nullptr) return std::nullopt;
    std::vector<int64_t> numbers;
    for (const Value& item : (*tuple)->items) {
      const auto* number = std::get_if<int64_t>(&item);
      if (number == nullptr || *number < 0) return std::nullopt;
      numbers.push_back(*number);
    }
    return numbers;
  }

  // ("storage", its type, the record, the device, elements): a tensor without a shape.
  void PushStorage() {
    const auto id = PopA<std::shared_ptr<const Tuple>>();
    if (!id) return;
    const std::vector<Value>& items = (*id)->items;
    const auto* type = items.size() == 5 ? std::get_if<Global>(&items[1]) : nullptr;
    const auto* key = items.size() == 5 ? std::get_if<std::string>(&items[2]) : nullptr;
    constexpr std::string_view kTorch = "torch.";
    if (type == nullptr || key == nullptr || !type->name.starts_with(kTorch)) {
      return Fail("its pickle has a storage that is not torch's");
    }
    stack_.emplace_back(PickledTensor{
        .storage = type->name.substr(kTorch.size()), .key = *key, .shape = {}, .strides = {}});
  }

  void Reduce() {
    const auto arguments = PopA<std::shared_ptr<const Tuple>>();
    const auto function = PopA<Global>();
    if (!arguments || !function) return;
    const std::vector<Value>& items = (*arguments)->items;
    if (function->name == "collections.OrderedDict" && items.empty()) {
      stack_.emplace_back(std::make_shared<Dict>());
      return;
    }
    const auto* tensor = items.empty() ? nullptr : std::get_if<PickledTensor>(&items[0]);
    if (function->name == "torch._utils._rebuild_parameter" && tensor != nullptr) {
      stack_.emplace_back(*tensor);
      return;
    }
    if (function->name != "torch._utils._rebuild_tensor_v2") {
      return Fail(absl::StrCat("its pickle calls ", function->name, ", which is not done here"));
    }
    const auto* offset = items.size() >= 4 ? std::get_if<int64_t>(&items[1]) : nullptr;
    const auto shape = items.size() >= 4 ? Ints(items[2]) : std::nullopt;
    const auto strides = items.size() >= 4 ? Ints(items[3]) : std::nullopt;
    if (tensor == nullptr || offset == nullptr || !shape || !strides) {
      return Fail("its pickle has a tensor that is none");
    }
    stack_.emplace_back(PickledTensor{.storage = tensor->storage,
                                      .key = tensor->key,
                                      .offset = *offset,
                                      .shape = *shape,
                                      .strides = *strides});
  }

  void Remember(uint32_t place) { memo_[place] = Top(); }
  void Recall(uint32_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) return Fail("its pickle repeats what is not there");
    stack_.push_back(found->second);
  }

  void Step(char instruction) {
    switch (instruction) {
      case '\x80':  // the protocol
        TakeBytes(1);
        return;
      case 'c': {
        const std::string module = TakeLine();
        stack_.emplace_back(Global{absl::StrCat(module, ".", TakeLine())});
        return;
      }
      case '(':
        stack_.emplace_back(Mark{});
        return;
      case 'N':
      case '\x88':
      case '\x89':
        stack_.emplace_back();
        return;
      case 'K':
        stack_.emplace_back(int64_t{Take<uint8_t>()});
        return;
      case 'M':
        stack_.emplace_back(int64_t{Take<uint16_t>()});
        return;
      case 'J':
        stack_.emplace_back(int64_t{Take<int32_t>()});
        return;
      case 'X':
        stack_.emplace_back(std::string(TakeBytes(Take<uint32_t>())));
        return;
      case ')':
        return PushTuple({});
      case '\x85':
      case '\x86':
      case '\x87':
        return PushTupleOf(static_cast<size_t>(static_cast<uint8_t>(instruction) - 0x84));
      case 't':
        return PushTuple(PopToMark());
      case '}':
        stack_.emplace_back(std::make_shared<Dict>());
        return;
      case 's': {
        Value value = Pop();
        Value key = Pop();
        return SetItems({std::move(key), std::move(value)});
      }
      case 'u':
        return SetItems(PopToMark());
      case 'b':  // an OrderedDict's attributes: _metadata
        Pop();
        return;
      case 'q':
        return Remember(Take<uint8_t>());
      case 'r':
        return Remember(Take<uint32_t>());
      case 'h':
        return Recall(Take<uint8_t>());
      case 'j':
        return Recall(Take<uint32_t>());
      case 'Q':
        return PushStorage();
      case 'R':
        return Reduce();
      default:
        Fail(absl::StrCat("its pickle has the instruction ",
                          static_cast<int>(static_cast<uint8_t>(instruction)),
                          ", which a state dict does not need"));
    }
  }

  std::string_view code_;
  std::vector<Value> stack_;
  std::map<uint32_t, Value> memo_;
  std::string problem_;
};

}  // namespace

absl::StatusOr<std::map<std::string, PickledTensor>> ReadPickledTensors(std::string_view pickle) {
  return Machine(pickle).Run();
}

}  // namespace castor::encoder
