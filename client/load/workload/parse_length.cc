#include <algorithm>
#include <charconv>

#include "client/cli/command.h"
#include "client/file.h"
#include "client/load/workload/parse_parts.h"

namespace castor::load {
namespace {

constexpr size_t kMaxLengthBytes = 1 << 20;  // of a file of lengths
constexpr size_t kMaxLengths = 100'000;      // in a list or a file
constexpr size_t kMaxParts = 100;            // of a mixture
constexpr int kMaxMixtures = 4;              // within each other
constexpr Range kLengthWeight{0, 1e9, /*above=*/true};

Length ReadLengthValue(TomlTable& table, std::string_view key, const toml::node& node,
                       int64_t greatest, int depth);

std::vector<int64_t> ReadLengthFile(const TomlTable& table, const std::string& path,
                                    int64_t greatest) {
  auto file = client::InputFile::Open(path);
  std::string text;
  absl::Status status = file.status();
  if (status.ok()) status = file->Append(kMaxLengthBytes + 1, &text);
  if (!status.ok()) table.Fail("file", std::string(status.message()));
  if (text.size() > kMaxLengthBytes) table.Fail("file", file->name() + " is larger than 1 MiB");
  std::vector<int64_t> lengths;
  std::string_view rest = text;
  for (size_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    std::string_view number = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (number.ends_with('\r')) number.remove_suffix(1);
    if (number.empty()) continue;
    int64_t length = 0;
    const char* const last = number.data() + number.size();
    const auto [read, error] = std::from_chars(number.data(), last, length);
    if (error != std::errc() || read != last || length < 1 || length > greatest) {
      table.Fail("file", "line " + std::to_string(line) + " of " + file->name() +
                             " must be a whole number from 1 to " + std::to_string(greatest));
    }
    lengths.push_back(length);
    if (lengths.size() > kMaxLengths) table.Fail("file", file->name() + " has over 100000 lines");
  }
  if (lengths.empty()) table.Fail("file", file->name() + " holds no lengths");
  return lengths;
}

UniformLength ReadUniform(TomlTable& table, int64_t greatest) {
  const toml::node& node = *table.Find("uniform");
  const auto* ends = node.as_array();
  if (ends == nullptr || ends->size() != 2) table.Refuse("uniform", node, "[least, greatest]");
  UniformLength uniform;
  uniform.least = table.WholeOf("uniform", *ends->get(0), 1, greatest);
  uniform.greatest = table.WholeOf("uniform", *ends->get(1), uniform.least, greatest);
  return uniform;
}

LognormalLength ReadLognormal(TomlTable table, int64_t greatest) {
  LognormalLength lognormal;
  lognormal.greatest = std::min(lognormal.greatest, greatest);
  table.Real("median", {0, 1e9, /*above=*/true}, &lognormal.median);
  table.Real("sigma", {0, 10}, &lognormal.sigma);
  table.Whole("max", 1, greatest, &lognormal.greatest);
  table.Whole("min", 1, lognormal.greatest, &lognormal.least);
  table.RefuseOthers();
  return lognormal;
}

LengthMixture ReadMixture(TomlTable& table, int64_t greatest, int depth) {
  const toml::node& node = *table.Find("mix");
  const auto* parts = node.as_array();
  constexpr char kExpected[] = "an array of 1 to 100 tables {weight = 9, lengths = 64}";
  if (parts == nullptr || parts->empty() || parts->size() > kMaxParts) {
    table.Refuse("mix", node, kExpected);
  }
  if (depth >= kMaxMixtures) table.Fail("mix", "mixtures lie within each other too deep");
  LengthMixture mixture;
  for (const toml::node& element : *parts) {
    if (!element.is_table()) table.Refuse("mix", element, kExpected);
    TomlTable part(*element.as_table(), table.file(), table.what() + ": mix");
    auto& made = mixture.parts.emplace_back();
    part.Real("weight", kLengthWeight, &made.weight);
    const toml::node* lengths = part.Find("lengths");
    if (lengths == nullptr) part.Fail("", "needs lengths");
    made.of.push_back(ReadLengthValue(part, "lengths", *lengths, greatest, depth + 1));
    part.RefuseOthers();
  }
  return mixture;
}

EmpiricalLength ReadList(TomlTable& table, std::string_view key, const toml::array& list,
                         int64_t greatest) {
  if (list.empty() || list.size() > kMaxLengths) {
    table.Refuse(key, list, "an array of 1 to 100000 lengths");
  }
  EmpiricalLength empirical;
  for (const toml::node& length : list) {
    empirical.lengths.push_back(table.WholeOf(key, length, 1, greatest));
  }
  return empirical;
}

Length ReadLengthValue(TomlTable& table, std::string_view key, const toml::node& node,
                       int64_t greatest, int depth) {
  if (node.is_integer()) return FixedLength{table.WholeOf(key, node, 1, greatest)};
  if (const auto* list = node.as_array()) return ReadList(table, key, *list, greatest);
  constexpr char kExpected[] =
      "a whole number, an array of them, or one of {uniform = [1, 512]}, {lognormal = {...}}, "
      "{file = \"...\"} and {mix = [...]}";
  if (!node.is_table() || node.as_table()->size() != 1) table.Refuse(key, node, kExpected);
  TomlTable shape(*node.as_table(), table.file(), table.what() + ": " + std::string(key));
  Length length;
  if (shape.Has("uniform")) {
    length = ReadUniform(shape, greatest);
  } else if (shape.Has("lognormal")) {
    length = ReadLognormal(shape.Sub("lognormal"), greatest);
  } else if (shape.Has("mix")) {
    length = ReadMixture(shape, greatest, depth);
  } else if (shape.Has("file")) {
    std::string path;
    shape.Text("file", &path);
    length = EmpiricalLength{ReadLengthFile(shape, path, greatest)};
  }
  shape.RefuseOthers();
  return length;
}

}  // namespace

void ReadLength(TomlTable& table, std::string_view key, int64_t greatest, Length* length) {
  if (const auto* node = table.Find(key)) {
    *length = ReadLengthValue(table, key, *node, greatest, 0);
  }
}

}  // namespace castor::load
