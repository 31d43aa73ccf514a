// The types of rows against sentence-transformers (tests/golden/encoder/make_quantized.py).
#include "engine/encoder/text/output_types.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;

std::string FromHex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::vector<float> FloatsOf(const json& digits) {
  const std::string bytes = FromHex(digits);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

std::string Converted(OutputType type, const std::vector<float>& rows, int64_t dimensions,
                      std::vector<float> ranges) {
  if (NeedsRanges(type) && ranges.empty()) {
    ranges.resize(static_cast<size_t>(2 * dimensions));
    FindRanges(rows, ranges);
  }
  const auto count = static_cast<int64_t>(rows.size()) / dimensions;
  std::string out(static_cast<size_t>(count * TypedRowBytes(type, dimensions)), '\xA5');
  ConvertRows(type, rows, dimensions, ranges, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

TEST(OutputTypesTest, EqualSentenceTransformersByteForByte) {
  const std::map<std::string, OutputType> types = {{"int8", OutputType::kInt8},
                                                   {"uint8", OutputType::kUInt8},
                                                   {"binary", OutputType::kBinary},
                                                   {"ubinary", OutputType::kUBinary},
                                                   {"float16", OutputType::kFloat16}};
  const json golden = json::parse(ReadFile(GoldenDirectory() + "/quantized.json"));
  const std::vector<float> rows = FloatsOf(golden["rows"]), ranges = FloatsOf(golden["ranges"]);
  for (const json& expected : golden["cases"]) {
    const std::string name = expected["type"];
    EXPECT_EQ(Converted(types.at(name), rows, golden["dimensions"],
                        expected["ranges"] ? ranges : std::vector<float>()),
              FromHex(expected["bytes"]))
        << name;
  }
}

TEST(OutputTypesTest, BFloat16RoundsToNearestEven) {
  const std::vector<float> rows = {1, std::bit_cast<float>(0x3f808000U),
                                   std::bit_cast<float>(0x3f818000U), -INFINITY};
  const std::vector<uint16_t> expected = {0x3f80, 0x3f80, 0x3f82, 0xff80};
  EXPECT_EQ(Converted(OutputType::kBFloat16, rows, 2, {}),
            std::string(reinterpret_cast<const char*>(expected.data()), 8));
}

}  // namespace
}  // namespace castor::encoder
