#include "server/services/reflection_answers.h"

#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "castor/v1/kernel.pb.h"

namespace castor::server {
namespace {

using google::protobuf::FileDescriptorProto;
using Response = ReflectionAnswers::Response;

constexpr int kNotFound = 5;
const int kNumber = v1::kParameterFieldNumber;

std::vector<FileDescriptorProto> FilesOf(const Response& response) {
  std::vector<FileDescriptorProto> files;
  for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
    EXPECT_TRUE(files.emplace_back().ParseFromString(bytes));
  }
  return files;
}

std::vector<std::string> NamesOf(const Response& response) {
  std::vector<std::string> names;
  for (const FileDescriptorProto& file : FilesOf(response)) names.push_back(file.name());
  return names;
}

class ReflectionAnswersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    v1::AttendRequest::descriptor();
    v1::EncodeRequest::descriptor();
  }

  Response ForSymbol(const std::string& symbol) {
    ReflectionAnswers::Request request;
    request.set_file_containing_symbol(symbol);
    return answers_.Answer(request, &sent_);
  }
  Response ForFile(const std::string& name) {
    ReflectionAnswers::Request request;
    request.set_file_by_filename(name);
    return answers_.Answer(request, &sent_);
  }
  Response ForExtension(const std::string& type, int number) {
    ReflectionAnswers::Request request;
    request.mutable_file_containing_extension()->set_containing_type(type);
    request.mutable_file_containing_extension()->set_extension_number(number);
    return answers_.Answer(request, &sent_);
  }
  Response ForExtensionsOf(const std::string& type) {
    ReflectionAnswers::Request request;
    request.set_all_extension_numbers_of_type(type);
    return answers_.Answer(request, &sent_);
  }

  const ReflectionAnswers answers_{{"a.Service", "b.Service"}};
  ReflectionAnswers::Sent sent_;
};

TEST_F(ReflectionAnswersTest, FindsExtensions) {
  const std::string type = "google.protobuf.FieldOptions";
  EXPECT_EQ(NamesOf(ForExtension(type, kNumber)).front(), "castor/v1/kernel.proto");
  EXPECT_EQ(ForExtension(type, kNumber + 1).error_response().error_code(), kNotFound);
  EXPECT_EQ(ForExtension("no.such", kNumber).error_response().error_code(), kNotFound);
  EXPECT_EQ(ForExtension(type, -1).error_response().error_code(), kNotFound);

  const Response all = ForExtensionsOf(type);
  EXPECT_EQ(all.all_extension_numbers_response().base_type_name(), type);
  const auto& numbers = all.all_extension_numbers_response().extension_number();
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), kNumber), 1);
  const Response none = ForExtensionsOf("castor.v1.AttendRequest");
  EXPECT_TRUE(none.has_all_extension_numbers_response());
  EXPECT_EQ(none.all_extension_numbers_response().extension_number_size(), 0);
  EXPECT_EQ(ForExtensionsOf("no.such").error_response().error_code(), kNotFound);
}

TEST_F(ReflectionAnswersTest, WhatIsNotThereIsAnError) {
  for (const char* symbol : {"", ".", "..", "castor", "castor.v1", "castor.v1.AttendRequest.no",
                             ".castor.v1.AttendRequest", "no.such.Symbol"}) {
    const Response response = ForSymbol(symbol);
    if (response.has_file_descriptor_response()) continue;  // a package is a symbol to protobuf
    EXPECT_EQ(response.error_response().error_code(), kNotFound) << symbol;
    EXPECT_EQ(response.original_request().file_containing_symbol(), symbol);
  }
  const std::string dots(60'000, '.');  // the pool would take a second over them
  EXPECT_EQ(ForSymbol(dots).error_response().error_code(), kNotFound);
  EXPECT_EQ(ForFile(dots).error_response().error_code(), kNotFound);
  EXPECT_EQ(ForExtension(dots, 1).error_response().error_code(), kNotFound);
  EXPECT_EQ(ForExtensionsOf(dots).error_response().error_code(), kNotFound);
  EXPECT_EQ(ForFile("castor/v1/none.proto").error_response().error_code(), kNotFound);
  EXPECT_EQ(ForFile("").error_response().error_code(), kNotFound);
  EXPECT_EQ(answers_.Answer({}, &sent_).error_response().error_code(), 3);
}

}  // namespace
}  // namespace castor::server
