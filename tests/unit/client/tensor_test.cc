#include "client/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/npy.h"

namespace castor::client {
namespace {

using ::testing::HasSubstr;

TEST(Half, AllBitPatternsSurviveTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      ASSERT_EQ(FloatToHalf(value), bits);
    }
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(FloatToHalf(1.0f), 0x3c00);
  EXPECT_EQ(FloatToHalf(-2.0f), 0xc000);
  EXPECT_EQ(FloatToHalf(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(FloatToHalf(0x1p-24f), 0x0001);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);
  EXPECT_EQ(FloatToHalf(0x1.8p-25f), 0x0001);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(FloatToBFloat16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even below
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, even above
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Tensor, ValuesSurviveUpToTheTypesPrecision) {
  const std::vector<float> values = {0, 1, -2.5f, 0.333f, 1e-3f, 100};
  for (const auto& [dtype, tolerance] :
       {std::pair{v1::FLOAT32, 0.0}, {v1::FLOAT16, 5e-4}, {v1::BFLOAT16, 4e-3}}) {
    const v1::Tensor tensor = MakeTensor(values, {2, 3}, dtype);
    EXPECT_EQ(tensor.raw().size(), 6 * SizeOf(dtype));
    EXPECT_EQ(ShapeString(tensor), "[2, 3]");
    const auto back = ToFloats(tensor);
    ASSERT_TRUE(back.has_value());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR((*back)[i], values[i], tolerance * std::fabs(values[i]));
    }
  }
}

TEST(ToFloats, RefusesBytesThatDoNotFitTheShape) {
  v1::Tensor tensor = MakeTensor(std::vector<float>(6), {2, 3});
  tensor.set_shape(1, 4);
  EXPECT_EQ(ToFloats(tensor), std::nullopt);
  tensor.set_shape(0, int64_t{1} << 62);  // wraps to a small product
  EXPECT_EQ(ToFloats(tensor), std::nullopt);
  tensor.set_shape(0, -2);
  EXPECT_EQ(ToFloats(tensor), std::nullopt);
  tensor = MakeTensor(std::vector<float>(6), {2, 3});
  tensor.mutable_raw()->push_back('x');
  EXPECT_EQ(ToFloats(tensor), std::nullopt);
  tensor.set_dtype(v1::INT64);
  EXPECT_EQ(ToFloats(tensor), std::nullopt);
}

// A file as numpy writes it, with this dictionary in its header.
std::string File(std::string dictionary, const std::string& data, char major = 1) {
  dictionary += '\n';
  std::string bytes = std::string("\x93NUMPY") + major + '\0';
  bytes += static_cast<char>(dictionary.size() & 0xff);
  bytes += static_cast<char>(dictionary.size() >> 8);
  if (major == 2) bytes += std::string(2, '\0');
  return bytes + dictionary + data;
}

// A file in memory.
const std::string kPath = "/proc/self/fd/" + std::to_string(memfd_create("npy", MFD_CLOEXEC));

absl::StatusOr<v1::Tensor> ParseNpy(const std::string& bytes) {
  EXPECT_TRUE(WriteFile(kPath, {bytes}).ok());
  return ReadNpy(kPath);
}

std::string FormatNpy(const v1::Tensor& tensor) {
  EXPECT_TRUE(WriteNpy(kPath, tensor).ok());
  auto file = InputFile::Open(kPath);
  std::string bytes;
  EXPECT_TRUE(file.ok() && file->Append(1 << 20, &bytes).ok());
  return bytes;
}

std::string ErrorOf(const std::string& bytes) {
  const auto tensor = ParseNpy(bytes);
  EXPECT_FALSE(tensor.ok());
  return std::string(tensor.status().message());
}

// numpy.save(f, numpy.array([[1, 2, 3], [4, 5, 6]], '<f4')), byte for byte.
const char kNumpyHeader[] =
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    "                                                          \n";

TEST(Npy, WritesWhatNumpyWrites) {
  const v1::Tensor tensor = MakeTensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const std::string bytes = FormatNpy(tensor);
  EXPECT_EQ(bytes.size(), 128u + 24u);
  EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(bytes.substr(10, 118), kNumpyHeader);
  EXPECT_EQ(bytes.substr(128), tensor.raw());
}

TEST(Npy, EveryTypeAndRankSurvivesTheRoundTrip) {
  for (const v1::DataType dtype : {v1::FLOAT32, v1::FLOAT16, v1::BFLOAT16, v1::INT32, v1::INT64}) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{}, {5}, {2, 3}, {2, 1, 4, 3}, {0, 7}}) {
      v1::Tensor tensor;
      tensor.set_dtype(dtype);
      tensor.set_raw("");
      tensor.mutable_shape()->Assign(shape.begin(), shape.end());
      for (size_t i = 0; i < *NumElements(shape) * SizeOf(dtype); ++i) {
        tensor.mutable_raw()->push_back(static_cast<char>(i * 37));
      }
      const auto back = ParseNpy(FormatNpy(tensor));
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_EQ(back->SerializeAsString(), tensor.SerializeAsString());
    }
  }
}

