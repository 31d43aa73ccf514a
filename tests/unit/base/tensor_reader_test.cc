#include "engine/tensor_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "engine/base/error.h"
#include "tests/support/shared_object.h"

namespace castor {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

TensorInput InFile(const SharedObject& object, int64_t offset, int64_t size) {
  TensorInput input;
  input.file = FileRange{.descriptor = object.descriptor(), .offset = offset, .size = size};
  return input;
}

std::string Next(TensorReader& reader, size_t size) {
  std::string bytes(size, '\0');
  const absl::Status status = reader.Read(size, reinterpret_cast<std::byte*>(bytes.data()));
  return status.ok() ? bytes : std::string(status.message());
}

TEST(TensorReaderTest, PiecesAreOneAfterAnother) {
  const std::string text = "0123456789";
  const auto bytes = std::as_bytes(std::span(text));
  TensorInput input;
  input.pieces = {bytes.first(0), bytes.first(3), {}, bytes.subspan(3, 4), bytes.subspan(7)};
  EXPECT_EQ(input.size_bytes(), 10);
  EXPECT_EQ(DataField(input, "query"), "query.raw");
  TensorReader reader(input, "query");
  EXPECT_EQ(Next(reader, 2), "01");
  EXPECT_EQ(Next(reader, 3), "234");
  reader.Skip(3);
  EXPECT_EQ(Next(reader, 2), "89");
  EXPECT_EQ(Next(reader, 0), "");
}

TEST(TensorReaderTest, PiecesThatOverflowHaveNoSize) {
  TensorInput input;
  input.pieces.assign(3, {static_cast<const std::byte*>(nullptr), size_t{kLargest}});
  EXPECT_EQ(input.size_bytes(), -1);
}

TEST(TensorReaderTest, AFileIsReadFromItsRange) {
  const SharedObject object(20);
  object.Write(5, "0123456789");
  const TensorInput input = InFile(object, 5, 10);
  EXPECT_EQ(input.size_bytes(), 10);
  EXPECT_EQ(DataField(input, "cast.gate"), "cast.gate.shared_memory");
  TensorReader reader(input, "cast.gate");
  EXPECT_EQ(Next(reader, 4), "0123");
  reader.Skip(3);
  EXPECT_EQ(Next(reader, 3), "789");
}

TEST(TensorReaderTest, AFileThatWasCutIsAnErrorAtItsField) {
  const SharedObject object(1 << 20);
  const TensorInput input = InFile(object, 100, 8000);
  for (const int64_t left : {8099, 4096, 100, 99, 0}) {
    object.Cut(left);
    std::string bytes(8000, '\0');
    const absl::Status status =
        TensorReader(input, "key").Read(8000, reinterpret_cast<std::byte*>(bytes.data()));
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidField) << left;
    EXPECT_EQ(FieldOf(status), "key.shared_memory") << left;
  }
}

TEST(TensorReaderTest, RangesThatNoFileHasAreErrors) {
  const SharedObject object(100);
  for (const auto& [offset, size] :
       {std::pair{int64_t{101}, int64_t{8}}, std::pair{kLargest, int64_t{8}},
        std::pair{kLargest - 4, int64_t{8}}, std::pair{int64_t{-8}, int64_t{8}}}) {
    const TensorInput input = InFile(object, offset, size);
    TensorReader reader(input, "query");
    std::byte bytes[8];
    EXPECT_EQ(FieldOf(reader.Read(8, bytes)), "query.shared_memory") << offset;
  }
  TensorInput closed;
  closed.file = FileRange{.descriptor = -1, .offset = 0, .size = 8};
  std::byte bytes[8];
  EXPECT_EQ(ReasonOf(TensorReader(closed, "query").Read(8, bytes)), Reason::kInvalidField);
}

}  // namespace
}  // namespace castor
