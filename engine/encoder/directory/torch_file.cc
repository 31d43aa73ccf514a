#include "engine/encoder/directory/torch_file.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/base/regular_file.h"
#include "engine/encoder/directory/pickle.h"

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

}  // namespace castor::encoder