TEST(Npy, ReadsOtherWritersHeaders) {
  const std::string data(8, 'd');
  EXPECT_TRUE(ParseNpy(File("{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}", data)).ok());
  EXPECT_TRUE(ParseNpy(File("{\t'descr' : '<i8', 'fortran_order':False,'shape':()}", data)).ok());
  EXPECT_TRUE(
      ParseNpy(File("{'descr': '<f2', 'fortran_order': False, 'shape': (2, 2)}", data, 2)).ok());
}

TEST(Npy, ErrorsNameTheCause) {
  const std::string eight(8, 'd');
  EXPECT_THAT(ErrorOf(""), HasSubstr("not a .npy file"));
  EXPECT_THAT(ErrorOf("PK\x03\x04 something else"), HasSubstr("not a .npy file"));
  EXPECT_THAT(ErrorOf(File("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", eight)),
              HasSubstr("'<f8'"));
  EXPECT_THAT(ErrorOf(File("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", eight)),
              HasSubstr("little-endian"));
  EXPECT_THAT(
      ErrorOf(File("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", eight)),
      HasSubstr("structured"));
  EXPECT_THAT(ErrorOf(File("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", eight)),
              HasSubstr("Fortran"));
  EXPECT_THAT(ErrorOf(File("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", eight)),
              HasSubstr("needs 12"));
  EXPECT_THAT(ErrorOf(File("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", eight)),
              HasSubstr("needs 4"));
  EXPECT_THAT(ErrorOf(File("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -2)}", eight)),
              HasSubstr("shape"));
  EXPECT_THAT(ErrorOf(File("{'descr': '<f4', 'fortran_order': False, "
                           "'shape': (4611686018427387904, 4)}",
                           eight)),
              HasSubstr("overflows"));
  EXPECT_THAT(ErrorOf(File("{'descr': '<f4', 'shape': (2,)}", eight)), HasSubstr("lacks"));
  EXPECT_THAT(ErrorOf(File("{}", "", 3)), HasSubstr("version"));
  EXPECT_THAT(ErrorOf(std::string("\x93NUMPY\x01\x00\xff\xff{", 11)), HasSubstr("cut short"));
  EXPECT_THAT(ErrorOf(std::string("\x93NUMPY\x02\x00\x01\x00", 10)), HasSubstr("version"));
}

// Any cut and any changed byte gives a tensor or an error, never a crash (run under ASan).
TEST(Npy, DamagedFilesDoNoHarm) {
  const std::string good = FormatNpy(MakeTensor(std::vector<float>(6, 1), {2, 3}));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ParseNpy(good.substr(0, size)).ok()) << size;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % 128] = static_cast<char>(random());
    const auto tensor = ParseNpy(bad);
    if (!tensor.ok()) continue;
    EXPECT_EQ(tensor->raw().size() % SizeOf(tensor->dtype()), 0u);
  }
}

TEST(Npy, FilesAndTheirErrorsNameThePath) {
  const v1::Tensor tensor = MakeTensor(std::vector<float>{1, 2}, {2}, v1::BFLOAT16);
  EXPECT_THAT(std::string(ReadNpy("/no/x.npy").status().message()), HasSubstr("/no/x.npy"));
  EXPECT_THAT(std::string(WriteNpy("/no/such/folder/x.npy", tensor).message()),
              HasSubstr("/no/such/folder/x.npy"));
}

// Writes a file, whose header is written last, and a pipe, whose header must come first.
TEST(Npy, RowsThatAreAppendedMakeTheSameFile) {
  const std::string path = ::testing::TempDir() + "castor_npy_rows";
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const auto append = [&] {
    absl::StatusOr<NpyRows> rows = NpyRows::Create(path);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_TRUE(rows->Append({values.begin(), values.begin() + 2}).ok());
    EXPECT_TRUE(rows->Append({values.begin() + 2, values.end()}).ok());
    EXPECT_TRUE(rows->Close(2).ok());
  };
  const auto expect_all = [&](const absl::StatusOr<v1::Tensor>& back) {
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->SerializeAsString(), MakeTensor(values, {3, 2}).SerializeAsString());
  };
  append();
  expect_all(ReadNpy(path));
  std::remove(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer(append);
  expect_all(ReadNpy(path));
  writer.join();
  std::remove(path.c_str());
}

}  // namespace
}  // namespace castor::client
