#include "client/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/tensor.h"

namespace castor::client {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxPrefix = 12;  // magic, version, the header's size
constexpr size_t kMaxHeader = 64 << 10;
constexpr size_t kMaxDimensions = 8;

constexpr std::array<std::pair<std::string_view, v1::DataType>, 5> kTypes = {{
    {"<f4", v1::FLOAT32},
    {"<f2", v1::FLOAT16},
    {"<u2", v1::BFLOAT16},
    {"<i4", v1::INT32},
    {"<i8", v1::INT64},
}};

absl::Status Bad(const std::string& problem) { return absl::InvalidArgumentError(problem); }

// The text after "'key':" and blanks in the header's dictionary; nullopt without such a key.
std::optional<std::string_view> ValueOf(std::string_view header, const std::string& key) {
  const size_t at = header.find("'" + key + "'");
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = header.substr(at + key.size() + 2);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  if (rest.empty() || rest.front() != ':') return std::nullopt;
  rest.remove_prefix(1);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

// "(3, 4)", "(3,)" or "()".
std::optional<std::vector<int64_t>> ParseShape(std::string_view text) {
  if (text.empty() || text.front() != '(') return std::nullopt;
  const size_t close = text.find(')');
  if (close == std::string_view::npos) return std::nullopt;
  text = text.substr(1, close - 1);
  std::vector<int64_t> shape;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) return shape;
    int64_t dimension = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), dimension);
    if (error != std::errc() || dimension < 0 || shape.size() == kMaxDimensions) {
      return std::nullopt;
    }
    shape.push_back(dimension);
    text.remove_prefix(rest - text.data());
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) return shape;
    if (text.front() != ',') return std::nullopt;
    text.remove_prefix(1);
  }
}

absl::StatusOr<v1::DataType> ParseType(std::string_view text) {
  if (text.size() < 2 || (text.front() != '\'' && text.front() != '"')) {
    return Bad("structured types are not supported");
  }
  const std::string name(text.substr(1, text.find(text.front(), 1) - 1));
  for (const auto& [known, dtype] : kTypes) {
    if (known == name) return dtype;
  }
  return Bad(absl::StrCat("its type is '", name,
                          "'; float32, float16, int32, int64 and uint16 (for "
                          "bfloat16), little-endian, are supported: convert with a.astype('<f4')"));
}

// The header's description of the data.
struct Header {
  v1::DataType dtype;
  std::vector<int64_t> shape;
  size_t begin;  // of the data
  size_t size;   // of the data, by type and shape
};

absl::StatusOr<Header> ParseHeader(std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < 10) return Bad("it is not a .npy file");
  auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
  const size_t version = byte(6);
  size_t header_size = byte(8) | byte(9) << 8;
  size_t header_begin = 10;
  if (version == 2 && bytes.size() >= 12) {
    header_size |= byte(10) << 16 | byte(11) << 24;
    header_begin = 12;
  } else if (version != 1) {
    return Bad(absl::StrCat("its format version ", version, " is neither 1 nor 2"));
  }
  if (header_size > kMaxHeader || header_size > bytes.size() - header_begin) {
    return Bad("its header is cut short");
  }
  const std::string_view header = bytes.substr(header_begin, header_size);

  const auto descr = ValueOf(header, "descr");
  const auto order = ValueOf(header, "fortran_order");
  const auto shape_text = ValueOf(header, "shape");
  if (!descr || !order || !shape_text) return Bad("its header lacks descr, fortran_order or shape");
  if (!order->starts_with("False")) {
    return Bad("it is in Fortran order: save np.ascontiguousarray(a)");
  }
  const auto dtype = ParseType(*descr);
  if (!dtype.ok()) return dtype.status();
  const auto shape = ParseShape(*shape_text);
  if (!shape) return Bad("its shape is not a list of at most 8 sizes");

  const auto elements = NumElements(*shape);
  int64_t expected = 0;
  if (!elements ||
      __builtin_mul_overflow(*elements, static_cast<int64_t>(SizeOf(*dtype)), &expected)) {
    return Bad("its shape overflows");
  }
  return Header{.dtype = *dtype,
                .shape = *shape,
                .begin = header_begin + header_size,
                .size = static_cast<size_t>(expected)};
}

absl::Status CheckSize(size_t size, const Header& header) {
  if (size == header.size) return absl::OkStatus();
  return Bad(absl::StrCat("it has ", size > header.size ? "more than " : "",
                          std::min(size, header.size), " bytes of data where its shape needs ",
                          header.size));
}

v1::Tensor MakeTensor(const Header& header, std::string data) {
  v1::Tensor tensor;
  tensor.set_dtype(header.dtype);
  tensor.mutable_shape()->Assign(header.shape.begin(), header.shape.end());
  tensor.set_raw(std::move(data));
  return tensor;
}

std::string FormatHeader(const v1::Tensor& tensor) {
  std::string header = "{'descr': '";
  for (const auto& [name, dtype] : kTypes) {
    if (dtype == tensor.dtype()) header += name;
  }
  header += "', 'fortran_order': False, 'shape': (";
  for (const int64_t dimension : tensor.shape()) header += std::to_string(dimension) + ", ";
  if (tensor.shape_size() > 1) header.resize(header.size() - 2);  // "(3, 4)" but "(3, )"
  header += "), }";
  // The data begins at a multiple of 64 bytes, and the header ends with a newline.
  const size_t prefix = kMagic.size() + 4;
  header.append(63 - (prefix + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes += {'\x01', '\x00', static_cast<char>(header.size() & 0xff),
            static_cast<char>(header.size() >> 8)};
  return bytes + header;
}

// Always 128 bytes: two sizes of at most 19 digits fit in the second block of 64.
std::string RowsHeader(int64_t rows, int64_t width) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::FLOAT32);
  tensor.add_shape(rows);
  tensor.add_shape(width);
  return FormatHeader(tensor);
}

}  // namespace

absl::StatusOr<v1::Tensor> ReadNpy(const std::string& path) {
  auto file = InputFile::Open(path);
  if (!file.ok()) return file.status();
  const auto unusable = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat("cannot use ", file->name(), ": ", status.message()));
  };
  // Read at most a header's length first, then only as much as the header says: the file may be an
  // endless device.
  std::string bytes;
  if (absl::Status s = file->Append(kMaxPrefix + kMaxHeader, &bytes); !s.ok()) return s;
  const auto header = ParseHeader(bytes);
  if (!header.ok()) return unusable(header.status());
  bytes.erase(0, header->begin);
  if (bytes.size() <= header->size) {
    const size_t missing = header->size - bytes.size();
    if (absl::Status s = file->Append(missing + 1, &bytes); !s.ok()) return s;
  }
  if (absl::Status s = CheckSize(bytes.size(), *header); !s.ok()) return unusable(s);
  return MakeTensor(*header, std::move(bytes));
}

absl::Status WriteNpy(const std::string& path, const v1::Tensor& tensor) {
  return WriteFile(path, {FormatHeader(tensor), tensor.raw()});
}

absl::StatusOr<NpyRows> NpyRows::Create(const std::string& path) {
  absl::StatusOr<OutputFile> file = OutputFile::Create(path);
  if (!file.ok()) return file.status();
  NpyRows rows(*std::move(file));
  // A placeholder of the same size as the header that replaces it: see FormatHeader.
  if (rows.rewinds_) {
    if (absl::Status s = rows.file_.Append(RowsHeader(0, 1)); !s.ok()) return s;
  }
  return rows;
}

absl::Status NpyRows::Append(const std::vector<float>& values) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(float));
  values_ += static_cast<int64_t>(values.size());
  if (rewinds_) return file_.Append(bytes);
  kept_ += bytes;
  return absl::OkStatus();
}

absl::Status NpyRows::Close(int64_t width) {
  const std::string header = RowsHeader(values_ / width, width);
  absl::Status status = rewinds_ ? file_.Replace(header) : file_.Append(header + kept_);
  status.Update(file_.Close());
  return status;
}

}  // namespace castor::client
